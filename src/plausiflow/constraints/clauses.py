"""Rules as clauses: lists of statements about a changed row of which at least one must be true.

"If the job changes, tenure is zero" is the clause *the job is kept, or tenure is zero*. The same clauses are
checked on decoded tables here, and on encoded rows in :mod:`plausiflow.constraints.encoded_clauses`.

A missing value breaks no clause: a statement about a missing number is true, and a missing level counts as
any level, unless the statement is about missing values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pandas as pd

from plausiflow.constraints.formulas import Formula
from plausiflow.constraints.linear import ROUNDING, Relation
from plausiflow.constraints.violations import RowChanges
from plausiflow.tables import MISSING, CellValue, Feature, FloatArray, Mask, float_dtype

State: TypeAlias = CellValue | None
"""A level of a category, a special value of a number, ``FREE`` for its other values, None for missing."""
FREE = "any other number"


@dataclass(frozen=True)
class Holds:
    r"""A linear relation, :math:`\sum_j a_j x'_j + \sum_j c_j x_j + b \ge -\text{tolerance}`.

    Attributes:
        coefficients: The a, by feature: factors of the changed values.
        constant: The b.
        own: The c, by feature: factors of the row's own values.
        tolerance: By how much it may be missed; a strict inequality has a negative one.
        equal: Whether the sum must be within the tolerance of zero on both sides.
        rank: Whether values are positions in the order of levels, instead of numbers.
    """

    coefficients: Mapping[str, float]
    constant: float
    own: Mapping[str, float] = field(default_factory=dict)
    tolerance: float = 0.0
    equal: bool = False
    rank: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features."""
        return tuple(dict.fromkeys([*self.coefficients, *self.own]))


@dataclass(frozen=True)
class InStates:
    """The changed value is in one of some states, or (negated) in none of them."""

    feature: str
    states: tuple[State, ...]
    negated: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The name of the feature."""
        return (self.feature,)


@dataclass(frozen=True)
class Kept:
    """All of these features keep their value."""

    features: tuple[str, ...]

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features."""
        return self.features


@dataclass(frozen=True)
class Multiplied:
    r"""One side of a computed changed value: :math:`s (t - f(x')) \ge -\text{tolerance}`.

    It does not bind a row where the formula has no result.

    Attributes:
        feature: The t.
        formula: The f.
        tolerance: By how much it may be missed.
        sign: The s, 1 or -1.
    """

    feature: str
    formula: Formula
    tolerance: float
    sign: float

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features."""
        return (self.feature, *self.formula.names)


Statement = Holds | InStates | Kept | Multiplied
Clause: TypeAlias = tuple[Statement, ...]


def relation_clauses(relation: Relation, tolerance: float) -> tuple[Clause, ...]:
    """Return a relation that must hold as clauses: one for each side of an equality."""
    signs = (1.0, -1.0) if relation.equal else (1.0,)
    return tuple((signed(relation, sign, tolerance),) for sign in signs)


def signed(relation: Relation, sign: float, tolerance: float) -> Holds:
    """Return the statement that the left side times ``sign`` is at least minus the tolerance."""
    coefficients = {name: sign * a for name, a in relation.coefficients.items()}
    return Holds(coefficients, sign * relation.constant, tolerance=tolerance)


def special_values(feature: Feature) -> tuple[float, ...]:
    """Return the special values of a number, each of which is a state of its own."""
    return feature.special


def feature_states(feature: Feature) -> tuple[State, ...]:
    """Return the states of a feature: levels, or special values of a number and any other; missing last."""
    if feature.is_number:
        return (FREE, *special_values(feature), None)
    return (*feature.levels, None)


def state_codes(changes: RowChanges, name: str, *, before: bool = False) -> np.ndarray:
    """Return the position of each row's state in :func:`feature_states`, shape ``(n,)``; -1 if unknown."""
    return changes.once("states", name, before, lambda column: _states(changes, name, before, column))


def _states(changes: RowChanges, name: str, before: bool, column: pd.Series) -> np.ndarray:
    feature = changes.features[name]
    if not feature.is_number:
        codes = changes.codes_before(name) if before else changes.codes_after(name)
        return np.where(codes >= 0, codes, np.where(codes == MISSING, len(feature.levels), -1))
    values = changes.numbers_before(name) if before else changes.numbers_after(name)
    codes = np.zeros(len(values), dtype=np.int64)
    dtype, special = float_dtype(column.dtype), special_values(feature)
    for code, value in enumerate(special, start=1):
        codes[values == float(dtype.type(value))] = code
    codes[np.isnan(values)] = len(special) + 1
    return codes


def clauses_broken(clauses: Sequence[Clause], changes: RowChanges, *, lenient: bool = False) -> Mask:
    """Return which rows break one of the clauses, decided on decoded tables, shape ``(n,)``.

    With ``lenient``, a row may break a clause whose features it has not changed.
    """
    broken = np.zeros(len(changes.after), dtype=bool)
    for clause in clauses:
        met = np.zeros(len(broken), dtype=bool)
        touched = np.full(len(broken), not lenient)
        for statement in clause:
            met |= is_true(statement, changes)
            if lenient:
                touched |= _is_touched(statement, changes)
        broken |= ~met & touched
    return broken


def _is_touched(statement: Statement, changes: RowChanges) -> Mask:
    if isinstance(statement, InStates):
        codes = (state_codes(changes, statement.feature, before=before) for before in (True, False))
        return np.asarray(next(codes) != next(codes))
    return changes.changed(*statement.feature_names)


def true_states(statement: InStates, feature: Feature) -> Mask:
    """Return at which states of a feature a statement is true; the last entry is for an unknown state."""
    known = feature_states(feature)
    inside = np.zeros(len(known) + 1, dtype=bool)
    inside[[known.index(state) for state in statement.states if state in known]] = True
    if statement.negated:
        return ~inside
    inside[len(known) - 1] = True  # a missing value
    return inside


def is_true(statement: Statement, changes: RowChanges) -> Mask:
    """Return for which changed rows a statement is true, shape ``(n,)``."""
    if isinstance(statement, Kept):
        return ~changes.changed(*statement.features)
    if isinstance(statement, InStates):
        true = true_states(statement, changes.features[statement.feature])
        return np.asarray(true[state_codes(changes, statement.feature)])
    if isinstance(statement, Multiplied):
        return _product_true(statement, changes)
    return _relation_true(statement, changes)


def _product_true(statement: Multiplied, changes: RowChanges) -> Mask:
    names, formula = statement.feature_names, statement.formula
    total, *values = (changes.numbers_after(name) for name in names)
    with np.errstate(all="ignore"):
        result = formula.of_arrays(values)
        eps = (ROUNDING + max(changes.precision(name) for name in names)) * max(1.0, formula.relative_error)
        size = np.maximum(np.abs(total), np.abs(result) + abs(formula.constant))
        # Comparisons with NaN are false: the statement does not bind a row with a missing value.
        return ~np.asarray(statement.sign * (total - result) < -(statement.tolerance + 4 * eps * size))


def _relation_true(statement: Holds, changes: RowChanges) -> Mask:
    total = np.full(len(changes.after), statement.constant, dtype=np.float64)
    tolerance = np.full(len(total), statement.tolerance + ROUNDING * abs(statement.constant))
    sides = ((statement.coefficients, False), (statement.own, True))
    for name, a, before in ((n, a, before) for side, before in sides for n, a in side.items()):
        feature = changes.features[name]
        values = values_of(changes, name, before=before, rank=statement.rank)
        total += a * values
        tolerance += abs(a) * np.abs(values) * (ROUNDING + changes.precision(name))
        if feature.is_number and not feature.step:
            tolerance += abs(a) * ROUNDING * (feature.maximum - feature.minimum)
    # Comparisons with NaN are false: a relation does not bind a row with a missing value.
    unmet = total < -tolerance
    return ~np.asarray(unmet | (total > tolerance) if statement.equal else unmet)


def values_of(changes: RowChanges, name: str, *, before: bool, rank: bool) -> FloatArray:
    """Return a column's numbers, or the positions of its levels; NaN if missing, shape ``(n,)``."""
    if not rank:
        return changes.numbers_before(name) if before else changes.numbers_after(name)
    codes = changes.codes_before(name) if before else changes.codes_after(name)
    return np.where(codes >= 0, codes, np.nan)
