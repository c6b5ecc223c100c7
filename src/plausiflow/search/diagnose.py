"""Why a row has no answer: rules, locks or the density, each with an answer that proves it.

A rule is named only if a search without it finds a row that breaks this rule and nothing else: decoded,
decided as wanted by the user's own model, plausible, and within all other rules. If that row keeps the rule,
the search was at fault, and the row is the answer. If no single rule blocks, a search without all rules gives
a row that breaks a few of them; smaller sets among these are tried, and the smallest is named as a set. The
density is the reason only if a row without it is valid and allowed. The work is bounded: a few rows, rules
and searches, until the deadline. So a reason may be missing, but none is untrue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations

import torch
from torch import Tensor

from plausiflow.constraints import LOCKED, Price
from plausiflow.densities import row_scores
from plausiflow.search.answers import WITHOUT_MARGIN, Answers, verify_candidates
from plausiflow.search.candidates import Candidates, cheapest
from plausiflow.search.engine import Engine
from plausiflow.search.request import SearchRequest
from plausiflow.tables import Encoder

MOST_ROWS, MOST_RULES, MOST_SETS = 200, 12, 24
LOCKS = "the lock on some features"

Items = frozenset[int]
"""Rules by their number, and ``_LOCK`` for the features that a row keeps."""
_LOCK = -1


class AlwaysPlausible:
    """A plausibility that every row passes."""

    def score(self, x: Tensor, y: Tensor) -> Tensor:
        """Return one for every row, shape ``(n,)``."""
        return torch.ones_like(x[:, 0]) if x.shape[1] else x.new_ones(len(x))


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
        known: The number of a rule that is known to block a row, by row. No other reason is looked for.
    """
    known = known or {}
    near = find_misses(engine, encoder, request, rows)
    inside = near.score >= 0
    trials = _Trials(engine, encoder, request, recovered=[near.select(inside.nonzero()[:, 0])])
    misses = near.select((~inside).nonzero()[:, 0])
    settled = torch.cat([near.of[inside], torch.tensor(list(known), dtype=torch.long)])
    trials.blame(rows[~torch.isin(rows, settled)][:MOST_ROWS])
    trials.blocking |= {row: [frozenset([known[row]])] for row in rows.tolist() if row in known}
    answers = Answers.concat(encoder, request.frame, trials.recovered).unique(1)
    found, lacks = set(answers.of.tolist()), dict(zip(misses.of.tolist(), misses.score.tolist(), strict=True))
    reasons = {row: _describe(trials.blocking.get(row, []), trials, lacks.get(row)) for row in rows.tolist()}
    reasons |= dict.fromkeys(found, "")
    if request.second_opinion and found:
        x, targets, _, _ = request.part(answers.of)
        within = answers.score >= row_scores(engine.plausibility, x, targets.y).margin
        reasons |= dict.fromkeys(answers.of[~within].tolist(), WITHOUT_MARGIN)
    return Diagnosis(answers, misses.select((~torch.isin(misses.of, answers.of)).nonzero()[:, 0]), reasons)


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
    return f"{nearest} is {-score:.2f} below the plausibility threshold"


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
        widest: dict[int, Items] = {}
        if len(items) > 1:
            # A row that has no answer without any rule has none without one of them. What the others break
            # tells where to look first.
            widest = self._without(rows, frozenset(items))
            rows = torch.tensor(sorted(widest), dtype=torch.long)
        common = [item for item, _ in Counter(i for broken in widest.values() for i in broken).most_common()]
        locks = [item for item in items if item == _LOCK]
        tried = list(dict.fromkeys([*locks, *common, *items]))[: MOST_RULES + len(locks)]
        singles: dict[int, list[Items]] = {}
        for item in sorted(tried, key=items.index):
            for row, broken in self._without(self._open(rows), frozenset([item])).items():
                singles.setdefault(row, []).append(broken)
        widest = {row: broken for row, broken in widest.items() if row not in singles}
        self._shrink(widest)
        self.blocking = singles | {row: [broken] for row, broken in widest.items()}

    def _shrink(self, widest: dict[int, Items]) -> None:
        """Replace sets of rules that block together by smaller ones: pairs, triples, then one rule less."""
        for size in (2, 3):
            large = [broken for broken in widest.values() if len(broken) > size]
            for chosen in dict.fromkeys(c for broken in large for c in combinations(sorted(broken), size)):
                rows = [row for row, broken in widest.items() if len(broken) > size and {*chosen} < broken]
                self._replace(widest, rows, frozenset(chosen))
        for item in sorted({i for broken in widest.values() for i in broken if len(broken) > 3}):
            sets = {broken for broken in widest.values() if item in broken and len(broken) > 3}
            for broken in sorted(sets, key=sorted):
                rows = [row for row, own in widest.items() if own == broken]
                self._replace(widest, rows, broken - {item})

    def _replace(self, widest: dict[int, Items], rows: list[int], items: Items) -> None:
        if rows and self.searches < MOST_SETS:
            self.searches += 1
            widest.update(self._without(self._open(torch.tensor(rows)), items))

    def _open(self, rows: Tensor) -> Tensor:
        """Return the rows that have no answer yet."""
        found = torch.cat([part.of for part in self.recovered])
        return rows[~torch.isin(rows, found)]

    def _without(self, rows: Tensor, items: Items) -> dict[int, Items]:
        """Search rows without some rules; return what the verified rows break, by row.

        A row that breaks none of them is an answer.
        """
        if len(rows) == 0 or self.request.late:
            return {}
        engine, (x, targets, frame, locked) = self.engine, self.request.part(rows)
        task = engine.task(
            x,
            targets,
            frame=frame,
            locked=None if _LOCK in items else locked,
            without_rules=items - {_LOCK},
            scores=row_scores(engine.plausibility, x, targets.y, with_margin=False),
        )
        strategy, bank = engine.strategy.lighter(), engine.wider_bank or engine.bank
        found: Candidates = strategy.run(task, bank, keep=max(2, strategy.finalists))
        names = {LOCKED if item == _LOCK else str(engine.rules.constraints[item]): item for item in items}
        verified = verify_candidates(engine, self.encoder, self.request, found, rows, frozenset(names))
        answers, counts = verified.answers, torch.tensor(verified.broken.sum(axis=1).tolist())
        rank = counts * 1e6 + answers.cost
        plausible = (answers.score >= 0).nonzero()[:, 0]
        best = plausible[cheapest(answers.of[plausible], rank[plausible], 1)]
        kept = best[counts[best] == 0]
        self.recovered.append(answers.select(kept))
        broken: dict[int, Items] = {}
        for place, row in zip(best.tolist(), answers.of[best].tolist(), strict=True):
            own = verified.broken.iloc[place]
            if own.any():
                broken[row] = frozenset(names[str(name)] for name in own.index[own])
        return broken


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
