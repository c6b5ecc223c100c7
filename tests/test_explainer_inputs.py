"""What people hand over by mistake: an error that helps, or a verdict for every row, and nothing else."""

import datetime
import decimal
import fractions
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from explaining import stand_in, survives
from plausiflow import Explainer, LinearClassifier, MLPClassifier, TorchClassifier, Training
from plausiflow.classifiers.tabular import EncodedModel
from plausiflow.constraints import Decreasing, Immutable, Increasing, Range
from plausiflow.densities import mixed
from plausiflow.errors import InvalidInputError, ModelError, PlausiflowError
from plausiflow.search import finder
from searching import ORDERS, applicants

FRAME = applicants(120, missing=True)
ROWS = FRAME.iloc[:4]
NUMBERS = ("age", "income", "savings", "gain")


@pytest.fixture(scope="module", autouse=True)
def no_reasons_asked():
    """Which rule blocks is not looked for: it takes most of the time, and other tests ask."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finder, "RULES_ASKED", 0)
        yield


@pytest.fixture(scope="module")
def explainer():
    """Only categories may change, so that there is nothing to solve."""
    return stand_in(
        FRAME,
        [Immutable(*NUMBERS)],
        push={"income": 1.0, "job": 2.0, "owns": 2.0, "school": 2.0},
        orders=ORDERS,
    )


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


@pytest.mark.parametrize("kind", COLUMNS)
def test_any_cells_in_any_column_leave_every_row_a_verdict(explainer, kind):
    for name in FRAME.columns:
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
    "one row as a series": lambda rows: rows.iloc[0],
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
        with pytest.raises(InvalidInputError, match="The rows cannot be encoded:\n- "):
            ask(rows)


@pytest.mark.parametrize("kind", FINE_TABLES)
def test_however_pandas_holds_the_rows_they_are_explained(explainer, kind):
    rows = FINE_TABLES[kind](ROWS)
    result = survives(lambda: explainer.explain(rows, "yes", k=2), len(rows))
    assert result.counterfactuals.index.equals(rows.index)
    assert list(result.counterfactuals.columns) == list(rows.columns)


@pytest.mark.parametrize("seed", range(8))
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


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("setting", "values"),
    [
        ("plausibility", [-0.1, 1.1, np.nan, "high", None, True, [0.5]]),
        ("confidence", [0, 1, np.nan, "high", True, [0.5]]),
        ("sparsity", [-0.1, np.nan, "no", True, [0.1]]),
        ("margin", [-0.1, 0.5, np.nan, "no", None, True]),
        ("judges", [-1, 1.5, "two", None, True, [1]]),
        ("random_state", [-1, 1.5, 2**32, 10**30, "x", None, True, np.random.default_rng(0)]),
        ("weights", [[1], "age", 1, pd.Series({"age": 1.0}), {"age"}]),
        ("kinds", [["age"], "age", 1]),
        ("orders", [["school"], "school", 1]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_settings_are_checked_before_anything_is_learned(setting, values):
    for value in values:
        with pytest.raises(InvalidInputError, match=rf"`{setting}` must be .*; got"):
            Explainer(LinearClassifier(), **{setting: value})


def test_a_seed_of_numpy_is_the_same_seed():
    x, y = (
        FRAME[["age", "job"]].iloc[:60],
        (FRAME["age"].iloc[:60] > FRAME["age"].iloc[:60].median()).map(str),
    )
    made = [
        Explainer(LinearClassifier(), confidence=None, judges=0, random_state=seed).fit(x, y)
        for seed in (3, np.int64(3))
    ]
    pd.testing.assert_frame_equal(made[0].predict_proba(x), made[1].predict_proba(x))


def test_all_wrong_settings_are_named_at_once():
    with pytest.raises(InvalidInputError, match=r"`plausibility` must.*`margin` must.*`judges` must"):
        Explainer(LinearClassifier(), plausibility="much", margin=3, judges=-1)


@pytest.mark.parametrize(
    "given",
    [
        {"constraints": Immutable("age")},
        {"constraints": "age"},
        {"constraints": None},
        {"constraints": ["age", Immutable]},
        {"constraints": [Immutable("agee"), Range("job", 0)]},
        {"constraints": [Increasing("age"), Decreasing("age")]},
        {"constraints": [Immutable(*FRAME.columns)]},
        {"missing": "drop"},
        {"missing": None},
        {"kinds": {"age": "number"}},
        {"kinds": {"height": "integer"}},
        {"kinds": dict.fromkeys(FRAME.columns, "identifier")},
        {"orders": {"school": ["none"]}},
        {"orders": {"school": "none"}},
        {"weights": {"agee": 1}},
        {"model": None},
        {"model": "MLP"},
        {"model": MLPClassifier},
        {"model": len},
        {"model": LinearClassifier.from_weights(torch.zeros(3, 3), torch.zeros(3))},
        {"model": LinearClassifier.from_weights(torch.zeros(2, 3), torch.zeros(2))},
        {"model": TorchClassifier(torch.nn.Linear(3, 2), n_classes=2)},
    ],
    ids=lambda given: str(given).split(" at 0x")[0][:40],
)
def test_settings_that_do_not_fit_the_table_are_refused(given):
    model = given.get("model", LinearClassifier(training=Training(epochs=1)))
    settings = {name: value for name, value in given.items() if name != "model"}
    explainer = Explainer(model, confidence=None, judges=0, **settings)
    error = survives(lambda: explainer.fit(FRAME, FRAME["owns"]), 0)
    assert isinstance(error, PlausiflowError)
    with pytest.raises(PlausiflowError, match="has not been fitted"):
        explainer.explain(ROWS)


# ---------------------------------------------------------------- models


class Model:
    """A model that somebody brings."""

    n_classes = 2
    differentiable = True

    def __init__(self, logits):
        self.logits = logits


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        (lambda x: 1 / 0, "raised ZeroDivisionError for encoded rows of shape"),
        (lambda x: None, "must return a float tensor of shape .* got NoneType"),
        (lambda x: np.zeros((len(x), 2)), "got ndarray"),
        (lambda x: x[:, 0], r"got Tensor of shape \(120,\)"),
        (lambda x: x[:, :1], r"got Tensor of shape \(120, 1\)"),
        (lambda x: x[:, :3], r"got Tensor of shape \(120, 3\)"),
        (lambda x: x[:1, :2], r"got Tensor of shape \(1, 2\)"),
        (lambda x: x[:, :2].long(), "got Tensor of shape .*, torch.int64"),
        (lambda x: x[:, :2] / 0, "training rows have logits that are not"),
        (lambda x: torch.where(x[:, :2] > 0.5, torch.nan, 0.0), "training rows have logits that are not"),
    ],
)
def test_a_model_that_does_not_answer_is_refused(logits, message):
    with pytest.raises(ModelError, match=message):
        Explainer(Model(logits), confidence=None, judges=0).fit(FRAME, FRAME["owns"])


@pytest.mark.parametrize("answer", ["raises", "is not a number"])
def test_a_row_that_the_model_cannot_decide_does_not_harm_the_others(explainer, answer):
    own, age = explainer.model_, explainer.encoder_.layout.block("age").number

    def logits(x):
        far = x[:, age] > 5
        if answer == "raises" and far.any():
            raise ValueError("too old")
        return torch.where(far[:, None], torch.nan, own.model.logits(x))

    rows = ROWS.assign(age=[30, 5000, 40, 5000])
    fresh = replace(explainer)
    fresh.encoder_, fresh.finder_ = explainer.encoder_, explainer.finder_
    fresh.model_ = EncodedModel(Model(logits), own.labels)
    result, expected = fresh.explain(rows), explainer.explain(rows)
    assert (result.status["status"] == "invalid_input").tolist() == [False, True, False, True]
    assert result.status["reason"].iloc[1].startswith("the model gives no probabilities for it")
    assert fresh.predict(rows).isna().tolist() == [False, True, False, True]
    kept = result.status.iloc[[0, 2]]
    assert kept["status"].tolist() == expected.status["status"].iloc[[0, 2]].tolist()


def test_a_model_that_raises_in_a_search_is_named(explainer):
    own = explainer.model_.model

    def logits(x):
        if len(x) == 1:
            raise IndexError("more rows, please")
        return own.logits(x)

    broken, own_labels = Model(logits), explainer.model_.labels
    fresh = replace(explainer)
    fresh.encoder_, fresh.model_ = explainer.encoder_, explainer.model_
    validity = replace(explainer.finder_.validity, outputs=EncodedModel(broken, own_labels).outputs)
    fresh.finder_ = replace(explainer.finder_, validity=validity)
    with pytest.raises(ModelError, match=r"`model.logits` raised IndexError.*: more rows, please"):
        fresh.explain(ROWS.iloc[:1])


# ---------------------------------------------------------------- training rows

TEXT = pd.Series(np.where(FRAME["owns"], "yes", "no"), name="outcome")
OUTCOMES = {
    "one outcome": ["yes"] * 120,
    "a missing one": [None, *TEXT[1:]],
    "all missing": [np.nan] * 120,
    "too few": TEXT[:5],
    "too many": [*TEXT, "yes"],
    "none": [],
    "nothing": None,
    "a text": "yes",
    "a number": 1,
    "numbers to predict": np.linspace(0, 1, 120),
    "a table": TEXT.to_frame(),
    "two columns": pd.DataFrame({"a": TEXT, "b": TEXT}),
    "a matrix": TEXT.to_numpy()[:, None],
    "a dictionary": TEXT.to_dict(),
    "a set": {"yes", "no"},
    "lists": [[1], [2]] * 60,
    "arrays": [np.zeros(2), np.ones(2)] * 60,
    "dictionaries": [{}, {1: 2}] * 60,
    "things without an order": [object() for _ in range(120)],
    "labels of two levels": pd.MultiIndex.from_tuples([(0, 1), (1, 1)] * 60),
    "missing booleans": pd.array([True, pd.NA] * 60, dtype="boolean"),
}
FINE_OUTCOMES = {
    "booleans": [True, False] * 60,
    "numbers": (i % 2 for i in range(120)),
    "floats": np.array([0.0, 1.0] * 60),
    "text and numbers": ["1", 1] * 60,
    "nullable": pd.array([0, 1] * 60, dtype="Int64"),
    "categories": pd.Categorical(TEXT, categories=["maybe", "yes", "no"]),
    "times": pd.to_datetime(["2020", "2021"] * 60),
    "a tensor": torch.tensor([0, 1] * 60),
    "one row of an outcome": ["rare", *["common"] * 119],
    "another index": TEXT.set_axis(range(500, 620)),
}


@pytest.fixture(scope="module")
def hardly_trained():
    with pytest.MonkeyPatch.context() as patch:
        for name in ("FLOW_TRAINING", "LEVELS_TRAINING"):
            patch.setattr(mixed, name, replace(getattr(mixed, name), epochs=1))
        yield


def fitted(x, y, **settings):
    model = LinearClassifier(training=Training(epochs=1))
    return Explainer(model, confidence=None, judges=0, **settings).fit(x, y)


@pytest.mark.parametrize("kind", OUTCOMES)
def test_what_are_no_outcomes_is_an_error_about_y(kind):
    with pytest.raises(PlausiflowError, match=r"`y` (must|looks like)"):
        fitted(FRAME, OUTCOMES[kind])


@pytest.mark.parametrize("kind", FINE_OUTCOMES)
def test_outcomes_of_any_sort_are_learned(hardly_trained, kind):
    explainer = fitted(FRAME[["age", "job"]], FINE_OUTCOMES[kind])
    assert len(explainer.model_.labels) == 2
    first, second = explainer.model_.labels
    result = survives(lambda: explainer.explain(ROWS[["age", "job"]], first, time_limit=0), 4)
    assert result.status["target"].tolist() == [first] * 4
    assert explainer.predict(ROWS[["age", "job"]]).isin([first, second]).all()


NO_TRAINING = {
    "an array": FRAME.to_numpy(),
    "a dictionary": FRAME.to_dict(),
    "one column": FRAME["age"],
    "nothing": None,
    "no rows": FRAME.iloc[:0],
    "no columns": FRAME[[]],
    "a column without values": FRAME.assign(age=np.nan),
    "infinite values": FRAME.assign(savings=[np.inf, *FRAME["savings"][1:]]),
    "lists": FRAME.assign(age=[[1]] * 120),
    "times": FRAME.assign(age=pd.date_range("2020", periods=120)),
    "complex": FRAME.assign(age=1j),
    "numbers for names": FRAME.set_axis(range(7), axis=1),
    "a name twice": FRAME[[*FRAME.columns, "age"]],
    "names of two levels": pd.concat({"a": FRAME}, axis=1),
    "the same row": FRAME.iloc[[0] * 120],
    "an identifier only": pd.DataFrame({"id": [f"person {i}" for i in range(120)]}),
}
TRAINING = {
    "a constant": FRAME[["job", "owns"]].assign(age=1),
    "a value and gaps": FRAME[["job", "owns"]].assign(age=[1, *[np.nan] * 119]),
    "two rows again and again": FRAME[["job", "age"]].iloc[[0, 1] * 60],
    "huge values": FRAME[["job"]].assign(age=[1e308, -1e300, *FRAME["savings"][2:]]),
    "tiny values": FRAME[["job"]].assign(age=np.linspace(0, 1e-320, 120)),
    "numbers and text": FRAME[["job"]].assign(age=[1, "a"] * 60),
    "booleans and gaps": FRAME[["job"]].assign(owns=[True, None] * 60),
    "an identifier": FRAME[["job"]].assign(id=range(120)),
    "nullable columns": FRAME[["job", "gain", "owns"]].convert_dtypes(),
    "an odd name": FRAME[["job", "age"]].rename(columns={"age": "a\nb "}),
    "names of results": FRAME[["job", "age"]].rename(columns={"job": "status", "age": "rank"}),
    "three rows": FRAME.iloc[:3].drop(columns=["gain"]),
    "two rows": FRAME.iloc[:2][["age", "savings"]],
}


@pytest.mark.parametrize("kind", NO_TRAINING)
@pytest.mark.filterwarnings("ignore:`.*` is taken for an identifier")
def test_what_cannot_be_learned_from_is_an_error_about_the_table(kind):
    with pytest.raises(InvalidInputError, match="The table cannot be used:"):
        fitted(NO_TRAINING[kind], TEXT[: 0 if kind == "no rows" else 120])


@pytest.mark.parametrize("kind", TRAINING)
@pytest.mark.filterwarnings("ignore:`.*` is taken for an identifier")
def test_odd_tables_are_learned_from(hardly_trained, kind):
    x = TRAINING[kind]
    explainer = fitted(x, [f"{i % 2}" for i in range(len(x))])
    rows = x.iloc[:2]
    result = survives(lambda: explainer.explain(rows), 2)
    assert (explainer.predict(result.answers) == result.status["target"].iloc[result.of].to_numpy()).all()
