"""Clauses of rules as functions of encoded rows: at least zero where a clause is true.

The value of a clause is the largest value of its statements. A linear relation is smooth in the numbers, so a
solver can follow it; statements about states and kept features are one where they are true and minus one
elsewhere. A clause of two statements about states of different features forbids pairs of states; these go to
:mod:`plausiflow.constraints.state_pairs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from plausiflow.constraints.clauses import Clause, Holds, InStates, Multiplied, feature_states
from plausiflow.constraints.formulas import Formula
from plausiflow.constraints.rule import Rule
from plausiflow.constraints.terms import Term
from plausiflow.tables import Block, Feature, Layout


@dataclass(frozen=True, eq=False)
class LinearPiece:
    """A linear relation: terms of encoded features, and by how much it varies over the training ranges."""

    terms: tuple[Term, ...]
    scale: float
    equal: float | None = None  # the tolerance on both sides, if it is an equality

    def value(self, x: Tensor, own: Tensor, offset: Tensor) -> Tensor:
        """Return the value of points ``(k, width)`` of rows ``own``, shape ``(k,)``; keeps the graph."""
        return self.of_terms([term.value(x) for term in self.terms], offset.to(x))

    def of_terms(self, values: Sequence[Tensor], offset: Tensor) -> Tensor:
        """Return the value for known values of the terms, shape ``(k,)``."""
        total = offset
        for value in values:
            total = total + value
        return (total if self.equal is None else self.equal - total.abs()) / self.scale

    def solved(self, x: Tensor, offset: Tensor, term: Term) -> Tensor:
        """Return the number of a term that makes the sum of all terms and the offset zero, shape ``(k,)``."""
        total = self.value(x, x, offset) * self.scale
        return (term.value(x) - total) / term.coefficient


@dataclass(frozen=True, eq=False)
class ProductPiece:
    """One side of a computed number: terms of the result and of the numbers that it is computed from."""

    terms: tuple[Term, ...]
    formula: Formula
    sign: float
    scale: float

    def value(self, x: Tensor, own: Tensor, offset: Tensor) -> Tensor:
        """Return the value of points ``(k, width)`` of rows ``own``, shape ``(k,)``; keeps the graph.

        It is one where the formula has no result.
        """
        total, *values = [term.value(x) for term in self.terms]
        value = (self.sign * (total - self.formula.of_tensors(values)) + offset.to(x)) / self.scale
        has_result = self.formula.has_result(values)
        return value if has_result is None else torch.where(has_result, value, 1.0)

    def solved(self, x: Tensor, offset: Tensor, term: Term) -> Tensor:
        """Return the number of a term that the others ask for, shape ``(k,)``."""
        total, *values = [own.value(x) for own in self.terms]
        place = self.terms.index(term)
        return (
            self.formula.of_tensors(values) if place == 0 else self.formula.solved(place - 1, total, values)
        )


@dataclass(frozen=True, eq=False)
class LevelPiece:
    """A feature is at one of some levels."""

    block: Block
    levels: Tensor  # which ones, shape (levels,)

    def value(self, x: Tensor, own: Tensor, offset: Tensor) -> Tensor:
        """Return the value of points ``(k, width)`` of rows ``own``, shape ``(k,)``."""
        return 2 * (x[:, self.block.level_slice] @ self.levels.to(x)) - 1 + offset.to(x)


@dataclass(frozen=True, eq=False)
class KeptPiece:
    """Some columns are those of the factual row."""

    columns: list[int]

    def value(self, x: Tensor, own: Tensor, offset: Tensor) -> Tensor:
        """Return the value of points ``(k, width)`` of rows ``own``, shape ``(k,)``."""
        kept = (x[:, self.columns] == own[:, self.columns]).all(dim=1)
        return torch.where(kept, 1.0, -1.0).to(x) + offset.to(x)


Piece = LinearPiece | ProductPiece | LevelPiece | KeptPiece


@dataclass(frozen=True, eq=False)
class EncodedClause:
    """A clause on encoded rows.

    Attributes:
        name: The rule as people write it.
        pieces: Its statements, of which one must be true.
        start: Position of the first piece among the pieces of all clauses.
        tolerance: By how much an equality may be missed, if this clause and the next are its two sides.
    """

    name: str
    pieces: tuple[Piece, ...]
    start: int
    tolerance: float | None = None

    @property
    def numeric(self) -> bool:
        """Whether it depends on numbers, so that a solver can make it true."""
        return any(isinstance(piece, LinearPiece | ProductPiece) and piece.terms for piece in self.pieces)

    def value(self, x: Tensor, own: Tensor, offsets: Tensor) -> Tensor:
        """Return the value of points ``(k, width)``, shape ``(k,)``; keeps the graph.

        ``own`` are the factual rows of the points and ``offsets`` the constants of all pieces.
        """
        values = [p.value(x, own, offsets[:, self.start + i]) for i, p in enumerate(self.pieces)]
        return values[0] if len(values) == 1 else torch.stack(values).amax(dim=0)


@dataclass(frozen=True, eq=False)
class RuleClause:
    """A clause and the rule that it belongs to, with the number of that rule."""

    rule: Rule
    statements: Clause
    index: int

    def is_pair(self, layout: Layout) -> bool:
        """Whether it forbids pairs of levels of two features."""
        known = {block.name for block in layout.with_levels}
        names = {s.feature for s in self.statements if isinstance(s, InStates) and s.feature in known}
        return len(names) == len(self.statements) == 2

    def is_other_side(self, other: RuleClause) -> bool:
        """Whether this clause and another one are the two sides of an equality."""
        if self.rule is not other.rule or len(self.statements) != 1 or len(other.statements) != 1:
            return False
        mine, theirs = self.statements[0], other.statements[0]
        if isinstance(mine, Multiplied) and isinstance(theirs, Multiplied):
            return replace(mine, sign=theirs.sign) == theirs
        if not isinstance(mine, Holds) or not isinstance(theirs, Holds) or mine.own or theirs.own:
            return False
        return dict(mine.coefficients) == {name: -a for name, a in theirs.coefficients.items()}


def true_levels(statement: InStates, feature: Feature, block: Block) -> Tensor:
    """Return at which levels of an encoded feature a statement is true, shape ``(levels,)``."""
    states, n = feature_states(feature), len(block.levels)
    missing = n - 1 if block.closed[-1] else n
    levels = torch.zeros(n, dtype=torch.bool)
    for state in statement.states:
        code = missing if state is None else states.index(state)
        if code < n:
            levels[code] = True
    if statement.negated:
        return ~levels
    levels[missing:] = True
    return levels
