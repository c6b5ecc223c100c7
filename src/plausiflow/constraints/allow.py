"""From rules and rows to what the rules leave to each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd
import torch
from torch import Tensor

from plausiflow.constraints.allowance import Allowance, Inequality, Term, levels_of
from plausiflow.constraints.bounds import Limits, level_choices, number_bounds, state_choices
from plausiflow.constraints.extents import EQUALITY, is_numeric, level_numbers, size, slack
from plausiflow.constraints.rules import Linear, MaxChanges, Rule
from plausiflow.tables import Block, Feature, Layout, read_numbers


@dataclass(frozen=True, eq=False)
class Rows:
    """Encoded rows, and what is known of them besides.

    Attributes:
        features: Of the table, by name.
        layout: Of encoded rows.
        x: The rows, shape ``(n, width)``.
        frame: The same rows as a table, if it is at hand.
        locked: Which features each row keeps, shape ``(n, features)``.
    """

    features: Mapping[str, Feature]
    layout: Layout
    x: Tensor
    frame: pd.DataFrame | None
    locked: Tensor

    def codes(self, block: Block) -> Tensor:
        """The rows' levels, shape ``(n,)``."""
        return self.x[:, levels_of(block)].argmax(dim=1)

    def missing(self, block: Block) -> Tensor:
        """Which rows are at a level that cannot be left, shape ``(n,)``."""
        if not len(block.levels):
            return torch.zeros(len(self.x), dtype=torch.bool, device=self.x.device)
        return torch.tensor(block.closed, device=self.x.device)[self.codes(block)]

    def numbers(self, name: str) -> Tensor:
        """A feature's values in original units, double, shape ``(n,)``; NaN where they are missing."""
        encoded = next((block for block in self.layout.blocks if block.name == name), None)
        if encoded is None:
            known = torch.full_like(self.x[:, 0], level_numbers(self.features[name])[0], dtype=torch.float64)
        else:
            known = term(1.0, encoded, self.features[name]).value(self.x.double())
            known = known.masked_fill(self.missing(encoded), torch.nan)
        if self.frame is None:
            return known
        cells = torch.tensor(read_numbers(self.frame[name])[0].copy()).to(known)
        # A missing number may have been filled when it was encoded.
        return torch.where(cells.isnan() & (encoded is not None), known, cells)

    def fixed(self, name: str, limits: Limits) -> Tensor:
        """Which rows keep a feature as it is, shape ``(n,)``."""
        return self.locked[:, list(self.features).index(name)] | limits.fixed


def term(coefficient: float, block: Block, feature: Feature) -> Term:
    """A feature's number times a coefficient; a missing level counts as zero."""
    if block.number is not None:
        return Term(coefficient, block, None)
    numbers = level_numbers(feature)
    padded = [*numbers, *[0.0] * (len(block.levels) - len(numbers))]
    return Term(coefficient, block, torch.tensor(padded, dtype=torch.float64))


def build(rows: Rows, rules: Sequence[Rule]) -> Allowance:
    """What rules leave to rows."""
    n, x = len(rows.x), rows.x
    lower, upper, levels = x.clone(), x.clone(), torch.zeros_like(x, dtype=torch.bool)
    possible = _constants_fit(rows, rules)
    forced = torch.zeros(n, dtype=torch.long, device=x.device)
    for block in rows.layout.blocks:
        part = _feature(rows, block, Limits.of(block.name, rules))
        if block.number is not None:
            lower[:, block.number], upper[:, block.number] = part.lower, part.upper
        lower[:, levels_of(block)] = (part.choices & (part.choices.sum(dim=1, keepdim=True) == 1)).to(x)
        upper[:, levels_of(block)] = part.choices.to(x)
        levels[:, levels_of(block)] = part.choices
        possible &= part.possible
        forced += part.forced
    limit = min((rule.limit for rule in rules if isinstance(rule, MaxChanges)), default=None)
    if limit is not None:
        possible &= forced <= limit
    inequalities, offsets, binding = _inequalities(rows, rules)
    allowance = Allowance(
        layout=rows.layout,
        x=x,
        lower=lower,
        upper=upper,
        levels=levels,
        possible=possible,
        max_changes=limit,
        inequalities=inequalities,
        offsets=offsets,
        binding=binding,
    )
    return replace(allowance, possible=possible & _reachable(allowance))


@dataclass(frozen=True, eq=False)
class _Part:
    """What is left of one feature: bounds, levels, whether anything is, and whether it must change."""

    lower: Tensor
    upper: Tensor
    choices: Tensor
    possible: Tensor
    forced: Tensor


def _feature(rows: Rows, block: Block, limits: Limits) -> _Part:
    feature, missing = rows.features[block.name], rows.missing(block)
    fixed = rows.fixed(block.name, limits) | missing
    if block.number is None:
        codes = rows.codes(block)
        own = torch.nn.functional.one_hot(codes, len(block.levels)).bool()
        choices = level_choices(feature, block, limits, codes, fixed)
        choices = torch.where(missing[:, None], own, choices)
        possible = choices.any(dim=1)
        forced = ~(choices & own).any(dim=1)
        none = rows.x[:, :0]
        return _Part(none, none, torch.where(possible[:, None], choices, own), possible, forced)
    number = rows.x[:, block.number]
    lower, upper = number_bounds(feature, limits, number, rows.numbers(block.name), fixed)
    lower, upper = torch.where(missing, number, lower), torch.where(missing, number, upper)
    forced = (number < lower) | (number > upper)
    possible = lower <= upper
    lower, upper = torch.where(possible, lower, number), torch.where(possible, upper, number)
    choices = rows.x.new_zeros(len(number), 0, dtype=torch.bool)
    if len(block.levels):
        choices = state_choices(block, number, lower, upper, rows.codes(block))
    return _Part(lower, upper, choices, possible, forced)


def _constants_fit(rows: Rows, rules: Sequence[Rule]) -> Tensor:
    """Whether the constants of each row, which cannot change, are in their ranges, shape ``(n,)``."""
    fit = torch.ones(len(rows.x), dtype=torch.bool, device=rows.x.device)
    for name, feature in rows.features.items():
        if feature.kind == "constant" and is_numeric(feature):
            limits, values = Limits.of(name, rules), rows.numbers(name)
            fit &= values.isnan() | ((values >= limits.lo) & (values <= limits.hi))
    return fit


def _inequalities(rows: Rows, rules: Sequence[Rule]) -> tuple[tuple[Inequality, ...], Tensor, Tensor]:
    """The relations, their constants and which of them bind, each of the latter of shape ``(n, m)``."""
    blocks = {block.name: block for block in rows.layout.blocks}
    inequalities, offsets, binding = [], [], []
    for rule in (rule for rule in rules if isinstance(rule, Linear)):
        relation = rule.relation
        bound = torch.ones(len(rows.x), dtype=torch.bool, device=rows.x.device)
        constant = torch.full_like(rows.x[:, 0], relation.constant)
        for name, a in relation.coefficients.items():
            numbers = rows.numbers(name)
            bound &= ~numbers.isnan()
            if name not in blocks:
                constant = constant + a * numbers.nan_to_num().to(constant)
        room = slack(relation, rows.features)
        for sign in (1.0, -1.0) if relation.equal else (1.0,):
            terms = tuple(
                term(sign * a, blocks[name], rows.features[name])
                for name, a in relation.coefficients.items()
                if name in blocks
            )
            inequalities.append(Inequality(str(rule), terms, size(relation, rows.features)))
            offsets.append(sign * constant + room)
            binding.append(bound)
    if not inequalities:
        none = rows.x[:, :0]
        return (), none, none.bool()
    return tuple(inequalities), torch.stack(offsets, dim=1), torch.stack(binding, dim=1)


def _reachable(allowance: Allowance) -> Tensor:
    """Whether each relation can be met within a row's bounds and levels, shape ``(n,)``."""
    reachable = torch.ones(len(allowance.x), dtype=torch.bool, device=allowance.x.device)
    for j, inequality in enumerate(allowance.inequalities):
        most = allowance.offsets[:, j]
        for part in inequality.terms:
            most = most + part.most(allowance)
        reachable &= (most >= -EQUALITY * inequality.scale) | ~allowance.binding[:, j]
    return reachable
