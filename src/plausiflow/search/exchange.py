"""Exchanges: some changes of an answer for cheaper ones that do the same.

A search that follows gradients seldom leaves the categories it started from. An exchange undoes some changes
of an answer that changes a category, and makes others instead. The model's own trees decide about it, and the
density itself: both take microseconds for a row of many, so many exchanges can be tried. What a combination
of steps satisfies is first estimated as the sum of what each step does alone; only the most promising ones
are evaluated. The cheapest one that holds is the start of the next exchange.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property

import torch
from torch import Tensor

from plausiflow.core import ValidityConstraint
from plausiflow.search.bank import Bank
from plausiflow.search.beam import Moves
from plausiflow.search.candidates import Candidates, cheapest
from plausiflow.search.rounding import on_grid
from plausiflow.search.sparsify import burden, with_factual
from plausiflow.search.task import SearchTask

VIOLATION = 0.3
"""Cost of one unit by which a constraint is violated, as a share of the answer's cost, in the ranking."""
MOST = 5.0
"""Violation beyond which more of it does not count; a saturated model is hundreds of logits away."""
SHARES = (0.25, 0.5, 0.75)
"""Shares of the change of a number that a step may keep."""
LEAST_GAIN = 2e-3
"""Share of the cost that an exchange must save."""


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """Settings of the exchanges.

    Attributes:
        rounds: Exchanges of each answer, one after another.
        depth: Steps of an exchange.
        width: Combinations of each answer that get a further step.
        evaluated: Combinations of each answer and number of steps that are evaluated.
        quantiles: Numbers of each feature that a step may set it to.
        checked: Cheaper rows of each answer that are checked at corners.
        corners: Corners at which an answer must hold.
        reach: How far out these are, in ranges.
    """

    rounds: int = 3
    depth: int = 3
    width: int = 8
    evaluated: int = 24
    quantiles: int = 10
    checked: int = 3
    corners: int = 32
    reach: float = 1e-3

    @torch.no_grad()
    def run(self, task: SearchTask, bank: Bank, answers: Candidates, *, sparse: bool) -> Candidates:
        """Return a cheaper answer for each row where there is one, else the same; each row has one at most.

        ``sparse`` makes no answer harder to follow. Without the trees of the model nothing is exchanged.
        """
        assert task.oracle is not None
        trees = task.oracle.true_model.tree_outputs
        levels = (task.codes_of(answers.x) != task.codes[answers.rows]).any(dim=1)
        if trees is None or not bool(levels.any()):
            return answers
        # The trees answer, and not the model, so this takes nothing from its budget.
        own = replace(task, oracle=replace(task.oracle, spent=torch.zeros_like(task.oracle.spent)))
        exact = replace(task, validity=ValidityConstraint(trees, task.validity.criterion), oracle=None)
        done, left = [answers[~levels]], answers[levels]
        numbers = bank.quantiles(task, left.rows, self.quantiles)
        moves = Moves.of(task, left.rows, numbers, bank.typical)
        for _ in range(self.rounds):
            better = self._round(own, exact, moves, left, sparse)
            done.append(left[~torch.isin(left.rows, better.rows)])
            left = better
            if len(left) == 0:
                break
        return Candidates.concat(*done, left).cheapest(1)

    def _round(
        self, task: SearchTask, exact: SearchTask, moves: Moves, answers: Candidates, sparse: bool
    ) -> Candidates:
        """Return the answers that an exchange has made cheaper."""
        steps = _Steps.around(exact, moves, answers)
        known = [steps.alone]
        for left in reversed(range(self.depth - 1)):
            known.append(self._extended(steps, known[-1], left))
        every = _Combinations.concat(known)
        cheaper = steps.cost(every) < 1 - LEAST_GAIN
        found = every.select(((every.values >= 0).all(dim=1) & cheaper).nonzero()[:, 0])
        candidates = Candidates(rows=found.of, x=found.x, cost=steps.cost(found))
        if sparse:
            most = burden(task, answers)[found.of]
            own = replace(candidates, rows=answers.rows[found.of])
            candidates = candidates[burden(task, own) <= most]
        return self._held(task, answers, candidates)

    def _extended(self, steps: _Steps, before: _Combinations, left: int) -> _Combinations:
        """Return the most promising combinations with one step more, evaluated.

        All others are left out that ``left`` more steps cannot make cheap enough.
        """
        merit = steps.merit(before)
        first = before.select(_best_of_each_kind(before, merit, self.width))
        state, step = steps.extensions(first)
        of, alone = first.of[state], steps.alone
        guess = _Combinations(
            of=of,
            x=first.x[state],
            values=first.values[state] + alone.values[step] - steps.values[of],
            sums=first.sums[state] + alone.sums[step] - steps.sums[of],
            touched=first.touched[state] | alone.touched[step],
            kinds=first.kinds[state] + alone.kinds[step],
        )
        least = steps.cost(guess) - left * steps.largest_saving[of]
        merit = torch.where(least < 1 - LEAST_GAIN, steps.merit(guess), torch.inf)
        # The same steps in another order are the same combination, so twice as many are made.
        chosen = cheapest(of, merit, 2 * self.evaluated)
        chosen = chosen[torch.isfinite(merit[chosen])]
        columns = steps.task.block_columns[steps.block[step[chosen]]]
        x = torch.where(columns, alone.x[step[chosen]], guess.x[chosen])
        once = Candidates(rows=of[chosen], x=x, cost=merit[chosen]).first_occurrences()
        once = once[cheapest(of[chosen][once], merit[chosen][once], self.evaluated)]
        return steps.evaluated(guess.select(chosen[once]), x[once])

    def _held(self, task: SearchTask, answers: Candidates, found: Candidates) -> Candidates:
        """Return the cheapest candidate of each answer that model, density and rules accept, and that holds.

        The rows of ``found`` are the places of the answers.
        """
        assert task.oracle is not None
        few = found.cheapest(self.checked)
        accepted = task.check(replace(few, rows=answers.rows[few.rows])).feasible
        corners = {"corners": self.corners, "reach": self.reach, "salt": 2}
        steady = task.oracle.stability(accepted.x, accepted.rows, **corners)  # type: ignore[arg-type]
        return accepted[steady == 1].cheapest(1)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Combinations:
    """Answers with some steps each.

    Attributes:
        of: The place of the answer, shape ``(p,)``.
        x: The changed answer, shape ``(p, width)``.
        values: Values of its constraints, at least zero if satisfied, shape ``(p, m)``.
        sums: What its cost is made of, shape ``(p, 2)``.
        touched: Features that the steps change, shape ``(p, blocks)`` bool.
        kinds: Equal whole numbers for the same steps, whatever their order and their numbers, shape ``(p,)``.
    """

    of: Tensor
    x: Tensor
    values: Tensor
    sums: Tensor
    touched: Tensor
    kinds: Tensor

    def select(self, which: Tensor) -> _Combinations:
        """Return some of the combinations."""
        return _Combinations(**{f.name: getattr(self, f.name)[which] for f in fields(self)})

    @classmethod
    def concat(cls, parts: list[_Combinations]) -> _Combinations:
        """Return all combinations."""
        return cls(**{f.name: torch.cat([getattr(part, f.name) for part in parts]) for f in fields(cls)})


@dataclass(frozen=True, eq=False, kw_only=True)
class _Steps:
    """Steps from answers; each changes one feature.

    Attributes:
        task: The task, with the trees of the model.
        answers: The answers.
        values: Values of their constraints, shape ``(n, m)``.
        sums: What their cost is made of, shape ``(n, 2)``.
        alone: The answers with one step each, in the order of the answers.
        block: The feature of each step.
    """

    task: SearchTask
    answers: Candidates
    values: Tensor
    sums: Tensor
    alone: _Combinations
    block: Tensor

    @classmethod
    def around(cls, task: SearchTask, moves: Moves, answers: Candidates) -> _Steps:
        """Return the steps of answers, each evaluated alone."""
        place = torch.full((len(task),), -1).index_copy(0, answers.rows, torch.arange(len(answers)))
        own = (place[moves.rows] >= 0).nonzero()[:, 0]
        of = place[moves.rows[own]]
        moved = (of, moves.applied(task, answers.x[of], own), moves.block[own])
        parts = zip(moved, _resets(task, answers), _nearer(task, answers), strict=True)
        of, x, block = (torch.cat(part) for part in parts)
        x = on_grid(task, task.candidates(answers.rows[of], x))
        other = ((x != answers.x[of]).any(dim=1)).nonzero()[:, 0]
        once = other[Candidates(rows=of[other], x=x[other], cost=x[other, 0]).first_occurrences()]
        once = once[torch.argsort(of[once], stable=True)]
        of, x, block = of[once], x[once], block[once]
        touched = torch.nn.functional.one_hot(block, len(task.layout.blocks)).bool()
        values = task.constraint_values(answers.x, answers.rows)
        sums = task.cost_sums(answers.x, answers.rows)
        kinds = _kinds(task, answers.x[of], x, block)
        alone = _Combinations(of=of, x=x, values=values[:0], sums=sums[:0], touched=touched, kinds=kinds)
        steps = cls(task=task, answers=answers, values=values, sums=sums, alone=alone, block=block)
        return replace(steps, alone=steps.evaluated(alone, x))

    def evaluated(self, states: _Combinations, x: Tensor) -> _Combinations:
        """Return combinations with the values and costs of the rows ``x``."""
        rows = self.answers.rows[states.of]
        values, sums = self.task.constraint_values(x, rows), self.task.cost_sums(x, rows)
        return replace(states, x=x, values=values, sums=sums)

    def cost(self, states: _Combinations) -> Tensor:
        """Return the cost of combinations as a share of that of their answer, shape ``(p,)``."""
        return self.task.cost_model.of_sums(states.sums) / self.answers.cost[states.of]

    @cached_property
    def largest_saving(self) -> Tensor:
        """What a step alone saves at most of each answer, as a share of its cost, shape ``(n,)``."""
        saved = 1 - self.cost(self.alone)
        return saved.new_zeros(len(self.answers)).scatter_reduce(0, self.alone.of, saved, "amax")

    def merit(self, states: _Combinations) -> Tensor:
        """Return the cost plus how far the constraints are from being satisfied, shape ``(p,)``."""
        return self.cost(states) + VIOLATION * (-states.values).clamp(0, MOST).sum(dim=1)

    def extensions(self, states: _Combinations) -> tuple[Tensor, Tensor]:
        """Return all pairs of a combination and a step of a feature that it has not changed."""
        count = torch.bincount(self.alone.of, minlength=len(self.answers))
        begin, own = count.cumsum(0) - count, count[states.of]
        state = torch.arange(len(own)).repeat_interleave(own)
        place = torch.arange(len(state)) - (own.cumsum(0) - own).repeat_interleave(own)
        step = begin[states.of[state]] + place
        fresh = ~states.touched[state, self.block[step]]
        return state[fresh], step[fresh]


def _kinds(task: SearchTask, before: Tensor, after: Tensor, block: Tensor) -> Tensor:
    """Return a random whole number for each step; those that only set the same number are of one kind."""
    generator = torch.Generator().manual_seed(0)
    blocks = len(task.layout.blocks)
    draw = torch.randint(2**40, (len(block) + blocks,), generator=generator)
    levels = (task.codes_of(before) != task.codes_of(after)).any(dim=1)
    return torch.where(levels, draw[blocks:], draw[block])


def _best_of_each_kind(states: _Combinations, merit: Tensor, count: int) -> Tensor:
    """Return the positions of the best combinations of each answer, one of each kind."""
    known = torch.isfinite(merit).nonzero()[:, 0]
    order = known[torch.argsort(merit[known], stable=True)]
    keys = states.kinds[order, None].double()
    distinct = Candidates(rows=states.of[order], x=keys, cost=merit[order])
    order = order[distinct.first_occurrences()]
    return order[cheapest(states.of[order], merit[order], count)]


_Parts = tuple[Tensor, Tensor, Tensor]
"""Places of answers, the answers with one step each, and the feature of each step."""


def _resets(task: SearchTask, answers: Candidates) -> _Parts:
    """Return the answers with one changed feature each at the row's own value."""
    of, block = task.layout.changed(answers.x, task.x[answers.rows]).nonzero(as_tuple=True)
    reset = torch.nn.functional.one_hot(block, len(task.layout.blocks)).bool()
    return of, with_factual(task, answers[of], reset), block


def _nearer(task: SearchTask, answers: Candidates) -> _Parts:
    """Return the answers with one changed number each a part of the way back."""
    columns, blocks = torch.tensor(task.numbers, dtype=torch.long), torch.tensor(task.number_blocks)
    current, own = answers.x[:, columns], task.x[answers.rows][:, columns]
    free = task.free_numbers(task.codes_of(answers.x)) & task.free[answers.rows]
    of, number = ((current != own) & free[:, columns]).nonzero(as_tuple=True)
    share = current.new_tensor(SHARES).repeat(len(of))
    of, number = (part.repeat_interleave(len(SHARES)) for part in (of, number))
    x = answers.x[of].clone()
    there = own[of, number].lerp(current[of, number], share)
    x[torch.arange(len(of)), columns[number]] = there
    return of, x, blocks[number].long()
