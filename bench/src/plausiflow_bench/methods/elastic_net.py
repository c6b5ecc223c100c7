r"""The objective of CEM and CEGP, for every row on its own.

.. math:: c \max(h(x'), 0) + \beta \lVert x' - x \rVert_1 + \lVert x' - x \rVert_2^2 + s(x')

``decision_gap`` is h, negative exactly where the counterfactual is valid; s is a smooth term of the method.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from plausiflow.core import RowFunction, value_and_grad

GapScale = Literal["logit", "probability"]

CPU_BATCH = 256
"""Rows per call of the model on a CPU; larger batches do not fit into the cache."""


@dataclass(frozen=True, kw_only=True)
class ElasticNet:
    r"""The problem that is solved for every row on its own.

    Attributes:
        x: Factuals, shape ``(n, d)``, in the precision of the results.
        lower: Smallest allowed values, shape ``(n, d)``.
        upper: Largest allowed values, shape ``(n, d)``.
        l1_weight: :math:`\beta`.
        gap: h, negative where a point is valid.
        smooth: s, or None.
        curvature: Approximate largest second derivative of the squared distance and s.
        restrict: Further limits, ``(x_cf, rows) -> (m, d)``, which leave a factual unchanged. They also
            replace the box for the points y where gradients are taken.
        accept: Further condition for points with a negative gap, ``(x_cf, rows) -> (m,)`` bool, or None.
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
        r"""Return the distance by which counterfactuals are ranked, shape ``(m,)``.

        .. math:: \lVert x' - x \rVert_2^2 + \beta \lVert x' - x \rVert_1
        """
        change = x_cf - self.x[rows]
        return change.square().sum(dim=1) + self.l1_weight * change.abs().sum(dim=1)

    def accepted(self, x_cf: Tensor, rows: Tensor) -> Tensor:
        """Return whether points, rounded to the precision of the results, are valid, shape ``(m,)``."""
        rounded = x_cf.to(self.x.dtype).double()
        accepted = evaluate_in_batches(self.gap, rounded, rows) < 0
        if self.accept is not None and accepted.any():
            accepted[accepted.clone()] = self.accept(rounded[accepted], rows[accepted])
        return accepted


@dataclass(kw_only=True)
class ClosestAccepted:
    """The closest accepted points so far."""

    x: Tensor  # The points, (n, d); NaN where there is none.
    distance: Tensor  # Their distances, (n,); infinite where there is none.
    gradients: Tensor  # Number of value-and-gradient evaluations of the model, (n,).

    @classmethod
    def empty(cls, problem: ElasticNet) -> Self:
        """Start without any accepted point."""
        x = torch.full_like(problem.x, torch.nan, dtype=torch.float64)
        distance = x.new_full((len(x),), torch.inf)
        return cls(x=x, distance=distance, gradients=torch.zeros_like(distance, dtype=torch.long))

    def update(self, problem: ElasticNet, x_cf: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Keep accepted points that are closer; return which points are accepted, and which are kept."""
        accepted = problem.accepted(x_cf, rows)
        distance = problem.distance(x_cf, rows)
        closer = accepted & (distance < self.distance[rows])
        self.x[rows[closer]], self.distance[rows[closer]] = x_cf[closer], distance[closer]
        return accepted, closer


def decision_gap(logits: Tensor, y: Tensor, margin: float, *, scale: GapScale, away: bool) -> Tensor:
    r"""Return how far a decision is from valid: negative exactly where the winner leads by the margin.

    The winner is class y, or with ``away`` any other class, which only has to beat y. With a the strongest
    class that must lose and b the one that must win it is :math:`p_a - p_b + \kappa`. On the scale of logits
    it is :math:`z_a - z_b + \log(1 + \kappa / p_a)`, which has the same sign and never saturates.

    Args:
        logits: Unnormalised log-probabilities, shape ``(n, k)``.
        y: Target classes, or classes to leave, shape ``(n,)``.
        margin: :math:`\kappa`.
        scale: Scale of the result.
        away: Whether y is the class to leave.

    Example:
        >>> logits = torch.tensor([[0.75, 0.25]]).log()
        >>> decision_gap(logits, torch.tensor([1]), 0.1, scale="probability", away=False)
        tensor([0.6000])
    """
    values = logits.softmax(dim=1) if scale == "probability" else logits.log_softmax(dim=1)
    given = values.gather(1, y[:, None])[:, 0]
    other = values.scatter(1, y[:, None], float("-inf")).amax(dim=1)
    loser, winner = (given, other) if away else (other, given)
    if scale == "probability":
        return loser - winner + margin
    if margin == 0:
        return loser - winner
    # log(1 + margin / p) = softplus(log(margin) - log(p)), finite for any p
    return loser - winner + F.softplus(math.log(margin) - loser)


def evaluate_in_batches(function: RowFunction, x: Tensor, rows: Tensor) -> Tensor:
    """Evaluate a function of rows, on a CPU in small batches, which is faster."""
    size = CPU_BATCH if x.device.type == "cpu" else max(1, len(x))
    parts = [function(*part) for part in zip(x.split(size), rows.split(size), strict=True)]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def with_gradient(function: RowFunction) -> RowFunction:
    """Return a function that gives value and gradient side by side, ``(m, 1 + d)``."""

    def value_then_gradient(x: Tensor, rows: Tensor) -> Tensor:
        value, gradient = value_and_grad(lambda leaf: function(leaf, rows), x)
        return torch.cat([value[:, None], gradient], dim=1)

    return value_then_gradient
