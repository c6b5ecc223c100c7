"""``plausiflow benchmark models``: boosted trees and forests, whose answers have no gradients.

Part one, as people use it: tables with their rules, the default ensemble, three judges. Part two, one flow
and nothing but numbers (rounded to three decimals), as the searches were first measured: the distance beside
that of a logistic model, which is solved exactly on the same rows with the same density, and of the nearest
training row that will do. ``validity`` is the model's own word on the answers in the table's dtypes,
``steady`` the share of answers that hold at 32 fresh corners, a thousandth of each number's range away and on
its grid, ``steady_off_grid`` the same without putting corners on the grid.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import LabelEncoder, OneHotEncoder
from torch import Tensor

from plausiflow.constraints import Rule, Rules
from plausiflow.core import Plausibility
from plausiflow.datasets import load, load_table
from plausiflow.densities import ConditionalFlow, Judges, PlausibilityWarning, RowScores, Thresholded
from plausiflow.errors import InvalidInputError
from plausiflow.explainer import Explainer
from plausiflow.explanations import Explanations
from plausiflow.models import BlackBox, Fitted
from plausiflow.search import FINAL_CORNERS, PROMISE, Rows, Settings, at_corners
from plausiflow.tables import Encoder, Kind
from plausiflow_bench import regressors
from plausiflow_bench.cases import rules_of, write_section
from plausiflow_bench.study import CpuTimer, Row, environment
from plausiflow_bench.tables import markdown

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
        tables: With the default ensemble; diabetes is the one whose outcome is a number.
        numbers: With one flow.
        models: Short names.
        rows: Test rows of each.
        train: Most training rows of tables.
        numbers_train: Most training rows with one flow.
        seed: Of everything that is trained.
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
            f"{name!r} is none of the {what}: {', '.join(known)}"
            for what, (names, known) in given.items()
            for name in names
            if name not in known
        ]
        if problems:
            raise InvalidInputError("; ".join(problems) + ".")


@dataclass(frozen=True, kw_only=True, eq=False)
class Parts:
    """Training and test rows of a table, with the rules that hold in it."""

    name: str
    x_train: pd.DataFrame
    y_train: pd.Series
    x_test: pd.DataFrame
    y_test: pd.Series
    rules: tuple[Rule, ...] = ()
    orders: dict[str, tuple[str, ...]] | None = None


def run(selection: ModelSelection) -> Iterator[Row]:
    """One row per part, table and model."""
    for name in selection.tables:
        if name == "diabetes":
            yield from regressors.run(selection.seed, min(selection.rows, regressors.TESTED))
            continue
        parts = table_parts(name, selection.rows, selection.train)
        for model in selection.models:
            row = _measured(_searched(parts, model, selection.seed), parts, model)
            yield _identified(row, "tables", parts, model, selection)
    for name in selection.numbers:
        parts = number_parts(name, selection.rows, selection.numbers_train)
        logistic = _one_flow(parts, "logistic", selection.seed)
        for model in selection.models:
            own = _one_flow(parts, model, selection.seed)
            yield _identified(_compared(own, logistic, parts, model), "one flow", parts, model, selection)


def table_parts(name: str, rows: int, train: int) -> Parts:
    """A table with its rules; wine has none, and comes from scikit-learn."""
    if name == "wine":
        return number_parts(name, rows, train)
    table = load_table(name)
    test = min(rows, len(table.x) // 5)
    own, other = table.split(min(train, len(table.x) - test), test)
    return Parts(
        name=name,
        x_train=own.x,
        y_train=own.y,
        x_test=other.x,
        y_test=other.y,
        rules=tuple(rules_of(own)),
        orders=dict(own.orders),
    )


def number_parts(name: str, rows: int, train: int) -> Parts:
    """Fold 0 of a data set of the catalogue, scaled to 1 .. 2, three decimals: zero would be a state."""
    fold = load(name).fold(0)
    names = [f"f{j}" for j in range(fold.x_train.shape[1])]
    x_train, x_test = (
        pd.DataFrame((1 + x.double().numpy()).round(3), columns=names) for x in (fold.x_train, fold.x_test)
    )
    y_train, y_test = (pd.Series(y.numpy(), name="class") for y in (fold.y_train, fold.y_test))
    return Parts(
        name=name,
        x_train=x_train.iloc[:train],
        y_train=y_train.iloc[:train],
        x_test=x_test.iloc[:rows],
        y_test=y_test.iloc[:rows],
    )


def trained(kind: str, parts: Parts, seed: int) -> Fitted:
    """A model of the table; text columns are one-hot encoded in front of it."""
    text = [c for c in parts.x_train if not pd.api.types.is_numeric_dtype(parts.x_train[c])]
    estimator = _estimator(kind, seed)
    if text:
        encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        front = make_column_transformer((encoder, text), remainder="passthrough")
        estimator = make_pipeline(front, estimator)
    return estimator.fit(parts.x_train, _outcomes(kind, parts.y_train))


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
    """As the model knows them: XGBoost numbers them, in sorted order."""
    if kind != "xgb":
        return y
    return pd.Series(LabelEncoder().fit_transform(y), index=y.index, name=y.name)


@dataclass(frozen=True, kw_only=True, eq=False)
class Explained:
    """A model's answers for the test rows, and what they took in processor seconds."""

    explainer: Explainer
    result: Explanations
    cpu_seconds: float
    fit_cpu_seconds: float


class _Shared(Explainer):
    """An explainer of a study, in which all models of a table share what no model changes."""

    learned: ClassVar[dict[tuple[object, ...], tuple[Plausibility, Judges | None]]] = {}
    key: tuple[object, ...] = ()

    def _densities(
        self, rows: Rows, rules: Rules, encoder: Encoder, settings: Settings
    ) -> tuple[Plausibility, Judges | None]:
        if self.key not in self.learned:
            self.learned.clear()  # one table after the other
            if self.key[0] == "one flow":
                density = ConditionalFlow(seed=settings.seed).fit(rows.x.float(), rows.classes)
                self.learned[self.key] = (Thresholded(density=density).fit(rows.x, rows.classes), None)
            else:
                self.learned[self.key] = super()._densities(rows, rules, encoder, settings)
        return copy.deepcopy(self.learned[self.key])


def _explained(parts: Parts, kind: str, explainer: _Shared) -> Explained:
    y = _outcomes(kind, parts.y_train)
    with CpuTimer() as fitting, warnings.catch_warnings():
        warnings.simplefilter("ignore", PlausibilityWarning)  # the table shows what is reached
        explainer.fit(parts.x_train, y)
    # The next class after the one decided, so that all models are asked for the same.
    labels = sorted(y.unique().tolist())
    decided = explainer.predict(parts.x_test).tolist()
    target = [labels[(labels.index(label) + 1) % len(labels)] for label in decided]
    with CpuTimer() as searching:
        result = explainer.explain(parts.x_test, target)
    return Explained(
        explainer=explainer, result=result, cpu_seconds=searching.seconds, fit_cpu_seconds=fitting.seconds
    )


def _searched(parts: Parts, kind: str, seed: int) -> Explained:
    """The default: ensemble, calibrated margin, judges, sparsity."""
    model = trained(kind, parts, seed)
    explainer = _Shared(model, constraints=parts.rules, orders=parts.orders, random_state=seed)
    explainer.key = ("tables", parts.name, len(parts.x_train), seed)
    return _explained(parts, kind, explainer)


def _one_flow(parts: Parts, kind: str, seed: int) -> Explained:
    """One flow, no second opinion, all changes kept."""
    model = trained(kind, parts, seed)
    kinds: dict[str, Kind] = dict.fromkeys(map(str, parts.x_train), "integer")  # on a grid of thousandths
    explainer = _Shared(model, confidence=None, sparsity=None, judges=0, kinds=kinds, random_state=seed)
    explainer.key = ("one flow", parts.name, len(parts.x_train), seed)
    return _explained(parts, kind, explainer)


def _measured(own: Explained, parts: Parts, kind: str) -> Row:
    result, explainer = own.result, own.explainer
    model, finder, encoder = explainer.model_, explainer.engine_, explainer.encoder_
    assert finder is not None
    assert encoder is not None
    assert isinstance(model, BlackBox)
    found = result.is_found
    best, rows = result.best[found], result.rows[found]
    answers, figures = result.answers.iloc[best], result.figures.iloc[best]
    wanted = result.verdicts["target"][found].to_numpy()
    broken = finder.rules.violations(rows, answers.set_axis(rows.index)).to_numpy().any(axis=1)
    x_cf = encoder.encode(answers).x
    rounded = encoder.decode(encoder.layout.snap(x_cf), like=answers)
    needed = int(result.is_needed.sum())
    banked = _with_bank(own, parts)
    right = explainer.predict(parts.x_test).to_numpy() == _outcomes(kind, parts.y_test).to_numpy()
    return {
        "model_type": "student" if "student" in model.likeness.description else "own trees",
        "rows": len(result.rows),
        "accuracy": float(right.mean()),
        "found": float(found.sum() / max(1, needed)),
        "with_bank": float(banked.sum() / max(1, needed)),
        "found_of_these": float(found[banked].mean()) if banked.any() else float("nan"),
        "validity": _share(explainer.model.predict(answers), wanted),
        "plausible": float((figures["score"] >= 0).mean()),
        "rules_broken": float(broken.mean()),
        "rounded_valid": _share(explainer.model.predict(rounded), wanted),
        "steady": float((figures["steady"] == 1).mean()),
        "steady_off_grid": float(_off_grid(explainer, answers, x_cf, wanted).mean()),
        "judged": float(figures["judged"].mean()),
        "l2": float(figures["l2"].mean()),
        "changes": float(figures["n_changes"].mean()),
        "model_calls": result.model_calls,
        "model_rows": result.model_rows / max(1, needed),
        "cpu_ms": 1e3 * own.cpu_seconds / max(1, needed),
        "fit_cpu_seconds": own.fit_cpu_seconds,
    }


def _with_bank(own: Explained, parts: Parts) -> Any:  # noqa: ANN401
    """Rows that some training row would do for, once what they may not change is put into it, ``(n,)``."""
    finder, result = own.explainer.engine_, own.result
    assert finder is not None
    assert finder.itself is not None
    assert result.encoded is not None
    x, _, wanted = result.encoded
    everything = replace(finder, itself=replace(finder.itself, budget=10**9))
    task = everything.task(x, wanted, frame=parts.x_test)
    task = replace(task, guide=RowScores.without_margin(finder.plausibility, x, task.y_target))
    bank = finder.wider_bank or finder.bank
    needed = torch.from_numpy(result.is_needed.nonzero()[0])
    has = np.zeros(len(x), dtype=bool)
    has[bank.anywhere(task, needed, 1, asked=len(parts.x_train)).rows.numpy()] = True
    return has


def _share(answers: Any, wanted: Any) -> float:  # noqa: ANN401
    return float((np.asarray(answers) == wanted).mean())


def _off_grid(explainer: Explainer, answers: pd.DataFrame, x_cf: Tensor, wanted: Any) -> Any:  # noqa: ANN401
    """Whether answers hold at fresh corners that are not put on the grid, shape ``(m,)``."""
    encoder = explainer.encoder_
    assert encoder is not None
    moved = at_corners(encoder, x_cf, corners=FINAL_CORNERS, reach=PROMISE, salt=CORNERS_SALT, grid=False)
    frame = answers.iloc[np.repeat(np.arange(len(answers)), FINAL_CORNERS)].reset_index(drop=True)
    free = encoder.layout.free(encoder.layout.codes(moved)).numpy()
    for block in encoder.layout.blocks:
        if block.number is not None and block.scale is not None:
            values = block.scale.decode(moved[:, block.number]).numpy()
            own = frame[block.name].to_numpy(np.float64)
            frame[block.name] = np.where(free[:, block.number], values, own)
    held = explainer.model.predict(frame) == np.repeat(wanted, FINAL_CORNERS)
    return held.reshape(-1, FINAL_CORNERS).all(axis=1)


def _compared(own: Explained, logistic: Explained, parts: Parts, kind: str) -> Row:
    """Beside the logistic model and the nearest row that will do, without rows that lack everything."""
    row = _measured(own, parts, kind)
    kept = ~_all_missing(parts.x_test)
    l2, exact = own.result.found_figure("l2"), logistic.result.found_figure("l2")
    nearest = _nearest(own, parts)
    row["l2"] = _average(l2[kept])
    row["l2_over_logistic"] = _average(l2[kept]) / _average(exact[kept])
    both = kept & np.isfinite(nearest) & np.isfinite(l2)
    row["l2_over_nearest"] = _average(l2[both]) / _average(nearest[both])
    return row


def _all_missing(x: pd.DataFrame) -> Any:  # noqa: ANN401
    """Rows that hold nothing but special codes, the smallest values."""
    return (x.to_numpy(np.float64) < 1.01).all(axis=1)


def _average(values: Any) -> float:  # noqa: ANN401
    return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")


def _nearest(own: Explained, parts: Parts) -> Any:  # noqa: ANN401
    """Distance of each row to the nearest training row that will do, shape ``(n,)``."""
    explainer, result = own.explainer, own.result
    assert explainer.engine_ is not None
    assert result.encoded is not None
    x, _, wanted = result.encoded
    task = explainer.engine_.task(x, wanted, frame=parts.x_test)
    near = explainer.engine_.bank.near(task, torch.arange(len(x)), 1)
    distance = np.full(len(x), np.nan)
    distance[near.rows.numpy()] = (near.x - x[near.rows]).norm(dim=1).numpy()
    return distance


def _identified(row: Row, part: str, parts: Parts, model: str, selection: ModelSelection) -> Row:
    named: Row = {"part": part, "dataset": parts.name, "model": model}
    return named | row | {"training_rows": len(parts.x_train), "seed": selection.seed} | environment()


def write_page(rows: list[Row], path: Path) -> None:
    """Put the table between the marks of a page."""
    ran = {name: sorted({str(row[name]) for row in rows}) for name in ("seed", "commit")}
    said = "; ".join(f"{name} {', '.join(values)}" for name, values in ran.items())
    write_section(path, MARK, f"{markdown(rows, COLUMNS)}\n\n{said}.")
