"""The table of tested models: each is explained as the page says, with the version that it names."""

import importlib
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from torch import nn

from plausiflow import Explainer, OnnxModel, load_table

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "models.md").read_text()
NUMBERS = ["age", "income", "debt_ratio", "credit_score"]
PHRASES = {
    "exact conversion": "converted exactly",
    "its own trees": "the search follows its own",
    "surrogate": "a surrogate of 100 trees",
    "its own gradients": "torch",
    "its cut-off decides": "a cut-off of",
}


def rows_of_the_table():
    lines = TEXT.split("### Tested models")[1].split("\n## ")[0].splitlines()
    return [[c.strip() for c in line.strip("|").split("|")] for line in lines if line.startswith("|")][2:]


TABLE = {model: (how, version) for model, how, version in rows_of_the_table()}
PINS = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)


class FromTrainingRows(ClassifierMixin, BaseEstimator):
    """Probabilities from the outcomes of all training rows, weighted by their distance."""

    def fit(self, x, y):
        self.x_, self.classes_ = np.asarray(x, float), np.unique(y)
        self.scale_, self.y_ = self.x_.std(axis=0), np.asarray(y)
        return self

    def predict_proba(self, x):
        distance = ((np.asarray(x, float)[:, None] - self.x_) / self.scale_) ** 2
        weight = np.exp(-distance.sum(axis=2)) + 1e-12
        proba = np.stack([(weight * (self.y_ == label)).sum(axis=1) for label in self.classes_], axis=1)
        return proba / proba.sum(axis=1, keepdims=True)

    def predict(self, x):
        return self.classes_[self.predict_proba(x).argmax(axis=1)]


def linear():
    return make_pipeline(StandardScaler(), LogisticRegression())


def boosted(package, name, **settings):
    module = pytest.importorskip(package, reason="the extra `trees` is not installed")
    return lambda x, y: getattr(module, name)(**settings).fit(x, y)


def onnx(x, y):
    pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed")
    written = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")
    kind = importlib.import_module("skl2onnx.common.data_types").FloatTensorType([None, 4])
    forest = RandomForestClassifier(20, random_state=0).fit(x.to_numpy(np.float32), y)
    return OnnxModel(written.to_onnx(forest, initial_types=[("X", kind)]))


def network():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2), nn.Softmax(-1)).float()


def skorch_pipeline(x, y):
    skorch = pytest.importorskip("skorch", reason="skorch is not installed: pip install skorch")
    net = skorch.NeuralNetClassifier(network, max_epochs=8, verbose=0, lr=0.05, iterator_train__shuffle=False)
    single = FunctionTransformer(lambda rows: np.asarray(rows, np.float32))
    return make_pipeline(StandardScaler(), single, net).fit(x, y)


def module(x, y):
    net = nn.Sequential(nn.Linear(4, 1))
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[0.02, 1e-4, -1.0, 0.005]]))
        net[0].bias.fill_(-8.0)
    return net


BUILDERS = {
    "scikit-learn `LogisticRegression` in a pipeline": lambda x, y: linear().fit(x, y),
    "scikit-learn `CalibratedClassifierCV` of a linear model": lambda x, y: CalibratedClassifierCV(
        linear()
    ).fit(x, y),
    "scikit-learn `TunedThresholdClassifierCV` of a linear model": lambda x, y: TunedThresholdClassifierCV(
        linear()
    ).fit(x, y),
    "scikit-learn `FixedThresholdClassifier` of a linear model": lambda x, y: FixedThresholdClassifier(
        linear(), threshold=0.6
    ).fit(x, y),
    "scikit-learn `HistGradientBoostingClassifier`": lambda x, y: HistGradientBoostingClassifier(
        max_iter=20
    ).fit(x, y),
    "scikit-learn `RandomForestClassifier`": lambda x, y: RandomForestClassifier(20, random_state=0).fit(
        x, y
    ),
    "XGBoost `XGBClassifier`": lambda x, y: boosted("xgboost", "XGBClassifier", n_estimators=20)(x, y),
    "LightGBM `LGBMClassifier`": lambda x, y: boosted(
        "lightgbm", "LGBMClassifier", n_estimators=20, verbose=-1
    )(x, y),
    "CatBoost `CatBoostClassifier`": lambda x, y: boosted(
        "catboost", "CatBoostClassifier", iterations=20, verbose=0, allow_writing_files=False
    )(x, y),
    "`torch.nn.Module`": module,
    "ONNX through `OnnxModel`": onnx,
    "skorch `NeuralNetClassifier` in a pipeline": skorch_pipeline,
    "a function of a table": lambda x, y: lambda rows: 1 / (1 + np.exp(-(rows["income"] - 40_000) / 8000)),
    "a model that predicts from its training rows, like TabPFN (TabPFN itself was not run)": (
        lambda x, y: FromTrainingRows().fit(x, y)
    ),
}


@pytest.fixture(scope="module")
def table():
    train, _ = load_table("loans").split(200, 10)
    return train.x[NUMBERS].astype(float), (train.y == "granted").astype(int)


def test_the_table_names_every_tested_model():
    assert set(TABLE) == set(BUILDERS)


@pytest.mark.parametrize("name", BUILDERS)
def test_a_model_is_treated_as_the_page_says(name, table):
    x, y = table
    torch.manual_seed(0)
    model = BUILDERS[name](x, y)
    explainer = Explainer(model, confidence=None, judges=0, plausibility=0.1).fit(x, y, effort="quick")
    for phrase in TABLE[name][0].split(", "):
        assert PHRASES[phrase] in repr(explainer)
    assert ("gradients" in TABLE[name][0]) <= ("surrogate" not in repr(explainer))
    rows = x[(explainer.predict(x) == 0).to_numpy()].iloc[:4]
    result = explainer.explain(rows, target=1)
    assert (result.status["status"] == "found").any()
    assert (explainer.predict(result.best_answers) == 1).all()
    if hasattr(model, "predict"):
        assert np.asarray(model.predict(result.best_answers)).astype(int).tolist() == [1] * len(
            result.best_answers
        )


@pytest.mark.parametrize("name", [name for name, (_, version) in TABLE.items() if version != "–"])
def test_a_version_is_the_pinned_one(name):
    package, version = TABLE[name][1].rsplit(" ", 1)
    assert PINS[package] == version
