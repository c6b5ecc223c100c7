r"""Learn which states of columns go together: implications, pairs that never occur, hierarchies.

States are the levels of categories, the special values of numbers, "any other number" and "missing". One
sparse product of the one-hot states counts all pairs at once, of the 2,000 most common states if there are
more, so that the work is bounded. :mod:`plausiflow.tables.evidence` has the
test of a rule.

A pair of states that no row has is *unseen* even if it is no rule. If the columns were independent, with
:math:`e` rows expected, no row would have the pair with probability :math:`(1 - e / n)^n \le \exp(-e)`. Pairs
are tried from the largest e on, which the counts of each column settle, as long as these probabilities add up
to at most :math:`\alpha = 0.05`: this is Bonferroni's correction, so the chance of any pair that is unseen by
chance alone is at most 5 %. With one pair, e must be at least 3; with a thousand of about equal size, 10.

Columns that depend on each other make pairs rare without making them impossible. By Good and Turing, the
share of further rows with an unseen pair is about that of the rows with a pair that occurs once. So the pairs
end where more than one row in a thousand has a pair that occurs once or twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy import sparse

from plausiflow.constraints.clauses import FREE, State, feature_states, special_values
from plausiflow.constraints.grammar import MAX_LENGTH, RESERVED
from plausiflow.constraints.implies import Implies
from plausiflow.constraints.known_pairs import Determines, NeverTogether, Pair
from plausiflow.constraints.learned import LearnedRule
from plausiflow.constraints.rule import Rule
from plausiflow.tables import (
    FAMILY_ERROR,
    SELDOM,
    Evidence,
    Feature,
    FloatArray,
    IntArray,
    Layout,
    Mask,
    least_expected,
)

MOST_STATES = 2000
RARELY = 2
"""How many more rows than tolerated have a rare pair at most."""
SAMPLED, LIKELY = 1000, 0.005
"""Pairs of rows of one level that are compared first, and the share that may differ in the other feature."""
_PLAIN_NAME = re.compile(r"[^\W\d][\w.]*")


@dataclass
class StateMiner:
    """Counts of pairs of states, and the rules that are learned from them.

    Attributes:
        layout: Layout of encoded rows.
        features: Features of the table, by name.
        codes: The levels of the training rows, shape ``(n, blocks with levels)``.
        evidence: The test of a rule.
    """

    layout: Layout
    features: Mapping[str, Feature]
    codes: IntArray
    evidence: Evidence
    rules: list[LearnedRule] = field(default_factory=list)

    @cached_property
    def n(self) -> int:
        """Number of rows."""
        return len(self.codes)

    @cached_property
    def firsts(self) -> IntArray:
        """Number of states before each block, over all states, shape ``(blocks + 1,)``."""
        return np.cumsum([0, *(len(block.levels) for block in self.layout.with_levels)])

    @cached_property
    def kept(self) -> IntArray:
        """Which states are counted, ascending: those that occur, at most the 2,000 most common ones."""
        totals = np.bincount((self.codes + self.firsts[:-1]).ravel(), minlength=int(self.firsts[-1]))
        order = np.argsort(-totals, kind="stable")[: min(MOST_STATES, int((totals > 0).sum()))]
        return np.sort(order)

    @cached_property
    def starts(self) -> IntArray:
        """Number of counted states before each block, shape ``(blocks + 1,)``."""
        return np.searchsorted(self.kept, self.firsts)

    @cached_property
    def block_of(self) -> IntArray:
        """The block of each counted state."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    @cached_property
    def counts(self) -> FloatArray:
        """Rows with each pair of states, shape ``(states, states)``."""
        places = np.full(int(self.firsts[-1]), -1)
        places[self.kept] = np.arange(len(self.kept))
        at = places[self.codes + self.firsts[:-1]]
        ends = np.append(0, np.cumsum((at >= 0).sum(axis=1)))
        columns = at[at >= 0]
        shape = (self.n, len(self.kept))
        one_hot = sparse.csr_matrix((np.ones(len(columns)), columns, ends), shape=shape)
        return np.asarray((one_hot.T @ one_hot).toarray(), dtype=np.float64)

    @cached_property
    def totals(self) -> FloatArray:
        """Rows with each state."""
        return np.diag(self.counts).copy()

    @cached_property
    def apart(self) -> Mask:
        """Pairs of states of different features."""
        return np.asarray(self.block_of[:, None] != self.block_of[None])

    @cached_property
    def covered(self) -> Mask:
        """Pairs that the rules so far forbid."""
        return np.zeros_like(self.apart)

    def run(self) -> list[LearnedRule]:
        """Return the rules, those with most support first of each form."""
        if not len(self.layout.with_levels):
            return []
        self._hierarchies()
        implied = self._accepted_implications()
        self._implications(implied)
        self._never(implied)
        self._unseen()
        return self.rules

    def _hierarchies(self) -> None:
        """Learn which categories determine others."""
        found, near = [], []
        for i, j in self._likely_hierarchies():
            part = self._part_of(i, j)
            images = np.where(part.any(axis=1), part.argmax(axis=1), -1)
            differ = 1 - ((part.sum(axis=0) / self.n) ** 2).sum()
            broken, trials = self.n - part.max(axis=1).sum(), self.n - np.count_nonzero(images >= 0)
            if self.evidence.accepts(broken, self.n, differ, trials).all():
                found.append((i, j, images, int(broken), trials * differ))
            elif self.evidence.misses(broken, self.n, differ, trials).all():
                near.append((i, j, images, trials * differ))
        sizes = np.array([size for *_, size in near])
        least = least_expected(self.n, sizes, lambda k: self._rows_apart(*near[k][:3]))
        for i, j, images, broken, size in found:
            if size >= least:
                self._add_hierarchy(i, j, images, broken)

    def _rows_apart(self, i: int, j: int, images: IntArray) -> IntArray:
        """Return the rows whose level of a block does not go with that of another."""
        return np.flatnonzero(images[self.codes[:, i]] != self.codes[:, j])

    def _part_of(self, i: int, j: int) -> IntArray:
        """Return the number of rows with each pair of levels of two blocks."""
        shape = tuple(len(self.layout.with_levels[k].levels) for k in (i, j))
        pairs = self.codes[:, i] * shape[1] + self.codes[:, j]
        return np.bincount(pairs, minlength=shape[0] * shape[1]).reshape(shape)

    def _likely_hierarchies(self) -> Iterator[tuple[int, int]]:
        """Return pairs of categories the first of which may determine the second."""
        blocks = self.layout.with_levels
        for i, first in enumerate(blocks):
            if len(first.levels) < 3 or first.number is not None:
                continue
            if len(np.unique(self.codes[:, i])) == self.n:
                continue
            for j in self._likely_determined(i):
                if j != i and blocks[j].number is None:
                    yield i, j

    def _likely_determined(self, i: int) -> list[int]:
        """Return the blocks that rows of one level of a block share, by a sample of pairs of rows.

        A single row may differ from those before and after it.
        """
        order = np.argsort(self.codes[:, i], kind="stable")
        alike = np.flatnonzero(np.diff(self.codes[order, i]) == 0)
        some = alike[:: max(1, len(alike) // SAMPLED)]
        differ = (self.codes[order[some]] != self.codes[order[some + 1]]).sum(axis=0)
        return np.flatnonzero((differ <= LIKELY * len(some) + 2) & (len(some) > 0)).tolist()

    def _add_hierarchy(self, i: int, j: int, images: IntArray, broken: int) -> None:
        first, second = (self.layout.with_levels[k] for k in (i, j))
        known = np.flatnonzero(images >= 0).tolist()
        levels = tuple((self._state_of(i, c), self._state_of(j, int(images[c]))) for c in known)
        for a in range(int(self.starts[i]), int(self.starts[i + 1])):
            image = images[self.kept[a] - self.firsts[i]] + self.firsts[j]
            others = np.arange(self.starts[j], self.starts[j + 1])
            self._cover(a, others[self.kept[others] != image])
        self._learn(Determines(first.name, second.name, levels), self.n, broken)

    def _accepted_implications(self) -> Mask:
        """Return ``[a, b]``: whether state a implies state b."""
        broken = self.totals[:, None] - self.counts
        chance = 1 - self.totals[None] / self.n
        about, expected = self.totals[:, None], self.totals[:, None] * chance
        near = self.apart & self.evidence.misses(broken, about, chance)
        least = self._least(near, expected, lambda a, b: self._has(a) & ~self._has(b))
        return self.apart & self.evidence.accepts(broken, about, chance) & (expected >= least)

    def _has(self, a: int) -> Mask:
        """Return which rows have a state."""
        j = int(self.block_of[a])
        return np.asarray(self.codes[:, j] == self.kept[a] - self.firsts[j])

    def _least(self, near: Mask, expected: FloatArray, breaks: Callable[[int, int], Mask]) -> float:
        """Return the number of expected rows above which near misses have few rows."""
        pairs = np.argwhere(near)
        sizes = expected[pairs[:, 0], pairs[:, 1]]
        return least_expected(self.n, sizes, lambda k: np.flatnonzero(breaks(*pairs[k].tolist())))

    def _implications(self, implied: Mask) -> None:
        """Learn the implications that do not follow from others; states that imply each other are one."""
        same = implied & implied.T
        leader = np.where(same.any(axis=1), np.minimum(same.argmax(axis=1), np.arange(len(same))), -1)
        leader = np.where(leader < 0, np.arange(len(same)), leader)
        for follower in np.flatnonzero(leader != np.arange(len(same))).tolist():
            first = int(leader[follower])
            if self._is_new(first, follower) or self._is_new(follower, first):
                self._imply(first, follower, both_ways=True)
        heads = leader == np.arange(len(same))
        core = implied & ~same & heads[:, None] & heads[None]
        follows = _chained(core, core)
        chosen = np.argwhere(core & ~follows)
        for a, b in sorted(chosen.tolist(), key=lambda pair: -self.totals[pair[0]]):
            if self._is_new(a, b):
                self._imply(a, b)

    def _is_new(self, a: int, b: int) -> bool:
        """Whether the implication forbids a pair that is not forbidden yet."""
        others = self._others(b)
        return not self.covered[a, others].all()

    def _imply(self, a: int, b: int, *, both_ways: bool = False) -> None:
        texts = self._condition(a), self._condition(b)
        broken = int(self.totals[a] - self.counts[a, b])
        support = int(self.totals[a])
        self._cover(a, self._others(b))
        if both_ways:
            broken += int(self.totals[b] - self.counts[a, b])
            support = int(self.totals[a] + self.totals[b] - self.counts[a, b])
            self._cover(b, self._others(a))
        rule: Rule
        if texts[0] is not None and texts[1] is not None:
            rule = Implies(texts[0], texts[1], both_ways)
        else:
            sides = [(a, b), *([(b, a)] if both_ways else [])]
            rule = NeverTogether(tuple(pair for s, t in sides for pair in self._pairs_with_others(s, t)))
        self._learn(rule, support, broken)

    def _never(self, implied: Mask) -> None:
        expected = self.totals[:, None] * self.totals[None] / self.n
        about = np.minimum(self.totals[:, None], self.totals[None])
        chance = np.divide(expected, about, out=np.zeros_like(expected), where=about > 0)
        near = np.triu(self.apart & ~self.covered) & self.evidence.misses(
            self.counts, about, chance, fewer=RARELY
        )
        least = self._least(near, expected, lambda a, b: self._has(a) & self._has(b))
        never = self.apart & ~self.covered & (expected >= least)
        never &= self.evidence.accepts(self.counts, about, chance)
        chained = _chained(implied, never)
        never &= np.asarray(~(chained | chained.T))
        while never.any():
            sizes = np.stack(
                [never[:, self._part(j)].sum(axis=1) for j in range(len(self.starts) - 1)], axis=1
            )
            a, j = np.unravel_index(int(sizes.argmax()), sizes.shape)
            others = self.starts[j] + np.flatnonzero(never[a, self._part(int(j))])
            self._forbid(int(a), others)
            never[a, others] = never[others, a] = False

    def _forbid(self, a: int, others: IntArray) -> None:
        self._cover(a, others)
        first, second = self._condition(a), self._not_in(others)
        rule: Rule = NeverTogether(tuple(self._pair(a, b) for b in others.tolist()))
        if first is not None and second is not None:
            rule = Implies(first, second)
        self._learn(rule, int(self.totals[a]), int(self.counts[a, others].sum()))

    def _unseen(self) -> None:
        expected = np.triu(self.totals[:, None] * self.totals[None] / self.n) * self.apart
        sizes = np.sort(expected[expected > 0])[::-1]
        least = sizes[np.cumsum(np.exp(-sizes)) <= FAMILY_ERROR].min(initial=np.inf)
        rare = (self.counts > 0) & (self.counts <= RARELY) & (expected >= least) & ~self.covered
        rare_sizes, allowed = np.sort(expected[rare])[::-1], int(SELDOM * self.n)
        if len(rare_sizes) > allowed:
            least = np.nextafter(rare_sizes[allowed], np.inf)
        unseen = (self.counts == 0) & (expected >= least) & ~self.covered
        pairs = tuple(self._pair(a, b) for a, b in np.argwhere(unseen).tolist())
        if pairs:
            self._learn(NeverTogether(pairs), self.n, 0)

    def _learn(self, rule: Rule, support: int, broken: int) -> None:
        self.rules.append(LearnedRule(rule, self.n, support, broken))

    def _cover(self, a: int, others: IntArray) -> None:
        self.covered[a, others] = self.covered[others, a] = True

    def _part(self, j: int) -> slice:
        return slice(int(self.starts[j]), int(self.starts[j + 1]))

    def _others(self, b: int) -> IntArray:
        """Return the other counted states of the same feature."""
        part = np.flatnonzero(self.block_of == self.block_of[b])
        return np.asarray(part[part != b])

    def _pairs_with_others(self, a: int, b: int) -> list[Pair]:
        """Return state a with every state of the feature of b that occurs, except b."""
        j = int(self.block_of[b])
        codes = np.setdiff1d(self.codes[:, j], self.kept[b] - self.firsts[j]).tolist()
        names = [self.layout.with_levels[k].name for k in (int(self.block_of[a]), j)]
        return [(names[0], self._state(a), names[1], self._state_of(j, code)) for code in codes]

    def _pair(self, a: int, b: int) -> Pair:
        blocks = self.layout.with_levels
        return (
            blocks[self.block_of[a]].name, self._state(a), blocks[self.block_of[b]].name, self._state(b)
        )  # fmt: skip

    def _state(self, a: int) -> State:
        j = int(self.block_of[a])
        return self._state_of(j, int(self.kept[a] - self.firsts[j]))

    def _state_of(self, j: int, code: int) -> State:
        block = self.layout.with_levels[j]
        return None if block.closed[code] else feature_states(self.features[block.name])[code]

    def _condition(self, a: int) -> str | None:
        """Return a state as a condition; None if the grammar has no words for it."""
        feature, state = self.features[self.layout.with_levels[self.block_of[a]].name], self._state(a)
        name = quoted_name(feature.name)
        if name is None:
            return None
        if state is None:
            return f"{name} is missing"
        if feature.is_number and state == FREE:
            special = special_values(feature)
            return f"{name} not in {_listed(special)}" if len(special) > 1 else (
                f"{name} != {_value(special[0])}" if special else f"{name} is not missing"
            )  # fmt: skip
        text = _value(state)
        return None if text is None else f"{name} == {text}"

    def _not_in(self, others: IntArray) -> str | None:
        feature = self.features[self.layout.with_levels[self.block_of[others[0]]].name]
        states, name = [self._state(b) for b in others.tolist()], quoted_name(feature.name)
        if name is None or None in states or (feature.is_number and FREE in states):
            return None
        texts = [_value(state) for state in states]
        if None in texts:
            return None
        text = f"{name} != {texts[0]}" if len(texts) == 1 else f"{name} not in [{', '.join(map(str, texts))}]"
        return text if len(text) <= MAX_LENGTH else None


def _chained(first: Mask, second: Mask) -> Mask:
    """Return ``[a, c]``: whether some b has ``first[a, b]`` and ``second[b, c]``."""
    middle = np.flatnonzero(first.any(axis=0) & second.any(axis=1))
    left, right = first[:, middle].astype(np.float32), second[middle].astype(np.float32)
    return np.asarray((left @ right) > 0)


def quoted_name(name: str) -> str | None:
    """Return a name as the grammar of rules reads it; None if it has a backtick."""
    if _PLAIN_NAME.fullmatch(name) and name not in RESERVED:
        return name
    return None if "`" in name or not name.strip() else f"`{name}`"


def _listed(values: tuple[State, ...]) -> str:
    return f"[{', '.join(str(_value(value)) for value in values)}]"


def _value(value: State) -> str | None:
    """Return a value as the grammar reads it; None for a text with both kinds of quotes."""
    if isinstance(value, str):
        quote = "'" if "'" not in value else '"'
        return None if quote in value else f"{quote}{value}{quote}"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return repr(value)
