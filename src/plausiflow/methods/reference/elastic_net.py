r"""What CEM and CEGP minimise, for every row on its own.

.. math:: c \max(h(x'), 0) + \beta \lVert x' - x \rVert_1 + \lVert x' - x \rVert_2^2 + s(x')

``decision_gap`` is h, negative exactly where the decision is as wanted; s is whatever smooth term a method
adds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from plausiflow.core import RowFunction

Scale = Literal["logit", "probability"]

ROWS_AT_ONCE = 256
"""Rows the model is asked about in one call on a processor: what it makes of more leaves the cache."""


@dataclass(frozen=True, kw_only=True)
class ElasticNet:
    r"""What is minimised, for every row on its own.

    Attributes:
        x: Factuals, shape ``(n, d)``, in the precision of the answers.
        lower: Smallest allowed values, shape ``(n, d)``.
        upper: Largest allowed values, shape ``(n, d)``.
        l1_weight: :math:`\beta`.
        gap: h, negative where the decision is as wanted.
        smooth: s, where there is one.
        curvature: Of the squared distance and s: about the largest second derivative.
        restrict: Further limits, ``(x_cf, rows) -> (m, d)``; it leaves a factual as it is. It also takes the
            place of the box for the points y that gradients are taken at.
        accept: Which points with a negative gap may be answers, ``(x_cf, rows) -> (m,)`` bool; all of them
            where not given.
    """

    x: Tensor
    lower: Tensor
    upper: Tensor
    l1_weight: float
    gap: RowFunction
    smooth: RowFunction | None = None
    curvature: float = 2.0
    restrict: Callable[[Tensor, Tensor], Tensor] | None = None
    accept: Callable[[Tensor, Tensor], Tensor] | None = None

    def distance(self, x_cf: Tensor, rows: Tensor) -> Tensor:
        r"""What answers are compared by, shape ``(m,)``.

        .. math:: \lVert x' - x \rVert_2^2 + \beta \lVert x' - x \rVert_1
        """
        change = x_cf - self.x[rows]
        return change.square().sum(dim=1) + self.l1_weight * change.abs().sum(dim=1)

    def accepted(self, x_cf: Tensor, rows: Tensor) -> Tensor:
        """Whether points are answers, shape ``(m,)``, judged in the precision that they are returned in."""
        rounded = x_cf.to(self.x.dtype).double()
        accepted = in_parts(self.gap, rounded, rows) < 0
        if self.accept is not None and accepted.any():
            accepted[accepted.clone()] = self.accept(rounded[accepted], rows[accepted])
        return accepted


@dataclass(kw_only=True)
class Best:
    """The closest accepted points so far.

    Attributes:
        x: The points, shape ``(n, d)``; NaN where there is none.
        distance: What they are compared by, shape ``(n,)``; infinite where there is none.
        gradients: Value-and-gradient evaluations of the model, shape ``(n,)``.
    """

    x: Tensor
    distance: Tensor
    gradients: Tensor

    @classmethod
    def none(cls, problem: ElasticNet) -> Self:
        """Nothing yet."""
        x = torch.full_like(problem.x, torch.nan, dtype=torch.float64)
        distance = x.new_full((len(x),), torch.inf)
        return cls(x=x, distance=distance, gradients=torch.zeros_like(distance, dtype=torch.long))

    def offer(self, problem: ElasticNet, x_cf: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Keep points that are accepted and closer; says which are accepted, and which are kept."""
        accepted = problem.accepted(x_cf, rows)
        distance = problem.distance(x_cf, rows)
        closer = accepted & (distance < self.distance[rows])
        self.x[rows[closer]], self.distance[rows[closer]] = x_cf[closer], distance[closer]
        return accepted, closer


def decision_gap(logits: Tensor, y: Tensor, margin: float, *, scale: Scale, away: bool) -> Tensor:
    r"""How far a decision is from as wanted: negative exactly where the winner leads by more than the margin.

    The winner is class y, or with ``away`` any other class, which only has to beat y. With a the strongest
    class that must lose and b the one that must win it is :math:`p_a - p_b + \kappa`, or on the scale of
    logits :math:`z_a - z_b + \log(1 + \kappa / p_a)`, which has the same sign and is never flat.

    Args:
        logits: Unnormalised log-probabilities, shape ``(n, k)``.
        y: Target classes, or those to leave, shape ``(n,)``.
        margin: :math:`\kappa`.
        scale: Of the result.
        away: Whether y is to be left.

    Example:
        >>> logits = torch.tensor([[0.75, 0.25]]).log()
        >>> decision_gap(logits, torch.tensor([1]), 0.1, scale="probability", away=False)
        tensor([0.6000])
    """
    values = logits.softmax(dim=1) if scale == "probability" else logits.log_softmax(dim=1)
    own = values.gather(1, y[:, None])[:, 0]
    other = values.scatter(1, y[:, None], float("-inf")).amax(dim=1)
    loser, winner = (own, other) if away else (other, own)
    if scale == "probability":
        return loser - winner + margin
    if margin == 0:
        return loser - winner
    # log(1 + margin / p) = softplus(log(margin) - log(p)), finite for any p
    return loser - winner + F.softplus(math.log(margin) - loser)


def in_parts(function: RowFunction, x: Tensor, rows: Tensor) -> Tensor:
    """A function of rows, asked about a few at a time where that is faster."""
    size = ROWS_AT_ONCE if x.device.type == "cpu" else max(1, len(x))
    parts = [function(*part) for part in zip(x.split(size), rows.split(size), strict=True)]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def with_gradient(function: RowFunction) -> RowFunction:
    """The value of a function of rows and its gradient side by side, ``(m, 1 + d)``."""

    def both(x: Tensor, rows: Tensor) -> Tensor:
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            value = function(leaf, rows)
            (gradient,) = torch.autograd.grad(value.sum(), leaf)
        return torch.cat([value.detach()[:, None], gradient], dim=1)

    return both
