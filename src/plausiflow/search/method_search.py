"""Any method as the search over a table: its points go to the table's grid and are checked as all others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

import torch
from torch import Tensor

from plausiflow.core import Solution
from plausiflow.search.bank import Bank, transplant
from plausiflow.search.candidates import Candidates
from plausiflow.search.rounding import on_grid
from plausiflow.search.strategy import search_in_batches
from plausiflow.search.task import SearchTask


class RowSearch(Protocol):
    """A method's search over encoded rows."""

    def search(self, x: Tensor, y_target: Tensor) -> Solution:
        """Return a point for every row ``(n, d)``, NaN where there is none."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class MethodSearch:
    """The search strategy of a method, such as nearest rows, FACE or DiCE.

    The method proposes one encoded point for each row. Categories become the level with the largest value,
    numbers go to their grids and into their bounds; then model, density and rules decide as always.

    Attributes:
        method: A fitted method.
        finalists: Answers of each row.
    """

    method: RowSearch
    finalists: int = 1

    @property
    def relaxes(self) -> bool:
        """Whether a run also searches without the margin: no, a method has no margin."""
        return False

    def continued(self, task: SearchTask, bank: Bank, starts: Candidates, *, keep: int = 1) -> Candidates:
        """Return what :meth:`run` returns: a method knows no starts."""
        return self.run(task, bank, keep=keep)

    def lighter(self) -> Self:
        """Return the strategy itself."""
        return self

    def prover(self, *, far: bool = False) -> Self:
        """Return the strategy itself."""
        return self

    def quicker(self) -> Self:
        """Return the strategy itself."""
        return self

    def wider(self, k: int) -> Self:
        """Return the strategy itself: a method proposes one point for each row."""
        return self

    @property
    def max_extra_cost(self) -> float:
        """Nothing: the answers of a method stay as they are."""
        return 0.0

    def with_extra_cost(self, max_extra_cost: float) -> Self:
        """Return the strategy itself: a method decides how many features it changes."""
        return self

    @torch.no_grad()
    def run(self, task: SearchTask, bank: Bank, *, keep: int = 1) -> Candidates:
        """Return the feasible points of the method, at most one for each row of the task."""
        return search_in_batches(task, lambda rows: self._search(task, rows), black_box=True)

    def _search(self, task: SearchTask, rows: Tensor) -> Candidates:
        with torch.enable_grad():
            proposed = self.method.search(task.x[rows], task.y_target[rows]).x.detach().to(task.x)
        found = torch.isfinite(proposed).all(dim=1)
        own, x = rows[found], proposed[found]
        x = transplant(task, task.layout.with_codes(x, task.layout.codes(x)), own)
        placed = on_grid(task, task.candidates(own, x))
        return task.check(task.candidates(own, placed)).feasible
