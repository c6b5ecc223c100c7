"""``plausiflow fit``: fit an explainer to a table in a file."""

from __future__ import annotations

import difflib
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import typer

from plausiflow.cli.model_files import read_model
from plausiflow.cli.options import (
    Encoding,
    Force,
    Separator,
    parse_cutoffs,
    parse_names,
    parse_share,
    print_note,
    warnings_as_notes,
)
from plausiflow.cli.output_paths import check_directory, free_path
from plausiflow.cli.rules_file import RulesFile, read_rules
from plausiflow.cli.suggestions import check_suggestions, load_model, write_suggestions
from plausiflow.cli.table_files import Dialect, read_table, require_columns
from plausiflow.cli.training import (
    Train,
    describe_quality,
    is_number,
    make_model,
    split_held_out,
    with_cutoff,
)
from plausiflow.constraints import LearnedRule
from plausiflow.errors import InvalidInputError
from plausiflow.explainer import Explainer, with_checked_settings
from plausiflow.models import NetworkClassifier
from plausiflow.search import Distance, EffortName
from plausiflow.tables import to_python

Labels = Literal["given", "model", "bayes"]
Missing = Literal["keep", "impute"]
MAX_RULES = 5
EXAMPLES = (
    "plausiflow fit loans.csv --target loan --train gbm --out credit",
    "plausiflow fit loans.csv --target loan --model model.skops --rules rules.toml --out credit",
    "plausiflow fit loans.csv --target loan --suggest-rules rules.toml --out credit",
    "plausiflow fit loans.csv --target loan --drop id,date --confidence none --judges 0 --out quick",
)


@dataclass(frozen=True, kw_only=True, eq=False)
class _FitInputs:
    """Training rows with their outcomes, the model, and the rows on which it is tested."""

    x: pd.DataFrame
    y: pd.Series
    model: Any
    model_text: str
    test: tuple[pd.DataFrame, pd.Series] | None
    test_text: str


def fit(
    data: Annotated[Path, typer.Argument(help="A .csv or .parquet file with the features and the outcome.")],
    target: Annotated[str, typer.Option("--target", help="The column with the outcome.")],
    out: Annotated[Path, typer.Option("--out", help="Directory for the explainer.")],
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            help="The model to explain: .skops, XGBoost's .json or .ubj, LightGBM's .txt, .onnx, or the "
            "directory of another explainer. Never a pickle.",
        ),
    ] = None,
    train: Annotated[
        Train | None,
        typer.Option("--train", help="Train a model instead; default: mlp, or gbm to predict a number."),
    ] = None,
    rules: Annotated[
        Path | None, typer.Option("--rules", help="TOML file with the rules of what may change.")
    ] = None,
    suggest: Annotated[
        Path | None,
        typer.Option(
            "--suggest-rules",
            help="Write proposed rules, each with its reason, to this TOML file for you to confirm, and fit "
            "nothing.",
        ),
    ] = None,
    learn_rules: Annotated[
        bool,
        typer.Option(
            "--learn-rules/--no-learn-rules", help="Learn rules from the table that answers must follow too."
        ),
    ] = True,
    switch_off: Annotated[
        list[str] | None,
        typer.Option("--switch-off", help="A learned rule not to follow, as fit prints it; may be repeated."),
    ] = None,
    plausibility: Annotated[
        float, typer.Option("--plausibility", help="Share of real rows than which an answer must be denser.")
    ] = 0.5,
    confidence: Annotated[
        str, typer.Option("--confidence", help="Share of answers that a second opinion must accept, or none.")
    ] = "0.98",
    distance: Annotated[
        Distance, typer.Option("--distance", help="How the changes of numbers add up to a cost.")
    ] = "l2",
    max_extra_cost: Annotated[
        float,
        typer.Option(
            "--max-extra-cost",
            help="How much more an answer with fewer changes may cost, as a share; 0.3: 30 %.",
        ),
    ] = Explainer.max_extra_cost,
    judges: Annotated[int, typer.Option("--judges", help="Number of densities that judge every answer.")] = 3,
    effort: Annotated[
        EffortName, typer.Option("--effort", help="How long to train: quick takes about half of the time.")
    ] = "standard",
    labels: Annotated[
        Labels,
        typer.Option("--labels", help="Outcomes that the density learns from: the column, or the model's."),
    ] = "given",
    missing: Annotated[
        Missing, typer.Option("--missing", help="Keep missing values, or impute them.")
    ] = "keep",
    decision_threshold: Annotated[
        str | None,
        typer.Option(
            "--decision-threshold",
            help="Probability from which the second of two outcomes is decided for, or NAME=CUT,NAME=CUT. A "
            "model that is given decides by its own predict.",
        ),
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option("--drop", help="Columns that are not features; may be repeated.")
    ] = None,
    rows: Annotated[
        int | None, typer.Option("--rows", help="Use only this many rows, drawn at random.")
    ] = None,
    hold_out: Annotated[
        float, typer.Option("--hold-out", help="Share of the rows that --train keeps to test the model.")
    ] = 0.2,
    seed: Annotated[int, typer.Option("--seed", help="Random seed.")] = 0,
    separator: Separator = ",",
    encoding: Encoding = "utf-8",
    force: Force = False,
) -> None:
    """Fit an explainer to a table, and save it.

    The model to explain is your own (--model) or is trained here (--train). The explainer also learns how
    plausible rows are. Its directory contains training rows: protect it like the table.
    """
    start = time.monotonic()
    check_directory("--out", out, force=force)
    if model is not None and train is not None:
        raise InvalidInputError("--model and --train exclude each other. Use one of them.")
    if switch_off and not learn_rules:
        raise InvalidInputError("--switch-off and --no-learn-rules exclude each other. Use one of them.")
    if not 0 <= hold_out <= 0.9:
        raise InvalidInputError(f"--hold-out must be a share from 0 to 0.9, such as 0.2; got {hold_out}.")
    if suggest is not None:
        check_suggestions(suggest, {"the table": data, "the model": model, "--rules": rules}, force=force)
    frame = read_table(data, Dialect(separator=separator, encoding=encoding))
    x, y = _split_target(frame, data, target, drop, rows, seed)
    if suggest is not None:
        write_suggestions(suggest, x, None if model is None else load_model(model, _outcomes(y)), data)
        return
    _check_outcomes(y, labels)
    file = RulesFile() if rules is None else read_rules(rules, list(x.columns))
    explainer = Explainer(
        None,
        decision_threshold=parse_cutoffs(decision_threshold, y),
        labels=labels,
        constraints=file.constraints,
        learn_rules=learn_rules,
        plausibility=plausibility,
        confidence=parse_share(confidence, "--confidence"),
        distance=distance,
        weights=file.weights or None,
        max_extra_cost=max_extra_cost,
        kinds=file.kinds or None,
        orders=file.orders or None,
        special=file.special or None,
        steps=file.steps or None,
        missing=missing,
        judges=judges,
        random_state=seed,
    )
    with_checked_settings(explainer)  # before a model is trained
    _print_table(data, x, y)
    for rule in file.constraints:
        typer.echo(f"Rule: {rule}")
    with warnings_as_notes() as printed:
        if model is None:
            inputs = _train_model(x, y, train, hold_out, explainer)
        else:
            inputs = _load_model(x, y, model, explainer)
        explainer.model = inputs.model
        explainer.fit(inputs.x, inputs.y, effort=effort)
        _switch_off(explainer, switch_off or ())
        explainer.save(out)
    assert explainer.encoder_ is not None
    for note in explainer.encoder_.schema.notes:
        if note not in printed:
            print_note(note)
    _print_model(explainer, inputs)
    _print_learned_rules(explainer.learned_rules)
    megabytes = sum(path.stat().st_size for path in out.iterdir()) / 1e6
    typer.echo(f"Saved: {out} ({megabytes:.1f} MB), after {time.monotonic() - start:.0f} seconds")
    _print_next(explainer, y, [str(out), str(data)], separator, encoding)


def _print_next(
    explainer: Explainer, y: pd.Series, paths: Sequence[str], separator: str, encoding: str
) -> None:
    """Print a command that explains the rows of the table, as it is."""
    assert explainer.model_ is not None
    outcomes = len(explainer.model_.labels)
    # The least predicted number that a quarter of the rows have, written as an interval.
    target = f"{y.quantile(0.75):g}:" if not outcomes else "opposite" if outcomes == 2 else "runner_up"
    command = ["plausiflow", "explain", *paths, "--target", target]
    command += [] if separator == "," else ["--separator", separator]
    command += [] if encoding == "utf-8" else ["--encoding", encoding]
    for option, name in (("--out", "answers.csv"), ("--report", "report.html")):
        command += [option, str(free_path(Path(name)))]
    typer.echo(f"Next: {shlex.join(command)}")


def _split_target(
    frame: pd.DataFrame, data: Path, target: str, drop: list[str] | None, rows: int | None, seed: int
) -> tuple[pd.DataFrame, pd.Series]:
    """Return the features and the outcomes."""
    columns = list(frame.columns)
    dropped = parse_names(drop, columns)
    require_columns([target, *dropped], columns, str(data))
    if target in dropped:
        raise InvalidInputError(f"--drop names {target!r}, which is the target. Leave it out of --drop.")
    if len(columns) == 1 + len(dropped):
        raise InvalidInputError(f"{data} has no column besides {target!r} to learn from. Add features.")
    if not isinstance(frame.index, pd.RangeIndex):
        print_note(f"the index of {data} is not used as a feature.")
    if rows is not None:
        if rows < 2:
            raise InvalidInputError(f"--rows must be 2 or more; got {rows}.")
        frame = frame.iloc[np.sort(np.random.default_rng(seed).permutation(len(frame))[:rows])]
    return frame.drop(columns=[target, *dropped]), frame[target]


def _check_outcomes(y: pd.Series, labels: Labels) -> None:
    missing = y.index[y.isna()]
    if len(missing) and labels == "given":
        raise InvalidInputError(
            f"`{y.name}` is missing in {len(missing):,} of {len(y):,} rows, first in row {missing[0]}. "
            "Delete these rows, or add --labels bayes: the density then learns from the model."
        )
    if y.nunique() < 2:
        raise InvalidInputError(
            f"`{y.name}` must contain two outcomes or more; it has {y.nunique()}. Is it the right column?"
        )


def _train_model(
    x: pd.DataFrame, y: pd.Series, kind: Train | None, share: float, explainer: Explainer
) -> _FitInputs:
    """Train a model on all rows but those that are held out."""
    numbers = is_number(y)
    kind, seed = kind or ("gbm" if numbers else "mlp"), explainer.random_state
    held_out = split_held_out(y, share, numbers=numbers, seed=seed)
    train_x, train_y = x[~held_out], y[~held_out]
    known = train_y.notna()
    schema = explainer.infer_schema(train_x)
    used = [f.name for f in schema.features if f.kind not in ("identifier", "constant")]
    model = make_model(kind, train_x.loc[known, used], train_y[known], numbers=numbers, seed=seed)
    if kind == "gbm" and not numbers and explainer.decision_threshold is not None:
        model = with_cutoff(model, explainer.decision_threshold, train_x.loc[known, used], train_y[known])
        explainer.decision_threshold = None  # it is now that of the model's own `predict`
    return _FitInputs(
        x=train_x,
        y=train_y,
        model=model,
        model_text=f"{kind}, trained on {int(known.sum()):,} rows",
        test=(x[held_out], y[held_out]) if held_out.any() else None,
        test_text=f"{int(held_out.sum()):,} rows that were held out ({share:.0%})",
    )


def _load_model(x: pd.DataFrame, y: pd.Series, path: Path, explainer: Explainer) -> _FitInputs:
    """Load a model that was trained elsewhere; the density is fitted to all rows."""
    if path.is_dir():
        saved = Explainer.load(path)
        schema = explainer.infer_schema(x)
        assert saved.encoder_ is not None
        same = (saved.encoder_.schema, saved.encoder_.missing) == (schema, explainer.missing)
        if isinstance(saved.model, NetworkClassifier) and not same:
            raise InvalidInputError(
                f"The network of {path} needs rows in the encoding of the table that it was trained on, and "
                "this table has other columns, levels or ranges. Use the same table, or --train."
            )
        model = saved.model
    else:
        model = read_model(path, _outcomes(y))
        _check_labels(model, path, y)
    return _FitInputs(
        x=x,
        y=y,
        model=model,
        model_text=f"{type(model).__name__} of {path}",
        test=(x, y),
        test_text="the table, which it may have been trained on",
    )


def _outcomes(y: pd.Series) -> list[Any]:
    """Return the outcomes, sorted; nothing for a number to predict."""
    return [] if is_number(y) else sorted(map(to_python, y.dropna().unique()))


def _check_labels(model: Any, path: Path, y: pd.Series) -> None:  # noqa: ANN401
    """Raise unless a classifier knows all outcomes; XGBoost's classifiers know only numbers."""
    known = [to_python(label) for label in getattr(model, "classes_", ())]
    unknown = [label for label in map(to_python, y.dropna().unique()) if label not in known]
    if known and unknown:
        raise InvalidInputError(
            f"`{y.name}` contains {', '.join(map(repr, sorted(unknown, key=str)[:5]))}, and the outcomes of "
            f"{path} are {', '.join(map(repr, known[:5]))}. Write them as the model was trained on them."
        )


def _switch_off(explainer: Explainer, texts: Sequence[str]) -> None:
    """Switch off learned rules, given as their texts."""
    known = {str(rule): rule for rule in explainer.learned_rules}
    for text in texts:
        if text not in known:
            close = difflib.get_close_matches(text, known, n=1)
            advice = f"did you mean {close[0]}?" if close else f"there are {', '.join(known) or 'none'}."
            raise InvalidInputError(f"--switch-off must be a learned rule; got {text}, and {advice}")
    explainer.switch_off(*(known[text] for text in texts))


def _print_learned_rules(rules: Sequence[LearnedRule]) -> None:
    """Print how many rules were learned, and some of them: those that were switched off, then the first."""
    if not rules:
        return
    typer.echo(f"Rules learned from the table: {len(rules):,}")
    shown = sorted(rules, key=lambda rule: rule.active)[: max(MAX_RULES, sum(not r.active for r in rules))]
    for rule in shown:
        typer.echo(f"  {rule.text}")
    if len(rules) > len(shown):
        typer.echo(f"  and {len(rules) - len(shown):,} more; the report of `plausiflow explain` lists all")


def _print_table(data: Path, x: pd.DataFrame, y: pd.Series) -> None:
    if is_number(y):
        outcomes = f"{y.min():g} to {y.max():g}"
    else:
        counts = [f"{label} {count:,}" for label, count in y.value_counts().head(5).items()]
        outcomes = ", ".join(counts) + (" and more" if y.nunique() > 5 else "")
    typer.echo(f"Table: {data}, {len(x):,} rows, {x.shape[1]} features, {y.name}: {outcomes}")


def _print_model(explainer: Explainer, inputs: _FitInputs) -> None:
    typer.echo(f"Model: {inputs.model_text}")
    if explainer.model_ is not None:
        typer.echo(f"Explained as: {explainer.model_.description}")
    if inputs.test is not None:
        typer.echo(f"Tested on {inputs.test_text}: {describe_quality(explainer, *inputs.test)}")
