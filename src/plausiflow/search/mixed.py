"""The search for counterfactuals of a table: categories are candidates, numbers are solved.

1. Candidates: the row itself, verified real rows near by, a beam of changed categories.
2. The numbers of all (row, candidate) pairs are solved in one batch; flips that alone cost more than an
   answer in hand are not.
3. The best few answers of each row give back what they can spare (:mod:`plausiflow.search.sparsify`),
4. are put on the grids of their columns and checked there (:mod:`plausiflow.search.rounding`),
5. and a row without an answer gets the cheapest verified real row there is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from plausiflow.progress import progress_bar
from plausiflow.search.candidates import MORE, RealRows, beam
from plausiflow.search.rounding import snapped
from plausiflow.search.sparsify import sparsified
from plausiflow.search.task import Candidates, Task

ROWS_AT_ONCE, ROWS_ON_GPU, FEW_ROWS = 256, 16_384, 4


@dataclass(frozen=True, kw_only=True)
class MixedSearch:
    """How thoroughly to search.

    Attributes:
        real_rows: Verified real rows that a search may start from.
        flips: Whether to try changed categories beyond those of real rows.
        sparsity: How much more an answer with fewer changes may cost, as a share; nothing keeps all changes.
        finalists: SearchResult of each row that are made sparse and put on the grid.
    """

    real_rows: int = 4
    flips: bool = True
    sparsity: float | None = 0.1
    finalists: int = 2

    def lighter(self) -> MixedSearch:
        """For whether there is an answer at all."""
        return replace(self, real_rows=4, sparsity=None, finalists=1)

    def quicker(self) -> MixedSearch:
        """For rows that few answers are expected of: as it is."""
        return self

    def wider(self, count: int) -> MixedSearch:
        """For many answers, to choose ``count`` of."""
        return replace(self, real_rows=2 * self.real_rows, finalists=3 * count)

    @torch.no_grad()
    def run(self, task: Task, bank: RealRows, *, keep: int = 1) -> Candidates:
        """Up to ``keep`` answers for each row of the task, cheapest first."""
        parts = []
        with progress_bar("Searching rows", len(task)) as advance:
            at_once = ROWS_ON_GPU if task.x.is_cuda else ROWS_AT_ONCE
            for rows in torch.arange(len(task), device=task.x.device).split(at_once):
                parts.append(self._some(task, bank, rows[task.allowance.possible[rows]], keep))
                advance(len(rows), "")
        return Candidates.joined(*parts) if parts else task.candidates(task.y_target[:0], task.x[:0])

    def _some(self, task: Task, bank: RealRows, rows: Tensor, keep: int) -> Candidates:
        few = 1 if task.allowance.max_changes is None else 3
        found = self.dense(task, bank, rows).best(few * max(self.finalists, keep))
        if self.sparsity is not None or task.allowance.max_changes is not None:
            found = sparsified(task, found, self.sparsity or 0.0)
        final = snapped(task, found).answers
        missing = rows[~torch.isin(rows, final.rows)]
        if len(missing):
            real = bank.near(task, missing, keep, among=MORE)
            real = task.checked(real).answers
            final = Candidates.joined(final, real)
            missing = missing[~torch.isin(missing, real.rows)]
        if len(missing):
            final = Candidates.joined(final, bank.anywhere(task, missing, keep))
        return final.distinct().best(keep)

    def dense(self, task: Task, bank: RealRows, rows: Tensor) -> Candidates:
        """SearchResult of any number of changes, numbers anywhere between grid points."""
        real = bank.near(task, rows, self.real_rows)
        own = task.candidates(rows, task.x[rows])
        # Real rows' categories with the row's own numbers, where these may stand.
        levelled = task.layout.with_codes(task.x[real.rows], task.layout.codes(real.x))
        first = Candidates.joined(own, task.candidates(real.rows, levelled), real).distinct()
        if not self.flips:
            return Candidates.joined(task.solved(first), real).answers.distinct()
        turned = beam(task, rows, bank.typical)
        alone = task.layout.with_codes(task.x[turned.rows], task.layout.codes(turned.x))
        flips = task.costs(alone, turned.rows)
        # A flip that alone costs more than an answer in hand is not worth a search. Few rows do not wait for
        # that answer: one search of all costs less than two.
        few = len(rows) <= FEW_ROWS
        both = task.solved(Candidates.joined(first, turned) if few else first)
        found = Candidates.joined(both[torch.arange(len(first), device=rows.device)], real)
        best = task.x.new_full((len(task),), torch.inf)
        best.scatter_reduce_(0, found.rows, found.cost, "amin")
        cheap = (flips < best[turned.rows]).nonzero()[:, 0]
        solved = both[len(first) + cheap] if few else task.solved(turned[cheap])
        return Candidates.joined(found, solved).answers.distinct()
