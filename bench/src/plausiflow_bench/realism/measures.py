"""What the study of realism measures: rules, planted truths, grids, and judges of another kind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean

import numpy as np
import pandas as pd

from plausiflow.datasets import Table, Truth, break_truth
from plausiflow.densities import KDE
from plausiflow.explainer import Explainer
from plausiflow.explanations import RealismJudge, find_changes
from plausiflow.models import LinearClassifier
from plausiflow.tables import Feature, FloatArray, IntArray, Mask, read_numbers
from plausiflow_bench.harness.rows import Row
from plausiflow_bench.harness.selection import ignore_plausibility_warnings
from plausiflow_bench.tables.cases import table_rules

AUC_SEEDS = (0, 1, 2)
BROKEN_ROWS, RECOVERED = 200, 0.95
"""Rows that break a truth; the share of them that must be rejected if the truth was recovered."""
GRID_SHARE, REAL_ROWS = 0.99, 200
_IMPLICIT = ("locked", "training range", "known levels", "missing values", "constants and identifiers")


@dataclass(frozen=True, kw_only=True, eq=False)
class RealismCase:
    """A table with a fitted explainer.

    Attributes:
        train: Training rows.
        test: Test rows, which are explained.
        explainer: The fitted explainer.
    """

    train: Table
    test: Table
    explainer: Explainer

    @property
    def labels(self) -> tuple[object, ...]:
        """The outcomes, in the order of the model."""
        assert self.explainer.model_ is not None
        return self.explainer.model_.labels

    def classes(self, y: pd.Series) -> IntArray:
        """Return labels as class indices."""
        return np.array([self.labels.index(label) for label in y.tolist()], dtype=np.int64)

    @cached_property
    def judge(self) -> RealismJudge:
        """The judge of another kind: it knows the training rows and their labels."""
        assert self.explainer.encoder_ is not None
        return RealismJudge(
            schema=self.explainer.encoder_.schema,
            load=lambda: self.train.x,
            outcomes=self.classes(self.train.y),
            immutable=self.train.immutable,
        )

    def violations(self, before: pd.DataFrame, after: pd.DataFrame) -> tuple[Mask, Mask]:
        """Return which rows break a rule that was given or holds for every table, and a learned one."""
        assert self.explainer.engine_ is not None
        broken = self.explainer.engine_.rules.violations(before, after)
        given = [*map(str, table_rules(self.train)), *_IMPLICIT]
        known = broken.columns.isin(given)
        values = broken.to_numpy(bool)
        return np.asarray(values[:, known].any(axis=1)), np.asarray(values[:, ~known].any(axis=1))


def measure(case: RealismCase, answers: pd.DataFrame, of: IntArray, targets: IntArray) -> Row:
    """Measure counterfactuals, at most one per test row.

    Args:
        case: The case.
        answers: Counterfactuals as rows of the table.
        of: Position of the test row of each counterfactual.
        targets: Target class of each counterfactual.
    """
    before = case.test.x.iloc[of]
    given, learned = case.violations(before, answers)
    changes = find_changes(case.test.x, answers, of)
    row: Row = {
        "found": len(np.unique(of)) / len(case.test.x),
        "changes": len(changes.answer) / max(1, len(of)),
        "rules_broken": _mean(given),
        "learned_broken": _mean(learned),
        "grid_broken": _mean(off_grid(case.train.x, before, answers)),
    }
    if case.train.truths:
        row["truths_broken"] = _mean(truths_broken(case.train.truths, before, answers))
    return row | judge(case, answers, targets)


def judge(case: RealismCase, frame: pd.DataFrame, outcomes: IntArray) -> Row:
    """Return what the judges of another kind say: AUC with its spread over seeds, and outliers."""
    areas = [case.judge.two_sample_auc(frame, outcomes, random_state=seed) for seed in AUC_SEEDS]
    return {
        "auc": fmean(areas),
        "auc_spread": float(np.std(areas)),
        "outliers": _mean(case.judge.outliers(frame, outcomes)),
        "compared": len(frame),
    }


def outliers_of_immutable(case: RealismCase, frame: pd.DataFrame, outcomes: IntArray) -> float:
    """Return the share of outliers that the immutable values of rows give to real rows.

    For each row it is the share of the real rows of its outcome, at most ``REAL_ROWS`` at random, that are
    outliers once they have the row's immutable values: what no counterfactual can change.
    """
    names = [*case.train.immutable]
    classes, generator = case.classes(case.train.y), np.random.default_rng(0)
    total = 0.0
    keys = frame[names].assign(outcome=outcomes)
    for _, same in keys.groupby([*names, "outcome"], dropna=False, observed=True):
        outcome, values = int(same["outcome"].iloc[0]), same.iloc[0]
        real = np.flatnonzero(classes == outcome)
        real = generator.choice(real, min(REAL_ROWS, len(real)), replace=False)
        moved = case.train.x.iloc[real].assign(**{name: values[name] for name in names})
        total += len(same) * _mean(case.judge.outliers(moved, np.full(len(moved), outcome)))
    return total / max(1, len(frame))


def judge_matched_rows(case: RealismCase, probability: FloatArray, outcomes: IntArray) -> Row:
    """Return what the judges say of real rows that meet what answers must meet.

    For each answer, given by the probability and index of its outcome, it is the plausible training row with
    this label whose probability is nearest, each row once. The other training rows are the real ones.
    """
    classes = case.classes(case.train.y)
    labels = [case.labels[k] for k in classes.tolist()]
    proba = case.explainer.predict_proba(case.train.x)[list(case.labels)].to_numpy(np.float64)
    own = proba[np.arange(len(classes)), classes]
    free = (case.explainer.score(case.train.x, labels) >= 0) & (own >= probability.min(initial=1.0))
    chosen: list[int] = []
    for value, outcome in zip(probability.tolist(), outcomes.tolist(), strict=True):
        left = np.flatnonzero(free & (classes == outcome))
        if len(left):
            nearest = int(left[np.abs(own[left] - value).argmin()])
            free[nearest] = False
            chosen.append(nearest)
    others = np.setdiff1d(np.arange(len(classes)), chosen)
    rest = replace(case.train, x=case.train.x.iloc[others], y=case.train.y.iloc[others])
    return judge(replace(case, train=rest), case.train.x.iloc[chosen], classes[chosen])


def truths_broken(truths: tuple[Truth, ...], before: pd.DataFrame, after: pd.DataFrame) -> Mask:
    """Return which rows break a planted truth that they had before; grids are measured separately."""
    broken = np.zeros(len(after), dtype=bool)
    for truth in truths:
        if truth.kind != "grid":
            broken |= truth.holds(before) & ~truth.holds(after)
    return broken


def off_grid(train: pd.DataFrame, before: pd.DataFrame, after: pd.DataFrame) -> Mask:
    """Return which rows have a changed number off the step that 99 % of the training values keep."""
    broken = np.zeros(len(after), dtype=bool)
    for name in train.select_dtypes("number"):
        step = usual_step(read_numbers(train[name])[0])
        if step:
            old, new = read_numbers(before[name])[0], read_numbers(after[name])[0]
            broken |= (old != new) & ~_on_step(new, step)
    return broken


def usual_step(values: FloatArray) -> float:
    """Return the largest of 1, 2, 2.5 and 5 times a power of ten that 99 % of the values keep, or zero.

    Example:
        >>> usual_step(np.array([0.0, 500, 1500, 2000, 500, 1000] * 100 + [333]))
        500.0
    """
    known = values[np.isfinite(values)]
    steps = sorted((m * 10.0**e for m in (1, 2, 2.5, 5) for e in range(-4, 7)), reverse=True)
    largest = np.abs(known).max(initial=0.0)
    return next((s for s in steps if s <= largest and _on_step(known, s).mean() >= GRID_SHARE), 0.0)


def _on_step(values: FloatArray, step: float) -> Mask:
    parts = values / step
    return np.asarray(np.abs(parts - np.rint(parts)) < 1e-6)


def recovered_truths(case: RealismCase) -> float:
    """Return the share of planted truths that the explainer knows.

    A truth about several columns is recovered if at least 95 % of the rows that break it are rejected by a
    learned rule; a grid if the step is known, and a special value if it is a state of its column.
    """
    known = [_is_recovered(case, truth) for truth in case.train.truths]
    return float(np.mean(known)) if known else float("nan")


def rules_on_noise(case: RealismCase, seed: int = 0) -> int:
    """Return how many rules are learned from the training rows with each column shuffled on its own."""
    generator, x = np.random.default_rng(seed), case.train.x
    shuffled = {name: x[name].iloc[generator.permutation(len(x))].set_axis(x.index) for name in x}
    explainer = Explainer(
        LinearClassifier(random_state=seed),
        density=KDE(),
        confidence=None,
        judges=0,
        orders=case.train.orders,
    )
    with ignore_plausibility_warnings():
        explainer.fit(pd.DataFrame(shuffled), case.train.y)
    assert explainer.engine_ is not None
    return len(explainer.engine_.rules.constraints)


def _is_recovered(case: RealismCase, truth: Truth) -> bool:
    if truth.kind in ("grid", "special"):
        assert case.explainer.encoder_ is not None
        feature = next(f for f in case.explainer.encoder_.schema.features if f.name == truth.columns[0])
        return _knows(feature, truth)
    before, after = break_truth(truth, case.train.x, BROKEN_ROWS)
    return _mean(case.violations(before, after)[1]) >= RECOVERED


def _knows(feature: Feature, truth: Truth) -> bool:
    if feature.has_levels:
        return True  # only values of the training rows are allowed
    if truth.kind == "grid":
        return feature.step == truth.values[0]
    return set(truth.values) <= set(feature.special)


def _mean(values: Mask) -> float:
    return float(values.mean()) if len(values) else float("nan")
