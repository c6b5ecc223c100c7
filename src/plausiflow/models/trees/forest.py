"""Boosted trees as tensors, exactly: what a library stores, and the sum of many trees.

Soft splits, which have a gradient, are in :mod:`plausiflow.models.trees.relaxation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Self

import torch
from torch import Tensor

from plausiflow.errors import InvalidInputError
from plausiflow.models.base import check_columns

_CELLS = 100_000  # Splits times rows that are computed at once: what a cache holds.
_FEWEST_ROWS = 16
_TENSORS = ("feature", "threshold", "missing_left", "left", "right", "tree", "leaf", "root", "output", "base")


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
        single: Cells are compared in single precision.
        single_sums: So are leaves added up.
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
    single_sums: bool = False

    @classmethod
    def of(
        cls,
        trees: Sequence[Tree],
        base: Tensor,
        n_features: int,
        *,
        inclusive: bool,
        single: bool = False,
        single_sums: bool = False,
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
            single_sums=single_sums,
        )

    def state(self) -> dict[str, Tensor]:
        """The forest as tensors; :meth:`of_state` takes them back."""
        form = [self.n_features, self.inclusive, self.single, self.single_sums]
        own = {name: getattr(self, name).clone() for name in _TENSORS}
        return own | {"levels": _integers(self.levels), "form": _integers(form)}

    @classmethod
    def of_state(cls, state: Mapping[str, Tensor]) -> Self:
        """The forest that :meth:`state` gave.

        Raises:
            InvalidInputError: These are no trees: a shape, a type or a number of a node is not possible.
        """
        n_features, inclusive, single, single_sums = state["form"].tolist()
        made = cls(
            **{name: state[name].clone() for name in _TENSORS},
            levels=tuple(state["levels"].tolist()),
            n_features=n_features,
            inclusive=bool(inclusive),
            single=bool(single),
            single_sums=bool(single_sums),
        )
        made._check()
        return made

    def _check(self) -> None:
        """Raise unless every child comes after its split, and every number has a place to point to."""
        n, trees = len(self.feature), len(self.root)
        nodes, own = n + len(self.leaf), torch.arange(n)
        places = [(self.feature, n, self.n_features), (self.tree, n, trees), (self.root, trees, nodes)]
        places += [(self.left, n, nodes), (self.right, n, nodes), (self.output, trees, len(self.base))]
        fine = all(_points(tensor, count, below) for tensor, count, below in places)
        fine &= all(t.ndim == 1 and t.dtype == torch.float64 for t in (self.threshold, self.leaf, self.base))
        fine &= self.missing_left.dtype == torch.bool and len(self.missing_left) == len(self.threshold) == n
        fine &= sum(self.levels) == n and min(self.levels, default=0) >= 0
        if not fine or not bool(((self.left > own) & (self.right > own)).all()):
            raise InvalidInputError("The tensors are not those of trees: shapes, types or nodes do not fit.")

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
        check_cells(x, self.n_features)
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
        dtype = torch.float32 if self.single_sums else torch.float64
        outputs = self.base.to(dtype)[:, None].repeat(1, len(x))
        return outputs.index_add_(0, self.output, nodes[self.root].to(dtype)).t()

    def __repr__(self) -> str:
        return f"Forest({len(self.root)} trees, {len(self.leaf)} leaves; {self.n_features} columns)"


def behind_zero(base: Tensor, shift: int) -> Tensor:
    """Outputs behind ``shift`` that are zero: the logits of a binary model are zero and its raw score."""
    return torch.cat([base.new_zeros(shift), base])


def _points(tensor: Tensor, count: int, below: int) -> bool:
    """Whether these are so many whole numbers, from zero on and below another."""
    if tensor.shape != (count,) or tensor.dtype != torch.long:
        return False
    return bool(((tensor >= 0) & (tensor < below)).all())


def _integers(values: Sequence[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.long)


def _floats(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def check_cells(x: Tensor, n_features: int) -> None:
    """Raise unless rows have as many columns as the trees take."""
    check_columns(x, n_features, "the columns that the trees were fitted on")
