"""Infer the feature of a column, or check the kind that a user chose.

The rules, in this order:

1. One distinct value: constant.
2. Booleans: boolean.
3. Text, objects and categories: ordered if the dtype is ordered. Otherwise category, but identifier if there
   are at least 50 rows and 95 % of the values are distinct (never for a categorical dtype).
4. Numbers with at most 10 distinct values and at least 5 rows for each: ordered. So are codes: numbers with
   at most 30 distinct values, each in at least 5 rows, of which less than a third of the possible ones occur.
5. Integers that are too large for a float, or that are distinct in at least 50 rows and sorted, consecutive
   or named like an id: identifier.
6. Numbers on a grid of at most six decimals: integer.
7. Other numbers: continuous.

Numbers may have special values, which :mod:`plausiflow.tables.special` finds. Range, grid and tail are those
of the other values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from plausiflow.tables.cells import is_missing, level_key
from plausiflow.tables.distinct import ROWS_PER_LEVEL, Column
from plausiflow.tables.features import CellValue, Feature, Kind
from plausiflow.tables.grids import (
    MAX_DECIMALS,
    find_grid,
    find_known,
    float_dtype,
    round_to_grid,
)

FEW_LEVELS = 10
IDENTIFIER_ROWS, IDENTIFIER_SHARE = 50, 0.95
HEAVY_TAIL = 10

_ID = re.compile(r"(?i:(^|[\W_])(id|uuid|guid)$)|[a-z]I[dD]$")


def describe(
    cells: pd.Series,
    kind: Kind | None = None,
    order: Sequence[CellValue] | None = None,
    special: Sequence[float] | None = None,
    step: float | None = None,
    revealed: Sequence[float] = (),
) -> tuple[Feature, str | None, str | None]:
    """Return the feature of a column, a warning if its kind may be wrong, and a note if its step may be.

    ``kind`` is the kind that the user chose, or None to infer it; ``order`` are the levels of an ordered
    category, lowest first; ``special`` and ``step`` are the special values and the step of a number, or None
    to find them. ``revealed`` are special values in addition to those that are found.
    """
    name, can_miss = str(cells.name), bool(is_missing(cells).any())
    warning = note = None
    if kind == "identifier":
        return Feature(name=name, kind=kind, dtype=cells.dtype, can_miss=can_miss), None, None
    column = Column(cells, special, step, revealed)
    if kind is None:
        kind, warning = ("ordered", None) if order is not None else _guess(column)
        if step is not None and kind in ("ordered", "continuous") and column.family == "number":
            kind, warning = "integer", None
    elif objection := _objection(column, kind, order):
        raise column.problem(f"cannot be of kind {kind!r}: {objection}")
    details: dict[str, Any] = {}
    if kind in ("continuous", "integer"):
        details = _number(column, on_grid=kind == "integer")
        if kind == "integer" and step is None:
            note = _odd_values(column)
    elif special or step is not None:
        setting = "special" if special else "steps"
        raise column.problem(f"cannot be in `{setting}`: {_no_number(kind, setting)}")
    elif kind != "identifier":
        levels = tuple(_ordered_levels(column, order))
        counts = [column.spellings[level_key(level)][1] for level in levels]
        details = {"levels": levels, "filling": levels[int(np.argmax(counts))]}
    return Feature(name=name, kind=kind, dtype=cells.dtype, can_miss=can_miss, **details), warning, note


def _guess(column: Column) -> tuple[Kind, str | None]:
    """Return a kind by the rules of this module, and a warning if it is an identifier."""
    if column.distinct == 1:
        return "constant", None
    if column.family == "boolean":
        return "boolean", None
    name, dtype = column.cells.name, column.cells.dtype
    ordered = isinstance(dtype, pd.CategoricalDtype) and bool(dtype.ordered)
    few = column.distinct <= FEW_LEVELS and column.present >= ROWS_PER_LEVEL * column.distinct
    if ordered or (column.family == "number" and few):
        return "ordered", None
    if column.family == "number" and column.is_code:
        return "ordered", (
            f"`{name}` is treated as an ordered category: it has {column.distinct} known values with gaps "
            f"between them, like codes. If they are amounts, set its kind: kinds={{{name!r}: 'integer'}}."
        )
    if _is_identifier(column):
        return "identifier", (
            f"`{name}` is treated as an identifier and never changed: it has {column.distinct} distinct "
            f"values in {column.present} rows. If it is not one, set its kind: kinds={{{name!r}: "
            f"{'integer' if column.family == 'number' else 'category'!r}}}."
        )
    if column.family == "text":
        return "category", None
    if column.grid is None and column.whole:
        return "identifier", (
            f"`{name}` is treated as an identifier and never changed: its integers are too large for floats. "
            f"Make them smaller, or set its kind: kinds={{{name!r}: 'category'}}."
        )
    return ("continuous" if column.grid is None else "integer"), None


def _is_identifier(column: Column) -> bool:
    if column.present < IDENTIFIER_ROWS or isinstance(column.cells.dtype, pd.CategoricalDtype):
        return False
    if column.family == "text":
        return column.distinct >= IDENTIFIER_SHARE * column.present
    if not column.whole or column.distinct < column.present:
        return False
    first, last = min(column.values), max(column.values)
    ascending = all(a < b for a, b in zip(column.values, column.values[1:], strict=False))
    descending = all(a > b for a, b in zip(column.values, column.values[1:], strict=False))
    consecutive = last - first + 1 == column.present
    return ascending or descending or consecutive or bool(_ID.search(str(column.cells.name)))


def _objection(column: Column, kind: Kind, order: Sequence[CellValue] | None) -> str | None:
    """Return why a column cannot be of the kind that the user chose, or None."""
    n, dtype = column.distinct, column.cells.dtype
    if kind in ("continuous", "integer") and column.family != "number":
        return f"it has {column.family} values of dtype {dtype}, not numbers. Use 'category' or 'ordered'"
    if kind == "constant" and n > 1:
        return f"it has {n} distinct values. To keep it unchanged, use 'identifier'"
    if kind == "boolean" and n > 2:
        return f"it has {n} distinct values. Use 'category'"
    if kind == "continuous" and column.whole:
        return f"dtype {dtype} has only integers. Cast it to float, or use 'integer'"
    if kind == "integer" and column.grid is None:
        return f"its values have no grid of at most {MAX_DECIMALS} decimals. Round it, or use 'continuous'"
    has_order = order is not None or column.family != "text" or bool(getattr(dtype, "ordered", False))
    if kind == "ordered" and not has_order:
        return f"the order of its levels is unknown. Set it: orders={{{column.cells.name!r}: [...]}}"
    return None


def _ordered_levels(column: Column, order: Sequence[CellValue] | None) -> list[CellValue]:
    """Return the levels in the order of the user, else of the dtype, else sorted."""
    seen = [level for level, _ in column.spellings.values()]
    dtype = column.cells.dtype
    if order is None and isinstance(dtype, pd.CategoricalDtype):
        order = dtype.categories.tolist()
    if order is None:
        return sorted(seen, key=lambda level: (isinstance(level, str), level_key(level)))
    ranks = {level: rank for rank, level in enumerate(dict.fromkeys(map(level_key, order)))}
    absent = [level for level in seen if level_key(level) not in ranks]
    if absent:
        raise column.problem(f"has levels that are not in its order: {', '.join(map(repr, absent))}")
    return sorted(seen, key=lambda level: ranks[level_key(level)])


def _no_number(kind: Kind, setting: str) -> str:
    """Return why a feature of a kind cannot have special values or a step, and what to do."""
    if kind in ("ordered", "category", "boolean"):
        return f"its kind is {kind!r}, so each value is a level of its own. Leave it out of `{setting}`"
    return f"its kind is {kind!r}. Leave it out of `{setting}`, or set its kind to 'integer'"


def _number(column: Column, *, on_grid: bool) -> dict[str, Any]:
    """Return the range, grid, tail and special values of a number.

    A tail is heavy if no value is negative and the largest is more than 10 times the median of the positive
    values: on a linear scale, half of these would share a tenth of the range.
    """
    values = column.numbers[column.ordinary]
    minimum, maximum = float(values.min()), float(values.max())
    if not np.isfinite(maximum - minimum):
        raise column.problem(f"ranges from {minimum} to {maximum}, which is too wide for a float. Rescale it")
    step, decimals = column.grid if on_grid and column.grid is not None else (0.0, 0)
    spacing, offset = column.spacing if step else (0.0, 0.0)
    if step:
        # The range is that of the values on the grid; a declared step may have none.
        if column.kept.any():
            kept = values[column.kept]
            if spacing:
                places = (round_to_grid(kept, step, decimals) - offset) / spacing
                kept = kept[np.abs(places - np.rint(places)) < 1e-6]
            minimum, maximum = float(kept.min()), float(kept.max())
        else:
            minimum, maximum = np.ceil(minimum / step) * step, np.floor(maximum / step) * step
        minimum, maximum = column.continued(minimum, maximum, step)
        if minimum > maximum:
            raise column.problem(f"has no multiple of {step:g} in its range. Use a smaller step")
    ends = np.array([minimum, maximum, column.median(column.ordinary)])
    known = _known(column, step, spacing, offset, minimum, maximum)
    if step:
        ends = round_to_grid(ends, step, decimals)
    positive = column.ordinary & (column.numbers > 0)
    return {
        "minimum": float(ends[0]),
        "maximum": float(ends[1]),
        "step": step,
        "spacing": spacing,
        "offset": offset,
        "decimals": decimals,
        "log": bool(minimum >= 0 and positive.any() and maximum > HEAVY_TAIL * column.median(positive)),
        "known": known,
        "special": column.special,
        "filling": _filling(column, float(ends[2])),
    }


def _known(
    column: Column, step: float, spacing: float, offset: float, minimum: float, maximum: float
) -> tuple[float, ...]:
    """Return the known values of a number, with special ones among them; none if they fill the grid."""
    if column.declared_step is not None:
        return ()
    values, counts = column.numbers[column.ordinary], column.counts[column.ordinary]
    if step and column.grid is not None:
        on_grid = column.kept
        places = (round_to_grid(values, step, column.grid[1]) - offset) / (spacing or step)
        on_grid = on_grid & (np.abs(places - np.rint(places)) < 1e-6)
        values, counts = values[on_grid], counts[on_grid]
    known = find_known(values, counts)
    if not len(known):
        return ()
    inside = [value for value in column.special if minimum <= value <= maximum]
    known = np.unique([*known.tolist(), *inside])
    fills_grid = step and len(known) >= round((maximum - minimum) / (spacing or step)) + 1
    return () if fills_grid else tuple(known.tolist())


def _odd_values(column: Column) -> str | None:
    """Return a note if some rows are not on the grid that the others have."""
    if column.grid is None or column.kept.all():
        return None
    name, (step, _) = column.cells.name, column.grid
    exact = find_grid(column.numbers[column.ordinary], float_dtype(column.cells.dtype))
    odd = int(column.counts[column.ordinary][~column.kept].sum())
    setting = f"steps={{{name!r}: {exact[0]:g}}}" if exact else f"kinds={{{name!r}: 'continuous'}}"
    return (
        f"`{name}` is treated as multiples of {step:g}, although {odd:,} of {column.present:,} rows "
        f"{'has another value' if odd == 1 else 'have other values'}: an answer that changes it has a "
        f"multiple. If that is wrong, set {setting}."
    )


def _filling(column: Column, median: float) -> float:
    """Return the most common special value if more than half of the values are special, else the median."""
    counts = column.counts * ~column.ordinary
    return float(column.numbers[counts.argmax()]) if 2 * counts.sum() > column.present else median
