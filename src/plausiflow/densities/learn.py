"""From a density that is not fitted yet to a plausibility: the density, and thresholds from real rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from torch import Tensor

from plausiflow.core import Density, Plausibility
from plausiflow.densities.ensemble import CrossFitEnsemble
from plausiflow.densities.flows import Architecture, ConditionalFlow
from plausiflow.densities.judges import split_by_class_share
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
