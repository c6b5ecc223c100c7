r"""What the program of a row looks like near an answer, and which changes the answer can do without.

Near an answer x the Lagrangian is about a quadratic function. With W its inverse curvature and A the
gradients of the active constraints, answers that keep these constraints move along
:math:`P = W - W A^\top (A W A^\top)^{-1} A W`. Resetting feature j, whose change is :math:`\delta_j`, and
letting the other features make up for it costs about :math:`\delta_j^2 / P_{jj}`, and moves them along the
column :math:`P_j`. This is how weights are removed from a neural network that has been trained ("optimal
brain surgeon", Hassibi and Stork 1992); here changes are removed from an answer.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

TINY = 1e-12


@dataclass(frozen=True)
class LocalModel:
    """A quadratic model of n programs of d features and m constraints, each near a point.

    Attributes:
        x: The points, shape ``(n, d)``.
        factual: The rows that changes are counted from, shape ``(n, d)``.
        weights: Cost per feature, shape ``(n, d)``.
        values: Constraint values, shape ``(n, m)``.
        jacobian: Their gradients, shape ``(n, m, d)``.
        inverse: Inverse curvature of the Lagrangian, shape ``(n, d, d)``; zero for frozen features.
        active: Constraints that hold the point, shape ``(n, m)`` bool.
    """

    x: Tensor
    factual: Tensor
    weights: Tensor
    values: Tensor
    jacobian: Tensor
    inverse: Tensor
    active: Tensor

    def __getitem__(self, which: Tensor) -> LocalModel:
        return LocalModel(*(getattr(self, f.name)[which] for f in fields(self)))

    @classmethod
    def concat(cls, models: list[LocalModel]) -> LocalModel:
        """Return one model of all programs."""
        return cls(*(torch.cat([getattr(model, f.name) for model in models]) for f in fields(cls)))

    def updated(self, which: Tensor, part: LocalModel) -> LocalModel:
        """Return the model with other parts at some places."""
        parts = ((getattr(self, f.name), getattr(part, f.name)) for f in fields(self))
        return LocalModel(*(own.index_copy(0, which, other) for own, other in parts))

    @property
    def cost(self) -> Tensor:
        """The weighted squared distance of each point to its row, shape ``(n,)``."""
        return _cost(self.x, self.factual, self.weights)

    def inverse_without(self, reset: Tensor) -> Tensor:
        """Return the inverse curvature if some features ``(n, d)`` cannot change."""
        held = reset.to(self.inverse)
        block = self.inverse * held[:, :, None] * held[:, None]
        diagonal = block.diagonal(dim1=1, dim2=2)
        diagonal.add_(diagonal <= TINY)
        sides = self.inverse * held[:, :, None]
        kept: Tensor = self.inverse - sides.mT @ torch.linalg.solve_ex(block, sides).result
        free = 1 - held
        return kept * free[:, :, None] * free[:, None]

    def eliminate(self, removable: Tensor, limit: Tensor, ease: Tensor | None = None) -> Elimination:
        """Reset one removable feature ``(n, d)`` after another, the one that costs least first.

        It goes on while some cost stays within its limit ``(n,)``, and for one feature at least. ``ease``,
        shape ``(n, d)``, divides what a reset costs in the comparison with others.
        """
        x, left, along = self.x, removable & (self.x != self.factual), self._along_constraints()
        rows, order, costs, points = torch.arange(len(x), device=x.device), [], [], []
        for _ in range(int(left.sum(dim=1).max()) if len(x) else 0):
            spread = along.diagonal(dim1=1, dim2=2).clamp_min(TINY)
            price = (self.factual - x) ** 2 / (spread if ease is None else spread * ease)
            price = torch.where(left, price, torch.inf)
            # Single precision: of features that cost the same, rounding in a batch must not choose.
            least, feature = price.float().min(dim=1)
            some = torch.isfinite(least)
            column = along[rows, :, feature] * some[:, None]
            share = 1 / spread[rows, feature]
            step = (self.factual - x)[rows, feature] * share
            x = x + step[:, None] * column
            along = along - share[:, None, None] * column[:, :, None] * column[:, None]
            left = left & (torch.arange(x.shape[1], device=x.device) != feature[:, None])
            x = torch.where(removable & ~left, self.factual, x)
            order.append(torch.where(some, feature, -1))
            costs.append(_cost(x, self.factual, self.weights))
            points.append(x)
            if not bool((costs[-1] <= limit).any()):
                break
        if not order:
            return Elimination(rows.new_zeros(len(x), 0), x[:, :0], x[:, None][:, :0])
        return Elimination(torch.stack(order, 1), torch.stack(costs, 1), torch.stack(points, 1))

    def resets(
        self,
        removable: Tensor,
        limit: Tensor,
        most: Tensor,
        alone: int,
        *,
        highest: Tensor,
        ease: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return sets of features to reset, each with its program, and the points then.

        They are as many features as stay within the limit ``(n,)``, at most ``most`` ``(n,)``, and half as
        many; or one, and the next best ones alone, ``alone`` in all, if they cost at most ``highest``
        ``(n,)``: the model is optimistic, so a reset that costs more even there is not tried. For ``ease``
        see :meth:`eliminate`.
        """
        path = self.eliminate(removable, limit, ease)
        fits = path.within(limit)
        most = torch.minimum(most, (path.order >= 0).sum(dim=1))
        count = torch.minimum(fits.clamp_min(1), most)
        several, one = (count > 1).nonzero()[:, 0], (count == 1).nonzero()[:, 0]
        parts = [(several, *path[several].first(number)) for number in (count[several], count[several] // 2)]
        removable = removable.clone()
        for _ in range(alone):
            step = self[one].eliminate(removable[one], torch.full_like(limit[one], -torch.inf), ease[one])
            if step.order.shape[1] == 0:
                break
            some = ((step.order[:, 0] >= 0) & (step.cost[:, 0] <= highest[one])).nonzero()[:, 0]
            one, step = one[some], step[some]
            if len(one) == 0:
                break
            parts.append((one, *step.first(torch.ones_like(one))))
            removable[one] = removable[one].scatter(1, step.order[:, :1], False)
        which, chosen, points = (torch.cat(part) for part in zip(*parts, strict=True))
        return which, chosen, points

    def _along_constraints(self) -> Tensor:
        """Return the inverse curvature along the active constraints, P, shape ``(n, d, d)``."""
        normals = self.jacobian * self.active[..., None]
        moved = normals @ self.inverse
        gram = moved @ normals.mT
        diagonal = gram.diagonal(dim1=1, dim2=2)
        diagonal.add_(torch.where(diagonal <= TINY, 1.0, TINY))
        pulled: Tensor = moved.mT @ torch.linalg.solve_ex(gram, moved).result
        return self.inverse - pulled


@dataclass(frozen=True)
class Elimination:
    """In which order features are reset, what is left then, and at which point.

    Attributes:
        order: Features in order, -1 where none is left, shape ``(n, k)``.
        cost: Predicted weighted squared distance after each, shape ``(n, k)``.
        points: Predicted points, shape ``(n, k, d)``.
    """

    order: Tensor
    cost: Tensor
    points: Tensor

    def __getitem__(self, which: Tensor) -> Elimination:
        return Elimination(self.order[which], self.cost[which], self.points[which])

    def within(self, limit: Tensor) -> Tensor:
        """Return how many features are reset before the cost exceeds a limit ``(n,)``, shape ``(n,)``."""
        return ((self.cost <= limit[:, None]) & (self.order >= 0)).long().cumprod(dim=1).sum(dim=1)

    def first(self, count: Tensor) -> tuple[Tensor, Tensor]:
        """Return the first ``count`` features that are reset, ``(n, d)`` bool, and the points then."""
        chosen = torch.arange(self.order.shape[1], device=count.device) < count[:, None]
        which, step = chosen.nonzero(as_tuple=True)
        reset = torch.zeros_like(self.points[:, 0], dtype=torch.bool)
        reset[which, self.order[which, step]] = True
        return reset, self.points[torch.arange(len(count), device=count.device), count - 1]


def _cost(x: Tensor, factual: Tensor, weights: Tensor) -> Tensor:
    return ((x - factual) ** 2 * weights).sum(dim=1)
