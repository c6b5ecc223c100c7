"""Boosted trees as tensors: the exact sum of many trees, as their library computes it.

Soft splits, which have a gradient, are in :mod:`plausiflow.models.trees.relaxation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Self

import torch
from torch import Tensor

from plausiflow.errors import InvalidInputError
from plausiflow.models.networks import check_columns

_CACHED_CELLS = 50_000  # Trees times rows in one batch, so that a batch fits into the cache.
_MIN_BATCH = 16
_TENSORS = ("feature", "threshold", "missing_left", "left", "right", "tree", "leaf", "root", "output", "base")


@dataclass(frozen=True)
class Tree:
    """One tree, as its library stores it: sequences have one entry per node, the root first."""

    feature: Sequence[int]  # Column that a node splits.
    threshold: Sequence[float]  # Threshold of the split.
    missing_left: Sequence[bool]  # Whether a missing value goes left.
    left: Sequence[int]  # Left child; -1 at a leaf.
    right: Sequence[int]  # Right child.
    value: Sequence[float]  # Value of a leaf.
    output: int  # Output that the tree adds to.

    def levels(self) -> list[list[int]]:
        """Return the nodes of each depth, starting at the root."""
        levels, nodes = [], [0]
        while nodes:
            levels.append(nodes)
            splits = [node for node in nodes if self.left[node] >= 0]
            nodes = [child for node in splits for child in (self.left[node], self.right[node])]
        return levels


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Forest:
    """The sum of many trees: the splits of all trees, sorted by depth, and their leaves.

    Node numbers below the number of splits are splits; the others are leaves.
    """

    feature: Tensor  # Column of each split, (splits,), long.
    threshold: Tensor  # Threshold of each split, (splits,).
    missing_left: Tensor  # Whether a missing value goes left, (splits,), bool.
    left: Tensor  # Node number of each left child, (splits,), long.
    right: Tensor  # Node number of each right child, (splits,), long.
    tree: Tensor  # Tree of each split, (splits,), long.
    levels: tuple[int, ...]  # Number of splits at each depth.
    leaf: Tensor  # Values of the leaves, (leaves,).
    root: Tensor  # Node number of each tree's root, (trees,), long.
    output: Tensor  # Output that each tree adds to, (trees,), long.
    base: Tensor  # Outputs before the first tree, (k,).
    n_features: int  # Number of columns of a row.
    inclusive: bool  # Whether a value equal to the threshold goes left (x <= t) or right (x < t).
    single: bool = False  # Whether values are compared in single precision.
    single_sums: bool = False  # Whether leaves are added in single precision.

    @classmethod
    def from_trees(
        cls,
        trees: Sequence[Tree],
        base: Tensor,
        n_features: int,
        *,
        inclusive: bool,
        single: bool = False,
        single_sums: bool = False,
    ) -> Self:
        """Combine trees; the arguments are those of the class."""
        depths: list[list[tuple[int, int]]] = []
        leaves: list[tuple[int, int]] = []
        for i, tree in enumerate(trees):
            for depth, nodes in enumerate(tree.levels()):
                if depth == len(depths):
                    depths.append([])
                depths[depth] += [(i, node) for node in nodes if tree.left[node] >= 0]
                leaves += [(i, node) for node in nodes if tree.left[node] < 0]
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
        """Return the forest as tensors, for :meth:`restore`."""
        form = [self.n_features, self.inclusive, self.single, self.single_sums]
        tensors = {name: getattr(self, name).clone() for name in _TENSORS}
        return tensors | {"levels": _integers(self.levels), "form": _integers(form)}

    @classmethod
    def restore(cls, state: Mapping[str, Tensor]) -> Self:
        """Rebuild the forest from its :meth:`state`, after checks."""
        n_features, inclusive, single, single_sums = state["form"].tolist()
        forest = cls(
            **{name: state[name].clone() for name in _TENSORS},
            levels=tuple(state["levels"].tolist()),
            n_features=n_features,
            inclusive=bool(inclusive),
            single=bool(single),
            single_sums=bool(single_sums),
        )
        forest._check()
        return forest

    def _check(self) -> None:
        """Raise unless every index is in range and every child comes after its split."""
        n, trees = len(self.feature), len(self.root)
        nodes, position = n + len(self.leaf), torch.arange(n)
        indices = [(self.feature, n, self.n_features), (self.tree, n, trees), (self.root, trees, nodes)]
        indices += [(self.left, n, nodes), (self.right, n, nodes), (self.output, trees, len(self.base))]
        valid = all(_is_index(tensor, count, below) for tensor, count, below in indices)
        valid &= all(t.ndim == 1 and t.dtype == torch.float64 for t in (self.threshold, self.leaf, self.base))
        valid &= self.missing_left.dtype == torch.bool and len(self.missing_left) == len(self.threshold) == n
        valid &= sum(self.levels) == n and min(self.levels, default=0) >= 0
        if not valid or not bool(((self.left > position) & (self.right > position)).all()):
            raise InvalidInputError("The tensors are not those of trees: shapes, types or nodes do not fit.")

    @property
    def slices(self) -> list[slice]:
        """The splits of each depth, starting at the roots."""
        return [slice(start, end) for start, end in pairwise(accumulate(self.levels, initial=0))]

    def values(self, x: Tensor) -> Tensor:
        """Return the raw outputs of the library, before the link function, without a gradient.

        For inputs ``(n, d)``, NaN for missing values, they are the logits of a classifier (two columns for a
        binary one) or the values of a regressor, shape ``(n, k)``.
        """
        check_cells(x, self.n_features)
        batch = max(_MIN_BATCH, _CACHED_CELLS // max(1, len(self.root)))
        with torch.no_grad():
            cells = (x.float() if self.single else x).double().cpu()
            return torch.cat([self._values(rows) for rows in cells.split(batch)]).to(x)

    def _values(self, x: Tensor) -> Tensor:
        """Return the outputs of one batch: every row walks from the root of each tree to a leaf."""
        splits, nodes = len(self.feature), self.root.expand(len(x), -1)
        for _ in self.levels if splits else ():
            at = nodes.clamp_max(splits - 1)
            cells, threshold = x.gather(1, self.feature[at]), self.threshold[at]
            goes_left = cells <= threshold if self.inclusive else cells < threshold
            goes_left = torch.where(cells.isnan(), self.missing_left[at], goes_left)
            nodes = torch.where(nodes < splits, torch.where(goes_left, self.left[at], self.right[at]), nodes)
        dtype = torch.float32 if self.single_sums else torch.float64
        outputs = self.base.to(dtype)[:, None].repeat(1, len(x))
        return outputs.index_add_(0, self.output, self.leaf[nodes - splits].t().to(dtype)).t()

    def __repr__(self) -> str:
        return f"Forest({len(self.root)} trees, {len(self.leaf)} leaves; {self.n_features} columns)"


def join_forests(forests: Sequence[Forest], *, same_columns: bool = False) -> Forest:
    """Return several forests as one, which walks all of their trees at once.

    It takes the columns of all forests side by side, or the columns that they share, and returns their
    outputs side by side.

    Raises:
        InvalidInputError: They compare or add values in different ways.
    """
    first = forests[0]
    ways = {(f.inclusive, f.single, f.single_sums) for f in forests}
    if len(ways) > 1:
        raise InvalidInputError("Forests must compare and add values in one way to be joined.")
    depth = torch.cat([torch.repeat_interleave(_integers(f.levels)) for f in forests])
    order = torch.argsort(depth, stable=True)
    place = torch.empty_like(order).index_copy_(0, order, torch.arange(len(order)))
    n_splits = [len(f.feature) for f in forests]
    splits, leaves, columns, trees, outputs = (
        [0, *accumulate(counts)]
        for counts in (
            n_splits,
            [len(f.leaf) for f in forests],
            [0 if same_columns else f.n_features for f in forests],
            [len(f.root) for f in forests],
            [len(f.base) for f in forests],
        )
    )

    def nodes(name: str) -> Tensor:
        parts = []
        for j, forest in enumerate(forests):
            own: Tensor = getattr(forest, name)
            inner = (own + splits[j]).clamp_max(max(0, len(place) - 1))
            known = place[inner] if len(place) else inner
            parts.append(torch.where(own < n_splits[j], known, own - n_splits[j] + len(place) + leaves[j]))
        return torch.cat(parts)

    def joined(name: str, offsets: Sequence[int] | None = None) -> Tensor:
        return torch.cat([getattr(f, name) + (offsets[j] if offsets else 0) for j, f in enumerate(forests)])

    return replace(
        first,
        feature=joined("feature", columns)[order],
        threshold=joined("threshold")[order],
        missing_left=torch.cat([f.missing_left for f in forests])[order],
        left=nodes("left")[order],
        right=nodes("right")[order],
        tree=joined("tree", trees)[order],
        levels=tuple(torch.bincount(depth).tolist()),
        leaf=joined("leaf"),
        root=nodes("root"),
        output=joined("output", outputs),
        base=joined("base"),
        n_features=first.n_features if same_columns else columns[-1],
    )


def _is_index(tensor: Tensor, count: int, below: int) -> bool:
    """Return whether a tensor holds ``count`` whole numbers from zero to ``below - 1``."""
    if tensor.shape != (count,) or tensor.dtype != torch.long:
        return False
    return bool(((tensor >= 0) & (tensor < below)).all())


def _integers(values: Sequence[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.long)


def _floats(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def check_cells(x: Tensor, n_features: int) -> None:
    """Raise unless the rows have the columns of the trees."""
    check_columns(x, n_features, "the columns that the trees were fitted on")
