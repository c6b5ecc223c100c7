"""Splits of categories by sets of levels, as libraries make them for categorical columns.

A split that sends some levels to one side reads a *set column*: zero where the level goes left, one where it
goes right, and missing where the category is missing. So trees with such splits are forests of numbers, over
the columns of the model and the set columns behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from plausiflow.models.sklearn.columns import Fitted, UnsupportedModelError

Array = npt.NDArray[np.float64]
THRESHOLD = 0.5
"""Between the two values of a set column."""


@dataclass(eq=False)
class LevelSets:
    """The sets of levels of the splits of a model, numbered in the order in which they are met.

    Attributes:
        n_columns: Number of columns of the model.
        sets: For each set column, the column of its category, the levels, and whether these go left.
        numbers: Returns the columns of the model as numbers, where only the library knows its levels.
    """

    n_columns: int
    sets: dict[tuple[int, frozenset[int], bool], int] = field(default_factory=dict)
    numbers: Callable[[pd.DataFrame | Array], Array] | None = None

    def column(self, category: int, levels: Iterable[int], *, left: bool) -> int:
        """Return the set column of a split; ``left`` tells whether the levels go left."""
        key = category, frozenset(map(int, levels)), left
        return self.sets.setdefault(key, self.n_columns + len(self.sets))

    @property
    def owners(self) -> list[int]:
        """The column of the category of each set column."""
        return [category for category, _, _ in self.sets]

    def cells(self, estimator: Fitted, rows: pd.DataFrame | Array) -> Array:
        """Return the columns of the model as numbers, and behind them the set columns."""
        return self.append(level_numbers(estimator, rows) if self.numbers is None else self.numbers(rows))

    def append(self, cells: Array) -> Array:
        """Append the set columns to the columns of the model, in which categories are level numbers."""
        parts = [cells]
        for category, levels, left in self.sets:
            codes = cells[:, category]
            inside = np.isin(codes, list(levels))
            parts.append(np.where(np.isnan(codes), np.nan, (inside != left).astype(np.float64))[:, None])
        return np.concatenate(parts, axis=1)


def column_order(estimator: Fitted) -> npt.NDArray[np.int64] | None:
    """Return the order in which scikit-learn's boosting takes columns, with categories first; or None."""
    categorical = getattr(estimator, "is_categorical_", None)
    if categorical is None or not np.any(categorical):
        return None
    mask = np.asarray(categorical, dtype=bool)
    return np.concatenate([np.flatnonzero(mask), np.flatnonzero(~mask)])


def level_numbers(estimator: Fitted, rows: pd.DataFrame | Array) -> Array:
    """Return the columns of a model as numbers, categories as the level numbers of its library."""
    if column_order(estimator) is not None:
        return np.asarray(estimator._preprocess_X(rows, reset=False), dtype=np.float64)
    if not isinstance(rows, pd.DataFrame):
        return np.asarray(rows, dtype=np.float64)
    booster = getattr(estimator, "booster_", None)
    known: Sequence[Sequence[object]] = getattr(booster, "pandas_categorical", None) or ()
    columns, categories = [], 0
    for name in rows:
        column = rows[name]
        if isinstance(column.dtype, pd.CategoricalDtype):
            if known:  # LightGBM numbers the levels of its training rows
                column = column.cat.set_categories(known[categories])
            categories += 1
            codes = column.cat.codes.to_numpy().astype(np.float64)
            columns.append(np.where(codes < 0, np.nan, codes))
        else:
            columns.append(column.to_numpy(dtype=np.float64, na_value=np.nan))
    return np.stack(columns, axis=1) if columns else np.zeros((len(rows), 0))


def bitset_levels(bits: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    """Return the levels whose bits are set, of words with 32 bits."""
    return np.flatnonzero(np.unpackbits(np.ascontiguousarray(bits).view(np.uint8), bitorder="little"))


def refuse_sets(name: str) -> UnsupportedModelError:
    """Return the error of a reader that was given no sets."""
    return UnsupportedModelError(f"{name} splits categorical columns by sets of levels")
