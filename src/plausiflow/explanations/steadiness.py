"""Answers of a model without gradients must hold around themselves: one that does nowhere is not found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import torch

from plausiflow.search import FINAL_CORNERS, SearchResult

UNSTEADY = (
    f"the model decides a row as wanted, but none of {FINAL_CORNERS} rows a thousandth of each range away"
)


def drop_unsteady(
    found: SearchResult, figures: pd.DataFrame, *, relaxed: bool
) -> tuple[SearchResult, pd.DataFrame]:
    """Return a result and its figures without answers whose ``steady`` is 0.

    A row that has no other answer is infeasible, and its best one becomes a near miss. With ``relaxed`` it
    keeps that one as a relaxed answer.
    """
    of, status, reason = found.of.numpy(), found.status.copy(), found.reason.copy()
    steady = figures["steady"].to_numpy() if "steady" in figures else np.ones(len(of))
    unsteady = (steady == 0) & (status[of] == "found")
    if not unsteady.any():
        return found, figures
    lost = np.setdiff1d(of[unsteady], of[~unsteady])
    best = np.searchsorted(of, lost)  # answers are ordered by row, the best first
    status[lost], reason[lost] = "relaxed" if relaxed else "infeasible", UNSTEADY
    kept = ~unsteady
    if relaxed:
        kept[best] = True
    else:
        missed = found.decoded.iloc[best]
        found = replace(
            found,
            misses=pd.concat([found.misses, missed]) if len(found.misses) else missed,
            misses_of=np.append(found.misses_of, lost),
            misses_why=[*found.misses_why, *[UNSTEADY] * len(lost)],
        )
    place = torch.from_numpy(kept.nonzero()[0])
    result = replace(
        found,
        status=status,
        reason=reason,
        of=found.of[place],
        x_cf=found.x_cf[place],
        decoded=found.decoded.iloc[place.numpy()].reset_index(drop=True),
        cost=found.cost[place],
        score=found.score[place],
        roles=None if found.roles is None else found.roles.select(place),
    )
    return result, figures.iloc[place.numpy()].reset_index(drop=True)
