"""Answers for rows of a table, and why there is none: what an explainer asks.

A finder holds everything that was fitted. It makes tasks of rows, searches them, and where a row has no
answer looks for the rule that blocks it, by searching again without each rule in turn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pandas as pd
import torch
from torch import Tensor

from plausiflow.constraints import Immutable, Rules
from plausiflow.data.cells import Mask
from plausiflow.protocols import Plausibility
from plausiflow.search.candidates import RealRows
from plausiflow.search.diverse import diverse
from plausiflow.search.guide import Guide
from plausiflow.search.mixed import MixedSearch
from plausiflow.search.task import Candidates, Task, Validity
from plausiflow.solvers import SQP

ROWS_ASKED_WHY, RULES_ASKED = 200, 12
LIGHT = MixedSearch(real_rows=4, sparsity=None, finalists=1)


class Anything:
    """A plausibility that every row has, for answers that need not be plausible."""

    def score(self, x: Tensor, y: Tensor) -> Tensor:
        """One, whatever comes, shape ``(n,)``."""
        return torch.ones_like(x[:, 0]) if x.shape[1] else x.new_ones(len(x))


@dataclass(frozen=True, kw_only=True, eq=False)
class Finder:
    """What is known after ``fit``, as a search needs it.

    Attributes:
        rules: What may change.
        validity: Whether the model decides as wanted.
        plausibility: Fitted.
        bank: Training rows that satisfy both, by class.
        wider_bank: Training rows that do so without the margin for a second opinion; by default the same.
        weights: Cost of each feature, in the order of the layout's blocks.
        search: How thoroughly to search.
    """

    rules: Rules
    validity: Validity
    plausibility: Plausibility
    bank: RealRows
    weights: Tensor
    wider_bank: RealRows | None = None
    search: MixedSearch = field(default_factory=MixedSearch)

    def task(
        self,
        x: Tensor,
        y_target: Tensor,
        *,
        frame: pd.DataFrame | None = None,
        locked: Mask | None = None,
        without: int | None = None,
        guide: Guide | None = None,
    ) -> Task:
        """What is asked for these rows, all rules in force but for ``without``."""
        rule = None if without is None else self.rules.constraints[without]
        freed = set(rule.features) if isinstance(rule, Immutable) else set()
        return Task(
            layout=self.rules.layout,
            x=x,
            y_target=y_target,
            validity=self.validity,
            guide=guide or Guide(self.plausibility, x, y_target),
            allowance=self.rules.for_rows(x, frame, locked, without),
            weights=self.weights,
            immutable=frozenset(self.rules.immutable) - freed,
            least=self.bank.least,
            solver=SQP(),
        )

    def find(self, task: Task, count: int = 1, *, wider: bool = False) -> Candidates:
        """At least ``count`` answers for each row where there are, cheapest first, different from each other.

        For one, the runners-up come along, in case it does not hold when decoded. ``wider`` is for tasks
        that need no margin.
        """
        bank = self.wider_bank if wider and self.wider_bank is not None else self.bank
        if count == 1:
            return self.search.run(task, bank, keep=self.search.finalists)
        return diverse(task, bank, self.search, count)

    def blocking(
        self,
        x: Tensor,
        y_target: Tensor,
        *,
        frame: pd.DataFrame,
        locked: Mask | None,
        stop: Callable[[], bool] = lambda: False,
    ) -> list[list[str]]:
        """For each row the rules without which it would have an answer, each on its own.

        Only for the first ``ROWS_ASKED_WHY`` rows and ``RULES_ASKED`` rules, and until ``stop`` says so: the
        work is bounded.
        """
        blame: list[list[str]] = [[] for _ in range(len(x))]
        some = slice(0, ROWS_ASKED_WHY)
        asked = [(str(rule), i) for i, rule in enumerate(self.rules.constraints[:RULES_ASKED])]
        for name, i in [*asked, *([("locked", None)] if locked is not None and locked[some].any() else [])]:
            if stop():
                break
            task = self.task(
                x[some],
                y_target[some],
                frame=frame.iloc[some],
                locked=None if i is None or locked is None else locked[some],
                without=i,
            )
            for row in LIGHT.run(task, self.bank).rows.unique().tolist():
                blame[row].append(name)
        return blame

    def nearest_misses(
        self, x: Tensor, y_target: Tensor, *, frame: pd.DataFrame, locked: Mask | None
    ) -> Candidates:
        """The cheapest rows that are valid and allowed but not plausible enough."""
        guide = Guide(Anything(), x, y_target)
        task = self.task(x, y_target, frame=frame, locked=locked, guide=guide)
        return self.search.run(task, self.bank, keep=2)
