"""``plausiflow fit``: an explainer from a table in a file."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import typer

from plausiflow.cli.model_files import read_model
from plausiflow.cli.places import check_directory
from plausiflow.cli.rules_file import RulesFile, read_rules
from plausiflow.cli.table_options import (
    Encoding,
    Force,
    Separator,
    names_of,
    note,
    notes_shown,
    share_or_none,
    size_of,
)
from plausiflow.cli.tables import Dialect, read_table, require_columns
from plausiflow.cli.training import Train, held_out, is_number, model_for, quality
from plausiflow.errors import InvalidInputError
from plausiflow.explainer import Explainer
from plausiflow.models import NetworkClassifier
from plausiflow.tables import Schema, plain

Labels = Literal["given", "model", "bayes"]
Missing = Literal["keep", "impute"]
EXAMPLES = (
    "plausiflow fit loans.csv --target loan --train gbm --out credit",
    "plausiflow fit loans.csv --target loan --model model.skops --rules rules.toml --out credit",
    "plausiflow fit loans.csv --target loan --drop id,date --confidence none --judges 0 --out quick",
)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Task:
    """What to fit: rows and outcomes, the model, and on which rows it is tried."""

    x: pd.DataFrame
    y: pd.Series
    model: Any
    model_text: str
    tried: tuple[pd.DataFrame, pd.Series] | None
    tried_text: str


def fit(
    data: Annotated[Path, typer.Argument(help="A .csv or .parquet file: features, and the outcome.")],
    target: Annotated[str, typer.Option("--target", help="The column that holds the outcome.")],
    out: Annotated[Path, typer.Option("--out", help="Directory for the explainer.")],
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            help="The model to explain: .skops, XGBoost's .json or .ubj, LightGBM's .txt, or the "
            "directory of another explainer. Never a pickle.",
        ),
    ] = None,
    train: Annotated[
        Train | None,
        typer.Option("--train", help="Train a model instead; mlp unless a number is predicted, then gbm."),
    ] = None,
    rules: Annotated[
        Path | None, typer.Option("--rules", help="What may change: a TOML file, see docs/rules.md.")
    ] = None,
    plausibility: Annotated[
        float, typer.Option("--plausibility", help="Denser than which share of real rows an answer must be.")
    ] = 0.5,
    confidence: Annotated[
        str, typer.Option("--confidence", help="Share of answers that a second opinion must accept, or none.")
    ] = "0.95",
    judges: Annotated[int, typer.Option("--judges", help="Densities that judge every answer.")] = 3,
    labels: Annotated[
        Labels, typer.Option("--labels", help="What tells the density outcomes: the column, or the model.")
    ] = "given",
    missing: Annotated[
        Missing, typer.Option("--missing", help="Keep missing values missing, or fill them.")
    ] = "keep",
    drop: Annotated[
        list[str] | None, typer.Option("--drop", help="Columns that are no features; may be repeated.")
    ] = None,
    rows: Annotated[int | None, typer.Option("--rows", help="Only so many rows, drawn at random.")] = None,
    hold_out: Annotated[
        float, typer.Option("--hold-out", help="Share of the rows that --train leaves out and is tried on.")
    ] = 0.2,
    seed: Annotated[int, typer.Option("--seed", help="Of everything that is learned.")] = 0,
    separator: Separator = ",",
    encoding: Encoding = "utf-8",
    force: Force = False,
) -> None:
    """Learn from a table, and save an explainer.

    The model that is explained is yours (--model), or is trained here (--train). What an explainer learns
    besides is how plausible rows are. The directory holds training rows: treat it as you treat the table.
    """
    start = time.monotonic()
    check_directory("--out", out, force=force)
    if model is not None and train is not None:
        raise InvalidInputError("--model and --train exclude each other: give a model, or have one trained.")
    if not 0 <= hold_out <= 0.9:
        raise InvalidInputError(f"--hold-out must be a share from 0 to 0.9, such as 0.2; got {hold_out}.")
    frame = read_table(data, Dialect(separator=separator, encoding=encoding))
    x, y = _table(frame, data, target, drop, rows, seed)
    _check_outcomes(y, labels)
    stated = RulesFile() if rules is None else read_rules(rules, list(x.columns))
    explainer = Explainer(
        None,
        labels=labels,
        constraints=stated.constraints,
        plausibility=plausibility,
        confidence=share_or_none(confidence, "--confidence"),
        weights=stated.weights or None,
        kinds=stated.kinds or None,
        orders=stated.orders or None,
        missing=missing,
        judges=judges,
        random_state=seed,
    )
    _say_table(data, x, y)
    for rule in stated.constraints:
        typer.echo(f"Rule: {rule}")
    with notes_shown():
        task = _trained(x, y, train, hold_out, explainer) if model is None else _given(x, y, model, explainer)
        explainer.model = task.model
        explainer.fit(task.x, task.y)
        explainer.save(out)
    _say_model(explainer, task)
    typer.echo(f"Saved: {out} ({size_of(out)}), after {time.monotonic() - start:.0f} seconds")
    asked = "opposite" if explainer.model_ is not None and len(explainer.model_.labels) == 2 else "..."
    command = ["plausiflow", "explain", str(out), str(data), "--target", asked, "--out", "answers.csv"]
    typer.echo(f"Next: {shlex.join(command)} --report report.html")


def _table(
    frame: pd.DataFrame, data: Path, target: str, drop: list[str] | None, rows: int | None, seed: int
) -> tuple[pd.DataFrame, pd.Series]:
    """Features and outcomes."""
    columns = list(frame.columns)
    dropped = names_of(drop, columns)
    require_columns([target, *dropped], columns, str(data))
    if target in dropped:
        raise InvalidInputError(f"--drop names {target!r}, which is the target. Leave it out of --drop.")
    if len(columns) == 1 + len(dropped):
        raise InvalidInputError(f"{data} has no column besides {target!r} to learn from. Add features.")
    if not isinstance(frame.index, pd.RangeIndex):
        note(f"The labels of the rows of {data} are not used as a feature.")
    if rows is not None:
        if rows < 2:
            raise InvalidInputError(f"--rows must be 2 or more; got {rows}.")
        drawn = np.random.default_rng(seed).permutation(len(frame))[:rows]
        frame = frame.iloc[np.sort(drawn)]
    return frame.drop(columns=[target, *dropped]), frame[target]


def _check_outcomes(y: pd.Series, labels: Labels) -> None:
    gone = y.index[y.isna()]
    if len(gone) and labels == "given":
        raise InvalidInputError(
            f"`{y.name}` is missing in {len(gone):,} of {len(y):,} rows, first in row {gone[0]}. Delete "
            "these rows, or add --labels bayes: the density then learns from the model."
        )
    if y.nunique() < 2:
        raise InvalidInputError(
            f"`{y.name}` must hold two outcomes or more; it holds {y.nunique()}. Is it the right column?"
        )


def _trained(x: pd.DataFrame, y: pd.Series, kind: Train | None, share: float, explainer: Explainer) -> _Task:
    """A model that is trained here, on all rows but those that it is tried on."""
    numbers = is_number(y)
    kind = kind or ("gbm" if numbers else "mlp")
    seed = explainer.random_state
    tried = held_out(y, share, numbers=numbers, seed=seed)
    own, outcomes = x[~tried], y[~tried]
    known = outcomes.notna()
    schema = Schema.infer(own, kinds=explainer.kinds, orders=explainer.orders)
    used = [f.name for f in schema.features if f.kind not in ("identifier", "constant")]
    model = model_for(kind, own.loc[known, used], outcomes[known], numbers=numbers, seed=seed)
    return _Task(
        x=own,
        y=outcomes,
        model=model,
        model_text=f"{kind}, trained on {int(known.sum()):,} rows",
        tried=(x[tried], y[tried]) if tried.any() else None,
        tried_text=f"{int(tried.sum()):,} rows that were held out ({share:.0%})",
    )


def _given(x: pd.DataFrame, y: pd.Series, path: Path, explainer: Explainer) -> _Task:
    """A model that was trained elsewhere; all rows are learned from."""
    if path.is_dir():
        saved = Explainer.load(path)
        schema = Schema.infer(x, kinds=explainer.kinds, orders=explainer.orders)
        before = saved.encoder_
        assert before is not None
        alike = (before.schema, before.missing) == (schema, explainer.missing)
        if isinstance(saved.model, NetworkClassifier) and not alike:
            raise InvalidInputError(
                f"The network of {path} takes rows as the table that it was trained on encodes them, and "
                "this table has other columns, levels or ranges. Give the same table, or --train."
            )
        model = saved.model
    else:
        model = read_model(path, [] if is_number(y) else sorted(map(plain, y.dropna().unique())))
        _check_labels(model, path, y)
    return _Task(
        x=x,
        y=y,
        model=model,
        model_text=f"{type(model).__name__} of {path}",
        tried=(x, y),
        tried_text="the table, which it may have been trained on",
    )


def _check_labels(model: Any, path: Path, y: pd.Series) -> None:  # noqa: ANN401
    """Raise unless a classifier knows all outcomes; XGBoost's only knows numbers."""
    known = [plain(label) for label in getattr(model, "classes_", ())]
    strange = [label for label in map(plain, y.dropna().unique()) if label not in known]
    if known and strange:
        raise InvalidInputError(
            f"`{y.name}` holds {', '.join(map(repr, sorted(strange, key=str)[:5]))}, and the outcomes of "
            f"{path} are {', '.join(map(repr, known[:5]))}. Write them as the model was trained on them."
        )


def _say_table(data: Path, x: pd.DataFrame, y: pd.Series) -> None:
    if is_number(y):
        outcomes = f"{y.min():g} to {y.max():g}"
    else:
        counts = [f"{label} {count:,}" for label, count in y.value_counts().head(5).items()]
        outcomes = ", ".join(counts) + (" and more" if y.nunique() > 5 else "")
    typer.echo(f"Table: {data}, {len(x):,} rows, {x.shape[1]} features, {y.name}: {outcomes}")


def _say_model(explainer: Explainer, task: _Task) -> None:
    typer.echo(f"Model: {task.model_text}")
    if explainer.model_ is not None:
        typer.echo(f"ModelResolver for: {explainer.model_.description}")
    if task.tried is not None:
        typer.echo(f"Tried on {task.tried_text}: {quality(explainer, *task.tried)}")
