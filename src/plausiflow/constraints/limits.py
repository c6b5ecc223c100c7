"""What the rules allow a single feature to become, in original units and in encoded units."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from plausiflow.constraints.terms import Term
from plausiflow.errors import InvalidInputError
from plausiflow.tables import MAX_DECIMALS, Block, Feature, FloatArray, Layout, Scale, read_numbers


@dataclass(frozen=True, eq=False)
class FactualRows:
    """The rows to explain."""

    features: Mapping[str, Feature]
    layout: Layout
    x: Tensor  # encoded rows, shape (n, width)
    frame: pd.DataFrame | None  # the same rows as a table
    locked: Tensor  # features that each row must keep, shape (n, features)
    _numbers: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)  # read once
    _codes: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)  # read once

    @cached_property
    def place(self) -> dict[str, int]:
        """Position of each feature in the table."""
        return {name: j for j, name in enumerate(self.features)}

    @cached_property
    def _columns(self) -> dict[str, pd.Series]:
        return {} if self.frame is None else {str(name): column for name, column in self.frame.items()}

    def codes(self, block: Block) -> Tensor:
        """Return the level of each row, shape ``(n,)``."""
        if block.name not in self._codes:
            self._codes[block.name] = self.x[:, block.level_slice].argmax(dim=1)
        return self._codes[block.name]

    def missing(self, block: Block) -> Tensor:
        """Return which rows are at a level that they cannot leave, shape ``(n,)``."""
        if not len(block.levels):
            return torch.zeros(len(self.x), dtype=torch.bool, device=self.x.device)
        return torch.tensor(block.closed, device=self.x.device)[self.codes(block)]

    def free(self, block: Block) -> Tensor:
        """Return which rows have a number that is neither special nor missing, shape ``(n,)``."""
        if not len(block.levels):
            return torch.ones(len(self.x), dtype=torch.bool, device=self.x.device)
        return self.codes(block) == 0

    def numbers(self, name: str) -> Tensor:
        """Return a feature's values in original units, double, shape ``(n,)``; NaN if missing."""
        if name not in self._numbers:
            self._numbers[name] = self._read_numbers(name)
        return self._numbers[name]

    def _read_numbers(self, name: str) -> Tensor:
        block = next((block for block in self.layout.blocks if block.name == name), None)
        if self.frame is None:
            return self._known(name, block)
        cells = torch.tensor(read_numbers(self._columns[name])[0].copy(), device=self.x.device)
        if block is None or not bool(cells.isnan().any()):
            return cells
        # The encoder may have imputed a missing number.
        return torch.where(cells.isnan(), self._known(name, block), cells)

    def _known(self, name: str, block: Block | None) -> Tensor:
        """Return the numbers that encoded rows hold, double, shape ``(n,)``; NaN if missing."""
        feature = self.features[name]
        if block is None:
            return torch.full_like(self.x[:, 0], feature.level_numbers[0], dtype=torch.float64)
        known = Term.of(1.0, block, feature).value(self.x.double())
        return known.masked_fill(self.missing(block), torch.nan)


@dataclass(frozen=True, kw_only=True, eq=False)
class Limits:
    """What the rules allow one feature of some rows to become. Each rule returns a narrower copy.

    Attributes:
        feature: The feature.
        rows: The rows to explain.
        fixed: Whether the feature must keep its value.
        rising: Whether the feature may not fall.
        falling: Whether the feature may not rise.
        lo: Smallest allowed value in original units: one number, or one per row, shape ``(n,)``.
        hi: Largest allowed value, of the same form.
        step: A number that changes must become a multiple of it; zero allows any number.
        offset: What is added to multiples of the step.
        moves: ``moves[i, j]``: whether a row may move from level i to level j; None allows every move.
        must_move: Whether a row may not stay at its level.
    """

    feature: Feature
    rows: FactualRows
    fixed: bool = False
    rising: bool = False
    falling: bool = False
    lo: float | Tensor = -math.inf
    hi: float | Tensor = math.inf
    step: float = 0.0
    offset: float = 0.0
    moves: Tensor | None = None
    must_move: bool = False

    @property
    def narrowed(self) -> bool:
        """Whether a rule leaves some values only, other than the row's own."""
        open_range = _is_at(self.lo, -math.inf) and _is_at(self.hi, math.inf)
        return self.rising or self.falling or not open_range or self.moves is not None

    @property
    def values(self) -> Tensor:
        """The rows' own values in original units, double, shape ``(n,)``; NaN if missing."""
        return self.rows.numbers(self.feature.name)

    def clip(self, lo: float | Tensor = -math.inf, hi: float | Tensor = math.inf) -> Limits:
        """Return limits with a range as well; a NaN in ``lo`` or ``hi`` leaves its row unbounded."""
        device = self.rows.x.device

        def tightest(bounds: tuple[float | Tensor, float | Tensor], sign: int) -> float | Tensor:
            if not any(isinstance(bound, Tensor) for bound in bounds):
                return sign * max(sign * bound for bound in bounds)
            first, second = (sign * torch.as_tensor(bound).to(device, torch.float64) for bound in bounds)
            return sign * torch.fmax(first, second)

        return replace(self, lo=tightest((self.lo, lo), 1), hi=tightest((self.hi, hi), -1))

    def restrict_step(self, step: float) -> Limits:
        """Return limits in which a number that changes must also become a multiple of ``step``.

        Without a grid of its own, a number on a logarithmic scale is a multiple up to rounding only. The
        offset of a grid that has other numbers than these multiples is dropped.
        """
        if not self.feature.is_number or not step > 0 or round(step, MAX_DECIMALS) != step:
            raise InvalidInputError(
                f"The step of `{self.feature.name}` must be positive, with at most {MAX_DECIMALS} decimals, "
                f"and the feature must be a number; got {step!r} for a feature of kind {self.feature.kind!r}."
            )
        scale = 10**MAX_DECIMALS
        wanted, offset = round(step * scale), round(self.offset * scale)
        if offset and offset % wanted == round(self.step * scale) % wanted == 0:
            return self
        own = self.feature.step if offset else self.step
        return replace(self, step=math.lcm(wanted, round(own * scale) or 1) / scale, offset=0.0)

    def restrict_moves(self, moves: Tensor) -> Limits:
        """Return limits in which only these moves between levels are allowed, shape ``(levels, levels)``."""
        return replace(self, moves=moves if self.moves is None else self.moves & moves)

    def number_bounds(self, block: Block, fixed: Tensor) -> tuple[Tensor, Tensor]:
        """Return the smallest and largest encoded numbers that are not special, each of shape ``(n,)``.

        They are the training range, widened by the row's own number and cut by the rules. Where the smallest
        is above the largest, no number is allowed. ``fixed`` are rows that must keep their number, ``(n,)``.
        """
        own = self.rows.x[:, block.number]
        lower, upper = own.clamp_max(0.0), own.clamp_min(1.0)
        assert block.scale is not None
        # A number inside its range stays allowed, even if the scale rounds it across the bound.
        free = self.rows.free(block)
        if not _is_at(self.lo, -math.inf):
            lo = self._edge(self.lo, 1, block.scale, own)
            inside = free & (self.values >= self.lo)
            lower = torch.maximum(lower, torch.where(inside, torch.minimum(lo, own), lo))
        if not _is_at(self.hi, math.inf):
            hi = self._edge(self.hi, -1, block.scale, own)
            inside = free & (self.values <= self.hi)
            upper = torch.minimum(upper, torch.where(inside, torch.maximum(hi, own), hi))
        floor, ceiling = own, own
        if self.feature.special and (self.rising or self.falling):
            # The pin of a special value may be another number: rules compare the value itself.
            at_least, at_most = (self._edge(self.values, side, block.scale, own) for side in (1, -1))
            floor, ceiling = torch.where(free, own, at_least), torch.where(free, own, at_most)
        lower = torch.maximum(lower, floor) if self.rising else lower
        upper = torch.minimum(upper, ceiling) if self.falling else upper
        return (
            torch.where(fixed, torch.maximum(lower, own), lower),
            torch.where(fixed, torch.minimum(upper, own), upper),
        )

    def state_choices(self, block: Block, fixed: Tensor, has_number: Tensor) -> Tensor:
        """Return which states a number may be in, shape ``(n, levels)``.

        ``fixed`` are rows that must keep their state, ``has_number`` rows that may have some number that is
        not special, each of shape ``(n,)``. Ranges and directions compare special values as numbers.
        """
        codes, columns = self.rows.codes(block), [has_number]
        for special in block.special[1:]:
            if special is None:
                columns.append(torch.zeros_like(has_number))
                continue
            allowed = torch.ones_like(has_number) & (special >= self.lo) & (special <= self.hi)
            if self.rising:
                allowed = allowed & (special >= self.values)
            if self.falling:
                allowed = allowed & (special <= self.values)
            columns.append(allowed)
        choices = torch.stack(columns, dim=1)
        return choices & (one_hot(codes, len(columns)) | ~fixed[:, None])

    def _edge(self, bound: float | Tensor, side: int, scale: Scale, like: Tensor) -> Tensor:
        """Return a bound in encoded units, moved inwards until it decodes to a value inside the bound."""
        if not isinstance(bound, Tensor) and math.isinf(bound):
            return like.new_tensor(bound)
        original = bound.cpu().numpy() if isinstance(bound, Tensor) else bound
        inner = round_inwards(self.feature, original, side, self.step, self.offset)
        value = torch.as_tensor(inner, dtype=torch.float64, device=like.device)
        if self.step:
            grid = replace(scale, step=self.step, offset=self.offset)
            return grid.snap(scale.encode(value.to(like)))
        edge = scale.encode(value).to(like)
        inwards = torch.full_like(edge, side * math.inf)
        for _ in range(64):
            outside = side * scale.decode(edge.double()) < side * value
            if not outside.any():
                break
            edge = torch.where(outside, torch.nextafter(edge, inwards), edge)
        return edge

    def level_choices(self, block: Block, fixed: Tensor) -> Tensor:
        """Return which levels a category may be at, shape ``(n, levels)``; a range may leave none.

        ``fixed`` are rows that must keep their level, shape ``(n,)``.
        """
        codes, n = self.rows.codes(block), len(block.levels)
        order = torch.arange(n, device=codes.device)
        moves = ~torch.tensor(block.closed, device=codes.device).expand(n, n)
        if self.rising:
            moves = moves & (order >= order[:, None])
        if self.falling:
            moves = moves & (order <= order[:, None])
        if self.moves is not None:
            listed = torch.eye(n, dtype=torch.bool)
            if self.must_move:
                listed[: len(self.moves)] = False
            listed[: len(self.moves), : len(self.moves)] |= self.moves
            moves = moves & listed.to(codes.device)
        choices = torch.where(fixed[:, None], one_hot(codes, n), moves[codes])
        unbounded = all(not isinstance(end, Tensor) and math.isinf(end) for end in (self.lo, self.hi))
        if self.feature.is_numeric and not unbounded:
            lo, hi = (end[:, None] if isinstance(end, Tensor) else end for end in (self.lo, self.hi))
            known = self.feature.level_numbers
            numbers = torch.tensor([*known, *[torch.nan] * (n - len(known))], dtype=torch.float64)
            numbers = numbers.to(codes.device)
            choices = choices & (numbers >= lo) & (numbers <= hi)
        return choices


def _is_at(bound: float | Tensor, value: float) -> bool:
    return not isinstance(bound, Tensor) and bound == value


def one_hot(codes: Tensor, n: int) -> Tensor:
    """Return a boolean column for each of ``n`` levels, true at the row's level."""
    return torch.nn.functional.one_hot(codes, n).bool()


def round_inwards(
    feature: Feature, bound: npt.ArrayLike, side: int, step: float, offset: float = 0.0
) -> FloatArray:
    """Return the first value at or beyond a bound that survives decoding unchanged.

    With a step, this is a multiple of it plus an offset. Without one, decoding rounds to at most 12 digits of
    the range, and 10 are safe. Nothing is rounded on a logarithmic scale, or where doubles have no more
    digits than that.
    ``side`` is 1 to round upwards, -1 to round downwards.
    """
    bound = np.asarray(bound, dtype=np.float64)
    if feature.log and not step:
        return bound
    decimals = feature.decimals
    if not step:
        decimals = 10 - math.floor(math.log10(feature.maximum - feature.minimum or 1.0))
        step = 10.0**-decimals
    elif step != feature.step and not offset:
        decimals = next(digits for digits in range(MAX_DECIMALS + 1) if round(step, digits) == step)
    with np.errstate(all="ignore"):
        multiple = np.rint((bound - offset) / step)
        outside = side * np.round(multiple * step + offset, decimals) < side * bound
        inner = np.round(np.where(outside, multiple + side, multiple) * step + offset, decimals)
    return np.where(np.abs(multiple) >= 2**52, bound, inner)
