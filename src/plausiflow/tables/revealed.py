"""Find special values that other columns reveal: a card limit of 0 where there is no card.

Such a value need not stand out in its own column: 0 may be as common as 500 and 1,000. But a state of another
column fixes it: (practically) all customers without a card have it, and far more rows than chance would have
another value. :mod:`plausiflow.tables.evidence` has the test. A state is a level, a special value or
"missing".

Two numbers without special values reveal one another if a value of one and a value of the other are always in
the same rows, as 0 visits and 0 days since a visit.

The values that are tried are the ends of a number and its most common values. If a column fixes several
values of another one, it determines it, as a rounded copy does, and reveals nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from scipy import sparse

from plausiflow.tables.cells import IntArray, Mask, read_level_codes, read_numbers, special_codes
from plausiflow.tables.evidence import FEWEST_ROWS, Evidence
from plausiflow.tables.features import Feature
from plausiflow.tables.grids import FloatArray, float_dtype
from plausiflow.tables.special import EXACT, MOST, OTHERS

MOST_ROWS, MOST_STATES = 50_000, 4_000
MOST_WORK = 2**30
"""Rows times pairs of columns: a table with very many columns is read from fewer rows."""


def rows_to_read(n_rows: int, n_columns: int, random_state: int = 0) -> IntArray:
    """Return the rows that relations between columns are learned from, ascending; at random if not all.

    At most 50,000, and at most so many that rows times pairs of columns is bounded.

    Example:
        >>> len(rows_to_read(100_000, 20)), len(rows_to_read(100_000, 1_000))
        (50000, 1073)
    """
    most = min(MOST_ROWS, max(1, MOST_WORK // max(1, n_columns) ** 2))
    if n_rows <= most:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(random_state).permutation(n_rows)[:most])


def reveal_special(
    frame: pd.DataFrame, features: Sequence[Feature], names: Collection[str]
) -> dict[str, tuple[float, ...]]:
    """Return the further special values of some numbers, by name.

    Args:
        frame: Training rows.
        features: Features of all columns, with the special values that are known.
        names: The numbers whose special values are not settled.

    Example:
        >>> limits = np.r_[np.zeros(100), np.arange(100) % 20 * 500 + 500]
        >>> frame = pd.DataFrame({"card": np.repeat(["no", "yes"], 100), "limit": limits})
        >>> card = Feature(name="card", kind="category", dtype=np.dtype(object), levels=("no", "yes"))
        >>> limit = Feature(name="limit", kind="integer", dtype=np.dtype(float), maximum=10000.0, step=500.0)
        >>> reveal_special(frame, [card, limit], ["limit"])
        {'limit': (0.0,)}
    """
    used = [f for f in features if f.is_number or f.has_levels]
    rows = rows_to_read(len(frame), len(used))
    columns = [_read_column(frame[f.name].iloc[rows], f, f.name in names) for f in used]
    return _FixedValues(columns).revealed() if any(len(column.tried) for column in columns) else {}


@dataclass(frozen=True, eq=False)
class _ColumnStates:
    """States of a column, and values that may become one.

    Attributes:
        feature: Its feature.
        codes: The state or value of each row, -1 for any other.
        n_known: Number of states; codes from there on are values that are tried.
        tried: These values.
        n_others: Number of distinct values that are not special.
    """

    feature: Feature
    codes: IntArray
    n_known: int
    tried: FloatArray
    n_others: int = 0


def _read_column(cells: pd.Series, feature: Feature, open_: bool) -> _ColumnStates:
    if not feature.is_number:
        codes, n = read_level_codes(cells, feature.levels), len(feature.levels)
        return _ColumnStates(feature, np.where(codes == -1, n, codes), n + 1, np.zeros(0))
    values, _ = read_numbers(cells)
    codes = special_codes(values, feature.special, float_dtype(cells.dtype)) - 1
    n = len(feature.special)
    known, counts = np.unique(values[(codes < 0) & np.isfinite(values)], return_counts=True)
    codes[np.isnan(values)] = n
    tried = _values_to_try(known, counts) if open_ else np.zeros(0)
    place = np.searchsorted(tried, values)
    hit = (codes < 0) & (place < len(tried))
    hit[hit] = tried[place[hit]] == values[hit]
    codes[hit] = n + 1 + place[hit]
    return _ColumnStates(feature, codes, n + 1, tried, len(known))


def _values_to_try(values: FloatArray, counts: IntArray) -> FloatArray:
    """Return the ends and the most common of distinct values that have enough rows, ascending."""
    if len(values) <= OTHERS:
        return np.zeros(0)
    chosen = {0, len(values) - 1, *np.argsort(-counts, kind="stable")[:MOST].tolist()}
    kept = [i for i in sorted(chosen) if counts[i] >= FEWEST_ROWS and abs(values[i]) < EXACT]
    return values[kept] + 0.0


class _FixedValues:
    """The states of all columns, and which of them fix which values."""

    def __init__(self, columns: Sequence[_ColumnStates]) -> None:
        self.columns = columns
        codes = np.stack([column.codes for column in columns], axis=1)
        self.n = len(codes)
        starts = np.cumsum([0, *(column.n_known + len(column.tried) for column in columns)])
        rows, places = np.nonzero(codes >= 0)
        states = codes[rows, places] + starts[places]
        totals = np.bincount(states, minlength=int(starts[-1]))
        kept = np.flatnonzero(totals >= FEWEST_ROWS)
        kept = np.sort(kept[np.argsort(-totals[kept], kind="stable")][:MOST_STATES])
        self.one_hot = sparse.csr_matrix(
            (np.ones(len(rows)), (rows, states)), shape=(self.n, int(starts[-1]))
        )[:, kept]
        self.totals = totals[kept].astype(np.float64)
        self.column = np.searchsorted(starts, kept, side="right") - 1
        self.code = kept - starts[self.column]
        self.is_tried = self.code >= np.array([column.n_known for column in columns])[self.column]

    @cached_property
    def fixed(self) -> Mask:
        """Which states fix which tried values, shape ``(states, tried values)``."""
        tried = np.flatnonzero(self.is_tried)
        both = np.asarray((self.one_hot.T @ self.one_hot[:, tried]).toarray())
        apart = self.column[:, None] != self.column[tried][None]
        evidence = Evidence(both.size)
        broken, chance = self.totals[:, None] - both, 1 - self.totals[tried][None] / self.n
        return np.asarray(apart & evidence.accepts(broken, self.totals[:, None], chance))

    def revealed(self) -> dict[str, tuple[float, ...]]:
        """Return the values that are revealed, by name of their feature."""
        tried, fixed = np.flatnonzero(self.is_tried), self.fixed.copy()
        fixed[tried] &= fixed[tried].T  # two values that are tried must fix each other
        found: dict[int, set[int]] = {}
        for j, column in enumerate(self.columns):
            mine = np.flatnonzero(self.column[tried] == j)
            by = {i: fixed[self.column == i][:, mine].any(axis=0) for i in np.unique(self.column).tolist()}
            places = {int(mine[hit.argmax()]) for hit in by.values() if hit.sum() == 1}
            if len(places) <= MOST and column.n_others - len(places) >= OTHERS:
                found[j] = {int(self.code[tried[p]]) - column.n_known for p in places}
        return {
            self.columns[j].feature.name: tuple(self.columns[j].tried[sorted(codes)].tolist())
            for j, codes in found.items()
            if codes
        }
