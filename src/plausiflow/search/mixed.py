"""The search over tables for models with gradients: categories are candidates, numbers are solved.

1. Candidates: the row itself, verified bank rows near by, a beam of changed categories.
2. The numbers of all (row, candidate) pairs are solved in one batch; changed categories that alone cost more
   than an answer in hand are not.
3. The best few answers of each row are made sparse (:mod:`plausiflow.search.sparsify`),
4. put on the grids of their columns and checked there (:mod:`plausiflow.search.rounding`),
5. and a row without an answer gets its cheapest verified bank row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, Self

import torch
from torch import Tensor

from plausiflow.core import FEW_ROWS, table_rows_per_search
from plausiflow.progress import progress_bar
from plausiflow.search.bank import MORE, Bank
from plausiflow.search.beam import beam
from plausiflow.search.candidates import Candidates
from plausiflow.search.rounding import put_on_grid
from plausiflow.search.sparsify import sparsify
from plausiflow.search.task import SearchTask


class SearchStrategy(Protocol):
    """How the rows of a task are searched."""

    @property
    def finalists(self) -> int:
        """Answers of each row that are kept in case one does not hold when decoded."""
        ...

    def run(self, task: SearchTask, bank: Bank, *, keep: int = 1) -> Candidates:
        """Return up to ``keep`` feasible candidates for each row of the task, cheapest first."""
        ...

    def lighter(self) -> Self:
        """Return a strategy that only finds out whether there is an answer."""
        ...

    def quicker(self) -> Self:
        """Return a strategy for rows that few answers are expected for."""
        ...

    def wider(self, k: int) -> Self:
        """Return a strategy that finds many answers, to choose ``k`` from."""
        ...


def search_in_batches(
    task: SearchTask, search: Callable[[Tensor], Candidates], *, black_box: bool = False
) -> Candidates:
    """Search the rows of a task that can have an answer, batch by batch."""
    parts = []
    size = table_rows_per_search(task.x, black_box=black_box)
    everyone = torch.arange(len(task), device=task.x.device)
    if len(task) <= size:
        return search(everyone[task.allowance.possible])
    with progress_bar("Searching rows", len(task)) as advance:
        for rows in everyone.split(size):
            parts.append(search(rows[task.allowance.possible[rows]]))
            advance(len(rows), "")
    return Candidates.concat(*parts)


@dataclass(frozen=True, kw_only=True)
class MixedSearch:
    """The search for models with gradients.

    Attributes:
        bank_rows: Verified bank rows that a search may start from.
        flips: Whether to try changed categories beyond those of bank rows.
        sparsity: How much more an answer with fewer changes may cost, as a share; None keeps all changes.
        finalists: Answers of each row that are made sparse and put on the grid.
    """

    bank_rows: int = 4
    flips: bool = True
    sparsity: float | None = 0.1
    finalists: int = 2

    def lighter(self) -> Self:
        """Return a strategy that only finds out whether there is an answer."""
        return replace(self, bank_rows=4, sparsity=None, finalists=1)

    def quicker(self) -> Self:
        """Return the strategy itself."""
        return self

    def wider(self, k: int) -> Self:
        """Return a strategy that finds many answers, to choose ``k`` from."""
        return replace(self, bank_rows=2 * self.bank_rows, finalists=3 * k)

    @torch.no_grad()
    def run(self, task: SearchTask, bank: Bank, *, keep: int = 1) -> Candidates:
        """Return up to ``keep`` feasible candidates for each row of the task, cheapest first."""
        return search_in_batches(task, lambda rows: self._search(task, bank, rows, keep))

    def _search(self, task: SearchTask, bank: Bank, rows: Tensor, keep: int) -> Candidates:
        few = 1 if task.allowance.max_changes is None else 3
        found = self.dense(task, bank, rows).cheapest(few * max(self.finalists, keep))
        if self.sparsity is not None or task.allowance.max_changes is not None:
            found = sparsify(task, found, self.sparsity or 0.0)
        final = put_on_grid(task, found).feasible
        missing = rows[~torch.isin(rows, final.rows)]
        if len(missing):
            real = task.check(bank.verified(task, missing, keep, among=MORE)).feasible
            final = Candidates.concat(final, real)
            missing = missing[~torch.isin(missing, real.rows)]
        if len(missing):
            final = Candidates.concat(final, bank.scan(task, missing, keep))
        return final.unique().cheapest(keep)

    def dense(self, task: SearchTask, bank: Bank, rows: Tensor) -> Candidates:
        """Return answers with any number of changes and numbers off their grids."""
        real = bank.verified(task, rows, self.bank_rows)
        own = task.candidates(rows, task.x[rows])
        # Categories of bank rows with the row's own numbers.
        levelled = task.with_levels_of(real)
        first = Candidates.concat(own, task.candidates(real.rows, levelled), real).unique()
        if not self.flips:
            return Candidates.concat(task.solve(first), real).feasible.unique()
        flipped = beam(task, rows, bank.typical)
        codes = task.codes_of(flipped.x)
        alone = task.with_codes(task.x[flipped.rows], codes)
        flip_costs = task.costs(alone, flipped.rows, codes)
        # A flip that alone costs more than an answer in hand is not solved. Few rows do not wait for that
        # answer: one search of all candidates costs less than two.
        few = len(rows) <= FEW_ROWS
        both = task.solve(Candidates.concat(first, flipped) if few else first)
        found = Candidates.concat(both[torch.arange(len(first), device=rows.device)], real)
        best = task.x.new_full((len(task),), torch.inf)
        best.scatter_reduce_(0, found.rows, found.cost, "amin")
        cheap = (flip_costs < best[flipped.rows]).nonzero()[:, 0]
        solved = both[len(first) + cheap] if few else task.solve(flipped[cheap])
        return Candidates.concat(found, solved).feasible.unique()
