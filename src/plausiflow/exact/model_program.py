"""A model as a part of an integer program: the choices of one row, and the inequalities of its target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from plausiflow.constraints import Allowance
from plausiflow.exact.atoms import Atoms
from plausiflow.exact.choices import Choice
from plausiflow.exact.cp_sat import Program, SolverResult
from plausiflow.exact.layer_program import add_layers, without_worse
from plausiflow.exact.layer_space import LayerSpace
from plausiflow.exact.offsets import Offset
from plausiflow.exact.rule_program import joined_features
from plausiflow.exact.scores import ScoreRow
from plausiflow.exact.spaces import ModelSpace
from plausiflow.exact.tree_program import add_trees
from plausiflow.exact.tree_space import TreeSpace


def fewer_atoms(
    space: ModelSpace, atoms: list[Atoms], rows: Sequence[ScoreRow], allowance: Allowance
) -> list[Atoms]:
    """Return the atoms without those that no cheapest row of a linear model takes."""
    if not isinstance(space, LayerSpace) or len(space.layers.maps) > 1 or len(rows) > 1:
        return atoms
    return without_worse(atoms, rows[0], joined_features(allowance))


@dataclass(frozen=True, eq=False)
class ModelProgram:
    """The choices of one row in a program.

    Attributes:
        program: The program.
        space: The model.
        choices: What each feature may become.
        offsets: Where numbers are in their ranges, by feature; empty for trees.
        x: The row, encoded, shape ``(1, width)``.
        radius: What changes may cost at most.
    """

    program: Program
    space: ModelSpace
    choices: list[Choice]
    offsets: dict[str, Offset]
    x: Tensor
    radius: float

    @classmethod
    def of(
        cls,
        program: Program,
        atoms: Sequence[Atoms],
        x: Tensor,
        space: ModelSpace,
        unit: float,
        radius: float,
    ) -> ModelProgram:
        """Add the choices to a program; ``unit`` is the unit of cost."""
        choices = [Choice(program, own) for own in atoms]
        offsets = {}
        if isinstance(space, LayerSpace):
            offsets = {
                choice.atoms.block.name: Offset(program, choice, _number(choice, x), unit, radius)
                for choice in choices
                if _needs_offset(choice.atoms, space)
            }
        return cls(program, space, choices, offsets, x, radius)

    @property
    def by_name(self) -> dict[str, Choice]:
        """The choices by feature."""
        return {choice.atoms.block.name: choice for choice in self.choices}

    def add_target(self, own_left: npt.NDArray[np.bool_], rows: Sequence[ScoreRow]) -> bool:
        """Add the model and the inequalities of a target; return False if no row can satisfy them."""
        if isinstance(self.space, LayerSpace):
            space, choices = self.space, self.choices
            return add_layers(self.program, space, choices, self.offsets, self.x, self.radius, rows)
        assert isinstance(self.space, TreeSpace)
        return add_trees(self.program, self.space, self.choices, own_left, rows)

    def add_corner(
        self,
        own_left: npt.NDArray[np.bool_],
        left: Sequence[npt.NDArray[np.bool_] | None],
        rows: Sequence[ScoreRow],
    ) -> bool:
        """Add the trees once more for moved own values; return False if no row can satisfy them."""
        assert isinstance(self.space, TreeSpace)
        pairs = zip(self.choices, left, strict=True)
        moved = [choice if own is None else choice.moved(own) for choice, own in pairs]
        return add_trees(self.program, self.space, moved, own_left, rows)

    def chosen(self, result: SolverResult) -> tuple[list[tuple[Atoms, int]], dict[str, float]]:
        """Return the atoms of a solution, and the encoded numbers inside of ranges by feature."""
        numbers = {name: offset.number(result) for name, offset in self.offsets.items()}
        return [(choice.atoms, choice.chosen(result)) for choice in self.choices], numbers


def _needs_offset(atoms: Atoms, space: LayerSpace) -> bool:
    """Return whether a number has ranges in which both cost and units are linear."""
    scale = atoms.block.scale
    return scale is not None and bool(atoms.ranged.any()) and space.straight(scale)


def _number(choice: Choice, x: Tensor) -> float:
    assert choice.atoms.block.number is not None
    return float(x[0, choice.atoms.block.number])
