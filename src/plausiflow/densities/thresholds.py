r"""The threshold :math:`\delta` of a density, below which a row is implausible."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Self

import torch
from torch import Tensor

from plausiflow.core import (
    Density,
    MovingColumns,
    Parameters,
    RowFunction,
    RowValueAndGrad,
    blocks,
    check_classes,
    check_rows,
    plausibility_value,
)
from plausiflow.densities.row_scores import PlainRowScores, once_for_the_same_rows
from plausiflow.errors import InvalidInputError, NotFittedError, ShapeError

FEW_ROWS = 30
"""Held-out rows of a class below which a density has no threshold of its own; judges share theirs."""


@dataclass(kw_only=True, eq=False)
class Thresholded(Parameters):
    r"""A density and the threshold below which a row counts as implausible. [PPCEF Eq. 3c]

    Attributes:
        density: A fitted density.
        quantile: Which quantile of the log-densities of real rows a row must reach.
        scheme: ``per_class`` has one quantile per class, ``pooled`` one over all classes, as in the paper.
        log_delta_: The thresholds of the classes, shape ``(k,)``.

    Example:
        >>> from plausiflow.densities import KDE
        >>> x, y = torch.rand(40, 2), torch.arange(40) % 2
        >>> plausibility = Thresholded(density=KDE().fit(x, y)).fit(x, y)
        >>> float((plausibility.score(x.double(), y) >= 0).double().mean())  # 11 of 20 reach the 10th
        0.55
    """

    density: Density
    quantile: float = 0.5
    scheme: Literal["per_class", "pooled"] = "per_class"
    log_delta_: Tensor | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.quantile <= 1:
            raise InvalidInputError(
                f"`quantile` must be between 0 and 1; got {self.quantile}. The paper uses 0.5, the median."
            )
        if self.scheme not in ("per_class", "pooled"):
            raise InvalidInputError(f"`scheme` must be 'per_class' or 'pooled'; got {self.scheme!r}.")

    @classmethod
    def at(cls, density: Density, log_delta: Tensor | float, n_classes: int) -> Self:
        """Build it from known thresholds: one for all classes, or one per class."""
        thresholds = torch.as_tensor(log_delta, dtype=torch.float64)
        if thresholds.shape not in ((), (1,), (n_classes,)):
            raise ShapeError(
                f"`log_delta` must be one number or one per class ({n_classes}); got shape "
                f"{tuple(thresholds.shape)}."
            )
        result = cls(density=density)
        result.log_delta_ = thresholds.expand(n_classes).clone()
        return result

    def fit(self, x: Tensor, y: Tensor, *, n_classes: int | None = None) -> Self:
        """Compute the thresholds from real rows: held-out rows, or the training rows as in the paper."""
        check_rows(x, y)
        with torch.no_grad():
            log_prob = torch.cat([self.density.log_prob(*block) for block in blocks(x.double(), y)])
        pooled = lower_quantile(log_prob, self.quantile)
        classes = range(n_classes or int(y.max()) + 1)
        if self.scheme == "pooled":
            self.log_delta_ = pooled.expand(len(classes)).clone()
        else:
            groups = [log_prob[y == k] for k in classes]
            thresholds = [lower_quantile(group, self.quantile) if len(group) else pooled for group in groups]
            self.log_delta_ = torch.stack(thresholds)
        return self

    def log_delta(self, y: Tensor) -> Tensor:
        r"""Return :math:`\log\delta` of each row's class, shape ``(n,)``."""
        if self.log_delta_ is None:
            raise NotFittedError(
                "The thresholds are not known yet. Call `fit(x, y)` with rows of the data first."
            )
        check_classes(y, len(self.log_delta_))
        return self.log_delta_.to(y.device)[y]

    def log_prob(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the log-density, shape ``(n,)``."""
        return self.density.log_prob(x, y)

    def score(self, x: Tensor, y: Tensor) -> Tensor:
        """Return log-density minus threshold, shape ``(n,)``; a row is plausible if it is not negative."""
        return plausibility_value(self.density.log_prob(x, y), self.log_delta(y).to(x))

    def for_rows(self, x: Tensor, y_target: Tensor, *, with_margin: bool = True) -> ThresholdedRowScores:
        """Prepare for factual rows ``(n, d)`` and their target classes ``(n,)``; there is no margin."""
        return ThresholdedRowScores(self, x, y_target)

    def state(self) -> dict[str, Tensor]:
        """Return everything learned, also by the density, as tensors."""
        inner: dict[str, Tensor] = self.density.state()  # type: ignore[attr-defined]
        state = {} if self.log_delta_ is None else {"log_delta": self.log_delta_.clone()}
        return state | {f"density.{name}": value for name, value in inner.items()}

    def load_state(self, state: Mapping[str, Tensor]) -> Self:
        """Restore what :meth:`state` returned, in a density with the same settings."""
        inner = {k.removeprefix("density."): v for k, v in state.items() if k.startswith("density.")}
        self.density.load_state(inner)  # type: ignore[attr-defined]
        self.log_delta_ = state["log_delta"].clone()
        return self


class ThresholdedRowScores(PlainRowScores):
    """Scores of candidates for some rows; the classes are checked only once."""

    def __init__(self, plausibility: Thresholded, x: Tensor, y_target: Tensor) -> None:
        super().__init__(plausibility, x, y_target)
        self.density, self.log_delta = plausibility.density, plausibility.log_delta(y_target)

    def at(self, rows: Tensor) -> Self:
        """Select rows, shape ``(k,)``; a row may occur more than once."""
        other = super().at(rows)
        other.log_delta = self.log_delta[rows]
        return other

    def to(self, device: torch.device) -> Self:
        """Move to a device."""
        other = super().to(device)
        other.log_delta = self.log_delta.to(device)
        return other

    def score(self, x_cf: Tensor, rows: Tensor) -> Tensor:
        """Return log-density minus threshold of candidates ``(m, d)`` for the rows ``(m,)``."""
        log_prob = getattr(self.density, "unchecked_log_prob", self.density.log_prob)
        return plausibility_value(log_prob(x_cf, self.y_target[rows]), self.log_delta[rows].to(x_cf))

    def of_columns(self, moving: MovingColumns, rows: Tensor) -> tuple[RowFunction, RowValueAndGrad | None]:
        """Return the score as a function of the moving columns, with its gradient for a plain MAF."""
        density, y, log_delta = self.density, self.y_target[rows], self.log_delta[rows]
        log_prob = getattr(density, "unchecked_log_prob", density.log_prob)
        prepared = once_for_the_same_rows(lambda which: (y[which], log_delta[which]))

        def score(z: Tensor, which: Tensor) -> Tensor:
            value = log_prob(moving.encoded(z, which), y[which])
            return plausibility_value(value, log_delta[which].to(z))

        def value_and_grad(z: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
            classes, threshold = prepared(which)
            value, gradient = density.value_and_grad(moving.encoded(z, which), classes)  # type: ignore[attr-defined]
            return plausibility_value(value, threshold.to(z)), moving.gradient(gradient)

        return score, value_and_grad if getattr(density, "has_gradient", False) else None


def lower_quantile(values: Tensor, q: float) -> Tensor:
    """Return the lower empirical quantile; for 0.5 torch's median, as in the published runs."""
    return values.sort().values[int(q * (len(values) - 1))]


def weighted_quantile(values: Tensor, weights: Tensor, q: float) -> Tensor:
    """Return the lower quantile of weighted values; whole weights count as repetitions.

    The scale of weights of at most one does not matter.
    """
    ordered, order = values.sort()
    reached = weights[order].cumsum(dim=0)
    one = (weights.square().sum() / weights.sum()).clamp_max(1.0)
    place = torch.searchsorted(reached, q * (reached[-1:] - one), right=True)
    return ordered[place.clamp_max(len(values) - 1)][0]


def class_percentiles(scores: Tensor, y: Tensor, weights: Tensor, n_classes: int) -> Tensor:
    """Return percentiles 0 to 100 of the weighted scores of each class, ``(k, 101)``; NaN without rows."""
    spread = torch.full((n_classes, 101), torch.nan, dtype=torch.float64)
    for k in y.unique().tolist():
        ordered, order = scores[y == k].double().sort()
        reached = weights[y == k][order].double().cumsum(dim=0)
        share = torch.linspace(0, 1, 101, dtype=torch.float64, device=reached.device)
        place = torch.searchsorted(reached, share * reached[-1])
        spread[k] = ordered[place.clamp_max(len(ordered) - 1)].cpu()
    return spread


def held_out_thresholds(
    log_probs: Tensor, y: Tensor, weights: Tensor, part: Tensor, n_classes: int, q: float
) -> tuple[Tensor, Tensor]:
    """Return the thresholds of the members of an ensemble, and the error of one from few rows, ``(M, k)``.

    ``log_probs`` are by every member, shape ``(M, n)``; ``part`` is the member that held each row out. The
    median of the few rows that one member holds out may be nats too low where the densities of a class have
    a cliff, such as rows that are almost equal and some others. So the members are aligned first, by their
    quantiles over the same rows, and one quantile of all aligned held-out log-densities serves all of them.
    The errors are those of a quantile of as many rows as one member holds out, or of all rows if that are
    few, as judges have it. A class without rows gets the values of all rows.
    """
    thresholds, errors = log_probs.new_zeros(2, len(log_probs), n_classes)
    rows = torch.arange(len(y), device=y.device)
    for k in range(n_classes):
        used = rows[y == k] if bool((y == k).any()) else rows
        own = weights[used]
        level = torch.stack([weighted_quantile(log_prob[used], own, q) for log_prob in log_probs])
        aligned = log_probs[part[used], used] - level[part[used]]
        share = effective_rows(own) / len(log_probs)
        # A quantile's standard error in ranks is sqrt(n q (1 - q)).
        spread = math.sqrt(q * (1 - q) / (share if share >= FEW_ROWS else effective_rows(own)))
        low, middle, high = (
            weighted_quantile(aligned, own, min(1.0, max(0.0, at))) for at in (q - spread, q, q + spread)
        )
        thresholds[:, k], errors[:, k] = level + middle, (high - low) / 2
    return thresholds.cpu(), errors.cpu()


def effective_rows(weights: Tensor) -> float:
    """Return the effective number of rows: that of equal weights with the same variance of a mean."""
    return float(weights.sum().square() / weights.square().sum()) if len(weights) else 0.0
