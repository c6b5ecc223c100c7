"""Targets, a network, and checks of conversions, for the tests of converted regressors."""

import numpy as np
import pytest
from sklearn.neural_network import MLPRegressor

from conversion_tables import encoder_of
from plausiflow.models.sklearn.columns import UnsupportedModelError
from plausiflow.models.sklearn.conversion import convert_regressor


def prices(frame, seed=0, size=1000.0) -> np.ndarray:
    """Return positive numbers that depend on the columns."""
    rng = np.random.default_rng(seed)
    score = frame["age"] / 20 + frame["owns"] + frame["rate"].fillna(0) + rng.normal(size=len(frame))
    return size * np.log1p(np.exp(score.to_numpy(dtype=float)))


def converted(model, frame, encoder=None):
    return convert_regressor(model, encoder or encoder_of(frame), frame)


def reason(model, frame, encoder=None) -> str:
    with pytest.raises(UnsupportedModelError) as caught:
        convert_regressor(model, encoder or encoder_of(frame), frame)
    return str(caught.value)


def assert_same_numbers(model, regressor, encoder, rows):
    """Compare the model on rows with the conversion on encoded rows."""
    encoded = encoder.encode(rows)
    assert encoded.usable.all()
    given = rows if hasattr(model, "feature_names_in_") else rows.to_numpy()
    predicted = np.ravel(model.predict(given))
    own = regressor.values(encoded.x)
    assert own.shape == (len(rows),)
    np.testing.assert_allclose(own.numpy(), predicted, rtol=1e-6, atol=1e-6)
    assert np.ptp(predicted) > 1e-3


def network(activation, **settings):
    return MLPRegressor(
        hidden_layer_sizes=(6, 4), activation=activation, max_iter=5, random_state=0, **settings
    )
