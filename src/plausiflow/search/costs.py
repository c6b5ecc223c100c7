r"""What a change costs: the distance, the weights of features and the prices of levels.

With :math:`\delta_j` the change of feature j and :math:`w_j` its weight, the cost of a changed row is

.. math::
    \text{l2:}\quad \sqrt{\textstyle\sum_j (w_j \delta_j)^2} + \sum_c w_c\, p_c
    \qquad \text{l1, l1-mad:}\quad \textstyle\sum_j w_j |\delta_j| + \sum_c w_c\, p_c .

The first sum is over numbers and ordered categories, the second over other categories that change. In ``l2``
and ``l1`` the change of a number is a share of its training range; in ``l1-mad`` it is in the table's units,
divided by the median absolute deviation of the training rows. An ordered category counts its steps as a
share of those from its lowest to its highest level. :math:`p_c` is one, or what a
:class:`~plausiflow.constraints.Price` says. A number that enters or leaves a special value outside its
range, or moves from one to another, changes like a category; then its distance does not count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from plausiflow.errors import InvalidInputError
from plausiflow.tables import Block, Layout, LevelIndex, Scale
from plausiflow.validation import to_float

Distance = Literal["l2", "l1", "l1-mad"]
DISTANCES: tuple[Distance, ...] = ("l2", "l1", "l1-mad")

EncodedRows = tuple[Tensor, Tensor]
"""Encoded rows, shape ``(p, width)``, and their levels (``layout.codes``)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CostModel:
    """What it costs to change one row into another.

    Attributes:
        layout: Layout of encoded rows.
        weights: Weight of each feature, in the order of the layout's blocks: it multiplies what a change of
            the feature costs alone, in every distance.
        distance: How the changes are summed up.
        deviations: Median absolute deviation of each number in the table's units, in the order of the blocks;
            used by ``l1-mad``. See :func:`absolute_deviations`.
        prices: What a change from one level (row) to another (column) costs, by feature; NaN for the default.
    """

    layout: Layout
    weights: Tensor
    distance: Distance = "l2"
    deviations: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))
    prices: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        blocks, given = len(self.layout.blocks), self.deviations
        if len(given) not in ((blocks,) if self.distance == "l1-mad" else (0, blocks)):
            raise InvalidInputError(f"`deviations` must have {blocks} values; got {len(given)}.")
        if not bool((torch.isfinite(given) & (given > 0)).all()):
            raise InvalidInputError("`deviations` must be positive numbers.")

    @classmethod
    def plain(cls, layout: Layout) -> CostModel:
        """Return the default: ``l2``, all weights one."""
        return cls(layout=layout, weights=torch.ones(len(layout.blocks), dtype=torch.float64))

    def to(self, device: torch.device) -> CostModel:
        """Move to a device."""
        prices = {name: price.to(device) for name, price in self.prices.items()}
        return replace(
            self, weights=self.weights.to(device), deviations=self.deviations.to(device), prices=prices
        )

    def __call__(self, before: EncodedRows, after: EncodedRows) -> Tensor:
        """Return the cost of changing rows into others, shape ``(p,)``."""
        return self.of_sums(self.sums(before, after))

    def sums(self, before: EncodedRows, after: EncodedRows) -> Tensor:
        """Return the two sums that the cost of changes is made of, shape ``(p, 2)``; see :meth:`of_sums`.

        Changes of different features add up: the sums of both together are the sum of those of each.
        """
        numbers, steps, flat = self._parts(before, after)
        if self.distance == "l2":
            graded = (numbers * numbers).sum(dim=1) + (steps * steps * self._graded_squares).sum(dim=1)
        else:
            graded = numbers.abs().sum(dim=1) + (steps.abs() * self._graded).sum(dim=1)
        return torch.stack([graded, flat.sum(dim=1)], dim=1)

    def of_sums(self, sums: Tensor) -> Tensor:
        """Return the cost of changes with these sums ``(p, 2)``, shape ``(p,)``."""
        graded, flat = sums.unbind(dim=1)
        return (graded.sqrt() if self.distance == "l2" else graded) + flat

    def room_for_numbers(self, before: EncodedRows, after: EncodedRows, limit: Tensor) -> Tensor:
        """Return the squared distance of numbers at which a change costs ``limit`` ``(p,)``, for ``l2``."""
        _, steps, flat = self._parts(before, after)
        left = (limit - flat.sum(dim=1)).clamp_min(0)
        return (left * left - (steps * steps * self._graded_squares).sum(dim=1)).clamp_min(0)

    def with_numbers(self, before: EncodedRows, after: EncodedRows) -> Callable[[Tensor, Tensor], Tensor]:
        """Return what changes cost if their numbers are at other squared distances; for ``l2``.

        The function takes squared distances ``(m,)`` and the changes that they belong to ``(m,)``.
        """
        _, steps, flat = self._parts(before, after)
        fixed, flat = (steps * steps * self._graded_squares).sum(dim=1), flat.sum(dim=1)
        return lambda squares, which: (squares + fixed[which]).sqrt() + flat[which]

    def by_feature(self, before: EncodedRows, after: EncodedRows) -> Tensor:
        """Return what the change of each feature costs alone, shape ``(p, blocks)``."""
        numbers, steps, flat = self._parts(before, after)
        spent = numbers.new_zeros(len(numbers), len(self.layout.blocks))
        spent[:, self._number_places] = numbers.abs()
        spent[:, self._level_places] += steps.abs() * self._graded + flat
        return spent

    def pairwise(self, before: EncodedRows, after: EncodedRows, blocks: Sequence[Block]) -> Tensor:
        """Return what changes of some features cost from each of n rows to each of m rows, ``(n, m)``."""
        names, (_, codes), (_, codes_cf) = {block.name for block in blocks}, before, after
        (graded, nominal), (graded_cf, nominal_cf) = (self._plain(rows, names) for rows in (before, after))
        power = 2.0 if self.distance == "l2" else 1.0
        # Pair by pair: the faster matrix product rounds differently in another batch.
        cost = torch.cdist(graded, graded_cf, p=power, compute_mode="donot_use_mm_for_euclid_dist")
        flat = torch.cdist(nominal, nominal_cf, p=1.0)
        for place, j, apart in self._states:
            if self._with_levels[j].name in names:
                moved = codes[:, j, None] != codes_cf[None, :, j]
                moved = moved & (apart[codes[:, j, None]] | apart[codes_cf[None, :, j]])
                own, other = (self._scaled(x, place) for x, _ in (before, after))
                gap = torch.where(moved, 0.0, own[:, None] - other)
                cost = (cost * cost + gap * gap).sqrt() if self.distance == "l2" else cost + gap.abs()
                flat = flat + moved * self._flat[0, j]
        for j, prices in self._priced.items():
            if self._with_levels[j].name in names:
                flat = flat + prices[codes[:, j]][:, codes_cf[:, j]]
        return cost + flat

    def _plain(self, rows: EncodedRows, names: Set[str]) -> tuple[Tensor, Tensor]:
        """Return columns whose distances are the costs of features without states and prices.

        The first tensor has numbers and ordered categories, the second the levels of other categories.
        """
        (x, codes), states = rows, {place for place, _, _ in self._states}
        graded, nominal = [x[:, :0]], [x[:, :0]]
        for place, i in enumerate(self._number_places):
            if self.layout.blocks[i].name in names and place not in states:
                graded.append(self._scaled(x, place)[:, None])
        for j, block in enumerate(self._with_levels):
            if block.name not in names or block.number is not None or j in self._priced:
                continue
            if block.ordered:
                graded.append(self._graded[0, j] * codes[:, j : j + 1].to(x))
            else:  # a changed category differs in two columns
                nominal.append(self._flat[0, j] / 2 * x[:, block.level_slice])
        return torch.cat(graded, dim=1), torch.cat(nominal, dim=1)

    def _scaled(self, x: Tensor, place: int) -> Tensor:
        """Return one of the numbers in units of its cost, shape ``(n,)``."""
        column = self._numbers[place]
        scale, values = self._scales[column], x[:, column]
        if self.distance == "l1-mad" and scale.log:
            values = scale.decode(values)
        return values * self._units[place]

    def number_units(self, columns: list[int]) -> Tensor:
        """Return what one unit of the numbers in some columns costs, shape ``(numbers,)``.

        The unit is that of encoded rows; of a number on a logarithmic scale in ``l1-mad``, that of the table.
        """
        return self._units[[self._numbers.index(column) for column in columns]]

    def number_slopes(self, columns: list[int], z: Tensor) -> Tensor:
        """Return what a unit of encoded numbers ``(p, numbers)`` in some columns costs at ``z``, same shape.

        It is the same everywhere, except for numbers on a logarithmic scale in ``l1-mad``.
        """
        places = [self._numbers.index(column) for column in columns]
        slopes = self.number_units(columns).to(z).expand(z.shape)
        if self.distance != "l1-mad":
            return slopes
        slopes = slopes.clone()
        for j, (column, place) in enumerate(zip(columns, places, strict=True)):
            scale = self._scales[column]
            if scale.log:
                raw = scale.decode(z[:, j]).abs()
                slopes[:, j] = self._units.to(z)[place] * scale.ends[1] * (1 + raw)
        return slopes

    def _parts(self, before: EncodedRows, after: EncodedRows) -> tuple[Tensor, Tensor, Tensor]:
        """Return weighted changes of numbers, steps of levels, and what changed levels cost on their own."""
        (x, codes), (x_cf, codes_cf) = before, after
        gap = self._gaps(x, x_cf) * self._units
        moved = codes_cf != codes
        if self._states:
            left = self._index.leaves_scale(codes, codes_cf)
            moved[:, self._index.states] = left
            gap[:, self._state_places] = gap[:, self._state_places].masked_fill(left, 0.0)
        flat = moved * self._flat
        for j, prices in self._priced.items():
            flat[:, j] = prices[codes[:, j], codes_cf[:, j]]
        return gap, (codes_cf - codes).to(x), flat

    def _gaps(self, x: Tensor, x_cf: Tensor) -> Tensor:
        """Return the changes of all numbers, shape ``(p, numbers)``, in the units of ``_units``."""
        gap = x_cf[:, self._numbers] - x[:, self._numbers]
        if self.distance == "l1-mad":
            for place, column in enumerate(self._numbers):
                scale = self._scales[column]
                if scale.log:
                    gap[:, place] = scale.decode(x_cf[:, column]) - scale.decode(x[:, column])
        return gap

    @cached_property
    def weight_of(self) -> dict[str, float]:
        """The weight of each feature by name."""
        names = [block.name for block in self.layout.blocks]
        return dict(zip(names, self.weights.tolist(), strict=True))

    @cached_property
    def _numbers(self) -> list[int]:
        return self.layout.numbers

    @cached_property
    def _scales(self) -> dict[int, Scale]:
        return {b.number: b.scale for b in self.layout.blocks if b.number is not None and b.scale is not None}

    @cached_property
    def _number_places(self) -> list[int]:
        return [i for i, block in enumerate(self.layout.blocks) if block.number is not None]

    @cached_property
    def _level_places(self) -> list[int]:
        return [i for i, block in enumerate(self.layout.blocks) if len(block.levels)]

    @cached_property
    def _index(self) -> LevelIndex:
        return self.layout.index(self.weights.device)

    @cached_property
    def _state_places(self) -> Tensor:
        """Places among the numbers of those with levels, as the layout's index orders them."""
        numbers = [b.number for b in self.layout.with_levels if b.number is not None]
        return torch.tensor([self._numbers.index(number) for number in numbers], device=self.weights.device)

    @cached_property
    def _states(self) -> list[tuple[int, int, Tensor]]:
        """Numbers with special values outside their range.

        Place among the numbers, place among the features with levels, and which levels are such values.
        """
        numbers, device = self.layout.numbers, self.weights.device
        return [
            (numbers.index(b.number), j, torch.tensor(b.apart, device=device))
            for j, b in enumerate(self.layout.with_levels)
            if b.number is not None and any(b.apart)
        ]

    @cached_property
    def _units(self) -> Tensor:
        """What one unit of each number costs, shape ``(numbers,)``."""
        units = self.weights[self._number_places].clone()
        if self.distance == "l1-mad":
            for place, i in enumerate(self._number_places):
                scale = self._scales[self._numbers[place]]
                units[place] *= (1.0 if scale.log else scale.ends[1]) / float(self.deviations[i])
        return units

    @cached_property
    def _flat(self) -> Tensor:
        """What any change of a level costs, shape ``(1, features with levels)``."""
        return self._of_levels(
            {b.name: w for b, w in self._weighted if not b.ordered and (b.number is None or any(b.apart))}
        )

    @cached_property
    def _graded(self) -> Tensor:
        """What one step of an ordered category costs, shape ``(1, features with levels)``."""
        return self._of_levels({b.name: w / _last_step(b) for b, w in self._weighted if b.ordered})

    @cached_property
    def _graded_squares(self) -> Tensor:
        return self._of_levels({b.name: w**2 / _last_step(b) ** 2 for b, w in self._weighted if b.ordered})

    @cached_property
    def _weighted(self) -> list[tuple[Block, float]]:
        """Features with levels and without prices, with their weights."""
        return [(b, self.weight_of[b.name]) for b in self._with_levels if b.name not in self.prices]

    def _of_levels(self, values: Mapping[str, float]) -> Tensor:
        """Return values by feature name as a tensor, zero by default, shape ``(1, features with levels)``."""
        return self.weights.new_tensor([[values.get(block.name, 0.0) for block in self._with_levels]])

    @cached_property
    def _with_levels(self) -> tuple[Block, ...]:
        return self.layout.with_levels

    @cached_property
    def _priced(self) -> dict[int, Tensor]:
        """Weighted prices of all pairs of levels, by place among the features with levels."""
        priced = {}
        for j, block in enumerate(self._with_levels):
            if block.name in self.prices:
                codes = torch.arange(len(block.levels), device=self.weights.device)
                steps = (codes[:, None] - codes).abs().to(self.weights)
                usual = steps / _last_step(block) if block.ordered else (steps > 0).to(self.weights)
                given = self.prices[block.name].to(self.weights)
                known = torch.full_like(usual, torch.nan)
                known[: len(given), : len(given)] = given
                own = torch.where(known.isnan() | (steps == 0), usual, known)
                priced[j] = own * self.weight_of[block.name]
        return priced


def _last_step(block: Block) -> int:
    """Return the number of steps from the lowest to the highest level."""
    return max(1, len(block.levels) - 1)


def state_changes(layout: Layout, codes: Tensor, codes_cf: Tensor) -> Tensor:
    """Return which numbers enter or leave a value that is not on their scale, shape ``(p, numbers)``.

    ``codes`` and ``codes_cf`` are the levels before and after, ``(p, blocks with levels)``.
    """
    index = layout.index(codes.device)
    changes = torch.zeros(len(codes), layout.width, dtype=torch.bool, device=codes.device)
    changes[:, index.numbers] = index.leaves_scale(codes, codes_cf)
    return changes[:, layout.numbers]


def absolute_deviations(layout: Layout, x: Tensor) -> Tensor:
    """Return the median absolute deviation of each number over training rows, in the table's units.

    Rows whose number is in a special state do not count. If the deviation is zero, because more than half of
    the values are equal, the mean absolute deviation from the median takes its place: unlike a constant, it
    follows the unit of the column. Without any deviation, and for a category, it is one.

    Args:
        layout: Layout of encoded rows.
        x: Encoded training rows, shape ``(n, width)``.

    Returns:
        One value per block, shape ``(blocks,)``.
    """
    deviations = torch.ones(len(layout.blocks), dtype=torch.float64)
    free = layout.free(layout.codes(x))
    for i, block in enumerate(layout.blocks):
        if block.number is None or block.scale is None:
            continue
        values = block.scale.decode(x[:, block.number][free[:, block.number]].double())
        if len(values):
            away = (values - values.quantile(0.5)).abs()
            deviations[i] = next((v for v in (away.quantile(0.5), away.mean()) if v > 0), 1.0)
    return deviations


def feature_weights(weights: Mapping[str, float] | None, layout: Layout) -> Tensor:
    """Return the weight of each feature, shape ``(blocks,)``: one, unless given by name."""
    given = dict(weights or {})
    names = [block.name for block in layout.blocks]
    problems = [f"{name!r} is not a feature that can change" for name in given if name not in names]
    problems += [
        f"the weight of {name!r} must be a positive number; got {value!r}"
        for name, value in given.items()
        if not 0 < to_float(value) < math.inf
    ]
    if problems:
        raise InvalidInputError(
            f"`weights` must be positive numbers for features that can change: {'; '.join(problems)}. Put "
            "features that may not change into `Immutable`."
        )
    return torch.tensor([float(given.get(name, 1.0)) for name in names], dtype=torch.float64)
