"""Fewer changes for a little more cost: changed features are reset, and the rest is solved again.

Resetting without solving again does nothing: a plausible answer has few features to spare. For numbers a
quadratic model of the answer tells which resets the other numbers can make up for, at which cost, and where
they go (:mod:`plausiflow.core.local_model`). So a round resets as many numbers of an answer as the model
finds within the limit, and moves the others, from where the model expects them, the shortest way to what is
feasible. If there is such a point within the limit, it is taken, and the next round resets more; if not,
fewer. Changed categories are reset one at a time. A round makes several attempts for each answer at once, and
takes the one with the fewest changes. *Adverse* changes, which alone take a row farther from its target, are
reset before all others. At the end, the numbers that still change become the cheapest ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from plausiflow.core import LocalModel
from plausiflow.search.candidates import Candidates, cheapest
from plausiflow.search.numbers import model_at, solve_near
from plausiflow.search.reweighted import RESTORING, SolveSettings
from plausiflow.search.task import SearchTask
from plausiflow.solvers import GRID

RESTORE = SolveSettings(iterations=10, tolerance=3e-3, curvature=RESTORING, max_without_answer=5, patience=3)
"""A reset takes the shortest way back to what is feasible. The first feasible point within the limit is
taken, and later rounds start from there."""
POLISHING = 4
"""Iterations in which the numbers of a sparse answer become the cheapest ones."""
TRUST = 0.5
"""The share of what the limit leaves that a model may spend at once: far away it is too optimistic."""
AT_ONCE = 3
"""Single resets of an answer that are tried at once."""
LESS = 1e-9
"""By how much a target must be missed more for a change to be adverse."""
ADVERSE = 10.0
"""How much more the reset of an adverse change may cost than that of another which comes after it."""
MAX_FAILURES = 8
"""Numbers of an answer whose reset may fail before the others are left as they are."""


def sparsify(
    task: SearchTask, candidates: Candidates, limits: Tensor, *, categories: bool = True
) -> Candidates:
    """Return answers with fewer changes for the ones given, each at most as expensive as its limit ``(p,)``.

    If a rule limits the number of changes, features are reset at
    any cost until it is satisfied. With ``categories=False`` changed categories stay, because their resets
    were tried before (:mod:`plausiflow.search.levels`).
    """
    if len(candidates) == 0:
        return candidates
    state = _State.begin(task, candidates, limits)
    state.categories = categories
    while len((attempts := state.attempts(task)).of):
        state.take(task, attempts, *attempts.solved(task))
    return _settled(task, candidates, state)


def _settled(task: SearchTask, before: Candidates, state: _State) -> Candidates:
    """Return the sparse answers, the new ones at the cheapest numbers of the features that they change."""
    sparse = state.candidates
    new = (sparse.x != before.x).any(dim=1).nonzero()[:, 0]
    if len(new) == 0:
        return sparse
    solved = task.solve(sparse[new], frozen=~state.changed[new], iterations=POLISHING)
    better = solved.cost < sparse.cost[new]
    x, cost = sparse.x.clone(), sparse.cost.clone()
    x[new[better]], cost[new[better]] = solved.x[better], solved.cost[better]
    return replace(sparse, x=x, cost=cost)


def preferred(task: SearchTask, answers: Candidates, max_extra_cost: float, count: int) -> Candidates:
    """Return up to ``count`` answers of each row, cheapest first.

    The first is the one with the fewest adverse changes, then with the fewest changes, among those that cost
    at most ``1 + max_extra_cost`` times the cheapest one; of equal ones the cheapest. More expensive answers
    follow, and cheaper ones with more changes are left out.
    """
    rows, cost = answers.rows, answers.cost
    least = cost.new_full((len(task),), torch.inf).scatter_reduce(0, rows, cost, "amin")
    within = cost <= (1 + max_extra_cost) * least[rows]
    rank = torch.full_like(rows, (len(task.layout.blocks) + 1) ** 2)
    rank[within] = burden(task, answers[within])
    first = _lowest(rows, rank, cost)
    chosen = cost.new_full((len(task),), torch.inf).index_copy(0, rows[first], cost[first])
    others = torch.ones_like(within).index_fill(0, first, False) & (cost >= chosen[rows])
    return Candidates.concat(answers[first], answers[others.nonzero()[:, 0]]).cheapest(count)


def more_sensible(
    task: SearchTask, final: Candidates, others: Candidates, max_extra_cost: float
) -> Candidates:
    """Return preferred answers, the first of a row replaced by one of the others with fewer adverse changes.

    That one may cost ``1 + max_extra_cost`` times as much as the first. More expensive answers follow.
    """
    first = final.cheapest(1)
    limits = task.x.new_zeros(len(task)).index_copy(0, first.rows, (1 + max_extra_cost) * first.cost)
    most = torch.zeros(len(task), dtype=torch.long, device=task.x.device)
    most[first.rows] = count_adverse(task, first)
    others = others[others.cost <= limits[others.rows]]
    others = others[count_adverse(task, others) < most[others.rows]]
    best = others[_lowest(others.rows, burden(task, others), others.cost)]
    least = task.x.new_zeros(len(task)).index_copy(0, best.rows, best.cost)
    return Candidates.concat(best, final[final.cost >= least[final.rows]])


def _lowest(rows: Tensor, rank: Tensor, cost: Tensor) -> Tensor:
    """Return the position of the candidate of each row with the lowest rank, of equal ones the cheapest."""
    order = torch.argsort(cost, stable=True)
    order = order[torch.argsort(rank[order], stable=True)]
    return order[cheapest(rows[order], torch.zeros_like(cost), 1)]


def count_adverse(task: SearchTask, candidates: Candidates) -> Tensor:
    """Return the number of adverse changes of each candidate, ``(p,)``."""
    changed = task.layout.changed(candidates.x, task.x[candidates.rows])
    return adverse_changes(task, candidates, changed).sum(dim=1)


def burden(task: SearchTask, candidates: Candidates) -> Tensor:
    """Return what makes a candidate hard to follow, ``(p,)``: adverse changes first, then all changes."""
    changed = task.layout.changed(candidates.x, task.x[candidates.rows])
    adverse = adverse_changes(task, candidates, changed)
    return (len(task.layout.blocks) + 1) * adverse.sum(dim=1) + changed.sum(dim=1)


def adverse_changes(task: SearchTask, candidates: Candidates, changed: Tensor) -> Tensor:
    """Return which changed features ``(p, blocks)`` alone take their row farther from the target."""
    adverse = torch.zeros_like(changed)
    which, feature = changed.nonzero(as_tuple=True)
    if len(which) == 0:
        return adverse
    rows = candidates.rows[which]
    alone = torch.where(task.block_columns[feature], candidates.x[which], task.x[rows])
    blocks = zip(alone.split(task.at_once), rows.split(task.at_once), strict=True)
    value = torch.cat([task.model_value(*block) for block in blocks])
    adverse[which, feature] = value < task.own_value[rows] - LESS
    return adverse


@dataclass
class _State:
    """What is known about each candidate.

    Attributes:
        candidates: The sparsest answers so far.
        limits: Their highest costs, shape ``(p,)``.
        changed: Features that differ from the row, shape ``(p, blocks)``.
        model: A quadratic model of each answer; None without numbers.
        needed: Features whose reset has failed, shape ``(p, blocks)``.
        most: How many numbers the next attempt may reset, shape ``(p,)``.
        failures: Numbers whose reset alone has failed, shape ``(p,)``.
        categories: Whether changed categories are reset.
    """

    candidates: Candidates
    limits: Tensor
    changed: Tensor
    model: LocalModel | None
    needed: Tensor
    most: Tensor
    failures: Tensor
    categories: bool = True

    @classmethod
    def begin(cls, task: SearchTask, candidates: Candidates, limits: Tensor) -> _State:
        changed = task.layout.changed(candidates.x, task.x[candidates.rows])
        count = changed.sum(dim=1)
        if task.allowance.max_changes is not None:
            limits = torch.where(count > task.allowance.max_changes, torch.inf, limits)
        return cls(
            candidates=candidates,
            limits=limits,
            changed=changed,
            model=model_at(task, candidates, ~changed) if task.numbers else None,
            needed=torch.zeros_like(changed),
            most=torch.full_like(count, len(task.layout.blocks)),
            failures=torch.zeros_like(count),
        )

    def attempts(self, task: SearchTask) -> _Attempts:
        """Return the next attempts of each candidate: single categories, and numbers."""
        codes, before = task.codes_of(self.candidates.x), task.codes[self.candidates.rows]
        moved = torch.zeros_like(self.changed)
        moved[:, [j for j, block in enumerate(task.layout.blocks) if len(block.levels)]] = codes != before
        left = self.changed & ~self.needed & (self.changed.sum(dim=1) > 1)[:, None]
        adverse = adverse_changes(task, self.candidates, left)
        parts = [
            self._categories(task, left & moved & self.categories, adverse),
            self._numbers(task, left & ~moved, adverse),
        ]
        of, reset, x = (torch.cat(part) for part in zip(*parts, strict=True))
        kept = self.changed[of] & ~reset
        x = with_factual(task, Candidates(rows=self.candidates.rows[of], x=x, cost=x[:, 0]), reset)
        start = task.repair(task.candidates(self.candidates.rows[of], x), ~kept)
        model = None if self.model is None else self.model[of]
        numbers = torch.arange(len(of), device=of.device) >= len(parts[0][0])
        return _Attempts(of, reset, kept, start, self.limits[of], model, numbers)

    def _categories(
        self, task: SearchTask, category: Tensor, adverse: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return attempts that reset one changed category each, the most expensive few of a candidate."""
        rows, x = self.candidates.rows, self.candidates.x
        before, after = (task.x[rows], task.codes[rows]), (x, task.codes_of(x))
        price = task.cost_model.by_feature(before, after)
        price = torch.where(adverse, ADVERSE * price, price).masked_fill(~category, -1.0)
        rank = price.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
        of, feature = (category & (rank < AT_ONCE)).nonzero(as_tuple=True)
        return of, torch.nn.functional.one_hot(feature, category.shape[1]).bool(), x[of]

    def _numbers(self, task: SearchTask, left: Tensor, adverse: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return attempts that reset some of the numbers ``left`` ``(p, blocks)``.

        As many as the model allows, and half as many; or one, and the next best ones alone.
        """
        places = torch.tensor(task.number_blocks, dtype=torch.long, device=left.device)
        of = (left[:, places].any(dim=1) & (self.failures < MAX_FAILURES)).nonzero()[:, 0]
        if self.model is None or len(of) == 0:
            return of[:0], left[:0], self.candidates.x[:0]
        model, removable = self.model[of], left[of][:, places]
        room = _number_limit(task, self.candidates[of], self.limits[of], model)
        ease = torch.where(adverse[of][:, places], ADVERSE, torch.ones_like(room)[:, None])
        most = torch.minimum(self.most[of], self.changed[of].sum(dim=1) - 1)
        which, chosen, point = model.resets(
            removable, model.cost.lerp(room, TRUST), most, AT_ONCE, highest=room, ease=ease
        )
        of = of[which]
        reset = torch.zeros_like(left[of])
        reset[:, places] = chosen
        columns = torch.tensor(task.numbers, device=of.device)
        # Starting points are on the grid of the solver's iterates.
        return of, reset, self.candidates.x[of].index_copy(1, columns, (point / GRID).round() * GRID)

    def take(
        self, task: SearchTask, attempts: _Attempts, tried: Candidates, model: LocalModel | None
    ) -> None:
        """Take the best attempt of each candidate within its limit, and learn from the others."""
        of, count = attempts.of, attempts.reset.sum(dim=1)
        # A rule may have moved a feature again that was reset.
        changed = task.layout.changed(tried.x, task.x[tried.rows])
        number = changed.sum(dim=1)
        good = (tried.cost <= attempts.limits) & (number < self.changed[of].sum(dim=1))
        # The fewest changes, and of equally many the cheapest.
        order = torch.argsort(torch.where(good, tried.cost, torch.inf), stable=True)
        order = order[torch.argsort(number[order], stable=True)]
        order = order[good[order]]
        best = order[cheapest(of[order], torch.zeros_like(tried.cost[order]), 1)]
        fine = of[best]
        x, cost = self.candidates.x.clone(), self.candidates.cost.clone()
        x[fine], cost[fine] = tried.x[best], tried.cost[best]
        self.candidates = replace(self.candidates, x=x, cost=cost)
        self.changed = self.changed.index_copy(0, fine, changed[best])
        if self.model is not None and model is not None:
            self.model = self.model.updated(fine, model[best])
        bad = ~good & attempts.numbers
        self.most.scatter_reduce_(0, of[bad], (count[bad] // 2).clamp_min(1), "amin")
        grown = attempts.numbers[best]
        self.most[fine[grown]] = 2 * count[best[grown]]
        alone = ~good & (count == 1)
        which, feature = attempts.reset[alone].nonzero(as_tuple=True)
        self.needed[of[alone][which], feature] = True
        self.failures.index_add_(
            0, of[alone & attempts.numbers], torch.ones_like(of[alone & attempts.numbers])
        )


@dataclass(frozen=True)
class _Attempts:
    """Attempts: the candidate of each, what it resets, what may still change, and its starting point.

    ``numbers`` are the attempts that reset numbers.
    """

    of: Tensor
    reset: Tensor
    left: Tensor
    candidates: Candidates
    limits: Tensor
    model: LocalModel | None
    numbers: Tensor

    def solved(self, task: SearchTask) -> tuple[Candidates, LocalModel | None]:
        """Return the attempts with solved numbers, and their models."""
        if self.model is None:
            return task.solve(self.candidates, frozen=~self.left), None
        inverse = self.model.inverse_without(~self.left[:, task.number_blocks])
        room = _number_limit(task, self.candidates, self.limits, self.model)
        return solve_near(task, self.candidates, ~self.left, inverse, room, RESTORE)


def _number_limit(task: SearchTask, own: Candidates, limits: Tensor, model: LocalModel) -> Tensor:
    """Return the squared distance of numbers at which a candidate costs its limit, shape ``(p,)``."""
    if task.cost_model.distance != "l2":
        return model.cost * (limits / own.cost) ** 2
    return task.room_for_numbers(own, limits)


def with_factual(task: SearchTask, own: Candidates, reset: Tensor) -> Tensor:
    """Return encoded candidates with some features, ``(p, blocks)`` bool, at the values of their rows."""
    back = (reset.to(own.x) @ task.block_columns.to(own.x)) > 0
    return torch.where(back, task.x[own.rows], own.x)
