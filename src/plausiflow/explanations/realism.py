r"""Judges of another kind: counterfactuals compared with real rows, on the table and without a density.

The densities and their judges see encoded rows. What the encoding hides, none of them sees. These three read
cells as people see them:

- **Neighbours.** Gower's distance of two rows is the mean over features of :math:`|a - b| / \text{range}` for
  numbers and ordered levels, and of :math:`a \ne b` for other levels. A row is an outlier if its fifth
  nearest real row of the target outcome is farther than that of 95 % of these real rows, each without itself.
- **Two samples.** Gradient boosting learns to tell counterfactuals from real rows of the target outcome. The
  cross-validated area under its ROC curve is 0.5 if it cannot. Real rows are matched to the immutable
  features of counterfactuals, which say nothing about the search.
- **Learned rules.** The share of rows that break a rule learned from the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedGroupKFold
from threadpoolctl import threadpool_limits

from plausiflow.constraints import RowChanges, Rule
from plausiflow.tables import Feature, FloatArray, IntArray, Mask, Schema, read_level_codes, read_numbers

NEIGHBOUR, OUTLIER_QUANTILE = 5, 0.95
FOLDS, REAL_PER_COUNTERFACTUAL = 5, 4
MAX_REAL, MAX_COUNTERFACTUALS, MIN_COUNTERFACTUALS = 3000, 1000, 10
"""Rows of each outcome among which neighbours are searched; rows of the two-sample test; fewer give NaN."""
_CHUNK, _MAX_CATEGORIES = 256, 255


@dataclass(frozen=True, kw_only=True, eq=False)
class RealismJudge:
    """Judges counterfactuals by real rows: distance to neighbours, a two-sample test, learned rules.

    Attributes:
        schema: Schema of the table.
        load: Returns the real rows, such as the training rows; called once, when they are needed.
        outcomes: The outcome that each is labelled with, as a class index, shape ``(n,)``.
        immutable: Features that no counterfactual changes.
        learned_rules: Rules that were learned from the table.

    Example:
        >>> frame = pd.DataFrame({"a": np.arange(100.0), "b": np.arange(100.0)})
        >>> real = RealismJudge(
        ...     schema=Schema.infer(frame), load=lambda: frame, outcomes=np.zeros(100, dtype=np.int64)
        ... )
        >>> real.outliers(pd.DataFrame({"a": [50.0, 5.0], "b": [50.0, 95.0]}), np.array([0, 0])).tolist()
        [False, True]
    """

    schema: Schema
    load: Callable[[], pd.DataFrame] = field(repr=False)
    outcomes: IntArray = field(repr=False)
    immutable: tuple[str, ...] = ()
    learned_rules: tuple[Rule, ...] = ()

    @cached_property
    def features(self) -> list[Feature]:
        """The features that are compared: not constants and identifiers."""
        return [feature for feature in self.schema.features if feature.is_number or feature.has_levels]

    @cached_property
    def cells(self) -> FloatArray:
        """The real rows as numbers and level codes; see :meth:`read`."""
        return self.read(self.load())

    def read(self, frame: pd.DataFrame) -> FloatArray:
        """Return one column per feature: numbers in original units, and level codes; NaN if missing."""
        columns = [_read(frame[feature.name], feature) for feature in self.features]
        return np.stack(columns, axis=1) if columns else np.empty((len(frame), 0))

    def neighbour_distances(self, frame: pd.DataFrame, outcomes: IntArray) -> FloatArray:
        """Return Gower's distance to the fifth nearest real row of an outcome, NaN without one, ``(n,)``."""
        cells, distances = self.read(frame), np.full(len(frame), np.nan)
        for outcome in np.unique(outcomes).tolist():
            rows, near = outcomes == outcome, self._neighbours(outcome)
            if len(near) >= NEIGHBOUR:
                distances[rows] = self._distances(cells[rows], near, NEIGHBOUR)
        return distances

    def outliers(self, frame: pd.DataFrame, outcomes: IntArray) -> Mask:
        """Return which rows are farther from real rows than 95 % of these are from each other, ``(n,)``."""
        limits = np.array([self._limit(outcome) for outcome in outcomes.tolist()])
        return np.asarray(self.neighbour_distances(frame, outcomes) > limits + 1e-12)

    def _limit(self, outcome: int) -> float:
        if outcome not in self._limits:
            near = self._neighbours(outcome)
            own = self._distances(near, near, NEIGHBOUR + 1) if len(near) > NEIGHBOUR else np.array([np.nan])
            self._limits[outcome] = float(np.quantile(own, OUTLIER_QUANTILE))
        return self._limits[outcome]

    @cached_property
    def _limits(self) -> dict[int, float]:
        return {}

    def _neighbours(self, outcome: int) -> FloatArray:
        """Return the real rows of an outcome, at most 3,000 at random."""
        rows = np.flatnonzero(self.outcomes == outcome)
        if len(rows) > MAX_REAL:
            rows = np.random.default_rng(0).choice(rows, MAX_REAL, replace=False)
        return np.asarray(self.cells[rows])

    def _distances(self, a: FloatArray, b: FloatArray, k: int) -> FloatArray:
        """Return Gower's distance of each row of ``a`` to its k-th nearest row of ``b``, shape ``(n,)``."""
        parts = [
            np.partition(self._gower(a[start : start + _CHUNK], b), k - 1, axis=1)[:, k - 1]
            for start in range(0, len(a), _CHUNK)
        ]
        return np.concatenate([np.empty(0), *parts])

    def _gower(self, a: FloatArray, b: FloatArray, names: Sequence[str] | None = None) -> FloatArray:
        """Return Gower's distance of each pair of rows, over all features or some, shape ``(n, m)``."""
        total, count = np.zeros((len(a), len(b))), 0
        for j, feature in enumerate(self.features):
            if names is not None and feature.name not in names:
                continue
            first, second = a[:, j, None], b[None, :, j]
            if feature.is_number or feature.kind == "ordered":
                apart = np.abs(first - second) / self._ranges[j]
            else:
                apart = (first != second).astype(np.float64)
            absent = np.isnan(first), np.isnan(second)
            if absent[0].any() or absent[1].any():
                apart = np.where(absent[0] | absent[1], absent[0] != absent[1], apart)
            total += apart
            count += 1
        return total / max(1, count)

    @cached_property
    def _ranges(self) -> FloatArray:
        known = [column[~np.isnan(column)] for column in self.cells.T]
        return np.array([(np.ptp(column) if len(column) else 0.0) or 1.0 for column in known])

    def two_sample_auc(self, frame: pd.DataFrame, outcomes: IntArray, random_state: int = 0) -> float:
        """Return how well gradient boosting tells rows from real rows of the same outcomes.

        The cross-validated area under the ROC curve: 0.5 if it cannot. Each row is compared with four real
        rows (fewer if there are not enough), the nearest in the immutable features, each used once. Rows with
        equal cells are in the same fold, so that the classifier cannot know a row by heart. NaN for fewer
        than ten rows.
        """
        generator = np.random.default_rng(random_state)
        chosen = self._choose(outcomes, generator)
        if len(chosen) < MIN_COUNTERFACTUALS:
            return float("nan")
        cells, outcomes = self.read(frame.iloc[chosen]), outcomes[chosen]
        per_row = self._real_per_row(outcomes)
        samples, sources = [np.column_stack([cells, outcomes])], [np.ones(len(cells), dtype=np.int64)]
        for outcome in np.unique(outcomes).tolist():
            matched = self._match(cells[outcomes == outcome], outcome, per_row, generator)
            samples.append(np.column_stack([matched, np.full(len(matched), outcome)]))
            sources.append(np.zeros(len(matched), dtype=np.int64))
        return self._cross_validate(np.concatenate(samples), np.concatenate(sources), random_state)

    def _choose(self, outcomes: IntArray, generator: np.random.Generator) -> IntArray:
        """Return positions of rows to compare: the same share of each outcome, few enough for real rows."""
        wanted, counts = np.unique(outcomes, return_counts=True)
        real = np.array([(self.outcomes == outcome).sum() for outcome in wanted])
        share = min(1.0, MAX_COUNTERFACTUALS / max(1, len(outcomes)), *(real / counts).tolist())
        parts = [
            generator.choice(np.flatnonzero(outcomes == outcome), int(share * count), replace=False)
            for outcome, count in zip(wanted, counts.tolist(), strict=True)
        ]
        return np.sort(np.concatenate([np.empty(0, dtype=np.int64), *parts]))

    def _real_per_row(self, outcomes: IntArray) -> int:
        """Return how many real rows each row is compared with, the same for all outcomes."""
        wanted, counts = np.unique(outcomes, return_counts=True)
        real = [int((self.outcomes == outcome).sum()) for outcome in wanted]
        return min(REAL_PER_COUNTERFACTUAL, int(np.min(np.array(real) // counts)))

    def _match(
        self, cells: FloatArray, outcome: int, per_row: int, generator: np.random.Generator
    ) -> FloatArray:
        """Return real rows of an outcome, for each row the nearest in the immutable features, each once."""
        real = self.cells[self.outcomes == outcome]
        free, matched = np.ones(len(real), dtype=bool), []
        for i in generator.permutation(len(cells)):
            left = np.flatnonzero(free)
            apart = self._gower(cells[i : i + 1], real[left], self.immutable)[0]
            # Ties, such as all rows if nothing is immutable, are broken at random.
            order = np.lexsort((generator.random(len(left)), apart))[:per_row]
            free[left[order]] = False
            matched.append(real[left[order]])
        return np.concatenate(matched)

    def _cross_validate(self, x: FloatArray, source: IntArray, random_state: int) -> float:
        x = x.round(9)
        groups = np.unique(np.nan_to_num(x, nan=-np.pi), axis=0, return_inverse=True)[1].reshape(-1)
        categories = [
            not feature.is_number and feature.kind != "ordered" and len(feature.levels) <= _MAX_CATEGORIES
            for feature in self.features
        ]
        folds = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=random_state)
        areas = []
        with threadpool_limits(1):  # so few rows are slower with several threads
            for train, test in folds.split(x, source, groups):
                if min(len(np.unique(source[train])), len(np.unique(source[test]))) < 2:
                    continue
                model = HistGradientBoostingClassifier(
                    categorical_features=[*categories, False], early_stopping=False, random_state=random_state
                )
                proba = model.fit(x[train], source[train]).predict_proba(x[test])[:, 1]
                areas.append(roc_auc_score(source[test], proba))
        return float(np.mean(areas)) if areas else float("nan")

    def learned_rules_broken(self, before: pd.DataFrame, after: pd.DataFrame) -> Mask:
        """Return which changed rows break a learned rule, shape ``(n,)``."""
        changes = RowChanges({feature.name: feature for feature in self.schema.features}, before, after)
        broken = np.zeros(len(after), dtype=bool)
        for rule in self.learned_rules:
            broken |= rule.broken(changes)
        return broken


def _read(column: pd.Series, feature: Feature) -> FloatArray:
    if feature.is_number:
        return read_numbers(column)[0]
    codes = read_level_codes(column, feature.levels).astype(np.float64)
    return np.where(codes < 0, np.nan, codes)
