r"""Values of soft trees and their derivatives with respect to each cut, for a batch of rows.

Trees of any shape are evaluated depth by depth, all trees at once: from the leaves to the roots for the
values, and from the roots to the leaves for the probability of reaching a split.

An *oblivious* tree, as CatBoost grows them, makes the same cut everywhere at one depth. Its leaves are a
table M, the paths through its first depths by the paths through its last depths. With the probabilities p
and q of these paths its value is :math:`p^\top M q`: two small products instead of a walk.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from plausiflow.models.trees.forest import Forest

_CACHED_CELLS = 200_000  # Numbers in one batch, so that a batch fits into the cache.
_MIN_BATCH = 16
_MAX_OBLIVIOUS_DEPTH = 12


class TreeWalk(nn.Module):
    """Evaluation of trees of any shape, given the cut of each split, shape ``(splits,)``."""

    cut: Tensor
    left: Tensor
    right: Tensor
    source: Tensor
    leaf: Tensor
    root: Tensor

    def __init__(self, forest: Forest, cut: Tensor) -> None:
        super().__init__()
        self.slices = forest.slices
        self.batch_size = max(_MIN_BATCH, _CACHED_CELLS // max(1, len(cut)))
        # Position of a split's parent within its depth; right children come after all left children.
        source = torch.zeros(len(cut) + len(forest.leaf), dtype=torch.long)
        for level in self.slices:
            size = level.stop - level.start
            source[forest.left[level]] = torch.arange(size)
            source[forest.right[level]] = torch.arange(size, 2 * size)
        buffers = {"left": forest.left, "right": forest.right, "leaf": forest.leaf[:, None]}
        buffers |= {"cut": cut, "source": source[: len(cut)], "root": forest.root}
        for name, tensor in buffers.items():
            self.register_buffer(name, tensor)

    def allocate(self, n: int) -> WalkBuffers:
        """Allocate memory for ``n`` rows."""
        return WalkBuffers(self, n)

    def forward(self, sigmoid: Tensor, buffers: WalkBuffers, derivatives: bool) -> tuple[Tensor, Tensor]:
        """Return the values of the trees, and the derivatives of their sum with respect to ``sigmoid``.

        ``sigmoid`` is the probability of going right at each cut, shape ``(cuts, n)``. The results have
        shapes ``(trees, n)`` and ``(cuts, n)``; without ``derivatives`` the derivatives are zero. Buffers are
        overwritten.
        """
        torch.index_select(sigmoid, 0, self.cut, out=buffers.goes_right)
        for depth in reversed(buffers.depths):
            left = buffers.nodes.index_select(0, depth.left)
            torch.index_select(buffers.nodes, 0, depth.right, out=depth.difference).sub_(left)
            torch.addcmul(left, depth.goes_right, depth.difference, out=depth.nodes)
        derivative = torch.zeros_like(sigmoid)
        if derivatives:
            derivative.index_add_(0, self.cut, buffers.difference.mul_(buffers.visit_probabilities()))
        return buffers.nodes[self.root], derivative


class DepthBuffers(NamedTuple):
    """The splits of one depth: their children, their parents, and their part of the buffers."""

    left: Tensor
    right: Tensor
    source: Tensor
    goes_right: Tensor
    nodes: Tensor
    difference: Tensor
    visits: Tensor


class WalkBuffers:
    """Memory that is reused for every batch; allocating it each time costs as much as the computation.

    For each split and row it holds the probability of going right, the difference between the right and the
    left child, and the probability of a visit, shape ``(splits, n)``; for each node its value.
    """

    def __init__(self, walk: TreeWalk, n: int) -> None:
        n_splits, new = len(walk.cut), walk.leaf.new_empty
        self.goes_right, self.difference, self.visits = (new(n_splits, n) for _ in range(3))
        self.nodes = torch.cat([new(n_splits, n), walk.leaf.expand(-1, n)])
        self._children = new(2 * max([0, *(level.stop - level.start for level in walk.slices)]), n)
        tensors = [walk.left, walk.right, walk.source, self.goes_right, self.nodes[:n_splits]]
        tensors += [self.difference, self.visits]
        sizes = [level.stop - level.start for level in walk.slices]
        self.depths = [DepthBuffers(*parts) for parts in zip(*(t.split(sizes) for t in tensors), strict=True)]

    def visit_probabilities(self) -> Tensor:
        """Return the probability that a row reaches each split, shape ``(splits, n)``."""
        for first in self.depths[:1]:
            first.visits.fill_(1.0)
        for above, depth in pairwise(self.depths):
            n = len(above.visits)
            to_left, to_right = self._children[:n], self._children[n : 2 * n]
            torch.mul(above.visits, above.goes_right, out=to_right)
            torch.sub(above.visits, to_right, out=to_left)
            torch.index_select(self._children[: 2 * n], 0, depth.source, out=depth.visits)
        return self.visits


class ObliviousWalk(nn.Module):
    """Evaluation of oblivious trees by matrix products.

    ``cuts`` are the cuts of each tree by depth, shape ``(trees, depths)``; ``leaves`` the values of its
    leaves by path, left before right, shape ``(trees, 2 ** depths)``.
    """

    cuts: Tensor
    table: Tensor

    def __init__(self, cuts: Tensor, leaves: Tensor) -> None:
        super().__init__()
        self.depths, self.first = cuts.shape[1], cuts.shape[1] // 2
        self.batch_size = max(_MIN_BATCH, _CACHED_CELLS // (len(cuts) << (self.depths - self.first)))
        self.register_buffer("cuts", cuts.flatten())
        self.register_buffer("table", leaves.reshape(len(cuts), 1 << self.first, -1).contiguous())

    def allocate(self, n: int) -> None:
        """Return None: no buffers are needed."""

    def forward(self, sigmoid: Tensor, buffers: None, derivatives: bool) -> tuple[Tensor, Tensor]:
        """See :meth:`TreeWalk.forward`."""
        goes_right = sigmoid.index_select(0, self.cuts).view(len(self.table), self.depths, -1)
        first, last = goes_right[:, : self.first], goes_right[:, self.first :]
        p, q = _path_probabilities(first), _path_probabilities(last)
        ahead = torch.bmm(self.table, q[-1])
        derivative = torch.zeros_like(sigmoid)
        if derivatives:
            behind = torch.bmm(self.table.transpose(1, 2), p[-1])
            effects = torch.cat([_effects(first, p, ahead), _effects(last, q, behind)], dim=1)
            derivative.index_add_(0, self.cuts, effects.flatten(0, 1))
        return (p[-1] * ahead).sum(dim=1), derivative


def _path_probabilities(goes_right: Tensor) -> list[Tensor]:
    """Return the probability of each path through the first 0, 1, ... depths; ``(trees, 2 ** depths, n)``."""
    trees, depths, n = goes_right.shape
    products = [goes_right.new_ones(trees, 1, n)]
    for i in range(depths):
        right = products[-1] * goes_right[:, i, None]
        products.append(torch.stack([products[-1] - right, right], dim=2).view(trees, -1, n))
    return products


def _effects(goes_right: Tensor, products: list[Tensor], values: Tensor) -> Tensor:
    """Return the derivative of the mean of path values in each probability; ``(trees, depths, n)``."""
    trees, depths, n = goes_right.shape
    effects = torch.empty_like(goes_right)
    for i in reversed(range(depths)):
        left, right = values.view(trees, -1, 2, n).unbind(dim=2)
        difference = right - left
        effects[:, i] = (products[i] * difference).sum(dim=1)
        values = torch.addcmul(left, goes_right[:, i, None], difference)
    return effects


def fastest_walk(forest: Forest, cut: Tensor) -> TreeWalk | ObliviousWalk:
    """Return the fastest evaluation of a forest, given the cut of each split, shape ``(splits,)``."""
    nodes, n_splits = forest.root[:, None], len(cut)
    cuts: list[Tensor] = []
    while bool((splits := nodes < n_splits).any()):
        at = nodes.clamp_max(n_splits - 1)
        same = (cut[at] == cut[at[:, :1]]) & (splits == splits[:, :1])
        if len(cuts) == _MAX_OBLIVIOUS_DEPTH or not bool((same | ~splits & ~splits[:, :1]).all()):
            return TreeWalk(forest, cut)
        cuts.append(cut[at[:, 0]])
        # A tree that ends above this depth repeats its leaf in both children.
        children = torch.stack([forest.left[at], forest.right[at]], dim=-1)
        nodes = torch.where(splits[..., None], children, nodes[..., None]).flatten(1)
    if len(cuts) < 2:
        return TreeWalk(forest, cut)
    return ObliviousWalk(torch.stack(cuts, dim=1), forest.leaf[nodes - n_splits])
