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

from plausiflow.constraints.clauses import (
    Clause,
    Holds,
    InStates,
    Kept,
    Multiplied,
    Statement,
    feature_states,
    state_codes,
)
from plausiflow.constraints.limits import FactualRows
from plausiflow.constraints.linear import Relation
from plausiflow.constraints.rule import Rule
from plausiflow.constraints.terms import Term
from plausiflow.constraints.violations import RowChanges
from plausiflow.tables import Block, Feature, Layout

NEVER = -4.0
"""Added to the value of a statement that cannot make a clause true for a row."""


@dataclass(frozen=True, eq=False)
class LinearPiece:
    """A linear relation: terms of encoded features, and by how much it varies over the training ranges."""

    terms: tuple[Term, ...]
    scale: float
    equal: float | None = None  # the tolerance on both sides, if it is an equality

    def value(self, x: Tensor, own: Tensor, offset: Tensor) -> Tensor:
        """Return the value of points ``(k, width)`` of rows ``own``, shape ``(k,)``; keeps the graph."""
        total = offset.to(x)
        for term in self.terms:
            total = total + term.value(x)
        return (total if self.equal is None else self.equal - total.abs()) / self.scale

    def solved(self, x: Tensor, offset: Tensor, term: Term) -> Tensor:
        """Return the number of a term that makes the sum of all terms and the offset zero, shape ``(k,)``."""
        total = self.value(x, x, offset) * self.scale
        return (term.value(x) - total) / term.coefficient


@dataclass(frozen=True, eq=False)
class ProductPiece:
    """One side of a product or a ratio: terms of the result and of both factors."""

    terms: tuple[Term, Term, Term]
    factor: float
    divided: bool
    sign: float
    scale: float

    def value(self, x: Tensor, own: Tensor, offset: Tensor) -> Tensor:
        """Return the value of points ``(k, width)`` of rows ``own``, shape ``(k,)``; keeps the graph."""
        total, first, second = (term.value(x) for term in self.terms)
        product = self.factor * (first / _not_zero(second) if self.divided else first * second)
        return (self.sign * (total - product) + offset.to(x)) / self.scale

    def solved(self, x: Tensor, offset: Tensor, term: Term) -> Tensor:
        """Return the number of a term that the two others ask for, shape ``(k,)``."""
        total, first, second = (each.value(x) for each in self.terms)
        if term is self.terms[0]:
            return self.factor * (first / _not_zero(second) if self.divided else first * second)
        if term is self.terms[1]:
            return total / self.factor * second if self.divided else total / _not_zero(self.factor * second)
        return (
            self.factor * first / _not_zero(total) if self.divided else total / _not_zero(self.factor * first)
        )


def _not_zero(values: Tensor) -> Tensor:
    """Return values that can be divided by; zero becomes tiny, so that the result is out of any range."""
    return torch.where(values.abs() < 1e-12, 1e-12, values)


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
    """A clause and the rule that it belongs to."""

    rule: Rule
    statements: Clause

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


@dataclass
class ClauseBuilder:
    """Collects the clauses of rules for some rows."""

    rows: FactualRows
    clauses: list[EncodedClause]
    offsets: list[Tensor]  # the constant of each piece, (n,)
    binding: list[Tensor]  # whether each clause binds, (n,)

    @classmethod
    def of(cls, rows: FactualRows, clauses: Sequence[RuleClause]) -> ClauseBuilder:
        """Collect the clauses of rules."""
        builder = cls(rows, [], [], [])
        last: RuleClause | None = None
        for clause in clauses:
            builder.add(str(clause.rule), clause.statements, lenient=clause.rule.lenient)
            if last is not None and clause.is_other_side(last):
                statement = last.statements[0]
                assert isinstance(statement, Holds | Multiplied)
                builder.clauses[-2] = replace(builder.clauses[-2], tolerance=statement.tolerance)
            last = clause
        return builder

    def add(self, name: str, clause: Sequence[Statement], *, lenient: bool) -> None:
        """Add a clause; a lenient one does not bind a row that breaks it as long as it keeps its features."""
        built = [self._piece(statement) for statement in clause]
        bound = torch.ones(len(self.rows.x), dtype=torch.bool, device=self.rows.x.device)
        for statement in clause:
            if isinstance(statement, Multiplied):
                for feature in statement.feature_names:
                    bound &= ~self.rows.numbers(feature).isnan()
            elif isinstance(statement, Holds):
                for feature in statement.feature_names:
                    bound &= ~self._numbers(statement, feature).isnan()
        encoded = EncodedClause(name, tuple(piece for piece, _ in built), len(self.offsets))
        offsets = [offset for _, offset in built]
        if lenient:
            broken = encoded.value(self.rows.x, self.rows.x, torch.stack(self.offsets + offsets, dim=1)) < 0
            names = tuple(dict.fromkeys(n for statement in clause for n in statement.feature_names))
            kept, _ = self._kept(names)
            encoded = EncodedClause(name, (*encoded.pieces, kept), encoded.start)
            offsets.append(torch.where(broken, 0.0, NEVER).to(self.rows.x))
        self.clauses.append(encoded)
        self.offsets += offsets
        self.binding.append(bound)

    def stacked(self) -> tuple[tuple[EncodedClause, ...], Tensor, Tensor]:
        """Return the clauses, the constants of their pieces ``(n, pieces)``, and which bind ``(n, m)``."""
        none = self.rows.x[:, :0]
        offsets = torch.stack(self.offsets, dim=1) if self.offsets else none
        binding = torch.stack(self.binding, dim=1) if self.binding else none.bool()
        return tuple(self.clauses), offsets, binding

    def _piece(self, statement: Statement) -> tuple[Piece, Tensor]:
        """Return a statement on encoded rows, and its constant for each row, shape ``(n,)``."""
        if isinstance(statement, Kept):
            return self._kept(statement.features)
        if isinstance(statement, Multiplied):
            return self._product(statement)
        return self._states(statement) if isinstance(statement, InStates) else self._linear(statement)

    def _kept(self, features: Sequence[str]) -> tuple[Piece, Tensor]:
        blocks = self._blocks
        columns = [column for name in features if name in blocks for column in blocks[name].columns]
        return KeptPiece(columns), torch.zeros_like(self.rows.x[:, 0])

    def _linear(self, statement: Holds) -> tuple[Piece, Tensor]:
        rows, blocks = self.rows, self._blocks
        constant = torch.full_like(rows.x[:, 0], statement.constant)
        for name, c in statement.own.items():
            constant = constant + c * self._numbers(statement, name).nan_to_num().to(constant)
        for name, a in statement.coefficients.items():
            if name not in blocks:
                constant = constant + a * self._numbers(statement, name).nan_to_num().to(constant)
        terms = tuple(
            Term.of(a, blocks[name], rows.features[name], rank=statement.rank)
            for name, a in statement.coefficients.items()
            if name in blocks
        )
        if statement.rank:
            scale = max(1.0, float(sum(len(term.block.levels) - 1 for term in terms)))
        else:
            scale = Relation(statement.coefficients, 0.0, equal=False).reach(rows.features)
        if statement.equal:
            return LinearPiece(terms, scale, statement.tolerance), constant
        return LinearPiece(terms, scale), constant + statement.tolerance

    def _product(self, statement: Multiplied) -> tuple[Piece, Tensor]:
        features, names = self.rows.features, (statement.feature, statement.first, statement.second)
        first, second, third = (Term.of(1.0, self._blocks[name], features[name]) for name in names)
        low, high = features[statement.feature].extent
        parts = statement.factor, statement.divided, statement.sign
        piece = ProductPiece((first, second, third), *parts, scale=(high - low) or 1.0)
        return piece, torch.full_like(self.rows.x[:, 0], statement.tolerance)

    def _states(self, statement: InStates) -> tuple[Piece, Tensor]:
        feature, block = self.rows.features[statement.feature], self._blocks.get(statement.feature)
        zero = torch.zeros_like(self.rows.x[:, 0])
        if block is None or not len(block.levels):
            return LinearPiece((), 1.0), zero + self._constant_state(statement)
        return LevelPiece(block, true_levels(statement, feature, block).to(zero.device)), zero

    def _constant_state(self, statement: InStates) -> Tensor:
        """Return 1 where the statement is true of a feature without levels, else -1, shape ``(n,)``."""
        rows, feature = self.rows, self.rows.features[statement.feature]
        if rows.frame is None or feature.is_number:
            own = feature_states(feature)[0]
            true = (own in statement.states) != statement.negated
            return torch.full_like(rows.x[:, 0], 1.0 if true else -1.0)
        codes = state_codes(RowChanges(rows.features, rows.frame, rows.frame), statement.feature)
        known = feature_states(feature)
        inside = torch.from_numpy((codes[:, None] == [known.index(s) for s in statement.states]).any(axis=1))
        missing = torch.from_numpy(codes == len(known) - 1)
        met = ~inside if statement.negated else inside | missing
        return torch.where(met, 1.0, -1.0).to(rows.x)

    def _numbers(self, statement: Holds, name: str) -> Tensor:
        """Return a feature's own values: numbers, or positions of levels; NaN if missing, shape ``(n,)``."""
        if not statement.rank or name not in self._blocks:
            return self.rows.numbers(name)
        block = self._blocks[name]
        codes = self.rows.codes(block).double()
        return codes.masked_fill(self.rows.missing(block), torch.nan)

    @property
    def _blocks(self) -> dict[str, Block]:
        return {block.name: block for block in self.rows.layout.blocks}
