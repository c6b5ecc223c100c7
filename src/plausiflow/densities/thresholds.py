r"""From a density to a verdict: the threshold :math:`\delta` a log-density is held against."""

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
    RowFunction,
    RowValueAndGrad,
    blocks,
    check_classes,
    check_rows,
    plausibility_value,
)
from plausiflow.densities.row_scores import PlainRowScores
from plausiflow.errors import InvalidInputError, NotFittedError, ShapeError

FEW_ROWS = 20
"""Fewer held-out rows of a class do not make a threshold of its own."""


@dataclass(kw_only=True, eq=False)
class Thresholded:
    r"""A density and the threshold below which a row counts as implausible. [PPCEF Eq. 3c]

    Attributes:
        density: A fitted density.
        quantile: Which quantile of the log-densities of real rows is asked for: 0.5 wants a row denser than
            half of them.
        scheme: ``per_class`` takes the quantile in each class; ``pooled`` takes one over all classes, as the
            paper did.
        log_delta_: The thresholds, one per class, shape ``(k,)``.

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
        """A threshold that is already known: one for all classes, or one per class."""
        made = cls(density=density)
        thresholds = torch.as_tensor(log_delta, dtype=torch.float64)
        if thresholds.shape not in ((), (1,), (n_classes,)):
            raise ShapeError(
                f"`log_delta` must be one number or one per class ({n_classes}); got shape "
                f"{tuple(thresholds.shape)}."
            )
        made.log_delta_ = thresholds.expand(n_classes).clone()
        return made

    def fit(self, x: Tensor, y: Tensor, *, n_classes: int | None = None) -> Self:
        """Take thresholds from real rows: training rows for the paper's, held-out rows for honest ones."""
        check_rows(x, y)
        with torch.no_grad():
            log_prob = torch.cat([self.density.log_prob(*block) for block in blocks(x.double(), y)])
        pooled = quantile_of(log_prob, self.quantile)
        classes = range(n_classes or int(y.max()) + 1)
        if self.scheme == "pooled":
            self.log_delta_ = pooled.expand(len(classes)).clone()
        else:
            own = [log_prob[y == k] for k in classes]
            self.log_delta_ = torch.stack(
                [quantile_of(rows, self.quantile) if len(rows) else pooled for rows in own]
            )
        return self

    def log_delta(self, y: Tensor) -> Tensor:
        r""":math:`\log\delta` for each row's class, shape ``(n,)``."""
        if self.log_delta_ is None:
            raise NotFittedError(
                "The thresholds are not known yet. Call `fit(x, y)` with rows of the data first."
            )
        check_classes(y, len(self.log_delta_))
        return self.log_delta_.to(y.device)[y]

    def log_prob(self, x: Tensor, y: Tensor) -> Tensor:
        """The density's own log-density, shape ``(n,)``."""
        return self.density.log_prob(x, y)

    def score(self, x: Tensor, y: Tensor) -> Tensor:
        """Log-density minus threshold, shape ``(n,)``: plausible where not negative."""
        return plausibility_value(self.density.log_prob(x, y), self.log_delta(y).to(x))

    def for_rows(self, x: Tensor, y_target: Tensor, *, with_margin: bool = True) -> ThresholdedRowScores:
        """Prepare for factual rows ``(n, d)`` and their target classes ``(n,)``; there is no margin."""
        return ThresholdedRowScores(self, x, y_target)

    def state(self) -> dict[str, Tensor]:
        """Everything learned, the density's as well, as tensors; :meth:`load_state` takes it back."""
        inner: dict[str, Tensor] = self.density.state()  # type: ignore[attr-defined]
        own = {} if self.log_delta_ is None else {"log_delta": self.log_delta_.clone()}
        return own | {f"density.{name}": value for name, value in inner.items()}

    def load_state(self, state: Mapping[str, Tensor]) -> Self:
        """Take back what :meth:`state` gave, into a density with the same settings."""
        inner = {k.removeprefix("density."): v for k, v in state.items() if k.startswith("density.")}
        self.density.load_state(inner)  # type: ignore[attr-defined]
        self.log_delta_ = state["log_delta"].clone()
        return self


class ThresholdedRowScores(PlainRowScores):
    """Scores of candidates for some rows; the classes are checked once, and not in every call."""

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

        def score(z: Tensor, which: Tensor) -> Tensor:
            own = log_prob(moving.encoded(z, which), y[which])
            return plausibility_value(own, log_delta[which].to(z))

        def value_and_grad(z: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
            own, gradient = density.value_and_grad(moving.encoded(z, which), y[which])  # type: ignore[attr-defined]
            return plausibility_value(own, log_delta[which].to(z)), moving.gradient(gradient)

        return score, value_and_grad if getattr(density, "has_gradient", False) else None


def quantile_of(values: Tensor, q: float) -> Tensor:
    """The lower empirical quantile; at one half it is torch's median, as in the published runs."""
    position = int(q * (len(values) - 1))
    return values.sort().values[position]


def weighted_quantile(values: Tensor, weights: Tensor, q: float) -> Tensor:
    """The lower quantile of values that count so much; of whole weights, that of the values repeated.

    The scale of weights of at most one does not matter.
    """
    ordered, order = values.sort()
    reached = weights[order].cumsum(dim=0)
    one = (weights.square().sum() / weights.sum()).clamp_max(1.0)
    place = torch.searchsorted(reached, q * (reached[-1:] - one), right=True)
    return ordered[place.clamp_max(len(values) - 1)][0]


def spread_of(scores: Tensor, y: Tensor, weights: Tensor, n_classes: int) -> Tensor:
    """Percentiles of the scores of each class, lowest first, shape ``(k, 101)``; NaN where there are no rows.

    Args:
        scores: Of rows, shape ``(n,)``.
        y: Their classes.
        weights: How much each row counts.
        n_classes: How many classes there are.
    """
    spread = torch.full((n_classes, 101), torch.nan, dtype=torch.float64)
    for k in y.unique().tolist():
        ordered, order = scores[y == k].double().sort()
        reached = weights[y == k][order].double().cumsum(dim=0)
        share = torch.linspace(0, 1, 101, dtype=torch.float64, device=reached.device)
        place = torch.searchsorted(reached, share * reached[-1])
        spread[k] = ordered[place.clamp_max(len(ordered) - 1)].cpu()
    return spread


def held_out_thresholds(
    log_prob: Tensor, y: Tensor, weights: Tensor, parts: list[Tensor], n_classes: int, q: float
) -> tuple[Tensor, Tensor]:
    """Thresholds of the members of an ensemble, and their standard errors, shape ``(M, k)`` each.

    Where a member holds out few rows of a class, those that any member holds out count; where there are none,
    those of all classes.

    Args:
        log_prob: Of each row, under the member that holds it out, shape ``(n,)``.
        y: Classes.
        weights: How much each row counts.
        parts: Which rows each member holds out, bool.
        n_classes: How many classes there are.
        q: The quantile.
    """
    thresholds, errors = log_prob.new_zeros(2, len(parts), n_classes)
    for k in range(n_classes):
        of_class = y == k if bool((y == k).any()) else torch.ones_like(y, dtype=torch.bool)
        for m, part in enumerate(parts):
            held_out = (y == k) & part
            used = held_out if effective_rows(weights[held_out]) >= FEW_ROWS else of_class
            # A quantile's standard error in ranks is sqrt(n q (1 - q)).
            spread = math.sqrt(q * (1 - q) / effective_rows(weights[used]))
            low, thresholds[m, k], high = (
                weighted_quantile(log_prob[used], weights[used], min(1.0, max(0.0, at)))
                for at in (q - spread, q, q + spread)
            )
            errors[m, k] = (high - low) / 2
    return thresholds.cpu(), errors.cpu()


def effective_rows(weights: Tensor) -> float:
    """How many rows of equal weight would be worth as much."""
    return float(weights.sum().square() / weights.square().sum()) if len(weights) else 0.0
