"""The result: answers by label, rank and position, for any index; parts that do not fit raise."""

import numpy as np
import pandas as pd
import pytest
import torch
from pandas.testing import assert_frame_equal

from plausiflow.errors import InvalidInputError
from plausiflow.explanations import Explanations
from plausiflow.explanations.advantages import find_advantages
from plausiflow.tables.schema import Schema
from results import FIGURES, build, loans, strict


def test_alternatives_are_all_answers_by_label_and_rank():
    found = build(**loans()).alternatives
    assert found.index.tolist() == [("Ann", 1), ("Ann", 2), ("Cid", 1)]
    assert found.index.names == ["row", "rank"]
    assert_frame_equal(found.reset_index(drop=True), loans()["answers"])


def test_all_ranks_of_all_rows_are_one_table_with_costs():
    parts = loans()
    result = build(**parts)
    table = result.to_frame()
    features = list(parts["rows"].columns)
    assert list(table.columns[:6]) == ["row", "rank", "status", "reason", "predicted", "target"]
    assert list(table.columns[6 : 6 + len(features)]) == features
    assert list(table.columns[6 + len(features) :]) == ["cost", "probability", "score", "judged"]
    assert table["row"].tolist() == ["Ann", "Ann", "Bob", "Cid"]
    assert table["rank"].tolist() == [1, 2, pd.NA, 1]
    answered = table[table["rank"].notna()]
    np.testing.assert_array_equal(answered["cost"], result.figures["cost"])
    assert_frame_equal(
        answered[features].reset_index(drop=True).astype(parts["answers"].dtypes.to_dict()), parts["answers"]
    )
    assert table.loc[2, features].isna().all()


def test_an_index_of_several_levels_is_kept():
    parts = loans()
    index = pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)], names=["bank", None])
    parts["rows"] = parts["rows"].set_axis(index)
    result = build(**parts)
    assert result.counterfactuals.index.equals(index)
    assert result.alternatives.index.names == ["bank", None, "rank"]
    assert result.alternatives.index.tolist() == [("a", 1, 1), ("a", 1, 2), ("b", 1, 1)]
    assert result.changes["row"].tolist() == [("a", 1)] * 4 + [("b", 1)]
    assert result[2].row == ("b", 1)
    assert strict(result.to_json())["rows"][1]["row"] == ["a", 2]


def test_labels_that_repeat_stay_apart_by_position():
    parts = loans()
    parts["rows"] = parts["rows"].set_axis(["x", "x", "x"])
    result = build(**parts)
    assert result.counterfactuals["income"].tolist() == [38500, pd.NA, 18000]
    assert [one.status for one in result] == ["found", "infeasible", "found"]
    assert result.sentences.tolist() == build(**loans()).sentences.tolist()


def test_columns_keep_the_order_of_the_rows():
    parts = loans()
    order = ["rate", "job", "income", "owns_home", "open_lines"]
    parts |= {"rows": parts["rows"][order], "answers": parts["answers"][order]}
    result = build(**parts)
    assert list(result.counterfactuals.columns) == order
    assert result.changes["feature"].tolist() == ["income", "open_lines", "job", "owns_home", "rate"]
    assert result.sentences["Ann"] == "income: 31,000 → 38,500 and open_lines: 4 → 3"


def test_status_has_a_line_for_each_row():
    result = build(**loans(), reason=["", "too far", ""])
    assert result.status["status"].tolist() == ["found", "infeasible", "found"]
    assert result.status["reason"].tolist() == ["", "too far", ""]
    assert result.status["answers"].tolist() == [2, 0, 1]
    assert result.status.index.tolist() == ["Ann", "Bob", "Cid"]


def test_no_rows_and_no_answers_are_results_too():
    parts = loans()
    none = build(parts["rows"], parts["answers"].iloc[:0], [], schema=parts["schema"])
    empty = build(parts["rows"].iloc[:0], parts["answers"].iloc[:0], [], schema=parts["schema"])
    assert none.counterfactuals.isna().all(axis=None)
    assert len(empty.counterfactuals) == 0
    assert empty.counterfactuals.dtypes.equals(parts["rows"].dtypes)
    assert repr(none) == "Explanations(3 rows: 3 infeasible)"
    assert repr(empty) == "Explanations(0 rows)"
    for result in (none, empty):
        assert len(result.changes) == len(result.alternatives) == 0
        assert len(result.summary(by="job").features) == 0
        assert len(strict(result.to_json())["rows"]) == len(result) == len(list(result))
        assert "<table>" in result._repr_html_()
        assert result.metrics().drop("coverage").isna().all()
    assert none.metrics()["coverage"] == 0
    assert np.isnan(empty.metrics()["coverage"])


def test_a_table_that_is_changed_later_changes_no_result():
    parts = loans()
    result = build(**parts)
    parts["rows"]["note"] = "seen"
    parts["rows"]["income"] = 0
    assert result.sentences["Ann"] == "income: 31,000 → 38,500 and open_lines: 4 → 3"
    assert list(result.counterfactuals.columns) == list(result.rows.columns)


def test_one_row_keeps_the_types_of_its_cells():
    one = build(**loans(), labels=("no", "yes"), target="yes")[0]
    assert (one.row, one.status, one.reason, one.target) == ("Ann", "found", "", "yes")
    assert one.factual.name == "Ann"
    assert one.factual.tolist() == [31000, 4, False, "clerk", 0.25]
    assert isinstance(one.factual["income"], np.integer)
    assert [cf["income"] for cf in one.counterfactuals] == [38500, 31000]
    assert one.figures["cost"].to_dict() == {1: 0.0, 2: 1.0}
    assert one.changes.iloc[:, :4].to_numpy().tolist() == [
        [1, "income", 31000, 38500],
        [1, "open_lines", 4, 3],
        [2, "owns_home", False, True],
        [2, "job", "clerk", "nurse"],
    ]
    assert repr(one) == "Explanation(row 'Ann', found: income: 31,000 → 38,500 and open_lines: 4 → 3)"


def test_a_row_without_an_answer_shows_its_nearest_miss():
    parts = loans()
    miss = parts["rows"].iloc[[1]].reset_index(drop=True).assign(income=50000)
    result = build(**parts, misses=miss, misses_of=np.array([1]), misses_why=["not plausible"])
    one = result[-2]
    assert one.counterfactuals == []
    assert len(one.changes) == len(one.figures) == 0
    ((row, why),) = one.misses
    assert (row["income"], why) == (50000, "not plausible")
    assert result[0].misses == []
    assert strict(result.to_json())["rows"][1]["misses"][0]["why"] == "not plausible"


@pytest.mark.parametrize("i", [3, -4])
def test_a_position_beyond_the_rows_is_an_index_error(i):
    with pytest.raises(IndexError, match="not among 3 rows"):
        build(**loans())[i]


# Parts that do not fit


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"of": [0, 2, 1]}, "must not decrease"),
        ({"of": [0, 0, 3]}, "positions 0 to 2; got 0 to 3"),
        ({"of": [0, 2]}, "3 integers.*got shape"),
        ({"answers": loans()["answers"][["rate", "job"]]}, "`answers` must have the columns.*got rate, job"),
        ({"schema": Schema(())}, "`rows` must have the columns"),
        ({"figures": pd.DataFrame({"cost": [1.0, 2.0, 3.0]})}, "`figures` lacks the columns l1, l2"),
        (
            {"figures": pd.DataFrame(0.0, index=range(2), columns=FIGURES)},
            "3 rows, one for each answer; got 2",
        ),
        (
            {"figures": pd.DataFrame({name: [2.0, 1.0, 3.0] for name in FIGURES})},
            "must not decrease: the best",
        ),
        ({"status": ["found", "found", "found"]}, "status found or relaxed have no answer.*positions 1"),
        ({"status": ["found", "already", "already"]}, "neither found nor relaxed, at positions 2"),
        ({"status": ["found", "lost", "found"]}, "must be one of found, already.*got lost"),
        ({"verdicts": pd.DataFrame({"status": ["found"]})}, "lacks the columns reason.*\n.*index of `rows`"),
        ({"misses": loans()["rows"]}, "`misses_of` must be an array of 3.*\n.*`misses_why` must have 3"),
        ({"encoded": (torch.zeros(3, 2), torch.zeros(2, 2), torch.zeros(3))}, r"\(3, width\).*\(2, 2\)"),
    ],
)
def test_parts_that_do_not_fit_raise_with_what_is_wrong(changed, message):
    with pytest.raises(InvalidInputError, match=message):
        build(**loans() | changed)


def test_what_is_no_table_raises():
    with pytest.raises(InvalidInputError, match="`rows`: expected a pandas DataFrame; got list"):
        Explanations(
            rows=[1],
            answers=pd.DataFrame(),
            of=np.array([0]),
            figures=pd.DataFrame(),
            verdicts=pd.DataFrame(),
            schema=Schema(()),
        )


def test_every_problem_is_named_at_once():
    with pytest.raises(InvalidInputError) as error:
        build(**loans() | {"of": [0, 2, 1]}, status=["found", "lost", "found"], misses_why=["?"])
    assert str(error.value).count("\n- ") == 4


def test_nothing_can_be_reassigned():
    with pytest.raises(AttributeError):
        build(**loans()).rows = None


def test_best_answers_keep_the_dtypes_where_some_rows_have_none():
    rows = pd.DataFrame(
        {
            "n": np.array([1, 2, 3], dtype=np.int16),
            "b": [True, False, True],
            "job": pd.Categorical(["x", "y", "x"]),
        },
        index=["Ann", "Bob", "Cid"],
    )
    answers = rows.iloc[[0, 2]].assign(n=np.array([5, 6], dtype=np.int16))
    result = build(rows, answers, [0, 2], status=["found", "infeasible", "found"], schema=Schema.infer(rows))
    assert result.best_answers.dtypes.equals(rows.dtypes)
    assert result.best_answers.index.tolist() == ["Ann", "Cid"]
    assert result.best_answers["n"].tolist() == [5, 6]
    assert result.counterfactuals["n"].isna().tolist() == [False, True, False]


def test_what_speaks_for_an_answer_is_found_by_comparing_those_of_its_row():
    figures = pd.DataFrame(
        {
            "cost": [1.0, 2.0, 3.0, 1.0, 5.0],
            "n_changes": [3, 2, 3, 1, 1],
            "probability": [0.6, 0.9, 0.9, 0.5, np.nan],
        }
    )
    of = np.array([0, 0, 0, 2, 2])
    assert find_advantages(of, figures) == [
        ["least cost"],
        ["fewest changes", "most certain"],
        ["most certain"],
        ["least cost"],
        [],
    ]
    lasting = figures.assign(lasting=[1.0, 0.8, 1.0, 1.0, 1.0])
    assert find_advantages(of, lasting)[2] == ["most certain"]
    assert find_advantages(of[:1], figures[:1]) == [[]]
    assert find_advantages(of[:0], figures[:0]) == []
