"""The solvers against closed forms and SciPy."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, minimize, nnls

from plausiflow.classifiers import LinearClassifier, MLPClassifier
from plausiflow.densities import GMM, ConditionalFlow, Thresholded
from plausiflow.errors import InvalidInputError
from plausiflow.losses import l2_distance
from plausiflow.methods import PPCEF
from plausiflow.protocols import Constraint, Problem
from plausiflow.solvers import SQP, Bank, PenaltyAdam
from plausiflow.solvers.dual import nonnegative_dual
from plausiflow.solvers.evaluation import Evaluation
from plausiflow.solvers.iterate import Rules, State
from plausiflow.solvers.quadratic import Quadratic
from plausiflow.solvers.starts import bisect
from plausiflow.training import Training


class Flat:
    """Everything is equally plausible, and exactly so."""

    def score(self, x, y):
        return torch.zeros(len(x), dtype=x.dtype)


class Gaussian:
    """A standard normal around a centre, held against the density at a given radius."""

    def __init__(self, centre, radius):
        self.centre, self.radius = centre, radius

    def score(self, x, y):
        return 0.5 * (self.radius**2 - ((x - self.centre.to(x)) ** 2).sum(dim=1))


def linear_classifier(d, scale=1.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    weight = scale * torch.randn(1, d, generator=generator)
    return LinearClassifier.from_weights(weight, torch.tensor([0.3]))


def decision(classifier, x):
    logits = classifier.logits(x)
    return logits[:, 1] - logits[:, 0]


def norm_of(classifier):
    return (classifier.weight[1] - classifier.weight[0]).norm()


# ---------------------------------------------------------------- closed forms


@pytest.mark.parametrize("d", [2, 10, 50])
def test_with_a_flat_density_the_distance_is_that_to_the_hyperplane(d):
    classifier = linear_classifier(d)
    x = torch.randn(40, d)
    found = PPCEF(classifier=classifier, plausibility=Flat(), margin=0.0).explain(x)
    optimum = decision(classifier, x).abs() / norm_of(classifier)
    assert found.feasible.all()
    torch.testing.assert_close(l2_distance(found.x_cf, x), optimum.to(x), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("margin", [0.02, 0.2])
def test_the_margin_moves_the_hyperplane_by_its_log_odds(margin):
    classifier = linear_classifier(5)
    x = torch.randn(40, 5)
    found = PPCEF(classifier=classifier, plausibility=Flat(), margin=margin).explain(x)
    logit = math.log((0.5 + margin) / (0.5 - margin))
    optimum = (decision(classifier, x).abs() + logit) / norm_of(classifier)
    torch.testing.assert_close(l2_distance(found.x_cf, x), optimum.to(x), rtol=1e-3, atol=1e-3)


def test_feature_weights_give_the_weighted_projection():
    classifier = linear_classifier(6)
    weights = torch.tensor([1.0, 4.0, 0.25, 1.0, 9.0, 1.0])
    x = torch.randn(30, 6)
    found = PPCEF(classifier=classifier, plausibility=Flat(), margin=0.0, weights=weights).explain(x)
    direction = (classifier.weight[1] - classifier.weight[0]).to(x)
    optimum = decision(classifier, x).abs() / (direction**2 / weights).sum().sqrt()
    torch.testing.assert_close(l2_distance(found.x_cf, x, weights), optimum.to(x), rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("d", [2, 8])
def test_gaussian_density_and_linear_classifier_reach_the_optimum_of_slsqp(d):
    classifier = linear_classifier(d, scale=2.0)
    direction = classifier.weight[1] - classifier.weight[0]
    centre = 2.5 * direction / direction.norm() + 0.3 * torch.randn(d)
    plausibility = Gaussian(centre, radius=2.0)
    x = torch.randn(12, d) - 1.5 * direction / direction.norm()
    found = PPCEF(classifier=classifier, plausibility=plausibility, margin=0.02).explain(x, 1)
    logit = math.log(0.52 / 0.48)
    offset = float(classifier.bias[1] - classifier.bias[0])
    for row, x_cf in zip(x.double().numpy(), found.x_cf.double(), strict=True):
        best = minimize(
            lambda z, row=row: ((z - row) ** 2).sum(),
            centre.double().numpy(),
            jac=lambda z, row=row: 2 * (z - row),
            constraints=[
                {"type": "ineq", "fun": lambda z: z @ direction.double().numpy() + offset - logit},
                {"type": "ineq", "fun": lambda z: 0.5 * (4.0 - ((z - centre.double().numpy()) ** 2).sum())},
            ],
            method="SLSQP",
            options={"maxiter": 500, "ftol": 1e-8},
        )
        assert best.success
        own = float(((x_cf - torch.as_tensor(row)) ** 2).sum().sqrt())
        assert own == pytest.approx(math.sqrt(best.fun), rel=1e-2, abs=1e-3)


def test_a_saturated_classifier_is_still_solved_in_single_precision():
    classifier = linear_classifier(4, scale=60.0)
    x = torch.randn(64, 4, dtype=torch.float32)
    proba = classifier.logits(x).softmax(dim=1).amin(dim=1)
    x = x[proba < 1e-9]
    assert len(x) > 10
    found = PPCEF(classifier=classifier, plausibility=Flat()).explain(x)
    assert found.x_cf.dtype == torch.float32
    assert found.feasible.all()
    optimum = decision(classifier, x.double()).abs() / norm_of(classifier)
    torch.testing.assert_close(l2_distance(found.x_cf.double(), x.double()), optimum, rtol=1e-2, atol=1e-3)


def test_fixed_weight_descent_stalls_on_the_same_saturated_classifier():
    classifier = linear_classifier(4, scale=60.0)
    x = torch.randn(64, 4, dtype=torch.float32)
    x = x[classifier.logits(x).softmax(dim=1).amin(dim=1) < 1e-30]
    adam = PPCEF(classifier=classifier, plausibility=Flat(), solver=PenaltyAdam(steps=200)).explain(x)
    assert not adam.valid.any()


# ---------------------------------------------------------------- rows, bounds, frozen features


@pytest.fixture(scope="module")
def two_moons():
    from sklearn.datasets import make_moons

    x, y = make_moons(1200, noise=0.1, random_state=0)
    x = torch.as_tensor((x - x.min(0)) / (x.max(0) - x.min(0)), dtype=torch.float32)
    y = torch.as_tensor(y)
    classifier = MLPClassifier(hidden=(32, 32), training=Training(epochs=30, learning_rate=1e-2)).fit(x, y)
    flow = ConditionalFlow(
        transforms=3, hidden=(32, 32), training=Training(epochs=25, learning_rate=5e-3, noise=0.02)
    )
    return x, y, classifier, Thresholded(density=flow.fit(x, y)).fit(x, y)


@pytest.mark.parametrize("mode", ["fast", "quality"])
def test_a_row_alone_gets_the_answer_it_gets_in_a_batch_of_a_thousand(two_moons, mode):
    x, y, classifier, plausibility = two_moons
    method = PPCEF(
        classifier=classifier, plausibility=plausibility, lower=0.0, upper=1.0, solver=SQP(mode=mode)
    ).fit(x, y)
    together = method.explain(x[:1000])
    assert together.feasible.all()
    for row in (0, 17, 500, 999):
        alone = method.explain(x[row : row + 1])
        torch.testing.assert_close(alone.x_cf[0], together.x_cf[row], rtol=0, atol=1e-5)
    chunked = replace(method, chunk_size=137)
    chunked.bank_ = method.bank_
    torch.testing.assert_close(chunked.explain(x[:1000]).x_cf, together.x_cf, rtol=0, atol=1e-5)


def test_bounds_frozen_and_monotone_features_hold_exactly(two_moons):
    x, y, classifier, plausibility = two_moons
    base = PPCEF(classifier=classifier, plausibility=plausibility).fit(x, y)
    rows = x[:200]
    for settings_, holds in (
        ({"immutable": (1,)}, lambda cf: cf.x_cf[:, 1] == cf.x[:, 1]),
        ({"increasing": (0,)}, lambda cf: cf.x_cf[:, 0] >= cf.x[:, 0]),
        ({"decreasing": (-1,)}, lambda cf: cf.x_cf[:, -1] <= cf.x[:, -1]),
        ({"lower": 0.2, "upper": torch.tensor([0.8, 0.9])}, None),
    ):
        method = replace(base, **settings_)
        method.bank_ = base.bank_
        cf = method.explain(rows)
        kept = cf[cf.found]
        assert len(kept) > 3
        assert kept.feasible.all()
        if holds is not None:
            assert holds(kept).all()
        else:
            upper = torch.maximum(torch.tensor([0.8, 0.9]).to(kept.x), kept.x)
            assert ((kept.x_cf >= kept.x.clamp_max(0.2)) & (kept.x_cf <= upper)).all()


def test_bounded_distance_equals_slsqp_on_a_linear_classifier():
    classifier = linear_classifier(6, seed=3)
    direction = (classifier.weight[1] - classifier.weight[0]).double()
    offset = float(classifier.bias[1] - classifier.bias[0])
    x = torch.rand(25, 6)
    method = PPCEF(classifier=classifier, plausibility=Flat(), margin=0.0, lower=0.0, upper=1.0)
    found = method.explain(x)
    for i in range(len(x)):
        sign = 1 if found.y_target[i] == 1 else -1
        row = x[i].double().numpy()
        limit = LinearConstraint(sign * direction.numpy(), lb=-sign * offset)
        best = minimize(
            lambda z, row=row: ((z - row) ** 2).sum(),
            row,
            bounds=[(0, 1)] * 6,
            constraints=[limit],
            method="SLSQP",
            tol=1e-14,
        )
        if not best.success:
            assert not found.found[i]
            continue
        own = float(l2_distance(found.x_cf[i : i + 1].double(), x[i : i + 1].double()))
        assert own == pytest.approx(math.sqrt(best.fun), rel=1e-2, abs=2e-3)


def test_the_bank_answers_where_every_search_fails():
    # A density of two far-apart spikes: from the factual its gradient leads nowhere useful within the
    # iterations allowed.
    x = torch.cat([torch.zeros(50, 2), torch.ones(50, 2)]) + 0.01 * torch.randn(100, 2)
    y = torch.arange(100) // 50
    classifier = LinearClassifier.from_weights(torch.tensor([[1.0, 1.0]]), torch.tensor([-1.0]))
    plausibility = Thresholded(density=GMM(components=1, regularisation=1e-6).fit(x, y)).fit(x, y)
    method = PPCEF(classifier=classifier, plausibility=plausibility, solver=SQP(iterations=1)).fit(x, y)
    found = method.explain(x)
    assert found.feasible.all()


def test_nothing_is_returned_where_nothing_is_feasible(two_moons):
    x, y, classifier, plausibility = two_moons
    method = PPCEF(classifier=classifier, plausibility=plausibility, immutable=(0, 1)).fit(x, y)
    found = method.explain(x[:20])
    assert not found.found.any()
    assert torch.isnan(found.x_cf).all()


# ---------------------------------------------------------------- the pieces


@pytest.mark.parametrize("m", [1, 2, 3, 5])
def test_the_dual_equals_scipys_nonnegative_least_squares(m):
    root = torch.randn(60, 7, m)
    wanted = torch.randn(60, 7)
    gram, slack = root.mT @ root, -(root.mT @ wanted[..., None])[..., 0]
    multipliers = nonnegative_dual(gram, slack)
    for i in range(60):
        expected, _ = nnls(root[i].numpy(), wanted[i].numpy())
        np.testing.assert_allclose(multipliers[i].numpy(), expected, atol=1e-6)


def test_the_dual_survives_parallel_constraints():
    direction = torch.randn(10, 4, 1)
    root = direction.expand(-1, -1, 2)
    multipliers = nonnegative_dual(root.mT @ root, -torch.rand(10, 2))
    assert torch.isfinite(multipliers).all()
    assert (multipliers >= 0).all()


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), d=st.integers(2, 8))
def test_the_bounded_program_equals_slsqp(seed, d):
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(d, d, generator=generator) + 2 * torch.eye(d)
    curvature = root @ root.T
    x = torch.rand(d, generator=generator)
    jacobian = torch.randn(1, d, generator=generator)
    values, cost = -0.3 * torch.rand(1, generator=generator), torch.randn(d, generator=generator)
    program = Quadratic(
        x[None], values[None], jacobian[None], cost[None], torch.linalg.inv(curvature)[None],
        torch.tensor([1e9]), torch.zeros(1, d), torch.ones(1, d),
    )  # fmt: skip
    answer = program.solve(torch.zeros(1, d, dtype=torch.bool))
    step = (x + answer.step[0]).clamp(0, 1) - x
    best = minimize(
        lambda s: cost.numpy() @ s + 0.5 * s @ curvature.numpy() @ s,
        np.zeros(d),
        jac=lambda s: cost.numpy() + curvature.numpy() @ s,
        bounds=list(zip((-x).tolist(), (1 - x).tolist(), strict=True)),
        constraints=[LinearConstraint(jacobian.numpy(), lb=-values.numpy())],
        method="SLSQP",
        options={"maxiter": 300, "ftol": 1e-14},
    )
    feasible = best.success and float(values[0] + jacobian[0] @ torch.as_tensor(best.x)) > -1e-9
    if feasible and float(values[0] + jacobian[0] @ step) >= -1e-9:
        own = float(cost @ step + 0.5 * step @ curvature @ step)
        scale = abs(best.fun) + 1e-3
        # Fix-and-resolve is a few passes, not a full active-set method: it may stop a little above the
        # optimum, never below.
        assert own >= best.fun - 1e-6 * scale
        assert own <= best.fun + 0.25 * scale


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), d=st.integers(2, 40), held=st.floats(0, 1))
def test_a_program_taken_through_all_operations_has_the_answer_of_two_passes(seed, d, held):
    """What a graph records, against the conditions of the optimum given what is held."""
    generator = torch.Generator().manual_seed(seed)
    n = 5
    root = torch.randn(n, d, d, generator=generator) / d**0.5 + 2 * torch.eye(d)
    curvature, x = root @ root.mT, torch.rand(n, d, generator=generator)
    fixed = torch.rand(n, d, generator=generator) < held / 2
    x[fixed] = x[fixed].round()
    jacobian, values = torch.randn(n, 1, d, generator=generator), -0.1 * torch.rand(n, 1, generator=generator)
    cost, bounds = torch.randn(n, d, generator=generator), (torch.zeros(n, d), torch.ones(n, d))
    program = Quadratic(
        x, values, jacobian, cost, torch.linalg.inv(curvature), torch.full((n,), 1e9), *bounds
    )
    answer = program.solve(fixed, whole=True)
    held_ones = answer.fixed & (answer.fixed.cumsum(dim=1) <= 32)
    at = (x + answer.step)[held_ones]
    assert (torch.minimum(at, 1 - at).abs() < 1e-9).all()
    gap = curvature @ answer.step[..., None] - answer.force[..., None]
    assert gap.abs().max() < 1e-6 * answer.force.abs().max().clamp_min(1)
    reached = values + (jacobian @ answer.step[..., None])[..., 0]
    tight = answer.multipliers * reached
    assert (tight[answer.multipliers < 1e3].abs() < 1e-6).all()


def test_a_search_through_all_operations_comes_as_close(two_moons):
    x, y, classifier, plausibility = two_moons
    method = PPCEF(classifier=classifier, plausibility=plausibility, lower=-1.5, upper=2.5)
    problem = method._problem(x[:40].double(), 1 - y[:40])
    evaluation, rows = Evaluation(problem), torch.arange(40)
    best = {}
    for whole in (False, True):
        state = State.begin(evaluation, rows, problem.x, 4.0, 0.3)
        for _ in range(40):
            state.iterate(evaluation, Rules(tolerance=1e-4, patience=10, vain=40, whole=whole))
        best[whole] = state.best_cost
    found = torch.isfinite(best[False]) & torch.isfinite(best[True])
    assert found.sum() >= 36
    torch.testing.assert_close(best[True][found], best[False][found], rtol=1e-2, atol=1e-4)


def test_values_and_gradients_of_all_constraints_come_in_one_pass():
    problem = Problem(
        x=torch.zeros(3, 2),
        constraints={
            "line": Constraint(lambda x, rows: 2 * x[:, 0] - 1, 0.5),
            "constant": Constraint(lambda x, rows: torch.ones(len(x)), 0.5),
            "broken": Constraint(lambda x, rows: torch.where(rows == 1, torch.nan, x[:, 1]), 0.1),
            "infinite slope": Constraint(lambda x, rows: (x[:, 1] - rows).abs().sqrt(), 0.0),
        },
    )
    x = torch.tensor([[1.0, 0.5], [1.0, 2.0], [0.0, 2.0]])
    at = Evaluation(problem)(x, torch.arange(3))
    # A constant has no aim, for there is nothing to steer by; what is not finite is minus infinity.
    expected = torch.tensor(
        [[0.5, 1.0, 0.4, 0.5**0.5], [0.5, 1.0, -torch.inf, 1.0], [-1.5, 1.0, 1.9, -torch.inf]]
    )
    torch.testing.assert_close(at.values, expected)
    torch.testing.assert_close(at.jacobian[0], torch.tensor([[2.0, 0], [0, 0], [0, 1], [0, 0.5**0.5]]))
    assert (at.jacobian[1, 2] == 0).all()
    assert at.accepted.tolist() == [True, False, False]


def test_bisection_stays_feasible_and_comes_closer():
    problem = Problem(x=torch.zeros(5, 2), constraints={"half": Constraint(lambda x, rows: x[:, 0] - 0.5)})
    rows = torch.arange(5)
    start = torch.rand(5, 2) + 1
    moved = bisect(problem, problem.x, start, rows)
    assert problem.satisfied(moved, rows).all()
    torch.testing.assert_close(moved[:, 0], torch.full((5,), 0.5), atol=1e-3, rtol=0)


def test_the_bank_gives_the_nearest_rows_of_the_class_as_brute_force_does():
    x = torch.rand(300, 3)
    bank = Bank.of(x, 2, lambda rows, y: (rows[:, 0] > 0.5) == (y == 1))
    queries, y_target = torch.rand(20, 3), torch.arange(20) % 2
    nearest = bank.nearest(queries, y_target, count=4)
    for query, y, found in zip(queries, y_target, nearest, strict=True):
        rows = x[(x[:, 0] > 0.5) == (y == 1)]
        expected = rows[(rows - query).norm(dim=1).argsort()[:4]]
        torch.testing.assert_close(found, expected)


def test_the_bank_moves_rows_into_the_bounds_and_checks_them_again():
    x = torch.rand(200, 2)
    feasible = lambda rows, y: rows.sum(dim=1) > 1.0  # noqa: E731
    bank = Bank.of(x, 2, feasible)
    queries = torch.tensor([[0.1, 0.3], [0.1, 0.95]])
    lower, upper = queries.clone(), queries.clone()
    lower[:, 0], upper[:, 0] = 0.0, 1.0  # the second feature is frozen
    nearest = bank.nearest(
        queries, torch.tensor([1, 1]), count=3, lower=lower, upper=upper, feasible=feasible
    )
    kept = torch.isfinite(nearest).all(dim=2)
    assert kept.any(dim=1).all()
    assert (nearest[..., 1] == queries[:, None, 1])[kept].all()
    assert feasible(nearest[kept], None).all()


def test_an_empty_bank_gives_no_starts():
    bank = Bank.of(torch.rand(10, 2), 2, lambda rows, y: torch.zeros(len(rows), dtype=torch.bool))
    assert torch.isnan(bank.nearest(torch.rand(3, 2), torch.tensor([0, 1, 1]), count=2)).all()


def test_the_papers_adam_takes_the_steps_of_a_hand_written_adam():
    classifier, x = linear_classifier(3), torch.randn(4, 3)
    method = PPCEF(
        classifier=classifier, plausibility=Flat(), solver=PenaltyAdam(steps=25, patience=25, keep="last")
    )
    found = method.explain(x)
    weight, bias = classifier.weight[1].to(x), classifier.bias[1].to(x)
    z, m, v = x.clone(), torch.zeros_like(x), torch.zeros_like(x)
    sign = (2 * found.y_target - 1).to(x)
    for t in range(1, 26):
        p = torch.sigmoid(sign * (z @ weight + bias))
        active = (p < 0.52).to(x)
        change = z - x
        distance = change.norm(dim=1, keepdim=True)
        pull = torch.where(distance > 0, change / distance.clamp_min(1e-300), torch.zeros_like(change))
        g = (pull - 100 * (active * p * (1 - p) * sign)[:, None] * weight) / len(x)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        z = z - 0.005 * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
    torch.testing.assert_close(found.x_cf, z, rtol=1e-5, atol=1e-6)


def test_the_best_iterate_is_feasible_more_often_and_never_farther_than_the_last(two_moons):
    x, _, classifier, plausibility = two_moons
    rows = x[:60]
    last = PPCEF(
        classifier=classifier, plausibility=plausibility, solver=PenaltyAdam(steps=300, keep="last")
    ).explain(rows)
    best = PPCEF(
        classifier=classifier, plausibility=plausibility, solver=PenaltyAdam(steps=300, keep="best")
    ).explain(rows)
    both = last.feasible & best.feasible
    assert best.feasible.sum() >= last.feasible.sum()
    assert (l2_distance(best.x_cf, best.x)[both] <= l2_distance(last.x_cf, last.x)[both] + 1e-6).all()


def test_paths_start_at_the_row_and_end_at_the_counterfactual(two_moons):
    x, y, classifier, plausibility = two_moons
    for solver in (PenaltyAdam(steps=60, keep="last", trace=20), SQP(trace=True)):
        found = (
            PPCEF(classifier=classifier, plausibility=plausibility, solver=solver).fit(x, y).explain(x[:3])
        )
        assert found.path is not None
        torch.testing.assert_close(found.path[0].to(found.x), found.x)
        if isinstance(solver, PenaltyAdam):
            torch.testing.assert_close(found.path[-1], found.x_cf)


def test_a_density_that_answers_with_nan_is_a_row_not_found():
    class Broken:
        def score(self, x, y):
            return torch.full((len(x),), math.nan, dtype=x.dtype) + x.sum() * 0

    found = PPCEF(classifier=linear_classifier(2), plausibility=Broken()).explain(torch.randn(5, 2))
    assert not found.found.any()


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"margin": 0.5}, "margin"),
        ({"increasing": (0,), "decreasing": (0,)}, "increasing and decreasing"),
        ({"weights": torch.tensor([1.0, 0.0])}, "positive"),
        ({"plausibility": None}, "plausibility"),
    ],
)
def test_settings_that_make_no_sense_are_errors_when_they_are_made(wrong, text):
    with pytest.raises(InvalidInputError, match=text):
        PPCEF(**({"classifier": linear_classifier(2), "plausibility": Flat()} | wrong))


def test_every_problem_is_named_at_once():
    with pytest.raises(InvalidInputError, match=r"margin.*increasing and decreasing"):
        PPCEF(
            classifier=linear_classifier(2), plausibility=Flat(), margin=2.0, increasing=(1,), decreasing=(1,)
        )


def test_a_column_that_does_not_exist_is_an_error():
    method = PPCEF(classifier=linear_classifier(2), plausibility=Flat(), immutable=(7,))
    with pytest.raises(InvalidInputError, match=r"\[7\] do not exist"):
        method.explain(torch.randn(2, 2))
