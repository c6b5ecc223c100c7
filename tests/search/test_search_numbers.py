"""The program over numbers against closed forms and fine grids, and searches from a given point."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F

from plausiflow.constraints import CompiledRules, Immutable, Linear, Range
from plausiflow.core import Constraint, Problem, batches
from plausiflow.densities import row_scores
from plausiflow.search.bank import Bank
from plausiflow.search.costs import CostModel
from plausiflow.search.diagnose import AlwaysPlausible
from plausiflow.search.engine import Engine
from plausiflow.solvers import SQP
from plausiflow.tables.layout import Block, Layout
from plausiflow.tables.schema import Schema
from searching import UNIT, Ball, ClosedForm, applicants, as_validity, linear_validity, setup, task_of

# ---------------------------------------------------------------- the program over numbers

NUMBERS = Layout(tuple(Block(name=f"n{j}", number=j, scale=UNIT) for j in range(3)))


@pytest.mark.parametrize("weights", [[1.0, 1.0, 1.0], [1.0, 4.0, 0.25]])
def test_the_cheapest_valid_numbers_lie_on_the_hyperplane(weights):
    x = 0.35 + 0.1 * torch.rand(16, 3)
    normal = torch.tensor([1.0, -2.0, 1.5])
    bias = -(x @ normal).max() - 0.1
    task = task_of(NUMBERS, x, weights, validity=linear_validity(normal, bias))
    found = task.solve(task.candidates(torch.arange(16), x))
    length = (normal / torch.tensor(weights)).norm()  # of the normal, in the dual norm of the cost
    optimum = -(x @ normal + bias) / length
    torch.testing.assert_close(found.cost, optimum, rtol=0, atol=2e-3)
    assert (task.validity(found.x, task.y_target) >= 0).all()


def test_the_cheapest_plausible_numbers_lie_on_the_ball():
    x = torch.rand(24, 3)
    task = task_of(NUMBERS, x, [1.0] * 3, plausibility=Ball([0, 1, 2], [0.5, 0.4, 0.6], 0.2))
    found = task.solve(task.candidates(torch.arange(24), x))
    distance = (x - torch.tensor([0.5, 0.4, 0.6])).norm(dim=1)
    torch.testing.assert_close(found.cost, (distance - 0.2).clamp_min(0), rtol=0, atol=2e-3)


def test_with_a_hyperplane_and_a_ball_no_point_of_a_fine_grid_is_cheaper():
    layout = Layout(NUMBERS.blocks[:2])
    x = torch.rand(6, 2) * 0.4
    validity = linear_validity(torch.tensor([1.0, 2.0]), torch.tensor(-1.6))
    task = task_of(layout, x, [1.0, 2.0], validity=validity, plausibility=Ball([0, 1], [0.6, 0.4], 0.25))
    found = task.solve(task.candidates(torch.arange(6), x))
    axis = torch.linspace(0, 1, 301)
    grid = torch.cartesian_prod(axis, axis)
    for i in range(6):
        points = task.check(task.candidates(torch.full((len(grid),), i), grid))
        assert float(found.cost[i]) <= float(points.cost.min()) + 2e-3
    assert torch.isfinite(task.check(found).cost).all()


def test_levels_are_kept_and_decide_how_far_the_numbers_must_move():
    layout = Layout((Block(name="n", number=0, scale=UNIT), Block(name="c", levels=range(1, 4))))
    radius = torch.tensor([0.05, 0.2, 0.3])

    class Levelled:
        def score(self, x, y):
            return 100 * ((x[:, 1:] @ radius.to(x)) ** 2 - (x[:, 0] - 0.9) ** 2)

    x = torch.tensor([[0.1, 1.0, 0.0, 0.0]])
    task = task_of(layout, x, [1.0, 0.5], plausibility=Levelled())
    start = torch.cat([torch.full((3, 1), 0.1), torch.eye(3)], dim=1)
    found = task.solve(task.candidates(torch.zeros(3).long(), start))
    assert torch.equal(found.x[:, 1:], torch.eye(3))
    torch.testing.assert_close(found.x[:, 0], 0.9 - radius, rtol=0, atol=1e-3)
    assert torch.equal(found.cost, task.costs(found.x, torch.zeros(3).long()))
    flips = torch.tensor([0.0, 0.5, 0.5])
    torch.testing.assert_close(found.cost, flips + found.x[:, 0] - 0.1)


def test_kept_and_immutable_features_stay_bit_for_bit_wherever_a_search_starts():
    x = torch.rand(30, 3)
    normal = torch.tensor([1.0, 1.0, 1.0])
    task = task_of(NUMBERS, x, [1.0] * 3, ["n0"], validity=linear_validity(normal, torch.tensor(-1.9)))
    keep = F.one_hot(torch.arange(30) % 3, 3).bool()
    start = torch.rand(30, 3)
    start[:, 0] = x[:, 0]
    found = task.solve(task.candidates(torch.arange(30), start), frozen=keep)
    assert task.numbers == [1, 2]
    assert torch.equal(found.x[keep], x[keep])
    assert torch.equal(found.x[:, 0], x[:, 0])
    solved = torch.isfinite(found.cost)
    reach = torch.where(keep, x, 1.0)
    reach[:, 0] = x[:, 0]
    assert torch.equal(solved, reach @ normal - 1.9 >= 1e-4)


def test_a_pinned_number_stays_pinned_and_a_free_one_is_not_less_than_the_smallest_ever_seen():
    frame = applicants()[["income", "gain"]]
    made = setup(frame)
    number = made.encoder.layout.block("gain").number
    least = float(made.x[torch.tensor(frame["gain"] > 0), number].min())
    for own in (frame["gain"] == 0, frame["gain"] > 0):
        x = made.x[torch.tensor(own)][:20]
        scores = row_scores(Ball([0, number], [0.5, 0.0], 0.1), x, torch.ones(20).long())
        task = replace(
            made.task(x, scores=scores), validity=ClosedForm(lambda x_cf, _: torch.ones_like(x_cf[:, 0]))
        )
        for code, value in enumerate((least, 0.0)):
            start = task.layout.with_codes(x, torch.full((20, 1), code))
            found = task.solve(task.candidates(torch.arange(20), start))
            assert torch.isfinite(found.cost).all()
            assert (task.layout.codes(found.x) == code).all()
            assert (found.x[:, number] >= value).all()
            assert float(found.x[:, number].min()) == value


def test_a_row_whose_own_number_is_smaller_than_any_seen_need_not_change_it():
    frame = applicants()[["income", "gain"]]
    frame["gain"] = np.where(frame["gain"] > 0, frame["gain"] + 10, 0)
    made = setup(frame, bar=3.0)
    row = made.encoder.encode(frame.iloc[:1].assign(gain=3)).x
    task = replace(made.task(row), validity=ClosedForm(lambda x_cf, _: torch.ones_like(x_cf[:, 0])))
    task = replace(task, scores=row_scores(AlwaysPlausible(), row, task.y_target))
    found = task.solve(task.candidates(torch.zeros(1).long(), row))
    assert found.cost == 0
    assert torch.equal(found.x, row)


def test_linear_rules_hold_and_move_the_optimum_to_where_they_bind():
    """n0 + n1 >= 1.2 by the model and n1 <= n0 / 2 by a rule: the corner (0.8, 0.4) is closest to zero."""
    frame = pd.DataFrame({"n0": np.linspace(0, 1, 101), "n1": np.linspace(0, 1, 101) ** 2})
    schema = Schema.infer(frame, kinds={"n0": "continuous", "n1": "continuous"})
    layout = Layout(NUMBERS.blocks[:2])
    rules = CompiledRules([Linear("n1 <= n0 / 2")], schema, layout)
    engine = Engine(
        rules=rules,
        validity=as_validity(linear_validity(torch.tensor([1.0, 1.0]), torch.tensor(-1.2))),
        plausibility=AlwaysPlausible(),
        bank=Bank({}, {}),
        cost_model=CostModel.plain(layout),
    )
    task = engine.task(torch.zeros(1, 2), torch.tensor([1]))
    found = task.solve(task.candidates(torch.tensor([0]), torch.zeros(1, 2)))
    torch.testing.assert_close(found.x, torch.tensor([[0.8, 0.4]]), rtol=0, atol=2e-3)
    assert found.x[0, 1] <= found.x[0, 0] / 2
    assert float(found.x.sum()) >= 1.2


def test_deeper_answers_are_more_plausible_by_as_much():
    x = torch.rand(10, 3)
    task = task_of(NUMBERS, x, [1.0] * 3, plausibility=Ball([0, 1, 2], [0.5] * 3, 0.2))
    for deeper in (0.0, 0.3):
        found = task.solve(task.candidates(torch.arange(10), x), extra_plausibility=deeper)
        assert (task.scores.score(found.x, found.rows) >= deeper).all()
        outside = (x - 0.5).norm(dim=1) > 0.2
        assert (task.scores.score(found.x, found.rows)[outside] <= deeper + 0.02).all()


def test_a_candidate_that_cannot_be_an_answer_is_marked_and_stays_finite():
    x = torch.rand(5, 3)
    task = task_of(NUMBERS, x, [1.0] * 3, validity=linear_validity(torch.ones(3), torch.tensor(-4.0)))
    found = task.solve(task.candidates(torch.arange(5), x))
    assert torch.isinf(found.cost).all()
    assert torch.isfinite(found.x).all()
    assert len(task.solve(task.candidates(torch.arange(0), x[:0]))) == 0


def test_chunks_do_not_matter(monkeypatch):
    made = setup(applicants(), [Immutable("age")], bar=4.0)
    x = made.x[:40]
    task = made.task(x)
    together = task.solve(task.candidates(torch.arange(40), x))
    monkeypatch.setattr(batches, "CANDIDATES", 7)
    apart = task.solve(task.candidates(torch.arange(40), x))
    assert torch.equal(together.x, apart.x)
    assert torch.equal(together.cost, apart.cost)


def test_what_a_rule_forces_to_move_is_no_answer_where_it_was():
    frame = applicants().assign(grade=pd.Categorical(np.arange(300) % 4, ordered=True))
    made = setup(frame, [Range("income", 3000, None), Range("grade", 1, None)], bar=9.0)
    outside = (frame["income"] < 3000) & (frame["grade"].astype(int) == 0)
    x = made.x[torch.tensor(outside)][:10]
    task = replace(made.task(x), validity=ClosedForm(lambda x_cf, _: torch.ones_like(x_cf[:, 0])))
    own = task.candidates(torch.arange(len(x)), x)
    assert torch.isinf(task.solve(own).cost).all()
    grade = [block.name for block in task.layout.with_levels].index("grade")
    codes = task.layout.codes(x)
    codes[:, grade] = 1
    moved = task.candidates(own.rows, task.layout.with_codes(x, codes))
    assert torch.isfinite(task.solve(moved).cost).all()
    keep = torch.zeros(len(x), len(task.layout.blocks), dtype=torch.bool)
    keep[:, [block.name for block in task.layout.blocks].index("income")] = True
    assert torch.isinf(task.solve(moved, frozen=keep).cost).all()


# ---------------------------------------------------------------- a search from a given point


def two_hills(z, rows):
    """Not negative on two discs, around (0.2, 0.5) and (0.9, 0.5)."""
    distances = [((z - z.new_tensor(centre)) ** 2).sum(dim=1) for centre in ([0.2, 0.5], [0.9, 0.5])]
    return 0.01 - torch.minimum(*distances)


def test_improve_searches_from_its_start_and_from_nowhere_else():
    x = torch.tensor([[0.4, 0.5]]).repeat(2, 1)
    problem = Problem(x=x, constraints={"hills": Constraint(two_hills, 1e-6)})
    found = SQP().improve(problem, torch.tensor([[0.25, 0.5], [0.95, 0.5]])).x
    torch.testing.assert_close(found, torch.tensor([[0.3, 0.5], [0.8, 0.5]]), rtol=0, atol=1e-3)


def test_improve_never_returns_a_worse_point_than_a_feasible_start():
    x, start = torch.rand(40, 2), torch.tensor([0.9, 0.5]) + 0.05 * (torch.rand(40, 2) - 0.5)
    problem = Problem(x=x, constraints={"hills": Constraint(two_hills)})
    found = SQP(iterations=3).improve(problem, start).x
    assert ((found - x).norm(dim=1) <= (start - x).norm(dim=1)).all()
    assert (two_hills(found, None) >= 0).all()


def test_improve_keeps_bounds_and_says_where_there_is_nothing():
    x = torch.tensor([[0.5, 0.1], [0.5, 0.1]])
    lower, upper = torch.tensor([[0.0, 0.1], [0.0, 0.1]]), torch.tensor([[1.0, 0.1], [1.0, 1.0]])
    problem = Problem(x=x, constraints={"hills": Constraint(two_hills, 1e-4)}, lower=lower, upper=upper)
    found = SQP().improve(problem, x, curvature=8.0)
    assert torch.isnan(found.x[0]).all()
    assert two_hills(found.x[1:], None) >= 0
    assert (found.gradients > 1).all()
