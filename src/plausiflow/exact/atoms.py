"""Atoms: what a feature of one row may become, as far as the model, the rules and the cost can tell.

An atom of a category is a level. An atom of a number is a special value, the row's own number, or a range of
numbers that no split separates; it costs what its cheapest number costs. Numbers that rules relate to others
are cut into finer ranges. An answer takes the cheapest number of each range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from plausiflow.constraints import Allowance
from plausiflow.exact.cuts import Axis
from plausiflow.exact.tree_space import BlockSplits
from plausiflow.tables import Block, Layout

IntArray = npt.NDArray[np.int64]
Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

Cuts = Callable[[Axis, float, int, int], IntArray]
"""Returns cuts of a number between two positions, for a row with this encoded number."""
NEAR, SPREAD = 64, 256
"""How many positions next to a row's own number are atoms of their own, and how many cuts are spread."""


class Costs(Protocol):
    """What changes cost; :class:`~plausiflow.search.costs.CostModel`."""

    @property
    def layout(self) -> Layout:
        """Layout of encoded rows."""
        ...

    @property
    def distance(self) -> str:
        """``l2``, ``l1`` or ``l1-mad``."""
        ...

    @property
    def prices(self) -> Mapping[str, Tensor]:
        """Prices of changes of levels, by feature."""
        ...

    def by_feature(self, before: tuple[Tensor, Tensor], after: tuple[Tensor, Tensor]) -> Tensor:
        """Return what the change of each feature costs alone, ``(p, blocks)``."""
        ...

    def __call__(self, before: tuple[Tensor, Tensor], after: tuple[Tensor, Tensor]) -> Tensor:
        """Return the cost of changing rows into others, ``(p,)``."""
        ...


@dataclass(frozen=True, eq=False, kw_only=True)
class Atoms:
    """The atoms of one feature of one row, ascending by value; all arrays have one entry per atom.

    Attributes:
        block: The feature.
        codes: Level, or state of a number.
        numbers: Encoded number of the cheapest value; zero for a category.
        low: Smallest value in original units; the level's position for a category.
        high: Largest value.
        kept: Whether the feature keeps its value.
        costs: What the change costs alone.
        flat: Whether the cost is added; else it is a part of the distance.
        left: Which splits send it to the left, shape ``(splits, atoms)``.
        first: Encoded number at the lower end of its range; as ``numbers`` without a range.
        last: Encoded number at the upper end.
        far_costs: What the most expensive number of its range costs alone; known with ``units`` only.
        units: What it adds to the units of a network at the two ends of its range, shape
            ``(2, atoms, units)``; None for trees.
    """

    block: Block
    codes: IntArray
    numbers: Array
    low: Array
    high: Array
    kept: Mask
    costs: Array
    flat: Mask
    left: Mask
    first: Array
    last: Array
    far_costs: Array
    units: Array | None = None

    def __len__(self) -> int:
        return len(self.codes)

    def select(self, which: Mask | IntArray) -> Atoms:
        """Return some of the atoms."""
        names = ("codes", "numbers", "low", "high", "kept", "costs", "flat", "first", "last", "far_costs")
        parts = {name: getattr(self, name)[which] for name in names}
        units = None if self.units is None else self.units[:, which]
        return replace(self, **parts, left=self.left[:, which], units=units)

    @property
    def ranged(self) -> Mask:
        """Which atoms are ranges of several numbers."""
        return self.first < self.last


def row_atoms(
    allowance: Allowance,
    splits: tuple[BlockSplits, ...],
    costs: Costs,
    own_left: Mask,
    finer: frozenset[str],
    edges: Mapping[str, Sequence[tuple[float, float]]] | None = None,
    reach: float = 0.0,
    spread: Cuts | None = None,
) -> list[Atoms]:
    """Return the atoms of each feature of one row.

    Args:
        allowance: What the rules allow the row.
        splits: The splits of each feature.
        costs: What changes cost.
        own_left: At which splits of the trees the row goes left.
        finer: Features with finer ranges, which rules relate to others.
        edges: Bounds on encoded numbers, by feature; no range contains numbers on both sides of one.
        reach: How far changed numbers stay from cuts, as a share of their range.
        spread: More cuts of each number, for a model that no cuts describe; no atom is then left out.
    """
    layout, x, edges = allowance.layout, allowance.x, edges or {}
    codes = dict(zip([b.name for b in layout.with_levels], layout.codes(x)[0].tolist(), strict=True))
    found = []
    for own in splits:
        block = layout.block(own.block.name)
        code = codes.get(block.name, 0)
        atoms = _level_atoms(allowance, block) if block.number is None else None
        if atoms is None:
            bounds = edges.get(block.name, ())
            more = _joined(spread, finer_cuts if block.name in finer else None)
            atoms = _number_atoms(allowance, own, block, code, bounds, reach, more)
        codes_, numbers, low, high, kept, positions, first, last = atoms
        left = own.left(positions, codes_)
        left[:, kept] = own_left[own.example][:, None]
        order = np.lexsort((numbers, low))
        found.append(
            Atoms(
                block=block,
                codes=codes_,
                numbers=numbers,
                low=low,
                high=high,
                kept=kept,
                costs=np.zeros(len(codes_)),
                flat=np.zeros(len(codes_), dtype=bool),
                left=left,
                first=first,
                last=last,
                far_costs=np.zeros(len(codes_)),
            ).select(order)
        )
    if spread is not None:
        away = [replace(a, numbers=np.where(a.numbers > a.first, a.first, a.last)) for a in found]
        priced, far = _priced(found, costs, x), _priced(away, costs, x)
        return [replace(a, far_costs=b.costs) for a, b in zip(priced, far, strict=True)]
    distinct = finer | set(edges)
    return [_without_dominated(atoms, atoms.block.name in distinct) for atoms in _priced(found, costs, x)]


_Parts = tuple[IntArray, Array, Array, Array, Mask, IntArray, Array, Array]
"""Codes, numbers, smallest and largest values, whether they are kept, positions, ends of encoded numbers."""
_Part = tuple[int, float, float, float, bool, int, float, float]


def finer_cuts(axis: Axis, number: float, first: int, last: int) -> IntArray:
    """Return the cuts of a number that rules relate to others, between two positions."""
    place = int(axis.positions(np.array([number]))[0])
    near = place + np.arange(-NEAR, NEAR + 1)
    return np.concatenate([near, np.linspace(first, last, SPREAD).astype(np.int64)])


def _joined(one: Cuts | None, other: Cuts | None) -> Cuts | None:
    """Return the cuts of both."""
    if one is None or other is None:
        return one or other
    return lambda *where: np.concatenate([one(*where), other(*where)])


def _level_atoms(allowance: Allowance, block: Block) -> _Parts:
    codes = np.flatnonzero(allowance.levels[0, block.level_slice].numpy())
    own = int(allowance.x[0, block.level_slice].argmax())
    zeros, rank = np.zeros(len(codes)), codes.astype(np.float64)
    return codes, zeros, rank, rank, codes == own, np.zeros(len(codes), dtype=np.int64), zeros, zeros


def _number_atoms(
    allowance: Allowance,
    own: BlockSplits,
    block: Block,
    code: int,
    bounds: Sequence[tuple[float, float]],
    reach: float,
    more: Cuts | None,
) -> _Parts:
    assert own.axis is not None
    number, axis = float(allowance.x[0, block.number]), own.axis
    lower, upper = (float(t[0, block.number]) for t in (allowance.lower, allowance.upper))
    levels = allowance.levels[0, block.level_slice].numpy() if len(block.levels) else np.array([True])
    parts: list[_Part] = []
    closed = bool(len(block.levels)) and block.closed[code]
    if levels[0] and lower <= upper and not closed:
        ends = [axis.range(low, high) for low, high in bounds]
        extra = np.array([place for low, high in ends for place in (low, high + 1)], dtype=np.int64)
        ranges = _ranges(axis, own, block, number, (lower, upper), extra, reach, more)
        # A row at a special value has the encoded number of its pin, which is a change to that number.
        parts += [part for part in ranges if code or not part[6] == part[7] == number]
        if code == 0 and lower <= number <= upper:
            value = _decode(axis, number)
            parts.append((0, number, value, value, True, 0, number, number))
    for k, special in enumerate(block.special):
        if k and levels[k] and (special is not None or k == code):
            value = float("nan") if special is None else float(special)
            pin = float(block.pinned[k] or 0.0)
            parts.append((k, pin, value, value, k == code, 0, pin, pin))
    columns = list(zip(*parts, strict=True)) if parts else [()] * 8
    kinds = (np.int64, np.float64, np.float64, np.float64, bool, np.int64, np.float64, np.float64)
    arrays = [np.array(c, dtype=kind) for c, kind in zip(columns, kinds, strict=True)]
    return (*arrays,)  # type: ignore[return-value]


def _ranges(
    axis: Axis,
    own: BlockSplits,
    block: Block,
    number: float,
    bounds: tuple[float, float],
    extra: IntArray,
    reach: float,
    more: Cuts | None,
) -> list[_Part]:
    """Return the ranges of numbers that are free, each with its number next to the row's own."""
    first, last = axis.range(*bounds)
    if first > last:
        return []
    place = int(axis.positions(np.array([number]))[0])
    edges = [own.cuts, np.array([first, last + 1]), extra]
    pins = [axis.positions(np.array([pin])) for _, pin in block.inside] if axis.gridded else []
    edges += [at + shift for at in pins for shift in (0, 1)]
    if more is not None:
        edges.append(more(axis, number, first, last))
    cuts = np.unique(np.concatenate(edges))
    cuts = cuts[(cuts >= first) & (cuts <= last + 1)]
    starts, ends = cuts[:-1], cuts[1:] - 1
    if pins:
        pinned = np.isin(starts, np.concatenate(pins)) & (starts == ends)
        starts, ends = starts[~pinned], ends[~pinned]
    if reach and axis.gridded:
        starts, ends = _away_from_cuts(axis, own.cuts, starts, ends, reach)
    nearest = np.clip(place, starts, ends)
    low, high, chosen = axis.encoded(starts), axis.encoded(ends), axis.encoded(nearest)
    values = (_decode_all(axis, low), _decode_all(axis, high))
    columns = (chosen, *values, nearest, low, high)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [(0, e, lo, hi, False, at, start, end) for e, lo, hi, at, start, end in rows]


def _away_from_cuts(
    axis: Axis, cuts: IntArray, starts: IntArray, ends: IntArray, reach: float
) -> tuple[IntArray, IntArray]:
    """Return ranges whose numbers, moved by ``reach`` and put on the grid, stay on their side of all cuts."""
    low, high = axis.encoded(starts), axis.encoded(ends)
    up = axis.positions(low + reach) - starts
    down = ends - axis.positions(high - reach)
    starts = np.where(np.isin(starts, cuts), starts + up, starts)
    ends = np.where(np.isin(ends + 1, cuts), ends - down, ends)
    kept = starts <= ends
    return starts[kept], ends[kept]


def _decode(axis: Axis, encoded: float) -> float:
    return float(axis.scale.decode(torch.tensor([encoded], dtype=torch.float64))[0])


def _decode_all(axis: Axis, encoded: Array) -> Array:
    return axis.scale.decode(torch.from_numpy(encoded)).numpy()


def rows_at(found: Sequence[Atoms], x: Tensor, numbers: Sequence[Array]) -> Tensor:
    """Return a row with one feature at each atom in turn, shape ``(atoms of all features, width)``."""
    after = x.repeat(sum(len(atoms) for atoms in found), 1)
    start = 0
    for atoms, own in zip(found, numbers, strict=True):
        part, block = slice(start, start + len(atoms)), atoms.block
        if len(block.levels):
            hot = torch.nn.functional.one_hot(torch.from_numpy(atoms.codes), len(block.levels))
            after[part, block.level_slice] = hot.to(after)
        if block.number is not None:
            after[part, block.number] = torch.from_numpy(own)
        start += len(atoms)
    return after


def _priced(found: list[Atoms], costs: Costs, x: Tensor) -> list[Atoms]:
    """Return the atoms with their costs, which one call computes for all features."""
    layout, sizes = costs.layout, [len(atoms) for atoms in found]
    after = rows_at(found, x, [atoms.numbers for atoms in found])
    before = x.expand(len(after), -1)
    spent = costs.by_feature((before, layout.codes(before)), (after, layout.codes(after))).numpy()
    names = {block.name: j for j, block in enumerate(layout.blocks)}
    priced, start = [], 0
    for atoms, size in zip(found, sizes, strict=True):
        block, own = atoms.block, spent[start : start + size, names[atoms.block.name]]
        flat = np.full(size, block.nominal or block.name in costs.prices)
        if block.number is not None and any(block.apart):
            code = int(x[0, block.level_slice].argmax())
            apart = np.array(block.apart)
            flat |= (atoms.codes != code) & (apart[atoms.codes] | apart[code])
        priced.append(replace(atoms, costs=np.where(atoms.kept, 0.0, own), flat=flat))
        start += size
    return priced


def _without_dominated(atoms: Atoms, distinct: bool) -> Atoms:
    """Drop atoms that go the same way everywhere as a cheaper one in the same state."""
    if distinct or len(atoms) < 2 or atoms.block.number is None:
        return atoms
    keys = np.concatenate([atoms.left, atoms.codes[None] > 0], axis=0)
    order = np.lexsort((~atoms.kept, atoms.costs))
    _, first = np.unique(keys[:, order].T, axis=0, return_index=True)
    keep = np.zeros(len(atoms), dtype=bool)
    keep[order[first]] = True
    keep |= atoms.codes > 0
    return atoms.select(keep)
