r"""Boosted trees with soft splits, which have a gradient.

A hard split sends a row left where its cell is below the threshold. A soft split sends it right with
probability :math:`\sigma(u)`, :math:`u = (x_j - t) / (T s_j)`, where the temperature T is in units of the
column's scale. A leaf has the probability of its path, the product over its splits. A tree predicts the mean
of its leaves' values, which approaches the hard tree as T goes to zero. With :math:`V_i` the mean below
a split and :math:`P_i` the probability of reaching it,

.. math:: V_i = V_{left} + \sigma(u_i) (V_{right} - V_{left}), \qquad
          \frac{\partial f}{\partial u_i} = P_i\, \sigma(u_i) \sigma(-u_i) (V_{right} - V_{left}).

Value and gradient are computed together (:mod:`plausiflow.models.trees.soft_walk`). Splits that share their
column and threshold are one *cut*, whose sigmoid is computed once.
"""

from __future__ import annotations

import copy
from typing import Any, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from plausiflow.core import Pullback
from plausiflow.errors import InvalidInputError
from plausiflow.models.trees.forest import Forest, check_cells
from plausiflow.models.trees.soft_walk import WalkBuffers, fastest_walk
from plausiflow.models.trees.splits import soft_thresholds, split_scales

M = TypeVar("M", bound=nn.Module)


class RelaxedForest(nn.Module):
    """A forest with soft splits, ``(n, d) -> (n, k)``; keeps the graph, for first derivatives only.

    A row may equal a threshold, where a soft split is undecided at any temperature. On a column with a grid
    the threshold is therefore moved to the middle of the two values that it separates. On other columns it is
    moved off its value by a billionth of the scale.

    ``temperature`` is the width of a soft split, in ``scales``: the size of each column, such as its range
    over the training rows, ``(d,)``, or with ``per_split`` the scale of each split, ``(splits,)``. ``steps``
    are the grid steps of the columns, zero for no grid, and ``origins`` some value on each grid, ``(d,)``;
    None is zero.
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
        self.temperature = _check_temperature(temperature)
        self.n_features = forest.n_features
        self.inclusive, self.single = forest.inclusive, forest.single
        cut = self._register_cuts(forest, split_scales(forest, scales, per_split), steps, origins)
        self.walk = fastest_walk(forest, cut)
        self.register_buffer("output", forest.output)
        self.register_buffer("base", forest.base[:, None])

    def _register_cuts(
        self, forest: Forest, scale: Tensor, steps: Tensor | None, origins: Tensor | None
    ) -> Tensor:
        """Register the cuts, each for one output, and return the cut of each split."""
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

    def with_temperature(self, temperature: float) -> Self:
        """Return the same forest at another temperature; the tensors are shared."""
        other = _share(self)
        other.temperature = _check_temperature(temperature)
        return other

    def forward(self, x: Tensor, certain: Tensor | None = None) -> Tensor:
        """Return the outputs in x's dtype, shape ``(n, k)``; a missing cell, NaN, has no gradient.

        Cells that are ``certain``, ``(n, d)`` bool, are split by the hard thresholds, without a gradient.
        """
        check_cells(x, self.n_features)
        outputs: Tensor = _RelaxedFunction.apply(x.to(self.threshold.dtype), certain, self)  # type: ignore[no-untyped-call]
        return outputs.to(x.dtype)

    def value_and_grad(self, x: Tensor, certain: Tensor | None = None) -> tuple[Tensor, Pullback]:
        """Return the outputs and their pullback, without an autograd graph."""
        check_cells(x, self.n_features)
        outputs, jacobian = self.evaluate(x.to(self.threshold.dtype), certain, derivatives=True)
        return outputs.to(x.dtype), lambda gradient: _pull(gradient, jacobian).to(x.dtype)

    def evaluate(self, x: Tensor, certain: Tensor | None, *, derivatives: bool) -> tuple[Tensor, Tensor]:
        """Return outputs ``(n, k)`` and derivatives ``(k, d, n)`` in batches; no derivatives are zero."""
        outputs, k = x.new_empty(len(x), len(self.base)), len(self.base)
        jacobian = x.new_zeros(k * x.shape[1], len(x) if derivatives else 0)
        buffers, size = None, -1
        for start in range(0, len(x), self.walk.batch_size):
            rows = slice(start, min(start + self.walk.batch_size, len(x)))
            if rows.stop - start != size:
                size = rows.stop - start
                buffers = self.walk.allocate(size)
            batch_jacobian = jacobian[:, rows] if derivatives else None
            batch_certain = None if certain is None else certain[rows]
            outputs[rows] = self._forward_batch(x[rows], batch_certain, buffers, batch_jacobian).t()
        return outputs, jacobian.view(k, x.shape[1], jacobian.shape[1])

    def _forward_batch(
        self, x: Tensor, certain: Tensor | None, buffers: WalkBuffers | None, jacobian: Tensor | None
    ) -> Tensor:
        """Return outputs ``(k, n)`` of one batch; add their derivatives to ``jacobian``, ``(k * d, n)``."""
        width = self.temperature * self.scale
        sigmoid = self._sigmoids(x, certain, width)
        values, derivative = self.walk(sigmoid, buffers, jacobian is not None)
        if jacobian is not None:
            jacobian.index_add_(0, self.place, derivative.mul_(sigmoid).mul_(1 - sigmoid).div_(width))
        return self.base.repeat(1, len(x)).index_add_(0, self.output, values)

    def _sigmoids(self, x: Tensor, certain: Tensor | None, width: Tensor) -> Tensor:
        """Return the probability that a row goes right at each cut, shape ``(cuts, n)``."""
        cells = x.t().contiguous().index_select(0, self.feature)
        sigmoid = torch.sub(cells, self.threshold).div_(width).sigmoid_()
        if certain is not None:
            compared = cells.float().to(cells) if self.single else cells
            goes_left = compared <= self.limit if self.inclusive else compared < self.limit
            hard = certain.t().contiguous().index_select(0, self.feature)
            sigmoid = torch.where(hard, 1 - goes_left.to(cells), sigmoid)
        return torch.where(cells.isnan(), self.missing_right, sigmoid)


class _RelaxedFunction(torch.autograd.Function):
    """A relaxed forest, evaluated in batches; only the Jacobian is kept for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, certain: Tensor | None, forest: RelaxedForest) -> Tensor:  # noqa: ANN401
        outputs, jacobian = forest.evaluate(x, certain, derivatives=ctx.needs_input_grad[0])
        ctx.save_for_backward(jacobian)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        (jacobian,) = ctx.saved_tensors
        return _pull(gradient, jacobian), None, None


def _pull(gradient: Tensor, jacobian: Tensor) -> Tensor:
    """Return the gradient in the inputs ``(n, d)`` from that in the outputs ``(n, k)``."""
    return torch.einsum("nk,kdn->nd", gradient, jacobian)


def _share(module: M) -> M:
    """Copy a module so that it can be changed on its own; the tensors are shared."""
    other = copy.copy(module)
    other._buffers = dict(module._buffers)
    other._modules = {name: child and _share(child) for name, child in module._modules.items()}
    return other


def _check_temperature(temperature: float) -> float:
    if not 0 < temperature < float("inf"):
        raise InvalidInputError(f"`temperature` must be positive and finite; got {temperature}.")
    return float(temperature)
