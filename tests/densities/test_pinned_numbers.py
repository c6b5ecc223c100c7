"""A special value is an atom: its density is its probability, spread by the noise of its column."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from plausiflow.core import Training
from plausiflow.densities.mixed import MixedDensity, StackedMixed
from plausiflow.tables import Encoder, Schema
from sampling import slow_unless


@pytest.mark.parametrize("special", slow_unless([999.0], [-1.0, 999.0, 0.5]))
def test_a_special_value_is_as_likely_as_the_noise_spreads_it_whatever_its_pin(special):
    rng = np.random.default_rng(0)
    days = np.where(rng.random(3000) < 0.4, special, rng.random(3000))
    frame = pd.DataFrame({"days": days, "b": rng.random(3000)})
    encoder = Encoder(Schema.infer(frame, special={"days": [special], "b": []}))
    x, y = encoder.encode(frame).x.float(), torch.zeros(3000, dtype=torch.long)
    density = MixedDensity.from_layout(encoder.layout)
    density.training = Training(epochs=40, learning_rate=5e-3, noise=0.02)
    density.fit(x, y, n_classes=1)
    log_prob = density.log_prob(x, y).double()
    at = torch.from_numpy(days == special)
    # Numbers are uniform on [0, 1]: their density is one (a little less at the ends), and the states count.
    spread = math.log(density.noise[0] * math.sqrt(2 * math.pi))
    assert float(log_prob[at].mean()) == pytest.approx(math.log(0.4) - spread, abs=0.4)
    assert float(log_prob[~at].mean()) == pytest.approx(math.log(0.6), abs=0.4)
    torch.testing.assert_close(StackedMixed([density])(x.double(), y)[0], log_prob, atol=1e-4, rtol=0)
    restored = MixedDensity.from_layout(encoder.layout).load_state(density.state())
    torch.testing.assert_close(restored.log_prob(x, y).double(), log_prob, atol=1e-5, rtol=0)


@pytest.mark.slow
def test_a_missing_value_is_as_likely_as_it_is_common():
    rng = np.random.default_rng(0)
    days = np.where(rng.random(3000) < 0.4, np.nan, rng.random(3000))
    frame = pd.DataFrame({"days": days, "b": rng.random(3000)})
    encoder = Encoder(Schema.infer(frame, special={"days": [], "b": []}))
    x, y = encoder.encode(frame).x.float(), torch.zeros(3000, dtype=torch.long)
    density = MixedDensity.from_layout(encoder.layout)
    density.training = Training(epochs=40, learning_rate=5e-3, noise=0.02)
    log_prob = density.fit(x, y, n_classes=1).log_prob(x, y).double()
    assert float(log_prob[np.isnan(days)].mean()) == pytest.approx(math.log(0.4), abs=0.4)


@pytest.mark.slow
def test_the_most_common_value_stays_more_likely_than_its_neighbours():
    """Half of the rows work 40 hours: leaving that for 41 must not make a row more plausible."""
    rng = np.random.default_rng(0)
    hours = np.where(rng.random(3000) < 0.5, 40, rng.integers(20, 61, 3000))
    frame = pd.DataFrame({"hours": hours, "b": rng.random(3000)})
    encoder = Encoder(Schema.infer(frame))
    assert next(f for f in encoder.schema.features if f.name == "hours").special == (40.0,)
    x, y = encoder.encode(frame).x.float(), torch.zeros(3000, dtype=torch.long)
    density = MixedDensity.from_layout(encoder.layout).fit(x, y, n_classes=1)
    own = encoder.encode(pd.DataFrame({"hours": [40, 41, 39], "b": 0.5})).x.float()
    at, up, down = density.log_prob(own, y[:3]).tolist()
    # Of 41 values one is at 40: the truth is log(0.512 / 0.012) = 3.7; the noise of 0.02 blurs it to about 2.
    assert at > max(up, down) + 1
