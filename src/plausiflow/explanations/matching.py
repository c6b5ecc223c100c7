"""Matched rows: each row of a group with the nearest row of the others that differs in nothing else.

Rows are compared in all features except those that define the groups. Numbers count by their share of the
training range, levels are equal or not. A pair counts if its rows are as close as typical neighbours of the
same group are. Each row is in one pair at most: a test of pairs that share rows would raise false alarms.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from sklearn.neighbors import NearestNeighbors

from plausiflow.tables import Feature, FloatArray, IntArray, Mask, read_level_codes, read_numbers

CLOSE = 0.5
"""Quantile of the distances between neighbours of the same group that a pair may have at most."""


def feature_matrix(rows: pd.DataFrame, features: Sequence[Feature], without: Sequence[str]) -> FloatArray:
    """Return rows as numbers of comparable size, shape ``(n, columns)``, without some features."""
    columns = []
    for feature in features:
        if feature.name in without or feature.kind in ("identifier", "constant"):
            continue
        if feature.is_number:
            span = (feature.maximum - feature.minimum) or 1.0
            values = (read_numbers(rows[feature.name])[0] - feature.minimum) / span
            columns.append(np.nan_to_num(values, nan=-0.5, posinf=1.5, neginf=-0.5)[:, None])
        else:
            codes = np.asarray(read_level_codes(rows[feature.name], feature.levels))
            levels = np.arange(len(feature.levels))
            # Two different levels are at distance one.
            columns.append((codes[:, None] == levels).astype(np.float64) / np.sqrt(2))
    return np.hstack(columns) if columns else np.zeros((len(rows), 0))


def match_rows(x: FloatArray, group: Mask) -> tuple[IntArray, IntArray, FloatArray]:
    """Match rows of a group with the nearest other rows.

    Args:
        x: Rows as numbers, shape ``(n, columns)``.
        group: Members of the group, shape ``(n,)``.

    Returns:
        Positions of members, of their matches, and the distances of the pairs that are close. Of several
        members with the same match, the nearest one has it.
    """
    inside, outside = np.flatnonzero(group), np.flatnonzero(~group)
    if len(inside) < 3 or len(outside) < 1 or x.shape[1] == 0:
        empty = np.empty(0, dtype=np.int64)
        return empty, empty, np.empty(0)
    own = NearestNeighbors(n_neighbors=2).fit(x[inside]).kneighbors(x[inside])[0][:, 1]
    distance, place = NearestNeighbors(n_neighbors=1).fit(x[outside]).kneighbors(x[inside])
    distance, place = distance[:, 0], place[:, 0]
    order = np.argsort(distance, kind="stable")
    order = order[distance[order] <= np.quantile(own, CLOSE)]
    _, first = np.unique(place[order], return_index=True)
    pairs = np.sort(order[first])
    return inside[pairs], outside[place[pairs]], distance[pairs]
