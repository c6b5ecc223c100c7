"""Learn numbers that are a function of one other: its square or its logarithm, such as age and age squared.

Tables of statistics have them beside what they are computed from, sometimes divided by a power of ten. The
test is that of products: a few rows rule most pairs of columns out, hardly any row may break the rule, and
shuffling either column must break it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from plausiflow.constraints.computed import Computed
from plausiflow.constraints.formulas import FUNCTIONS, Operation, computed
from plausiflow.constraints.learned import LearnedRule
from plausiflow.tables import EXCEPTIONS, Evidence, Feature, FloatArray

FEW, LEAST, FEWEST, SHUFFLES = 24, 12, 30, 5
LARGEST_POWER, NEAR = 4, 1e-3
SINGLE = 2e-7
"""Rounding of numbers without a grid, as a share of the largest: they may have been in single precision."""


def learn_functions(
    features: Mapping[str, Feature],
    values: FloatArray,
    names: Sequence[str],
    evidence: Evidence,
    random_state: int = 0,
) -> list[LearnedRule]:
    """Return the rules about numbers that are a function of one other; arguments as for products."""
    if len(names) < 2 or len(values) < FEWEST:
        return []
    generator = np.random.default_rng(random_state)
    few = values[generator.permutation(len(values))[:FEW]]
    rules = []
    for k in (k for k, name in enumerate(names) if features[name].is_number):
        known = np.abs(values[np.isfinite(values[:, k]), k])
        step = features[names[k]].step
        room = 1.001 * step / 2 if step else SINGLE * float(known.max(initial=0.0))
        for i, operation, factor in _likely(few, k, room):
            found = _tested(values[:, [k, i]], operation, factor, room, evidence, generator)
            if found is not None:
                rule = Computed(names[k], names[i], operation, names[i], factor=factor, tolerance=room)
                rules.append(LearnedRule(rule, len(values), *found))
                break
    return rules


def _likely(few: FloatArray, k: int, room: float) -> Iterator[tuple[int, Operation, float]]:
    """Yield the columns, functions and powers of ten that a few rows do not refute for column k."""
    target = few[:, k]
    for operation in FUNCTIONS:
        result = computed(operation, few, few)
        for i in (i for i in range(few.shape[1]) if i != k):
            known = np.isfinite(result[:, i]) & np.isfinite(target) & (result[:, i] != 0) & (target != 0)
            if known.sum() < LEAST or len(np.unique(few[known, i])) < 4:
                continue
            ratio = float(np.median(target[known] / result[known, i]))
            power = np.log10(ratio) if ratio > 0 else np.inf
            if not abs(power) <= LARGEST_POWER + NEAR:
                continue
            factor = float(10.0 ** np.rint(power))
            if (np.abs(target[known] - factor * result[known, i]) > room).sum() <= 1:
                yield i, operation, factor


def _tested(
    parts: FloatArray,
    operation: Operation,
    factor: float,
    room: float,
    evidence: Evidence,
    generator: np.random.Generator,
) -> tuple[int, int] | None:
    """Return how many rows a rule is about and how many break it; None if it is not accepted."""
    result = factor * computed(operation, parts[:, 1], parts[:, 1])
    known = np.isfinite(parts).all(axis=1) & np.isfinite(result)
    total, result = parts[known, 0], result[known]
    if len(total) < FEWEST:
        return None
    slack = room + 1e-12 * np.abs(result)
    broken = int((np.abs(total - result) > slack).sum())
    if broken > EXCEPTIONS * len(total):
        return None
    shares = [(np.abs(generator.permutation(total) - result) > slack).mean() for _ in range(SHUFFLES)]
    accepted = evidence.accepts(broken, len(total), float(np.mean(shares))).all()
    return (len(total), broken) if accepted else None
