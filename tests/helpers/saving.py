"""Shared by the tests of saved explainers: models, exact comparisons, documents with new checksums."""

import hashlib
import json

import numpy as np
import pytest
from pandas.testing import assert_frame_equal
from safetensors.torch import load_file, save_file
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from plausiflow import Explainer, Immutable, Increasing, MLPClassifier, Range, Training
from plausiflow.search import black_box as verified
from plausiflow.search import fit as fitting

NUMBERS, LEVELS = ["age", "income", "debt_ratio"], ["education", "job"]
RULES = [Immutable("age"), Increasing("education"), Range("debt_ratio", 0, 0.9)]
SETTINGS = {"confidence": None, "judges": 1, "plausibility": 0.1}
LONG_SEARCH = verified.ITERATIONS, fitting.BlackBoxSearch


def score(frame):
    """A function of a table that returns the probability of the second outcome."""
    return 1 / (1 + np.exp(frame["income"] / 10_000 - 3 - 5 * frame["debt_ratio"]))


def prepared(estimator):
    steps = make_column_transformer((StandardScaler(), NUMBERS), (OneHotEncoder(), LEVELS))
    return make_pipeline(steps, estimator)


MODELS = {
    "network": lambda x, y: MLPClassifier(hidden=(16,), training=Training(epochs=30, batch_size=64)),
    "logistic": lambda x, y: prepared(LogisticRegression()).fit(x, y),
    "histogram": lambda x, y: prepared(HistGradientBoostingClassifier(max_iter=5)).fit(x, y),
    "xgboost": lambda x, y: (
        pytest.importorskip("xgboost").XGBClassifier(n_estimators=5, max_depth=3, n_jobs=1).fit(x[NUMBERS], y)
    ),
    "lightgbm": lambda x, y: (
        pytest.importorskip("lightgbm")
        .LGBMClassifier(n_estimators=5, n_jobs=1, verbose=-1)
        .fit(x[NUMBERS], y)
    ),
    "forest": lambda x, y: prepared(RandomForestClassifier(5, max_depth=4, random_state=0)).fit(x, y),
    "function": lambda x, y: score,
    "ridge": lambda x, y: prepared(Ridge()).fit(x, y),
    "boosted numbers": lambda x, y: prepared(GradientBoostingRegressor(n_estimators=5)).fit(x, y),
}
STORED = {
    "network": "network", "logistic": "model.skops", "histogram": "model.skops", "xgboost": "model.json",
    "lightgbm": "model.txt", "forest": "model.skops", "function": None, "ridge": "model.skops",
    "boosted numbers": "model.skops",
}  # fmt: skip


def outcomes(name, table):
    x, y = table
    if name in ("ridge", "boosted numbers"):
        return (0.1 * x["income"] + x["age"] + x["debt_ratio"]).rename("score")
    return (y == "granted").astype(int) if name == "xgboost" else y


def target_of(name, table):
    if name in ("ridge", "boosted numbers"):
        return (float(outcomes(name, table).quantile(0.7)), None)
    return "opposite"


def loaded(name, saved, fitted, **given):
    if STORED[name] is None:
        given.setdefault("model", fitted(name).model)
    return Explainer.load(saved(name), **given)


def assert_same(first, second):
    """Bit for bit: answers, verdicts, judged figures."""
    for part in ("answers", "figures", "verdicts", "misses"):
        left, right = getattr(first, part), getattr(second, part)
        assert (left is None) == (right is None)
        if left is not None:
            assert_frame_equal(left, right, check_exact=True)
    assert (first.of == second.of).all()
    assert (first.model_calls, first.model_rows) == (second.model_calls, second.model_rows)
    assert first.outcome == second.outcome


def document_of(folder) -> dict:
    return json.loads((folder / "explainer.json").read_text())


def seal(folder, document) -> None:
    """Write a document with correct hashes, as an attacker would."""
    for name, entry in document["files"].items() if isinstance(document.get("files"), dict) else ():
        if isinstance(entry, dict) and (folder / name).is_file() and ".." not in name:
            content = (folder / name).read_bytes()
            entry |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    document.pop("checksum", None)
    plain = json.dumps(document, sort_keys=True).encode()
    document["checksum"] = hashlib.sha256(plain).hexdigest()
    (folder / "explainer.json").write_text(json.dumps(document))


def changed_document(folder, change) -> None:
    document = document_of(folder)
    change(document)
    seal(folder, document)


def changed_tensors(folder, file, change) -> None:
    tensors = load_file(folder / file)
    change(tensors)
    save_file(tensors, folder / file)
    seal(folder, document_of(folder))
