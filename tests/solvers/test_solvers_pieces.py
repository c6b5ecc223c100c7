"""The pieces of the solvers, each against SciPy, brute force or a formula."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, minimize, nnls

from plausiflow.core import Constraint, Evaluation, Problem
from plausiflow.densities import GMM, Thresholded
from plausiflow.methods import PPCEF
from plausiflow.models import LinearClassifier
from plausiflow.search.bank import Bank
from plausiflow.solvers import SQP
from plausiflow.solvers.dual import nonnegative_dual
from plausiflow.solvers.qp import Quadratic
from plausiflow.solvers.starts import bisect

# ---------------------------------------------------------------- programs


@pytest.mark.parametrize("m", [1, 2, 3, 5])
def test_the_dual_equals_scipys_nonnegative_least_squares(m):
    root = torch.randn(60, 7, m)
    wanted = torch.randn(60, 7)
    gram, slack = root.mT @ root, -(root.mT @ wanted[..., None])[..., 0]
    multipliers = nonnegative_dual(gram, slack)
    for i in range(60):
        expected, _ = nnls(root[i].numpy(), wanted[i].numpy())
        np.testing.assert_allclose(multipliers[i].numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("m", [2, 3, 4])
def test_the_dual_survives_parallel_constraints(m):
    direction = torch.randn(10, 4, 1)
    root = direction.expand(-1, -1, m)
    multipliers = nonnegative_dual(root.mT @ root, -torch.rand(10, m))
    assert torch.isfinite(multipliers).all()
    assert (multipliers >= 0).all()


def above_the_optimum(seed: int, d: int) -> float:
    """How far the answer to a random program is above that of SLSQP; infinite where it is not allowed."""
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
    if not best.success:  # no step inside the bounds meets the constraint
        return np.nan
    if float(values[0] + jacobian[0] @ step) < -1e-9:
        return np.inf
    own = float(cost @ step + 0.5 * step @ curvature @ step)
    return (own - best.fun) / (abs(best.fun) + 1e-3)


@pytest.mark.parametrize(("d", "share"), [(2, 0.99), (4, 0.9), (6, 0.8), (8, 0.6)])
def test_the_bounded_program_is_mostly_that_of_slsqp(d, share):
    """A few passes of fixing and solving again, not a whole active-set method: the next step goes on."""
    above = np.array([above_the_optimum(seed, d) for seed in range(100)])
    above = above[~np.isnan(above)]
    assert len(above) > 80
    assert (above > -1e-6).all()
    assert (above < 1e-6).mean() > share


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), d=st.integers(2, 40), held=st.floats(0, 1))
def test_a_program_that_takes_all_operations_satisfies_the_conditions_of_its_optimum(seed, d, held):
    """The operations that a CUDA graph records, checked against the optimality conditions."""
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
    answer = program.solve(fixed, uniform=True)
    held_ones = answer.fixed & (answer.fixed.cumsum(dim=1) <= 32)
    at = (x + answer.step)[held_ones]
    assert (torch.minimum(at, 1 - at).abs() < 1e-9).all()
    gap = curvature @ answer.step[..., None] - answer.force[..., None]
    assert gap.abs().max() < 1e-6 * answer.force.abs().max().clamp_min(1)
    reached = values + (jacobian @ answer.step[..., None])[..., 0]
    tight = answer.multipliers * reached
    assert (tight[answer.multipliers < 1e3].abs() < 1e-6).all()


# ---------------------------------------------------------------- values and starts


def test_values_and_gradients_of_all_constraints_come_in_one_pass():
    problem = Problem(
        x=torch.zeros(3, 2),
        constraints={
            "line": Constraint(lambda x, rows: 2 * x[:, 0] - 1, 0.5),
            "constant": Constraint(lambda x, rows: torch.ones(len(x)), 0.5),
            "broken": Constraint(lambda x, rows: torch.where(rows == 1, torch.nan, x[:, 1]), 0.1),
            "infinite gradient": Constraint(lambda x, rows: (x[:, 1] - rows).abs().sqrt(), 0.0),
        },
    )
    x = torch.tensor([[1.0, 0.5], [1.0, 2.0], [0.0, 2.0]])
    at = Evaluation(problem)(x, torch.arange(3))
    # A flat constraint has no buffer, because there is no direction to follow; a value that is not finite
    # counts as minus infinity.
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


# ---------------------------------------------------------------- the bank


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
