r"""Boosted trees as tensors: exactly, and with soft splits that have a gradient.

A hard split sends a row left where its cell is below the threshold. A soft one sends it right with
probability :math:`\sigma(u)`, :math:`u = (x_j - t) / (T s_j)`, for a temperature T in units of the column's
scale. A leaf has the probability of its path, the product over its splits, and a tree answers with the mean
of its leaves' values, which goes to the hard tree's answer as T goes to zero. That mean is computed from the
leaves to the root, and the probability :math:`P_i` of coming to a split from the root to the leaves,

.. math:: V_i = V_{left} + \sigma(u_i) (V_{right} - V_{left}), \qquad
          \frac{\partial f}{\partial u_i} = P_i\, \sigma(u_i) \sigma(-u_i) (V_{right} - V_{left}),

all splits of one depth at once, of all trees. The gradient is computed together with the value.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from plausiflow.errors import InvalidInputError, ShapeError

_CELLS = 100_000  # Splits times rows that are computed at once: what a cache holds.
_FEWEST_ROWS = 16
_TIE = 1e-6  # How far a threshold moves off its own value, in steps or scales.


@dataclass(frozen=True)
class Tree:
    """One tree, as its library stores it: every field has an entry per node, the root first.

    Attributes:
        feature: Column that a node splits.
        threshold: Where it splits.
        missing_left: Whether a missing cell goes left.
        left: Its left child; -1 at a leaf.
        right: Its right child.
        value: Of a leaf.
        output: Which output the tree adds to.
    """

    feature: Sequence[int]
    threshold: Sequence[float]
    missing_left: Sequence[bool]
    left: Sequence[int]
    right: Sequence[int]
    value: Sequence[float]
    output: int

    def levels(self) -> list[list[int]]:
        """Its nodes by depth, from the root on."""
        levels, nodes = [], [0]
        while nodes:
            levels.append(nodes)
            splits = [node for node in nodes if self.left[node] >= 0]
            nodes = [child for node in splits for child in (self.left[node], self.right[node])]
        return levels


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Forest:
    """The sum of many trees: the splits of all of them, by depth, and their leaves.

    A node is numbered as a split, or from the number of splits on as a leaf.

    Attributes:
        feature: Column of each split, shape ``(splits,)``, long.
        threshold: Of each split, shape ``(splits,)``.
        missing_left: Whether a missing cell goes left, shape ``(splits,)``, bool.
        left: Left child of each split, a node, shape ``(splits,)``, long.
        right: Right child.
        tree: Which tree a split is in, shape ``(splits,)``, long.
        levels: How many splits there are at each depth; splits are in this order.
        leaf: Values of the leaves, shape ``(leaves,)``.
        root: Root of each tree, a node, shape ``(trees,)``, long.
        output: Which output a tree adds to, shape ``(trees,)``, long.
        base: Outputs before any tree, shape ``(k,)``.
        n_features: Columns of a row.
        inclusive: A cell that equals the threshold goes left (``x <= t``); else right (``x < t``).
        single: Single precision, of cells when they are compared, and of sums.
    """

    feature: Tensor
    threshold: Tensor
    missing_left: Tensor
    left: Tensor
    right: Tensor
    tree: Tensor
    levels: tuple[int, ...]
    leaf: Tensor
    root: Tensor
    output: Tensor
    base: Tensor
    n_features: int
    inclusive: bool
    single: bool = False

    @classmethod
    def of(
        cls, trees: Sequence[Tree], base: Tensor, n_features: int, *, inclusive: bool, single: bool = False
    ) -> Self:
        """The sum of trees."""
        depths: list[list[tuple[int, int]]] = []
        leaves: list[tuple[int, int]] = []
        for i, tree in enumerate(trees):
            for depth, nodes in enumerate(tree.levels()):
                splits = [(i, node) for node in nodes if tree.left[node] >= 0]
                leaves += [(i, node) for node in nodes if tree.left[node] < 0]
                if depth == len(depths):
                    depths.append([])
                depths[depth] += splits
        splits = [split for level in depths for split in level]
        number = {node: at for at, node in enumerate([*splits, *leaves])}
        return cls(
            feature=_integers([trees[i].feature[node] for i, node in splits]),
            threshold=_floats([trees[i].threshold[node] for i, node in splits]),
            missing_left=_integers([trees[i].missing_left[node] for i, node in splits]).bool(),
            left=_integers([number[i, trees[i].left[node]] for i, node in splits]),
            right=_integers([number[i, trees[i].right[node]] for i, node in splits]),
            tree=_integers([i for i, _ in splits]),
            levels=tuple(len(level) for level in depths),
            leaf=_floats([trees[i].value[node] for i, node in leaves]),
            root=_integers([number[i, 0] for i in range(len(trees))]),
            output=_integers([tree.output for tree in trees]),
            base=base.double(),
            n_features=n_features,
            inclusive=inclusive,
            single=single,
        )

    @property
    def slices(self) -> list[slice]:
        """The splits of each depth, from the roots on."""
        return [slice(start, end) for start, end in pairwise(accumulate(self.levels, initial=0))]

    @property
    def rows_at_once(self) -> int:
        """How many rows are best computed together."""
        return max(_FEWEST_ROWS, _CELLS // max(1, len(self.feature)))

    def values(self, x: Tensor) -> Tensor:
        """What the library answers, before any link: logits of a classifier, two columns where it is binary.

        Args:
            x: Rows as the model takes them, NaN where a cell is missing, shape ``(n, d)``.

        Returns:
            Shape ``(n, k)``; there is no gradient.
        """
        _check_rows(x, self.n_features)
        with torch.no_grad():
            cells = (x.float() if self.single else x).double().cpu()
            return torch.cat([self._values(rows) for rows in cells.split(self.rows_at_once)]).to(x)

    def _values(self, x: Tensor) -> Tensor:
        cells, threshold = x.t()[self.feature], self.threshold[:, None]
        goes_left = cells <= threshold if self.inclusive else cells < threshold
        goes_left = torch.where(cells.isnan(), self.missing_left[:, None], goes_left)
        nodes = torch.cat([torch.empty_like(cells), self.leaf[:, None].expand(-1, len(x))])
        for level in reversed(self.slices):
            nodes[level] = torch.where(goes_left[level], nodes[self.left[level]], nodes[self.right[level]])
        dtype = torch.float32 if self.single else torch.float64
        outputs = self.base.to(dtype)[:, None].repeat(1, len(x))
        return outputs.index_add_(0, self.output, nodes[self.root].to(dtype)).t()

    def __repr__(self) -> str:
        return f"Forest({len(self.root)} trees, {len(self.leaf)} leaves; {self.n_features} columns)"


class RelaxedForest(nn.Module):
    """A forest with soft splits, ``(n, d) -> (n, k)``; keeps the graph, for first derivatives.

    A row may equal a threshold, and a soft split would be undecided there however cold. On a column with a
    grid a threshold therefore lies in the middle of the two values that it separates; on any other it moves
    off its own value by a millionth of the scale.

    Args:
        forest: With hard splits.
        scales: Size of each column, such as its range over the training rows, shape ``(d,)``; or one scale
            for each split, shape ``(splits,)``, where the size of a column is not the same everywhere.
        temperature: Width of a soft split, in scales.
        steps: The grid of each column: values are whole multiples of it, zero where there is none; ``(d,)``.
        per_split: The scales are those of splits.
    """

    feature: Tensor
    threshold: Tensor
    scale: Tensor
    missing_right: Tensor
    left: Tensor
    right: Tensor
    parent: Tensor
    is_left: Tensor
    leaf: Tensor
    root: Tensor
    output: Tensor
    place: Tensor
    base: Tensor

    def __init__(
        self,
        forest: Forest,
        scales: Tensor,
        temperature: float,
        steps: Tensor | None = None,
        *,
        per_split: bool = False,
    ) -> None:
        super().__init__()
        self.temperature = _checked_temperature(temperature)
        self.n_features = forest.n_features
        self.slices = forest.slices
        self.rows_at_once = forest.rows_at_once
        scale = _scale_of_splits(forest, scales, per_split)
        n_splits = len(forest.feature)
        parent = torch.zeros(n_splits + len(forest.leaf), dtype=torch.long)
        is_left = torch.zeros(len(parent), 1, dtype=torch.float64)
        parent[forest.left] = parent[forest.right] = torch.arange(n_splits)
        is_left[forest.left] = 1.0
        self.register_buffer("feature", forest.feature)
        self.register_buffer("threshold", _soft_thresholds(forest, scale, steps)[:, None])
        self.register_buffer("scale", scale[:, None])
        self.register_buffer("missing_right", (~forest.missing_left).double()[:, None])
        self.register_buffer("left", forest.left)
        self.register_buffer("right", forest.right)
        self.register_buffer("parent", parent[:n_splits])
        self.register_buffer("is_left", is_left[:n_splits])
        self.register_buffer("leaf", forest.leaf[:, None])
        self.register_buffer("root", forest.root)
        self.register_buffer("output", forest.output)
        self.register_buffer("place", forest.output[forest.tree] * forest.n_features + forest.feature)
        self.register_buffer("base", forest.base[:, None])

    def at(self, temperature: float) -> Self:
        """The same forest at another temperature; it shares the tensors."""
        other = copy.copy(self)
        other._buffers = dict(self._buffers)
        other.temperature = _checked_temperature(temperature)
        return other

    def forward(self, x: Tensor) -> Tensor:
        """Outputs, shape ``(n, k)``; a missing cell, NaN, goes its way for certain, and has no gradient.

        In x's dtype, computed in the module's.
        """
        _check_rows(x, self.n_features)
        outputs: Tensor = _Soft.apply(x.to(self.threshold.dtype), self)  # type: ignore[no-untyped-call]
        return outputs.to(x.dtype)

    def _some_rows(self, x: Tensor, jacobian: Tensor | None) -> Tensor:
        """Outputs of a few rows, shape ``(k, n)``; adds their derivatives to ``jacobian``, ``(k * d, n)``."""
        width = self.temperature * self.scale
        goes_right = x.t().contiguous().index_select(0, self.feature)
        goes_right.sub_(self.threshold).div_(width).sigmoid_()
        goes_right = torch.where(goes_right.isnan(), self.missing_right, goes_right)
        nodes = torch.cat([torch.empty_like(goes_right), self.leaf.expand(-1, len(x))])
        difference = torch.empty_like(goes_right)
        for level in reversed(self.slices):
            left = nodes.index_select(0, self.left[level])
            torch.sub(nodes.index_select(0, self.right[level]), left, out=difference[level])
            torch.addcmul(left, goes_right[level], difference[level], out=nodes[level])
        if jacobian is not None:
            slope = difference.mul_(self._visits(goes_right)).mul_(goes_right).mul_(1 - goes_right)
            jacobian.index_add_(0, self.place, slope.div_(width))
        return self.base.repeat(1, len(x)).index_add_(0, self.output, nodes[self.root])

    def _visits(self, goes_right: Tensor) -> Tensor:
        """The probability that a row comes to each split, shape ``(splits, n)``."""
        visits = torch.ones_like(goes_right)
        for level in self.slices[1:]:
            parent, is_left = self.parent[level], self.is_left[level]
            side = goes_right.index_select(0, parent).mul_(1 - 2 * is_left).add_(is_left)
            torch.mul(visits.index_select(0, parent), side, out=visits[level])
        return visits


class _Soft(torch.autograd.Function):
    """A relaxed forest, a few rows after another; of each only its Jacobian is kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, forest: RelaxedForest) -> Tensor:  # noqa: ANN401
        outputs = x.new_empty(len(x), len(forest.base))
        jacobian = x.new_zeros(outputs.shape[1] * x.shape[1], len(x)) if ctx.needs_input_grad[0] else None
        for start in range(0, len(x), forest.rows_at_once):
            rows = slice(start, start + forest.rows_at_once)
            own = None if jacobian is None else jacobian[:, rows]
            outputs[rows] = forest._some_rows(x[rows], own).t()
        if jacobian is not None:
            ctx.save_for_backward(jacobian.view(outputs.shape[1], x.shape[1], len(x)))
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        (jacobian,) = ctx.saved_tensors
        return torch.einsum("nk,kdn->nd", gradient, jacobian), None


def _soft_thresholds(forest: Forest, scale: Tensor, steps: Tensor | None) -> Tensor:
    """Thresholds that no value of a column's grid, and none that the library splits at, lies on."""
    threshold = forest.threshold
    steps = scale.new_zeros(forest.n_features) if steps is None else steps.double()
    if steps.shape != (forest.n_features,) or not bool((steps >= 0).all()):
        raise ShapeError(
            f"`steps` must have shape ({forest.n_features},), one step per column, zero where there is no "
            f"grid; got {tuple(steps.shape)}, and {int((~(steps >= 0)).sum())} that are negative or NaN."
        )
    step = steps[forest.feature]
    rounding = torch.finfo(torch.float32 if forest.single else torch.float64).eps
    move = torch.maximum(
        _TIE * step.where(step > 0, scale), rounding * threshold.abs().nan_to_num(posinf=0.0)
    )
    # LightGBM parts zero from other cells at 1e-35 and -1e-35: there zero itself must stay on its side.
    by_zero = (threshold != 0) & (threshold.abs() < move)
    moved = threshold + move * torch.where(by_zero, threshold.sign(), 1.0 if forest.inclusive else -1.0)
    middle = ((moved / step.where(step > 0, 1.0)).floor() + 0.5) * step
    return middle.where(step > 0, moved)


def _scale_of_splits(forest: Forest, scales: Tensor, per_split: bool) -> Tensor:
    expected = len(forest.feature) if per_split else forest.n_features
    if scales.shape != (expected,):
        raise ShapeError(
            f"`scales` must have shape ({expected},), one scale per {'split' if per_split else 'column'}; "
            f"got {tuple(scales.shape)}."
        )
    if not bool((scales.isfinite() & (scales > 0)).all()):
        raise InvalidInputError(
            "`scales` must be positive and finite. Give a column that never changes a scale of one."
        )
    return (scales if per_split else scales[forest.feature]).double()


def _checked_temperature(temperature: float) -> float:
    if not 0 < temperature < float("inf"):
        raise InvalidInputError(f"`temperature` must be positive and finite; got {temperature}.")
    return float(temperature)


def _integers(values: Sequence[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.long)


def _floats(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _check_rows(x: Tensor, n_features: int) -> None:
    if x.ndim != 2 or x.shape[1] != n_features:
        raise ShapeError(
            f"`x` must have shape (n, {n_features}), the columns that the trees were fitted on; "
            f"got {tuple(x.shape)}."
        )
    if not x.is_floating_point():
        raise InvalidInputError(f"`x` must be a float tensor; got {x.dtype}. Convert it with `x.double()`.")
