"""Why a row has no answer: the rules that block it, and the nearest row that is only not plausible."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import torch
from torch import Tensor

from plausiflow.core import Targets
from plausiflow.densities import row_scores
from plausiflow.search.candidates import Candidates
from plausiflow.search.engine import Engine
from plausiflow.tables import Mask

MOST_ROWS, MOST_RULES = 200, 12
LOCKS = "the lock on some features"


class AlwaysPlausible:
    """A plausibility that every row passes."""

    def score(self, x: Tensor, y: Tensor) -> Tensor:
        """Return one for every row, shape ``(n,)``."""
        return torch.ones_like(x[:, 0]) if x.shape[1] else x.new_ones(len(x))


def blocking_rules(
    engine: Engine,
    x: Tensor,
    targets: Targets,
    *,
    frame: pd.DataFrame,
    locked: Mask | None,
    stop: Callable[[], bool] = lambda: False,
) -> list[list[str]]:
    """Return for each row the rules without any one of which it would have an answer.

    The work is bounded: only the first ``MOST_ROWS`` rows and ``MOST_RULES`` rules are tried, until ``stop``
    returns True.
    """
    blocking: list[list[str]] = [[] for _ in range(len(x))]
    some = torch.arange(min(len(x), MOST_ROWS))
    own = None if locked is None else locked[: len(some)]
    tried = [(str(rule), i) for i, rule in enumerate(engine.rules.constraints[:MOST_RULES])]
    for name, i in [*tried, *([(LOCKS, None)] if own is not None and own.any() else [])]:
        if stop():
            break
        task = engine.task(
            x[some],
            targets[some],
            frame=frame.iloc[some.numpy()],
            locked=None if i is None else own,
            without_rule=i,
        )
        for row in engine.strategy.lighter().run(task, engine.bank).rows.unique().tolist():
            blocking[row].append(name)
    return blocking


def nearest_misses(
    engine: Engine, x: Tensor, targets: Targets, *, frame: pd.DataFrame, locked: Mask | None
) -> Candidates:
    """Return the cheapest rows that are valid and allowed, but not plausible enough."""
    scores = row_scores(AlwaysPlausible(), x, targets.y)
    task = engine.task(x, targets, frame=frame, locked=locked, scores=scores)
    return engine.strategy.quicker().run(task, engine.bank, keep=2)
