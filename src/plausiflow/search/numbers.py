"""The program over the numbers of candidates whose categories are fixed, and its solution."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from plausiflow.constraints import repair_numbers
from plausiflow.core import (
    Constraint,
    ImprovingSolver,
    LocalModel,
    MovingColumns,
    Problem,
    Solver,
)
from plausiflow.search.candidates import Candidates
from plausiflow.search.problem import build_problem
from plausiflow.search.reweighted import SolveSettings, solve_reweighted
from plausiflow.solvers import local_model

if TYPE_CHECKING:
    from plausiflow.search.task import SearchTask

ANY_NUMBER = 1e-4
"""Weight of a number that has left a special value, relative to its own: it only makes the answer unique."""
MOST_CLAUSES = 4
"""Rules that a solver gets as constraints of their own; more are one constraint, the least satisfied rule."""


def solve_numbers(
    task: SearchTask,
    candidates: Candidates,
    frozen: Tensor | None,
    weights: Tensor | None,
    limits: Tensor | None,
    settings: SolveSettings,
) -> Candidates:
    """Return the candidates with solved numbers; see :meth:`SearchTask.solve`."""
    if not task.numbers:
        return task.check(candidates, max_changes=False)
    if weights is None and task.cost_model.distance != "l2":
        return solve_reweighted(task, candidates, frozen, settings)
    parts, order = [], torch.argsort(candidates.rows, stable=True)
    for which in _blocks_of_rows(order, candidates.rows, task.at_once):
        own = candidates[which]
        extra = settings.at(which).extra_plausibility
        problem, begin = number_problem(task, own, None if frozen is None else frozen[which], extra)
        if weights is not None:
            problem = replace(problem, weights=weights[which])
        if isinstance(task.solver, ImprovingSolver):
            solution = task.solver.improve(
                problem,
                begin,
                curvature=settings.curvature,
                iterations=settings.iterations,
                tolerance=settings.tolerance,
                max_without_answer=settings.max_without_answer,
                cost_limit=None if limits is None else task.room_for_numbers(own, limits[which]),
                race=None if settings.answers is None else task.race(own, settings.answers),
                paced=settings.paced,
            ).x
        else:
            solution = _solve_from(task.solver, problem, begin)
        parts.append(with_numbers(task, own, solution, begin))
    return Candidates.concat(*parts)[torch.argsort(order)] if parts else candidates


def _blocks_of_rows(order: Tensor, rows: Tensor, size: int) -> list[Tensor]:
    """Split candidates, in the order of their rows, into blocks that hold all candidates of a row."""
    if len(order) <= size:
        return [order] if len(order) else []
    ends = torch.unique_consecutive(rows[order], return_counts=True)[1].cumsum(0).tolist()
    cuts, start = [], 0
    for end, following in zip(ends, [*ends[1:], ends[-1] + size + 1], strict=True):
        if following - start > size:
            cuts.append(order[start:end])
            start = end
    return cuts


def solve_near(
    task: SearchTask,
    candidates: Candidates,
    frozen: Tensor,
    inverse: Tensor,
    cost_limit: Tensor,
    settings: SolveSettings,
) -> tuple[Candidates, LocalModel]:
    """Solve the numbers of candidates near a known answer, whose inverse curvature is known.

    ``cost_limit`` is the highest squared distance of interest. Solvers and distances that cannot use what is
    known solve as usual.
    """
    knows = isinstance(task.solver, ImprovingSolver) and task.cost_model.distance == "l2"
    if not knows:
        solved = task.solve(candidates, frozen=frozen, iterations=settings.iterations, curvature=8.0)
        return solved, model_at(task, solved, frozen)
    parts, models = [], []
    size = task.at_once
    for which in torch.arange(len(candidates), device=task.x.device).split(size):
        own = candidates[which]
        problem, begin = number_problem(task, own, frozen[which])
        assert isinstance(task.solver, ImprovingSolver)
        solution = task.solver.improve(
            problem,
            begin,
            iterations=settings.iterations,
            tolerance=settings.tolerance,
            inverse=inverse[which],
            cost_limit=cost_limit[which],
            paced=True,
        )
        model = solution.model
        parts.append(with_numbers(task, own, solution.x, begin))
        models.append(model_at(task, parts[-1], frozen[which]) if model is None else model)
    return Candidates.concat(*parts), LocalModel.concat(models)


def model_at(task: SearchTask, candidates: Candidates, frozen: Tensor) -> LocalModel:
    """Return a quadratic model of the program over the numbers of each candidate, at the candidate."""
    models = []
    size = max(1, task.at_once // max(1, len(task.numbers)))
    for which in torch.arange(len(candidates), device=task.x.device).split(size):
        problem, begin = number_problem(task, candidates[which], frozen[which])
        models.append(local_model(problem, begin))
    return LocalModel.concat(models)


def with_numbers(task: SearchTask, own: Candidates, solution: Tensor, begin: Tensor) -> Candidates:
    """Return candidates with the numbers of a solution ``(p, numbers)``, and their cost."""
    found = torch.isfinite(solution).all(dim=1)
    columns = torch.tensor(task.numbers, device=begin.device)
    codes = task.codes_of(own.x)
    x = own.x.index_copy(1, columns, torch.where(found[:, None], solution, begin))
    if task.allowance.clauses:
        x = repair_numbers(task.allowance, x, own.rows)
    # If a rule forces a feature to move, a frozen value may not be allowed.
    found &= task.allowance.contains(x, own.rows, max_changes=False, codes=codes)
    cost = torch.where(found, task.costs(x, own.rows, codes), torch.inf)
    return Candidates(rows=own.rows, x=x, cost=cost)


def number_problem(
    task: SearchTask, own: Candidates, frozen: Tensor | None, extra_plausibility: float | Tensor = 0.0
) -> tuple[Problem, Tensor]:
    """Return the problem over the numbers of the candidates, and its starting points."""
    codes = task.codes_of(own.x)
    lower, upper = _bounds(task, own, codes, frozen)
    begin = torch.minimum(torch.maximum(own.x[:, task.numbers], lower), upper)
    factual = task.x[own.rows][:, task.numbers]
    entered, weights = task.entered(own.rows, codes), task.cost_model.number_units(task.numbers) ** 2
    if entered is not None:
        # Its state has its price, so any number costs the same: the nearest feasible one to the start.
        factual = torch.where(entered, begin, factual)
        weights = torch.where(entered, ANY_NUMBER * weights, weights)

    equalities: list[int] = []
    if task.allowance.clauses and isinstance(task.solver, ImprovingSolver):
        equalities = task.allowance.equalities
    problem = build_problem(
        x=factual,
        targets=task.targets,
        validity=task.validity,
        scores=task.scores,
        moving=MovingColumns.of(own.x, task.numbers),
        rows=own.rows,
        lower=lower,
        upper=upper,
        weights=weights,
        normals=_normals(task, own, equalities),
        rules=_rules(task, own.rows, equalities),
        extra_plausibility=extra_plausibility,
    )
    return problem, begin


def _rules(task: SearchTask, rows: Tensor, equalities: list[int]) -> dict[str, Constraint]:
    """Return the rules about numbers as constraints on encoded rows; equalities hold by the directions."""
    allowance = task.allowance
    sides = {side for j in equalities for side in (j, j + 1)}
    clauses = [j for j, c in enumerate(allowance.clauses) if c.numeric and j not in sides]
    if len(clauses) <= MOST_CLAUSES:
        return {f"rule {j}": Constraint(partial(_clause, task, rows, j)) for j in clauses}
    some = torch.tensor(clauses, device=rows.device)

    def least(x_cf: Tensor, which: Tensor) -> Tensor:
        return allowance.clause_values(x_cf, rows[which])[:, some].amin(dim=1)

    def least_and_grad(x_cf: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
        return allowance.least_clause(x_cf, rows[which], some)

    closed = allowance.has_closed_form(rows.device)
    return {"rules": Constraint(least, value_and_grad=least_and_grad if closed else None)}


def _clause(task: SearchTask, rows: Tensor, j: int, x_cf: Tensor, which: Tensor) -> Tensor:
    return task.allowance.clause_value(j, x_cf, rows[which])


def _bounds(task: SearchTask, own: Candidates, codes: Tensor, frozen: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the smallest and largest allowed numbers of each candidate, shape ``(p, numbers)`` each."""
    rows, numbers = own.rows, task.numbers
    lower, upper = task.allowance.lower[rows][:, numbers], task.allowance.upper[rows][:, numbers]
    factual, begin = task.x[rows][:, numbers], own.x[:, numbers]
    if frozen is not None:
        kept = frozen[:, task.number_blocks]
        lower, upper = torch.where(kept, factual, lower), torch.where(kept, factual, upper)
    # A special or missing value pins its number.
    pinned = ~task.free_numbers(codes)[:, numbers]
    return torch.where(pinned, begin, lower), torch.where(pinned, begin, upper)


def _normals(task: SearchTask, own: Candidates, equalities: list[int]) -> Tensor | None:
    """Return the gradients of equalities at the candidates, shape ``(p, equalities, numbers)``."""
    if not equalities:
        return None
    normals = []
    with torch.enable_grad():
        for j in equalities:
            x = own.x.detach().requires_grad_()
            value = task.allowance.clause_value(j, x, own.rows)
            gradient = torch.autograd.grad(value.sum(), x)[0] if value.requires_grad else torch.zeros_like(x)
            normals.append(gradient[:, task.numbers])
    return torch.stack(normals, dim=1)


def _solve_from(solver: Solver, problem: Problem, begin: Tensor) -> Tensor:
    """Solve with a solver that only knows ``solve``; NaN where its answer breaks a constraint."""
    solution = solver.solve(problem, lambda rows: begin[rows][:, None]).x.to(begin)
    rows = torch.arange(len(begin), device=begin.device)
    satisfied = problem.satisfied(torch.nan_to_num(solution), rows)
    return torch.where(satisfied[:, None], solution, torch.nan)
