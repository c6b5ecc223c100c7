"""Searches of one owner that compete: expensive ones end, and no owner depends on another one."""

from __future__ import annotations

import torch

from plausiflow.core import Constraint, Evaluation, Problem, Race
from plausiflow.solvers import SQP
from plausiflow.solvers.iteration import SQPState, StoppingCriteria

DTYPE = torch.float64


def programs(distances, fees):
    """Programs that must move a given distance along the first axis, bent a little; each has a fee."""
    x = torch.zeros(len(distances), 2, dtype=DTYPE)
    goal = torch.tensor(distances, dtype=DTYPE)

    def value(z, rows):
        return z[:, 0] - goal[rows] - 0.1 * z[:, 1] ** 2 + 0.05 * torch.sin(8 * z[:, 0])

    fee = torch.tensor(fees, dtype=DTYPE)
    return Problem(
        x=x, constraints={"far": Constraint(value)}
    ), lambda squares, rows: squares.sqrt() + fee[rows]


def test_the_cheapest_programs_of_an_owner_are_solved_and_the_most_expensive_end_early():
    distances, fees = [0.2 + 0.05 * i for i in range(12)], [0.0] * 12
    problem, total = programs(distances, fees)
    race = Race(torch.zeros(12, dtype=torch.long), total, answers=1)
    alone, together = SQP().improve(problem, problem.x), SQP().improve(problem, problem.x, race=race)
    torch.testing.assert_close(together.x[0], alone.x[0], rtol=0, atol=0)
    assert int(together.gradients[-1]) < int(alone.gradients[-1])
    assert int(together.gradients.sum()) < 0.7 * int(alone.gradients.sum())


def test_what_counts_is_the_total_and_not_the_distance():
    distances, fees = [0.9, *[0.3] * 9], [0.0, *[5.0] * 9]
    problem, total = programs(distances, fees)
    race = Race(torch.zeros(10, dtype=torch.long), total, answers=1)
    found = SQP().improve(problem, problem.x, race=race)
    expected = SQP().improve(problem, problem.x)
    torch.testing.assert_close(found.x[0], expected.x[0], rtol=0, atol=0)


def test_owners_do_not_compete_with_each_other():
    distances = [0.2 + 0.05 * i for i in range(8)]
    problem, total = programs(distances, [0.0] * 8)
    own = Race(torch.arange(8), total, answers=1)
    free, own = SQP().improve(problem, problem.x).x, SQP().improve(problem, problem.x, race=own).x
    torch.testing.assert_close(own, free, rtol=0, atol=0, equal_nan=True)
    half, half_total = programs(distances[:4], [0.0] * 4)
    few = SQP().improve(half, half.x, race=Race(torch.zeros(4, dtype=torch.long), half_total, answers=1)).x
    owners = torch.tensor([0] * 4 + [1] * 4)
    both = SQP().improve(problem, problem.x, race=Race(owners, total, answers=1)).x
    torch.testing.assert_close(both[:4], few, rtol=0, atol=0, equal_nan=True)


def test_a_search_that_has_ended_stays_as_it_is_while_others_go_on():
    problem, _ = programs([0.3, 0.6, 0.9], [0.0] * 3)
    evaluation, rows = Evaluation(problem), torch.arange(3)
    state = SQPState.begin(evaluation, rows, problem.x, curvature=4.0, radius=0.3)
    state.active[1] = False
    names = ("x", "cost", "values", "jacobian", "inverse", "best", "best_cost")
    before = {name: getattr(state, name).clone() for name in names}
    stopping = StoppingCriteria(tolerance=1e-4, patience=10, max_without_answer=30)
    for _ in range(3):
        state.iterate(evaluation, stopping)
    for name in names:
        torch.testing.assert_close(getattr(state, name)[1], before[name][1], rtol=0, atol=0, equal_nan=True)
    assert (state.x[[0, 2]] != before["x"][[0, 2]]).any(dim=1).all()
    assert (state.inverse[[0, 2]] != before["inverse"][[0, 2]]).flatten(1).any(dim=1).all()
