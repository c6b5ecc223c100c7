"""The least value of many rules and its gradient in closed form, against autograd."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from plausiflow.constraints import CompiledRules, Equal, Linear
from plausiflow.tables import Encoder, Schema

ROWS = 60


def table():
    rng = np.random.default_rng(3)
    a, b = rng.integers(0, 50, ROWS), rng.integers(0, 50, ROWS)
    wealth = np.round(rng.lognormal(8, 2, ROWS), 0)
    return pd.DataFrame({"a": a, "b": b, "total": a + b, "wealth": wealth, "debt": np.round(wealth / 3)})


RULES = [
    Linear("a <= total"),
    Linear("b <= total"),
    Linear("debt <= wealth"),
    Linear("2 * a + b <= 200"),
    Linear("debt + a <= 3 * wealth + 60"),
    Equal("total", "a + b"),
]


@pytest.mark.parametrize("spread", [0.0, 0.05, 0.4])
def test_value_and_gradient_are_those_of_autograd(spread):
    rows = table()
    schema = Schema.infer(rows)
    encoder = Encoder(schema)
    rules = CompiledRules(RULES, schema, encoder.layout)
    x = encoder.encode(rows).x
    allowance = rules.for_rows(x, rows)
    assert allowance.has_closed_form(x.device)
    clauses = torch.arange(len(allowance.clauses))
    moved = x + spread * torch.randn(x.shape, generator=torch.Generator().manual_seed(0), dtype=x.dtype)
    which = torch.arange(ROWS)
    values, gradient = allowance.least_clause(moved, which, clauses)
    leaf = moved.clone().requires_grad_()
    every = allowance.clause_values(leaf, which)
    least = every.amin(dim=1)
    (expected,) = torch.autograd.grad(least.sum(), leaf)
    torch.testing.assert_close(values, least.detach(), rtol=0, atol=0)
    # Where two rules are equally close to being broken, either gradient is right.
    two = every.detach().sort(dim=1).values
    clear = two[:, 1] - two[:, 0] > 1e-12
    assert spread == 0 or bool(clear.any())
    numbers = encoder.layout.numbers
    torch.testing.assert_close(
        gradient[clear][:, numbers], expected[clear][:, numbers], rtol=1e-9, atol=1e-12
    )
