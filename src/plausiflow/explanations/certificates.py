"""Certificates in a result: what is proven about each row, as columns of its verdicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from plausiflow.errors import InvalidInputError
from plausiflow.exact import Certificate
from plausiflow.explanations.formatting import format_value, is_missing_value
from plausiflow.validation import is_whole, to_float

if TYPE_CHECKING:
    from plausiflow.explanations.result import Explanations

BOUNDS = ("bound", "bound_status", "relax", "proof")
"""Columns of ``verdicts`` that certificates add."""
_OPEN = ("found", "relaxed", "infeasible", "not_reached")
"""Verdicts of rows about which there is something to prove."""


def check_seconds(seconds: object) -> None:
    """Raise unless this is a time that proofs can take."""
    if not 0 < to_float(seconds) < math.inf:
        raise InvalidInputError(
            f"`certify` must be the seconds that the proof of a row may take, a positive number; got "
            f"{seconds!r}. Use 10 for a few rows, and 2 for many."
        )


def certified(
    result: Explanations, seconds: float, workers: int = 1, rows: Sequence[int] | None = None
) -> Explanations:
    """Return the result with certificates of some rows, or of all."""
    check_seconds(seconds)
    if not is_whole(workers) or workers < 1:
        raise InvalidInputError(
            f"`workers` must be a whole number, 1 or more; got {workers!r}. Use at most one for each core."
        )
    if result.certifier is None:
        raise InvalidInputError(
            "Proofs need the result of `Explainer.explain` in the same process; this one was made from "
            "tables. Explain the rows again."
        )
    asked = range(len(result)) if rows is None else rows
    open_ = [i for i in asked if result.verdicts["status"].iloc[i] in _OPEN]
    costs = best_costs(result)
    known = [math.inf if math.isnan(costs[i]) else float(costs[i]) for i in open_]
    found = result.certifier.run(open_, known, float(seconds), workers)
    return replace(
        result, verdicts=result.verdicts.assign(**_columns(result, dict(zip(open_, found, strict=True))))
    )


def best_costs(result: Explanations) -> np.ndarray:
    """Return the cost of each row's best answer, NaN without one, shape ``(n,)``."""
    costs = np.full(len(result), np.nan)
    answered = result.best >= 0
    costs[answered] = result.figures["cost"].to_numpy(np.float64)[result.best[answered]]
    return costs


def _columns(result: Explanations, found: dict[int, Certificate]) -> dict[str, pd.Series]:
    """Return the columns of all rows; rows that were not asked about keep what they have."""
    empty = {"bound": math.nan, "bound_status": "", "relax": (), "proof": ""}
    old = [
        result.verdicts[name].tolist() if name in result.verdicts else [empty[name]] * len(result)
        for name in BOUNDS
    ]
    costs, targets = best_costs(result), result.verdicts["target"].tolist()
    for i, certificate in found.items():
        target = "the target" if is_missing_value(targets[i]) else format_value(targets[i])
        proof = certificate.sentence(float(costs[i]), target, density=result.density)
        own = (certificate.bound, certificate.status, certificate.relax, proof)
        for column, value in zip(old, own, strict=True):
            column[i] = value
    dtypes = (np.float64, object, object, object)
    return {
        name: pd.Series(column, index=result.verdicts.index, dtype=dtype)
        for name, column, dtype in zip(BOUNDS, old, dtypes, strict=True)
    }
