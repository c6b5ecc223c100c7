"""Rows and questions that people hand over by mistake: an error that helps, or a verdict for every row."""

import datetime
import decimal
import fractions

import numpy as np
import pandas as pd
import pytest
import torch

from explaining import survives
from plausiflow.errors import InvalidInputError
from sampling import slow, slow_unless
from searching import applicants

pytestmark = pytest.mark.usefixtures("no_reasons_asked")

FRAME = applicants(120, missing=True)
ROWS = FRAME.iloc[:4]
# ---------------------------------------------------------------- rows

# Four cells each, for any column.
COLUMNS = {
    "text": ["a", "b", "", " "],
    "numbers as text": ["31", " 32 ", "4e1", "0x1f"],
    "words for no number": ["nan", "inf", "-inf", "None"],
    "infinite": [np.inf, -np.inf, 1.0, 2.0],
    "missing": [np.nan, None, pd.NA, pd.NaT],
    "NaN": [np.nan] * 4,
    "None": [None] * 4,
    "huge": [1e308, -1e308, 1e200, 1e20],
    "larger than any float": [10**400, -(10**400), 10**30, 1],
    "tiny": [5e-324, -0.0, 0.0, 1e-320],
    "lists": [[1], [], [1, 2], ["clerk"]],
    "dictionaries": [{}, {1: 2}, {}, {}],
    "sets and tuples": [{1}, frozenset(), (1, 2), ()],
    "arrays": [np.zeros(2), np.zeros(0), np.ones((2, 2)), np.array(1.0)],
    "tables": [pd.DataFrame(), pd.Series([1, 2]), pd.Index([1]), pd.DataFrame({"a": [1]})],
    "tensors": [torch.tensor([1.0, 2.0]), torch.tensor(1.0), torch.zeros(0), torch.tensor(True)],
    "times": pd.date_range("2020", periods=4),
    "times with zones": pd.date_range("2020", periods=4, tz="UTC"),
    "durations": pd.to_timedelta([1, 2, 3, 4], unit="D"),
    "periods": pd.period_range("2020", periods=4, freq="M"),
    "intervals": pd.interval_range(0, 4),
    "dates": [
        datetime.date(2020, 1, 1),
        datetime.time(1),
        datetime.timedelta(1),
        datetime.datetime(2020, 1, 1),
    ],
    "complex": [1 + 2j, 1j, 0j, complex("nan")],
    "booleans": [True, False, True, False],
    "mixed": [31, "a", None, [1]],
    "bytes": [b"31", b"", bytearray(b"a"), memoryview(b"a")],
    "functions": [len, print, int, type],
    "exceptions": [ValueError("no"), KeyError, StopIteration(), Exception],
    "decimals": [
        decimal.Decimal("31"),
        decimal.Decimal("NaN"),
        decimal.Decimal("Infinity"),
        decimal.Decimal(1),
    ],
    "fractions": [fractions.Fraction(1, 3), fractions.Fraction(31), 1, 2],
    "odd text": ["\ud800", "\0", "x" * 10_000, "a\nb"],
    "categories": pd.Categorical(["a", "b", "a", None]),
    "ordered categories": pd.Categorical([31, 32, 33, 31], ordered=True),
    "halves": np.array([31, 32, 33, 34], dtype=np.float16),
    "bytes of numbers": np.array([31, 32, 33, 34], dtype=np.uint8),
    "nullable": pd.array([31, pd.NA, 32, 33], dtype="Int64"),
    "nullable floats": pd.array([31, pd.NA, 32, 33], dtype="Float64"),
    "nullable booleans": pd.array([True, pd.NA, False, True], dtype="boolean"),
    "nullable text": pd.array(["clerk", pd.NA, "31", "x"], dtype="string"),
    "sparse": pd.arrays.SparseArray([31, 0, 0, 34]),
    "NumPy's scalars": list(np.array([31, 32, 33, 34])),
}


def with_column(name, cells):
    rows = ROWS.copy()
    rows[name] = pd.Series(cells, index=rows.index, dtype=object) if isinstance(cells, list) else cells
    return rows


@pytest.mark.parametrize(
    "names", [("income", "job", "owns"), slow(FRAME.columns)], ids=["one of each kind", "all columns"]
)
@pytest.mark.parametrize("kind", COLUMNS)
def test_any_cells_in_any_column_leave_every_row_a_verdict(explainer, kind, names):
    for name in names:
        rows = with_column(name, COLUMNS[kind])
        result = survives(lambda rows=rows: explainer.explain(rows, "yes"), 4)
        assert len(result) == 4  # cells are never an error
        unread = (result.status["status"] == "invalid_input").to_numpy()
        assert explainer.predict(rows).isna().tolist() == unread.tolist()
        assert explainer.predict_proba(rows).isna().all(axis=1).tolist() == unread.tolist()


def test_several_bad_cells_of_a_row_are_all_named(explainer):
    rows = ROWS.astype({"age": object, "job": object})
    rows.iloc[1, [0, 3]] = ["old", "astronaut"]
    reason = explainer.explain(rows).status["reason"].iloc[1]
    assert "`age` is 'old', which is not a number; `job` is 'astronaut', a level" in reason


TABLES = {
    "a column twice": lambda rows: rows[[*rows.columns, "age"]],
    "a column too few": lambda rows: rows.drop(columns="age"),
    "a column too many": lambda rows: rows.assign(height=1),
    "another name": lambda rows: rows.rename(columns={"age": "Age"}),
    "names with spaces": lambda rows: rows.rename(columns=lambda name: f"{name} "),
    "numbers for names": lambda rows: rows.set_axis(range(7), axis=1),
    "nothing for a name": lambda rows: rows.set_axis([*rows.columns[:-1], np.nan], axis=1),
    "names of two levels": lambda rows: pd.concat({"a": rows}, axis=1),
    "no columns": lambda rows: rows[[]],
    "an empty table": lambda rows: pd.DataFrame(),
    "turned around": lambda rows: rows.T,
    "a series of other columns": lambda rows: rows.iloc[0].drop("age"),
    "records": lambda rows: rows.to_dict("records"),
    "an array": lambda rows: rows.to_numpy(),
    "a dictionary": lambda rows: rows.to_dict(),
    "a tensor": lambda rows: torch.zeros(4, 7),
    "a text": lambda rows: "rows.csv",
    "nothing": lambda rows: None,
}
FINE_TABLES = {
    "no rows": lambda rows: rows.iloc[:0],
    "objects": lambda rows: rows.astype(object),
    "text": lambda rows: rows.astype(str),
    "nullable": lambda rows: rows.convert_dtypes(),
    "categories": lambda rows: rows.astype("category"),
    "turned columns": lambda rows: rows[rows.columns[::-1]],
    "the same row twice": lambda rows: rows.iloc[[0, 0]],
    "labels that repeat": lambda rows: rows.set_axis([0] * 4, axis=0),
    "labels that are missing": lambda rows: rows.set_axis([np.nan, None, pd.NaT, 1], axis=0),
    "names as categories": lambda rows: rows.set_axis(pd.CategoricalIndex(rows.columns), axis=1),
    "no repeated labels allowed": lambda rows: rows.set_flags(allows_duplicate_labels=False),
    "notes": lambda rows: rows.pipe(noted),
    "a subclass": lambda rows: type("Own", (pd.DataFrame,), {})(rows),
}
CONVERSIONS = ("text", "nullable", "categories")


def noted(rows):
    rows = rows.copy()
    rows.attrs["weights"] = np.zeros(3)  # which cannot be compared
    return rows


@pytest.mark.parametrize("kind", TABLES)
def test_what_is_no_table_of_these_columns_is_an_error(explainer, kind):
    rows = TABLES[kind](ROWS)
    for ask in (explainer.explain, explainer.predict, explainer.predict_proba):
        with pytest.raises(
            InvalidInputError, match=r"The rows cannot be encoded:\n- |`rows` (must be|is an)"
        ):
            ask(rows)


@pytest.mark.parametrize("kind", FINE_TABLES)
def test_however_pandas_holds_the_rows_they_are_explained(explainer, kind):
    rows = FINE_TABLES[kind](ROWS)
    result = survives(lambda: explainer.explain(rows, "yes", k=2), len(rows))
    assert result.counterfactuals.index.equals(rows.index)
    assert list(result.counterfactuals.columns) == list(rows.columns)


@pytest.mark.parametrize("seed", slow_unless([0, 1], range(8)))
def test_many_things_wrong_at_once_leave_every_row_a_verdict(explainer, seed):
    draw = np.random.default_rng(seed)
    for _ in range(8):
        rows = ROWS.copy()
        for name in draw.permutation(FRAME.columns)[: draw.integers(2, 6)]:
            cells = COLUMNS[str(draw.choice(list(COLUMNS)))]
            rows[name] = (
                pd.Series(cells, index=rows.index, dtype=object) if isinstance(cells, list) else cells
            )
        shape = str(draw.choice([kind for kind in FINE_TABLES if kind not in CONVERSIONS]))
        rows = FINE_TABLES[shape](rows.iloc[draw.permutation(4)])
        target = ["opposite", "runner_up", "yes"][draw.integers(3)]
        survives(lambda rows=rows, target=target: explainer.explain(rows, target), len(rows))


# ---------------------------------------------------------------- what is asked


ODD = [
    None, True, -1, 0, 1.5, np.nan, np.inf, -np.inf, 10**400, "2", "", b"yes", [], [1], (), {}, {"yes"},
    np.array([]), np.array(3), np.zeros((2, 2)), pd.NA, pd.NaT, pd.Series(dtype=float),
    pd.DataFrame({"a": [1, 2]}), torch.tensor([1.0, 2.0]), torch.tensor(1), decimal.Decimal(3),
    datetime.timedelta(1), range(3), len, object(), slice(1), iter("ab"), 1j,
]  # fmt: skip


@pytest.mark.parametrize("value", ODD, ids=lambda value: repr(value).split(" at 0x")[0][:30])
def test_odd_questions_are_refused_or_answered(explainer, value):
    rows = ROWS.iloc[:2]
    survives(lambda: explainer.explain(rows, value), 2)
    survives(lambda: explainer.explain(rows, [value, "yes"]), 2)
    survives(lambda: explainer.explain(rows, k=value), 2)
    survives(lambda: explainer.explain(rows, locked=value), 2)
    survives(lambda: explainer.explain(rows, time_limit=value), 2)
    survives(lambda: explainer.explain(rows, relaxed=value), 2)


@pytest.mark.parametrize("k", [0, -1, 1.5, 2.0, "2", None, True, np.nan, [1], 49, 10**30], ids=repr)
def test_k_is_a_whole_number_that_can_be_searched_for(explainer, k):
    with pytest.raises(InvalidInputError, match="`k` must be a whole number from 1 to 48; got"):
        explainer.explain(ROWS, k=k)


@pytest.mark.parametrize("limit", [-1, np.nan, -np.inf, "1", True, [1], datetime.timedelta(1)], ids=repr)
def test_a_time_limit_is_a_number_of_seconds(explainer, limit):
    with pytest.raises(InvalidInputError, match="`time_limit` must be seconds, 0 or more, or None; got"):
        explainer.explain(ROWS, time_limit=limit)


def test_everything_wrong_with_a_question_is_said_at_once(explainer):
    with pytest.raises(InvalidInputError, match=r"`k` must.*; `time_limit` must.*; `relaxed` must") as raised:
        explainer.explain(ROWS, k=0, time_limit="long", relaxed="very")
    assert str(raised.value).endswith("got 'very'.")


LOCKS = [
    "age", ["nope"], [["age"]], [["age"], "job"], ["age", ["job"]], [None, None], [["age", None], []],
    [[["age"]], []], {"age"}, {"age": True}, [0, 1], [b"age", "age"], pd.Series(["age"]), np.array(["age"]),
    pd.DataFrame({"age": [1, 0]}), pd.DataFrame({"age": [True]}), pd.DataFrame({"nope": [True, False]}),
    pd.DataFrame({"age": pd.array([True, None], dtype="boolean")}), pd.DataFrame({"age": ["yes", "no"]}),
    pd.DataFrame([[True, True]] * 2, columns=["age", "age"]), pd.DataFrame(np.ones((2, 7), dtype=bool)),
]  # fmt: skip


@pytest.mark.parametrize("locked", LOCKS, ids=lambda locked: repr(locked).split(" at 0x")[0][:30])
def test_locks_that_do_not_fit_are_refused(explainer, locked):
    with pytest.raises(InvalidInputError, match=r"`locked` (must be|does not fit)"):
        explainer.explain(ROWS.iloc[:2], locked=locked)
