r"""The statistical test of rules that are learned from a table.

A rule names rows that should not exist. If its columns were independent, some number :math:`e` of such rows
would be expected among :math:`n`; :math:`v` are observed. The rule is accepted if all of these hold:

- at most one in 2,000 of the rows that the rule is about break it (none, if there are fewer);
- a binomial test refutes independence: :math:`P(V \le v) \le \alpha / T` for :math:`V \sim B(n, e / n)`, with
  :math:`\alpha = 0.05` for all :math:`T` rules that were tried together (Bonferroni);
- rows that break it are at least ten times rarer than under independence: the 95 % upper limit of the Poisson
  mean given :math:`v` is at most :math:`e / 10`. Without exceptions this needs :math:`e \ge 30`.

In a table of independently shuffled columns the counts are hypergeometric, whose tail is lighter than the
binomial one, so the chance of any false rule is at most 5 %.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom, chi2

from plausiflow.tables.cells import IntArray, Mask
from plausiflow.tables.grids import FloatArray

FAMILY_ERROR = 0.05
EXCEPTIONS = 1 / 2000
"""Tolerated share of exceptions: data errors occur, and a rule that one in a thousand rows breaks is none."""
RARER, CONFIDENCE = 10.0, 0.95
FEWEST_ROWS = 30
"""No rule about fewer rows is accepted: without exceptions, 95 % confidence needs 30 expected ones."""
RARELY, SELDOM = 2, 1 / 1000
"""How many rows a near miss may lack to be a rule, and the share of rows that near misses may have."""
MOST_NEAR = 2000
"""Near misses that are looked at, the strongest first."""


@dataclass(frozen=True)
class Evidence:
    """The test with its correction for the number of rules that are tried."""

    n_tests: int

    def accepts(
        self, broken: ArrayLike, about: ArrayLike, chance: ArrayLike, trials: ArrayLike | None = None
    ) -> Mask:
        """Return which rules are accepted.

        Args:
            broken: Number of rows that break each rule.
            about: Number of rows that each rule is about.
            chance: Chance that such a row breaks it under independence.
            trials: Number of independent trials, if it is not ``about``.
        """
        counts = about if trials is None else trials
        arrays = [np.asarray(value, dtype=np.float64) for value in (broken, about, chance, counts)]
        observed, rows, share, tried = np.broadcast_arrays(*arrays)
        expected = tried * share
        likely = (observed <= EXCEPTIONS * rows) & (expected >= RARER * 2.9)
        accepted = np.zeros(expected.shape, dtype=bool)
        v, n, q, e = observed[likely], tried[likely], share[likely], expected[likely]
        limit = chi2.ppf(CONFIDENCE, 2 * (v + 1)) / 2
        rare = binom.cdf(v, n, np.clip(q, 0, 1)) <= FAMILY_ERROR / max(1, self.n_tests)
        accepted[likely] = rare & (limit <= e / RARER)
        return accepted

    def misses(
        self, broken: ArrayLike, about: ArrayLike, chance: ArrayLike, trials: ArrayLike | None = None
    ) -> Mask:
        """Return which rules are near misses: accepted if one or two of the rows that break them were not."""
        without = np.maximum(np.asarray(broken) - RARELY, 0)
        nearly = self.accepts(without, about, chance, trials)
        return np.asarray(nearly & ~self.accepts(broken, about, chance, trials))


def least_expected(n: int, expected: FloatArray, rows_of: Callable[[int], IntArray]) -> float:
    """Return how many rows that break a rule must be expected, so that few further rows do.

    Args:
        n: Number of rows.
        expected: Number of rows that are expected to break each near miss if columns were independent.
        rows_of: The rows that break a near miss.
    """
    allowed, seen = max(1, int(SELDOM * n)), set[int]()
    order = np.argsort(-expected, kind="stable").tolist()
    for k in order[:MOST_NEAR]:
        seen.update(rows_of(k).tolist())
        if len(seen) > allowed:
            return float(np.nextafter(expected[k], np.inf))
    return float(np.nextafter(expected[order[MOST_NEAR]], np.inf)) if len(order) > MOST_NEAR else 0.0
