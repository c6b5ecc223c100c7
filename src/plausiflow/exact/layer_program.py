r"""Layers as a part of an integer program.

The units of the first map are sums of what each feature contributes, :math:`u = u_0 + \sum_j c_j`. Without
hidden layers, the target is an inequality in these sums. Otherwise each unit is a whole number with an
interval, which the radius makes short: changes within it can only move the unit so far. A unit that stays on
one side of zero needs no ReLU; the others are maxima. All numbers are rounded, and every equation is widened
by what that may add, so that each row that the model decides as wanted satisfies the program.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor

from plausiflow.exact.atoms import Atoms
from plausiflow.exact.choices import Choice
from plausiflow.exact.cp_sat import Expression, Program
from plausiflow.exact.layer_space import LayerSpace
from plausiflow.exact.offsets import Offset
from plausiflow.exact.scores import ScoreRow

Array = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

Side = Literal["best", "near", "between"]
_STRICT: Side = "near"
_LENIENT: Side = "best"
_RESOLUTION, _UNIT_RESOLUTION, _WEIGHT_RESOLUTION = 2.0**40, 2.0**26, 2.0**16


@dataclass(frozen=True)
class Sum:
    """A linear expression of whole numbers that is :math:`K u` for a real number u, up to an error.

    Attributes:
        expression: The expression.
        low: Smallest value of u.
        high: Largest value of u.
        error: Largest difference, in whole numbers.
    """

    expression: Expression
    low: float
    high: float
    error: int


def add_layers(
    program: Program,
    space: LayerSpace,
    choices: Sequence[Choice],
    offsets: Mapping[str, Offset],
    x: Tensor,
    radius: float,
    rows: Sequence[ScoreRow],
) -> bool:
    """Add the layers and the inequalities of the target; return False if no row can satisfy them."""
    start, maps = space.layers.first(x)[0], space.layers.maps
    if len(maps) == 1:
        return all(_add_row(program, row, start, choices, offsets, radius) for row in rows)
    units = []
    for k, own in enumerate(np.eye(len(start))):
        total = _weighted(program, own, start[k], choices, offsets, radius, _UNIT_RESOLUTION)
        units.append(_hidden(program, total))
    for weight, bias in maps[1:-1]:
        units = [
            _hidden(program, _next(program, units, weight[:, k], float(bias[k]))) for k in range(len(bias))
        ]
    weight, bias = maps[-1]
    for row in rows:
        total = _next(program, units, weight @ row.weights, float(bias @ row.weights), bounded=False)
        if total.high < row.threshold:
            return False
        program.at_least(total.expression, _needed(row, total, _OUTPUT))
    return True


_OUTPUT = _UNIT_RESOLUTION * _WEIGHT_RESOLUTION


def _add_row(
    program: Program,
    row: ScoreRow,
    start: Array,
    choices: Sequence[Choice],
    offsets: Mapping[str, Offset],
    radius: float,
) -> bool:
    """Add an inequality in the units of the first map."""
    largest = max((float(np.abs(_ends(c.atoms, row.weights)).max(initial=0.0)) for c in choices), default=0.0)
    factor = _RESOLUTION / max(largest, 1e-12)
    own, side = float(start @ row.weights), _STRICT if row.strict else _LENIENT
    total = _weighted(program, row.weights, own, choices, offsets, radius, factor, side)
    if total.high < row.threshold:
        return False
    program.at_least(total.expression, _needed(row, total, factor))
    return True


def _needed(row: ScoreRow, total: Sum, factor: float) -> int:
    """Return what the expression of a sum must be at least."""
    error = total.error if row.strict else -total.error
    return math.floor(row.threshold * factor) + error


def _ends(atoms: Atoms, weights: Array) -> Array:
    """Return what atoms add to a weighted sum of units at both ends of their ranges, ``(2, atoms)``."""
    assert atoms.units is not None
    return np.asarray(atoms.units @ weights)


def _weighted(
    program: Program,
    weights: Array,
    start: float,
    choices: Sequence[Choice],
    offsets: Mapping[str, Offset],
    radius: float,
    factor: float,
    side: Side = "between",
) -> Sum:
    """Return a weighted sum of the units of the first map.

    A range without an offset counts with its better end, its nearer end, or any value between its ends.
    """
    expression: Expression = math.ceil(start * factor)
    error = 2
    for choice in choices:
        ends = _ends(choice.atoms, weights)
        offset = offsets.get(choice.atoms.block.name)
        if offset is not None:
            part, missed = _moved(ends, offset, factor)
        elif side == "best":
            part, missed = choice.weighted(_whole(np.ceil(ends.max(axis=0) * factor))), 0
        elif side == "near":
            part, missed = choice.weighted(_whole(np.floor(_near(choice.atoms, ends) * factor))), 0
        else:
            part, missed = _between(program, choice, ends * factor), 1
        expression = expression + part
        error += missed
    low, high = (sign * _reach(sign * weights, choices, radius) for sign in (-1.0, 1.0))
    rounding = 1e-9 * (abs(start) + abs(low) + abs(high))
    error += math.ceil(rounding * factor)
    return Sum(expression, start + low - rounding, start + high + rounding, error)


def _between(program: Program, choice: Choice, ends: Array) -> Expression:
    """Return a value between both ends of the chosen atom."""
    low, high = _whole(np.floor(ends.min(axis=0))), _whole(np.ceil(ends.max(axis=0)))
    if not choice.atoms.ranged.any():
        return choice.weighted(_whole(np.rint(ends[0])))
    value = program.integer(min(low), max(high))
    program.at_least(value, choice.weighted(low))
    program.at_least(choice.weighted(high), value)
    return value


def _whole(values: Array) -> list[int]:
    return [int(value) for value in values.tolist()]


def _moved(ends: Array, offset: Offset, factor: float) -> tuple[Expression, int]:
    """Return what a number with an offset adds, and by how much that may be wrong."""
    atoms = offset.choice.atoms
    ranged = atoms.ranged
    i = int(np.argmax(np.where(ranged, atoms.last - atoms.first, -1.0)))
    slope = float((ends[1, i] - ends[0, i]) / (atoms.last[i] - atoms.first[i]))
    rest = ends[0] - slope * np.where(_free(atoms), atoms.first - offset.start, 0.0)
    per_step = slope * offset.step * factor
    fixed = offset.choice.weighted(np.rint(rest * factor).astype(np.int64).tolist())
    coefficient = round(per_step)
    missed = math.ceil(abs(per_step - coefficient) * offset.largest) + 2
    if not offset.exact:
        missed += math.ceil(abs(per_step))
    return fixed + coefficient * offset.variable, missed


def _free(atoms: Atoms) -> npt.NDArray[np.bool_]:
    return np.asarray((atoms.codes == 0) & ~atoms.kept)


def _reach(weights: Array, choices: Sequence[Choice], radius: float) -> float:
    """Return what changes within a radius add to a weighted sum of units at most.

    Graded changes of the distance d add at most d times the norm of the largest gains per cost, and at most
    the sum of the largest gains; of other changes, only the few best have room in the radius.
    """
    box, squares, extra, cheapest = 0.0, 0.0, 0.0, math.inf
    flat: list[float] = []
    for choice in choices:
        atoms = choice.atoms
        gains = _ends(atoms, weights).max(axis=0)
        graded = ~atoms.flat & (gains > 0)
        box += float(gains[graded].max(initial=0.0))
        if graded.any():
            rate, missed = _rate(atoms.select(graded), weights)
            squares += rate * rate
            extra += missed
        if atoms.flat.any():
            flat.append(float(gains[atoms.flat].max(initial=0.0)))
            cheapest = min(cheapest, float(atoms.costs[atoms.flat].min()))
    room = len(flat) if cheapest <= 0 else int(min(len(flat), radius * (1 + 1e-9) // max(cheapest, 1e-12)))
    best = sum(sorted(flat, reverse=True)[:room])
    return min(box, radius * math.sqrt(squares) + extra) + best


def _near(atoms: Atoms, ends: Array) -> Array:
    """Return the values at the cheaper end of each atom."""
    return np.asarray(np.where(atoms.numbers <= atoms.first, ends[0], ends[1]))


def _rate(atoms: Atoms, weights: Array) -> tuple[float, float]:
    """Return the largest gain per cost, and a gain that may come on top of it.

    Inside of a range, both gain and cost are monotone; where both are linear, the largest rate is at an end.
    """
    ends = _ends(atoms, weights)
    tiny = 1e-9 * max(1.0, float(np.abs(ends).max()))
    near, far = _near(atoms, ends), _near(atoms, ends[::-1])
    straight = atoms.block.scale is None or not atoms.block.scale.log
    costs = atoms.far_costs if straight else atoms.costs
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = np.maximum((near - tiny) / atoms.costs, (far - tiny) / costs)
    return max(0.0, float(np.nan_to_num(rates, nan=0.0, posinf=np.inf).max())), tiny


def _hidden(program: Program, total: Sum) -> Sum:
    """Return the ReLU of a unit; its expression is a variable with an interval."""
    factor = _UNIT_RESOLUTION
    if total.high <= 0:
        return Sum(0, 0.0, 0.0, 0)
    high = math.ceil(total.high * factor) + total.error
    if total.low >= 0:
        return Sum(total.expression, total.low, total.high, total.error)
    low = math.floor(total.low * factor) - total.error
    before = program.integer(low, high)
    program.equal(before, total.expression)
    return Sum(program.positive_part(before, high), 0.0, total.high, total.error)


def _next(program: Program, units: Sequence[Sum], weight: Array, bias: float, *, bounded: bool = True) -> Sum:
    """Return a unit of the next map; if ``bounded`` in the resolution of units."""
    coefficients = np.rint(weight * _WEIGHT_RESOLUTION).astype(np.int64).tolist()
    expression: Expression = round(bias * _OUTPUT)
    low = high = bias
    error = 2.0
    for unit, own, exact in zip(units, coefficients, weight.tolist(), strict=True):
        if isinstance(unit.expression, int) and unit.expression == 0 and unit.high == 0.0:
            continue
        expression = expression + own * unit.expression
        low += min(exact * unit.low, exact * unit.high)
        high += max(exact * unit.low, exact * unit.high)
        size = max(abs(unit.low), abs(unit.high)) * _UNIT_RESOLUTION + unit.error
        error += abs(own) * unit.error + abs(exact * _WEIGHT_RESOLUTION - own) * size
    rounding = 1e-9 * (abs(low) + abs(high))
    low, high = low - rounding, high + rounding
    if not bounded:
        return Sum(expression, low, high, math.ceil(error + rounding * _OUTPUT))
    # The same in the resolution of units: a variable that is the quotient, rounded.
    missed = math.ceil(error / _WEIGHT_RESOLUTION + rounding * _UNIT_RESOLUTION) + 1
    ends = math.floor(low * _UNIT_RESOLUTION) - missed, math.ceil(high * _UNIT_RESOLUTION) + missed
    quotient = program.integer(*ends)
    program.at_least(int(_WEIGHT_RESOLUTION) * (quotient + 1), expression)
    program.at_least(expression, int(_WEIGHT_RESOLUTION) * (quotient - 1))
    return Sum(quotient, low, high, missed + 1)


def without_worse(choices: Sequence[Atoms], row: ScoreRow, joined: frozenset[str]) -> list[Atoms]:
    """Drop atoms that add less to the only inequality than one that costs no more.

    Features that rules relate to others, ``joined``, keep all atoms.
    """
    return [
        atoms if atoms.block.name in joined else atoms.select(_best(atoms, _ends(atoms, row.weights)))
        for atoms in choices
    ]


def _best(atoms: Atoms, ends: Array) -> IntArray:
    """Return the atoms that no cheaper one is better than; a distance is never worse than a flat cost."""
    gains, found = ends.max(axis=0), []
    graded, flat = -math.inf, -math.inf
    for i in np.lexsort((-gains, atoms.flat, ~atoms.kept, atoms.costs)).tolist():
        better = max(graded, flat) if atoms.flat[i] else graded
        if atoms.kept[i] or gains[i] > better:
            found.append(i)
            if atoms.ranged[i]:
                continue
            if atoms.flat[i] and not atoms.kept[i]:
                flat = max(flat, float(gains[i]))
            else:
                graded = max(graded, float(gains[i]))
    return np.sort(np.array(found, dtype=np.int64))
