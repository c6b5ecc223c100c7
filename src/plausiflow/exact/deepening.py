"""Iterative deepening on the cost: the proof that nothing cheaper exists, radius by radius.

A program that is restricted to a small radius is small, and a proof that it is infeasible shows that every
answer costs more than the radius. The radius grows until there is an answer, which is then solved to the end.
So there is a bound at any time. The answer is confirmed by the user's model; where rounding in the model
would change the decision, all rows that reach the same leaves are ruled out. Where that does not end, a
second pass asks for a little more than the threshold, and the first pass keeps the bound.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from plausiflow.exact.cells import Cell
from plausiflow.exact.corners import corner_of
from plausiflow.exact.row_program import Corner, RadiusProgram, RowProblem
from plausiflow.exact.scores import ScoreRow

GROWTH, SLOW_GROWTH, MUCH_WORK = 1.5, 1.2, 0.5
"""By what the radius grows. After a program that took much deterministic time, it grows slowly: the work
rises steeply with the radius."""
FIRST_RADIUS = 0.03
FIRST_SHARE = 1 / 300
"""The first radius as a share of the largest cost, for distances that have other units."""
RAISED = (2.0, 8.0, 64.0, 4096.0)
"""Slacks of rounding that the passes after the first one ask for."""
OPTIMAL_GAP = 1e-3
"""Relative gap up to which an answer counts as the cheapest: costs are whole units in the program."""

ScoreRows = Callable[[float], list[ScoreRow]]
"""Returns the inequalities of the target, with thresholds raised by a number of slacks."""
Answer = Literal["accepted", "another outcome", "not allowed", "unsteady"]
Confirm = Callable[[Tensor], Answer]
"""What the user's model and the rules say about an encoded row."""
Tangents = Callable[[Tensor], list[ScoreRow]]
"""Returns inequalities that rule out an encoded row that the model rejected."""
MOST_CORNERS = 8
"""Rows near an answer for which the trees are in the program, too."""
MOST_REJECTED = 30
"""How often a rejected row is ruled out within a radius."""


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """What answers must be like near by.

    Attributes:
        rejected: Returns a row near an answer that the model rejects; None if there is none.
        rows: The inequalities of the target near by.
    """

    rejected: Callable[[Tensor], Tensor | None]
    rows: list[ScoreRow]


@dataclass
class Proof:
    """What was proven about one row.

    Attributes:
        bound: No allowed row that the model decides as wanted costs less; infinite if there is none.
        answer: The cheapest confirmed row, encoded, shape ``(1, width)``; None if there is none.
        cost: What it costs; infinite without an answer.
        finished: Whether the search ended before the time was over.
        seconds: Seconds that it took.
        processor_seconds: Seconds of the processor that it took.
        trace: Seconds of the processor and bound, whenever the bound rose.
    """

    bound: float = 0.0
    answer: Tensor | None = None
    cost: float = math.inf
    finished: bool = False
    seconds: float = 0.0
    processor_seconds: float = 0.0
    trace: list[tuple[float, float]] = field(default_factory=list)

    @property
    def infeasible(self) -> bool:
        """Whether it is proven that there is no answer."""
        return math.isinf(self.bound)

    @property
    def optimal(self) -> bool:
        """Whether the answer is proven to be the cheapest."""
        return self.answer is not None and self.cost <= self.bound * (1 + OPTIMAL_GAP) + 1e-9


@dataclass
class Deepening:
    """The search for one row.

    Attributes:
        problem: The row.
        rows: The inequalities of its target.
        confirm: The user's model and the rules, which have the last word.
        tangents: Rules out rejected rows, if the target is not linear in the outputs.
        seconds: Seconds that it may take.
        known: The cost of an answer that is known; nothing more expensive is looked for.
        work: Deterministic time of the solver for each radius; None for no limit.
        near: Asks for answers that hold at rows near by, too; None if they need not.
        at_once: Whether the first radius is the largest one, for rows that probably have no answer.
    """

    problem: RowProblem
    rows: ScoreRows
    confirm: Confirm
    tangents: Tangents
    seconds: float
    known: float = math.inf
    work: float | None = None
    near: Neighbourhood | None = None
    at_once: bool = False
    proof: Proof = field(default_factory=Proof)
    _cuts: list[ScoreRow] = field(default_factory=list)
    _banned: list[Cell] = field(default_factory=list)
    _corners: list[Corner] = field(default_factory=list)
    _spent: float = 0.0
    _start: float = field(default_factory=time.monotonic)
    _thread_start: float = field(default_factory=time.thread_time)

    def run(self) -> Proof:
        """Return what was proven in time."""
        proof, rows = self.proof, self.rows(0.0)
        top = self.problem.largest_cost * (1 + 1e-6) + 1e-9
        radius = top if self.at_once else self._first_radius()
        while True:
            last = min(top, self.known)
            radius = min(radius, last)
            if self._left() <= 0:
                break
            if self._tighten(rows, radius):
                proof.finished = True
                break
            if proof.bound < radius:  # the time was over
                break
            if radius >= last:
                proof.finished = True
                self._raise(math.inf if last == top else last)
                break
            radius *= SLOW_GROWTH if self._spent > MUCH_WORK else GROWTH
        proof.seconds = time.monotonic() - self._start
        proof.processor_seconds = self._used()
        return proof

    def _first_radius(self) -> float:
        usual = FIRST_RADIUS if self.problem.costs.distance != "l1-mad" else 0.0
        return max(usual or FIRST_SHARE * self.problem.largest_cost, self.problem.smallest_cost, 1e-6)

    def _tighten(self, rows: Sequence[ScoreRow], radius: float) -> bool:
        """Solve within a radius; return whether the cheapest row is in it."""
        solved = False
        for _ in range(MOST_REJECTED):
            program = RadiusProgram(
                self.problem, [*rows, *self._cuts], radius, self._banned, self._corners
            )  # fmt: skip
            result = program.solve(self._left(), self.work)
            self._spent = 0.0 if result is None else result.work
            if result is None or result.status == "infeasible":
                self._raise(radius)
                return False
            self._raise(min(program.lower_bound(result), radius))
            if not result.has_solution:
                return False
            x_cf, solved = program.answer(result), result.status == "optimal"
            answer = self._ask(x_cf)
            if answer == "accepted":
                return solved
            if self._left() <= 0 or not self._rule_out(answer, x_cf, program.cell(result)):
                break
        self._second_pass(radius)
        return solved

    def _rule_out(self, answer: Answer, x_cf: Tensor, cell: Cell | None) -> bool:
        """Rule out a row that was not accepted; return False if nothing rules it out."""
        if answer == "unsteady":
            return len(self._corners) < MOST_CORNERS
        more = self.tangents(x_cf)
        self._cuts += more
        if not more and answer == "another outcome" and cell is not None:
            self._banned.append(cell)
            return True
        return bool(more)

    def _second_pass(self, radius: float) -> None:
        """Look for an answer that rounding in the model cannot undo."""
        for raised in RAISED:
            for factor in (1.0, GROWTH, GROWTH**2):
                if self._left() <= 0:
                    return
                rows = [*self.rows(raised), *self._cuts]
                program = RadiusProgram(self.problem, rows, radius * factor, self._banned)
                result = program.solve(self._left(), self.work)
                if result is None or not result.has_solution:
                    continue
                if self._ask(program.answer(result)) == "accepted":
                    return
                break

    def _ask(self, x_cf: Tensor) -> Answer:
        """Ask model and rules about a row, and keep it if they accept it."""
        answer = self.confirm(x_cf)
        if answer == "accepted" and self.near is not None:
            moved = self.near.rejected(x_cf)
            if moved is not None:
                self._corners.append(corner_of(self.problem, x_cf, moved, self.near.rows))
                return "unsteady"
        if answer == "accepted" and (cost := self.problem.cost(x_cf)) < self.proof.cost:
            self.proof.answer, self.proof.cost = x_cf, cost
        return answer

    def _raise(self, bound: float) -> None:
        if bound > self.proof.bound:
            self.proof.bound = bound
            self.proof.trace.append((self._used(), bound))

    def _used(self) -> float:
        return time.thread_time() - self._thread_start

    def _left(self) -> float:
        return self.seconds - (time.monotonic() - self._start)
