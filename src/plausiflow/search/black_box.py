"""The search for models without gradients: a surrogate guides it, the user's own model decides.

1. The relaxed surrogate (:mod:`plausiflow.models`) is solved at a high temperature, where its gradients reach
   far, then at a low one from there, with several extra margins: the farther inside, the more likely the
   model agrees.
2. The results are put on their grids, and the model is asked; rows without an answer try larger margins from
   verified bank rows.
3. Verified bank rows near by are answers too, and are moved towards the row as far as they stay so.
   Without a density, the proven cheapest row of a tree model (:mod:`plausiflow.search.exact_start`) is one.
4. Changes of the best answer are exchanged for cheaper ones (:mod:`plausiflow.search.exchange`) if the trees
   of the model were read, before and after it is made sparse. Then a short evolution
   (:mod:`plausiflow.search.evolution`) asks the model about points a little closer.
5. At the end each answer is tried at new corners around it; one that fails there goes back some way.

If the model's own trees were read, the search asks them in its place. Every answer is verified by the model
itself afterwards, on the decoded row.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from plausiflow.core import ValidityConstraint
from plausiflow.search.bank import Bank
from plausiflow.search.beam import Moves
from plausiflow.search.candidates import Candidates
from plausiflow.search.directions import closed
from plausiflow.search.evolution import Evolution
from plausiflow.search.exact_start import ExactStart
from plausiflow.search.exchange import Exchange
from plausiflow.search.mixed import MixedSearch
from plausiflow.search.rounding import on_grid, round_randomly
from plausiflow.search.sparsify import adverse_changes, burden, preferred, sparsify, with_factual
from plausiflow.search.strategy import search_in_batches
from plausiflow.search.task import SearchTask
from plausiflow.search.true_model import Oracle
from plausiflow.solvers import FROM_NEIGHBOUR

HOT, COLD = 0.03, 0.01
"""Temperatures of a surrogate, in ranges of a number."""
HOT_MARGIN = 0.2
MARGINS, LARGER_MARGINS = (0.0, 0.3, 0.8), (1.2, 2.0, 3.0)
"""Extra margins of the surrogate, in logits."""
BELOW = 0.4
"""How much smaller a margin is tried if the model agrees at once."""
NEAREST, MOVED, STEPS = 10, 3, 12
CORNERS, REACH = 8, 2e-3
"""Corners that an answer must be valid at during the search, and how far out they are, in ranges."""
FINAL_CORNERS, PROMISE = 32, 1e-3
"""New corners that every answer is tried at in the end, and how far out these are."""
SURE_CORNERS, FEW_CORNERS = 96, 16
"""Corners that decide whether an answer must go back, and those that decide how far."""
TRIED_AGAIN = 2
SEARCH_SHARE = 0.5
"""Share of the budget for the search; the rest is for corners of its results."""
BACK = (0.15, 0.4, 0.7, 1.0)
ITERATIONS = 40
SPARSE_MARGIN = 0.3
SENSIBLE_MARGINS = (0.0, 0.3, 0.8)
"""Extra margins of answers that do without adverse changes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class BlackBoxSearch:
    """The search for models without gradients.

    Attributes:
        hot: Validity of the surrogate at a high temperature.
        cold: Validity of the surrogate at a low temperature.
        base: How candidates are chosen, and how sparse answers should be.
        evolution: The last rounds of asking the model; None skips them.
        exchange: Exchanges changes for cheaper ones, with the trees of the model; None skips it.
        any_answer: Whether the first answers are enough, however far.
        exact: Finds the proven cheapest rows of tree models; None if they are no starts.
    """

    hot: ValidityConstraint
    cold: ValidityConstraint
    base: MixedSearch = field(default_factory=MixedSearch)
    evolution: Evolution | None = field(default_factory=Evolution)
    exchange: Exchange | None = field(default_factory=Exchange)
    any_answer: bool = False
    exact: ExactStart | None = None

    @property
    def finalists(self) -> int:
        """Answers of each row that are kept in case one does not hold when decoded."""
        return self.base.finalists

    @property
    def relaxes(self) -> bool:
        """Whether a run also searches without the margin: no, it is run once more."""
        return False

    def lighter(self) -> Self:
        """Return a strategy that only finds out whether there is an answer."""
        return replace(self, base=self.base.lighter(), evolution=None, exchange=None, any_answer=True)

    def prover(self, *, far: bool = False) -> Self:
        """Return the same: a surrogate needs all of it to come near."""
        return self.lighter()

    def quicker(self) -> Self:
        """Return a strategy with fewer calls of the model, for rows that few answers are expected for."""
        return replace(self, evolution=None, exchange=None)

    def wider(self, k: int) -> Self:
        """Return a strategy that finds many answers, to choose ``k`` from."""
        return replace(self, base=self.base.wider(k))

    @property
    def max_extra_cost(self) -> float:
        """How much more an answer that is easier to follow may cost, as a share of the cheapest."""
        return self.base.max_extra_cost

    def with_extra_cost(self, max_extra_cost: float) -> Self:
        """Return a strategy that pays another share of extra cost for fewer changes."""
        return replace(self, base=self.base.with_extra_cost(max_extra_cost))

    @torch.no_grad()
    def run(self, task: SearchTask, bank: Bank, *, keep: int = 1) -> Candidates:
        """Return up to ``keep`` answers for each row, cheapest first, each checked with the model."""
        return search_in_batches(task, lambda rows: self._search(task, bank, rows, keep), black_box=True)

    def continued(self, task: SearchTask, bank: Bank, starts: Candidates, *, keep: int = 1) -> Candidates:
        """Return what :meth:`run` returns: the model is asked about every start anyway."""
        return self.run(task, bank, keep=keep)

    def _search(self, task: SearchTask, bank: Bank, rows: Tensor, keep: int) -> Candidates:
        most, full = max(self.finalists, keep), _oracle(task)
        strict = task = replace(task, oracle=full.with_budget_share(SEARCH_SHARE))
        task = replace(task, allowance=replace(task.allowance, max_changes=None))
        real = bank.verified(task, rows, max(NEAREST, keep), among=max(NEAREST, keep))
        if self.any_answer:
            return self._find_any(task, bank, rows, real).cheapest(keep)
        hot = self._solve_hot(task, real, rows, bank.typical)
        found, margins = self._try_margins(task, hot, hot.x.new_tensor(MARGINS).expand(len(hot), -1))
        if self.evolution is not None:
            found = Candidates.concat(found, self._refine_margin(task, found, margins))
        missing = rows[~torch.isin(rows, found.rows)]
        if len(missing):
            starts = Candidates.concat(hot, real.cheapest(1))
            starts = starts[torch.isin(starts.rows, missing)]
            higher, _ = self._try_margins(
                task, starts, hot.x.new_tensor(LARGER_MARGINS).expand(len(starts), -1)
            )
            found = Candidates.concat(found, higher)
        found = Candidates.concat(found, _move_closer(task, real, found), real)
        missing = rows[~torch.isin(rows, found.rows)]
        if len(missing):
            found = Candidates.concat(found, bank.scan(task, missing, keep))
        if self.exact is not None:
            found = Candidates.concat(found, strict.check(self.exact.find(strict, rows, found)).feasible)
        if self.exchange is not None:
            better = self.exchange.run(task, bank, found.cheapest(1), sparse=False)
            found = Candidates.concat(better, found)
        if self.base.max_extra_cost > 0 or strict.allowance.max_changes is not None:
            found = self._sparsify(strict, found.unique())
        task = strict
        before = found[task.allowance.contains(found.x, found.rows)].unique().cheapest(most)
        best, sparse = before.cheapest(1), self.base.max_extra_cost > 0
        if self.exchange is not None:
            best = self.exchange.run(task, bank, best, sparse=sparse)
        if self.evolution is not None:
            best = self.evolution.run(task, best, sparse=sparse)
        best = _stabilise(
            replace(task, oracle=full), best, Candidates.concat(before.cheapest(1), real.cheapest(1))
        )
        others = before[before.cost >= _smallest(task, best.rows, best.cost)[before.rows]]
        return Candidates.concat(best, others).unique().cheapest(keep)

    def _find_any(self, task: SearchTask, bank: Bank, rows: Tensor, real: Candidates) -> Candidates:
        """Return any answers of rows, however far: bank rows, or else what the surrogate leads to."""
        missing = rows[~torch.isin(rows, real.rows)]
        if len(missing) == 0:
            return real
        hot = self._solve_hot(task, real, missing, bank.typical)
        margins = hot.x.new_tensor((MARGINS[-1], LARGER_MARGINS[1])).expand(len(hot), -1)
        led = task.check(self._solve_cold(task, hot, margins)[0]).feasible
        missing = missing[~torch.isin(missing, led.rows)]
        return Candidates.concat(real, led, bank.scan(task, missing, 1))

    def _solve_hot(
        self, task: SearchTask, real: Candidates, rows: Tensor, typical: dict[int, float]
    ) -> Candidates:
        """Return starts for the cold search: the surrogate solved hot, or the row itself if that fails."""
        everyone = torch.arange(len(task))
        soft = task.at(everyone, task.targets.with_extra_margin(task.x.new_full((len(task),), HOT_MARGIN)))
        soft = replace(soft, validity=self.hot)
        near = real.cheapest(self.base.bank_rows)
        levelled = task.with_levels_of(near)
        own = task.candidates(rows, task.x[rows])
        turned = own[rows[:0]]
        if self.base.flips:
            turned = self.base.beam.run(soft, rows, Moves.of(soft, rows, near, typical))
        first = Candidates.concat(own, task.candidates(near.rows, levelled), turned).unique()
        best = soft.solve(first, iterations=ITERATIONS).feasible.cheapest(self.finalists)
        return Candidates.concat(best, own[~torch.isin(own.rows, best.rows)])

    def _try_margins(
        self, task: SearchTask, starts: Candidates, margins: Tensor
    ) -> tuple[Candidates, Tensor]:
        """Solve the surrogate cold at several margins ``(starts, m)``, and put the results on the grid.

        Returns:
            The results that the model accepts, and the margin of each.
        """
        placed, margin = self._solve_cold(task, starts, margins)
        held = _valid_at_corners(task, placed)
        return held.candidates, margin[held.places]

    def _solve_cold(self, task: SearchTask, starts: Candidates, margins: Tensor) -> tuple[Candidates, Tensor]:
        """Do the same before the model is asked."""
        count = margins.shape[1]
        own, margin = starts.rows.repeat_interleave(count), margins.reshape(-1)
        wide = self._cold(task, own, margin)
        begin = wide.candidates(torch.arange(len(own)), starts.x.repeat_interleave(count, dim=0))
        solved = wide.solve(begin, iterations=ITERATIONS, curvature=FROM_NEIGHBOUR).feasible
        placed = round_randomly(wide, solved)
        return task.candidates(own[placed.rows], placed.x), margin[placed.rows]

    def _refine_margin(self, task: SearchTask, found: Candidates, margins: Tensor) -> Candidates:
        """Return answers between the smallest margin that the model accepted and the next smaller one."""
        smallest = _smallest(task, found.rows, margins)
        best = found[margins == smallest[found.rows]].cheapest(1)
        own = smallest[best.rows]
        steps = own.new_tensor([MARGINS[0] - BELOW, *MARGINS])
        below = steps[(torch.searchsorted(steps, own) - 1).clamp_min(0)]
        between = below[:, None] + (own - below)[:, None] * own.new_tensor([1 / 3, 2 / 3])
        return self._try_margins(task, best, between)[0]

    def _cold(self, task: SearchTask, rows: Tensor, margins: Tensor) -> SearchTask:
        """Return the task of the cold surrogate for some rows, each with its own margin ``(k,)``."""
        return replace(task.at(rows, task.targets[rows].with_extra_margin(margins)), validity=self.cold)

    def _sparsify(self, task: SearchTask, found: Candidates) -> Candidates:
        """Replace answers by ones with fewer changes that the model accepts and that cost little more."""
        dense = found.cheapest(self.finalists)
        limit = (1 + self.base.max_extra_cost) * _smallest(task, dense.rows, dense.cost)
        wide = self._cold(task, dense.rows, task.x.new_full((len(dense),), SPARSE_MARGIN))
        own = Candidates(rows=torch.arange(len(dense)), x=dense.x, cost=dense.cost)
        placed = round_randomly(wide, sparsify(wide, own, limit[dense.rows]))
        sparse = _valid_at_corners(
            task, task.candidates(dense.rows[placed.rows], placed.x).unique()
        ).candidates
        if task.allowance.max_changes is None:
            sparse = sparse[sparse.cost <= limit[sparse.rows]]
            sparse = Candidates.concat(sparse, self._without_adverse(task, Candidates.concat(sparse, found)))
        # Drop the answers of a row that are harder to follow than the easiest one.
        both = Candidates.concat(sparse, found)
        harder = burden(task, both).to(task.x)
        least = _smallest(task, sparse.rows, harder[: len(sparse)])
        return both[harder <= least[both.rows]]

    def _without_adverse(self, task: SearchTask, found: Candidates) -> Candidates:
        """Return answers without the adverse changes of the preferred ones, for a limited extra cost."""
        best = preferred(task, found, self.base.max_extra_cost, 1)
        limit = (1 + self.base.max_extra_cost) * _smallest(task, best.rows, best.cost)
        adverse = adverse_changes(task, best, task.layout.changed(best.x, task.x[best.rows]))
        which = adverse.any(dim=1).nonzero()[:, 0].repeat_interleave(len(SENSIBLE_MARGINS))
        own = best[which]
        if len(own) == 0:
            return own
        margins = own.x.new_tensor(SENSIBLE_MARGINS).repeat(len(own) // len(SENSIBLE_MARGINS))
        wide = closed(self._cold(task, own.rows, margins), own.x, adverse[which])
        start = replace(own, rows=torch.arange(len(own)))
        start = wide.repair(replace(start, x=with_factual(wide, start, adverse[which])))
        solved = wide.solve(start, limits=limit[own.rows], iterations=ITERATIONS, curvature=FROM_NEIGHBOUR)
        placed = round_randomly(wide, solved.feasible)
        held = _valid_at_corners(task, task.candidates(own.rows[placed.rows], placed.x).unique()).candidates
        return held[held.cost <= limit[held.rows]]


@dataclass(frozen=True)
class _Stable:
    """Candidates that are valid at corners, and their positions among those that were tried."""

    candidates: Candidates
    places: Tensor


def _valid_at_corners(task: SearchTask, candidates: Candidates) -> _Stable:
    """Return the candidates that are feasible, and valid at corners; each is tried once."""
    places = candidates.first_occurrences()
    checked = task.without_oracle.check(candidates[places])
    fine = torch.isfinite(checked.cost).nonzero()[:, 0]
    asked = checked[fine]
    holds = _oracle(task).valid_at_corners(asked.x, asked.rows, corners=CORNERS, reach=REACH, salt=1)
    return _Stable(asked[holds], places[fine[holds]])


def _move_closer(task: SearchTask, real: Candidates, found: Candidates) -> Candidates:
    """Move verified bank rows towards their row in steps, as far as these are feasible."""
    few = real.cheapest(MOVED)
    start = task.with_levels_of(few)
    best = _smallest(task, found.rows, found.cost)[few.rows]
    most = (best / few.cost.clamp_min(1e-12)).clamp_max(1.0)
    share = most[:, None] * torch.arange(1, STEPS).to(most) / STEPS
    points = (start[:, None] + share[:, :, None] * (few.x - start)[:, None]).reshape(-1, start.shape[1])
    of = torch.arange(len(few)).repeat_interleave(STEPS - 1)
    between = task.candidates(few.rows[of], points)
    tried = task.check(replace(between, x=on_grid(task, between)))
    # As far as every step is feasible: a point beyond a gap is likely to be isolated.
    fine = torch.isfinite(tried.cost).view(len(few), STEPS - 1)
    unbroken = fine.flip(1).cumprod(dim=1).flip(1).bool().flatten()
    cheapest = replace(tried, rows=of)[unbroken].cheapest(1)
    return _valid_at_corners(task, task.candidates(few.rows[cheapest.rows], cheapest.x)).candidates


def _stabilise(task: SearchTask, best: Candidates, anchors: Candidates) -> Candidates:
    """Move the best answer of each row back towards one of its anchors if the model fails at a new corner.

    If no point in between is valid at more corners, the answer stays.
    """
    oracle = _oracle(task)
    steady = oracle.stability(best.x, best.rows, corners=SURE_CORNERS, reach=PROMISE, salt=2)
    weak = (steady < 1).nonzero()[:, 0]
    if len(weak) == 0:
        return best
    place = torch.full((len(task),), -1)
    place[best.rows[weak]] = weak
    anchors = anchors[place[anchors.rows] >= 0]
    own, goal = best.x[place[anchors.rows]], anchors.x
    share = own.new_tensor(BACK)[None, :, None]
    way = (own[:, None] + share * (goal - own)[:, None]).reshape(-1, own.shape[1])
    way = task.with_codes(way, task.codes_of(goal).repeat_interleave(len(BACK), dim=0))
    points = task.candidates(anchors.rows.repeat_interleave(len(BACK)), way)
    tried = task.check(replace(points, x=on_grid(task, points))).feasible.unique()
    held = oracle.stability(tried.x, tried.rows, corners=FEW_CORNERS, reach=PROMISE, salt=3) == 1
    better = tried[held].cheapest(TRIED_AGAIN)
    sure = oracle.stability(better.x, better.rows, corners=SURE_CORNERS - FEW_CORNERS, reach=PROMISE, salt=5)
    weakness = _smallest(task, best.rows, 1 - steady)
    least = _smallest(task, better.rows, 1 - sure)
    better = better[(1 - sure == least[better.rows]) & (1 - sure < weakness[better.rows])].cheapest(1)
    return Candidates.concat(best[~torch.isin(best.rows, better.rows)], better)


def _oracle(task: SearchTask) -> Oracle:
    assert task.oracle is not None
    return task.oracle


def _smallest(task: SearchTask, rows: Tensor, values: Tensor) -> Tensor:
    """Return the smallest value of each row of the task, infinite if it has none, shape ``(n,)``."""
    return task.x.new_full((len(task),), torch.inf).scatter_reduce(0, rows, values, "amin")
