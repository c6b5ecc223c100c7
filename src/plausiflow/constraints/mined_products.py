"""Learn numbers that are the product or the ratio of two others, such as price times quantity.

The result may be rounded to its grid and multiplied by a power of ten, as percentages are. A few rows rule
most triples of columns out. The test of the rest is that of an equality: every column must matter, so
shuffling any one of them must break the rule in the way that a wrong rule would. Of several forms of one
rule, such as ``a = b * c`` and ``b = a / c``, the one that leaves less room is learned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import numpy as np

from plausiflow.constraints.computed import Computed
from plausiflow.constraints.learned import LearnedRule
from plausiflow.tables import EXCEPTIONS, Evidence, Feature, FloatArray, Mask

MOST_COLUMNS = 100
"""Numbers that products are tried for, so that the work is bounded; none are tried for more."""
FEW, LEAST, FEWEST = 24, 12, 30
LARGEST_POWER, NEAR = 3, 0.05
SHUFFLES = 5


def learn_products(
    features: Mapping[str, Feature],
    values: FloatArray,
    names: Sequence[str],
    evidence: Evidence,
    random_state: int = 0,
) -> list[LearnedRule]:
    """Return the rules about products and ratios.

    Args:
        features: Features of the table, by name.
        values: Their values, NaN if missing, shape ``(n, columns)``.
        names: Names of the columns.
        evidence: The test of a rule.
        random_state: Seed of samples of rows.
    """
    if not 3 <= len(names) <= MOST_COLUMNS or len(values) < FEWEST:
        return []
    generator = np.random.default_rng(random_state)
    few = values[generator.permutation(len(values))[:FEW]]
    candidates = []
    for k, name in enumerate(names):
        if features[name].is_number:
            known = values[np.isfinite(values[:, k]), k]
            room = _room(features[name], known)
            share = room / (np.ptp(known) or 1.0)
            candidates += [(share, k, room, *form) for form in _likely(few, k, room)]
    rules: list[LearnedRule] = []
    done: list[set[int]] = []
    for _, k, room, i, j, factor, divided in sorted(candidates):
        if {k, i, j} in done:
            continue
        found = _tested(values[:, [k, i, j]], factor, divided, room, evidence, generator)
        if found is not None:
            operation: Literal["*", "/"] = "/" if divided else "*"
            rule = Computed(names[k], names[i], operation, names[j], factor=factor, tolerance=room)
            rules.append(LearnedRule(rule, len(values), *found))
            done.append({k, i, j})
    return rules


def _room(feature: Feature, values: FloatArray) -> float:
    """Return by how much a number with these values may differ from what it is computed from."""
    return 1.001 * feature.step / 2 if feature.step else 1e-9 * float(np.abs(values).max(initial=0.0))


def _likely(few: FloatArray, k: int, room: float) -> Iterator[tuple[int, int, float, bool]]:
    """Yield factors or numerator and denominator, power of ten and kind of what a few rows do not refute."""
    n, target = few.shape[1], few[:, [k]]
    for divided in (False, True):
        first, second = np.nonzero(~np.eye(n, dtype=bool)) if divided else np.triu_indices(n, 1)
        with np.errstate(all="ignore"):
            product = few[:, first] / few[:, second] if divided else few[:, first] * few[:, second]
            known = np.isfinite(product) & np.isfinite(target) & (product != 0) & (target != 0)
        kept = np.flatnonzero((known.sum(axis=0) >= LEAST) & (first != k) & (second != k))
        product, known = product[:, kept], known[:, kept]
        ratio = np.divide(target, product, out=np.full_like(product, np.nan), where=known)
        power = np.log10(np.nanmedian(np.abs(ratio), axis=0)) if len(kept) else np.zeros(0)
        whole = np.rint(power)
        with np.errstate(all="ignore"):
            wrong = (np.abs(target - 10.0**whole * product) > room).sum(axis=0)  # NaN is not wrong
        likely = (wrong <= 1) & (np.abs(whole) <= LARGEST_POWER) & (np.abs(power - whole) <= NEAR)
        for p in np.flatnonzero(likely).tolist():
            yield int(first[kept[p]]), int(second[kept[p]]), float(10.0 ** whole[p]), divided


def _tested(
    parts: FloatArray,
    factor: float,
    divided: bool,
    room: float,
    evidence: Evidence,
    generator: np.random.Generator,
) -> tuple[int, int] | None:
    """Return how many rows a rule is about and how many break it; None if it is not accepted."""
    known = np.isfinite(parts).all(axis=1)
    rows = parts[known]
    if len(rows) < FEWEST or (divided and (rows[:, 2] == 0).any()):
        return None
    broken = int(_misses(rows, factor, divided, room).sum())
    if broken > EXCEPTIONS * len(rows):
        return None
    for column in range(3):
        shares = []
        for _ in range(SHUFFLES):
            other = rows.copy()
            other[:, column] = generator.permutation(rows[:, column])
            shares.append(_misses(other, factor, divided, room).mean())
        if not evidence.accepts(broken, len(rows), float(np.mean(shares))).all():
            return None
    return len(rows), broken


def _misses(rows: FloatArray, factor: float, divided: bool, room: float) -> Mask:
    product = factor * (rows[:, 1] / rows[:, 2] if divided else rows[:, 1] * rows[:, 2])
    return np.asarray(np.abs(rows[:, 0] - product) > room + 1e-12 * np.abs(product))
