r"""Trees as a part of an integer program.

Each tree is walked with the sets of atoms that are left. A subtree that no atom reaches disappears; a tree
with one leaf is a constant, and one with two leaves is the literal of its split. Other trees have a variable
for each leaf, of which exactly one is true, and for each side of each split the clique "at most one of its
leaves, or the split goes the other way".

A leaf's value is rounded up to whole numbers, so that every row that the model decides as wanted satisfies
the rounded inequality :math:`\sum_l \lceil K a^\top v_l \rceil y_l \ge \lfloor K b \rfloor`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from plausiflow.exact.choices import Choice
from plausiflow.exact.cp_sat import Literal_, Program
from plausiflow.exact.scores import ScoreRow
from plausiflow.exact.tree_space import TreeSpace

Array = npt.NDArray[np.float64]

_RESOLUTION = 2.0**22


@dataclass
class _Reached:
    """The leaves of one tree that can be reached, each with its path: splits and the side that was taken."""

    leaves: list[int] = field(default_factory=list)
    paths: list[tuple[tuple[int, bool], ...]] = field(default_factory=list)
    literals: dict[int, Literal_] = field(default_factory=dict)


class ReachableLeaves:
    """Walks trees with the atoms of one row."""

    def __init__(self, space: TreeSpace, choices: Sequence[Choice], own_left: npt.NDArray[np.bool_]) -> None:
        forest = space.trees.forest
        self._left, self._right = forest.left.tolist(), forest.right.tolist()
        self._block, self._place = space.block_of.tolist(), space.place_of.tolist()
        self._splits, self._own_left = len(self._left), own_left.tolist()
        self._choices = choices
        self._state = [choice.everything for choice in choices]

    def reach(self, root: int) -> _Reached:
        """Return the leaves that can be reached from a root."""
        reached = _Reached()
        self._walk(root, (), reached)
        return reached

    def _walk(self, node: int, path: tuple[tuple[int, bool], ...], reached: _Reached) -> None:
        while node < self._splits:
            j = self._block[node]
            if j < 0:
                node = self._left[node] if self._own_left[node] else self._right[node]
                continue
            choice, state = self._choices[j], self._state[j]
            mask = choice.left[self._place[node]]
            left, right = state & mask, state & ~mask
            if not left or not right:
                node = self._right[node] if not left else self._left[node]
                continue
            if node not in reached.literals:
                reached.literals[node] = choice.literal(mask)
            self._state[j] = left
            self._walk(self._left[node], (*path, (node, True)), reached)
            self._state[j] = right
            self._walk(self._right[node], (*path, (node, False)), reached)
            self._state[j] = state
            return
        reached.leaves.append(node - self._splits)
        reached.paths.append(path)


def add_trees(
    program: Program,
    space: TreeSpace,
    choices: Sequence[Choice],
    own_left: npt.NDArray[np.bool_],
    rows: Sequence[ScoreRow],
) -> bool:
    """Add the trees and the inequalities of the target; return False if no row can satisfy them."""
    walk = ReachableLeaves(space, choices, own_left)
    reached = [walk.reach(root) for root in space.trees.forest.root.tolist()]
    sums = [_LeafSum.of(space, row) for row in rows]
    for tree in reached:
        for total in sums:
            total.count(tree.leaves)
    if any(not total.possible for total in sums):
        return False
    for tree in reached:
        if len(tree.leaves) > 1:
            literals = _leaf_literals(program, tree)
            for total in sums:
                total.add(tree.leaves, literals)
    for total in sums:
        program.at_least(program.weighted(total.literals, total.weights), total.needed)
    return True


@dataclass
class _LeafSum:
    """The left side of one inequality, in whole numbers."""

    values: npt.NDArray[np.int64]  # of each leaf, rounded up
    needed: int  # the right side, minus what is constant
    most: int = 0  # largest sum of what is not constant
    literals: list[Literal_] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, space: TreeSpace, row: ScoreRow) -> _LeafSum:
        values = space.trees.values @ row.weights
        factor = _RESOLUTION / max(float(np.abs(values).max(initial=0.0)), 1e-12)
        threshold = row.threshold - float(space.trees.base @ row.weights)
        return cls(np.ceil(values * factor).astype(np.int64), math.floor(threshold * factor))

    @property
    def possible(self) -> bool:
        """Whether the inequality can be satisfied if every tree reaches its best leaf."""
        return self.most >= self.needed

    def count(self, leaves: list[int]) -> None:
        own = self.values[leaves]
        self.needed -= int(own.min())
        self.most += int(own.max() - own.min())

    def add(self, leaves: list[int], literals: list[Literal_]) -> None:
        own = self.values[leaves]
        for value, literal in zip((own - own.min()).tolist(), literals, strict=True):
            if value:
                self.literals.append(literal)
                self.weights.append(value)


def _leaf_literals(program: Program, tree: _Reached) -> list[Literal_]:
    """Return the literal of each leaf of a tree with several."""
    if len(tree.leaves) == 2:
        ((node, goes_left),) = tree.paths[0]
        literal = tree.literals[node]
        first = literal if goes_left else literal.negated()
        return [first, first.negated()]
    literals = [program.boolean() for _ in tree.leaves]
    program.exactly_one(literals)
    cliques: dict[tuple[int, bool], list[Literal_]] = {}
    for literal, path in zip(literals, tree.paths, strict=True):
        for step in path:
            cliques.setdefault(step, []).append(literal)
    for (node, goes_left), below in cliques.items():
        split = tree.literals[node]
        program.at_most_one([*below, split.negated() if goes_left else split])
    return literals
