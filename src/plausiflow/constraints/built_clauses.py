"""Clauses of rules on encoded rows: what depends on the rules alone is built once, the rest for each row.

A clause of a learned rule is lenient: a row that breaks it may keep its features. Such a clause has one more
statement, that these features are kept, which counts only for a row that breaks the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from plausiflow.constraints.clause_matrix import ClauseMatrix
from plausiflow.constraints.clauses import (
    Holds,
    InStates,
    Kept,
    Multiplied,
    Statement,
    feature_states,
    state_codes,
)
from plausiflow.constraints.encoded_clauses import (
    EncodedClause,
    KeptPiece,
    LevelPiece,
    LinearPiece,
    Piece,
    ProductPiece,
    RuleClause,
    true_levels,
)
from plausiflow.constraints.limits import FactualRows
from plausiflow.constraints.linear import Relation
from plausiflow.constraints.terms import Term
from plausiflow.constraints.violations import RowChanges
from plausiflow.tables import Block, Feature, Layout

NEVER = -4.0
"""Added to the value of a statement that cannot make a clause true for a row."""


@dataclass(frozen=True, eq=False)
class BuiltClauses:
    """The clauses of rules, ready for rows of a layout.

    Attributes:
        clauses: The clauses.
        rule_clauses: The clauses of the rules that they come from.
        features: Features of the table, by name.
        blocks: Blocks of the layout, by feature.
        matrices: The same clauses as matrices, by device.
    """

    clauses: tuple[EncodedClause, ...]
    rule_clauses: tuple[RuleClause, ...]
    features: Mapping[str, Feature]
    blocks: Mapping[str, Block]
    matrices: dict[torch.device, ClauseMatrix] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        clauses: Sequence[RuleClause],
        features: Mapping[str, Feature],
        layout: Layout,
        device: torch.device,
    ) -> BuiltClauses:
        """Build the clauses of rules for rows on a device."""
        builder = _Builder(features, {block.name: block for block in layout.blocks}, device)
        built: list[EncodedClause] = []
        start = 0
        for last, clause in zip([None, *clauses], clauses, strict=False):
            pieces = [builder.piece(statement) for statement in clause.statements]
            if clause.rule.lenient:
                names = dict.fromkeys(n for s in clause.statements for n in s.feature_names)
                pieces.append(builder.kept(tuple(names)))
            if last is not None and clause.is_other_side(last):
                statement = last.statements[0]
                assert isinstance(statement, Holds | Multiplied)
                built[-1] = replace(built[-1], tolerance=statement.tolerance)
            built.append(EncodedClause(str(clause.rule), tuple(pieces), start))
            start += len(pieces)
        return cls(tuple(built), tuple(clauses), features, builder.blocks)

    def bind(self, rows: FactualRows) -> tuple[Tensor, Tensor]:
        """Return the constants of all pieces for rows ``(n, pieces)``, and which clauses bind ``(n, m)``."""
        if not self.clauses:
            return rows.x[:, :0], rows.x[:, :0].bool()
        zero = torch.zeros_like(rows.x[:, 0])
        terms: dict[Term, Tensor] = {}
        present: dict[tuple[str, bool], Tensor] = {}
        offsets: list[Tensor] = []
        binding = []
        for clause, source in zip(self.clauses, self.rule_clauses, strict=True):
            own = [self._constant(statement, rows, zero) for statement in source.statements]
            if source.rule.lenient:
                broken = _own_value(clause, rows.x, own, terms) < 0
                own.append(torch.where(broken, 0.0, NEVER).to(zero))
            offsets += own
            binding.append(self._bound(source.statements, rows, present))
        return torch.stack(offsets, dim=1), torch.stack(binding, dim=1)

    def _bound(
        self, statements: Sequence[Statement], rows: FactualRows, present: dict[tuple[str, bool], Tensor]
    ) -> Tensor:
        """Return for which rows no number of a clause is missing; ``present`` has what is known already."""
        bound = torch.ones(len(rows.x), dtype=torch.bool, device=rows.x.device)
        for statement in statements:
            if isinstance(statement, Holds | Multiplied):
                rank = isinstance(statement, Holds) and statement.rank
                for name in statement.feature_names:
                    if (name, rank) not in present:
                        present[name, rank] = ~self._numbers(rows, name, rank=rank).isnan()
                    bound = bound & present[name, rank]
        return bound

    def _constant(self, statement: Statement, rows: FactualRows, zero: Tensor) -> Tensor:
        """Return the constant of a statement for each row, shape ``(n,)``."""
        if isinstance(statement, Kept):
            return zero
        if isinstance(statement, Multiplied):
            return torch.full_like(zero, statement.tolerance)
        if isinstance(statement, InStates):
            block = self.blocks.get(statement.feature)
            none = block is None or not len(block.levels)
            return zero + self._constant_state(statement, rows) if none else zero
        constant = torch.full_like(zero, statement.constant)
        for name, c in statement.own.items():
            constant = constant + c * self._numbers(rows, name, rank=statement.rank).nan_to_num().to(constant)
        for name, a in statement.coefficients.items():
            if name not in self.blocks:
                numbers = self._numbers(rows, name, rank=statement.rank)
                constant = constant + a * numbers.nan_to_num().to(constant)
        return constant if statement.equal else constant + statement.tolerance

    def _constant_state(self, statement: InStates, rows: FactualRows) -> Tensor:
        """Return 1 where the statement is true of a feature without levels, else -1, shape ``(n,)``."""
        feature = self.features[statement.feature]
        if rows.frame is None or feature.is_number:
            own = feature_states(feature)[0]
            true = (own in statement.states) != statement.negated
            return torch.full_like(rows.x[:, 0], 1.0 if true else -1.0)
        codes = state_codes(RowChanges(self.features, rows.frame, rows.frame), statement.feature)
        known = feature_states(feature)
        inside = torch.from_numpy((codes[:, None] == [known.index(s) for s in statement.states]).any(axis=1))
        missing = torch.from_numpy(codes == len(known) - 1)
        met = ~inside if statement.negated else inside | missing
        return torch.where(met, 1.0, -1.0).to(rows.x)

    def _numbers(self, rows: FactualRows, name: str, *, rank: bool) -> Tensor:
        """Return a feature's own values: numbers, or positions of levels; NaN if missing, shape ``(n,)``."""
        if not rank or name not in self.blocks:
            return rows.numbers(name)
        block = self.blocks[name]
        return rows.codes(block).double().masked_fill(rows.missing(block), torch.nan)


def _own_value(clause: EncodedClause, x: Tensor, offsets: list[Tensor], terms: dict[Term, Tensor]) -> Tensor:
    """Return the value of a clause at the rows themselves, without its last piece, shape ``(n,)``.

    ``terms`` has the values of terms that are known already.
    """
    values = []
    for piece, offset in zip(clause.pieces, offsets, strict=False):
        if isinstance(piece, LinearPiece):
            for term in piece.terms:
                if term not in terms:
                    terms[term] = term.value(x)
            values.append(piece.of_terms([terms[term] for term in piece.terms], offset.to(x)))
        else:
            values.append(piece.value(x, x, offset))
    return values[0] if len(values) == 1 else torch.stack(values).amax(dim=0)


@dataclass(frozen=True, eq=False)
class _Builder:
    """Builds pieces of clauses; equal terms of several clauses are one object."""

    features: Mapping[str, Feature]
    blocks: Mapping[str, Block]
    device: torch.device
    _terms: dict[tuple[str, float, bool], Term] = field(default_factory=dict, init=False)

    def piece(self, statement: Statement) -> Piece:
        """Return a statement on encoded rows."""
        if isinstance(statement, Kept):
            return self.kept(statement.features)
        if isinstance(statement, Multiplied):
            return self._product(statement)
        return self._states(statement) if isinstance(statement, InStates) else self._linear(statement)

    def kept(self, features: Sequence[str]) -> Piece:
        """Return that features are those of the factual row."""
        blocks = self.blocks
        return KeptPiece([column for name in features if name in blocks for column in blocks[name].columns])

    def _linear(self, statement: Holds) -> Piece:
        terms = tuple(
            self._term(a, name, rank=statement.rank)
            for name, a in statement.coefficients.items()
            if name in self.blocks
        )
        if statement.rank:
            scale = max(1.0, float(sum(len(term.block.levels) - 1 for term in terms)))
        else:
            scale = Relation(statement.coefficients, 0.0, equal=False).reach(self.features)
        return LinearPiece(terms, scale, statement.tolerance if statement.equal else None)

    def _product(self, statement: Multiplied) -> Piece:
        names = statement.feature_names
        terms = tuple(Term.of(1.0, self.blocks[name], self.features[name]) for name in names)
        low, high = self.features[statement.feature].extent
        return ProductPiece(terms, statement.formula, statement.sign, scale=(high - low) or 1.0)

    def _states(self, statement: InStates) -> Piece:
        feature, block = self.features[statement.feature], self.blocks.get(statement.feature)
        if block is None or not len(block.levels):
            return LinearPiece((), 1.0)
        return LevelPiece(block, true_levels(statement, feature, block).to(self.device))

    def _term(self, a: float, name: str, *, rank: bool) -> Term:
        key = name, a, rank
        if key not in self._terms:
            self._terms[key] = Term.of(a, self.blocks[name], self.features[name], rank=rank)
        return self._terms[key]
