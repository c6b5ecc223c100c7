"""The engine: everything that was fitted, as a search needs it.

It builds tasks from rows, searches them, and verifies what was found on the decoded rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pandas as pd
import torch
from torch import Tensor

from plausiflow.constraints import Allowance, CompiledRules, Immutable, Rule, add_rules
from plausiflow.core import (
    Plausibility,
    RowScores,
    Solver,
    Targets,
    ValidityConstraint,
    Verification,
    search_device,
    verify,
)
from plausiflow.densities import row_scores
from plausiflow.errors import InvalidInputError
from plausiflow.models import TableModel
from plausiflow.search.bank import Bank
from plausiflow.search.candidates import Candidates
from plausiflow.search.costs import CostModel
from plausiflow.search.diverse import search_diverse
from plausiflow.search.durability import Durability
from plausiflow.search.method_search import MethodSearch
from plausiflow.search.mixed import MixedSearch
from plausiflow.search.strategy import SearchStrategy
from plausiflow.search.task import SearchTask
from plausiflow.search.true_model import TrueModel
from plausiflow.solvers import SQP
from plausiflow.tables import Mask


@dataclass(frozen=True, kw_only=True, eq=False)
class Engine:
    """Everything that was fitted, as a search needs it.

    Attributes:
        rules: What may change.
        validity: Whether the model meets a target; that of its surrogate if it has no gradients.
        plausibility: A fitted plausibility.
        bank: Training rows that satisfy both, by class.
        wider_bank: Training rows that do so without the calibrated margin; None for the same as ``bank``.
        reference_bank: Training rows that the model decides for, plausible or not; None for those of the
            banks.
        cost_model: What changes cost.
        strategy: How rows are searched.
        solver: Solver for the numbers.
        true_model: The user's own model, if it has no gradients.
        model: The user's model, which has the last word; None for the outputs that are searched.
        partners: The most common levels of training rows at each level; see :func:`partner_levels`.
        durability: Retrained models that answers must last with; None if nobody asked for it.
        device: Device of searches; see :func:`~plausiflow.core.batches.search_device`. A model without
            gradients runs on the CPU.
    """

    rules: CompiledRules
    validity: ValidityConstraint
    plausibility: Plausibility
    bank: Bank
    cost_model: CostModel
    wider_bank: Bank | None = None
    reference_bank: Bank | None = None
    strategy: SearchStrategy = field(default_factory=MixedSearch)
    solver: Solver = field(default_factory=SQP)
    true_model: TrueModel | None = None
    model: TableModel | None = None
    partners: Tensor | None = None
    durability: Durability | None = None
    device: str = "auto"

    @property
    def lasting(self) -> Engine:
        """The engine whose answers retrained models decide as wanted, too; itself without durability."""
        return self if self.durability is None else self.durability.engine(self)

    def task(
        self,
        x: Tensor,
        targets: Targets | Tensor,
        *,
        frame: pd.DataFrame | None = None,
        locked: Mask | None = None,
        without_rules: frozenset[int] = frozenset(),
        scores: RowScores | None = None,
        allowance: Allowance | None = None,
    ) -> SearchTask:
        """Build the task for some rows.

        Args:
            x: Encoded rows, shape ``(n, width)``.
            targets: Their targets, or target classes alone.
            frame: The same rows of the table; a model without gradients needs them.
            locked: Features that each row keeps, shape ``(n, features)``.
            without_rules: Numbers of rules that do not apply.
            scores: Plausibility of candidates; default: that of the engine, with its margin.
            allowance: What the rules allow, if it is known.
        """
        targets = targets if isinstance(targets, Targets) else Targets(targets)
        left_out = [self.rules.constraints[i] for i in without_rules]
        kept = [rule for rule in self.rules.constraints if rule not in left_out]
        still = {name for rule in kept if isinstance(rule, Immutable) for name in rule.features}
        oracle = None
        if self.true_model is not None and frame is not None:
            oracle = self.true_model.oracle(frame, x, targets)
        if allowance is None:
            allowance = self.rules.for_rows(x, frame, locked, without_rules)
        return SearchTask(
            layout=allowance.layout,
            x=x,
            targets=targets,
            validity=self.validity,
            scores=scores or row_scores(self.plausibility, x, targets.y),
            allowance=allowance,
            cost_model=self.cost_model,
            immutable=frozenset(name for name in self.rules.immutable if name in still),
            solver=self.solver,
            typical=self.bank.typical,
            partners=self.partners,
            oracle=oracle,
        )

    def search(
        self,
        task: SearchTask,
        k: int = 1,
        *,
        count: int | None = None,
        wider: bool = False,
        quick: bool = False,
    ) -> Candidates:
        """Return at least ``k`` different answers for each row that has them, cheapest first.

        For ``k=1`` the runners-up are included, in case the best does not hold when decoded. Candidates of
        infinite cost are no answers: see :meth:`SearchStrategy.run`.

        Args:
            task: The task.
            k: Number of answers.
            count: Number of answers that are returned to choose ``k`` from, if ``k`` is not 1; default ``k``.
            wider: Whether to use the bank of rows without a margin.
            quick: Whether few answers are expected.
        """
        bank = self.wider_bank if wider and self.wider_bank is not None else self.bank
        strategy, home = self.strategy.quicker() if quick else self.strategy, task.x.device
        if self.true_model is None and torch.cuda.is_available():
            task = task.to(search_device(self.device, len(task)))
        if k == 1 or isinstance(strategy, MethodSearch):
            return strategy.run(task, bank, keep=max(k, strategy.finalists)).to(home)
        return search_diverse(task, bank, strategy, k, count).to(home)

    @torch.no_grad()
    def verify(self, x: Tensor, frame: pd.DataFrame, targets: Targets, score: Tensor) -> Verification:
        """Verify decoded rows with the user's own model, by its own ``predict`` where it has one.

        Args:
            x: The decoded rows, encoded again, shape ``(n, width)``.
            frame: The decoded rows.
            targets: Their targets.
            score: Their plausibility scores, shape ``(n,)``.
        """
        criterion = self.validity.criterion
        if self.model is None or len(x) == 0:
            outputs = self.validity.outputs(x) if self.true_model is None else self.true_model.outputs(frame)
            return verify(outputs, targets, criterion, score)
        outputs = self.model.predict_outputs(x, frame)
        decided = self.model.decide(outputs, x, frame) if self.model.labels else None
        return verify(outputs, targets, criterion, score, decided)

    def with_rules(self, constraints: Sequence[Rule]) -> Engine:
        """Return the engine with more rules."""
        if isinstance(constraints, str) or not isinstance(constraints, Sequence):
            raise InvalidInputError(f"`constraints` must be a list of rules; got {constraints!r}.")
        if not constraints:
            return self
        if any(isinstance(rule, Immutable) for rule in constraints):
            raise InvalidInputError(
                "`constraints` of `explain` must not contain Immutable: the density was fitted given the "
                "features that never change. Name features that these rows keep with `locked`."
            )
        rules = add_rules(self.rules, constraints)
        return replace(self, rules=rules, cost_model=replace(self.cost_model, prices=rules.prices))

    def bank_state(self) -> dict[str, Tensor]:
        """Return the training rows of all banks, deviations of numbers and partner levels, as tensors."""
        state = self.bank.state("bank") | (self.wider_bank or self.bank).state("wider")
        if self.reference_bank is not None:
            state |= self.reference_bank.state("references")
        partners = {} if self.partners is None else {"partners": self.partners}
        return state | {"deviations": self.cost_model.deviations.cpu()} | partners
