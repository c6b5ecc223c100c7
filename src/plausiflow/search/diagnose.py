"""Why a row has no answer: rules, locks or the density, each with an answer that proves it.

A rule is named only if a search without it finds a row that breaks this rule and nothing else: decoded,
decided as wanted by the user's own model, plausible, and within all other rules. If that row keeps the rule,
the search was at fault, and the row is the answer. If no single rule blocks, a search without all rules gives
a row that breaks a few of them; smaller sets among these are tried, and the smallest is named as a set. The
density is the reason only if a row without it is valid and allowed. For a tree model, a proof that no allowed
row is valid (:mod:`plausiflow.search.certify`) comes first, with the fewest rules to relax. The work is
bounded: a few rows, rules and searches, until the deadline. So a reason may be missing, but none is untrue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from plausiflow.constraints import LOCKED, Allowance, Immutable, Price
from plausiflow.core import MovingColumns, RowFunction, RowValueAndGrad
from plausiflow.densities import PlainRowScores, row_scores
from plausiflow.search.answers import WITHOUT_MARGIN, Answers, verify_candidates
from plausiflow.search.candidates import Candidates, cheapest
from plausiflow.search.certify import proven_reasons
from plausiflow.search.engine import Engine
from plausiflow.search.request import SearchRequest
from plausiflow.tables import Encoder

MOST_ROWS, MOST_RULES, MOST_SETS = 200, 12, 24
TOGETHER = 6
"""So many rules are tried one by one at once; of more rules, first all and then the promising ones."""
HUGE = 1_000_000
"""A row that is less plausible by so many nats is absurd; by how much more does not matter."""
LOCKS = "the lock on some features"

Items = frozenset[int]
"""Rules by their number, and ``_LOCK`` for the features that a row keeps."""
_LOCK = -1


class AlwaysPlausible:
    """A plausibility that every row passes."""

    def score(self, x: Tensor, y: Tensor) -> Tensor:
        """Return one for every row, shape ``(n,)``."""
        return x.new_ones(len(x))

    def for_rows(self, x: Tensor, y_target: Tensor, *, with_margin: bool = True) -> _AlwaysScores:
        """Prepare for factual rows; there is no margin."""
        return _AlwaysScores(self, x, y_target)


class _AlwaysScores(PlainRowScores):
    """Scores of :class:`AlwaysPlausible`, with their gradient."""

    def of_columns(self, moving: MovingColumns, rows: Tensor) -> tuple[RowFunction, RowValueAndGrad | None]:
        """Return one for every candidate, and its gradient: zero."""
        return lambda z, which: z.new_ones(len(z)), lambda z, which: (
            z.new_ones(len(z)),
            torch.zeros_like(z),
        )


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What was found out about rows without an answer.

    Attributes:
        answers: Answers that the search should have found.
        misses: Nearest misses: valid and allowed, but not plausible enough.
        reasons: Why there is no answer, by row of the request; for rows with an answer, what it lacks.
    """

    answers: Answers
    misses: Answers
    reasons: dict[int, str]


def diagnose_rows(
    engine: Engine,
    encoder: Encoder,
    request: SearchRequest,
    rows: Tensor,
    known: Mapping[int, int] | None = None,
) -> Diagnosis:
    """Find out why some rows of a request have no answer.

    Args:
        engine: What was fitted.
        encoder: Encoder of the table.
        request: The request.
        rows: Rows of the request.
        known: The number of a rule that is known to block a row, by row. No other reason is looked for, and
            no nearest miss unless relaxed answers are asked for.
    """
    known = known or {}
    near = find_misses(engine, encoder, request, rows if request.relaxed else _unknown(rows, known))
    inside = near.score >= 0
    trials = _Trials(engine, encoder, request, recovered=[near.select(inside.nonzero()[:, 0])])
    misses = near.select((~inside).nonzero()[:, 0])
    left = _unknown(rows, known)
    proven = proven_reasons(engine, encoder, request, left[~torch.isin(left, near.of)])
    left = left[~torch.isin(left, torch.tensor(list(proven), dtype=torch.long))]
    trials.blame(left[~torch.isin(left, near.of[inside])][:MOST_ROWS])
    trials.blocking |= {row: [frozenset([known[row]])] for row in rows.tolist() if row in known}
    answers = Answers.concat(encoder, request.frame, trials.recovered).unique(1)
    found, lacks = set(answers.of.tolist()), dict(zip(misses.of.tolist(), misses.score.tolist(), strict=True))
    reasons = {row: _describe(trials.blocking.get(row, []), trials, lacks.get(row)) for row in rows.tolist()}
    reasons |= proven | dict.fromkeys(found, "")
    if request.second_opinion and found:
        x, targets, _, _ = request.part(answers.of)
        within = answers.score >= row_scores(engine.plausibility, x, targets.y).margin
        reasons |= dict.fromkeys(answers.of[~within].tolist(), WITHOUT_MARGIN)
    return Diagnosis(answers, misses.select((~torch.isin(misses.of, answers.of)).nonzero()[:, 0]), reasons)


def _except(rows: Tensor, others: list[int]) -> Tensor:
    return rows[~torch.isin(rows, torch.tensor(others, dtype=torch.long))]


def _unknown(rows: Tensor, known: Mapping[int, int]) -> Tensor:
    """Return the rows that no rule is known to block."""
    return _except(rows, list(known))


def find_misses(engine: Engine, encoder: Encoder, request: SearchRequest, rows: Tensor) -> Answers:
    """Return the cheapest row for each that model and rules accept, plausible or not."""
    x, targets, frame, locked = request.part(rows)
    scores = row_scores(AlwaysPlausible(), x, targets.y)
    task = engine.task(x, targets, frame=frame, locked=locked, scores=scores)
    # A surrogate needs its whole search to come near.
    strategy = engine.strategy.lighter() if engine.true_model is None else engine.strategy.quicker()
    found = strategy.run(task, engine.bank, keep=2)
    misses = verify_candidates(engine, encoder, request, found, rows).answers
    # A plausible one is an answer, and comes first.
    rank = torch.where(misses.score >= 0, misses.cost - 1e9, misses.cost)
    return misses.select(cheapest(misses.of, rank, 1))


def describe_lack(score: float) -> str:
    """Return how far a miss is below the threshold."""
    nearest = "the nearest allowed row that the model decides as wanted"
    return f"{nearest} is {_short(-score)} below the plausibility threshold"


def _short(gap: float) -> str:
    """Return a gap with few digits: beyond some size only that it is large tells anything."""
    if gap >= HUGE:
        return f"more than {HUGE:,}"
    return f"{gap:.2f}" if gap < 100 else f"{float(f'{gap:.3g}'):,.0f}"


@dataclass(eq=False)
class _Trials:
    """Searches without some rules, and what they prove about each row."""

    engine: Engine
    encoder: Encoder
    request: SearchRequest
    recovered: list[Answers]
    blocking: dict[int, list[Items]] = field(default_factory=dict)
    searches: int = 0

    def name(self, item: int) -> str:
        return LOCKS if item == _LOCK else str(self.engine.rules.constraints[item])

    def blame(self, rows: Tensor) -> None:
        """Fill ``blocking`` with the sets of rules that block each row, and ``recovered`` with answers."""
        rules = self.engine.rules.constraints
        items = [i for i, rule in enumerate(rules) if not isinstance(rule, Price)]
        if self.request.locked is not None and self.request.locked[rows.numpy()].any():
            items.append(_LOCK)
        if len(items) <= TOGETHER:
            singles = self._singles(rows, items, {})
            left = self._open(_except(rows, list(singles)))
            widest = self._without(left, frozenset(items)) if len(items) > 1 else {}
            singles |= {row: [broken] for row, broken in widest.items() if len(broken) == 1}
        else:
            # A row that has no answer without any rule has none without one of them. What the others break
            # tells where to look first.
            widest = self._without(rows, frozenset(items))
            broken = Counter(i for own in widest.values() for i in own)
            locks = [item for item in items if item == _LOCK]
            tried = list(dict.fromkeys([*locks, *(item for item, _ in broken.most_common()), *items]))
            left = self._open(torch.tensor(sorted(widest), dtype=torch.long))
            singles = self._singles(left, tried[: MOST_RULES + len(locks)], widest)
        widest = {row: broken for row, broken in widest.items() if row not in singles}
        self._shrink(widest)
        self.blocking = singles | {row: [broken] for row, broken in widest.items()}

    def _singles(self, rows: Tensor, items: list[int], widest: dict[int, Items]) -> dict[int, list[Items]]:
        """Return the rules of which each alone blocks a row, by row.

        An answer without all rules that breaks one only, of ``widest``, proves that this one does.
        """
        proven = {item: [r for r, own in widest.items() if own == {item}] for item in items}
        trials = [(_except(rows, proven[item]), frozenset([item])) for item in sorted(items)]
        singles: dict[int, list[Items]] = {}
        for (_, own), broken in zip(trials, self._without_each(trials), strict=True):
            for row in sorted([*broken, *proven[min(own)]]):
                singles.setdefault(row, []).append(own)
        return singles

    def _shrink(self, widest: dict[int, Items]) -> None:
        """Replace sets of rules that block together by smaller ones: pairs, triples, then one rule less."""
        for size in (2, 3):
            large = {row: broken for row, broken in widest.items() if len(broken) > size}
            sets = dict.fromkeys(c for own in large.values() for c in combinations(sorted(own), size))
            trials = [([row for row, own in large.items() if {*c} < own], frozenset(c)) for c in sets]
            self._replace(widest, trials)
        for item in sorted({i for broken in widest.values() for i in broken if len(broken) > 3}):
            full = {broken for broken in widest.values() if item in broken and len(broken) > 3}
            trials = [
                ([row for row, own in widest.items() if own == broken], broken - {item})
                for broken in sorted(full, key=sorted)
            ]
            self._replace(widest, trials)

    def _replace(self, widest: dict[int, Items], trials: list[tuple[list[int], Items]]) -> None:
        """Try smaller sets of rules for some rows; a set that is enough replaces that of the row."""
        trials = trials[: MOST_SETS - self.searches]
        self.searches += len(trials)
        for broken in self._without_each([(self._open(torch.tensor(rows)), own) for rows, own in trials]):
            widest.update({row: own for row, own in broken.items() if len(own) < len(widest[row])})

    def _open(self, rows: Tensor) -> Tensor:
        """Return the rows that have no answer yet."""
        found = torch.cat([part.of for part in self.recovered])
        return rows[~torch.isin(rows, found)]

    def _without(self, rows: Tensor, items: Items) -> dict[int, Items]:
        """Search rows without some rules; return what the verified rows break, by row."""
        return self._without_each([(rows, items)])[0]

    def _without_each(self, trials: list[tuple[Tensor, Items]]) -> list[dict[int, Items]]:
        """Search the rows of each trial without its rules, all at once where the rules allow it.

        Return what the verified rows break, by row, for each trial. A row that breaks none is an answer.
        """
        broken: list[dict[int, Items]] = [{} for _ in trials]
        groups: list[list[_RuleTrial]] = []
        for number, (rows, items) in enumerate(trials):
            if len(rows) == 0 or self.request.late:
                continue
            trial = _RuleTrial.of(self.engine, self.request, number, rows, items)
            group = next((group for group in groups if group[0].joins(trial)), None)
            if group is None:
                groups.append([trial])
            else:
                group.append(trial)
        for group in groups:
            if not self.request.late:
                for number, row, own in self._searched(group):
                    broken[number][row] = own
        return broken

    def _searched(self, trials: list[_RuleTrial]) -> Iterator[tuple[int, int, Items]]:
        """Search trials at once; yield trial, row and broken rules of each row that breaks some."""
        engine = self.engine
        rows = torch.cat([trial.rows for trial in trials])
        of_row = torch.cat([torch.full_like(trial.rows, i) for i, trial in enumerate(trials)])
        x, targets, frame, _ = self.request.part(rows)
        task = engine.task(
            x,
            targets,
            frame=frame,
            without_rules=frozenset[int]().union(*(trial.immutable for trial in trials)),
            scores=row_scores(engine.plausibility, x, targets.y, with_margin=False),
            allowance=Allowance.join([trial.allowance for trial in trials]),
        )
        # Without one rule, an answer proves the same wherever it is; without several, it should break few.
        strategy = engine.strategy.prover(far=all(len(trial.items) == 1 for trial in trials))
        bank = engine.wider_bank or engine.bank
        found: Candidates = strategy.run(task, bank, keep=max(2, strategy.finalists))
        items = frozenset[int]().union(*(trial.items for trial in trials))
        names = {LOCKED if item == _LOCK else str(engine.rules.constraints[item]): item for item in items}
        verified = verify_candidates(engine, self.encoder, self.request, found, rows, frozenset(names))
        answers, breaks = verified.answers, verified.broken.to_numpy(bool)
        trial_of = of_row[found.rows[verified.candidate]]
        numbers = [names[str(name)] for name in verified.broken.columns]
        own = np.array([[item in trial.items for item in numbers] for trial in trials])
        counts = torch.tensor(breaks.sum(axis=1).tolist())
        within = torch.from_numpy(~(breaks & ~own[trial_of.numpy()]).any(axis=1))
        usable = ((answers.score >= 0) & within).nonzero()[:, 0]
        key = trial_of * len(self.request.frame) + answers.of
        best = usable[cheapest(key[usable], (counts * 1e6 + answers.cost)[usable], 1)]
        self.recovered.append(answers.select(best[counts[best] == 0]))
        for place in best[counts[best] > 0].tolist():
            items = frozenset(numbers[j] for j in breaks[place].nonzero()[0].tolist())
            yield trials[int(trial_of[place])].number, int(answers.of[place]), items


@dataclass(frozen=True, eq=False)
class _RuleTrial:
    """Rows to be searched without some rules.

    Attributes:
        number: Its position among the trials.
        rows: Rows of the request, shape ``(n,)``.
        items: The rules that do not apply.
        allowance: What the others allow these rows.
        immutable: Which of them keep features for every row.
        moving: Columns of the numbers that these rules would keep.
    """

    number: int
    rows: Tensor
    items: Items
    allowance: Allowance
    immutable: Items
    moving: frozenset[int]

    @classmethod
    def of(
        cls, engine: Engine, request: SearchRequest, number: int, rows: Tensor, items: Items
    ) -> _RuleTrial:
        x, _, frame, locked = request.part(rows)
        rules = engine.rules.constraints
        allowance = engine.rules.for_rows(x, frame, None if _LOCK in items else locked, items - {_LOCK})
        kept = {i: rule for i in items - {_LOCK} if isinstance(rule := rules[i], Immutable)}
        names = {name for rule in kept.values() for name in rule.features}
        blocks = [block for block in engine.rules.layout.blocks if block.name in names]
        moving = frozenset(block.number for block in blocks if block.number is not None)
        return cls(number, rows, items, allowance, frozenset(kept), moving)

    def joins(self, other: _RuleTrial) -> bool:
        """Whether both can be searched at once."""
        return self.moving == other.moving and self.allowance.joins(other.allowance)


def _describe(blocking: list[Items], trials: _Trials, lack: float | None) -> str:
    """Return the reason of one row as a text."""
    singles = sorted({item for items in blocking if len(items) == 1 for item in items})
    singles = [*(i for i in singles if i != _LOCK), *(i for i in singles if i == _LOCK)]
    if singles:
        many = "each of " if len(singles) > 1 else ""
        return f"{many}{', '.join(map(trials.name, singles))} blocks: without it there is an answer"
    if blocking:
        names = [trials.name(item) for item in sorted(blocking[0], key=lambda item: (item == _LOCK, item))]
        return f"{', '.join(names[:-1])} and {names[-1]} block together: without them there is an answer"
    if lack is not None:
        return describe_lack(lack)
    return "no allowed row was found that the model decides as wanted"
