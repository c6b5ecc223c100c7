"""Check counterfactuals that were given out earlier against a new model, density and rules."""

from __future__ import annotations

import json
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import pandas as pd
import torch
from scipy.stats import binomtest

from plausiflow.core import Targets, suitable_threads
from plausiflow.densities import row_scores
from plausiflow.errors import InvalidInputError
from plausiflow.explanations import json_value
from plausiflow.search import TABLE_POLICIES, Engine, Target, parse_target, plausibility_scores, read_rows
from plausiflow.tables import Encoded, FloatArray, Mask

if TYPE_CHECKING:
    from plausiflow.explainer.explainer import Explainer

AGES = (0, 30, 90, 180, 365)
"""Days from which each class of ages begins."""
CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Recheck:
    """What is left of counterfactuals that were given out.

    Attributes:
        rows: For each counterfactual ``valid`` (the model decides as was promised), ``score`` and
            ``plausible``, ``rules_kept`` (missing if the rows before the change are not known), ``holds``
            (all that is known is true), ``reason`` and, with dates, ``age`` in days.
        by_age: One line per class of ages, and for all: their number, the share that is ``valid`` and that
            ``holds``, and its 95 % interval ``low`` to ``high`` (Wilson).
    """

    rows: pd.DataFrame
    by_age: pd.DataFrame

    def __repr__(self) -> str:
        return f"Recheck({int(self.rows['holds'].sum()):,} of {len(self.rows):,} still hold)"

    @property
    def to_notify(self) -> pd.DataFrame:
        """The counterfactuals that no longer hold: rows to write to."""
        return self.rows[~self.rows["holds"]]

    @overload
    def to_json(self, path: None = None) -> str: ...

    @overload
    def to_json(self, path: str | Path) -> None: ...

    def to_json(self, path: str | Path | None = None) -> str | None:
        """Return strict JSON, or write it to ``path``: the shares by age, and each counterfactual."""
        tables = {
            name: [
                {key: json_value(value) for key, value in zip(columns, line, strict=True)}
                for line in table.itertuples(name=None)
            ]
            for name, table, columns in (
                ("by_age", self.by_age, ["age", *self.by_age.columns]),
                ("rows", self.rows, ["row", *self.rows.columns]),
            )
        }
        text = json.dumps({"version": 1, **tables}, ensure_ascii=False, allow_nan=False)
        if path is None:
            return text
        Path(path).write_text(text, encoding="utf-8", errors="backslashreplace")
        return None


def recheck(
    explainer: Explainer,
    counterfactuals: pd.DataFrame,
    target: Target,
    *,
    before: pd.DataFrame | None = None,
    issued: Sequence[Any] | pd.Series | None = None,
    today: object = None,
) -> Recheck:
    """Check counterfactuals that were given out against this explainer's model, density and rules.

    Args:
        explainer: The new explainer.
        counterfactuals: Rows of the table that were given out.
        target: The outcome that was promised: a label or an interval, or one for each row.
        before: The rows before the change, in the same order. Rules are checked only with them, and
            plausibility by their thresholds; without them by the thresholds of the counterfactuals.
        issued: The date of each counterfactual.
        today: The date that ages are counted to; default the current day.
    """
    encoder, model, engine = explainer._fitted()
    n = len(counterfactuals)
    for name, values in (("before", before), ("issued", issued)):
        if values is not None and len(values) != n:
            raise InvalidInputError(
                f"`{name}` must have {n} rows, one for each counterfactual; got {len(values)}. "
                "Use the order of the counterfactuals."
            )
    if isinstance(target, str) and target in TABLE_POLICIES and target not in model.labels:
        raise InvalidInputError(
            f"`target` must be the outcome that was promised, or one for each row; got {target!r}. Name one "
            f"of {', '.join(map(repr, model.labels))}."
        )
    with suitable_threads(counterfactuals):
        read = read_rows(encoder, model, counterfactuals)
        choices = parse_target(target, read.outputs, explainer.criterion_, model.labels, decided=read.decided)
        usable = read.encoded.usable
        valid = explainer.criterion_.met(read.outputs, choices[0], read.decided).numpy() & usable
        score = plausibility_scores(engine, read.encoded, choices)
        if before is not None:
            score = _scores_of(engine, read.encoded, encoder.encode(before), choices[0])
        broken = _broken_rules(explainer, counterfactuals, before, usable)
    plausible = np.nan_to_num(score, nan=-np.inf) >= 0
    kept = None if broken is None else broken == ""
    holds = valid & plausible & (True if kept is None else kept)
    problems = read.encoded.problems
    reason = [
        _reason(problem, v, p, "" if broken is None else broken[i])
        for i, (problem, v, p) in enumerate(zip(problems, valid, plausible, strict=True))
    ]
    rows = pd.DataFrame({"valid": valid, "score": score, "plausible": plausible}, index=counterfactuals.index)
    rows["rules_kept"] = pd.Series(
        kept if kept is not None else [pd.NA] * n, index=rows.index, dtype="boolean"
    )
    rows["holds"], rows["reason"] = holds, reason
    if issued is not None:
        rows["age"] = _ages(issued, today)
    return Recheck(rows=rows, by_age=_by_age(rows))


def _scores_of(engine: Engine, after: Encoded, before: Encoded, targets: Targets) -> FloatArray:
    """Return scores by the thresholds of the rows before the change, as in a search, shape ``(n,)``."""
    score = np.full(len(after.x), np.nan)
    places = torch.from_numpy(np.flatnonzero(after.usable & before.usable))
    own = row_scores(engine.plausibility, before.x[places], targets.y[places], with_margin=False)
    with torch.no_grad():
        score[places.numpy()] = own.score(after.x[places], torch.arange(len(places))).numpy()
    return score


def _broken_rules(
    explainer: Explainer, after: pd.DataFrame, before: pd.DataFrame | None, usable: Mask
) -> Any:  # noqa: ANN401
    """Return the first rule that each row breaks, empty for none; None if that is not known."""
    if before is None:
        return None
    encoder, _, engine = explainer._fitted()
    readable = usable & encoder.encode(before).usable
    broken = np.full(len(after), "the rows cannot be read", dtype=object)
    table = engine.rules.violations(before[readable], after[list(before.columns)][readable], None)
    cells, names = table.to_numpy(bool), np.array([str(name) for name in table.columns], dtype=object)
    broken[readable] = np.where(cells.any(axis=1), names[cells.argmax(axis=1)], "")
    return broken


def _reason(problem: str | None, valid: bool, plausible: bool, rule: str) -> str:
    if problem is not None:
        return problem
    texts = []
    if not valid:
        texts.append("the model no longer decides so")
    if not plausible:
        texts.append("it is no longer plausible enough")
    if rule:
        texts.append(f"it breaks {rule}")
    return "; ".join(texts)


def _ages(issued: Sequence[Any] | pd.Series, today: object) -> Any:  # noqa: ANN401
    dates = pd.Series([_day(value) for value in issued], dtype="datetime64[ns]")
    wrong = int(dates.isna().sum())
    if wrong:
        raise InvalidInputError(
            f"`issued` must have a date for each counterfactual; {wrong} of {len(dates)} cannot be read. "
            "Write dates as 2026-03-31."
        )
    now = pd.Timestamp.now() if today is None else pd.Timestamp(today)  # type: ignore[arg-type]
    ages = (now.normalize() - dates).dt.days.to_numpy()
    if (ages < 0).any():
        raise InvalidInputError(
            f"`issued` must have dates up to {now:%Y-%m-%d}; {int((ages < 0).sum())} of {len(ages)} are "
            "later. Correct them, or pass a later `today`."
        )
    return ages


def _day(value: object) -> Any:  # noqa: ANN401
    """Return the day of a date; no day for a number or a text that is too short, which pandas would read."""
    if isinstance(value, numbers.Number) or (isinstance(value, str) and len(value) < len("20260331")):
        return pd.NaT
    time: Any = pd.to_datetime(value, errors="coerce", format="ISO8601")  # type: ignore[call-overload]
    return pd.NaT if time is None or time is pd.NaT else time.tz_localize(None).normalize()


def _by_age(rows: pd.DataFrame) -> pd.DataFrame:
    lines = {}
    if "age" in rows:
        for place, start in enumerate(AGES):
            end = AGES[place + 1] if place + 1 < len(AGES) else None
            inside = (rows["age"] >= start if start else rows["age"] < AGES[1]) & (
                True if end is None else rows["age"] < end
            )
            if inside.any():
                name = f"{start} to {end - 1} days" if end else f"{start} days or more"
                lines[name] = _line(rows[inside])
    lines["all"] = _line(rows)
    return pd.DataFrame.from_dict(lines, orient="index").rename_axis("age")


def _line(rows: pd.DataFrame) -> dict[str, Any]:
    count, holds = len(rows), int(rows["holds"].sum())
    line: dict[str, Any] = {"counterfactuals": count}
    if not count:
        return line | dict.fromkeys(("valid", "holds", "low", "high"), float("nan"))
    interval = binomtest(holds, count).proportion_ci(CONFIDENCE, method="wilson")
    return line | {
        "valid": float(rows["valid"].mean()),
        "holds": holds / count,
        "low": float(interval.low),
        "high": float(interval.high),
    }
