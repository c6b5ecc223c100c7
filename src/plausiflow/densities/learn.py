"""From a density that is not fitted yet to a plausibility: the density, and thresholds from real rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from plausiflow.core import Density, Plausibility, check_rows
from plausiflow.densities.ensemble import CrossFitEnsemble
from plausiflow.densities.flows import Architecture, ConditionalFlow
from plausiflow.densities.judges import Judges, split_by_class_share
from plausiflow.densities.members import train_members
from plausiflow.densities.thresholds import Thresholded

HELD_OUT = 0.2


def fit_plausibility(
    density: Literal["ensemble"] | Architecture | Density,
    x: Tensor,
    y: Tensor,
    *,
    quantile: float,
    n_classes: int | None = None,
    random_state: int = 0,
    held_out: bool = True,
) -> Plausibility:
    """Fit a density and the thresholds of each class; an ensemble that is fitted already stays as it is.

    With ``held_out``, the thresholds of a single density come from a fifth of the rows that it is not fitted
    on, where overfitting cannot raise them; else from its training rows, as in the paper.
    """
    if density == "ensemble":
        density = CrossFitEnsemble(random_state=random_state)
    if isinstance(density, CrossFitEnsemble):
        if density.flows_:
            return density
        return replace(density, quantile=quantile).fit(x, y, n_classes=n_classes)
    if isinstance(density, str):
        density = ConditionalFlow(architecture=density, random_state=random_state)
    fit_rows, threshold_rows = (x, y), (x, y)
    if held_out:
        out, kept = split_by_class_share(y, HELD_OUT, random_state)
        fit_rows, threshold_rows = (x[kept], y[kept]), (x[out], y[out])
    fitted = Thresholded(density=density.fit(*fit_rows), quantile=quantile)
    return fitted.fit(*threshold_rows, n_classes=n_classes)


def fit_with_judges(
    ensemble: CrossFitEnsemble, judges: Judges, x: Tensor, y: Tensor, *, n_classes: int
) -> CrossFitEnsemble:
    """Fit an ensemble and judges, in place, in one training; each has its own rows, seed and weights."""
    if ensemble.outcome is not None:
        ensemble.fit(x, y, n_classes=n_classes)
        judges.fit(x, y, n_classes=n_classes)
        return ensemble
    check_rows(x, y, n_classes=n_classes)
    (members, first), (others, second) = ensemble.untrained(y), judges.untrained(y)
    train_members([*members, *others], x, y, torch.cat([first, second]), n_classes, ensemble.training)
    judges.adopt_members(others, x, y, n_classes)
    return ensemble.adopt_members(members, x, y, n_classes)
