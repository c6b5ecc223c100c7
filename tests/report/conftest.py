"""A result with many rows, and its page: read only, and made once for all tests of the report."""

import numpy as np
import pandas as pd
import pytest
import torch

from plausiflow.tables.features import Feature
from plausiflow.tables.schema import Schema
from reporting import PERCENTILES, build, page_of


@pytest.fixture(scope="session")
def many():
    """90 rows with up to three answers each, or a nearest miss, or neither; numbers, levels and an order."""
    draw, n = np.random.default_rng(0), 90
    rows = pd.DataFrame(
        {
            "net_income": draw.integers(100, 900, n) * 100,
            "rate": draw.random(n),
            "job": draw.choice(["clerk", "nurse", "none"], n),
            "size": draw.choice(["S", "M", "L"], n),
            "owner": draw.random(n) < 0.5,
        },
        index=draw.permutation(n) + 1000,
    )
    counts = draw.integers(0, 4, n)
    of = np.repeat(np.arange(n), counts)
    answers = rows.iloc[of].reset_index(drop=True)
    answers["net_income"] += draw.integers(-3, 4, len(of)) * 100
    answers["rate"] = np.where(draw.random(len(of)) < 0.3, draw.random(len(of)), answers["rate"])
    answers["job"] = np.where(draw.random(len(of)) < 0.5, "nurse", answers["job"])
    answers["size"] = np.where(draw.random(len(of)) < 0.2, "L", answers["size"])
    none = np.flatnonzero(counts == 0)
    status = np.where(counts > 0, "found", "infeasible").astype(object)
    status[none[::3]] = "already"
    reason = np.full(n, "", dtype=object)
    missed = np.flatnonzero(status == "infeasible")
    reason[missed] = [
        f"the nearest row is {k / 3:.2f} below the plausibility threshold" for k in range(len(missed))
    ]
    misses = rows.iloc[missed].reset_index(drop=True).assign(job="driver")
    features = (
        Feature(name="net_income", kind="integer", dtype=np.dtype(int), maximum=1e5, step=100.0),
        Feature(name="rate", kind="continuous", dtype=np.dtype(float), maximum=2.0),
        Feature(name="job", kind="category", dtype=rows["job"].dtype, levels=("clerk", "none", "nurse")),
        Feature(name="size", kind="ordered", dtype=rows["size"].dtype, levels=("S", "M", "L")),
        Feature(name="owner", kind="boolean", dtype=np.dtype(bool), levels=(False, True)),
    )
    target = draw.choice(["no", "yes"], n).astype(object)
    wanted = torch.tensor((target == "yes").astype(np.int64))
    return build(
        rows,
        answers,
        of,
        status=status,
        reason=reason,
        predicted=np.where(target == "yes", "no", "yes").astype(object),
        target=target,
        misses=misses,
        misses_of=missed,
        misses_why=[f"miss {i}" for i in missed],
        schema=Schema(features),
        outcome="home_loan",
        encoded=(torch.zeros(n, 1), torch.zeros(len(of), 1), wanted),
        held_out=PERCENTILES,
    )


@pytest.fixture(scope="session")
def page(many, tmp_path_factory):
    return page_of(many, tmp_path_factory.mktemp("page"), title="Loans & homes")
