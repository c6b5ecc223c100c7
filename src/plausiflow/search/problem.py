"""The one builder of optimisation problems, for PPCEF and for tables. [PPCEF Eq. 3]

PPCEF moves every column of a row and has no categories. The search over tables moves the numbers of
candidates whose categories are fixed. Both get the same constraints: validity, plausibility and linear rules;
and the same requirements as the paper's penalties (Eqs. 7 to 9) for solvers that minimise a weighted sum.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from plausiflow.core import (
    Constraint,
    MovingColumns,
    Problem,
    RowFunction,
    RowScores,
    Targets,
    ValidityConstraint,
    plausibility_constraint,
)

RULE_BUFFER = 1e-6
"""How far inside a rule a solver aims, in units of the rule."""


def build_problem(
    *,
    x: Tensor,
    targets: Targets,
    validity: ValidityConstraint,
    scores: RowScores,
    moving: MovingColumns,
    rows: Tensor,
    lower: Tensor | None = None,
    upper: Tensor | None = None,
    weights: Tensor | None = None,
    normals: Tensor | None = None,
    rules: Mapping[str, Constraint] | None = None,
    extra_plausibility: float | Tensor = 0.0,
) -> Problem:
    """Build one program per row.

    Args:
        x: Moving columns of the factuals, shape ``(p, d)``.
        targets: Targets of the rows of ``scores``.
        validity: Whether the model meets a target.
        scores: Plausibility of candidates.
        moving: The columns that move, and the encoded rows they belong to.
        rows: The row of ``scores`` that each program belongs to, shape ``(p,)``.
        lower: Smallest allowed values, shape ``(p, d)``.
        upper: Largest allowed values, shape ``(p, d)``.
        weights: Cost per feature, shape ``(d,)`` or ``(p, d)``.
        normals: Directions that steps must be orthogonal to, shape ``(p, k, d)``.
        rules: Further constraints on whole encoded rows by name, such as linear relations.
        extra_plausibility: How much more plausible than needed answers must be, in nats; may be ``(p,)``.
    """
    constraints, penalties = {}, {}
    constraints["validity"], penalties["validity"] = validity.constraint(targets, rows, moving)
    constraints["plausibility"], penalties["plausibility"] = plausibility_constraint(
        scores, moving, rows, extra_plausibility
    )
    for name, rule in (rules or {}).items():
        constraints[name] = _of_encoded(rule, moving)
        penalties[name] = _violation(constraints[name].value)
    return Problem(
        x=x,
        constraints=constraints,
        penalties=penalties,
        lower=lower,
        upper=upper,
        weights=weights,
        normals=normals,
    )


def _of_encoded(rule: Constraint, moving: MovingColumns) -> Constraint:
    """Return a constraint on encoded rows as one on the moving columns."""

    def value_and_grad(z: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
        assert rule.value_and_grad is not None
        own, gradient = rule.value_and_grad(moving.encoded(z, which), which)
        return own, moving.gradient(gradient)

    return Constraint(
        lambda z, which: rule.value(moving.encoded(z, which), which),
        RULE_BUFFER,
        None if rule.value_and_grad is None else value_and_grad,
    )


def _violation(value: RowFunction) -> RowFunction:
    return lambda z, which: (-value(z, which)).clamp_min(0)
