"""Proofs about the rows of a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pandas as pd
from torch import Tensor

from plausiflow.constraints import Allowance, CompiledRules
from plausiflow.core import TargetCriterion, Targets
from plausiflow.exact.atoms import Costs
from plausiflow.exact.deepening import Confirm, Deepening, Neighbourhood, Proof
from plausiflow.exact.relaxation import Relaxation, RuleItem, fewest_rules
from plausiflow.exact.row_program import RowProblem
from plausiflow.exact.scores import ScoreRow, score_rows, tangent_rows
from plausiflow.exact.spaces import ModelSpace
from plausiflow.tables import Mask


@dataclass(frozen=True, eq=False)
class Prover:
    """Finds the cheapest allowed rows that a model decides as wanted, and proves that nothing is cheaper.

    Attributes:
        space: The model over the features of the table.
        costs: What changes cost.
        criterion: Compares outputs of the model with targets.
    """

    space: ModelSpace
    costs: Costs
    criterion: TargetCriterion

    def prove(
        self,
        row: pd.DataFrame,
        allowance: Allowance,
        targets: Targets,
        confirm: Confirm,
        seconds: float,
        known: float = math.inf,
        *,
        reach: float = 0.0,
        work: float | None = None,
        rejected: Callable[[Tensor], Tensor | None] | None = None,
        at_once: bool = False,
    ) -> Proof:
        """Return what is proven about one row in some seconds.

        Args:
            row: The row of the table.
            allowance: What the rules allow it.
            targets: Its target.
            confirm: Whether model and rules accept an encoded row.
            seconds: Seconds that it may take.
            known: The cost of an answer that is known.
            reach: How far changed numbers stay from cuts; the bound is then that of such rows.
            work: Deterministic time of the solver for each radius; None for no limit but the seconds.
            rejected: Returns a row near an answer that the model rejects, which rules the answer out.
            at_once: Whether the row probably has no answer, so that small radii are left out.
        """
        problem = RowProblem.of(self.space, allowance, self.costs, row, reach=reach)

        def rows(raised: float) -> list[ScoreRow]:
            return score_rows(self.space, self.criterion, targets, raised=raised)

        def tangents(x_cf: Tensor) -> list[ScoreRow]:
            outputs = self.space.outputs_of(x_cf, row, allowance.x)
            return tangent_rows(self.space, self.criterion, targets, outputs)

        near = None
        if rejected is not None:
            near = Neighbourhood(rejected, score_rows(self.space, self.without_margin().criterion, targets))
        return Deepening(problem, rows, confirm, tangents, seconds, known, work, near, at_once).run()

    def without_margin(self) -> Prover:
        """Return the prover for which every row counts that the model decides as wanted, however narrowly."""
        return replace(self, criterion=replace(self.criterion, margin=0.0))

    def relax(
        self,
        rules: CompiledRules,
        row: pd.DataFrame,
        x: Tensor,
        locked: Mask | None,
        targets: Targets,
        accepts: Callable[[Tensor, Sequence[RuleItem]], bool],
        seconds: float,
        work: float | None = None,
    ) -> Relaxation | None:
        """Return the fewest rules to relax for one row; see :func:`fewest_rules`."""
        score = score_rows(self.space, self.criterion, targets, raised=2.0)
        return fewest_rules(self.space, self.costs, rules, x, row, locked, score, accepts, seconds, work)
