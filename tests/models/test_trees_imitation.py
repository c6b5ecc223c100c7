"""Forests that imitate another model predict as it does, in its units."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from boosted_trees import classes, rows
from plausiflow.models.trees.imitation import imitate_classifier, imitate_regressor


@pytest.mark.parametrize("k", [2, 3])
def test_a_forest_decides_as_the_model_it_imitates(k):
    x = rows(3000)
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    model = LogisticRegression().fit(z, classes(x, k))
    forest = imitate_classifier(torch.from_numpy(x), torch.from_numpy(model.predict_log_proba(z)), n_trees=50)
    fresh = rows(1000, seed=9)
    proba = model.predict_proba((fresh - x.mean(axis=0)) / x.std(axis=0))
    values = forest.values(torch.from_numpy(fresh))
    assert values.shape == (1000, k)
    assert (values.argmax(dim=1).numpy() == proba.argmax(axis=1)).mean() > 0.96
    assert np.abs(values.softmax(dim=1).numpy() - proba).mean() < 0.05  # clipped logits


def test_certain_predictions_are_imitated():
    x = torch.from_numpy(rows(500))
    sure = torch.where(x[:, :1] > 0, torch.tensor([0.0, -torch.inf]), torch.tensor([-torch.inf, 0.0]))
    forest = imitate_classifier(x, sure, n_trees=20)
    assert torch.equal(forest.values(x).argmax(dim=1), (x[:, 0] <= 0).long())
    assert forest.values(x).abs().max() < 4


@pytest.mark.parametrize("size", [1.0, 1e-6, 1e6])
def test_an_imitated_regressor_is_predicted_in_its_units(size):
    x = rows(3000)

    def model(cells):
        return size * (7 + np.sin(3 * cells[:, 0]) + 0.1 * cells[:, 1])

    forest = imitate_regressor(torch.from_numpy(x), torch.from_numpy(model(x)))
    fresh = rows(1000, seed=9)
    error = forest.values(torch.from_numpy(fresh))[:, 0].numpy() - model(fresh)
    assert np.sqrt((error**2).mean()) < 0.1 * model(fresh).std()


def test_an_imitated_constant_is_constant():
    x = torch.from_numpy(rows(50))
    values = imitate_regressor(x, torch.full((50,), 3.0), n_trees=2).values(x)
    torch.testing.assert_close(values, torch.full((50, 1), 3.0))
