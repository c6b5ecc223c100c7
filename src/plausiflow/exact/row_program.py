"""The integer program of one row: the cheapest allowed change that the model decides as wanted, in a radius.

The program is restricted to changes that cost at most the radius r: more expensive atoms do not exist in it,
and trees have only the leaves that can still be reached.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from plausiflow.constraints import Allowance
from plausiflow.exact.atoms import Atoms, Costs, row_atoms
from plausiflow.exact.cells import Cell, cell_of
from plausiflow.exact.cp_sat import Program, SolverResult
from plausiflow.exact.layer_space import LayerSpace
from plausiflow.exact.model_program import ModelProgram, fewer_atoms
from plausiflow.exact.objective import UNITS, Objective
from plausiflow.exact.rule_program import add_joint_rules, related_features
from plausiflow.exact.scores import ScoreRow
from plausiflow.exact.spaces import ModelSpace
from plausiflow.exact.tree_space import TreeSpace

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class RowProblem:
    """One row: its atoms, and what its rules and its target ask for.

    Attributes:
        space: The model.
        allowance: What the rules allow the row.
        costs: What changes cost.
        atoms: What each feature may become.
        own_left: At which splits the row goes left.
    """

    space: ModelSpace
    allowance: Allowance
    costs: Costs
    atoms: list[Atoms]
    own_left: npt.NDArray[np.bool_]

    @classmethod
    def of(
        cls,
        space: ModelSpace,
        allowance: Allowance,
        costs: Costs,
        row: pd.DataFrame,
        others: Sequence[Allowance] = (),
        reach: float = 0.0,
    ) -> RowProblem:
        """Return the problem of one row of the table.

        ``others`` are rules that need not hold; changed numbers stay ``reach`` away from cuts.
        """
        own_left = space.own_left(row)
        finer = related_features(allowance).union(*(related_features(other) for other in others))
        numbers = [block for block in allowance.layout.blocks if block.number is not None]
        edges = {
            block.name: [tuple(float(t[0, block.number]) for t in (o.lower, o.upper)) for o in others]
            for block in (numbers if others else ())
        }
        found = row_atoms(
            allowance,
            space.splits,
            costs,
            own_left,
            finer,
            edges,  # type: ignore[arg-type]
            reach,
            space.spread_cuts if isinstance(space, LayerSpace) else None,
        )
        if isinstance(space, LayerSpace):
            found = space.with_units(found, allowance.x)
        return cls(space, allowance, costs, found, own_left)

    @property
    def euclidean(self) -> bool:
        """Whether the distance is ``l2``."""
        return self.costs.distance == "l2"

    @cached_property
    def largest_cost(self) -> float:
        """A cost that no allowed row exceeds."""
        distance, flat = 0.0, 0.0
        for atoms in self.atoms:
            far = float(atoms.costs[~atoms.flat].max(initial=0.0))
            distance += far * far if self.euclidean else far
            flat += float(atoms.costs[atoms.flat].max(initial=0.0))
        return (math.sqrt(distance) if self.euclidean else distance) + flat

    @cached_property
    def smallest_cost(self) -> float:
        """The cost of the cheapest change."""
        costs = np.concatenate([atoms.costs[~atoms.kept] for atoms in self.atoms])
        return float(costs[costs > 0].min(initial=math.inf))

    def encoded(self, chosen: Sequence[tuple[Atoms, int]], numbers: Mapping[str, float]) -> Tensor:
        """Return the row at chosen atoms, shape ``(1, width)``; ``numbers`` are encoded, inside of ranges."""
        x = self.allowance.x.clone()
        for atoms, i in chosen:
            if atoms.kept[i]:
                continue
            block = atoms.block
            if len(block.levels):
                x[0, block.level_slice] = 0.0
                x[0, block.levels[int(atoms.codes[i])]] = 1.0
            if block.number is not None:
                inside = numbers.get(block.name) if atoms.codes[i] == 0 else None
                x[0, block.number] = float(atoms.numbers[i] if inside is None else inside)
        return x

    def cost(self, x_cf: Tensor) -> float:
        """Return what a changed row ``(1, width)`` costs."""
        layout, x = self.costs.layout, self.allowance.x
        return float(self.costs((x, layout.codes(x)), (x_cf, layout.codes(x_cf))))


@dataclass(frozen=True, eq=False)
class Corner:
    """Where the numbers of a row are moved to; see :mod:`plausiflow.exact.corners`.

    Attributes:
        left: For each feature, which splits send its moved own value to the left; None if it does not move.
        rows: The inequalities of the target there.
    """

    left: list[Mask | None]
    rows: list[ScoreRow]


class RadiusProgram:
    """The program within a radius; ``possible`` is False if it is infeasible at once.

    Rows of the ``banned`` cells are not in it, and at each of the ``corners`` the target must be met, too.
    """

    def __init__(
        self,
        problem: RowProblem,
        rows: Sequence[ScoreRow],
        radius: float,
        banned: Sequence[Cell] = (),
        corners: Sequence[Corner] = (),
    ) -> None:
        self.problem, self.program = problem, Program()
        limit = radius * (1 + 1e-9)
        self._near = [atoms.costs <= limit for atoms in problem.atoms]
        kept = [atoms.select(near) for atoms, near in zip(problem.atoms, self._near, strict=True)]
        self.possible = bool(problem.allowance.possible[0]) and all(len(atoms) for atoms in kept)
        if not self.possible:
            return
        kept = fewer_atoms(problem.space, kept, rows, problem.allowance)
        x, space = problem.allowance.x, problem.space
        self.model = ModelProgram.of(self.program, kept, x, space, radius / UNITS, radius)
        self.possible = self.model.add_target(problem.own_left, rows)
        for corner in corners:
            self.possible &= self.model.add_corner(problem.own_left, corner.left, corner.rows)
        if self.possible:
            add_joint_rules(self.program, problem.allowance, self.model.by_name)
            for cell in banned:
                self._ban(cell)
            self._objective = Objective(self.model, euclidean=problem.euclidean)

    def _ban(self, cell: Cell) -> None:
        """Require that some feature leaves a cell."""
        outside = []
        for choice, near, inside in zip(self.model.choices, self._near, cell, strict=True):
            literal = choice.literal(choice.mask(~inside[near]))
            if literal is True:
                return
            if literal is not False:
                outside.append(literal)
        self.program.any_of(outside)

    def solve(self, seconds: float, work: float | None = None) -> SolverResult | None:
        """Solve the program; None if it is infeasible at once."""
        presolve = not isinstance(self.problem.space, LayerSpace)
        return self.program.solve(seconds, work, presolve=presolve) if self.possible else None

    def lower_bound(self, result: SolverResult) -> float:
        """Return the proven lower bound of the cost."""
        return self._objective.cost(result.bound)

    def answer(self, result: SolverResult) -> Tensor:
        """Return the encoded row of the solution, shape ``(1, width)``."""
        with torch.no_grad():
            return self.problem.encoded(*self.model.chosen(result))

    def cell(self, result: SolverResult) -> Cell | None:
        """Return the rows that get the same outputs as the solution; None for models that are not trees."""
        space, problem = self.problem.space, self.problem
        if not isinstance(space, TreeSpace):
            return None
        places = [
            int(np.flatnonzero(near)[choice.chosen(result)])
            for choice, near in zip(self.model.choices, self._near, strict=True)
        ]
        return cell_of(space, problem.atoms, places, problem.own_left)
