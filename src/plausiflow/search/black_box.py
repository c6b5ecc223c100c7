"""The search for models without gradients: a likeness leads, the model itself decides.

1. The relaxed likeness (:mod:`plausiflow.models.surrogate`) is solved hot, where its slopes reach far,
   then cold from there, with a ladder of margins: the farther inside, the likelier the model agrees.
2. What comes out is put on the grids, and the model is asked; rows without an answer try higher margins from
   verified real rows.
3. Verified real rows near by are answers, too, and are moved towards the row as far as they stay so.
4. The best answer gives back what it can spare, and a short evolution (:mod:`plausiflow.search.evolution`)
   asks the model about points a little nearer.
5. In the end each answer is tried at fresh corners around it; one that fails there goes back some way.

Whatever is returned, the model has been asked about it, on the decoded row.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from plausiflow.progress import progress_bar
from plausiflow.search.candidates import RealRows, beam
from plausiflow.search.evolution import Evolution
from plausiflow.search.mixed import MixedSearch
from plausiflow.search.rounding import on_grid, rounded
from plausiflow.search.sparsify import ROUNDING, sparsified
from plausiflow.search.task import Candidates, Task, Validity
from plausiflow.search.true_model import Oracle
from plausiflow.solvers import FROM_NEIGHBOUR

ROWS_AT_ONCE = 1024
HOT_MARGIN = 0.2
MARGINS, HIGHER = (0.0, 0.3, 0.8), (1.2, 2.0, 3.0)
"""How far inside its own decision the likeness must be, in logits."""
BELOW = 0.4
"""How much farther out than its decision is tried where the model agrees at once."""
NEAREST, MOVED, STEPS = 10, 3, 12
CORNERS, REACH = 8, 2e-3
"""Corners that an answer must hold at while it is searched, and how far out they are, in ranges."""
FINAL_CORNERS, PROMISE = 32, 1e-3
"""Fresh corners that every answer is tried at in the end, and how far out these are."""
SURE_CORNERS, FEW_CORNERS = 96, 16
"""Corners that decide whether an answer must go back, and those that decide how far."""
TRIED_AGAIN = 2
SEARCHED = 0.5
"""Share of the budget that is for the search; the rest is for corners of what it finds."""
BACK = (0.15, 0.4, 0.7, 1.0)
ITERATIONS = 40
SPARSE_MARGIN = 0.3


@dataclass(frozen=True, kw_only=True, eq=False)
class VerifiedSearch:
    """How thoroughly to search a model without gradients.

    Attributes:
        hot: Whether the likeness, very soft, decides as wanted.
        cold: The same, hardly soft.
        base: How candidates are chosen, and how sparse answers should be.
        evolution: The last rounds of asking the model; nothing leaves them out.
        any_answer: Whether the first answers will do, however far: for whether there are any.
    """

    hot: Validity
    cold: Validity
    base: MixedSearch = field(default_factory=MixedSearch)
    evolution: Evolution | None = field(default_factory=Evolution)
    any_answer: bool = False

    @property
    def finalists(self) -> int:
        """SearchResult of each row that are kept in case one does not hold when decoded."""
        return self.base.finalists

    def lighter(self) -> VerifiedSearch:
        """For whether there is an answer at all."""
        return replace(self, base=self.base.lighter(), evolution=None, any_answer=True)

    def quicker(self) -> VerifiedSearch:
        """For rows that few answers are expected of: fewer calls of the model."""
        return replace(self, evolution=None)

    def wider(self, count: int) -> VerifiedSearch:
        """For many answers, to choose ``count`` of."""
        return replace(self, base=self.base.wider(count))

    @torch.no_grad()
    def run(self, task: Task, bank: RealRows, *, keep: int = 1) -> Candidates:
        """Up to ``keep`` answers for each row of the task, cheapest first; the model is asked about each."""
        parts = []
        with progress_bar("Searching rows", len(task)) as advance:
            for rows in torch.arange(len(task)).split(ROWS_AT_ONCE):
                parts.append(self._some(task, bank, rows[task.allowance.possible[rows]], keep))
                advance(len(rows), "")
        return Candidates.joined(*parts) if parts else task.candidates(task.y_target[:0], task.x[:0])

    def _some(self, task: Task, bank: RealRows, rows: Tensor, keep: int) -> Candidates:
        most, full = max(self.finalists, keep), _oracle(task)
        strict = task = replace(task, oracle=full.sparing(SEARCHED))
        task = replace(task, allowance=replace(task.allowance, max_changes=None))
        real = bank.near(task, rows, max(NEAREST, keep), among=max(NEAREST, keep))
        if self.any_answer:
            return self._any(task, bank, rows, real).best(keep)
        hot = self._hot(task, real, rows, bank.typical)
        found, margins = self._ladder(task, hot, hot.x.new_tensor(MARGINS).expand(len(hot), -1))
        if self.evolution is not None:
            found = Candidates.joined(found, self._finer(task, found, margins))
        missing = rows[~torch.isin(rows, found.rows)]
        if len(missing):
            starts = Candidates.joined(hot, real.best(1))
            starts = starts[torch.isin(starts.rows, missing)]
            higher, _ = self._ladder(task, starts, hot.x.new_tensor(HIGHER).expand(len(starts), -1))
            found = Candidates.joined(found, higher)
        found = Candidates.joined(found, _nearer(task, real, found), real)
        missing = rows[~torch.isin(rows, found.rows)]
        if len(missing):
            found = Candidates.joined(found, bank.anywhere(task, missing, keep))
        if self.base.sparsity is not None or strict.allowance.max_changes is not None:
            found = self._sparser(strict, found.distinct())
        task = strict
        before = found[task.allowance.contains(found.x, found.rows)].distinct().best(most)
        best = before.best(1)
        if self.evolution is not None:
            best = self.evolution.run(task, best, sparse=self.base.sparsity is not None)
        best = _steadied(replace(task, oracle=full), best, Candidates.joined(before.best(1), real.best(1)))
        others = before[before.cost >= _spread(task, best.rows, best.cost)[before.rows]]
        return Candidates.joined(best, others).distinct().best(keep)

    def _any(self, task: Task, bank: RealRows, rows: Tensor, real: Candidates) -> Candidates:
        """SearchResult of rows that have some, be they far: real rows, or else what the likeness leads to."""
        missing = rows[~torch.isin(rows, real.rows)]
        if len(missing) == 0:
            return real
        hot = self._hot(task, real, missing, bank.typical)
        margins = hot.x.new_tensor((MARGINS[-1], HIGHER[1])).expand(len(hot), -1)
        led = task.checked(self._cold_solved(task, hot, margins)[0]).answers
        missing = missing[~torch.isin(missing, led.rows)]
        return Candidates.joined(real, led, bank.anywhere(task, missing, 1))

    def _hot(self, task: Task, real: Candidates, rows: Tensor, typical: dict[int, float]) -> Candidates:
        """Starts for the cold search: the likeness solved hot, or where that fails the row itself."""
        everyone = torch.arange(len(task))
        soft = task.at(everyone, task.wanted.held(task.x.new_full((len(task),), HOT_MARGIN)))
        soft = replace(soft, validity=self.hot)
        near = real.best(self.base.real_rows)
        levelled = task.layout.with_codes(task.x[near.rows], task.layout.codes(near.x))
        own = task.candidates(rows, task.x[rows])
        turned = beam(soft, rows, typical) if self.base.flips else own[rows[:0]]
        first = Candidates.joined(own, task.candidates(near.rows, levelled), turned).distinct()
        best = soft.solved(first, iterations=ITERATIONS).answers.best(self.finalists)
        return Candidates.joined(best, own[~torch.isin(own.rows, best.rows)])

    def _ladder(self, task: Task, starts: Candidates, margins: Tensor) -> tuple[Candidates, Tensor]:
        """The likeness solved cold at several margins ``(starts, m)``, on the grid.

        Returns:
            What the model itself agrees with, and the margin of each.
        """
        placed, margin = self._cold_solved(task, starts, margins)
        held = _held(task, placed)
        return held.candidates, margin[held.places]

    def _cold_solved(self, task: Task, starts: Candidates, margins: Tensor) -> tuple[Candidates, Tensor]:
        """The same before the model is asked."""
        count = margins.shape[1]
        own, margin = starts.rows.repeat_interleave(count), margins.reshape(-1)
        wide = self._cold(task, own, margin)
        begin = wide.candidates(torch.arange(len(own)), starts.x.repeat_interleave(count, dim=0))
        solved = wide.solved(begin, iterations=ITERATIONS, curvature=FROM_NEIGHBOUR).answers
        placed = rounded(wide, solved)
        return task.candidates(own[placed.rows], placed.x), margin[placed.rows]

    def _finer(self, task: Task, found: Candidates, margins: Tensor) -> Candidates:
        """SearchResult between the smallest margin that the model agreed with, and the next smaller one."""
        smallest = _spread(task, found.rows, margins)
        best = found[margins == smallest[found.rows]].best(1)
        own = smallest[best.rows]
        steps = own.new_tensor([MARGINS[0] - BELOW, *MARGINS])
        below = steps[(torch.searchsorted(steps, own) - 1).clamp_min(0)]
        between = below[:, None] + (own - below)[:, None] * own.new_tensor([1 / 3, 2 / 3])
        return self._ladder(task, best, between)[0]

    def _cold(self, task: Task, rows: Tensor, margins: Tensor) -> Task:
        """The task of the cold likeness for some rows, each with its own margin ``(k,)``."""
        return replace(task.at(rows, task.wanted[rows].held(margins)), validity=self.cold)

    def _sparser(self, task: Task, found: Candidates) -> Candidates:
        """What changes fewer features instead, where the model agrees, and costs little more."""
        dense = found.best(self.finalists)
        wide = self._cold(task, dense.rows, task.x.new_full((len(dense),), SPARSE_MARGIN))
        own = Candidates(rows=torch.arange(len(dense)), x=dense.x, cost=dense.cost)
        placed = rounded(wide, sparsified(wide, own, self.base.sparsity or 0.0))
        sparse = _held(task, task.candidates(dense.rows[placed.rows], placed.x).distinct()).candidates
        if task.allowance.max_changes is None:
            most = (1 + (self.base.sparsity or 0.0)) * (1 + ROUNDING) * dense.best(1).cost
            sparse = sparse[sparse.cost <= _spread(task, dense.best(1).rows, most)[sparse.rows]]
        # Among answers of a row, those that change more than the sparsest are out.
        both = Candidates.joined(sparse, found)
        changes = task.layout.changed(both.x, task.x[both.rows]).sum(dim=1).to(task.x)
        fewest = _spread(task, sparse.rows, changes[: len(sparse)])
        return both[changes <= fewest[both.rows]]


@dataclass(frozen=True)
class _Held:
    """Candidates that hold, and their places among those that were tried."""

    candidates: Candidates
    places: Tensor


def _held(task: Task, candidates: Candidates) -> _Held:
    """The candidates that are answers, at corners around them, too; each is tried once."""
    places = candidates.first_places()
    checked = task.unasked.checked(candidates[places])
    fine = torch.isfinite(checked.cost).nonzero()[:, 0]
    asked = checked[fine]
    holds = _oracle(task).holds(asked.x, asked.rows, corners=CORNERS, reach=REACH, salt=1)
    return _Held(asked[holds], places[fine[holds]])


def _nearer(task: Task, real: Candidates, found: Candidates) -> Candidates:
    """Verified real rows ``real``, moved towards their row in steps, as far as these are answers."""
    few = real.best(MOVED)
    start = task.layout.with_codes(task.x[few.rows], task.layout.codes(few.x))
    best = _spread(task, found.rows, found.cost)[few.rows]
    most = (best / few.cost.clamp_min(1e-12)).clamp_max(1.0)
    share = most[:, None] * torch.arange(1, STEPS).to(most) / STEPS
    points = (start[:, None] + share[:, :, None] * (few.x - start)[:, None]).reshape(-1, start.shape[1])
    of = torch.arange(len(few)).repeat_interleave(STEPS - 1)
    between = task.candidates(few.rows[of], points)
    tried = task.checked(replace(between, x=on_grid(task, between)))
    # As far as every step is an answer: one beyond a gap is likely to stand alone.
    fine = torch.isfinite(tried.cost).view(len(few), STEPS - 1)
    unbroken = fine.flip(1).cumprod(dim=1).flip(1).bool().flatten()
    cheapest = replace(tried, rows=of)[unbroken].best(1)
    return _held(task, task.candidates(few.rows[cheapest.rows], cheapest.x)).candidates


def _steadied(task: Task, best: Candidates, anchors: Candidates) -> Candidates:
    """The best answer of each row, moved back towards one of its anchors where a fresh corner fails.

    Where nothing on the way holds at more corners, the answer stays as it is.
    """
    oracle = _oracle(task)
    steady = oracle.steady(best.x, best.rows, corners=SURE_CORNERS, reach=PROMISE, salt=2)
    weak = (steady < 1).nonzero()[:, 0]
    if len(weak) == 0:
        return best
    place = torch.full((len(task),), -1)
    place[best.rows[weak]] = weak
    anchors = anchors[place[anchors.rows] >= 0]
    own, goal = best.x[place[anchors.rows]], anchors.x
    share = own.new_tensor(BACK)[None, :, None]
    way = (own[:, None] + share * (goal - own)[:, None]).reshape(-1, own.shape[1])
    way = task.layout.with_codes(way, task.layout.codes(goal).repeat_interleave(len(BACK), dim=0))
    points = task.candidates(anchors.rows.repeat_interleave(len(BACK)), way)
    tried = task.checked(replace(points, x=on_grid(task, points))).answers.distinct()
    held = oracle.steady(tried.x, tried.rows, corners=FEW_CORNERS, reach=PROMISE, salt=3) == 1
    better = tried[held].best(TRIED_AGAIN)
    sure = oracle.steady(better.x, better.rows, corners=SURE_CORNERS - FEW_CORNERS, reach=PROMISE, salt=5)
    weakness = _spread(task, best.rows, 1 - steady)
    least = _spread(task, better.rows, 1 - sure)
    better = better[(1 - sure == least[better.rows]) & (1 - sure < weakness[better.rows])].best(1)
    return Candidates.joined(best[~torch.isin(best.rows, better.rows)], better)


def _oracle(task: Task) -> Oracle:
    assert task.oracle is not None
    return task.oracle


def _spread(task: Task, rows: Tensor, values: Tensor) -> Tensor:
    """The smallest value of each row of the task, infinite where it has none, shape ``(n,)``."""
    return task.x.new_full((len(task),), torch.inf).scatter_reduce(0, rows, values, "amin")
