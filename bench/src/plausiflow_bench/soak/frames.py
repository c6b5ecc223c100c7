"""Odd tables: every row gets a verdict, and what is found holds by the model's own ``predict``."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import pandas as pd

from plausiflow.errors import PlausiflowError
from plausiflow.explainer import Explainer
from plausiflow_bench.soak.outcomes import Countdown, Outcomes

ODD: tuple[Any, ...] = (
    None, float("nan"), float("inf"), -float("inf"), 1e300, -1e300, 0, -0.0, 10**30, "", " ", "granted",
    "1e5", "\x00", "=1+1", b"bytes", True, pd.NaT, pd.Timestamp("2020-01-01"), complex(1, 2), (1, 2), [], {},
    "ünïcode" * 50,
)  # fmt: skip
STATUSES = {"found", "already", "relaxed", "infeasible", "not_reached", "invalid_input"}


def soak_frames(explainer: Explainer, rows: pd.DataFrame, outcomes: Outcomes, countdown: Countdown) -> None:
    """Explain odd tables until the time is over."""
    draw = random.Random(0)
    while not countdown.over:
        frame, arguments = _odd_frame(rows, draw), _arguments(rows, draw)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _explain(explainer, frame, arguments, outcomes)


def _explain(
    explainer: Explainer, frame: pd.DataFrame, arguments: dict[str, Any], outcomes: Outcomes
) -> None:
    try:
        result = explainer.explain(frame, **arguments)
    except PlausiflowError:
        return outcomes.add("clear")
    except Exception as error:  # what the soak looks for
        return outcomes.add("wrong", f"{type(error).__name__}: {error} for {arguments}")
    statuses = result.status["status"].tolist()
    if len(statuses) != len(frame):
        return outcomes.add("lost", f"{len(frame)} rows, {len(statuses)} verdicts")
    if not set(statuses) <= STATUSES:
        return outcomes.add("wrong", f"statuses {set(statuses)}")
    found = result.best_answers
    if len(found) and "target" not in arguments:
        before = explainer.predict(frame.loc[found.index]).tolist()
        after = explainer.predict(found).tolist()
        if any(a == b for a, b in zip(before, after, strict=True)):
            return outcomes.add("wrong", "a found row is decided as before")
    return outcomes.add("right")


def _odd_frame(rows: pd.DataFrame, draw: random.Random) -> pd.DataFrame:
    """Return a few rows with odd cells, dtypes, columns or an odd index."""
    count = draw.choice((0, 1, 2, 7))
    frame = rows.iloc[[draw.randrange(len(rows)) for _ in range(count)]].reset_index(drop=True)
    for _ in range(draw.randrange(4)):
        name = draw.choice(list(frame.columns))
        column = frame[name].astype(object)
        if count:
            column.iloc[draw.randrange(count)] = draw.choice(ODD)
        frame[name] = column
    change = draw.randrange(8)
    if change == 0:
        frame = frame.drop(columns=draw.choice(list(frame.columns)))
    elif change == 1:
        frame["another"] = 1
    elif change == 2:
        frame = frame[draw.sample(list(frame.columns), len(frame.columns))]
    elif change == 3:
        frame = frame.astype(object)
    elif change == 4 and count:
        frame.index = pd.Index([draw.choice(("x", "y", "z")) + str(i) for i in range(count)])
    elif change == 5:
        frame = pd.concat([frame, frame.iloc[:, :1]], axis=1)
    return frame


def _arguments(rows: pd.DataFrame, draw: random.Random) -> dict[str, Any]:
    odd: list[dict[str, Any]] = [
        {}, {}, {}, {}, {"k": 3}, {"time_limit": 0.05}, {"relaxed": True}, {"diagnose": False},
        {"k": 0}, {"k": 10**9}, {"target": "nobody"}, {"min_probability": 2.0}, {"locked": ["nobody"]},
        {"locked": [str(rows.columns[0])]}, {"time_limit": float("nan")}, {"target": np.array([[1.0, 2.0]])},
    ]  # fmt: skip
    return draw.choice(odd)
