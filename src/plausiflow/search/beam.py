"""A beam search over changed features: categories at other levels, numbers at the values of bank rows.

A *move* changes one feature of a row. The beam adds one move after another. Evaluating a density is expensive
and the combinations are many, so what a combination satisfies is first estimated as the sum of what its moves
do alone; only the most promising ones are evaluated. Combinations are ranked by their cost plus how far the
constraints are from being satisfied.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from plausiflow.search.candidates import Candidates, cheapest
from plausiflow.search.task import SearchTask

VIOLATION = 2.0
"""Cost of one unit by which a constraint is violated, in the ranking of the beam."""


@dataclass(frozen=True, kw_only=True)
class Beam:
    """How thorough a beam search is.

    Attributes:
        depth: The maximum number of changed features.
        width: Combinations of each row that get a further change.
        evaluated: Combinations of each row and depth whose constraints are evaluated.
        kept: Combinations of each row and depth that are returned.
        deepest: Combinations of each row that are returned of the largest depth it reaches. Solving their
            numbers also finds answers that change fewer of the same features.
        feasible: Combinations of each row and depth that are returned because they are feasible as they are.
        mended: What one more change mends at most of what the constraints miss, and so does solving the
            numbers. Combinations that miss more are not returned, and rows of which all do get no others.
        first: Combinations of each row and depth that tell what the row misses.
    """

    depth: int = 4
    width: int = 4
    evaluated: int = 24
    kept: int = 3
    deepest: int = 0
    feasible: int = 0
    mended: float = math.inf
    first: int = 16

    def run(self, task: SearchTask, rows: Tensor, moves: Moves, max_changes: int | None = None) -> Candidates:
        """Return the most promising combinations of moves, not checked and with unsolved numbers."""
        depth = self.depth if max_changes is None else min(self.depth, max_changes)
        if len(moves.rows) == 0 or depth < 1:
            return task.candidates(rows[:0], task.x[:0])
        values = task.constraint_values(moves.x, moves.rows)
        alone = values - _own_values(task, rows)[moves.rows]
        sums = task.cost_sums(moves.x, moves.rows)
        states = _States(moves.rows, moves.x, values, moves.keys, moves.kinds, sums).best(task)
        kept, missed = [states.first(self.kept), states.satisfied.first(self.feasible)], _Missed(task, states)
        deepest = states
        for left in reversed(range(depth - 1)):
            states = states.select(self._hopeful(missed, states, left + 1)).first(self.width)
            state, move = moves.extensions(task, states)
            if len(state) == 0:
                break
            # What a combination costs and satisfies is estimated from its parts; few rows are made of it.
            keys, kinds = states.keys[state] + moves.keys[move], states.kinds[state] + moves.kinds[move]
            of = states.rows[state]
            merit = _merit(task, states.values[state] + alone[move], states.sums[state] + sums[move])
            # Moves in another order are the same combination.
            chosen = _first_occurrences(of, keys)
            chosen = chosen[cheapest(of[chosen], merit[chosen], len(of))]
            # Numbers are solved later: those that look best are enough for each kind of combination.
            chosen = chosen[_first_occurrences(of[chosen], kinds[chosen])]
            chosen = chosen[cheapest(of[chosen], merit[chosen], self.evaluated)]
            x = task.repaired(moves.applied(task, states.x[state[chosen]], move[chosen]), of[chosen])
            parts = (of[chosen], x, x[:, :1], keys[chosen], kinds[chosen], task.cost_sums(x, of[chosen]))
            states = self._evaluated(task, _States(*parts), missed, left).best(task)
            kept += [states.first(self.kept), states.satisfied.first(self.feasible)]
            shallow = deepest.select((~torch.isin(deepest.rows, states.rows)).nonzero()[:, 0])
            deepest = shallow.join(states)
        kept = [*kept, deepest.first(self.deepest)]
        kept = [own.select((~(own.missed > self.mended)).nonzero()[:, 0]) for own in kept]
        return task.repair(Candidates.concat(*(task.candidates(own.rows, own.x) for own in kept)).unique())

    def _hopeful(self, missed: _Missed, states: _States, left: int) -> Tensor:
        """Return which combinations are of rows that ``left`` more changes may give an answer."""
        return (~(missed.least[states.rows] > (left + 1) * self.mended)).nonzero()[:, 0]

    def _evaluated(self, task: SearchTask, states: _States, missed: _Missed, left: int) -> _States:
        """Return combinations with their values, the best ones first estimated come first.

        If the first ones of a row miss too much, the others are left out.
        """
        if math.isinf(self.mended):
            return states.evaluated(task)
        place = torch.arange(len(states.rows), device=states.x.device)
        early = place - torch.searchsorted(states.rows, states.rows) < self.first
        first = states.select(early.nonzero()[:, 0]).evaluated(task)
        missed.learn(first)
        others = states.select((~early).nonzero()[:, 0])
        others = others.select(self._hopeful(missed, others, left)).evaluated(task)
        missed.learn(others)
        return first.join(others)


class _Missed:
    """The least that the constraints miss of any combination of each row.

    ``least`` has shape ``(n,)``, infinite for rows without combinations.
    """

    def __init__(self, task: SearchTask, states: _States) -> None:
        self.least = task.x.new_full((len(task),), torch.inf)
        self.learn(states)

    def learn(self, states: _States) -> None:
        """Take more combinations into account."""
        self.least.scatter_reduce_(0, states.rows, states.missed, "amin")


@dataclass(frozen=True, eq=False)
class Moves:
    """Changes of one feature.

    Attributes:
        rows: The row of the task that each belongs to, in order, shape ``(m,)``.
        block: The feature that it changes, shape ``(m,)``.
        x: The row with the change, shape ``(m, width)``.
        keys: A random whole number for each; sums of them tell combinations apart.
        kinds: The same, but all values of a number have the same one.
    """

    rows: Tensor
    block: Tensor
    x: Tensor
    keys: Tensor
    kinds: Tensor

    @classmethod
    def of(cls, task: SearchTask, rows: Tensor, real: Candidates, typical: dict[int, float]) -> Moves:
        """Return all allowed levels of each row's features, and the numbers of its bank rows ``real``."""
        levels = _level_moves(task, rows, typical)
        numbers = _copied_numbers(task, real)
        moves = Candidates.concat(levels, numbers).unique()
        moves = moves[torch.argsort(moves.rows, stable=True)]
        block = task.layout.changed(moves.x, task.x[moves.rows]).long().argmax(dim=1)
        generator = torch.Generator().manual_seed(0)
        draw = torch.randint(2**40, (len(moves) + len(task.layout.blocks),), generator=generator)
        keys = draw[: len(moves)].to(rows.device)
        same_levels = (task.codes_of(moves.x) == task.codes[moves.rows]).all(dim=1)
        kinds = torch.where(same_levels, draw[len(moves) :].to(rows.device)[block], keys)
        return cls(moves.rows, block, moves.x, keys, kinds)

    def within(self, task: SearchTask, limit: Tensor) -> Moves:
        """Return the moves that alone cost at most the limit of their row ``(n,)``."""
        cheap = (task.costs(self.x, self.rows) <= limit[self.rows]).nonzero()[:, 0]
        parts = (self.rows, self.block, self.x, self.keys, self.kinds)
        return Moves(*(part[cheap] for part in parts))

    def extensions(self, task: SearchTask, states: _States) -> tuple[Tensor, Tensor]:
        """Return all pairs of a state and a move of a feature that the state has not changed."""
        count = torch.bincount(self.rows, minlength=len(task))
        begin = count.cumsum(0) - count
        own = count[states.rows]
        state = torch.arange(len(own), device=own.device).repeat_interleave(own)
        place = torch.arange(len(state), device=own.device) - (own.cumsum(0) - own).repeat_interleave(own)
        move = begin[states.rows[state]] + place
        changed = task.layout.changed(states.x, task.x[states.rows])
        fresh = ~changed[state, self.block[move]]
        return state[fresh], move[fresh]

    def applied(self, task: SearchTask, x: Tensor, move: Tensor) -> Tensor:
        """Return rows ``(p, width)`` with one move each."""
        return torch.where(task.block_columns[self.block[move]], self.x[move], x)


@dataclass(frozen=True, eq=False)
class _States:
    """Combinations of moves.

    ``values`` are those of their constraints ``(p, m)``, at least zero if satisfied; ``sums`` are what their
    cost is made of ``(p, 2)``.
    """

    rows: Tensor
    x: Tensor
    values: Tensor
    keys: Tensor
    kinds: Tensor
    sums: Tensor

    @property
    def parts(self) -> tuple[Tensor, ...]:
        """All tensors."""
        return tuple(getattr(self, f.name) for f in fields(self))

    def select(self, which: Tensor) -> _States:
        return _States(*(part[which] for part in self.parts))

    def join(self, others: _States) -> _States:
        """Return these combinations and others."""
        return _States(*(torch.cat(pair) for pair in zip(self.parts, others.parts, strict=True)))

    def evaluated(self, task: SearchTask) -> _States:
        """Return the same with the values of their constraints."""
        return replace(self, values=task.constraint_values(self.x, self.rows))

    def best(self, task: SearchTask) -> _States:
        """Return the best values of every changed set of numbers, by row, the best combinations first."""
        merit = _merit(task, self.values, self.sums)
        ordered = self.select(cheapest(self.rows, merit, len(self.rows)))
        return ordered.select(_first_occurrences(ordered.rows, ordered.kinds))

    @property
    def missed(self) -> Tensor:
        """How far the constraints are from being satisfied, shape ``(p,)``."""
        return (-self.values).clamp_min(0).sum(dim=1)

    @property
    def satisfied(self) -> _States:
        """The combinations that satisfy every constraint, in order."""
        return self.select((self.values >= 0).all(dim=1).nonzero()[:, 0])

    def first(self, count: int) -> _States:
        """Return the first few of each row."""
        return self.select(cheapest(self.rows, torch.zeros_like(self.x[:, 0]), count))


def _merit(task: SearchTask, values: Tensor, sums: Tensor) -> Tensor:
    """Return the cost plus how far the constraints are from being satisfied, shape ``(p,)``."""
    return task.cost_model.of_sums(sums) + VIOLATION * (-values).clamp_min(0).sum(dim=1)


def _first_occurrences(rows: Tensor, keys: Tensor) -> Tensor:
    """Return the position of the first of equal keys of a row, in order."""
    order = torch.argsort(keys, stable=True)
    order = order[torch.argsort(rows[order], stable=True)]
    rows, keys = rows[order], keys[order]
    first = torch.ones(len(order), dtype=torch.bool, device=rows.device)
    first[1:] = (rows[1:] != rows[:-1]) | (keys[1:] != keys[:-1])
    return order[first].sort().values


def _own_values(task: SearchTask, rows: Tensor) -> Tensor:
    """Return the constraint values of some factual rows, at their places among all rows."""
    own = task.constraint_values(task.x[rows], rows)
    return own.new_zeros(len(task), own.shape[1]).index_copy(0, rows, own)


def _copied_numbers(task: SearchTask, real: Candidates) -> Candidates:
    """Return rows with one number each, and its state, of a bank row."""
    parts = [task.candidates(real.rows[:0], task.x[:0])]
    for block in task.mutable:
        if block.number is not None:
            columns = torch.tensor(block.columns, device=task.x.device)
            x = task.x[real.rows].index_copy(1, columns, real.x[:, block.columns])
            differs = (x != task.x[real.rows]).any(dim=1)
            parts.append(task.candidates(real.rows[differs], x[differs]))
    return Candidates.concat(*parts)


def _level_moves(task: SearchTask, rows: Tensor, typical: dict[int, float]) -> Candidates:
    """Return rows with one feature each at another allowed level."""
    if not task.layout.with_levels:
        return task.candidates(rows[:0], task.x[:0])
    index = task.layout.index(rows.device)
    options = task.allowance.levels[rows][:, index.columns] & (task.x[rows][:, index.columns] == 0)
    which, level = options.nonzero(as_tuple=True)
    return task.candidates(rows[which], index.switched(task.x[rows[which]], level, typical))
