"""The encoded columns of RecourseBench as columns of a table, and back.

RecourseBench passes encoded rows to methods: a category is a group of columns that are zero or one, one-hot
(``job_cat_0``, ``job_cat_1``) or a thermometer (``grade_therm_0`` ≤ …). A method that changed these columns
one by one could leave the codes, so each group becomes one column with the number of its level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class EncodedGroups:
    """The groups of encoded columns.

    Attributes:
        columns: Encoded columns, in the order of the data set.
        groups: Encoded columns of each category, by its name.
    """

    columns: tuple[str, ...]
    groups: Mapping[str, tuple[str, ...]]

    @classmethod
    def from_encoding(cls, columns: Sequence[str], encoding: Mapping[str, Sequence[str]]) -> EncodedGroups:
        """Return the groups of ``encoding`` that have more than one of these columns."""
        groups = {
            str(name): tuple(map(str, own))
            for name, own in encoding.items()
            if len(own) > 1 and set(map(str, own)) <= set(columns)
        }
        return cls(tuple(columns), groups)

    @property
    def ordered(self) -> list[str]:
        """Names of the thermometers, whose levels have an order."""
        return [name for name, own in self.groups.items() if all("_therm_" in column for column in own)]

    def source(self, column: str) -> str:
        """Return the column of the table that an encoded column belongs to."""
        return next((name for name, own in self.groups.items() if column in own), column)

    def to_table(self, encoded: pd.DataFrame) -> pd.DataFrame:
        """Return encoded rows as a table with one column for each group."""
        grouped = {column for own in self.groups.values() for column in own}
        table = encoded[[column for column in self.columns if column not in grouped]].astype(np.float64)
        for name, own in self.groups.items():
            values = encoded[list(own)].to_numpy(np.float64)
            level = (values >= 0.5).sum(axis=1) - 1 if name in self.ordered else values.argmax(axis=1)
            table[name] = pd.Series(level, index=encoded.index).astype(np.int64)
            if name not in self.ordered:
                table[name] = "level " + table[name].astype(str)
        return table

    def to_encoded(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return a table as encoded rows; it is the inverse of :meth:`to_table`."""
        columns = {name: table[name].to_numpy(np.float64) for name in table.columns if name in self.columns}
        for name, own in self.groups.items():
            text = table[name].astype(str).str.removeprefix("level ")
            level, places = text.astype(np.float64).to_numpy()[:, None], np.arange(len(own))
            values = places <= level if name in self.ordered else places == level
            columns |= {column: values[:, i].astype(np.float64) for i, column in enumerate(own)}
        return pd.DataFrame(columns, index=table.index)[list(self.columns)]
