"""Variables for what each feature of a row becomes, and literals for sets of atoms.

A category has a variable for each level. A number has a ladder: variable i says that the atom is the i-th or
a later one, so that a set of the first or the last atoms is a single literal.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from plausiflow.exact.atoms import Atoms
from plausiflow.exact.cp_sat import Expression, Literal_, Program, SolverResult

IntArray = npt.NDArray[np.int64]


class Choice:
    """The variables of one feature, which has at least one atom."""

    def __init__(self, program: Program, atoms: Atoms) -> None:
        self.atoms, self._program = atoms, program
        self.everything = (1 << len(atoms)) - 1
        n = len(atoms)
        self._ladder = atoms.block.number is not None or n == 2
        self._variables: list[Literal_] = [program.boolean() for _ in range(n - 1 if self._ladder else n)]
        if n == 1:
            self._variables = []
        elif self._ladder:
            for earlier, later in pairwise(self._variables):
                program.implies(later, earlier)
        else:
            program.exactly_one(self._variables)
        self._known: dict[int, Literal_] = {}
        left = np.packbits(atoms.left, axis=1, bitorder="little")
        self.left = [int.from_bytes(row.tobytes(), "little") for row in left]

    def moved(self, left: npt.NDArray[np.bool_]) -> Choice:
        """Return the same choice for trees that send the row's own value to other sides ``(splits,)``."""
        other = copy(self)
        own = self.mask(self.atoms.kept)
        pairs = zip(self.left, left.tolist(), strict=True)
        other.left = [mask | own if goes_left else mask & ~own for mask, goes_left in pairs]
        return other

    def mask(self, which: npt.NDArray[np.bool_]) -> int:
        """Return a set of atoms as a whole number, one bit for each."""
        return int.from_bytes(np.packbits(which, bitorder="little").tobytes(), "little")

    def literal(self, mask: int) -> Literal_ | bool:
        """Return the literal of "the atom is in this set"; True or False if that is certain."""
        mask &= self.everything
        if mask in (0, self.everything):
            return bool(mask)
        if mask not in self._known:
            self._known[mask] = self._literal(mask)
            self._known[self.everything & ~mask] = self._known[mask].negated()
        return self._known[mask]

    def _literal(self, mask: int) -> Literal_:
        n, variables = len(self.atoms), self._variables
        if not self._ladder:
            for own, flipped in ((mask, False), (self.everything & ~mask, True)):
                if own.bit_count() == 1:
                    literal = variables[own.bit_length() - 1]
                    return literal.negated() if flipped else literal
            return self._sum(self.weighted([mask >> i & 1 for i in range(n)]))
        if mask & (mask + 1) == 0:  # the first atoms
            return variables[mask.bit_count() - 1].negated()
        rest = self.everything & ~mask
        if rest & (rest + 1) == 0:
            return variables[rest.bit_count() - 1]
        return self._sum(self.weighted([mask >> i & 1 for i in range(n)]))

    def _sum(self, expression: Expression) -> Literal_:
        literal = self._program.boolean()
        self._program.equal(expression, literal)
        return literal

    def weighted(self, weights: Sequence[int]) -> Expression:
        """Return the weight of the chosen atom as a linear expression."""
        if not self._variables:
            return self._program.weighted([], [], int(weights[0]))
        if not self._ladder:
            return self._program.weighted(self._variables, [int(w) for w in weights])
        steps = [int(b) - int(a) for a, b in pairwise(weights)]
        return self._program.weighted(self._variables, steps, int(weights[0]))

    def chosen(self, result: SolverResult) -> int:
        """Return the atom of the solution."""
        true = [result.is_true(variable) for variable in self._variables]
        return sum(true) if self._ladder else true.index(True) if true else 0
