"""Retrained models of a saved explainer: the same lasting answers, models that are given again, errors."""

import numpy as np
import pytest
from pandas.testing import assert_frame_equal
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from plausiflow import Explainer, LinearClassifier
from plausiflow.errors import InvalidInputError, ModelError
from saving import NUMBERS, document_of, score

pytest.importorskip("skops")
pytestmark = pytest.mark.filterwarnings("ignore:Counterfactuals may not last", "ignore:Stochastic Optimizer")


def scaled(estimator):
    return make_pipeline(StandardScaler(), estimator)


def shifted(seed):
    """Return a function of a table, which cannot be stored, with a cut-off of its own."""
    change = np.random.default_rng(seed).normal(scale=0.02)
    return lambda frame: np.clip(score(frame) + change, 0, 1)


MODELS = {
    "logistic": lambda x, y: scaled(LogisticRegression()).fit(x, y),
    "layers": lambda x, y: scaled(MLPClassifier((4,), max_iter=20, random_state=0)).fit(x, y),
    "boosted": lambda x, y: HistGradientBoostingClassifier(max_iter=4, random_state=0).fit(x, y),
    "network": lambda x, y: LinearClassifier(),
    "function": lambda x, y: score,
}


@pytest.fixture(scope="module")
def durable(table, tmp_path_factory):
    """Explainers by the name of their model, their answers and where they are saved, each made once."""
    known, root = {}, tmp_path_factory.mktemp("refits")

    def get(name):
        if name not in known:
            x, y = table[0][NUMBERS], table[1]
            retrain = (lambda rows, outcomes, seed: shifted(seed)) if name == "function" else None
            explainer = Explainer(
                MODELS[name](x, y), durability=0.8, refits=5, retrain=retrain, confidence=None, judges=0
            ).fit(x, y, effort="quick")
            explainer.save(root / name)
            known[name] = explainer, explainer.explain(x.iloc[:3]), root / name
        return known[name]

    return get


@pytest.mark.parametrize(
    "name",
    [
        "logistic",
        pytest.param("layers", marks=pytest.mark.slow),
        pytest.param("network", marks=pytest.mark.slow),
    ],
)
def test_a_loaded_explainer_gives_the_same_lasting_answers(name, durable, table):
    explainer, before, folder = durable(name)
    loaded = Explainer.load(folder)
    after = loaded.explain(table[0][NUMBERS].iloc[:3])
    assert_frame_equal(before.counterfactuals, after.counterfactuals)
    assert_frame_equal(before.figures, after.figures)
    assert "lasting" in after.figures
    assert loaded.durability == explainer.durability
    assert len(loaded.retrained_models) == len(explainer.retrained_models) == 15


@pytest.mark.slow
def test_trees_and_their_students_give_the_same_lasting_answers(durable, table):
    explainer, before, folder = durable("boosted")
    loaded = Explainer.load(folder)
    assert_frame_equal(before.figures, loaded.explain(table[0][NUMBERS].iloc[:3]).figures)
    own, again = explainer.engine_.durability.students, loaded.engine_.durability.students
    assert {name: t.tolist() for name, t in own.state().items()} == {
        name: t.tolist() for name, t in again.state().items()
    }


@pytest.mark.slow
def test_models_that_are_not_stored_are_given_again(durable, table):
    explainer, before, folder = durable("function")
    given = explainer.retrained_models
    with pytest.raises(InvalidInputError, match=r"not stored with it: .* Keep `explainer.retrained_models`"):
        Explainer.load(folder, model=score)
    with pytest.raises(InvalidInputError, match=r"must hold the 15 retrained models .* got 3"):
        Explainer.load(folder, model=score, retrain=given[:3])
    with pytest.raises(
        ModelError, match="Model 0 of `retrain` must be the model that was saved in this place"
    ):
        Explainer.load(folder, model=score, retrain=given[::-1])
    loaded = Explainer.load(folder, model=score, retrain=given)
    assert_frame_equal(before.figures, loaded.explain(table[0][NUMBERS].iloc[:3]).figures)


def test_models_are_given_only_to_an_explainer_that_has_some(saved):
    with pytest.raises(InvalidInputError, match=r"was fitted without `durability`\. Leave it out"):
        Explainer.load(saved("logistic"), retrain=[Ridge()])


def test_each_estimator_has_a_file_of_its_own(durable):
    folder = durable("logistic")[2]
    names = sorted(path.name for path in folder.glob("refit-*"))
    assert names == [f"refit-{number:02d}.skops" for number in range(15)]
    assert document_of(folder)["refits"]["jurors"] == 10
