"""SearchResult for rows of a table, and why there is none: what an explainer asks.

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
from plausiflow.core import Plausibility
from plausiflow.densities import RowScores
from plausiflow.search.black_box import VerifiedSearch
from plausiflow.search.candidates import RealRows
from plausiflow.search.criterion import Targets, ValidityConstraint
from plausiflow.search.diverse import diverse
from plausiflow.search.mixed import MixedSearch
from plausiflow.search.task import Candidates, Task, Validity
from plausiflow.search.true_model import TrueModel
from plausiflow.solvers import SQP
from plausiflow.tables import Mask

ROWS_ASKED_WHY, RULES_ASKED = 200, 12
LOCKS = "the lock on some features"
MANY_ROWS = 512
"""So many are faster on a GPU."""


class Anything:
    """A plausibility that every row has, for answers that need not be plausible."""

    def score(self, x: Tensor, y: Tensor) -> Tensor:
        """One, whatever comes, shape ``(n,)``."""
        return torch.ones_like(x[:, 0]) if x.shape[1] else x.new_ones(len(x))


@dataclass(frozen=True, kw_only=True, eq=False)
class Engine:
    """What is known after ``fit``, as a search needs it.

    Attributes:
        rules: What may change.
        validity: Whether the model answers as wanted, or where it has no gradients its likeness.
        plausibility: Fitted.
        bank: Training rows that satisfy both, by class.
        wider_bank: Training rows that do so without the margin for a second opinion; by default the same.
        weights: Cost of each feature, in the order of the layout's blocks.
        search: How thoroughly to search.
        itself: The model itself, where it has no gradients.
        device: Where searches run: ``auto`` is a CUDA device where there is one and rows are many. A model
            without gradients is asked on the processor.
    """

    rules: Rules
    validity: Validity
    plausibility: Plausibility
    bank: RealRows
    weights: Tensor
    wider_bank: RealRows | None = None
    search: MixedSearch | VerifiedSearch = field(default_factory=MixedSearch)
    itself: TrueModel | None = None
    device: str = "auto"

    def task(
        self,
        x: Tensor,
        wanted: Targets | Tensor,
        *,
        frame: pd.DataFrame | None = None,
        locked: Mask | None = None,
        without: int | None = None,
        guide: RowScores | None = None,
    ) -> Task:
        """What is asked for these rows, all rules in force but for ``without``."""
        wanted = wanted if isinstance(wanted, Targets) else Targets(wanted)
        rule = None if without is None else self.rules.constraints[without]
        freed = set(rule.features) if isinstance(rule, Immutable) else set()
        oracle = None
        if self.itself is not None and frame is not None:
            oracle = self.itself.oracle(frame, x, wanted)
        return Task(
            layout=self.rules.layout,
            x=x,
            wanted=wanted,
            validity=self.validity,
            guide=guide or RowScores(self.plausibility, x, wanted.y),
            allowance=self.rules.for_rows(x, frame, locked, without),
            weights=self.weights,
            immutable=frozenset(self.rules.immutable) - freed,
            least=self.bank.least,
            solver=SQP(),
            oracle=oracle,
        )

    def plain(self, y: Tensor) -> Targets:
        """Any answer of a class, or in a bin of a predicted number, ``(n,)``."""
        return self.validity.aim.of_class(y) if isinstance(self.validity, ValidityConstraint) else Targets(y)

    @torch.no_grad()
    def holds(self, x: Tensor, frame: pd.DataFrame, wanted: Targets) -> Tensor:
        """Whether the model answers as wanted for rows of the table, encoded and as they are, ``(n,)``."""
        if self.itself is None:
            return self.validity(x, wanted) >= 0
        return self.itself.aim.value(self.itself.answer(frame), wanted) >= 0

    def rows_state(self) -> dict[str, Tensor]:
        """Its training rows, as tensors."""
        return self.bank.state("bank") | (self.wider_bank or self.bank).state("wider")

    def find(self, task: Task, count: int = 1, *, wider: bool = False, quick: bool = False) -> Candidates:
        """At least ``count`` answers for each row where there are, cheapest first, different from each other.

        For one, the runners-up come along, in case it does not hold when decoded. ``wider`` is for tasks
        that need no margin, ``quick`` where few answers are expected.
        """
        bank = self.wider_bank if wider and self.wider_bank is not None else self.bank
        search, home = self.search.quicker() if quick else self.search, task.x.device
        task = task.to(self._place(len(task)))
        if count == 1:
            return search.run(task, bank, keep=search.finalists).to(home)
        return diverse(task, bank, search, count).to(home)

    def _place(self, rows: int) -> torch.device:
        """Where so many rows are searched."""
        if self.itself is not None:
            return torch.device("cpu")
        if self.device == "auto":
            return torch.device("cuda" if rows >= MANY_ROWS and torch.cuda.is_available() else "cpu")
        return torch.device(self.device)

    def blocking(
        self,
        x: Tensor,
        wanted: Targets | Tensor,
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
        some = torch.arange(min(len(x), ROWS_ASKED_WHY))
        own = None if locked is None else locked[: len(some)]
        asked = [(str(rule), i) for i, rule in enumerate(self.rules.constraints[:RULES_ASKED])]
        for name, i in [*asked, *([(LOCKS, None)] if own is not None and own.any() else [])]:
            if stop():
                break
            task = self.task(
                x[some],
                wanted[some],
                frame=frame.iloc[some.numpy()],
                locked=None if i is None else own,
                without=i,
            )
            for row in self.search.lighter().run(task, self.bank).rows.unique().tolist():
                blame[row].append(name)
        return blame

    def nearest_misses(
        self, x: Tensor, wanted: Targets | Tensor, *, frame: pd.DataFrame, locked: Mask | None
    ) -> Candidates:
        """The cheapest rows that are valid and allowed but not plausible enough."""
        wanted = wanted if isinstance(wanted, Targets) else Targets(wanted)
        guide = RowScores(Anything(), x, wanted.y)
        task = self.task(x, wanted, frame=frame, locked=locked, guide=guide)
        return self.search.quicker().run(task, self.bank, keep=2)
