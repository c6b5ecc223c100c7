"""The fewest rules to relax, so that a row has a counterfactual at all.

Every rule is a literal, each feature of an ``Immutable`` and each locked feature on its own. A literal that
is true restricts the atoms, and adds the rule's relations; the program minimises the number of literals that
are false. The result is only reported if model and remaining rules accept the row that the solver found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from torch import Tensor

from plausiflow.constraints import Allowance, CompiledRules, Immutable, Price
from plausiflow.exact.atoms import Atoms, Costs
from plausiflow.exact.choices import Choice
from plausiflow.exact.cp_sat import Program
from plausiflow.exact.layer_space import LayerSpace
from plausiflow.exact.model_program import ModelProgram
from plausiflow.exact.objective import UNITS
from plausiflow.exact.row_program import RowProblem
from plausiflow.exact.rule_program import add_joint_rules
from plausiflow.exact.scores import ScoreRow
from plausiflow.exact.spaces import ModelSpace
from plausiflow.tables import Mask


@dataclass(frozen=True, eq=False)
class RuleItem:
    """A rule that may be relaxed, or one feature that a rule or a lock keeps.

    Attributes:
        name: The rule as people write it.
        feature: The feature that it keeps; None for another rule.
        allowance: What it alone allows the row; None if it keeps a feature.
    """

    name: str
    feature: str | None
    allowance: Allowance | None


@dataclass(frozen=True, eq=False)
class Relaxation:
    """The fewest rules to relax, and a row that is possible then.

    Attributes:
        items: The rules.
        x_cf: The row, encoded, shape ``(1, width)``.
        fewest: Whether it is proven that fewer rules are not enough.
    """

    items: tuple[RuleItem, ...]
    x_cf: Tensor
    fewest: bool


def rule_items(rules: CompiledRules, x: Tensor, row: pd.DataFrame, locked: Mask | None) -> list[RuleItem]:
    """Return everything that may be relaxed for one row."""
    items: list[RuleItem] = []
    everything = set(range(len(rules.constraints)))
    for i, rule in enumerate(rules.constraints):
        if isinstance(rule, Immutable):
            items += [RuleItem(f'Immutable("{name}")', name, None) for name in rule.features]
        elif not isinstance(rule, Price):
            own = rules.for_rows(x, row, None, everything - {i})
            items.append(RuleItem(str(rule), None, own))
    if locked is not None:
        names = list(rules.features)
        items += [RuleItem(f"the lock on {names[j]}", names[j], None) for j in np.flatnonzero(locked[0])]
    return items


def fewest_rules(
    space: ModelSpace,
    costs: Costs,
    rules: CompiledRules,
    x: Tensor,
    row: pd.DataFrame,
    locked: Mask | None,
    score: Sequence[ScoreRow],
    accepts: Callable[[Tensor, Sequence[RuleItem]], bool],
    seconds: float,
    work: float | None = None,
) -> Relaxation | None:
    """Return the fewest rules to relax; None if no such set was found in time.

    ``accepts`` tells whether model and rules accept an encoded row without some rules.
    """
    items = rule_items(rules, x, row, locked)
    free = rules.for_rows(x, row, None, set(range(len(rules.constraints))))
    others = [item.allowance for item in items if item.allowance is not None]
    problem = RowProblem.of(space, free, costs, row, others)
    program = Program()
    if not all(len(atoms) for atoms in problem.atoms):
        return None
    most = max(problem.largest_cost, 1e-6)
    model = ModelProgram.of(program, problem.atoms, x, space, most / UNITS, most)
    if not model.add_target(problem.own_left, score):
        return None
    active = [program.boolean() for _ in items]
    for item, literal in zip(items, active, strict=True):
        _enforce(program, item, model.by_name, literal)
    program.minimise(program.weighted(active, [-1] * len(active), len(active)))
    result = program.solve(seconds, work, presolve=not isinstance(space, LayerSpace))
    if not result.has_solution:
        return None
    relaxed = tuple(i for i, literal in zip(items, active, strict=True) if not result.is_true(literal))
    x_cf = problem.encoded(*model.chosen(result))
    if not relaxed or not accepts(x_cf, relaxed):
        return None
    return Relaxation(relaxed, x_cf, result.status == "optimal")


def _enforce(program: Program, item: RuleItem, choices: dict[str, Choice], active: object) -> None:
    """Require a rule if its literal is true."""
    if item.allowance is None:
        choice = choices.get(item.feature or "")
        if choice is not None:
            _restrict(program, choice, choice.atoms.kept, active)
        return
    if not bool(item.allowance.possible[0]):
        program.any_of([active.negated()])  # type: ignore[attr-defined]
        return
    for choice in choices.values():
        _restrict(program, choice, _allowed(item.allowance, choice.atoms), active)
    add_joint_rules(program, item.allowance, choices, [active])


def _restrict(program: Program, choice: Choice, allowed: Mask, active: object) -> None:
    literal = choice.literal(choice.mask(allowed))
    if literal is False:
        program.any_of([active.negated()])  # type: ignore[attr-defined]
    elif literal is not True:
        program.implies(active, literal)


def _allowed(allowance: Allowance, atoms: Atoms) -> Mask:
    """Return which atoms an allowance contains."""
    block = atoms.block
    inside = np.ones(len(atoms), dtype=bool)
    if len(block.levels):
        inside &= allowance.levels[0, block.level_slice].numpy()[atoms.codes]
    if block.number is not None:
        lower, upper = (float(t[0, block.number]) for t in (allowance.lower, allowance.upper))
        inside &= (atoms.codes > 0) | ((atoms.numbers >= lower) & (atoms.numbers <= upper))
    return inside
