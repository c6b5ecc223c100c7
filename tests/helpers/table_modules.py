"""What the tests of torch modules share: a table, networks of its columns, and their own answers."""

import copy

import numpy as np
import pandas as pd
import torch
from torch import nn

from plausiflow.tables.encoder import Encoder
from plausiflow.tables.schema import Schema

ROWS = 120
COLUMNS = 7


def table(seed=0, n=ROWS, missing=0.15) -> pd.DataFrame:
    """Whole numbers, a heavy tail, many zeros, missing numbers, booleans, few values, a constant."""
    rng = np.random.default_rng(seed)
    gone = [rng.random(n) < missing for _ in range(2)]
    return pd.DataFrame(
        {
            "age": rng.integers(18, 90, n),
            "income": rng.lognormal(3, 1.5, n),
            "owns": rng.random(n) < 0.4,
            "gain": np.where(rng.random(n) < 0.5, 0.0, rng.gamma(2, 300, n)),
            "rate": np.where(gone[0], np.nan, rng.normal(size=n)),
            "lines": pd.Series(rng.integers(0, 4, n), dtype=float).mask(gone[1]),
            "scale": 7,
        }
    )


def encoder_of(frame) -> Encoder:
    return Encoder(Schema.infer(frame))


def numbers(frame) -> torch.Tensor:
    """What a module is given: pandas' own conversion, in double precision."""
    return torch.from_numpy(frame.to_numpy(dtype=np.float64))


class Net(nn.Module):
    """Scales its input as a user would, and fills what is missing."""

    def __init__(self, outputs=2, end=None):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(COLUMNS, 5), nn.Tanh(), nn.Linear(5, outputs))
        self.end = end or nn.Identity()
        self.register_buffer("size", torch.tensor([50.0, 50.0, 1.0, 500.0, 1.0, 2.0, 7.0]))

    def forward(self, rows):
        return self.end(self.layers(rows.nan_to_num() / self.size))


def expected(module, rows) -> torch.Tensor:
    """The module's answers in double precision, evaluation mode."""
    with torch.no_grad():
        return copy.deepcopy(module).double().eval()(numbers(rows))


class Functional(nn.Module):
    """Ends in a function."""

    def __init__(self, function, outputs=1):
        super().__init__()
        self.net, self.function = Net(outputs), function

    def forward(self, rows):
        return self.function(self.net(rows))


def small(outputs, bias) -> nn.Module:
    """A module that has hardly been trained: its bounded logits are near the bias."""
    module = Net(outputs)
    with torch.no_grad():
        module.layers[2].weight.mul_(0.05)
        module.layers[2].bias.fill_(bias)
    return module
