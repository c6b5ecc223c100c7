r"""The statistical test of rules that are learned from a table.

A rule names rows that should not exist. If its columns were independent, some number :math:`e` of such rows
would be expected among :math:`n`; :math:`v` are observed. The rule is accepted if all of these hold:

- at most one in 2,000 of the rows that the rule is about break it (none, if there are fewer);
- a binomial test refutes independence: :math:`P(V \le v) \le \alpha / T` for :math:`V \sim B(n, e / n)`, with
  :math:`\alpha = 0.05` for all :math:`T` rules that were tried together (Bonferroni);
- rows that break it are at least ten times rarer than under independence: the 95 % upper limit of the Poisson
  mean given :math:`v` is at most :math:`e / 10`. Without exceptions this needs :math:`e \ge 30`.

Columns that depend on each other without logic also show rules that no row breaks, or one. A rule that is not
accepted, but would be without one of the rows that break it, is a *near miss*: learned from the other rows,
it would have met a row that breaks it. So the share of rows that break near misses is the leave-one-out
estimate of the share of further rows that break a learned rule (Good and Turing). Of each form of rule, at
most one row in a thousand, or one row, may break near misses with the same e or more; where more do, a rule
needs a larger e. Pairs of states are near misses without one or two of their rows.

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
SELDOM = 1 / 1000
"""Share of rows that may break a near miss that is as strong as a rule."""
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
        self,
        broken: ArrayLike,
        about: ArrayLike,
        chance: ArrayLike,
        trials: ArrayLike | None = None,
        *,
        fewer: int = 1,
    ) -> Mask:
        """Return which rules are near misses: not accepted, but accepted with fewer exceptions.

        Args:
            broken: Number of rows that break each rule.
            about: Number of rows that each rule is about.
            chance: Chance that such a row breaks it under independence.
            trials: Number of independent trials, if it is not ``about``.
            fewer: How many exceptions less are enough.
        """
        counts = about if trials is None else trials
        arrays = [np.asarray(value, dtype=np.float64) for value in (broken, about, chance, counts)]
        observed, rows, share, tried = np.broadcast_arrays(*arrays)
        some = (observed > 0) & (observed <= EXCEPTIONS * rows + fewer) & (tried * share >= RARER)
        near = np.zeros(observed.shape, dtype=bool)
        v, *rest = observed[some], rows[some], share[some], tried[some]
        near[some] = self.accepts(np.maximum(v - fewer, 0), *rest) & ~self.accepts(v, *rest)
        return near


def least_expected(n: int, expected: FloatArray, rows_of: Callable[[int], IntArray]) -> float:
    """Return how many rows a rule needs to expect, so that few rows break near misses that expect as many.

    Args:
        n: Number of rows.
        expected: Number of rows that would break each near miss if columns were independent.
        rows_of: The rows that break a near miss, by its place in ``expected``.

    Example:
        >>> least_expected(2000, np.array([40.0, 90.0, 60.0]), lambda k: np.array([2 * k, 2 * k + 1]))
        60.00000000000001
    """
    allowed, seen = max(1, int(SELDOM * n)), set[int]()
    for tried, k in enumerate(np.argsort(-expected, kind="stable").tolist()):
        seen.update(rows_of(k).tolist())
        if len(seen) > allowed or tried == MOST_NEAR:
            return float(np.nextafter(expected[k], np.inf))
    return 0.0
