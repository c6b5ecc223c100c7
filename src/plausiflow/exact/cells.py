"""Cells of trees: rows that reach the same leaves get the same outputs, to the last bit.

So a row that the model rejects, although it is within rounding of the threshold, rules out all rows of its
cell.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from plausiflow.exact.atoms import Atoms
from plausiflow.exact.tree_space import TreeSpace

IntArray = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Cell = list[Mask]
"""Which atoms of each feature belong to a cell."""


def cell_of(space: TreeSpace, atoms: Sequence[Atoms], chosen: Sequence[int], own_left: Mask) -> Cell:
    """Return the cell of the row that is at the chosen atom of each feature."""
    left = own_left.copy()
    for j, (own, i) in enumerate(zip(atoms, chosen, strict=True)):
        mine = space.block_of == j
        left[mine] = own.left[space.place_of[mine], i]
    asked = _asked(space, left)
    cell = []
    for j, (own, i) in enumerate(zip(atoms, chosen, strict=True)):
        places = np.unique(space.place_of[asked & (space.block_of == j)])
        cell.append(np.asarray((own.left[places] == own.left[places, i, None]).all(axis=0)))
    return cell


def _asked(space: TreeSpace, left: Mask) -> Mask:
    """Return which splits a row asks on its ways through the trees, shape ``(splits,)``."""
    forest, n = space.trees.forest, len(left)
    child = np.where(left, forest.left.numpy(), forest.right.numpy())
    asked = np.zeros(n, dtype=bool)
    nodes = forest.root.numpy()
    for _ in forest.levels:
        nodes = nodes[nodes < n]
        asked[nodes] = True
        nodes = child[nodes]
    return asked
