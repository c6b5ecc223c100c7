r"""Boosted trees with soft splits, which have a gradient.

A hard split sends a row left where its cell is below the threshold. A soft one sends it right with
probability :math:`\sigma(u)`, :math:`u = (x_j - t) / (T s_j)`, for a temperature T in units of the column's
scale. A leaf has the probability of its path, the product over its splits, and a tree answers with the mean
of its leaves' values, which goes to the hard tree's answer as T goes to zero. With :math:`V_i` the mean below
a split and :math:`P_i` the probability of coming to it,

.. math:: V_i = V_{left} + \sigma(u_i) (V_{right} - V_{left}), \qquad
          \frac{\partial f}{\partial u_i} = P_i\, \sigma(u_i) \sigma(-u_i) (V_{right} - V_{left}).

The gradient is computed together with the value (:mod:`plausiflow.models.trees.soft_walk`). Many splits have their
column and threshold in common: these are one *cut*, whose sigmoid is computed once.
"""

from __future__ import annotations

import copy
from typing import Any, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from plausiflow.errors import InvalidInputError
from plausiflow.models.trees.forest import Forest, check_cells
from plausiflow.models.trees.soft_walk import Space, walk_of
from plausiflow.models.trees.splits import scale_of_splits, soft_thresholds

M = TypeVar("M", bound=nn.Module)


class RelaxedForest(nn.Module):
    """A forest with soft splits, ``(n, d) -> (n, k)``; keeps the graph, for first derivatives.

    A row may equal a threshold, and a soft split would be undecided there however cold. On a column with a
    grid a threshold therefore lies in the middle of the two values that it separates; on any other it moves
    off its own value by a billionth of the scale.

    Args:
        forest: With hard splits.
        scales: Size of each column, such as its range over the training rows, shape ``(d,)``; or one scale
            for each split, shape ``(splits,)``, where the size of a column is not the same everywhere.
        temperature: Width of a soft split, in scales.
        steps: The grid of each column: how far its values are from each other, zero where there is no grid;
            shape ``(d,)``.
        origins: Some value on the grid of each column, shape ``(d,)``; zero where nothing is given.
        per_split: The scales are those of splits.
    """

    feature: Tensor
    threshold: Tensor
    limit: Tensor
    scale: Tensor
    missing_right: Tensor
    place: Tensor
    output: Tensor
    base: Tensor

    def __init__(
        self,
        forest: Forest,
        scales: Tensor,
        temperature: float,
        steps: Tensor | None = None,
        origins: Tensor | None = None,
        *,
        per_split: bool = False,
    ) -> None:
        super().__init__()
        self.temperature = _checked_temperature(temperature)
        self.n_features = forest.n_features
        self.inclusive, self.single = forest.inclusive, forest.single
        cut = self._register_cuts(forest, scale_of_splits(forest, scales, per_split), steps, origins)
        self.walk = walk_of(forest, cut)
        self.register_buffer("output", forest.output)
        self.register_buffer("base", forest.base[:, None])

    def _register_cuts(
        self, forest: Forest, scale: Tensor, steps: Tensor | None, origins: Tensor | None
    ) -> Tensor:
        """The cuts, each for one output; returns which cut each split makes."""
        threshold = soft_thresholds(forest, scale, steps, origins)
        place = forest.output[forest.tree] * forest.n_features + forest.feature
        columns = [place, forest.feature, forest.threshold, threshold, scale, ~forest.missing_left]
        table = torch.stack([column.double() for column in columns], dim=1)
        cut: Tensor
        cuts, cut = table.unique(dim=0, return_inverse=True)
        self.register_buffer("place", cuts[:, 0].long())
        self.register_buffer("feature", cuts[:, 1].long())
        for i, name in enumerate(("limit", "threshold", "scale", "missing_right"), start=2):
            self.register_buffer(name, cuts[:, i, None].clone())
        return cut

    def at(self, temperature: float) -> Self:
        """The same forest at another temperature; it shares the tensors."""
        other = _sharing(self)
        other.temperature = _checked_temperature(temperature)
        return other

    def forward(self, x: Tensor, certain: Tensor | None = None) -> Tensor:
        """Outputs, shape ``(n, k)``; a missing cell, NaN, goes its way for certain, and has no gradient.

        In x's dtype, computed in the module's.

        Args:
            x: Rows as the trees take them, shape ``(n, d)``.
            certain: Cells that are split as the hard forest does, without a gradient, shape ``(n, d)`` bool.
        """
        check_cells(x, self.n_features)
        outputs: Tensor = _Soft.apply(x.to(self.threshold.dtype), certain, self)  # type: ignore[no-untyped-call]
        return outputs.to(x.dtype)

    def _some_rows(
        self, x: Tensor, certain: Tensor | None, space: Space | None, jacobian: Tensor | None
    ) -> Tensor:
        """Outputs of a few rows, shape ``(k, n)``; adds their derivatives to ``jacobian``, ``(k * d, n)``."""
        width = self.temperature * self.scale
        sigmoid = self._sigmoids(x, certain, width)
        values, slope = self.walk(sigmoid, space, jacobian is not None)
        if jacobian is not None:
            jacobian.index_add_(0, self.place, slope.mul_(sigmoid).mul_(1 - sigmoid).div_(width))
        return self.base.repeat(1, len(x)).index_add_(0, self.output, values)

    def _sigmoids(self, x: Tensor, certain: Tensor | None, width: Tensor) -> Tensor:
        """The probability that a row goes right at each cut, shape ``(cuts, n)``."""
        cells = x.t().contiguous().index_select(0, self.feature)
        sigmoid = torch.sub(cells, self.threshold).div_(width).sigmoid_()
        if certain is not None:
            known = certain.t().contiguous().index_select(0, self.feature)
            sigmoid = torch.where(known, self._goes_right(cells), sigmoid)
        return torch.where(cells.isnan(), self.missing_right, sigmoid)

    def _goes_right(self, cells: Tensor) -> Tensor:
        """The same, by hard cuts; zero or one."""
        compared = cells.float().to(cells) if self.single else cells
        goes_left = compared <= self.limit if self.inclusive else compared < self.limit
        return 1 - goes_left.to(cells)


class _Soft(torch.autograd.Function):
    """A relaxed forest, a few rows after another; of each only its Jacobian is kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, certain: Tensor | None, forest: RelaxedForest) -> Tensor:  # noqa: ANN401
        outputs = x.new_empty(len(x), len(forest.base))
        jacobian = x.new_zeros(outputs.shape[1] * x.shape[1], len(x)) if ctx.needs_input_grad[0] else None
        space, size = None, -1
        for start in range(0, len(x), forest.walk.rows_at_once):
            rows = slice(start, min(start + forest.walk.rows_at_once, len(x)))
            if rows.stop - start != size:
                size = rows.stop - start
                space = forest.walk.space(size)
            own = None if jacobian is None else jacobian[:, rows]
            known = None if certain is None else certain[rows]
            outputs[rows] = forest._some_rows(x[rows], known, space, own).t()
        if jacobian is not None:
            ctx.save_for_backward(jacobian.view(outputs.shape[1], x.shape[1], len(x)))
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        (jacobian,) = ctx.saved_tensors
        return torch.einsum("nk,kdn->nd", gradient, jacobian), None, None


def _sharing(module: M) -> M:
    """A copy of a module, to be changed by itself, that shares the tensors."""
    other = copy.copy(module)
    other._buffers = dict(module._buffers)
    other._modules = {name: child and _sharing(child) for name, child in module._modules.items()}
    return other


def _checked_temperature(temperature: float) -> float:
    if not 0 < temperature < float("inf"):
        raise InvalidInputError(f"`temperature` must be positive and finite; got {temperature}.")
    return float(temperature)
