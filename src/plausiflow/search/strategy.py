"""What a search over the rows of a task offers, and how rows are split into batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Self

import torch
from torch import Tensor

from plausiflow.core import table_rows_per_search
from plausiflow.progress import progress_bar
from plausiflow.search.bank import Bank
from plausiflow.search.candidates import Candidates
from plausiflow.search.task import SearchTask


class SearchStrategy(Protocol):
    """How the rows of a task are searched."""

    @property
    def finalists(self) -> int:
        """Answers of each row that are kept in case one does not hold when decoded."""
        ...

    @property
    def max_extra_cost(self) -> float:
        """How much more an answer that is easier to follow may cost, as a share of the cheapest."""
        ...

    def run(self, task: SearchTask, bank: Bank, *, keep: int = 1) -> Candidates:
        """Return up to ``keep`` feasible candidates for each row of the task, cheapest first.

        A row may also get candidates of infinite cost that only change more features than allowed.
        """
        ...

    def continued(self, task: SearchTask, bank: Bank, starts: Candidates, *, keep: int = 1) -> Candidates:
        """Return what :meth:`run` returns, with less effort: answers near by are known.

        ``starts`` are answers that keep features which may not change now.
        """
        ...

    @property
    def relaxes(self) -> bool:
        """Whether a run also searches without the margin for rows that have no answer inside it."""
        ...

    def lighter(self) -> Self:
        """Return a strategy that finds answers which may change more features than needed."""
        ...

    def prover(self, *, far: bool = False) -> Self:
        """Return a strategy that only finds out whether there is an answer, whatever it costs.

        ``far`` says that an answer with many changes is as good as any.
        """
        ...

    def quicker(self) -> Self:
        """Return a strategy for rows that few answers are expected for."""
        ...

    def wider(self, k: int) -> Self:
        """Return a strategy that finds many answers, to choose ``k`` from."""
        ...

    def with_extra_cost(self, max_extra_cost: float) -> Self:
        """Return a strategy that pays another share of extra cost for fewer changes."""
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
