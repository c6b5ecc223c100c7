"""A failing model is told apart from bad rows, and calls are counted by request."""

import threading

import numpy as np
import pandas as pd
import pytest
import torch

from plausiflow import Explainer, LinearClassifier
from plausiflow.densities import KDE
from plausiflow.errors import ModelError
from plausiflow.models import count_model_calls


class Model:
    """A function of the table that can be broken in several ways."""

    def __init__(self):
        self.answer = self.proba

    def __call__(self, frame):
        return self.answer(frame)

    @staticmethod
    def proba(frame):
        high = 1 / (1 + np.exp(-(frame["a"] + frame["b"]).to_numpy(float)))
        return np.column_stack([1 - high, high])

    def raises(self, frame):
        raise ConnectionError("the model server does not answer")

    def odd(self, frame):
        if (frame["a"] > 100).any():
            raise ValueError("too large")
        return self.proba(frame)


def table(n=120):
    draw = np.random.default_rng(0)
    x = pd.DataFrame({"a": draw.normal(size=n).round(2), "b": draw.normal(size=n).round(2)})
    return x, np.where(x["a"] + x["b"] > 0, "yes", "no")


@pytest.fixture
def fitted():
    model = Model()
    return model, Explainer(model, density=KDE(), confidence=None, judges=0).fit(*table())


BROKEN = {
    "raises": Model.raises,
    "None": lambda self, frame: None,
    "text": lambda self, frame: ["granted"] * len(frame),
    "wrong shape": lambda self, frame: np.full((len(frame), 3), 1 / 3),
    "too few rows": lambda self, frame: np.zeros((0, 2)),
    "negative": lambda self, frame: np.column_stack([np.full(len(frame), 1.5), np.full(len(frame), -0.5)]),
    "not a number": lambda self, frame: np.full((len(frame), 2), np.nan),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("call", ["explain", "predict", "predict_proba"])
def test_a_model_that_fails_for_every_row_raises(fitted, broken, call):
    model, explainer = fitted
    model.answer = lambda frame: broken(model, frame)
    with pytest.raises(ModelError, match="fails for a row that it predicted before"):
        getattr(explainer, call)(table()[0].iloc[:5])


def test_a_model_that_fails_in_the_middle_of_a_search_raises(fitted):
    model, explainer = fitted
    calls = []

    def fails_later(frame):
        calls.append(len(frame))
        return model.raises(frame) if len(calls) > 3 else model.proba(frame)

    model.answer = fails_later
    with pytest.raises(ModelError, match=r"ConnectionError.*does not answer"):
        explainer.explain(table()[0].iloc[:5])


def test_one_bad_row_is_a_verdict_and_the_others_are_explained(fitted):
    model, explainer = fitted
    model.answer = model.odd
    rows = table()[0].iloc[:5].copy()
    rows.iloc[2, 0] = 1e4
    status = explainer.explain(rows).status["status"].tolist()
    assert status[2] == "invalid_input"
    assert "invalid_input" not in status[:2] + status[3:]


def test_a_loaded_explainer_knows_a_row_that_its_model_predicts(fitted, tmp_path):
    model, explainer = fitted
    explainer.save(tmp_path / "saved")
    loaded = Explainer.load(tmp_path / "saved", model=model)
    model.answer = model.raises
    with pytest.raises(ModelError, match="fails for a row that it predicted before"):
        loaded.explain(table()[0].iloc[:2])


def test_a_network_with_broken_weights_raises():
    explainer = Explainer(LinearClassifier(), density=KDE(), confidence=None, judges=0).fit(*table())
    network = explainer.model_.model
    state = network.state()
    network.load_state({name: torch.full_like(value, torch.nan) for name, value in state.items()})
    with pytest.raises(ModelError, match="fails for a row that it predicted before"):
        explainer.explain(table()[0].iloc[:3])


def test_each_thread_counts_its_own_calls(fitted):
    _, explainer = fitted
    rows, counts = table()[0].iloc[:4], {}
    alone = explainer.explain(rows).model_calls

    def explain(name):
        counts[name] = explainer.explain(rows).model_calls

    threads = [threading.Thread(target=explain, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == dict.fromkeys(range(4), alone)
    assert alone > 0


def test_counts_are_those_of_the_innermost_block(fitted):
    _, explainer = fitted
    with count_model_calls() as outer:
        with count_model_calls() as inner:
            explainer.predict(table()[0].iloc[:3])
        assert (inner.calls, inner.rows) == (1, 3)
    assert outer.calls == 0


def test_a_whole_number_beyond_every_dtype_is_a_verdict():
    x, y = table()
    x["n"] = np.arange(len(x)) % 53
    explainer = Explainer(LinearClassifier(), density=KDE(), confidence=None, judges=0).fit(x, y)
    rows = x.iloc[:2].astype({"n": object})
    rows.iloc[0, 2] = 10**30
    assert len(explainer.explain(rows).status) == 2
    assert len(explainer.predict(rows)) == 2
