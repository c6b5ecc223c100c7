"""What is asked of a search: costs, checks, the program over numbers, and how candidates are scored."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from plausiflow.constraints import Immutable, Increasing, Linear, MaxChanges, Range, Rules
from plausiflow.data.layout import Block, Layout
from plausiflow.data.schema import Schema
from plausiflow.densities import CrossFitEnsemble
from plausiflow.densities.context import ContextThreshold
from plausiflow.densities.mixed import MixedDensity
from plausiflow.protocols import Constraint, Problem
from plausiflow.search import task as task_module
from plausiflow.search.candidates import RealRows
from plausiflow.search.finder import Anything, Finder
from plausiflow.search.guide import Guide, assembled, columns_index
from plausiflow.search.task import Candidates, cheapest
from plausiflow.solvers import SQP
from plausiflow.training import Training
from searching import UNIT, Ball, applicants, linear_validity, random_rows, setup, task_of

# ---------------------------------------------------------------- candidates


def some(n, rows=5):
    """Candidates with costs that often tie or are infinite, and rows that often repeat."""
    cost = torch.randint(4, (n,)).double()
    cost[torch.rand(n) < 0.2] = torch.inf
    return Candidates(rows=torch.randint(rows, (n,)), x=torch.randint(2, (n, 3)).double(), cost=cost)


@pytest.mark.parametrize("count", [1, 2, 100])
@pytest.mark.parametrize("n", [0, 1, 60])
def test_the_cheapest_of_each_row_are_what_a_stable_sort_puts_first(n, count):
    candidates = some(n)
    frame = pd.DataFrame({"row": candidates.rows.numpy(), "cost": candidates.cost.numpy()})
    expected = frame.sort_values(["row", "cost"], kind="stable").groupby("row").head(count).index
    assert cheapest(candidates.rows, candidates.cost, count).tolist() == expected.tolist()
    assert torch.equal(candidates.best(count).x, candidates.x[torch.tensor(expected.to_numpy(np.int64))])


@pytest.mark.parametrize("n", [0, 1, 200])
def test_distinct_candidates_are_those_that_stand_first(n):
    candidates = replace(some(n), cost=torch.arange(n).double())
    frame = pd.DataFrame(torch.cat([candidates.rows[:, None], candidates.x], dim=1).numpy())
    kept = frame.drop_duplicates(keep="first").index
    assert candidates.distinct().cost.tolist() == kept.tolist()


def test_answers_are_those_with_a_finite_cost_and_joining_keeps_the_order():
    one, other = some(20), some(30)
    joined = Candidates.joined(one, other)
    assert len(joined) == 50
    assert torch.equal(joined.x, torch.cat([one.x, other.x]))
    assert torch.equal(joined.answers.cost, joined.cost[joined.cost < torch.inf])


# ---------------------------------------------------------------- costs


@st.composite
def layouts(draw):
    """Blocks of every kind, in any order."""
    kinds = draw(st.lists(st.sampled_from(["number", "state", "nominal", "ordered"]), min_size=1, max_size=5))
    blocks, start = [], 0
    for i, kind in enumerate(kinds):
        number = start if kind in ("number", "state") else None
        first = start + (number is not None)
        size = 0 if kind == "number" else 2 if kind == "state" else draw(st.integers(1, 4))
        blocks.append(
            Block(
                name=f"f{i}",
                number=number,
                scale=None if number is None else UNIT,
                levels=range(first, first + size),
                ordered=kind == "ordered",
                pinned=(None, 0.0) if kind == "state" else (),
                closed=(False,) * size,
            )
        )
        start = first + size
    return Layout(tuple(blocks))


@given(layouts(), st.integers(0, 10**6), st.data())
def test_costs_are_the_formula_feature_by_feature(layout, seed, data):
    weight = st.floats(0.1, 5)
    weights = data.draw(st.lists(weight, min_size=len(layout.blocks), max_size=len(layout.blocks)))
    x, x_cf = random_rows(layout, 4, seed), random_rows(layout, 6, seed + 1)
    rows = torch.tensor([0, 1, 2, 3, 3, 0])
    x_cf[0] = x[0]
    expected = []
    for row, changed in zip(x[rows].tolist(), x_cf.tolist(), strict=True):
        squared = flat = 0.0
        for block, w in zip(layout.blocks, weights, strict=True):
            if block.number is not None:
                squared += w * (changed[block.number] - row[block.number]) ** 2
                continue
            levels = list(block.levels)
            steps = [values.index(1.0) for values in ([r[c] for c in levels] for r in (row, changed))]
            if block.ordered:
                squared += w * ((steps[1] - steps[0]) / max(1, len(levels) - 1)) ** 2
            else:
                flat += w * (steps[0] != steps[1])
        expected.append(math.sqrt(squared) + flat)
    found = task_of(layout, x, weights).costs(x_cf, rows)
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-12, atol=1e-12)
    assert found[0] == 0


# ---------------------------------------------------------------- checks


def test_a_checked_candidate_has_a_cost_exactly_where_its_decoded_row_breaks_nothing():
    """Rules judged on the tables, the model and the bell by hand."""
    rules = [
        Immutable("age"),
        Increasing("school"),
        Range("income", 1000, 7000),
        Linear("savings <= income / 500"),
        MaxChanges(5),
    ]
    made = setup(applicants(), rules, bar=4.0)
    x, rows = made.x[:20], torch.arange(20).repeat_interleave(60)
    task = made.task(x)
    mixed = torch.where(torch.rand(1200, 7) < 0.5, 1.0, 0.0)  # each feature from the row or from another one
    other, candidate = made.x[torch.randint(300, (1200,))], x[rows].clone()
    for j, block in enumerate(task.layout.blocks):
        taken = (mixed[:, j] == 1)[:, None]
        candidate[:, block.columns] = torch.where(taken, other[:, block.columns], candidate[:, block.columns])
    before = made.frame.iloc[rows.numpy()]
    broken = made.finder.rules.violations(before, made.encoder.decode(candidate, like=before))
    wanted = task.y_target[rows]
    fine = torch.from_numpy(~broken.to_numpy().any(axis=1))
    fine &= made.classes(candidate) == wanted
    fine &= made.finder.plausibility.score(candidate, wanted) >= 0
    checked = task.checked(task.candidates(rows, candidate))
    assert torch.equal(torch.isfinite(checked.cost), fine)
    assert 20 < int(fine.sum()) < 1000
    assert torch.equal(checked.cost[fine], task.costs(candidate, rows)[fine])
    without = task.checked(task.candidates(rows, candidate), changes=False)
    assert int(torch.isfinite(without.cost).sum()) > int(fine.sum())


def test_shortfalls_name_validity_plausibility_and_relations_and_do_not_depend_on_chunks(monkeypatch):
    made = setup(applicants(), [Linear("savings <= income / 500"), Linear("gain <= age")])
    task = made.task(made.x[:50])
    x_cf, rows = made.x[50:250], torch.arange(200) % 50
    found = task.shortfalls(x_cf, rows)
    values = made.frame.iloc[50:250]
    assert torch.equal(found[:, 0] >= 0, made.classes(x_cf) == task.y_target[rows])
    torch.testing.assert_close(found[:, 1], made.finder.plausibility.score(x_cf, task.y_target[rows]))
    holds = np.stack([values["savings"] <= values["income"] / 500, values["gain"] <= values["age"]], axis=1)
    assert ((found[:, 2:] >= 0).numpy() == holds).all()
    monkeypatch.setattr(task_module, "CHUNK", 7)
    torch.testing.assert_close(task.shortfalls(x_cf, rows), found, rtol=0, atol=1e-13)
    assert task.shortfalls(x_cf[:0], rows[:0]).shape == (0, 4)


# ---------------------------------------------------------------- the program over numbers

NUMBERS = Layout(tuple(Block(name=f"n{j}", number=j, scale=UNIT) for j in range(3)))


@pytest.mark.parametrize("weights", [[1.0, 1.0, 1.0], [1.0, 4.0, 0.25]])
def test_the_cheapest_valid_numbers_lie_on_the_hyperplane(weights):
    x = 0.35 + 0.1 * torch.rand(16, 3)
    normal = torch.tensor([1.0, -2.0, 1.5])
    bias = -(x @ normal).max() - 0.1
    task = task_of(NUMBERS, x, weights, validity=linear_validity(normal, bias))
    found = task.solved(task.candidates(torch.arange(16), x))
    length = (normal**2 / torch.tensor(weights)).sum().sqrt()  # of the normal, in the dual norm of the cost
    optimum = -(x @ normal + bias) / length
    torch.testing.assert_close(found.cost, optimum, rtol=0, atol=2e-3)
    assert (task.validity(found.x, task.y_target) >= 0).all()


def test_the_cheapest_plausible_numbers_lie_on_the_ball():
    x = torch.rand(24, 3)
    task = task_of(NUMBERS, x, [1.0] * 3, plausibility=Ball([0, 1, 2], [0.5, 0.4, 0.6], 0.2))
    found = task.solved(task.candidates(torch.arange(24), x))
    distance = (x - torch.tensor([0.5, 0.4, 0.6])).norm(dim=1)
    torch.testing.assert_close(found.cost, (distance - 0.2).clamp_min(0), rtol=0, atol=2e-3)


def test_with_a_hyperplane_and_a_ball_no_point_of_a_fine_grid_is_cheaper():
    layout = Layout(NUMBERS.blocks[:2])
    x = torch.rand(6, 2) * 0.4
    validity = linear_validity(torch.tensor([1.0, 2.0]), torch.tensor(-1.6))
    task = task_of(layout, x, [1.0, 2.0], validity=validity, plausibility=Ball([0, 1], [0.6, 0.4], 0.25))
    found = task.solved(task.candidates(torch.arange(6), x))
    axis = torch.linspace(0, 1, 301)
    grid = torch.cartesian_prod(axis, axis)
    for i in range(6):
        points = task.checked(task.candidates(torch.full((len(grid),), i), grid))
        assert float(found.cost[i]) <= float(points.cost.min()) + 2e-3
    assert torch.isfinite(task.checked(found).cost).all()


def test_levels_are_kept_and_decide_how_far_the_numbers_must_move():
    layout = Layout((Block(name="n", number=0, scale=UNIT), Block(name="c", levels=range(1, 4))))
    radius = torch.tensor([0.05, 0.2, 0.3])

    class Levelled:
        def score(self, x, y):
            return 100 * ((x[:, 1:] @ radius.to(x)) ** 2 - (x[:, 0] - 0.9) ** 2)

    x = torch.tensor([[0.1, 1.0, 0.0, 0.0]])
    task = task_of(layout, x, [1.0, 0.5], plausibility=Levelled())
    start = torch.cat([torch.full((3, 1), 0.1), torch.eye(3)], dim=1)
    found = task.solved(task.candidates(torch.zeros(3).long(), start))
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
    found = task.solved(task.candidates(torch.arange(30), start), keep=keep)
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
        guide = Guide(Ball([0, number], [0.5, 0.0], 0.1), x, torch.ones(20).long())
        task = replace(made.task(x, guide=guide), validity=lambda x_cf, _: torch.ones_like(x_cf[:, 0]))
        for code, value in enumerate((least, 0.0)):
            start = task.layout.with_codes(x, torch.full((20, 1), code))
            found = task.solved(task.candidates(torch.arange(20), start))
            assert torch.isfinite(found.cost).all()
            assert (task.layout.codes(found.x) == code).all()
            assert (found.x[:, number] >= value).all()
            assert float(found.x[:, number].min()) == value


def test_a_row_whose_own_number_is_smaller_than_any_seen_need_not_change_it():
    frame = applicants()[["income", "gain"]]
    frame["gain"] = np.where(frame["gain"] > 0, frame["gain"] + 10, 0)
    made = setup(frame, bar=3.0)
    row = made.encoder.encode(frame.iloc[:1].assign(gain=3)).x
    task = replace(made.task(row), validity=lambda x_cf, _: torch.ones_like(x_cf[:, 0]))
    task = replace(task, guide=Guide(Anything(), row, task.y_target))
    found = task.solved(task.candidates(torch.zeros(1).long(), row))
    assert found.cost == 0
    assert torch.equal(found.x, row)


def test_linear_rules_hold_and_move_the_optimum_to_where_they_bind():
    """n0 + n1 >= 1.2 by the model and n1 <= n0 / 2 by a rule: the corner (0.8, 0.4) is closest to zero."""
    frame = pd.DataFrame({"n0": np.linspace(0, 1, 101), "n1": np.linspace(0, 1, 101) ** 2})
    schema = Schema.infer(frame, kinds={"n0": "continuous", "n1": "continuous"})
    layout = Layout(NUMBERS.blocks[:2])
    rules = Rules([Linear("n1 <= n0 / 2")], schema, layout)
    finder = Finder(
        rules=rules,
        validity=linear_validity(torch.tensor([1.0, 1.0]), torch.tensor(-1.2)),
        plausibility=Anything(),
        bank=RealRows({}, {}, {}),
        weights=torch.ones(2),
    )
    task = finder.task(torch.zeros(1, 2), torch.tensor([1]))
    found = task.solved(task.candidates(torch.tensor([0]), torch.zeros(1, 2)))
    torch.testing.assert_close(found.x, torch.tensor([[0.8, 0.4]]), rtol=0, atol=2e-3)
    assert found.x[0, 1] <= found.x[0, 0] / 2
    assert float(found.x.sum()) >= 1.2


def test_deeper_answers_are_more_plausible_by_as_much():
    x = torch.rand(10, 3)
    task = task_of(NUMBERS, x, [1.0] * 3, plausibility=Ball([0, 1, 2], [0.5] * 3, 0.2))
    for deeper in (0.0, 0.3):
        found = task.solved(task.candidates(torch.arange(10), x), deeper=deeper)
        assert (task.guide.score(found.x, found.rows) >= deeper).all()
        outside = (x - 0.5).norm(dim=1) > 0.2
        assert (task.guide.score(found.x, found.rows)[outside] <= deeper + 0.02).all()


def test_a_candidate_that_cannot_be_an_answer_is_marked_and_stays_finite():
    x = torch.rand(5, 3)
    task = task_of(NUMBERS, x, [1.0] * 3, validity=linear_validity(torch.ones(3), torch.tensor(-4.0)))
    found = task.solved(task.candidates(torch.arange(5), x))
    assert torch.isinf(found.cost).all()
    assert torch.isfinite(found.x).all()
    assert len(task.solved(task.candidates(torch.arange(0), x[:0]))) == 0


def test_chunks_do_not_matter(monkeypatch):
    made = setup(applicants(), [Immutable("age")], bar=4.0)
    x = made.x[:40]
    task = made.task(x)
    together = task.solved(task.candidates(torch.arange(40), x))
    monkeypatch.setattr(task_module, "CHUNK", 7)
    apart = task.solved(task.candidates(torch.arange(40), x))
    assert torch.equal(together.x, apart.x)
    assert torch.equal(together.cost, apart.cost)


def test_what_a_rule_forces_to_move_is_no_answer_where_it_was():
    frame = applicants().assign(grade=pd.Categorical(np.arange(300) % 4, ordered=True))
    made = setup(frame, [Range("income", 3000, None), Range("grade", 1, None)], bar=9.0)
    outside = (frame["income"] < 3000) & (frame["grade"].astype(int) == 0)
    x = made.x[torch.tensor(outside)][:10]
    task = replace(made.task(x), validity=lambda x_cf, _: torch.ones_like(x_cf[:, 0]))
    own = task.candidates(torch.arange(len(x)), x)
    assert torch.isinf(task.solved(own).cost).all()
    grade = [block.name for block in task.layout.with_levels].index("grade")
    codes = task.layout.codes(x)
    codes[:, grade] = 1
    moved = task.candidates(own.rows, task.layout.with_codes(x, codes))
    assert torch.isfinite(task.solved(moved).cost).all()
    keep = torch.zeros(len(x), len(task.layout.blocks), dtype=torch.bool)
    keep[:, [block.name for block in task.layout.blocks].index("income")] = True
    assert torch.isinf(task.solved(moved, keep=keep).cost).all()


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


# ---------------------------------------------------------------- how candidates are scored

LAYOUT = Layout(
    (
        Block(name="income", number=0, scale=UNIT),
        Block(name="job", levels=range(1, 4)),
        Block(name="age", number=4, scale=UNIT),
        Block(name="sex", levels=range(5, 7)),
    )
)


def fitted(context):
    """A small ensemble of a mixed table, given age and sex, with a margin."""
    x, y = random_rows(LAYOUT, 160, 3), torch.arange(160) % 2
    brief = Training(epochs=1, batch_size=64)
    base = replace(MixedDensity.of(LAYOUT, ["age", "sex"]), transforms=2, hidden=(8,), training=brief)
    base = replace(base, levels_training=brief)
    given_ = ContextThreshold.of(LAYOUT, immutable=["age", "sex"]) if context else None
    ensemble = CrossFitEnsemble(members=3, base=base, context=given_).fit(x, y)
    ensemble.margin_ = torch.tensor([0.2, 0.7])
    return ensemble, x[:30], (y[:30] + 1) % 2


@pytest.mark.parametrize("context", [False, True])
@pytest.mark.parametrize("settings", [{}, {"left_out": True}, {"margin": torch.tensor([0.5, 0.1])}])
def test_candidates_are_held_against_the_bar_of_their_own_row(context, settings):
    ensemble, x, y = fitted(context)
    if "left_out" in settings:
        settings = {"left_out": torch.arange(30) % 3}
    guide = Guide(ensemble, x, y, **settings)
    rows = torch.randint(30, (80,))
    x_cf = random_rows(LAYOUT, 80, 5)
    scores = ensemble.member_scores(x_cf, y[rows])
    if "left_out" in settings:
        scores = torch.stack([scores[m] for m in range(3)])
        out = F.one_hot(settings["left_out"][rows], 3).T.bool()
        mean = torch.where(out, 0.0, scores).sum(dim=0) / 2
    else:
        mean = scores.mean(dim=0)
    bar = settings.get("margin", ensemble.margin_)[y[rows]]
    if context:
        bar = bar + ensemble.context(x[rows], y[rows])  # of the row, not of the candidate
    torch.testing.assert_close(guide.score(x_cf, rows), mean - bar)


@pytest.mark.parametrize("context", [False, True])
@pytest.mark.parametrize("columns", [[0], [0, 4]])
def test_the_score_of_numbers_alone_is_the_score_of_the_whole_candidate(context, columns):
    ensemble, x, y = fitted(context)
    guide = Guide(ensemble, x, y, left_out=torch.arange(30) % 3)
    rows, x_cf = torch.randint(30, (50,)), random_rows(LAYOUT, 50, 6)
    which = torch.randint(50, (20,))
    numbers = torch.rand(20, len(columns), requires_grad=True)
    score, slope = guide.of_numbers(x_cf, rows, columns)
    quick = score(numbers, which)
    plain = guide.score(assembled(x_cf[which], columns_index(columns, x), numbers), rows[which])
    torch.testing.assert_close(quick, plain, rtol=1e-10, atol=1e-10)
    found, expected = (torch.autograd.grad(part.sum(), numbers)[0] for part in (quick, plain))
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)
    assert (slope is None) == (len(columns) == 2)  # where more moves than the flow models there is a graph
    if slope is not None:
        value, gradient = slope(numbers.detach(), which)
        torch.testing.assert_close(value, plain.detach(), rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(gradient, expected, rtol=1e-8, atol=1e-8)


def test_any_other_plausibility_is_asked_for_its_own_score():
    made = setup(applicants())
    x, rows = made.x[:20], torch.arange(40) % 20
    y = torch.arange(20) % 2
    guide = Guide(made.finder.plausibility, x, y)
    expected = made.finder.plausibility.score(made.x[:40], y[rows])
    assert torch.equal(guide.score(made.x[:40], rows), expected)
    assert torch.equal(
        guide.of_numbers(made.x[:40], rows, [0])[0](made.x[:40, :1], torch.arange(40)), expected
    )


def test_assembled_rows_hold_the_numbers_and_leave_the_rest():
    x, numbers = torch.rand(5, 4), torch.rand(5, 2, requires_grad=True)
    found = assembled(x, torch.tensor([3, 1]), numbers)
    assert torch.equal(found[:, [3, 1]], numbers)
    assert torch.equal(found[:, [0, 2]], x[:, [0, 2]])
    assert torch.autograd.grad(found.sum(), numbers)[0].eq(1).all()
    assert torch.equal(assembled(x, columns_index([], x), x[:, :0]), x)
