"""Searches that cannot move end at once; the ones beside them go on."""

from __future__ import annotations

import torch

from plausiflow.core import Constraint, Problem
from plausiflow.solvers import SQP

DTYPE = torch.float64


def at_least(goal, lower, upper):
    """Programs in two columns from the origin: the first column must reach a goal, inside the bounds."""
    goals = torch.tensor(goal, dtype=DTYPE)
    bounds = [torch.tensor(bound, dtype=DTYPE)[:, None].repeat(1, 2) for bound in (lower, upper)]
    constraint = Constraint(lambda z, rows: z[:, 0] - goals[rows], buffer=1e-5)
    return Problem(
        x=torch.zeros(len(goal), 2, dtype=DTYPE),
        constraints={"far": constraint},
        lower=bounds[0],
        upper=bounds[1],
    )


def test_a_row_that_may_not_move_is_evaluated_once_and_others_are_solved():
    problem = at_least([0.5, -0.5, 0.5], [0.0, 0.0, -1.0], [0.0, 0.0, 1.0])
    found = SQP().improve(problem, problem.x)
    assert found.gradients[:2].tolist() == [1, 1]
    assert torch.isnan(found.x[0]).all()
    assert torch.equal(found.x[1], problem.x[1])
    torch.testing.assert_close(found.x[2], torch.tensor([0.5, 0.0], dtype=DTYPE), rtol=0, atol=1e-4)


def test_a_batch_that_may_not_move_has_its_starts_as_answers():
    problem = at_least([0.5, -0.5], [0.0, 0.0], [0.0, 0.0])
    solved = SQP().solve(problem)
    assert torch.isfinite(solved.x).all(dim=1).tolist() == [False, True]
    assert solved.gradients.tolist() == [1, 1]


def test_a_search_whose_bounds_keep_it_from_its_goal_ends_after_a_few_evaluations():
    problem = at_least([0.9, 0.3], [-1.0, -1.0], [0.2, 0.4])
    found = SQP().improve(problem, problem.x)
    assert torch.isnan(found.x[0]).all()
    assert int(found.gradients[0]) <= 8
    torch.testing.assert_close(found.x[1], torch.tensor([0.3, 0.0], dtype=DTYPE), rtol=0, atol=1e-4)


def test_what_a_row_gets_does_not_depend_on_rows_that_cannot_move():
    both = at_least([0.5, 0.7, 0.2], [0.0, -1.0, -1.0], [0.0, 1.0, 1.0])
    alone = at_least([0.7, 0.2], [-1.0, -1.0], [1.0, 1.0])
    together, apart = SQP().improve(both, both.x), SQP().improve(alone, alone.x)
    assert torch.equal(together.x[1:], apart.x)
    assert torch.equal(together.gradients[1:], apart.gradients)
