"""The CP-SAT solver of OR-tools: integer programs with Boolean variables. The only file that imports it."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias

from plausiflow.errors import MissingExtraError, PlausiflowError

Literal_: TypeAlias = Any
"""A Boolean variable of OR-tools, or its negation."""
Expression: TypeAlias = Any
SolveStatus = Literal["optimal", "feasible", "infeasible", "unknown"]


class UnloadableSolverError(PlausiflowError, ImportError):
    """The solver is installed, but another package has loaded a library that it cannot use."""


@cache
def is_installed() -> bool:
    """Return whether the extra ``certify`` is installed and can be loaded."""
    try:
        _cp_model()
    except (MissingExtraError, UnloadableSolverError):
        return False
    return True


def _cp_model() -> Any:  # noqa: ANN401
    if importlib.util.find_spec("ortools") is None:
        raise MissingExtraError("ortools", "certify", "A proof about trees")
    try:
        from ortools.sat.python import cp_model
    except ImportError as error:
        # OR-tools and highspy, which cvxpy imports, bring libraries of one name in different versions.
        raise UnloadableSolverError(
            "A proof about trees needs the package `ortools`, which is installed but could not be loaded: "
            f"{error}. A package that was imported before may have loaded another version of one of its "
            "libraries, as highspy and cvxpy do. Put `import ortools.sat.python.cp_model` before it."
        ) from error
    return cp_model


@dataclass(eq=False)
class SolverResult:
    """What the solver found.

    Attributes:
        status: Whether the solution is optimal, the program infeasible, or the time was over.
        bound: Proven lower bound of the objective; meaningless without an objective.
        solver: Holds the values of the variables if there is a solution.
    """

    status: SolveStatus
    bound: float
    solver: Any

    @property
    def has_solution(self) -> bool:
        """Whether there is a solution."""
        return self.status in ("optimal", "feasible")

    @property
    def work(self) -> float:
        """Deterministic time that the solver took."""
        return float(self.solver.response_proto.deterministic_time)

    def is_true(self, literal: Literal_) -> bool:
        """Return the value of a literal in the solution."""
        return bool(self.solver.boolean_value(literal))

    def value(self, variable: Expression) -> int:
        """Return the value of an integer variable in the solution."""
        return int(self.solver.value(variable))


class Program:
    """An integer program; all coefficients are whole numbers."""

    def __init__(self) -> None:
        self._package = _cp_model()
        self.model = self._package.CpModel()

    def boolean(self) -> Literal_:
        """Return a new Boolean variable."""
        return self.model.new_bool_var("")

    def integer(self, low: int, high: int) -> Expression:
        """Return a new integer variable."""
        return self.model.new_int_var(low, high, "")

    def weighted(self, literals: Sequence[Literal_], weights: Sequence[int], constant: int = 0) -> Expression:
        """Return the weighted sum of literals, plus a constant."""
        return self._package.LinearExpr.weighted_sum(list(literals), list(weights)) + constant

    def at_least(
        self, expression: Expression, bound: int | Expression, when: Sequence[Literal_] = ()
    ) -> None:
        """Require that an expression is at least a bound, if all of some literals are true."""
        constraint = self.model.add(expression >= bound)
        if when:
            constraint.only_enforce_if(list(when))

    def equal(self, expression: Expression, other: Expression) -> None:
        """Require that two expressions are equal."""
        self.model.add(expression == other)

    def exactly_one(self, literals: Sequence[Literal_]) -> None:
        """Require that exactly one literal is true."""
        self.model.add_exactly_one(list(literals))

    def at_most_one(self, literals: Sequence[Literal_]) -> None:
        """Require that at most one literal is true."""
        self.model.add_at_most_one(list(literals))

    def any_of(self, literals: Sequence[Literal_]) -> None:
        """Require that a literal is true; without literals the program is infeasible."""
        self.model.add_bool_or(list(literals))

    def implies(self, first: Literal_, second: Literal_) -> None:
        """Require that a literal implies another."""
        self.model.add_implication(first, second)

    def square(self, root: Expression, largest: int) -> Expression:
        """Return a variable that is the square of another one, which is at most ``largest``."""
        square = self.integer(0, largest * largest)
        self.model.add_multiplication_equality(square, [root, root])
        return square

    def positive_part(self, variable: Expression, largest: int) -> Expression:
        """Return a variable that is another one where that is positive, else zero; at most ``largest``."""
        positive = self.integer(0, largest)
        self.model.add_max_equality(positive, [variable, 0])
        return positive

    def minimise(self, expression: Expression) -> None:
        """Set the objective."""
        self.model.minimize(expression)

    def solve(self, seconds: float, work: float | None = None, *, presolve: bool = True) -> SolverResult:
        """Solve with one thread, within some seconds of wall-clock time and some deterministic time.

        Without ``presolve``, the solver does not simplify the program first.
        """
        solver = self._package.CpSolver()
        solver.parameters.max_time_in_seconds = max(0.01, seconds)
        if work is not None:
            solver.parameters.max_deterministic_time = work
        solver.parameters.num_workers = 1
        solver.parameters.linearization_level = 2
        solver.parameters.symmetry_level = 0  # their detection takes longer than what it saves
        # The search for constraints that include others made feasible programs infeasible (OR-tools 9.15).
        solver.parameters.presolve_inclusion_work_limit = 0
        solver.parameters.cp_model_presolve = presolve
        package, status = self._package, solver.solve(self.model)
        names: dict[Any, SolveStatus] = {
            package.OPTIMAL: "optimal",
            package.FEASIBLE: "feasible",
            package.INFEASIBLE: "infeasible",
        }
        return SolverResult(names.get(status, "unknown"), float(solver.best_objective_bound), solver)
