"""The search over tables for models with gradients: categories are candidates, numbers are solved.

1. Candidates: the row itself, verified bank rows near by, a beam of changed categories.
2. The numbers of all (row, candidate) pairs are solved in one batch; changed categories that alone cost more
   than an answer in hand are not.
3. The best few answers of each row are made sparse (:mod:`plausiflow.search.sparsify`),
4. put on the grids of their columns and checked there (:mod:`plausiflow.search.rounding`),
5. and a row without an answer gets its cheapest verified bank row.

A row that has no answer inside the calibrated margin is searched again without it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from plausiflow.search.bank import MORE, Bank
from plausiflow.search.beam import Beam, Moves
from plausiflow.search.candidates import Candidates
from plausiflow.search.directions import without_adverse
from plausiflow.search.levels import distinct_levels, reset_levels
from plausiflow.search.rounding import put_on_grid
from plausiflow.search.sparsify import more_sensible, preferred, sparsify
from plausiflow.search.strategy import search_in_batches
from plausiflow.search.task import SearchTask

MAX_WITHOUT_ANSWER = 15
"""Iterations without an answer of a search whose row has other candidates."""
FEW_WITHOUT_ANSWER = 10
"""The same for searches of few numbers from a combination that nearly is an answer: they take a few."""
SOLVED = 40
"""Iterations of a search that has an answer."""
ROUNDING = 0.1
"""Extra cost of an answer with fewer changes that may be the cheapest one on the grid."""
LIMITED = 4
"""Answers of each row that are put on the grid if the number of changes is limited."""
NEAR_ROWS, COPIED = 12, 48
"""Bank rows that combinations of changes may take numbers from, and how many numbers they take together."""
QUANTILES = 8
"""Numbers of each feature, from all over the bank, that a limited number of changes may be made of."""
THOROUGH = Beam(depth=4, width=8, evaluated=96, kept=0, deepest=4, feasible=1, mended=8.0)
"""The beam of rows whose answer has too many changes."""
FOR_ANY_ANSWER = Beam(width=2, evaluated=16, kept=1)
"""The beam of a search for any answer: of many combinations, cheap ones would end the search of others."""


@dataclass(frozen=True, kw_only=True)
class MixedSearch:
    """The search for models with gradients.

    Attributes:
        bank_rows: Verified bank rows that a search may start from.
        flips: Whether to try changed features beyond those of bank rows.
        max_extra_cost: How much more an answer with fewer changes may cost, as a share of the cheapest.
        finalists: Answers of each row that are made sparse and put on the grid.
        sparse: Whether answers with fewer changes are looked for.
        beam: How changed features are combined.
        few_only: Whether a limit on changes holds from the start, because other answers are known.
        all_numbers: Whether a limited number of changes may take numbers from all over the bank, too.
        any_answer: Whether any answer is enough, whatever it costs.
        real_enough: Whether a row with a bank row for an answer is not searched.
        max_without_answer: Iterations without an answer of a search whose row has other candidates.
    """

    bank_rows: int = 4
    flips: bool = True
    max_extra_cost: float = 0.3
    finalists: int = 2
    sparse: bool = True
    beam: Beam = field(default_factory=Beam)
    few_only: bool = False
    all_numbers: bool = False
    any_answer: bool = False
    real_enough: bool = False
    max_without_answer: int = MAX_WITHOUT_ANSWER

    @property
    def relaxes(self) -> bool:
        """Whether a run also searches without the margin: yes, if the task says how."""
        return True

    def lighter(self) -> Self:
        """Return a strategy that finds answers which may change more features than needed."""
        return replace(self, bank_rows=4, max_extra_cost=0.0, finalists=1, sparse=False, few_only=True)

    def prover(self, *, far: bool = False) -> Self:
        """Return a strategy that only finds out whether there is an answer, whatever it costs.

        ``far`` says that an answer with many changes is as good as any.
        """
        light = replace(self.lighter(), any_answer=True, real_enough=far)
        return replace(light, max_without_answer=FEW_WITHOUT_ANSWER, beam=FOR_ANY_ANSWER)

    def quicker(self) -> Self:
        """Return a strategy that looks for few changes at once, and farther away, if they are limited."""
        return replace(self, few_only=True, all_numbers=True)

    def wider(self, k: int) -> Self:
        """Return a strategy that finds many answers, to choose ``k`` from."""
        return replace(self, bank_rows=2 * self.bank_rows, finalists=3 * k)

    def with_extra_cost(self, max_extra_cost: float) -> Self:
        """Return a strategy that pays another share of extra cost for fewer changes."""
        return replace(self, max_extra_cost=max_extra_cost)

    @torch.no_grad()
    def run(self, task: SearchTask, bank: Bank, *, keep: int = 1) -> Candidates:
        """Return up to ``keep`` feasible candidates for each row of the task, cheapest first.

        A row whose answers without the limit on changes exceed it also gets these, with an infinite cost.
        """
        return search_in_batches(task, lambda rows: self._search(task, bank, rows, keep))

    @torch.no_grad()
    def continued(self, task: SearchTask, bank: Bank, starts: Candidates, *, keep: int = 1) -> Candidates:
        """Return up to ``keep`` answers for each row, cheapest first, of one round of solving."""
        if task.allowance.max_changes is not None:
            return self.run(task, bank, keep=keep)
        rows = torch.arange(len(task), device=task.x.device)[task.allowance.possible]
        free, real = self._starts(task, bank, rows, task.x.new_full((len(task),), torch.inf))
        solved = task.solve(
            Candidates.concat(starts, free).unique(),
            max_without_answer=self.max_without_answer,
            answers=self.finalists,
            paced=True,
        )
        found = Candidates.concat(solved, real).feasible.unique()
        answers = self._sparse(task, found, max(self.finalists, keep))
        return preferred(task, answers, self.max_extra_cost, keep)

    @torch.no_grad()
    def draft(self, task: SearchTask, bank: Bank) -> Candidates:
        """Return an answer for each row that is not on the grid and not made sparse.

        Other densities accept as many of them as of finished answers.
        """

        def search(rows: Tensor) -> Candidates:
            found = self.dense(task, bank, rows)
            missing = rows[~torch.isin(rows, found.rows)]
            if len(missing):
                real = task.check(bank.verified(task, missing, 1, among=MORE)).feasible
                found = Candidates.concat(found, real)
            return preferred(task, found, self.max_extra_cost, 1)

        return search_in_batches(task, search)

    def _search(self, task: SearchTask, bank: Bank, rows: Tensor, keep: int) -> Candidates:
        found, beyond = self._found(task, bank, rows, keep)
        missing = rows[~torch.isin(rows, found.rows)]
        if task.allowance.max_changes is not None or self.any_answer or len(missing) == 0:
            return Candidates.concat(found, beyond)
        if task.fallback is None:
            return Candidates.concat(found, self._real(task, bank, missing, keep)).cheapest(keep)
        relaxed, wider = task.without_margin(task.fallback), task.fallback.bank
        real = self._real(relaxed, wider, missing, keep)
        # A bank row inside the margin is one of the wider bank.
        inside = self._real(task, bank, missing[torch.isin(missing, real.rows)], keep)
        missing = missing[~torch.isin(missing, inside.rows) & (task.scores.margin[missing] > 0)]
        more, _ = self._found(relaxed, wider, missing, keep, at_once=True)
        missing = missing[~torch.isin(missing, more.rows)]
        real = real[torch.isin(real.rows, missing)]
        return Candidates.concat(found, inside, more, real).cheapest(keep)

    def _real(self, task: SearchTask, bank: Bank, rows: Tensor, keep: int) -> Candidates:
        """Return bank rows for rows without another answer: of those that look cheapest, else of all."""
        near = task.check(bank.verified(task, rows, keep, among=MORE)).feasible
        near = preferred(task, near, self.max_extra_cost, keep)
        missing = rows[~torch.isin(rows, near.rows)]
        return Candidates.concat(near, bank.scan(task, missing, keep, checked=MORE))

    def _found(
        self, task: SearchTask, bank: Bank, rows: Tensor, keep: int, *, at_once: bool = False
    ) -> tuple[Candidates, Candidates]:
        """Return up to ``keep`` answers of each row, and ones with too many changes, not feasible."""
        beyond = task.candidates(rows[:0], task.x[:0])
        if task.allowance.max_changes is None:
            _, answers = self._answers(task, bank, rows, keep, at_once=at_once)
            final = self._sensible(task, bank, answers, keep)
        else:
            final, beyond = self._limited(task, bank, rows, keep)
        missing = rows[~torch.isin(rows, final.rows)]
        if len(missing) and task.allowance.max_changes is not None:
            if (fallback := task.fallback) is not None:
                task, bank = task.without_margin(fallback), fallback.bank
            final = Candidates.concat(final, bank.scan(task, missing, keep))
        return final.unique().cheapest(keep), beyond

    def _sensible(self, task: SearchTask, bank: Bank, answers: Candidates, keep: int) -> Candidates:
        """Return the preferred answers of each row, of these and of ones without adverse changes."""
        final = preferred(task, answers, self.max_extra_cost, keep)
        if not self.sparse or self.max_extra_cost <= 0:
            return final
        first = final.cheapest(1)
        limits = task.x.new_full((len(task),), torch.inf)
        limits[first.rows] = (1 + self.max_extra_cost) * first.cost

        def starts(part: SearchTask, limits: Tensor) -> Candidates:
            everyone = torch.arange(len(part), device=part.x.device)
            return self._starts(part, bank, everyone, limits)[0]

        more = without_adverse(task, first, limits, starts)
        if len(more) == 0:
            return final
        both = Candidates.concat(answers, more)
        return more_sensible(task, final, both, self.max_extra_cost).unique().cheapest(keep)

    def _answers(
        self, task: SearchTask, bank: Bank, rows: Tensor, keep: int, *, at_once: bool = False
    ) -> tuple[Candidates, Candidates]:
        """Return answers with any number of changes, off the grid and on it."""
        pool = self.dense(task, bank, rows, at_once=at_once or self.any_answer)
        return pool, self._sparse(task, pool, max(self.finalists, keep))

    def _limited(
        self, task: SearchTask, bank: Bank, rows: Tensor, keep: int
    ) -> tuple[Candidates, Candidates]:
        """Return answers with at most as many changes as the rules allow, and ones with more, not feasible.

        A row whose answer without the limit satisfies it keeps that answer.
        """
        final = beyond = known = task.candidates(rows[:0], task.x[:0])
        if not self.few_only:
            free = replace(task, allowance=replace(task.allowance, max_changes=None))
            pool, answers = self._answers(free, bank, rows, keep)
            missing = rows[~torch.isin(rows, answers.rows)]
            real = free.check(bank.verified(free, missing, keep, among=MORE)).feasible
            answers = Candidates.concat(answers, real)
            final = self._sensible(free, bank, answers, keep)
            first = final.cheapest(1)
            within = torch.isin(final.rows, first.rows[_within(task, first)])
            beyond = task.candidates(final.rows[~within], final.x[~within])
            final = final[within & _within(task, final)]
            known = Candidates.concat(pool, answers)
        rows = rows[~torch.isin(rows, final.rows)]
        if len(rows) == 0:
            return final, beyond
        known = known[torch.isin(known.rows, rows) & _within(task, known)]
        share = max(2, COPIED // max(1, len(task.numbers)))
        relaxed = task if task.fallback is None else task.without_margin(task.fallback)
        wider = bank if task.fallback is None else task.fallback.bank
        few = _combinations(task, rows, wider.verified(relaxed, rows, min(NEAR_ROWS, share)), bank.typical)
        if self.all_numbers:
            copied = bank.quantiles(task, rows, min(QUANTILES, share))
            few = Candidates.concat(few, _combinations(task, rows, copied, bank.typical)).unique()
        final = Candidates.concat(final, _few_changes(task, few, known, keep))
        rows = rows[~torch.isin(rows, final.rows)]
        if task.fallback is not None and len(rows):
            copied = wider.quantiles(relaxed, rows, min(QUANTILES, share))
            more = _combinations(relaxed, rows, copied, wider.typical)
            few = Candidates.concat(few[torch.isin(few.rows, rows)], more).unique()
            final = Candidates.concat(final, _few_changes(relaxed, few, known[rows[:0]], keep))
        return final, beyond

    def _sparse(self, task: SearchTask, pool: Candidates, count: int) -> Candidates:
        """Return answers on the grid: the cheapest ones, and ones with fewer changes."""
        cheap = pool.cheapest(count)
        if not self.sparse:
            return put_on_grid(task, cheap, any_answer=self.any_answer).feasible
        least = pool.cost.new_full((len(task),), torch.inf).scatter_reduce(0, pool.rows, pool.cost, "amin")
        limit = (1 + max(self.max_extra_cost, ROUNDING)) * least
        fewest = preferred(task, pool, self.max_extra_cost, 1)
        best = Candidates.concat(distinct_levels(task, pool).cheapest(max(1, count // 2)), fewest).unique()
        sparse = sparsify(task, best, limit[best.rows], categories=False)
        return put_on_grid(task, Candidates.concat(sparse, fewest, cheap).unique()).feasible

    def dense(self, task: SearchTask, bank: Bank, rows: Tensor, *, at_once: bool = False) -> Candidates:
        """Return answers with any number of changes, off the grid.

        Every row is searched at its own categories first. What its answer costs is a bound for the rest: a
        changed category has a price, and one that alone costs more is not tried. ``at_once`` searches all
        categories together, which takes less time for few rows that hardly have an answer at their own.
        """
        own, limit = task.candidates(rows, task.x[rows]), task.x.new_full((len(task),), torch.inf)
        if not at_once:
            own = task.solve(own, max_without_answer=self.max_without_answer, paced=True).feasible
            limit[own.rows] = (1 + self.max_extra_cost) * own.cost
            rows = rows[self._open(task, rows, limit)]
            if len(rows) == 0:
                return own
        free, real = self._starts(task, bank, rows, limit)
        if self.real_enough:
            own = own[~torch.isin(own.rows, real.rows)]
        solved = task.solve(
            Candidates.concat(own, free).unique() if at_once else free,
            iterations=self.max_without_answer if self.any_answer else SOLVED,
            max_without_answer=self.max_without_answer,
            limits=None if at_once else limit[free.rows],
            paced=True,
            answers=self.finalists if at_once else max(1, self.finalists // 2),
        )
        found = Candidates.concat(*([] if at_once else [own]), solved, real).feasible.unique()
        if self.any_answer:
            return found
        return reset_levels(task, found, self.finalists, self.max_extra_cost)

    def _starts(
        self, task: SearchTask, bank: Bank, rows: Tensor, limit: Tensor
    ) -> tuple[Candidates, Candidates]:
        """Return candidates to be solved whose changed categories cost at most the limit, and bank rows."""
        real = bank.verified(task, rows, self.bank_rows)
        near = real
        if self.real_enough:
            rows, near = rows[~torch.isin(rows, real.rows)], real[rows[:0]]
        # Categories of bank rows with the row's own numbers.
        levelled = task.repaired(task.with_levels_of(near), near.rows)
        free = Candidates.concat(task.candidates(near.rows, levelled), near)
        if self.flips:
            moves = Moves.of(task, rows, real[rows[:0]], bank.typical).within(task, limit)
            free = Candidates.concat(free, self.beam.run(task, rows, moves))
        return _affordable(task, free.unique(), limit), real

    def _open(self, task: SearchTask, rows: Tensor, limit: Tensor) -> Tensor:
        """Return which rows other categories may have an answer for that is needed, ``(rows,)`` bool."""
        without = torch.isinf(limit[rows])
        return without if self.any_answer else without | (_least_level_price(task, rows) < limit[rows])


def _affordable(task: SearchTask, candidates: Candidates, limit: Tensor) -> Candidates:
    """Return the candidates whose changed categories alone cost at most the limit of their row ``(n,)``."""
    price = task.costs(task.with_levels_of(candidates), candidates.rows)
    return candidates[price <= limit[candidates.rows]]


def _least_level_price(task: SearchTask, rows: Tensor) -> Tensor:
    """Return the least that a changed category of each row costs, infinite if none may change."""
    moves = Moves.of(task, rows, task.candidates(rows[:0], task.x[:0]), task.typical)
    price = task.costs(task.with_levels_of(task.candidates(moves.rows, moves.x)), moves.rows)
    least = task.x.new_full((len(task),), torch.inf)
    return least.scatter_reduce(0, moves.rows, price, "amin")[rows]


def _combinations(
    task: SearchTask, rows: Tensor, source: Candidates, typical: dict[int, float]
) -> Candidates:
    """Return the most promising combinations of at most as many changes as the rules allow.

    Numbers are those of the rows ``source``. Numbers of different kinds of rows would crowd each other out.
    """
    return THOROUGH.run(task, rows, Moves.of(task, rows, source, typical), task.allowance.max_changes)


def _few_changes(task: SearchTask, few: Candidates, known: Candidates, keep: int) -> Candidates:
    """Return answers on the grid that combinations of few changes lead to, with the ones that are known."""
    changed = task.layout.changed(few.x, task.x[few.rows])
    solved = task.solve(
        few, frozen=~changed, max_without_answer=FEW_WITHOUT_ANSWER, answers=LIMITED, paced=True
    ).feasible
    solved = Candidates.concat(known, solved[_within(task, solved)]).unique().cheapest(LIMITED)
    return put_on_grid(task, solved).feasible.cheapest(keep)


def _within(task: SearchTask, answers: Candidates) -> Tensor:
    """Return which answers change at most as many features as the rules allow, shape ``(p,)``."""
    most = task.allowance.max_changes
    assert most is not None
    return task.layout.changed(answers.x, task.x[answers.rows]).sum(dim=1) <= most
