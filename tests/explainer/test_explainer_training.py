"""Training rows and outcomes of any sort are learned from, or are an error that names them."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from explaining import survives
from plausiflow import Explainer, LinearClassifier, Training
from plausiflow.densities import mixed
from plausiflow.errors import InvalidInputError, PlausiflowError
from searching import applicants

pytestmark = pytest.mark.usefixtures("no_reasons_asked")

FRAME = applicants(120, missing=True)
ROWS = FRAME.iloc[:4]
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


NOT_A_TABLE = {
    "an array": r"`x` is an array, whose \d+ columns need names. Set them",
    "a dictionary": "`x` must be a table; got dict. Pass a DataFrame of pandas or Polars",
    "one column": "`x` must be a table; got Series. A Series is one row",
    "nothing": "`x` must be a table; got NoneType. Pass a DataFrame of pandas or Polars",
}
NO_CHANGE = "The table must have a column that can change; all are constants or identifiers. Give rows"


@pytest.mark.parametrize("kind", NO_TRAINING)
@pytest.mark.filterwarnings("ignore:`.*` is treated as an identifier")
def test_a_table_that_cannot_be_learned_from_is_an_error(kind):
    expected = NO_CHANGE if kind in ("the same row", "an identifier only") else "The table cannot be used:"
    expected = NOT_A_TABLE.get(kind, expected)
    with pytest.raises(InvalidInputError, match=expected):
        fitted(NO_TRAINING[kind], TEXT[: 0 if kind == "no rows" else 120])


@pytest.mark.parametrize("kind", TRAINING)
@pytest.mark.filterwarnings("ignore:`.*` is treated as an identifier")
@pytest.mark.filterwarnings("ignore:The model decides none")
def test_explainers_can_be_fitted_to_unusual_tables(hardly_trained, kind):
    x = TRAINING[kind]
    explainer = fitted(x, [f"{i % 2}" for i in range(len(x))])
    rows = x.iloc[:2]
    result = survives(lambda: explainer.explain(rows), 2)
    assert (explainer.predict(result.answers) == result.status["target"].iloc[result.of].to_numpy()).all()
