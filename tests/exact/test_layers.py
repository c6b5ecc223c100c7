"""Proofs about linear models and networks: closed forms, and lists of all rows."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import brentq
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from test_soundness import FEW, check, random_case, small_case

import plausiflow as pf
from plausiflow.constraints import CompiledRules
from plausiflow.core import TargetCriterion, Targets
from plausiflow.exact import Prover, model_space
from plausiflow.models import EncodedModel, UnsupportedModelError, convert_classifier, read_layers
from plausiflow.search import CostModel
from plausiflow.tables import Encoder, Schema
from proving import SMOOTH, class_target

pytest.importorskip("ortools")

MARGIN = 0.02
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", SMOOTH)
def test_the_proven_row_is_the_cheapest_of_all(kind, seed):
    case = small_case(kind, seed, rules=FEW, classes=3 if seed == 2 else 2)
    row = case.frame.iloc[[5]].reset_index(drop=True)
    proof, cheapest = check(case, row, class_target(case, row))
    assert math.isinf(cheapest) or proof.cost == pytest.approx(cheapest, rel=1e-3)


@pytest.mark.parametrize("kind", SMOOTH)
def test_an_interval_of_a_number_is_proven(kind):
    case = small_case(kind, 7, regression=True, rules=FEW)
    row = case.frame.iloc[[3]].reset_index(drop=True)
    own = float(case.model.predict_outputs(case.encoder.encode(row).x, row)[0])
    targets = Targets(torch.tensor([0]), low=torch.tensor([own + 0.2]), high=torch.tensor([own + 0.6]))
    proof, cheapest = check(case, row, targets)
    assert math.isinf(cheapest) or proof.cost == pytest.approx(cheapest, rel=1e-3)


def _numbers(n_features: int, *, skewed: bool = False) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(300, n_features))
    return pd.DataFrame(np.exp(1.5 * values) if skewed else values).rename(columns=str)


@pytest.mark.parametrize("skewed", [False, True])
def test_the_bound_for_numbers_without_a_grid_is_the_distance_to_the_hyperplane(skewed):
    """In the box of training ranges, the closest point is a clipped multiple of the weights."""
    frame, rng = _numbers(4, skewed=skewed), np.random.default_rng(1)
    encoder = Encoder(Schema.infer(frame))
    x = encoder.encode(frame).x
    weights = rng.normal(size=4)
    bias = -float(weights @ x.mean(dim=0).numpy())
    network = pf.LinearClassifier.from_weights(weights[None], np.array([bias]))
    model = EncodedModel(network, (0, 1))
    rules = CompiledRules([], encoder.schema, encoder.layout)
    prover = Prover(model_space(model, rules.layout), CostModel.plain(rules.layout), TargetCriterion(MARGIN))
    score = float(weights @ x[0].numpy() + bias)
    wanted, sign = (0, -1.0) if score > 0 else (1, 1.0)
    allowance, row = rules.for_rows(x[:1], frame.iloc[:1]), frame.iloc[[0]]
    low, high = (getattr(allowance, name)[0].numpy() - x[0].numpy() for name in ("lower", "upper"))
    needed = math.log((0.5 + MARGIN) / (0.5 - MARGIN)) + abs(score)

    def move(length: float) -> np.ndarray:
        return np.clip(length * sign * weights, low, high)

    length = brentq(lambda t: sign * weights @ move(t) - needed, 0, 1e3)
    closest = float(np.linalg.norm(move(length)))

    def confirm(x_cf: torch.Tensor) -> str:
        enough = sign * (weights @ x_cf[0].numpy() + bias) >= needed - abs(score) - 1e-9
        return "accepted" if enough else "another outcome"

    proof = prover.prove(row, allowance, Targets(torch.tensor([wanted])), confirm, 30.0)
    assert proof.bound <= closest + 1e-9
    assert proof.bound == pytest.approx(closest, rel=2e-3)
    assert proof.cost == pytest.approx(closest, rel=2e-3)


def test_layers_predict_as_the_model_does():
    frame, rng = _numbers(3), np.random.default_rng(2)
    y = rng.integers(0, 2, len(frame))
    network = MLPClassifier((4, 3), max_iter=20, solver="lbfgs")
    pipeline = make_pipeline(StandardScaler(), network).fit(frame, y)
    encoder = Encoder(Schema.infer(frame))
    layers = read_layers(EncodedModel(convert_classifier(pipeline, encoder, frame), (0, 1)))
    outputs = layers.outputs(encoder.encode(frame).x)
    probability = 1 / (1 + np.exp(outputs[:, 0] - outputs[:, 1]))
    np.testing.assert_allclose(probability, pipeline.predict_proba(frame)[:, 1], atol=1e-9)


@pytest.mark.parametrize(
    ("front", "estimator", "reason"),
    [
        (PolynomialFeatures(2), LogisticRegression(), "multiplies"),
        (StandardScaler(), MLPClassifier((3,), activation="tanh", max_iter=5, solver="lbfgs"), "Tanh"),
    ],
)
def test_a_model_that_is_not_affine_says_why_it_is_not_proven(front, estimator, reason):
    frame = _numbers(2)
    y = (frame["0"] > 0).astype(int)
    pipeline = make_pipeline(front, estimator).fit(frame, y)
    encoder = Encoder(Schema.infer(frame))
    with pytest.raises(UnsupportedModelError, match=reason):
        read_layers(EncodedModel(convert_classifier(pipeline, encoder, frame), (0, 1)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100))
def test_no_proof_is_false_on_random_smooth_models_and_rules(seed):
    for case, row, targets in random_case(seed, SMOOTH):
        check(case, row, targets)
