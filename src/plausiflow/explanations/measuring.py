"""Metrics of a result."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from plausiflow.core import METRICS, Variant, evaluate, judge
from plausiflow.explanations.checks import FIGURES
from plausiflow.explanations.parts import Parts

_TIMES = ("seconds", "cpu_seconds")


def measure(parts: Parts, variant: Variant) -> pd.Series:
    """The share of rows found, and means over the best answers of found rows."""
    needed = int(parts.is_needed.sum())
    values = {"coverage": float(parts.is_found.sum()) / needed if needed else np.nan}
    for name in FIGURES:
        known = parts.found_figure(name)
        known = known[~np.isnan(known)]
        values[name] = float(known.mean()) if len(known) else np.nan
    scores = parts.found_figure("score")
    scores = scores[~np.isnan(scores)]
    values["plausibility"] = float((scores >= 0).mean()) if len(scores) else np.nan
    for name, value in _evaluate(parts, variant).items():
        if name not in values or not np.isnan(value):
            values[name] = value
    return pd.Series(values, dtype=np.float64, name="metrics")


def _evaluate(parts: Parts, variant: Variant) -> dict[str, float]:
    """The metrics of encoded rows that need an answer; none where these or the context are not known."""
    if parts.encoded is None or parts.context is None:
        return {}
    x, answers, y_target = parts.encoded
    x_cf = torch.full_like(x, torch.nan)
    found = torch.tensor(parts.is_found, device=x.device)
    x_cf[found] = answers[torch.tensor(parts.best[parts.is_found], device=answers.device)].to(x)
    rows = torch.tensor(parts.is_needed, device=x.device)
    cf = judge(
        classifier=parts.context.classifier,
        plausibility=None,
        x=x[rows],
        x_cf=x_cf[rows],
        y_target=y_target[rows],
    )
    names = [name for name in METRICS.get(variant, {}) if name not in _TIMES]
    return evaluate(cf, parts.context, variant=variant, names=names)
