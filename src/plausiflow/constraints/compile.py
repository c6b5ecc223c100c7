"""Rules compiled for a table: checked once, then applied to rows.

Compiled rules give the allowance of factual rows, which a search needs, and the violations of decoded rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from plausiflow.constraints.allowance import Allowance
from plausiflow.constraints.built_clauses import BuiltClauses
from plausiflow.constraints.encoded_clauses import LevelPiece, LinearPiece, RuleClause
from plausiflow.constraints.learned import LearnedRule
from plausiflow.constraints.learned_table import LearnedTable
from plausiflow.constraints.limits import FactualRows, Limits, one_hot
from plausiflow.constraints.linear import EQUALITY
from plausiflow.constraints.linear_rules import Linear
from plausiflow.constraints.monotone import Decreasing, Increasing
from plausiflow.constraints.prices import price_matrices
from plausiflow.constraints.problems import find_problems
from plausiflow.constraints.rule import Rule
from plausiflow.constraints.rules import Immutable
from plausiflow.constraints.state_pairs import StatePairs
from plausiflow.constraints.terms import Term
from plausiflow.constraints.violations import (
    KEPT_COLUMNS,
    KNOWN_LEVELS,
    MISSING_VALUES,
    TRAINING_RANGE,
    RowChanges,
)
from plausiflow.errors import InvalidInputError, ShapeError
from plausiflow.tables import Block, Feature, Layout, Mask, Schema

LOCKED = "locked"


class CompiledRules:
    """Rules for the rows of a table, without repetitions; rules that cannot be used raise an error.

    ``layout`` is that of the encoded rows, with the steps that the rules ask for.
    """

    def __init__(self, constraints: Sequence[Rule], schema: Schema, layout: Layout) -> None:
        if isinstance(constraints, str) or not isinstance(constraints, Sequence):
            raise InvalidInputError(f"`constraints` must be a list of rules; got {constraints!r}.")
        self.schema = schema
        problems = find_problems(constraints, self.features)
        if problems:
            raise InvalidInputError("The constraints cannot be used:\n- " + "\n- ".join(problems))
        self.constraints: tuple[Rule, ...] = tuple(dict.fromkeys(constraints))
        none = torch.zeros(0, layout.width)
        rows = FactualRows(self.features, layout, none, None, none.bool())
        self.layout = _with_steps(layout, _all_limits(rows, self.constraints))
        pairs: list[RuleClause] = []
        others: list[RuleClause] = []
        for index, rule in enumerate(self.constraints):
            # A bound narrows the limits of its feature: a solver needs no constraint for it.
            bound = isinstance(rule, Linear) and rule.bounds(self.features[rule.feature_names[0]]) is not None
            for statements in () if bound else rule.clauses(self.features):
                clause = RuleClause(rule, statements, index)
                (pairs if clause.is_pair(layout) else others).append(clause)
        self._pair_clauses, self._clauses = pairs, others
        self._pairs: dict[frozenset[int], StatePairs | None] = {}
        self._built: dict[torch.device, BuiltClauses] = {}

    def __repr__(self) -> str:
        return f"CompiledRules({', '.join(self.names)})"

    @cached_property
    def features(self) -> dict[str, Feature]:
        """Features of the table, by name."""
        return {feature.name: feature for feature in self.schema.features}

    @property
    def names(self) -> tuple[str, ...]:
        """The rules as people write them."""
        return tuple(map(str, self.constraints))

    @cached_property
    def immutable(self) -> tuple[str, ...]:
        """Features that no row may change, in the table's order."""
        named = {name for rule in self.constraints if isinstance(rule, Immutable) for name in rule.features}
        return tuple(name for name in self.features if name in named)

    @property
    def monotone(self) -> tuple[str, ...]:
        """Features that may move in one direction only, in the table's order."""
        named = {rule.feature for rule in self.constraints if isinstance(rule, Increasing | Decreasing)}
        return tuple(name for name in self.features if name in named)

    @cached_property
    def prices(self) -> dict[str, Tensor]:
        """Prices of changes from a level (row) to another (column), by feature; NaN for the default."""
        prices = price_matrices(self.constraints, self.features)
        return {name: torch.from_numpy(matrix) for name, matrix in prices.items()}

    def for_rows(
        self,
        x: Tensor,
        frame: pd.DataFrame | None = None,
        locked: Mask | Tensor | None = None,
        without: int | Collection[int] | None = None,
    ) -> Allowance:
        """Return what the rules allow the counterfactuals of some encoded rows ``(n, width)`` to be.

        ``frame`` are the same rows as a table, for exact values and for constants, which are not encoded and
        have their training value without it. ``locked`` are features that each row must keep, in the table's
        order, shape ``(n, features)``. ``without`` is the index of a rule to leave out, or several.
        """
        if x.ndim != 2 or x.shape[1] != self.layout.width:
            raise ShapeError(
                f"`x` must have shape (n, {self.layout.width}), rows as encoded; got {tuple(x.shape)}."
            )
        indices = (
            frozenset() if without is None else frozenset([without] if isinstance(without, int) else without)
        )
        if not indices <= set(range(len(self.constraints))):
            raise InvalidInputError(
                f"`without` must be the index of a rule, below {len(self.constraints)}; got {without!r}."
            )
        if frame is not None:
            self._check_frame("frame", frame, len(x))
        mask = torch.from_numpy(self._check_locked(locked, len(x))).to(x.device)
        rules = [rule for index, rule in enumerate(self.constraints) if index not in indices]
        unbound = [j for j, clause in enumerate(self._clauses) if clause.index in indices]
        rows = FactualRows(self.features, self.layout, x, frame, mask)
        if x.device not in self._built:
            self._built[x.device] = BuiltClauses.of(self._clauses, self.features, self.layout, x.device)
        return _allowance(rows, rules, self._built[x.device], unbound, self._state_pairs(indices))

    @cached_property
    def _pair_owners(self) -> frozenset[int]:
        """The rules that forbid pairs of states."""
        return frozenset(clause.index for clause in self._pair_clauses)

    def _state_pairs(self, without: frozenset[int]) -> StatePairs | None:
        """Return the forbidden pairs of states of all rules but some; computed once."""
        without = without & self._pair_owners
        if without not in self._pairs:
            clauses = [clause for clause in self._pair_clauses if clause.index not in without]
            self._pairs[without] = StatePairs.of(self.layout, self.features, clauses)
        return self._pairs[without]

    @cached_property
    def _columns(self) -> pd.Index[str]:
        """The columns of :meth:`violations`; rules that people write alike share one."""
        names = dict.fromkeys(str(rule) for rule in self.constraints)
        implicit = (LOCKED, TRAINING_RANGE, KNOWN_LEVELS, MISSING_VALUES, KEPT_COLUMNS)
        return pd.Index([*names, *implicit])

    @cached_property
    def _places(self) -> list[tuple[int, Rule]]:
        """Each rule with its column of :meth:`violations`."""
        place = {name: j for j, name in enumerate(dict.fromkeys(map(str, self.constraints)))}
        return [(place[str(rule)], rule) for rule in self.constraints]

    @cached_property
    def _given(self) -> list[tuple[int, Rule]]:
        """The rules that are checked one by one, each with its column."""
        return [(j, rule) for j, rule in self._places if type(rule) is not LearnedRule]

    @cached_property
    def _learned(self) -> LearnedTable:
        """The learned rules, which are checked at once."""
        rules = [rule for rule in self.constraints if type(rule) is LearnedRule]
        return LearnedTable(rules, self.features)

    @cached_property
    def _learned_places(self) -> npt.NDArray[np.int64]:
        """The columns of the learned rules."""
        places = [j for j, rule in self._places if type(rule) is LearnedRule]
        return np.array(places, dtype=np.int64)

    def violations(
        self, before: pd.DataFrame, after: pd.DataFrame, locked: Mask | Tensor | None = None
    ) -> pd.DataFrame:
        """Return which rules each row breaks, decided on the tables alone.

        If the encoder imputes missing values, ``before`` has the imputed ones. The result has the index of
        ``after`` and a column for each rule, named as people write it, then ``locked``, ``training range``,
        ``known levels``, ``missing values`` and ``constants and identifiers``.
        """
        self._check_frame("before", before, len(after))
        self._check_frame("after", after, len(after))
        changes = RowChanges(self.features, before, after)
        broken = np.zeros((len(self._columns), len(after)), dtype=bool)
        for place, rule in self._given:
            broken[place] |= rule.broken(changes)
        np.logical_or.at(broken, self._learned_places, self._learned.broken(changes))
        broken[-5] = (changes.mask & self._check_locked(locked, len(after))).any(axis=1)
        broken[-4:] = list(changes.implicit_violations().values())
        return pd.DataFrame(broken.T, index=after.index, columns=self._columns)

    def _check_frame(self, what: str, frame: pd.DataFrame, n: int) -> None:
        absent = [repr(name) for name in self.features if name not in frame.columns]
        if absent:
            raise InvalidInputError(
                f"`{what}` must have all columns of the table; missing: {', '.join(absent)}."
            )
        if len(frame) != n:
            raise ShapeError(f"`{what}` must have {n} rows, as many as the other rows; got {len(frame)}.")

    def _check_locked(self, locked: Mask | Tensor | None, n: int) -> Mask:
        shape = (n, len(self.features))
        if locked is None:
            return np.zeros(shape, dtype=np.bool_)
        mask = locked.cpu().numpy() if isinstance(locked, Tensor) else np.asarray(locked)
        if mask.shape != shape or mask.dtype != np.bool_:
            raise ShapeError(
                f"`locked` must hold booleans of shape {shape}, as from locked_mask; "
                f"got {mask.dtype} of shape {mask.shape}."
            )
        return mask


def _all_limits(rows: FactualRows, rules: Sequence[Rule]) -> dict[str, Limits]:
    """Return the limits of every feature, by name."""
    limits = {}
    for name, feature in rows.features.items():
        step, offset = feature.grid
        limits[name] = Limits(feature=feature, rows=rows, step=step, offset=offset)
    for rule in (rule for rule in rules if type(rule).narrow is not Rule.narrow):
        for name in rule.feature_names:
            limits[name] = rule.narrow(limits[name])
    return limits


def _with_steps(layout: Layout, limits: Mapping[str, Limits]) -> Layout:
    """Return the layout with the grids of the limits; the same object if no grid differs."""
    blocks = []
    for block in layout.blocks:
        own = limits[block.name]
        if block.scale is not None and (block.scale.step, block.scale.offset) != (own.step, own.offset):
            # A step of the user comes before the known values.
            known = block.scale.known if own.step == own.feature.grid[0] else ()
            block = replace(block, scale=replace(block.scale, step=own.step, offset=own.offset, known=known))
        blocks.append(block)
    return layout if tuple(blocks) == layout.blocks else Layout(tuple(blocks))


def _allowance(
    rows: FactualRows,
    rules: Sequence[Rule],
    built: BuiltClauses,
    unbound: list[int],
    pairs: StatePairs | None,
) -> Allowance:
    """Return what the rules allow the counterfactuals of rows to be; some clauses bind no row."""
    x, limits = rows.x, _all_limits(rows, rules)
    lower, upper, levels = _open_choices(rows, limits)
    possible = _constants_fit(rows, limits)
    forced = torch.zeros(len(x), dtype=torch.long, device=x.device)
    for block in (block for block in rows.layout.blocks if limits[block.name].narrowed):
        low, high, choices, has_choice, must_change = _feature_choices(rows, block, limits[block.name])
        if block.number is not None:
            lower[:, block.number], upper[:, block.number] = low, high
        levels[:, block.level_slice] = choices
        possible &= has_choice
        forced += must_change
    _bound_levels(rows, lower, upper, levels)
    if pairs is not None:
        _drop_unsupported(rows, pairs.to(x.device), lower, upper, levels)
    max_changes = min((rule.max_changes for rule in rules if rule.max_changes is not None), default=None)
    if max_changes is not None:
        possible &= forced <= max_changes
    offsets, binding = built.bind(rows)
    binding[:, unbound] = False
    allowance = Allowance(
        layout=_with_steps(rows.layout, limits),
        x=x,
        lower=lower,
        upper=upper,
        levels=levels,
        possible=possible,
        max_changes=max_changes,
        clauses=built.clauses,
        offsets=offsets,
        binding=binding,
        pairs=None if pairs is None else pairs.to(x.device),
        matrices=built.matrices,
    )
    return replace(allowance, possible=possible & _reachable(allowance))


def _drop_unsupported(
    rows: FactualRows, pairs: StatePairs, lower: Tensor, upper: Tensor, levels: Tensor
) -> None:
    """Drop the levels that no allowed level of another feature can occur with, in place."""
    columns = rows.layout.index(rows.x.device).columns
    levels[:, columns] = pairs.supported(levels[:, columns], rows.x[:, columns] == 1)
    _bound_levels(rows, lower, upper, levels)


def _bound_levels(rows: FactualRows, lower: Tensor, upper: Tensor, levels: Tensor) -> None:
    """Set the bounds of all levels from the choices, in place: the only choice of a feature is fixed."""
    index = rows.layout.index(rows.x.device)
    choices = levels[:, index.columns]
    count = choices.new_zeros(len(choices), len(index.starts), dtype=torch.long)
    only = count.index_add_(1, index.block_of, choices.long())[:, index.block_of] == 1
    lower[:, index.columns], upper[:, index.columns] = (choices & only).to(lower), choices.to(upper)


def _open_choices(rows: FactualRows, limits: Mapping[str, Limits]) -> tuple[Tensor, Tensor, Tensor]:
    """Return the bounds of numbers and the levels of all features if no rule narrows them, ``(n, width)``.

    A feature that is fixed, locked or missing keeps its value. There is always a choice, and no need to
    change: :func:`_feature_choices` treats the features that rules narrow further.
    """
    x, blocks, index = rows.x, rows.layout.blocks, rows.layout.index(rows.x.device)
    codes = index.codes(x)
    fixed = rows.locked[:, [rows.place[block.name] for block in blocks]]
    fixed = fixed | torch.tensor([limits[block.name].fixed for block in blocks], device=x.device).bool()
    fixed[:, index.with_levels] |= index.closed[codes + index.starts]
    kept = fixed[:, index.column_block]
    lower, upper = x.clamp_max(0.0), x.clamp_min(1.0)
    lower = torch.where(kept, torch.maximum(lower, x), lower)
    upper = torch.where(kept, torch.minimum(upper, x), upper)
    levels, own = torch.zeros_like(kept), codes[:, index.block_of] == index.level_of
    levels[:, index.columns] = torch.where(kept[:, index.columns], own, ~index.closed)
    return lower, upper, levels


def _feature_choices(rows: FactualRows, block: Block, limits: Limits) -> tuple[Tensor, ...]:
    """Return the bounds and levels of a feature, whether there is any choice, and whether it must change."""
    missing, x = rows.missing(block), rows.x
    locked = rows.locked[:, rows.place[block.name]]
    fixed = locked | limits.fixed | missing
    if block.number is None:
        own = one_hot(rows.codes(block), len(block.levels))
        choices = torch.where(missing[:, None], own, limits.level_choices(block, fixed))
        possible = choices.any(dim=1)
        forced = ~(choices & own).any(dim=1)
        choices = torch.where(possible[:, None], choices, own)
        return x[:, :0], x[:, :0], choices, possible, forced
    number = x[:, block.number]
    lower, upper = limits.number_bounds(block, fixed)
    lower, upper = torch.where(missing, number, lower), torch.where(missing, number, upper)
    forced = (number < lower) | (number > upper)
    possible = has_number = lower <= upper
    lower, upper = torch.where(possible, lower, number), torch.where(possible, upper, number)
    choices = x.new_zeros(len(x), 0, dtype=torch.bool)
    if len(block.levels):
        own = one_hot(rows.codes(block), len(block.levels))
        choices = limits.state_choices(block, fixed, has_number)
        choices = torch.where(missing[:, None], own, choices)
        possible = choices.any(dim=1)
        forced = torch.where(rows.free(block), forced, ~(choices & own).any(dim=1))
        choices = torch.where(possible[:, None], choices, own)
    return lower, upper, choices, possible, forced


def _constants_fit(rows: FactualRows, limits: Mapping[str, Limits]) -> Tensor:
    """Return whether the constants of each row, which cannot change, are in their ranges, shape ``(n,)``."""
    fit = torch.ones(len(rows.x), dtype=torch.bool, device=rows.x.device)
    for name, feature in rows.features.items():
        if feature.kind == "constant" and feature.is_numeric:
            values = rows.numbers(name)
            fit &= values.isnan() | ((values >= limits[name].lo) & (values <= limits[name].hi))
    return fit


def _reachable(allowance: Allowance) -> Tensor:
    """Return whether each clause can be true within a row's bounds and levels, shape ``(n,)``."""
    reachable = torch.ones(len(allowance.x), dtype=torch.bool, device=allowance.x.device)
    largest: dict[Term, Tensor] = {}
    for j, clause in enumerate(allowance.clauses):
        fine = ~allowance.binding[:, j]
        for i, piece in enumerate(clause.pieces, start=clause.start):
            if isinstance(piece, LinearPiece) and piece.equal is None:
                most = allowance.offsets[:, i]
                for term in piece.terms:
                    if term not in largest:
                        largest[term] = term.maximum(allowance.lower, allowance.upper, allowance.levels)
                    most = most + largest[term]
                fine = fine | (most >= -EQUALITY * piece.scale)
            elif isinstance(piece, LevelPiece):
                fine = fine | (allowance.levels[:, piece.block.level_slice] & piece.levels).any(dim=1)
            else:
                fine = torch.ones_like(fine)
        reachable &= fine
    return reachable
