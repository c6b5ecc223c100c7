"""``plausiflow benchmark models``: boosted trees and forests, which have no gradients.

The first part uses the defaults: tables with their rules, the ensemble, three judges. The second part uses
one flow on numbers rounded to three decimals, and compares the distance with that of a logistic model, solved
exactly on the same rows with the same density, and with the nearest feasible training row. ``validity`` is
the model's own decision on the counterfactuals in the table's dtypes. ``steady`` is the share of
counterfactuals whose decision also holds at 32 random corners, a thousandth of each number's range away and
on its grid; ``steady_off_grid`` is the same without the grid.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import LabelEncoder, OneHotEncoder
from torch import Tensor

from plausiflow.constraints import CompiledRules, Rule
from plausiflow.core import Plausibility
from plausiflow.datasets import load_dataset, load_table
from plausiflow.densities import ConditionalFlow, Judges, Thresholded, row_scores
from plausiflow.errors import InvalidInputError
from plausiflow.explainer import Explainer
from plausiflow.explanations import Explanations
from plausiflow.models import BlackBox, Fitted
from plausiflow.search import FINAL_CORNERS, PROMISE, corners_of
from plausiflow.tables import Encoder, Kind, Schema
from plausiflow_bench.harness.pages import write_section
from plausiflow_bench.harness.printing import markdown
from plausiflow_bench.harness.rows import CpuTimer, Row, environment, provenance
from plausiflow_bench.harness.selection import ignore_plausibility_warnings
from plausiflow_bench.models import regressors
from plausiflow_bench.tables.cases import learn_default_plausibility, table_rules

TABLES = ("heloc", "law", "wine", "adult", "german_credit", "diabetes")
NUMBERS = ("heloc", "law", "wine")
MODELS = ("hgb", "rf", "xgb", "lgbm")
ROWS, TRAINING, NUMBERS_TRAINING = 300, 4000, 10_000
COLUMNS = (
    "part", "dataset", "model", "model_type", "rows", "accuracy", "found", "with_bank", "found_of_these",
    "validity", "plausible", "rules_broken", "rounded_valid", "steady", "steady_off_grid", "judged", "l2",
    "l2_over_logistic", "l2_over_nearest", "changes", "model_calls", "model_rows", "cpu_ms",
    "fit_cpu_seconds",
)  # fmt: skip
MARK = "<!-- written by `plausiflow benchmark models --page` -->"
CORNERS_SALT = 97


@dataclass(frozen=True, kw_only=True)
class ModelSelection:
    """What the study runs on.

    Attributes:
        tables: Tables for the first part; diabetes is the one with a numeric outcome.
        numbers: Data sets for the second part.
        models: Short names of models.
        rows: Test rows per table.
        train: The maximum number of training rows in the first part.
        numbers_train: The maximum number of training rows in the second part.
        seed: Seed of everything that is trained.
    """

    tables: tuple[str, ...] = TABLES
    numbers: tuple[str, ...] = NUMBERS
    models: tuple[str, ...] = MODELS
    rows: int = ROWS
    train: int = TRAINING
    numbers_train: int = NUMBERS_TRAINING
    seed: int = 0

    def __post_init__(self) -> None:
        given = {
            "tables": (self.tables, TABLES),
            "numbers": (self.numbers, NUMBERS),
            "models": (self.models, MODELS),
        }
        problems = [
            f"{name!r} is not one of the {what}: {', '.join(known)}"
            for what, (names, known) in given.items()
            for name in names
            if name not in known
        ]
        if problems:
            raise InvalidInputError(". ".join(problems) + ".")


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelCase:
    """The training and test rows of a table, with its rules."""

    name: str
    x_train: pd.DataFrame
    y_train: pd.Series
    x_test: pd.DataFrame
    y_test: pd.Series
    rules: tuple[Rule, ...] = ()
    orders: dict[str, tuple[str, ...]] | None = None


def run(selection: ModelSelection) -> Iterator[Row]:
    """Yield one row per part, table and model."""
    for name in selection.tables:
        if name == "diabetes":
            yield from regressors.run(selection.seed, min(selection.rows, regressors.TEST_ROWS))
            continue
        case = table_case(name, selection.rows, selection.train)
        densities = SharedDensities(case, one_flow=False, seed=selection.seed)
        for model in selection.models:
            row = _measure(_explain(densities, model), case, model)
            yield _with_provenance(row, "tables", case, model, selection)
    for name in selection.numbers:
        case = numeric_case(name, selection.rows, selection.numbers_train)
        densities = SharedDensities(case, one_flow=True, seed=selection.seed)
        logistic = _explain(densities, "logistic")
        for model in selection.models:
            row = _measure_and_compare(_explain(densities, model), logistic, case, model)
            yield _with_provenance(row, "one flow", case, model, selection)


def table_case(name: str, rows: int, train: int) -> ModelCase:
    """Return a table with its rules; wine has none and comes from scikit-learn."""
    if name == "wine":
        return numeric_case(name, rows, train)
    table = load_table(name)
    test = min(rows, len(table.x) // 5)
    train_table, test_table = table.split(min(train, len(table.x) - test), test)
    return ModelCase(
        name=name,
        x_train=train_table.x,
        y_train=train_table.y,
        x_test=test_table.x,
        y_test=test_table.y,
        rules=tuple(table_rules(train_table)),
        orders=dict(train_table.orders),
    )


def numeric_case(name: str, rows: int, train: int) -> ModelCase:
    """Return fold 0 of a data set, scaled to 1 .. 2 with three decimals; zero would be a separate state."""
    fold = load_dataset(name).fold(0)
    names = [f"f{j}" for j in range(fold.x_train.shape[1])]
    x_train, x_test = (
        pd.DataFrame((1 + x.double().numpy()).round(3), columns=names) for x in (fold.x_train, fold.x_test)
    )
    y_train, y_test = (pd.Series(y.numpy(), name="class") for y in (fold.y_train, fold.y_test))
    return ModelCase(
        name=name,
        x_train=x_train.iloc[:train],
        y_train=y_train.iloc[:train],
        x_test=x_test.iloc[:rows],
        y_test=y_test.iloc[:rows],
    )


def fit_model(kind: str, case: ModelCase, seed: int) -> Fitted:
    """Fit a model to a table; text columns are one-hot encoded."""
    text = [c for c in case.x_train if not pd.api.types.is_numeric_dtype(case.x_train[c])]
    estimator = _estimator(kind, seed)
    if text:
        encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        front = make_column_transformer((encoder, text), remainder="passthrough")
        estimator = make_pipeline(front, estimator)
    return estimator.fit(case.x_train, _outcomes(kind, case.y_train))


def _estimator(kind: str, seed: int) -> Fitted:
    if kind == "xgb":
        from xgboost import XGBClassifier

        return XGBClassifier(n_estimators=200, max_depth=5, learning_rate=0.1, n_jobs=1, random_state=seed)
    if kind == "lgbm":
        from lightgbm import LGBMClassifier

        return LGBMClassifier(n_estimators=100, n_jobs=1, random_state=seed, verbose=-1)
    return {
        "hgb": HistGradientBoostingClassifier(max_iter=100, random_state=seed),
        "rf": RandomForestClassifier(200, random_state=seed, n_jobs=1),
        "logistic": LogisticRegression(max_iter=3000, C=10.0),
    }[kind]


def _outcomes(kind: str, y: pd.Series) -> pd.Series:
    """Return outcomes as the model knows them: for XGBoost, the numbers of the sorted classes."""
    if kind != "xgb":
        return y
    return pd.Series(LabelEncoder().fit_transform(y), index=y.index, name=y.name)


@dataclass(frozen=True, kw_only=True, eq=False)
class ExplainedCase:
    """The result for the test rows, with the processor seconds of ``fit`` and ``explain``."""

    explainer: Explainer
    result: Explanations
    cpu_seconds: float
    fit_cpu_seconds: float


class SharedDensities:
    """The plausibility and the judges of a case, learned once and shared by all its models.

    Args:
        case: The case.
        one_flow: Whether the plausibility is one flow without judges, instead of the default ensemble.
        seed: Seed of everything that is trained.
    """

    def __init__(self, case: ModelCase, *, one_flow: bool, seed: int) -> None:
        self.case, self.one_flow, self.seed = case, one_flow, seed
        # With one flow, all numbers are on a grid of thousandths.
        self.kinds: dict[str, Kind] = dict.fromkeys(map(str, case.x_train), "integer") if one_flow else {}

    def fit_explainer(self, model: Fitted, y: pd.Series) -> Explainer:
        """Fit an explainer of a model, with a copy of the shared plausibility, to the training rows."""
        plausibility, judges = copy.deepcopy(self._learned)
        shared: dict[str, Any] = {"plausibility": plausibility, "judges": 0, "random_state": self.seed}
        if self.one_flow:
            explainer = Explainer(model, confidence=None, max_extra_cost=0.0, kinds=self.kinds, **shared)
        else:
            explainer = Explainer(model, constraints=self.case.rules, orders=self.case.orders, **shared)
        explainer.fit(self.case.x_train, y)
        explainer.judges_ = judges
        return explainer

    @cached_property
    def _learned(self) -> tuple[Plausibility, Judges | None]:
        case = self.case
        encoder = Encoder(Schema.infer(case.x_train, kinds=self.kinds, orders=case.orders))
        x, classes = (
            encoder.encode(case.x_train).x,
            torch.from_numpy(LabelEncoder().fit_transform(case.y_train)),
        )
        if self.one_flow:
            x = encoder.encode(case.x_train).x
            density = ConditionalFlow(random_state=self.seed).fit(x.float(), classes)
            return Thresholded(density=density).fit(x, classes), None
        rules = CompiledRules(case.rules, encoder.schema, encoder.layout)
        n_classes = int(classes.max()) + 1
        return learn_default_plausibility(case.x_train, classes, n_classes, encoder, rules, seed=self.seed)


def _explain(densities: SharedDensities, kind: str) -> ExplainedCase:
    case, seed = densities.case, densities.seed
    model, y = fit_model(kind, case, seed), _outcomes(kind, case.y_train)
    with CpuTimer() as fitting, ignore_plausibility_warnings():
        explainer = densities.fit_explainer(model, y)
    # The class after the decided one, so that all models have the same target.
    labels = sorted(y.unique().tolist())
    decided = explainer.predict(case.x_test).tolist()
    target = [labels[(labels.index(label) + 1) % len(labels)] for label in decided]
    with CpuTimer() as searching:
        result = explainer.explain(case.x_test, target)
    return ExplainedCase(
        explainer=explainer, result=result, cpu_seconds=searching.seconds, fit_cpu_seconds=fitting.seconds
    )


def _measure(explained: ExplainedCase, case: ModelCase, kind: str) -> Row:
    result, explainer = explained.result, explained.explainer
    model, engine, encoder = explainer.model_, explainer.engine_, explainer.encoder_
    assert engine is not None
    assert encoder is not None
    assert isinstance(model, BlackBox)
    found = result.is_found
    best, rows = result.best[found], result.rows[found]
    answers, figures = result.answers.iloc[best], result.figures.iloc[best]
    targets = result.verdicts["target"][found].to_numpy()
    broken = engine.rules.violations(rows, answers.set_axis(rows.index)).to_numpy().any(axis=1)
    x_cf = encoder.encode(answers).x
    rounded = encoder.decode(encoder.layout.snap(x_cf), like=answers)
    needed = int(result.is_needed.sum())
    banked = _has_feasible_training_row(explained, case)
    right = explainer.predict(case.x_test).to_numpy() == _outcomes(kind, case.y_test).to_numpy()
    return {
        "model_type": "surrogate" if "surrogate" in model.surrogate.description else "own trees",
        "rows": len(result.rows),
        "accuracy": float(right.mean()),
        "found": float(found.sum() / max(1, needed)),
        "with_bank": float(banked.sum() / max(1, needed)),
        "found_of_these": float(found[banked].mean()) if banked.any() else float("nan"),
        "validity": _share(explainer.model.predict(answers), targets),
        "plausible": float((figures["score"] >= 0).mean()),
        "rules_broken": float(broken.mean()),
        "rounded_valid": _share(explainer.model.predict(rounded), targets),
        "steady": float((figures["steady"] == 1).mean()),
        "steady_off_grid": float(_off_grid(explainer, answers, x_cf, targets).mean()),
        "judged": float(figures["judged"].mean()),
        "l2": float(figures["l2"].mean()),
        "changes": float(figures["n_changes"].mean()),
        "model_calls": result.model_calls,
        "model_rows": result.model_rows / max(1, needed),
        "cpu_ms": 1e3 * explained.cpu_seconds / max(1, needed),
        "fit_cpu_seconds": explained.fit_cpu_seconds,
    }


def _has_feasible_training_row(explained: ExplainedCase, case: ModelCase) -> Any:  # noqa: ANN401
    """Return a mask of the rows for which some training row, with their immutable values, is feasible."""
    engine, result = explained.explainer.engine_, explained.result
    assert engine is not None
    assert engine.true_model is not None
    assert result.encoded is not None
    x, _, targets = result.encoded
    everything = replace(engine, true_model=replace(engine.true_model, budget=10**9))
    task = everything.task(x, targets, frame=case.x_test)
    task = replace(task, scores=row_scores(engine.plausibility, x, task.y_target, with_margin=False))
    bank = engine.wider_bank or engine.bank
    needed = torch.from_numpy(result.is_needed.nonzero()[0])
    has = np.zeros(len(x), dtype=bool)
    has[bank.scan(task, needed, 1, oracle_rows=len(case.x_train)).rows.numpy()] = True
    return has


def _share(answers: Any, targets: Any) -> float:  # noqa: ANN401
    return float((np.asarray(answers) == targets).mean())


def _off_grid(explainer: Explainer, answers: pd.DataFrame, x_cf: Tensor, targets: Any) -> Any:  # noqa: ANN401
    """Return whether counterfactuals hold at random corners that are not on the grid, shape ``(m,)``."""
    encoder = explainer.encoder_
    assert encoder is not None
    moved = corners_of(encoder, x_cf, corners=FINAL_CORNERS, reach=PROMISE, salt=CORNERS_SALT, grid=False)
    frame = answers.iloc[np.repeat(np.arange(len(answers)), FINAL_CORNERS)].reset_index(drop=True)
    free = encoder.layout.free(encoder.layout.codes(moved)).numpy()
    for block in encoder.layout.blocks:
        if block.number is not None and block.scale is not None:
            values = block.scale.decode(moved[:, block.number]).numpy()
            explained = frame[block.name].to_numpy(np.float64)
            frame[block.name] = np.where(free[:, block.number], values, explained)
    held = explainer.model.predict(frame) == np.repeat(targets, FINAL_CORNERS)
    return held.reshape(-1, FINAL_CORNERS).all(axis=1)


def _measure_and_compare(
    explained: ExplainedCase, logistic: ExplainedCase, case: ModelCase, kind: str
) -> Row:
    """Measure, and compare distances with the logistic model and the nearest feasible training row."""
    row = _measure(explained, case, kind)
    usable = ~_all_missing(case.x_test)
    l2, exact = explained.result.found_figures("l2"), logistic.result.found_figures("l2")
    nearest = _nearest_distances(explained, case)
    row["l2"] = _nanmean(l2[usable])
    row["l2_over_logistic"] = _nanmean(l2[usable]) / _nanmean(exact[usable])
    both = usable & np.isfinite(nearest) & np.isfinite(l2)
    row["l2_over_nearest"] = _nanmean(l2[both]) / _nanmean(nearest[both])
    return row


def _all_missing(x: pd.DataFrame) -> Any:  # noqa: ANN401
    """Return a mask of the rows with special codes only, which are the smallest values."""
    return (x.to_numpy(np.float64) < 1.01).all(axis=1)


def _nanmean(values: Any) -> float:  # noqa: ANN401
    return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")


def _nearest_distances(explained: ExplainedCase, case: ModelCase) -> Any:  # noqa: ANN401
    """Return the distance of each row to the nearest feasible training row, shape ``(n,)``."""
    explainer, result = explained.explainer, explained.result
    assert explainer.engine_ is not None
    assert result.encoded is not None
    x, _, targets = result.encoded
    task = explainer.engine_.task(x, targets, frame=case.x_test)
    near = explainer.engine_.bank.verified(task, torch.arange(len(x)), 1)
    distance = np.full(len(x), np.nan)
    distance[near.rows.numpy()] = (near.x - x[near.rows]).norm(dim=1).numpy()
    return distance


def _with_provenance(row: Row, part: str, case: ModelCase, model: str, selection: ModelSelection) -> Row:
    named: Row = {"part": part, "dataset": case.name, "model": model}
    return named | row | {"training_rows": len(case.x_train), "seed": selection.seed} | environment()


def write_page(rows: list[Row], path: Path) -> None:
    """Write the table into its section of a page."""
    write_section(path, MARK, f"{markdown(rows, COLUMNS)}\n\n{provenance(rows, ('seed', 'commit'))}.")
