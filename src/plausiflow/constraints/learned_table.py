"""Learned rules checked on decoded tables all at once, instead of one rule after the other.

A clause of two statements about states of two features forbids pairs of states: all such clauses of a rule
about the same two features are one table. The statements of all other clauses are evaluated together:
statements about states by look-up, linear relations term by term. The results are those of
:meth:`~plausiflow.constraints.learned.LearnedRule.broken`, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from plausiflow.constraints.clauses import (
    Clause,
    Holds,
    InStates,
    Kept,
    Multiplied,
    feature_states,
    is_true,
    state_codes,
    true_states,
    values_of,
)
from plausiflow.constraints.known_pairs import Determines, NeverTogether
from plausiflow.constraints.learned import LearnedRule
from plausiflow.constraints.linear import ROUNDING
from plausiflow.constraints.violations import RowChanges
from plausiflow.tables import Feature, FloatArray, IntArray, Mask

PairTables = dict[tuple[str, str], Mask]


class LearnedTable:
    """Learned rules of a table, ready to be checked.

    Args:
        rules: The rules.
        features: Features of the table, by name.
    """

    def __init__(self, rules: Sequence[LearnedRule], features: Mapping[str, Feature]) -> None:
        self.rules = tuple(rules)
        pairs: list[tuple[int, tuple[str, str], Mask]] = []
        others: list[tuple[int, Clause]] = []
        for j, learned in enumerate(rules):
            tables, rest = _split(learned, features)
            pairs += [(j, names, table) for names, table in tables.items()]
            others += [(j, clause) for clause in rest]
        self._pairs = _Pairs([(names, table) for _, names, table in pairs], features)
        self._clauses = _Clauses([clause for _, clause in others], features)
        self._owners = np.array([j for j, *_ in (*pairs, *others)], dtype=np.int64)

    def broken(self, changes: RowChanges) -> Mask:
        """Return which rules each row breaks by what it changed, shape ``(rules, n)``."""
        n = len(changes.after)
        found = np.concatenate([self._pairs.broken(changes), self._clauses.broken(changes)])
        broken = np.zeros((len(self.rules), n), dtype=bool)
        some = np.flatnonzero(found.any(axis=1))
        np.logical_or.at(broken, self._owners[some], found[some])
        return broken


def _split(learned: LearnedRule, features: Mapping[str, Feature]) -> tuple[PairTables, list[Clause]]:
    """Return the tables of a rule's forbidden pairs of states, and its other clauses."""
    rule = learned.rule
    if isinstance(rule, NeverTogether | Determines):
        return rule.pair_tables(features), []
    tables: PairTables = {}
    others: list[Clause] = []
    for clause in rule.clauses(features):
        states = [statement for statement in clause if isinstance(statement, InStates)]
        if len(clause) != 2 or len(states) != 2 or states[0].feature == states[1].feature:
            others.append(clause)
            continue
        first, second = states
        table = np.outer(*(~true_states(s, features[s.feature]) for s in states))
        if (second.feature, first.feature) in tables:
            tables[second.feature, first.feature] |= table.T
        else:
            names = (first.feature, second.feature)
            tables[names] = tables.get(names, np.zeros_like(table)) | table
    return tables, others


class _Pairs:
    """Tables of pairs of states that a row may keep but not enter; the last state is an unknown one."""

    def __init__(
        self, tables: Sequence[tuple[tuple[str, str], Mask]], features: Mapping[str, Feature]
    ) -> None:
        self._names = list(dict.fromkeys(name for names, _ in tables for name in names))
        place = {name: j for j, name in enumerate(self._names)}
        self._first = np.array([place[a] for (a, _), _ in tables], dtype=np.int64)
        self._second = np.array([place[b] for (_, b), _ in tables], dtype=np.int64)
        widths = [table.shape[1] for _, table in tables]
        self._widths = np.array(widths, dtype=np.int64)[:, None]
        sizes = [table.size for _, table in tables]
        self._starts = np.cumsum([0, *sizes], dtype=np.int64)[:-1, None]
        self._cells = np.concatenate([np.zeros(0, dtype=bool), *(table.ravel() for _, table in tables)])
        self._unknown = [len(feature_states(features[name])) for name in self._names]

    def broken(self, changes: RowChanges) -> Mask:
        """Return which rows enter a pair of each table, shape ``(tables, n)``."""
        n = len(changes.after)
        if not len(self._first):
            return np.zeros((0, n), dtype=bool)
        codes, moved = _codes(changes, self._names, self._unknown)
        at = self._starts + codes[self._first] * self._widths + codes[self._second]
        return self._cells[at] & (moved[self._first] | moved[self._second])


class _Clauses:
    """Clauses that a row may break as long as it keeps their features."""

    def __init__(self, clauses: Sequence[Clause], features: Mapping[str, Feature]) -> None:
        statements = [statement for clause in clauses for statement in clause]
        self._starts = np.cumsum([0, *map(len, clauses)])[:-1]
        states = [(j, s) for j, s in enumerate(statements) if isinstance(s, InStates)]
        sums = [(j, s) for j, s in enumerate(statements) if isinstance(s, Holds)]
        self._others = [(j, s) for j, s in enumerate(statements) if isinstance(s, Kept | Multiplied)]
        self._states = _StateStatements([s for _, s in states], features)
        self._sums = _SumStatements([s for _, s in sums], features)
        self._at_states = np.array([j for j, _ in states], dtype=np.int64)
        self._at_sums = np.array([j for j, _ in sums], dtype=np.int64)
        # The features of each statement that is not about states, and the statement of each.
        named = sorted((j, name) for j, s in (*sums, *self._others) for name in s.feature_names)
        place = {name: j for j, name in enumerate(features)}
        self._named = np.array([place[name] for _, name in named], dtype=np.int64)
        self._at_named, self._named_starts = np.unique([j for j, _ in named], return_index=True)
        self._count = len(statements)

    def broken(self, changes: RowChanges) -> Mask:
        """Return which rows break each clause, shape ``(clauses, n)``."""
        n = len(changes.after)
        if not self._count:
            return np.zeros((0, n), dtype=bool)
        touched = np.zeros((self._count, n), dtype=bool)
        if len(self._named):
            cells = changes.mask.T[self._named]
            touched[self._at_named] = np.logical_or.reduceat(cells, self._named_starts)
        met = np.zeros((self._count, n), dtype=bool)
        met[self._at_states], touched[self._at_states] = self._states.read(changes)
        met[self._at_sums] = self._sums.true(changes)
        for j, statement in self._others:
            met[j] = is_true(statement, changes)
        return np.asarray(
            np.logical_or.reduceat(touched, self._starts) & ~np.logical_or.reduceat(met, self._starts)
        )


class _StateStatements:
    """Statements about states, as tables of the states at which they are true."""

    def __init__(self, statements: Sequence[InStates], features: Mapping[str, Feature]) -> None:
        self._names = list(dict.fromkeys(statement.feature for statement in statements))
        place = {name: j for j, name in enumerate(self._names)}
        self._feature = np.array([place[s.feature] for s in statements], dtype=np.int64)
        true = [true_states(statement, features[statement.feature]) for statement in statements]
        self._starts = np.cumsum([0, *map(len, true)], dtype=np.int64)[:-1, None]
        self._cells = np.concatenate([np.zeros(0, dtype=bool), *true])
        self._unknown = [len(feature_states(features[name])) for name in self._names]

    def read(self, changes: RowChanges) -> tuple[Mask, Mask]:
        """Return where each statement is true, and where its state has changed, both ``(statements, n)``."""
        if not self._names:
            return (np.zeros((0, len(changes.after)), dtype=bool),) * 2
        codes, moved = _codes(changes, self._names, self._unknown)
        return self._cells[self._starts + codes[self._feature]], moved[self._feature]


@dataclass(frozen=True, eq=False)
class _Term:
    """The terms at one position of several sums: which value each multiplies, and by what."""

    value: IntArray  # position of the value; that of the last one, which is zero, where a sum is shorter
    factor: FloatArray
    slack: FloatArray  # rounding of a number without a grid


class _SumStatements:
    """Linear relations, summed term by term in the order in which each relation has them."""

    def __init__(self, statements: Sequence[Holds], features: Mapping[str, Feature]) -> None:
        terms = [list(_terms(statement)) for statement in statements]
        self._keys = list(dict.fromkeys(key for each in terms for key, _ in each))
        place = {key: j for j, key in enumerate(self._keys)}
        longest = max(map(len, terms), default=0)
        value = np.full((longest, len(terms)), len(place), dtype=np.int64)
        factor, slack = np.zeros((2, longest, len(terms)), dtype=np.float64)
        for j, each in enumerate(terms):
            for k, (key, a) in enumerate(each):
                feature = features[key[0]]
                value[k, j], factor[k, j] = place[key], a
                if feature.is_number and not feature.step:
                    slack[k, j] = abs(a) * ROUNDING * (feature.maximum - feature.minimum)
        self._terms = [_Term(v, a[:, None], s[:, None]) for v, a, s in zip(value, factor, slack, strict=True)]
        constants = [statement.constant for statement in statements]
        self._constant = np.array(constants, dtype=np.float64)[:, None]
        tolerance = [s.tolerance + ROUNDING * abs(s.constant) for s in statements]
        self._tolerance = np.array(tolerance, dtype=np.float64)[:, None]
        self._equal = np.array([statement.equal for statement in statements], dtype=bool)[:, None]

    def true(self, changes: RowChanges) -> Mask:
        """Return where each relation holds, shape ``(statements, n)``."""
        n = len(changes.after)
        values = np.zeros((len(self._keys) + 1, n))
        rounding = np.zeros((len(values), 1))
        for j, (name, before, rank) in enumerate(self._keys):
            values[j] = values_of(changes, name, before=before, rank=rank)
            rounding[j] = ROUNDING + changes.precision(name)
        total = np.repeat(self._constant, n, axis=1)
        tolerance = np.repeat(self._tolerance, n, axis=1)
        for term in self._terms:
            own = values[term.value]
            total += term.factor * own
            tolerance += np.abs(term.factor) * np.abs(own) * rounding[term.value]
            tolerance += term.slack
        # Comparisons with NaN are false: a relation does not bind a row with a missing value.
        return ~np.asarray((total < -tolerance) | (self._equal & (total > tolerance)))


def _terms(statement: Holds) -> Iterator[tuple[tuple[str, bool, bool], float]]:
    """Yield the terms of a relation: a feature, whether it is the row's own value, its rank; its factor."""
    for side, before in ((statement.coefficients, False), (statement.own, True)):
        for name, a in side.items():
            yield (name, before, statement.rank), a


def _codes(changes: RowChanges, names: Sequence[str], unknown: Sequence[int]) -> tuple[IntArray, Mask]:
    """Return the changed states of features, and whether each has changed, both of shape ``(names, n)``."""
    after = np.stack([state_codes(changes, name) for name in names])
    before = np.stack([state_codes(changes, name, before=True) for name in names])
    moved = (after != before) & np.stack([changes.changed(name) for name in names])
    return np.where(after < 0, np.array(unknown, dtype=np.int64)[:, None], after), moved
