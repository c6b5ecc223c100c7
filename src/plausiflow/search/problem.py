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
    plausibility_hinge,
)

VALIDITY_BUFFER, PLAUSIBILITY_BUFFER, RULE_BUFFER = 1e-3, 5e-3, 1e-6
"""How far inside its constraints a solver aims, in logits, nats and units of a rule."""


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
    rules: Mapping[str, RowFunction] | None = None,
    extra_plausibility: float = 0.0,
) -> Problem:
    """Build one program per row.

    Args:
        x: Moving columns of the factuals, shape ``(p, d)``.
        targets: Target of each program.
        validity: Whether the model meets a target.
        scores: Plausibility of candidates.
        moving: The columns that move, and the encoded rows they belong to.
        rows: The row of ``scores`` that each program belongs to, shape ``(p,)``.
        lower: Smallest allowed values, shape ``(p, d)``.
        upper: Largest allowed values, shape ``(p, d)``.
        weights: Cost per feature, shape ``(d,)`` or ``(p, d)``.
        rules: Further constraints on encoded rows by name, such as linear relations.
        extra_plausibility: How much more plausible than needed an answer must be, in nats.
    """
    score, score_and_grad = scores.of_columns(moving, rows)

    def validity_value(z: Tensor, which: Tensor) -> Tensor:
        return validity(moving.encoded(z, which), targets[which])

    def validity_value_and_grad(z: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = validity.value_and_grad(moving.encoded(z, which), targets[which])
        return value, moving.gradient(gradient)

    def plausibility(z: Tensor, which: Tensor) -> Tensor:
        return score(z, which) - extra_plausibility

    def plausibility_and_grad(z: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
        assert score_and_grad is not None
        value, gradient = score_and_grad(z, which)
        return value - extra_plausibility, gradient

    deeper = extra_plausibility != 0
    plausible = plausibility if deeper else score
    known = validity.model_value_and_grad is not None
    constraints = {
        "validity": Constraint(validity_value, VALIDITY_BUFFER, validity_value_and_grad if known else None),
        "plausibility": Constraint(
            plausible,
            PLAUSIBILITY_BUFFER,
            plausibility_and_grad if deeper and score_and_grad is not None else score_and_grad,
        ),
    }
    penalties: dict[str, RowFunction] = {
        "validity": lambda z, which: validity.loss(moving.encoded(z, which), targets[which]),
        # A score is the log-density minus its threshold, so the threshold that is left is zero.
        "plausibility": lambda z, which: plausibility_hinge(plausible(z, which), z.new_zeros(())),
    }
    for name, rule in (rules or {}).items():
        constraints[name] = Constraint(_of_encoded(rule, moving), RULE_BUFFER)
        penalties[name] = _violation(constraints[name].value)
    return Problem(
        x=x, constraints=constraints, penalties=penalties, lower=lower, upper=upper, weights=weights
    )


def _of_encoded(rule: RowFunction, moving: MovingColumns) -> RowFunction:
    return lambda z, which: rule(moving.encoded(z, which), which)


def _violation(value: RowFunction) -> RowFunction:
    return lambda z, which: (-value(z, which)).clamp_min(0)
