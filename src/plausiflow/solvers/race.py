"""Searches of the same row that compete, because only the cheapest answers of a row are of interest.

A row of a table has many candidates: combinations of categories whose numbers are solved. After a few
iterations the quadratic program of each search tells about what its answer will cost, and the searches of a
row that look most expensive end.
"""

from __future__ import annotations

import torch

from plausiflow.core import Race
from plausiflow.solvers.iteration import SQPState

KEPT = {2: 4.0, 5: 2.0, 9: 1.0}
"""How many searches of a row go on after these numbers of iterations, in multiples of the answers wanted."""


def end_losers(race: Race, state: SQPState, iteration: int) -> None:
    """End the searches that look too expensive after an iteration, in place."""
    if iteration not in KEPT:
        return
    most = max(1, round(KEPT[iteration] * race.answers))
    # Single precision: of searches that look the same, rounding in a batch must not choose.
    total = race.total(torch.minimum(state.best_cost, state.expected), state.rows).float()
    total = torch.where(state.active, total, torch.inf)
    owners = race.owners[state.rows]
    order = torch.argsort(state.rows, stable=True)
    order = order[torch.argsort(total[order], stable=True)]
    order = order[torch.argsort(owners[order], stable=True)]
    ranked = owners[order]
    place = torch.arange(len(order), device=order.device) - torch.searchsorted(ranked, ranked)
    state.active[order[place >= most]] = False
