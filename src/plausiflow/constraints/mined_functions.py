"""Learn numbers that are the logarithm of one other, such as log-wages.

Tables of statistics have them beside what they are computed from, sometimes times a power of ten. The test is
that of products: a few rows rule most pairs of columns out, hardly any row may break the rule, and shuffling
either column must break it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from plausiflow.constraints.computed import ROOM, Computed
from plausiflow.constraints.formulas import FUNCTIONS, Formula, Function
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
    """Return the rules about logarithms; arguments as for products."""
    if len(names) < 2 or len(values) < FEWEST:
        return []
    generator = np.random.default_rng(random_state)
    few = values[generator.permutation(len(values))[:FEW]]
    rules = []
    for k in (k for k, name in enumerate(names) if features[name].is_number):
        known = np.abs(values[np.isfinite(values[:, k]), k])
        step = features[names[k]].step
        tolerance = ROOM * step / 2 if step else SINGLE * float(known.max(initial=0.0))
        for i, formula in _likely(few, k, tolerance, names):
            found = _tested(values[:, [k, i]], formula, tolerance, evidence, generator)
            if found is not None:
                rules.append(
                    LearnedRule(Computed(names[k], formula.text, tolerance=tolerance), len(values), *found)
                )
                break
    return rules


def _likely(few: FloatArray, k: int, tolerance: float, names: Sequence[str]) -> Iterator[tuple[int, Formula]]:
    """Yield the columns and the formulas of them that a few rows do not refute for column k."""
    target = few[:, k]
    for function in FUNCTIONS:
        for i in (i for i in range(few.shape[1]) if i != k):
            result = _formula(names[i], function).of_arrays([few[:, i]])
            known = np.isfinite(result) & np.isfinite(target) & (result != 0) & (target != 0)
            if known.sum() < LEAST or len(np.unique(few[known, i])) < 4:
                continue
            ratio = float(np.median(target[known] / result[known]))
            power = np.log10(ratio) if ratio > 0 else np.inf
            if not abs(power) <= LARGEST_POWER + NEAR:
                continue
            factor = float(10.0 ** np.rint(power))
            if (np.abs(target[known] - factor * result[known]) > tolerance).sum() <= 1:
                yield i, _formula(names[i], function, factor)


def _formula(name: str, function: Function, factor: float = 1.0) -> Formula:
    return Formula(((name, 1.0),), factor, function=function)


def _tested(
    parts: FloatArray, formula: Formula, tolerance: float, evidence: Evidence, generator: np.random.Generator
) -> tuple[int, int] | None:
    """Return how many rows a rule is about and how many break it; None if it is not accepted."""
    result = formula.of_arrays([parts[:, 1]])
    known = np.isfinite(parts).all(axis=1) & np.isfinite(result)
    total, result = parts[known, 0], result[known]
    if len(total) < FEWEST:
        return None
    slack = tolerance + 1e-12 * np.abs(result)
    broken = int((np.abs(total - result) > slack).sum())
    if broken > EXCEPTIONS * len(total):
        return None
    shares = [(np.abs(generator.permutation(total) - result) > slack).mean() for _ in range(SHUFFLES)]
    accepted = evidence.accepts(broken, len(total), float(np.mean(shares))).all()
    return (len(total), broken) if accepted else None
