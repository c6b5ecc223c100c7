"""Columns of one family are treated alike: ``status_1`` to ``status_6`` have the same kind.

A family is two or more columns of numbers whose names differ in their last number only and that have at least
half of their values in common with the family. If some members are ordered categories and others numbers, all
become ordered categories if each has at most twenty values and at least five rows for each; otherwise all
become numbers on a grid. If a member has no grid, all stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from plausiflow.tables.features import Feature, Kind
from plausiflow.tables.grids import find_grid, float_dtype

MOST_LEVELS, ROWS_PER_LEVEL = 20, 5
_MEMBER = re.compile(r"(.*\D)\d+\D*")


def common_kinds(frame: pd.DataFrame, features: Sequence[Feature]) -> tuple[dict[str, Kind], list[str]]:
    """Return the kinds of columns that differ from their family, and a note for each family.

    ``features`` are those whose kind was inferred.
    """
    families: dict[str, list[Feature]] = {}
    for feature in features:
        found = _MEMBER.fullmatch(feature.name)
        if found and feature.is_numeric and feature.kind in ("ordered", "integer"):
            families.setdefault(found.group(1), []).append(feature)
    kinds: dict[str, Kind] = {}
    notes = []
    for members in families.values():
        values = {feature.name: set(frame[feature.name].dropna().unique()) for feature in members}
        if len({feature.kind for feature in members}) < 2 or not _alike(values):
            continue
        few = all(len(own) <= MOST_LEVELS for own in values.values())
        common = all(frame[name].count() >= ROWS_PER_LEVEL * len(own) for name, own in values.items())
        kind: Kind = "ordered" if few and common else "integer"
        changed = {feature.name: kind for feature in members if feature.kind != kind}
        if kind == "integer" and not all(_has_grid(f) for f in members if f.name in changed):
            continue
        kinds |= changed
        notes.append(
            f"{', '.join(f'`{name}`' for name in changed)} {'is' if len(changed) == 1 else 'are'} treated as "
            f"{kind!r}, like the other columns of the same family. If that is wrong, set the kind: "
            f"kinds={{{next(iter(changed))!r}: {'integer' if kind == 'ordered' else 'ordered'!r}}}."
        )
    return kinds, notes


def _has_grid(feature: Feature) -> bool:
    """Return whether the levels of an ordered category are numbers on a grid."""
    return find_grid(np.array(feature.level_numbers), float_dtype(feature.dtype)) is not None


def _alike(values: Mapping[str, set[object]]) -> bool:
    """Return whether every member has at least half of all values of the family."""
    union = set().union(*values.values())
    return all(2 * len(own) >= len(union) for own in values.values())
