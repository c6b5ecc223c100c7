r"""The answers of soft trees, and how these change with each cut, for a few rows at a time.

Trees of any shape are walked depth by depth, all trees at once: from the leaves to the roots for the values,
and from the roots to the leaves for the probability of coming to a split.

An *oblivious* tree, as CatBoost grows them, makes the same cut everywhere at one depth. Its leaves are a
table M, the ways through its first depths by those through its last: with the probabilities p and q of these
ways its answer is :math:`p^\top M q`, two small products instead of a walk.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from plausiflow.models.trees.forest import Forest

_CELLS = 200_000  # Numbers that are computed at once: what a cache holds.
_FEWEST_ROWS = 16
_DEEPEST = 12


class Walk(nn.Module):
    """Trees of any shape.

    Args:
        forest: With hard splits.
        cut: Which cut each of its splits makes, shape ``(splits,)``.
    """

    cut: Tensor
    left: Tensor
    right: Tensor
    source: Tensor
    leaf: Tensor
    root: Tensor

    def __init__(self, forest: Forest, cut: Tensor) -> None:
        super().__init__()
        self.slices = forest.slices
        self.rows_at_once = max(_FEWEST_ROWS, _CELLS // max(1, len(cut)))
        # The place of a split's parent at its depth, behind all of these where the split is a right child.
        source = torch.zeros(len(cut) + len(forest.leaf), dtype=torch.long)
        for level in self.slices:
            size = level.stop - level.start
            source[forest.left[level]] = torch.arange(size)
            source[forest.right[level]] = torch.arange(size, 2 * size)
        self.register_buffer("cut", cut)
        self.register_buffer("left", forest.left)
        self.register_buffer("right", forest.right)
        self.register_buffer("source", source[: len(cut)])
        self.register_buffer("leaf", forest.leaf[:, None])
        self.register_buffer("root", forest.root)

    def space(self, n: int) -> Space:
        """Memory for ``n`` rows."""
        return Space(self, n)

    def forward(self, sigmoid: Tensor, space: Space, slopes: bool) -> tuple[Tensor, Tensor]:
        """Values of the trees, and how their sum changes with the probability of going right at each cut.

        Args:
            sigmoid: The probability of going right at each cut, shape ``(cuts, n)``.
            space: For these rows; it is written over.
            slopes: Whether the changes are wanted; else they are zero.

        Returns:
            Shapes ``(trees, n)`` and ``(cuts, n)``.
        """
        torch.index_select(sigmoid, 0, self.cut, out=space.goes_right)
        for depth in reversed(space.depths):
            left = space.nodes.index_select(0, depth.left)
            torch.index_select(space.nodes, 0, depth.right, out=depth.difference).sub_(left)
            torch.addcmul(left, depth.goes_right, depth.difference, out=depth.nodes)
        slope = torch.zeros_like(sigmoid)
        if slopes:
            slope.index_add_(0, self.cut, space.difference.mul_(space.visited()))
        return space.nodes[self.root], slope


@dataclass(frozen=True)
class Depth:
    """The splits of one depth: their children, where they come from, and their part of the space."""

    left: Tensor
    right: Tensor
    source: Tensor
    goes_right: Tensor
    nodes: Tensor
    difference: Tensor
    visits: Tensor


class Space:
    """Memory for some rows, used for one batch after another: to take it anew costs as much as to compute.

    Attributes:
        goes_right: Probability that a row goes right at each split, shape ``(splits, n)``.
        nodes: Value of each node, shape ``(splits + leaves, n)``; of leaves it is there.
        difference: Between a split's right child and its left, shape ``(splits, n)``.
        depths: The splits of each depth, from the roots on.
    """

    def __init__(self, walk: Walk, n: int) -> None:
        n_splits, new = len(walk.cut), walk.leaf.new_empty
        self.goes_right, self.difference, self.visits = (new(n_splits, n) for _ in range(3))
        self.nodes = torch.cat([new(n_splits, n), walk.leaf.expand(-1, n)])
        self._both = new(2 * max([0, *(level.stop - level.start for level in walk.slices)]), n)
        self.depths = [
            Depth(
                left=walk.left[level],
                right=walk.right[level],
                source=walk.source[level],
                goes_right=self.goes_right[level],
                nodes=self.nodes[level],
                difference=self.difference[level],
                visits=self.visits[level],
            )
            for level in walk.slices
        ]

    def visited(self) -> Tensor:
        """The probability that a row comes to each split, shape ``(splits, n)``."""
        for first in self.depths[:1]:
            first.visits.fill_(1.0)
        for above, depth in pairwise(self.depths):
            n = len(above.visits)
            to_left, to_right = self._both[:n], self._both[n : 2 * n]
            torch.mul(above.visits, above.goes_right, out=to_right)
            torch.sub(above.visits, to_right, out=to_left)
            torch.index_select(self._both[: 2 * n], 0, depth.source, out=depth.visits)
        return self.visits


class ObliviousWalk(nn.Module):
    """Oblivious trees, by products of tables.

    Args:
        ways: The cut of each tree at each depth, shape ``(trees, depths)``.
        leaves: Values of the leaves, in the order of their ways, left before right; ``(trees, 2 ** depths)``.
    """

    ways: Tensor
    table: Tensor

    def __init__(self, ways: Tensor, leaves: Tensor) -> None:
        super().__init__()
        self.depths, self.first = ways.shape[1], ways.shape[1] // 2
        self.rows_at_once = max(_FEWEST_ROWS, _CELLS // (len(ways) << (self.depths - self.first)))
        self.register_buffer("ways", ways.flatten())
        self.register_buffer("table", leaves.reshape(len(ways), 1 << self.first, -1).contiguous())

    def space(self, n: int) -> None:
        """None is needed."""

    def forward(self, sigmoid: Tensor, space: None, slopes: bool) -> tuple[Tensor, Tensor]:
        """As :meth:`Walk.forward`."""
        goes_right = sigmoid.index_select(0, self.ways).view(len(self.table), self.depths, -1)
        first, last = goes_right[:, : self.first], goes_right[:, self.first :]
        p, q = _products(first), _products(last)
        ahead = torch.bmm(self.table, q[-1])
        slope = torch.zeros_like(sigmoid)
        if slopes:
            behind = torch.bmm(self.table.transpose(1, 2), p[-1])
            effects = torch.cat([_effects(first, p, ahead), _effects(last, q, behind)], dim=1)
            slope.index_add_(0, self.ways, effects.flatten(0, 1))
        return (p[-1] * ahead).sum(dim=1), slope


def _products(goes_right: Tensor) -> list[Tensor]:
    """The probability of each way through the first 0, 1, ... depths; ``(trees, 2 ** depths, n)``."""
    trees, depths, n = goes_right.shape
    products = [goes_right.new_ones(trees, 1, n)]
    for i in range(depths):
        right = products[-1] * goes_right[:, i, None]
        products.append(torch.stack([products[-1] - right, right], dim=2).view(trees, -1, n))
    return products


def _effects(goes_right: Tensor, products: list[Tensor], values: Tensor) -> Tensor:
    """How the mean of values, one for each way, changes with each probability; ``(trees, depths, n)``."""
    trees, depths, n = goes_right.shape
    effects = torch.empty_like(goes_right)
    for i in reversed(range(depths)):
        left, right = values.view(trees, -1, 2, n).unbind(dim=2)
        difference = right - left
        effects[:, i] = (products[i] * difference).sum(dim=1)
        values = torch.addcmul(left, goes_right[:, i, None], difference)
    return effects


def walk_of(forest: Forest, cut: Tensor) -> Walk | ObliviousWalk:
    """The quickest walk through a forest whose splits make these cuts, shape ``(splits,)``."""
    nodes, n_splits = forest.root[:, None], len(cut)
    ways: list[Tensor] = []
    while bool((splits := nodes < n_splits).any()):
        at = nodes.clamp_max(n_splits - 1)
        same = (cut[at] == cut[at[:, :1]]) & (splits == splits[:, :1])
        if len(ways) == _DEEPEST or not bool((same | ~splits & ~splits[:, :1]).all()):
            return Walk(forest, cut)
        ways.append(cut[at[:, 0]])
        # A tree that ends here already has two equal leaves below each.
        children = torch.stack([forest.left[at], forest.right[at]], dim=-1)
        nodes = torch.where(splits[..., None], children, nodes[..., None]).flatten(1)
    if len(ways) < 2:
        return Walk(forest, cut)
    return ObliviousWalk(torch.stack(ways, dim=1), forest.leaf[nodes - n_splits])
