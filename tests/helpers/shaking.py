"""What the tests of mixed densities and their parts share: random weights, rows of every level."""

import itertools

import torch
import torch.nn.functional as F

from plausiflow.core.training import Training

BRIEF = Training(epochs=1, batch_size=64)


def shaken(fitted, scale=0.5):
    """The same object with random weights, far from what a short training gives."""
    state = fitted.state()
    fixed = ("shape", "mean", "sd", "base")
    for name, value in state.items():
        if value.is_floating_point() and not any(part in name for part in fixed):
            state[name] = scale * torch.randn(value.shape, dtype=torch.float64)
    return fitted.load_state(state)


def one_hot(*sizes, n=60):
    """Random levels, one-hot, one block after the other."""
    return torch.cat([F.one_hot(torch.randint(size, (n,)), size).double() for size in sizes], dim=1)


def every_setting(x, groups):
    """Copies of one row ``(1, d)``, one for each combination of levels."""
    combinations = list(itertools.product(*[range(start, stop) for start, stop in groups]))
    rows = x.repeat(len(combinations), 1)
    for start, stop in groups:
        rows[:, start:stop] = 0
    for row, columns in zip(rows, combinations, strict=True):
        row[list(columns)] = 1
    return rows


def equal_states(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
