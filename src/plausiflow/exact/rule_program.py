"""Rules about several features as parts of an integer program: relations, clauses, pairs of states, counts.

What cannot be written in whole numbers is weakened, never strengthened: a range of numbers counts with its
best number, coefficients are rounded towards the rule, and products of numbers are left out. So the program
allows every row that the rules allow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from plausiflow.constraints import Allowance, EncodedClause, KeptPiece, LevelPiece, LinearPiece, Term
from plausiflow.exact.choices import Choice
from plausiflow.exact.cp_sat import Literal_, Program

Array = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_UNITS = 2.0**30
_SLACK = 1e-9
"""By how much relations are weakened, relative to their range, for rounding."""


def related_features(allowance: Allowance) -> frozenset[str]:
    """Return the numbers that clauses with relations mention; their atoms must be fine."""
    names: set[str] = set()
    for j, clause in enumerate(allowance.clauses):
        if bool(allowance.binding[0, j]):
            for piece in clause.pieces:
                if not isinstance(piece, LevelPiece | KeptPiece):
                    names |= {term.block.name for term in piece.terms}
    return frozenset(names)


def joined_features(allowance: Allowance) -> frozenset[str]:
    """Return all features that clauses, relations and pairs of states mention."""
    names: set[str] = set()
    blocks = allowance.layout.blocks
    for j, clause in enumerate(allowance.clauses):
        for piece in clause.pieces if bool(allowance.binding[0, j]) else ():
            if isinstance(piece, LevelPiece):
                names.add(piece.block.name)
            elif isinstance(piece, KeptPiece):
                names |= {block.name for block in blocks if set(block.columns) & set(piece.columns)}
            else:
                names |= {term.block.name for term in piece.terms}
    if allowance.pairs is not None:
        places = allowance.pairs.blocks.flatten().unique().tolist()
        names |= {allowance.layout.with_levels[place].name for place in places}
    return frozenset(names)


def add_joint_rules(
    program: Program,
    allowance: Allowance,
    choices: Mapping[str, Choice],
    when: Sequence[Literal_] = (),
) -> None:
    """Add what the rules say about several features of one row, if all literals in ``when`` are true."""
    add_max_changes(program, allowance.max_changes, choices, when)
    for j, clause in enumerate(allowance.clauses):
        if bool(allowance.binding[0, j]):
            _add_clause(program, clause, allowance.offsets[0].numpy(), choices, when)
    _add_pairs(program, allowance, choices, when)


def add_max_changes(
    program: Program, limit: int | None, choices: Mapping[str, Choice], when: Sequence[Literal_] = ()
) -> None:
    """Require that at most ``limit`` features change."""
    if limit is None:
        return
    kept = [choice.literal(choice.mask(choice.atoms.kept)) for choice in choices.values()]
    certain = sum(1 for literal in kept if literal is True)
    literals = [literal for literal in kept if not isinstance(literal, bool)]
    needed = len(kept) - limit - certain
    program.at_least(program.weighted(literals, [1] * len(literals)), needed, when)


def _add_clause(
    program: Program,
    clause: EncodedClause,
    offsets: Array,
    choices: Mapping[str, Choice],
    when: Sequence[Literal_],
) -> None:
    """Require that one of the pieces of a clause is true."""
    options: list[Literal_] = []
    single = len(clause.pieces) == 1
    for i, piece in enumerate(clause.pieces):
        offset = float(offsets[clause.start + i])
        if isinstance(piece, LevelPiece):
            literal = _level_literal(piece, choices) if offset >= -1 else False
        elif isinstance(piece, KeptPiece):
            literal = _kept(program, piece, choices) if offset >= -1 else False
        elif isinstance(piece, LinearPiece):
            literal = True if single else program.boolean()
            holds = _add_relation(program, piece, offset, choices, when if single else [*when, literal])
            literal = literal if holds else False
        else:
            return  # a product of numbers, which is left out
        if literal is True:
            return
        if literal is not False:
            options.append(literal)
    program.any_of([*options, *(literal.negated() for literal in when)])


def _level_literal(piece: LevelPiece, choices: Mapping[str, Choice]) -> Literal_ | bool:
    choice = choices[piece.block.name]
    return choice.literal(choice.mask(piece.levels.cpu().numpy()[choice.atoms.codes]))


def _kept(program: Program, piece: KeptPiece, choices: Mapping[str, Choice]) -> Literal_ | bool:
    """Return the literal of "all of these features keep their values"."""
    columns = set(piece.columns)
    mine = [choice for choice in choices.values() if columns & set(choice.atoms.block.columns)]
    literals = [choice.literal(choice.mask(choice.atoms.kept)) for choice in mine]
    if any(literal is False for literal in literals):
        return False
    open_ = [literal for literal in literals if literal is not True]
    if not open_:
        return True
    if len(open_) == 1:
        return open_[0]
    both = program.boolean()
    for literal in open_:
        program.implies(both, literal)
    return both


def _add_relation(
    program: Program,
    piece: LinearPiece,
    offset: float,
    choices: Mapping[str, Choice],
    when: Sequence[Literal_],
) -> bool:
    """Require a relation if all literals are true; return False if it can never hold."""
    signs = (1.0,) if piece.equal is None else (1.0, -1.0)
    tolerance = 0.0 if piece.equal is None else piece.equal
    scale = max(piece.scale, abs(offset), 1e-12)
    units = _UNITS / scale
    bounds = {sign: [_most(term, sign, choices) for term in piece.terms] for sign in signs}
    for sign, parts in bounds.items():
        best = sum(float(most.max()) for most in parts) + sign * offset + tolerance
        if best < -_SLACK * scale:
            return False
    for sign, parts in bounds.items():
        expression = 0
        for term, most in zip(piece.terms, parts, strict=True):
            weights = np.ceil(most * units).astype(np.int64)
            expression = expression + choices[term.block.name].weighted(weights.tolist())
        least = -math.ceil((sign * offset + tolerance + _SLACK * scale) * units) - len(parts)
        if parts:
            program.at_least(expression, least, when)
    return True


def _most(term: Term, sign: float, choices: Mapping[str, Choice]) -> Array:
    """Return the largest value of a term, times a sign, over each atom."""
    atoms = choices[term.block.name].atoms
    factor = sign * term.coefficient
    if term.block.number is None:
        assert term.level_values is not None
        return np.asarray(factor * term.level_values.numpy()[atoms.codes])
    most = np.maximum(factor * atoms.low, factor * atoms.high)
    special = atoms.codes > 0
    if special.any() and term.level_values is not None:
        most[special] = factor * term.level_values.numpy()[atoms.codes[special]]
    return np.nan_to_num(most)


def _add_pairs(
    program: Program, allowance: Allowance, choices: Mapping[str, Choice], when: Sequence[Literal_]
) -> None:
    """Forbid pairs of levels of two features."""
    pairs = allowance.pairs
    if pairs is None:
        return
    blocks, layout = allowance.layout.with_levels, allowance.layout
    own = layout.codes(allowance.x)[0].tolist()
    negated = [literal.negated() for literal in when]
    for a, b in pairs.blocks.t().tolist():
        first, second = choices[blocks[a].name], choices[blocks[b].name]
        rows = int(pairs.starts[a]) + np.arange(len(blocks[a].levels))
        columns = int(pairs.starts[b]) + np.arange(len(blocks[b].levels))
        strict, lenient = (t[rows][:, columns].numpy() for t in (pairs.strict, pairs.lenient))
        bad = strict | lenient
        if not strict[own[a], own[b]]:
            bad[own[a], own[b]] = False
        for code in np.unique(first.atoms.codes).tolist():
            forbidden = second.literal(second.mask(bad[code][second.atoms.codes]))
            here = first.literal(first.mask(first.atoms.codes == code))
            if forbidden is False or here is False:
                continue
            literals = [lit.negated() for lit in (here, forbidden) if not isinstance(lit, bool)]
            program.any_of([*literals, *negated])
