"""Proofs about the rows of a table for a model of trees."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pandas as pd

from plausiflow.constraints import Allowance
from plausiflow.core import TargetCriterion, Targets
from plausiflow.exact.atoms import Costs
from plausiflow.exact.deepening import Confirm, Deepening, Proof
from plausiflow.exact.row_program import RadiusProgram, RowProblem
from plausiflow.exact.scores import score_rows
from plausiflow.exact.tree_space import TreeSpace, tree_space
from plausiflow.models import ExactTrees
from plausiflow.tables import Layout


@dataclass(frozen=True, eq=False)
class TreeProver:
    """Finds the cheapest allowed rows that trees decide as wanted, and proves that nothing is cheaper.

    Attributes:
        space: The trees over the features of the table.
        costs: What changes cost.
        criterion: Compares outputs of the model with targets.
    """

    space: TreeSpace
    costs: Costs
    criterion: TargetCriterion

    @classmethod
    def of(cls, trees: ExactTrees, layout: Layout, costs: Costs, criterion: TargetCriterion) -> TreeProver:
        """Return the prover of a model; ``layout`` has the grids that numbers may move on."""
        return cls(tree_space(trees, layout), costs, criterion)

    def prove(
        self,
        row: pd.DataFrame,
        allowance: Allowance,
        targets: Targets,
        confirm: Confirm,
        seconds: float,
        known: float = math.inf,
    ) -> Proof:
        """Return what is proven about one row in some seconds.

        Args:
            row: The row of the table.
            allowance: What the rules allow it.
            targets: Its target.
            confirm: Whether model and rules accept an encoded row.
            seconds: Seconds that it may take.
            known: The cost of an answer that is known.
        """
        problem = RowProblem.of(self.space, allowance, self.costs, row)

        def rows(raised: float) -> list:
            return score_rows(self.space.trees, self.criterion, targets, raised=raised)

        return Deepening(problem, rows, confirm, seconds, known).run()

    def is_impossible(self, row: pd.DataFrame, allowance: Allowance, targets: Targets, seconds: float) -> bool:
        """Return whether it is proven that no allowed row is decided as wanted, with any margin at all."""
        problem = RowProblem.of(self.space, allowance, self.costs, row)
        criterion = replace(self.criterion, margin=0.0)
        rows = score_rows(self.space.trees, criterion, targets)
        radius = problem.largest_cost * (1 + 1e-6) + 1e-9
        program = RadiusProgram(problem, rows, radius, minimise=False)
        result = program.solve(seconds)
        return result is None or result.status == "infeasible"
