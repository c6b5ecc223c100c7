"""Why a row has no action, in words."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from plausiflow.constraints import CompiledRules
from plausiflow.explanations import format_value
from plausiflow.groups.actions import Actions
from plausiflow.groups.pairs import Trials
from plausiflow.tables import Block, CellValue, Encoder, ObjectArray

NO_ACTION = "no action was found for this target"
NO_DECISION = "no action changes its decision"
NOT_ALLOWED = "no action is allowed for it"
TOO_EXPENSIVE = "no action helps it at a cost within the limit"
NOT_PLAUSIBLE = "the actions that change its decision leave it too implausible, or break a rule"


def uncovered_reasons(
    rules: CompiledRules,
    encoder: Encoder,
    frame: pd.DataFrame,
    x: Tensor,
    actions: Actions,
    trials: Trials,
    action: Tensor,
    most: float,
) -> ObjectArray:
    """Return why rows have no action; empty for those that have one.

    Args:
        rules: All rules.
        encoder: Encoder of the table.
        frame: The rows.
        x: The same rows, encoded, shape ``(n, width)``.
        actions: The actions.
        trials: The rows after each action for their target.
        action: The action of each row, -1 for none, shape ``(n,)``.
        most: The most that a member may cost.
    """
    trials = trials[(action[trials.rows] < 0).nonzero()[:, 0]]
    stuck = _stuck_numbers(encoder, x, actions, trials)
    moves = stuck.any(dim=1) | (trials.x != x[trials.rows]).any(dim=1)
    masks = torch.ones_like(trials.valid), moves, trials.allowed, trials.possible, trials.cost > most
    tried, moved, allowed, possible, expensive = (
        torch.zeros(len(x), dtype=torch.long).index_add_(0, trials.rows, mask.long()) > 0
        for mask in (*masks[:4], trials.possible & masks[4])
    )
    conditions = [action >= 0, ~tried, possible & expensive, possible, allowed | ~moved]
    texts = ["", NO_ACTION, TOO_EXPENSIVE, NOT_PLAUSIBLE, NO_DECISION]
    reason = np.select([part.numpy() for part in conditions], texts, NOT_ALLOWED).astype(object)
    blocked = torch.from_numpy(reason == NOT_ALLOWED)
    cheapest = _cheapest(trials, moves & blocked[trials.rows])
    names = _broken_rules(rules, encoder, frame, x, trials[cheapest])
    for row, columns in zip(trials.rows[cheapest].tolist(), stuck[cheapest], strict=True):
        reason[row] = f"{NOT_ALLOWED}: the cheapest one breaks {names[row]}"
        if bool(columns.any()):
            reason[row] = f"{NOT_ALLOWED}: the cheapest one moves {_stuck_text(encoder, columns, x[row])}"
    return reason


def _stuck_numbers(encoder: Encoder, x: Tensor, actions: Actions, trials: Trials) -> Tensor:
    """Return the numbers that an action would move and that are in a special state, ``(p, width)`` bool."""
    layout = encoder.layout
    return (actions.moves[trials.which] != 0) & ~layout.free(layout.codes(x))[trials.rows]


def _stuck_text(encoder: Encoder, columns: Tensor, x: Tensor) -> str:
    """Return the first of some numbers of a row ``x`` and its state, such as "income, which is missing"."""
    block = next(b for b in encoder.layout.blocks if b.number is not None and bool(columns[b.number]))
    return f"{block.name}, which is {format_value(_state(encoder, block, x))}"


def _state(encoder: Encoder, block: Block, x: Tensor) -> CellValue:
    return encoder.level_names(block.name)[int(x[block.level_slice].argmax())]


def _cheapest(trials: Trials, which: Tensor) -> Tensor:
    """Return the position of the cheapest of some trials of each row, given by a mask ``(p,)``."""
    places = which.nonzero()[:, 0]
    places = places[torch.argsort(trials.cost[places], stable=True)]
    places = places[torch.argsort(trials.rows[places], stable=True)]
    rows = trials.rows[places]
    return places[torch.searchsorted(rows, rows) == torch.arange(len(rows))]


def _broken_rules(
    rules: CompiledRules, encoder: Encoder, frame: pd.DataFrame, x: Tensor, trials: Trials
) -> dict[int, str]:
    """Return the first rule that each row breaks after its action, by row."""
    if len(trials) == 0:
        return {}
    before, own = frame.iloc[trials.rows.numpy()], x[trials.rows]
    broken = rules.violations(before, encoder.decode(trials.x, like=before, encoded=own), None)
    cells = broken.to_numpy(bool)
    names = [str(name) for name in broken.columns]
    first = {
        int(row): names[int(line.argmax())]
        for row, line in zip(trials.rows, cells, strict=True)
        if line.any()
    }
    return {int(row): first.get(int(row), "the range of the training rows") for row in trials.rows}
