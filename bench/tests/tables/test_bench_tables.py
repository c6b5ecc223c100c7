"""The studies of mixed tables on a small one: what they report, and what pages they write."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from plausiflow.constraints import Immutable, Increasing, MaxChanges
from plausiflow.datasets.tables import loans_table
from plausiflow.errors import InvalidInputError, NotFittedError
from plausiflow.explainer import Explainer
from plausiflow.tables.encoder import Encoder
from plausiflow.tables.schema import Schema
from plausiflow_bench.harness.pages import write_section
from plausiflow_bench.tables import mixed, peers, sparsity
from plausiflow_bench.tables.cases import TableSelection, table_rules
from plausiflow_bench.tables.mixed import NeighbourJudge
from plausiflow_bench.true_density import true_log_prob_given

PAGE = Path(__file__).resolve().parents[3] / "docs" / "tables.md"


# ---------------------------------------------------------------- the judge of another family


def test_a_neighbour_judge_agrees_with_distances_counted_by_hand():
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "income": generator.normal(50, 10, 60).round(2),
            "job": generator.choice(["clerk", "none", "smith"], 60),
            "school": generator.choice(["low", "mid", "high"], 60),
        }
    )
    encoder = Encoder(Schema.infer(frame, orders={"school": ["low", "mid", "high"]}))
    y = np.arange(60) % 2
    new = frame.iloc[generator.permutation(60)[:12]].assign(income=generator.normal(50, 25, 12))
    step = {"low": 0.0, "mid": 0.5, "high": 1.0}
    span = frame["income"].max() - frame["income"].min()

    def distance(a, b):
        return (
            abs(a["income"] - b["income"]) / span
            + (a["job"] != b["job"])
            + abs(step[a["school"]] - step[b["school"]])
        )

    def fifth(row, others):
        return sorted(distance(row, other) for _, other in others.iterrows())[4]

    expected = []
    for (_, row), wanted in zip(new.iterrows(), y[:12], strict=True):
        own = frame[y == wanted]
        bar = sorted(fifth(own.loc[i], own.drop(index=i)) for i in own.index)[(len(own) - 1) // 2]
        expected.append(fifth(row, own) <= bar)
    judge = NeighbourJudge(layout=encoder.layout).fit(encoder.encode(frame).x, torch.from_numpy(y))
    assert judge.passes(encoder.encode(new).x, torch.from_numpy(y[:12])).tolist() == expected
    assert 0 < sum(expected) < 12


def test_a_neighbour_judge_must_be_fitted(case):
    with pytest.raises(NotFittedError, match="fit"):
        NeighbourJudge(layout=case.encoder.layout).passes(case.x, case.y_target)


# ---------------------------------------------------------------- the study of tables


def test_the_study_reports_every_column_for_every_method(rows):
    assert list(rows) == ["real", "plausiflow", "nearest_real_row"]
    for row in rows.values():
        assert {
            "dataset",
            "rows",
            "accuracy",
            "judged",
            "judged_worst",
            "knn_judge",
            "true_plausible",
        } <= set(row)
        assert {"seed", "commit", "training_rows"} <= set(row)
        assert row["judged_worst"] <= row["judged"]
    assert set(mixed.COLUMNS) <= set(rows["plausiflow"])
    assert rows["real"]["validity"] == rows["real"]["accuracy"]


@pytest.mark.parametrize("method", ["plausiflow", "nearest_real_row"])
def test_answers_are_valid_plausible_and_keep_the_rules(rows, method):
    row = rows[method]
    assert row["found"] > 0.5
    assert (row["validity"], row["plausible"], row["rules_broken"]) == (1.0, 1.0, 0.0)
    assert row["immutable_identical"] == 1.0


def test_figures_of_answers_written_by_hand_are_what_they_must_be(case):
    x = case.test.x
    of = np.array([0, 1, 2, 3])
    answers = x.iloc[of].copy()
    answers["income"] = answers["income"] + 100
    other = {"female": "male", "male": "female"}
    answers.iloc[0, x.columns.get_loc("sex")] = other[x["sex"].iloc[0]]
    answers.iloc[1, x.columns.get_loc("job")] = "clerk" if x["job"].iloc[1] != "clerk" else "manual"
    row = mixed.measure_answers(case, answers, of)
    train = case.train
    span = train.x["income"].max() - train.x["income"].min()
    inside = x["income"].iloc[of] + 100 <= np.maximum(train.x["income"].max(), x["income"].iloc[of])
    assert inside.all()
    assert row["found"] == 4 / 30
    assert row["changes"] == 6 / 4
    assert row["rules_broken"] == 1 / 4
    assert row["immutable_identical"] == 7 / 8
    assert row["cost"] == pytest.approx(100 / span + 2 / 4)
    wanted = case.explainer.predict_proba(answers).idxmax(axis=1).to_numpy()
    before = case.explainer.predict_proba(x.iloc[of]).idxmax(axis=1).to_numpy()
    assert row["validity"] == (wanted != before).mean()


def test_true_plausibility_is_above_the_median_of_the_wanted_class(case, rows):
    result = case.explainer.explain(case.test.x)
    wanted = result.verdicts["target"].to_numpy()[result.of]
    real = (
        pd.Series(true_log_prob_given(case.train.x, case.train.y)).groupby(case.train.y.to_numpy()).median()
    )
    reached = true_log_prob_given(result.answers, wanted) >= real[wanted].to_numpy()
    assert rows["plausiflow"]["true_plausible"] == reached.mean()


def test_the_worst_group_is_the_least_found_among_large_ones():
    table = replace(loans_table(n=300), protected=("sex", "dependents"))
    women = (table.x["sex"] == "female").to_numpy()
    found = ~women
    found[np.flatnonzero(women)[:10]] = True
    row = mixed._worst_group(table, found)
    assert row["worst_group_name"] == "sex = female"
    assert row["worst_group"] == 10 / women.sum()
    assert row["group_gap"] == pytest.approx(found.mean() - 10 / women.sum())
    small = replace(table, x=table.x.iloc[:40])
    assert math.isnan(mixed._worst_group(small, found[:40])["worst_group"])


def test_cells_are_identical_only_bit_for_bit_and_in_the_same_dtype():
    before = pd.Series([0.0, 1.5, np.nan])
    assert mixed._same_bits(before, pd.Series([-0.0, 1.5, np.nan])).tolist() == [False, True, True]
    assert not mixed._same_bits(before, before.astype(np.float32)).any()
    texts = pd.Series(["a", None, "b"])
    assert mixed._same_bits(texts, pd.Series(["a", None, " b"])).tolist() == [True, True, False]


def test_rules_are_those_of_the_table():
    table = loans_table(n=50)
    assert table_rules(table) == [Immutable("age", "sex"), Increasing("education")]
    assert table_rules(replace(table, immutable=(), increasing=())) == []


def test_a_selection_names_everything_that_is_wrong_with_it():
    with pytest.raises(InvalidInputError, match=r"Unknown table 'lawn'.*`rows` must be at least 1; got 0"):
        TableSelection(tables=("lawn",), rows=0)


# ---------------------------------------------------------------- sparsity and several answers


@pytest.mark.slow
def test_sparser_answers_change_fewer_features_and_a_limit_holds(quick):
    found = {
        row["method"]: row for row in sparsity.run(sparsity.SparsitySelection(tables=("loans",), rows=6))
    }
    default = f"max_extra_cost_{Explainer.max_extra_cost}"
    assert next(iter(found)) == default
    fewest = ["fewest_changes", "fewest_changes_with_margin"]
    assert list(found)[-6:] == ["at_most_2_changes", "at_most_3_changes", "more_rules", *fewest, "4_answers"]
    assert found[default]["l2_ratio"] == 1.0
    assert found[default]["changes"] <= found["max_extra_cost_0.0"]["changes"]
    assert found["max_extra_cost_0.0"]["cost_ratio"] <= 1
    assert found["at_most_3_changes"]["kept"] in (1.0, pytest.approx(float("nan"), nan_ok=True))
    assert found["at_most_3_changes"]["most_changes"] <= 3
    assert 0 <= found["at_most_3_changes"]["enumerated"] <= 1
    assert "judged_by_default" in found["plausibility_0.25"]
    assert 0 <= found["4_answers"]["four_distinct"] <= found["4_answers"]["found"]
    assert found["4_answers"]["spread"] > 0
    assert all(row["features"] == 12 for row in found.values())


def test_the_fewest_changes_are_those_of_the_smallest_limit_with_an_answer(case):
    few = case.first_rows(6)
    reference = few.explainer.explain(few.test.x, few.target)
    both = (False, True)
    row, inside = (sparsity._measure_fewest_changes(few, reference, margin=margin) for margin in both)
    counts = np.full(6, np.inf)
    for limit in range(12, 0, -1):
        result = few.explainer.explain(few.test.x, few.target, constraints=[MaxChanges(limit)])
        counts[result.is_found] = result.found_figures("n_changes")[result.is_found]
    assert row["changes"] == counts[np.isfinite(counts)].mean()
    assert row["changes"] <= reference.found_figures("n_changes")[reference.is_found].mean()
    assert row["found"] == reference.is_found.mean()
    assert row["cost_ratio"] > 0
    assert 0 <= row["judged"] <= 1
    assert row["changes"] <= inside["changes"] <= reference.found_figures("n_changes").mean()


# ---------------------------------------------------------------- the page


def test_the_page_has_the_marks_of_every_study_and_keeps_its_text(rows, tmp_path):
    page = tmp_path / "tables.md"
    page.write_text(PAGE.read_text())
    mixed.write_page(list(rows.values()), page)
    won = [row | {"why_not": "–", "timeouts": 0} for row in peers.mark_wins(list(rows.values()))]
    peers.write_page(won, page)
    sparsity.write_page([row | {"features": 12} for row in rows.values()], page)
    written = page.read_text()
    assert written.startswith(PAGE.read_text()[:200])
    assert written.count("| loans | plausiflow |") == 3
    assert "**1.000**" in written
    assert f"commit {rows['real']['commit']}" in written


def test_a_page_without_marks_is_refused(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("nothing here")
    with pytest.raises(InvalidInputError, match=r"must have the mark .* followed by"):
        write_section(page, mixed.MARK, "text")
