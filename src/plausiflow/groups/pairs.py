"""Pairs of a row and an action: what the action alone does, and with changes that go along with it.

The action alone must change the decision. If the row is then not plausible enough, or breaks a rule about
several features, the other features are solved by the engine while those of the action keep their values:
first from the row's own values, then from those of a real row with the wanted outcome.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from plausiflow.groups.actions import SIZES, Actions
from plausiflow.search import RESTORING, Bank, Candidates, SearchTask, preferred, put_on_grid, sparsify

NEXT_SIZES, WITH_SLACK = 4, 2
"""Sizes along a direction that are tried from the smallest one that changes the decision; and which of them
a row takes that is not plausible at any."""
KEPT_VALUE = 0.5
"""Share of the certainty of the decision after the action alone that other changes must leave, if there is
such an answer near by; then none of them is likely to matter to the decision."""
ITERATIONS, WITHOUT_ANSWER = 25, 12
FROM_REAL, POLISHING = 12, 15
"""Iterations from a real row to an answer, and from there to a cheaper one."""
PAIRS_AT_ONCE = 5_000


@dataclass(frozen=True, kw_only=True, eq=False)
class Trials:
    """Rows after an action alone.

    Attributes:
        rows: The row of each pair, shape ``(p,)``.
        which: The action of each pair, shape ``(p,)``.
        x: The rows after the action, shape ``(p, width)``.
        allowed: Whether the rules about single features allow the action, shape ``(p,)``.
        valid: Whether the action alone changes the decision, shape ``(p,)``.
        score: Plausibility score, NaN if it was not needed, shape ``(p,)``.
        kept: Whether all rules hold, shape ``(p,)``.
        cost: Cost of the action alone, shape ``(p,)``.
    """

    rows: Tensor
    which: Tensor
    x: Tensor
    allowed: Tensor
    valid: Tensor
    score: Tensor
    kept: Tensor
    cost: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, places: Tensor) -> Trials:
        return Trials(**{name: part[places] for name, part in vars(self).items()})

    @property
    def possible(self) -> Tensor:
        """Whether the action is allowed and changes the decision, shape ``(p,)``."""
        return self.allowed & self.valid

    @property
    def enough(self) -> Tensor:
        """Whether the action alone is a counterfactual, shape ``(p,)``."""
        return self.possible & self.kept & (self.score >= 0)

    @classmethod
    def concat(cls, parts: list[Trials]) -> Trials:
        """Concatenate trials."""
        return cls(**{name: torch.cat([getattr(part, name) for part in parts]) for name in vars(parts[0])})


@torch.no_grad()
def try_actions(task: SearchTask, actions: Actions, rows: Tensor, which: Tensor) -> Trials:
    """Apply actions alone to rows of a task, in blocks."""
    blocks = zip(rows.split(PAIRS_AT_ONCE), which.split(PAIRS_AT_ONCE), strict=True)
    return Trials.concat([_try_block(task, actions, *block) for block in blocks])


def _try_block(task: SearchTask, actions: Actions, rows: Tensor, which: Tensor) -> Trials:
    trials = _at_size(task, actions, rows, which, 1.0)
    own = actions.is_direction[which].nonzero()[:, 0]
    if len(own):
        best = _smallest_size(task, actions, rows[own], which[own])
        trials = Trials(
            **{name: part.index_copy(0, own, vars(best)[name]) for name, part in vars(trials).items()}
        )
    return _scored(task, trials)


def _at_size(task: SearchTask, actions: Actions, rows: Tensor, which: Tensor, size: float) -> Trials:
    applied, applies = actions.apply(which, task.x[rows], size)
    x = task.repaired(applied, rows, actions.features[which])
    fixed = fixed_columns(task, actions, which)
    # Rules about several features may be kept by changes that go along.
    single = replace(task.allowance, clauses=(), pairs=None, max_changes=None)
    allowed = applies & single.contains(x, rows) & (x != task.x[rows]).any(dim=1)
    allowed &= ((x == applied) | ~fixed).all(dim=1)
    valid = torch.zeros_like(allowed)
    valid[allowed] = task.model_value(x[allowed], rows[allowed]) >= 0
    nan = torch.full((len(rows),), torch.nan, dtype=x.dtype)
    return Trials(
        rows=rows, which=which, x=x, allowed=allowed, valid=valid, score=nan,
        kept=torch.zeros_like(allowed), cost=task.costs(x, rows),
    )  # fmt: skip


def _scored(task: SearchTask, trials: Trials) -> Trials:
    """Return the trials with scores and rules, where the action is allowed and changes the decision."""
    score, kept = trials.score.clone(), trials.kept.clone()
    asked = trials.possible.nonzero()[:, 0]
    if len(asked):
        x, rows = trials.x[asked], trials.rows[asked]
        score[asked] = task.scores.score(x, rows)
        kept[asked] = task.allowance.contains(x, rows)
    return replace(trials, score=score, kept=kept)


def _smallest_size(task: SearchTask, actions: Actions, rows: Tensor, which: Tensor) -> Trials:
    """Return each pair at its smallest size that changes the decision, or a little more if that is plausible.

    Without such a size, a pair has the largest one.
    """
    best = _at_size(task, actions, rows, which, SIZES[-1])
    done, tried = torch.zeros_like(best.valid), torch.zeros(len(rows), dtype=torch.long)
    for size in SIZES:
        open_ = (~done & (tried < NEXT_SIZES)).nonzero()[:, 0]
        if len(open_) == 0:
            break
        trial = _scored(task, _at_size(task, actions, rows[open_], which[open_], size))
        tried[open_] += trial.possible.long()
        # Changes that go along may take back a little: the smallest size leaves nothing to take.
        better = trial.possible & (trial.enough | (tried[open_] <= WITH_SLACK))
        places = open_[better]
        best = Trials(**{n: p.index_copy(0, places, vars(trial)[n][better]) for n, p in vars(best).items()})
        done[open_] |= trial.enough
    return best


def fixed_columns(task: SearchTask, actions: Actions, which: Tensor) -> Tensor:
    """Return the encoded columns that actions fix, shape ``(p, width)`` bool."""
    return (actions.features[which].double() @ task.block_columns.double()) > 0


@torch.no_grad()
def nearest_real(task: SearchTask, bank: Bank) -> Tensor:
    """Return the nearest real row with the wanted outcome of each row, ``(n, width)``; NaN without one."""
    near = bank.verified(task, torch.arange(len(task)), 1)
    return torch.full_like(task.x, torch.nan).index_copy(0, near.rows, near.x)


@torch.no_grad()
def solve_others(
    task: SearchTask,
    actions: Actions,
    trials: Trials,
    near: Tensor,
    extra_cost: float | None = None,
    most: Tensor | None = None,
) -> Candidates:
    """Solve the features that the actions leave open, so that the rows are plausible and keep every rule.

    Args:
        task: The task.
        actions: The actions.
        trials: Rows after an action alone, which changes the decision.
        near: A real row with the wanted outcome for each row of the task; see :func:`nearest_real`.
        extra_cost: How much more fewer changes may cost, as a share; None does not look for fewer.
        most: What each answer must cost less than, shape ``(p,)``; None for no limit.

    Returns:
        One candidate for each trial, with the rows of the task; the cost is infinite if none was found.
    """
    fixed = fixed_columns(task, actions, trials.which)
    pairs = _open_features(task, trials, fixed)
    found = _solved(pairs, torch.where(fixed, trials.x, near[trials.rows]))
    if most is not None:
        found = found[task.costs(found.x, trials.rows[found.rows]) < most[found.rows]]
    if extra_cost is not None and len(found):
        found = Candidates.concat(sparsify(pairs, found, (1 + extra_cost) * found.cost), found).unique()
    found = put_on_grid(pairs, found).feasible
    found = found[_independent(task, trials.rows, trials.x, found)]
    found = preferred(pairs, found, extra_cost or 0.0, 1)
    x, cost = trials.x.clone(), torch.full((len(trials),), torch.inf, dtype=trials.x.dtype)
    if len(found):
        x[found.rows] = found.x
        cost[found.rows] = task.costs(found.x, trials.rows[found.rows])
    return Candidates(rows=trials.rows, x=x, cost=cost)


def _open_features(task: SearchTask, trials: Trials, fixed: Tensor) -> SearchTask:
    """Return a task with one row for each trial: the row after the action, whose columns are ``fixed``."""
    pairs = task.at(trials.rows)
    allowance = replace(
        pairs.allowance,
        lower=torch.where(fixed, trials.x, pairs.allowance.lower),
        upper=torch.where(fixed, trials.x, pairs.allowance.upper),
    )
    # The row after the action is what is changed as little as possible.
    return replace(pairs, x=trials.x, allowance=allowance)


def _solved(pairs: SearchTask, real: Tensor) -> Candidates:
    """Return answers with solved numbers, from the rows themselves, else from ``real`` rows."""
    rows = torch.arange(len(pairs))
    value = pairs.model_value(pairs.x, rows).clamp_min(0)
    certain = replace(pairs, targets=pairs.targets.with_extra_margin(KEPT_VALUE * value))
    found = certain.solve(
        pairs.candidates(rows, pairs.x), iterations=ITERATIONS, max_without_answer=WITHOUT_ANSWER
    ).feasible
    for task in (certain, pairs):
        lost = torch.isfinite(real).all(dim=1).index_fill(0, found.rows, False).nonzero()[:, 0]
        found = Candidates.concat(found, _restored(task, lost, real[lost]))
    return found.cheapest(1)


def _restored(pairs: SearchTask, rows: Tensor, real: Tensor) -> Candidates:
    """Return answers of some rows near ``real`` ones, with their categories or with the row's own."""
    mixed = pairs.with_codes(real, pairs.codes[rows])
    starts = Candidates.concat(pairs.candidates(rows, real), pairs.candidates(rows, mixed)).unique()
    restored = pairs.solve(
        pairs.repair(starts), iterations=FROM_REAL, max_without_answer=FROM_REAL, curvature=RESTORING
    ).feasible.cheapest(1)
    return Candidates.concat(restored, pairs.solve(restored, iterations=POLISHING).feasible)


def _independent(task: SearchTask, rows: Tensor, alone: Tensor, found: Candidates) -> Tensor:
    """Return which candidates still change the decision once any one of the other changes is undone."""
    candidate, block = task.layout.changed(found.x, alone[found.rows]).nonzero(as_tuple=True)
    own = found.rows[candidate]
    undone = torch.where(task.block_columns[block], task.x[rows[own]], found.x[candidate])
    needed = task.model_value(undone, rows[own]) < 0
    return torch.ones(len(found), dtype=torch.bool).index_fill(0, candidate[needed], False)
