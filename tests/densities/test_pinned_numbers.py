"""A pinned number adds nothing to the density of a mixed table: a state is as likely as its probability."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from plausiflow.core import Training
from plausiflow.densities.mixed import MixedDensity, StackedMixed
from plausiflow.tables import Encoder, Schema


@pytest.mark.parametrize("special", [-1.0, 999.0, 0.5])
def test_a_special_value_is_as_likely_as_it_is_common_whatever_its_pin(special):
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
    assert float(log_prob[at].mean()) == pytest.approx(math.log(0.4), abs=0.4)
    assert float(log_prob[~at].mean()) == pytest.approx(math.log(0.6), abs=0.4)
    torch.testing.assert_close(StackedMixed([density])(x.double(), y)[0], log_prob, atol=1e-4, rtol=0)
    restored = MixedDensity.from_layout(encoder.layout).load_state(density.state())
    torch.testing.assert_close(restored.log_prob(x, y).double(), log_prob, atol=1e-5, rtol=0)
