"""What all rows of a table share in proofs about trees: which feature each split asks about, and where.

A split of a category sends a set of levels to the left. A split of a number is a cut
(:mod:`plausiflow.exact.cuts`); special values of the number, such as -1 for "never", go where their own value
goes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from plausiflow.exact.cuts import Axis, find_cuts
from plausiflow.models import ExactTrees
from plausiflow.tables import Block, Layout

IntArray = npt.NDArray[np.int64]
Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_CHUNK = 20_000


@dataclass(frozen=True, eq=False, kw_only=True)
class BlockSplits:
    """The splits that ask about one feature, without repetitions.

    Attributes:
        block: The feature.
        axis: Positions of its number; None for a category.
        cuts: The first position above each cut, shape ``(splits,)``; empty for a category.
        low_left: Whether the lower side of each cut is its left side, shape ``(splits,)``.
        levels_left: Whether each level, or special value of a number, goes left, shape ``(splits, levels)``.
        example: A split of the trees that is the same, shape ``(splits,)``.
    """

    block: Block
    axis: Axis | None
    cuts: IntArray
    low_left: Mask
    levels_left: Mask
    example: IntArray

    def left(self, positions: IntArray, codes: IntArray) -> Mask:
        """Return which splits send atoms to the left, shape ``(splits, atoms)``.

        ``codes`` are levels or special states of the atoms ``(atoms,)``, 0 for a number that is free;
        ``positions`` are those of numbers that are free.
        """
        if self.axis is None:
            return np.asarray(self.levels_left[:, codes])
        left = (positions[None, :] < self.cuts[:, None]) == self.low_left[:, None]
        special = codes > 0
        if special.any():
            left[:, special] = self.levels_left[:, codes[special]]
        return np.asarray(left)


@dataclass(frozen=True, eq=False, kw_only=True)
class TreeSpace:
    """Trees over the features of a table.

    Attributes:
        trees: The trees.
        layout: Layout of encoded rows, with the grids that numbers may move on.
        splits: The splits of each feature, in the order of the layout's blocks.
        block_of: The feature of each split of the trees, -1 if it never changes, shape ``(splits,)``.
        place_of: Its place among the splits of that feature, shape ``(splits,)``.
    """

    trees: ExactTrees
    layout: Layout
    splits: tuple[BlockSplits, ...]
    block_of: IntArray
    place_of: IntArray

    @property
    def n_outputs(self) -> int:
        """Number of outputs."""
        return int(self.trees.values.shape[1])

    @property
    def averaged(self) -> bool:
        """Whether the outputs are the probabilities themselves; else they are logits."""
        return self.trees.averaged

    @property
    def probability_error(self) -> float:
        """What rounding may add to a probability that is computed from the outputs."""
        return 2.0**-22 if self.trees.forest.single_sums else 1e-12

    def rounding(self, weights: Array) -> float:
        """Return the largest error of a weighted sum of leaves, in any order of additions."""
        trees, count = self.trees, len(self.trees.forest.root)
        eps = 2.0**-24 if trees.forest.single_sums else 2.0**-53
        largest = np.zeros(count)
        np.maximum.at(largest, self.tree_of_leaf, np.abs(trees.values) @ np.abs(weights))
        return (count + 4) * eps * float(np.abs(trees.base) @ np.abs(weights) + largest.sum())

    @cached_property
    def tree_of_leaf(self) -> IntArray:
        """The tree of each leaf, shape ``(leaves,)``."""
        forest, splits = self.trees.forest, len(self.block_of)
        tree = np.zeros(splits + len(forest.leaf), dtype=np.int64)
        tree[forest.root.numpy()] = np.arange(len(forest.root))
        left, right = forest.left.numpy(), forest.right.numpy()
        for start, size in zip(np.cumsum([0, *forest.levels]), forest.levels, strict=False):
            level = slice(int(start), int(start) + size)  # splits are sorted by depth
            tree[left[level]] = tree[right[level]] = tree[level]
        return tree[splits:]

    def outputs_of(self, x_cf: Tensor, row: pd.DataFrame, x: Tensor) -> Array:
        """Return the outputs for a changed row ``(1, width)`` of a row of the table and its encoding."""
        decoded = self.trees.encoder.decode(x_cf, like=row, encoded=x)
        return np.asarray(self.trees.outputs(decoded)[0])

    def own_left(self, row: pd.DataFrame) -> Mask:
        """Return at which splits one row of the table goes left, shape ``(splits,)``."""
        left = self.trees.goes_left(self.trees.inputs(row), np.arange(len(self.block_of)))
        return np.asarray(left[0])


def tree_space(trees: ExactTrees, layout: Layout) -> TreeSpace:
    """Find the cuts of all splits."""
    encoded = trees.encoder.encode(trees.sample)
    probe = _Probe(trees, encoded.x[:1], trees.sample)
    names = {block.name: j for j, block in enumerate(layout.blocks)}
    owner = np.array([next((names[n] for n in features), -1) for features, _ in trees.owners])
    block_of = owner[trees.feature] if len(trees.feature) else np.zeros(0, dtype=np.int64)
    place_of = np.zeros(len(block_of), dtype=np.int64)
    splits = []
    for j, block in enumerate(layout.blocks):
        mine = np.flatnonzero(block_of == j)
        find = _level_splits if block.number is None else _number_splits
        known = find(probe, block, mine)
        splits.append(known[0])
        place_of[mine] = known[1]
    return TreeSpace(trees=trees, layout=layout, splits=tuple(splits), block_of=block_of, place_of=place_of)


@dataclass(frozen=True, eq=False)
class _Probe:
    """Asks the preprocessing about a training row with one feature changed."""

    trees: ExactTrees
    x: Tensor
    sample: pd.DataFrame

    def inputs(self, block: Block, numbers: Array, codes: IntArray) -> Array:
        """Return the inputs of the trees at numbers and levels ``(m,)`` of a feature."""
        parts = []
        for start in range(0, len(codes), _CHUNK):
            own = slice(start, start + _CHUNK)
            x = self.x.repeat(len(codes[own]), 1)
            if len(block.levels):
                x[:, block.level_slice] = torch.nn.functional.one_hot(
                    torch.from_numpy(codes[own]), len(block.levels)
                ).to(x)
            if block.number is not None:
                x[:, block.number] = torch.from_numpy(numbers[own])
            like = self.sample.iloc[np.zeros(len(x), dtype=np.int64)].reset_index(drop=True)
            frame = self.trees.encoder.decode(x, like=like, encoded=torch.full_like(x, torch.nan))
            parts.append(self.trees.inputs(frame))
        return np.concatenate(parts) if parts else np.zeros((0, self.trees.forest.n_features))


def _level_splits(probe: _Probe, block: Block, mine: IntArray) -> tuple[BlockSplits, IntArray]:
    codes = np.arange(len(block.levels))
    cells = probe.inputs(block, np.zeros(len(codes)), codes)
    left = probe.trees.goes_left(cells, mine).T
    unique, place = np.unique(left, axis=0, return_inverse=True) if len(mine) else (left, mine)
    place = np.asarray(place).reshape(-1)
    none = np.zeros(0, dtype=np.int64)
    found = BlockSplits(
        block=block,
        axis=None,
        cuts=none,
        low_left=none.astype(bool),
        levels_left=unique,
        example=_examples(mine, place, len(unique)),
    )
    return found, place


def _examples(mine: IntArray, place: IntArray, n: int) -> IntArray:
    """Return a split of the trees for each of ``n`` different ones."""
    example = np.zeros(n, dtype=np.int64)
    example[place] = mine
    return example


def _number_splits(probe: _Probe, block: Block, mine: IntArray) -> tuple[BlockSplits, IntArray]:
    assert block.scale is not None
    trees, axis = probe.trees, Axis(block.scale)
    columns, thresholds = trees.feature[mine], trees.forest.threshold.numpy()[mine]
    missing = trees.forest.missing_left.numpy()[mine]
    pairs = np.stack([columns.astype(np.float64), thresholds, missing.astype(np.float64)], axis=1)
    unique, place = np.unique(pairs, axis=0, return_inverse=True) if len(mine) else (pairs, mine)
    place = np.asarray(place).reshape(-1)
    example = _examples(mine, place, len(unique))
    factors = [trees.owners[int(column)][1] for column in unique[:, 0]]
    rising = np.array([factor is None or factor[0] > 0 for factor in factors], dtype=bool)
    guess = np.array(
        [_guess(block, threshold, factor) for threshold, factor in zip(unique[:, 1], factors, strict=True)]
    )

    def is_low(positions: IntArray, cuts: IntArray) -> Mask:
        numbers = axis.encoded(positions)
        points, back = np.unique(numbers, return_inverse=True)
        cells = probe.inputs(block, points, np.zeros(len(points), dtype=np.int64))[back.reshape(-1)]
        own = cells[np.arange(len(cuts)), trees.feature[example[cuts]]]
        left = own <= unique[cuts, 1] if trees.forest.inclusive else own < unique[cuts, 1]
        return np.asarray(left == rising[cuts])

    cuts = np.zeros(len(unique), dtype=np.int64)
    plain = np.array([f is not None for f in factors], dtype=bool) & np.isfinite(unique[:, 1])
    low = is_low(axis.positions(np.full(int((~plain).sum()), 0.5)), np.flatnonzero(~plain))
    cuts[~plain] = np.where(low, axis.ends[1] + 1, axis.ends[0])  # the same side for every number
    numbers = np.flatnonzero(plain)
    cuts[plain] = find_cuts(axis, guess[plain], lambda at, which: is_low(at, numbers[which]))
    codes = np.arange(len(block.levels))
    pins = np.array([0.0 if pin is None else pin for pin in block.pinned])
    levels_left = np.zeros((len(unique), 0), dtype=bool)
    if len(codes):
        levels_left = trees.goes_left(probe.inputs(block, pins, codes), example).T
    found = BlockSplits(
        block=block, axis=axis, cuts=cuts, low_left=rising, levels_left=levels_left, example=example
    )
    return found, place


def _guess(block: Block, threshold: float, factor: tuple[float, float] | None) -> float:
    """Return the encoded number at a threshold, NaN if it is unknown."""
    if factor is None or not np.isfinite(threshold):
        return float(np.nan if factor is None else threshold)
    assert block.scale is not None
    number = (threshold - factor[1]) / factor[0]
    return float(block.scale.encode(torch.tensor([number], dtype=torch.float64))[0])
