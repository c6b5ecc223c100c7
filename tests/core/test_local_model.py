"""The quadratic model of an answer: against closed forms and a general solver."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from plausiflow.core import Constraint, LocalModel, Problem
from plausiflow.solvers import SQP, local_model

DTYPE = torch.float64


def quadratic_programs(n, d, seed=0):
    """Programs with one concave quadratic constraint each, and their answers."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(n, d, generator=generator, dtype=DTYPE)
    root = torch.randn(d, d, generator=generator, dtype=DTYPE) / d
    curved = root @ root.T
    slope = torch.rand(d, generator=generator, dtype=DTYPE) + 0.2
    weights = torch.rand(d, generator=generator, dtype=DTYPE) + 0.5
    level = 0.8 + ((x @ slope) - 0.5 * ((x @ curved) * x).sum(1)).max()

    def value(z, rows):
        return z @ slope - 0.5 * ((z @ curved) * z).sum(dim=1) - level

    problem = Problem(x=x, constraints={"bent": Constraint(value)}, weights=weights)
    solution = SQP(iterations=200, tolerance=1e-10).improve(problem, x).x
    return problem, solution, (slope, curved, weights, level)


def test_the_curvature_is_that_of_the_lagrangian():
    problem, solution, (slope, curved, weights, _) = quadratic_programs(4, 5)
    model = local_model(problem, solution)
    gradient = slope - solution @ curved
    multiplier = ((solution - problem.x) * weights * gradient).sum(1) / (gradient * gradient).sum(1)
    expected = torch.linalg.inv(torch.diag(weights) + multiplier[:, None, None] * curved)
    torch.testing.assert_close(model.inverse, expected, rtol=1e-3, atol=1e-3)
    assert model.active.all()


@pytest.mark.parametrize("seed", range(3))
def test_eliminated_features_are_the_cheapest_and_cost_what_a_general_solver_finds(seed):
    problem, solution, (slope, curved, weights, level) = quadratic_programs(3, 4, seed)
    model = local_model(problem, solution)
    every = torch.ones(3, 4, dtype=torch.bool)
    path = model.eliminate(every, torch.full((3,), -torch.inf, dtype=DTYPE))
    assert path.order.shape == (3, 1)
    for i in range(3):
        factual, found = problem.x[i].numpy(), []
        for j in range(4):
            free = np.delete(np.arange(4), j)

            def whole(z, j=j, free=free, factual=factual):
                point = factual.copy()
                point[free] = z
                return point

            def cost(z, whole=whole, factual=factual):
                return float((weights.numpy() * (whole(z) - factual) ** 2).sum())

            def constraint(z, whole=whole):
                point = whole(z)
                return float(slope.numpy() @ point - 0.5 * point @ curved.numpy() @ point - float(level))

            begin = solution[i].numpy()[free]
            best = minimize(cost, begin, constraints={"type": "ineq", "fun": constraint}, method="SLSQP")
            found.append(best.fun if best.success else np.inf)
        assert int(path.order[i, 0]) == int(np.argmin(found))
        # The model is exact up to the third order.
        assert float(path.cost[i, 0]) == pytest.approx(min(found), rel=0.1)


def test_an_elimination_stops_beyond_its_limits_and_never_resets_what_it_must_not():
    problem, solution, _ = quadratic_programs(6, 5)
    model = local_model(problem, solution)
    removable = torch.zeros(6, 5, dtype=torch.bool)
    removable[:, [1, 3]] = True
    path = model.eliminate(removable, torch.full((6,), torch.inf, dtype=DTYPE))
    assert path.order.shape == (6, 2)
    assert set(path.order.unique().tolist()) == {1, 3}
    reset, points = path.first(torch.full((6,), 2))
    assert torch.equal(reset, removable)
    assert torch.equal(points[:, [1, 3]], problem.x[:, [1, 3]])
    nothing = model.eliminate(torch.zeros_like(removable), torch.zeros(6, dtype=DTYPE))
    assert nothing.order.shape == (6, 0)


def test_the_inverse_without_some_features_is_that_of_the_others():
    generator = torch.Generator().manual_seed(1)
    root = torch.randn(3, 5, 5, generator=generator, dtype=DTYPE)
    curvature = root @ root.mT + torch.eye(5, dtype=DTYPE)
    zeros = torch.zeros(3, 5, dtype=DTYPE)
    model = LocalModel(
        x=zeros,
        factual=zeros,
        weights=zeros + 1,
        values=zeros[:, :1],
        jacobian=zeros[:, None],
        inverse=torch.linalg.inv(curvature),
        active=torch.zeros(3, 1, dtype=torch.bool),
    )
    reset = torch.tensor([[True, False, False, True, False]]).expand(3, 5)
    kept = model.inverse_without(reset)
    free = [1, 2, 4]
    torch.testing.assert_close(kept[:, free][:, :, free], torch.linalg.inv(curvature[:, free][:, :, free]))
    assert (kept[:, [0, 3]] == 0).all()


def test_a_search_that_knows_the_curvature_returns_the_model_of_where_it_ends():
    problem, solution, _ = quadratic_programs(4, 5)
    model = local_model(problem, solution)
    again = SQP().improve(problem, solution, inverse=model.inverse, tolerance=1e-3).model
    assert again is not None
    torch.testing.assert_close(again.x, solution, rtol=0, atol=1e-3)
    torch.testing.assert_close(again.jacobian, model.jacobian, rtol=0, atol=1e-2)
    assert torch.equal(again.active, model.active)


def test_with_much_curvature_the_first_answer_is_the_nearest_point_to_the_start():
    normal, start = torch.tensor([3.0, 4.0]), torch.tensor([[0.5, 0.1], [0.2, 0.6]])
    problem = Problem(
        x=torch.zeros(2, 2), constraints={"half-plane": Constraint(lambda z, rows: z @ normal - 5.0)}
    )
    found = SQP(radius=10.0).improve(problem, start, curvature=1e4, patience=3, max_without_answer=5).x
    nearest = start + ((5.0 - start @ normal) / (normal @ normal))[:, None] * normal
    torch.testing.assert_close(found, nearest, rtol=0, atol=1e-3)


def test_a_search_beyond_its_cost_limit_ends_early():
    problem, solution, _ = quadratic_programs(4, 5)
    cost = ((solution - problem.x) ** 2 * problem.weights).sum(1)
    far = SQP().improve(problem, problem.x, cost_limit=0.01 * cost)
    near = SQP().improve(problem, problem.x, cost_limit=2 * cost)
    assert not torch.isfinite(far.x).any()
    assert torch.isfinite(near.x).all()
    assert int(far.gradients.sum()) < int(near.gradients.sum())
