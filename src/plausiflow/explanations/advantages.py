"""What speaks for each of several answers of a row: least cost, fewest changes, most certain."""

from __future__ import annotations

import numpy as np
import pandas as pd

from plausiflow.tables import IntArray

LEAST_COST, FEWEST_CHANGES, MOST_CERTAIN = "least cost", "fewest changes", "most certain"


def find_advantages(of: IntArray, figures: pd.DataFrame) -> list[list[str]]:
    """Return what each answer is best at among those of its row; nothing for an only answer.

    The most certain one is that with the largest share of retrained models, where these were asked, and then
    with the largest probability. An answer is best at something only if another one is worse at it.

    Example:
        >>> figures = pd.DataFrame({"cost": [1.0, 2.0], "n_changes": [3, 2], "probability": [0.6, 0.6]})
        >>> find_advantages(np.array([0, 0]), figures)
        [['least cost'], ['fewest changes']]
    """
    advantages: list[list[str]] = [[] for _ in range(len(of))]
    several = np.flatnonzero(np.bincount(of) > 1).tolist()  # answers are ordered by row
    certainty = [name for name in ("lasting", "probability") if name in figures]
    measures = [(LEAST_COST, ["cost"], 1.0), (FEWEST_CHANGES, ["n_changes"], 1.0)]
    for name, columns, sign in [*measures, (MOST_CERTAIN, certainty, -1.0)]:
        values = sign * figures[columns].to_numpy(np.float64)
        for row in several:
            own = np.arange(*np.searchsorted(of, [row, row + 1]))
            keys = [tuple(values[place]) for place in own]
            if not np.isnan(values[own]).any() and min(keys) < max(keys):
                for place, key in zip(own.tolist(), keys, strict=True):
                    if key == min(keys):
                        advantages[place].append(name)
    return advantages
