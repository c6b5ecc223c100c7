"""Why a row has no action, in words."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from plausiflow.constraints import CompiledRules
from plausiflow.groups.pairs import Trials
from plausiflow.tables import Encoder, ObjectArray

NO_ACTION = "no action was found for this target"
NO_DECISION = "no action changes its decision"
NOT_ALLOWED = "no action is allowed for it"
NOT_PLAUSIBLE = "the actions that change its decision leave it too implausible, or break a rule"


def uncovered_reasons(
    rules: CompiledRules, encoder: Encoder, frame: pd.DataFrame, x: Tensor, trials: Trials, action: Tensor
) -> ObjectArray:
    """Return why rows have no action; empty for those that have one.

    Args:
        rules: All rules.
        encoder: Encoder of the table.
        frame: The rows.
        x: The same rows, encoded, shape ``(n, width)``.
        trials: The rows after each action for their target.
        action: The action of each row, -1 for none, shape ``(n,)``.
    """
    n = len(x)
    tried, allowed, possible = (
        torch.zeros(n, dtype=torch.long).index_add_(0, trials.rows, mask.long())
        for mask in (torch.ones_like(trials.valid), trials.allowed, trials.possible)
    )
    conditions = [action >= 0, tried == 0, possible > 0, allowed > 0]
    texts = ["", NO_ACTION, NOT_PLAUSIBLE, NO_DECISION]
    reason = np.select([part.numpy() for part in conditions], texts, NOT_ALLOWED).astype(object)
    blocked = torch.from_numpy(reason == NOT_ALLOWED)
    names = _broken_rules(rules, encoder, frame, x, _cheapest(trials, blocked))
    for row, name in names.items():
        reason[row] = f"{NOT_ALLOWED}: the cheapest one breaks {name}"
    return reason


def _cheapest(trials: Trials, which: Tensor) -> Trials:
    """Return the cheapest action of some rows, given by a mask ``(n,)``."""
    places = which[trials.rows].nonzero()[:, 0]
    places = places[torch.argsort(trials.cost[places], stable=True)]
    places = places[torch.argsort(trials.rows[places], stable=True)]
    rows = trials.rows[places]
    return trials[places[torch.searchsorted(rows, rows) == torch.arange(len(rows))]]


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
