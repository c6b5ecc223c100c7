"""A network of ours learns from few rows; a model that gives an outcome to none of them is told of."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from plausiflow import Explainer, LinearClassifier
from plausiflow.densities.calibration import PlausibilityWarning
from sampling import slow_unless


def table(n: int, seed: int) -> tuple[pd.DataFrame, pd.Series]:
    """Rows whose outcome is linear in three of their columns."""
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame(
        {
            "income": rng.integers(5, 60, n) * 100,
            "debt": rng.normal(0.0, 1.0, n).clip(-3, 3).round(3),
            "job": rng.choice(["clerk", "nurse", "smith"], n),
            "owner": rng.random(n) < 0.5,
        }
    )
    granted = rows["income"] / 3000 - rows["debt"] + rows["owner"] > 1
    return rows, granted.map({True: "granted", False: "rejected"})


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", slow_unless(range(3), range(12)))
def test_logistic_regression_is_about_as_right_as_that_of_scikit_learn(seed, precision):
    rows, outcomes = table(150, seed)
    x = pd.get_dummies(rows).astype(float).to_numpy()
    x = (x - x.min(axis=0)) / np.ptp(x, axis=0)
    y = (outcomes == "rejected").to_numpy().astype(int)
    ours = LinearClassifier(random_state=seed).fit(torch.tensor(x, dtype=precision), torch.tensor(y))
    decided = ours.logits(torch.tensor(x, dtype=precision)).argmax(dim=1).numpy()
    assert (decided == y).mean() > LogisticRegression().fit(x, y).score(x, y) - 0.05


def lenient(rows: pd.DataFrame) -> np.ndarray:
    """Grants everything."""
    return np.tile([0.9, 0.1], (len(rows), 1))


def test_an_outcome_that_no_training_row_gets_is_told():
    rows, outcomes = table(150, 0)
    explainer = Explainer(lenient, confidence=None, judges=0, model_rows=50)
    with pytest.warns(PlausibilityWarning, match="none of the 150 training rows for 'rejected'") as told:
        explainer.fit(rows, outcomes)
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error", PlausibilityWarning)
        Explainer(LinearClassifier(), confidence=None, judges=0).fit(rows, outcomes)
