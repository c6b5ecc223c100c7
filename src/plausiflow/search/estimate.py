"""How long a fit will take: one epoch of a few rows is trained, and what follows is in proportion."""

from __future__ import annotations

import time
from dataclasses import replace

import torch

from plausiflow.constraints import CompiledRules
from plausiflow.densities import MixedDensity, OneCycle, fit_mixed
from plausiflow.errors import TrainingError
from plausiflow.models import RefitPlan
from plausiflow.progress import duration, hide_progress, progress_form, say
from plausiflow.search.effort import EFFORTS
from plausiflow.search.fit import FitSettings, TrainingRows
from plausiflow.search.learn import MEMBERS
from plausiflow.tables import Encoder

ROWS = 2048
"""Rows of the epoch that is timed."""
SEARCHED = 1.4
"""The whole fit, in multiples of the training: calibration searches rows afterwards."""
LASTING = 1.0
"""What durability adds besides the refits, in the same multiples: rows are searched again. Runs of
``plausiflow benchmark durable`` had 0.6 (loans, linear) to 2 (german_credit, network); trees take longer."""


def announce_fit(
    rows: TrainingRows,
    *,
    rules: CompiledRules,
    encoder: Encoder,
    settings: FitSettings,
    refits: RefitPlan | None = None,
) -> None:
    """Say about how long a fit with the default densities will take, if progress is shown.

    Of the refits that durability needs, the first is trained now, and kept.
    """
    if progress_form() == "none" or settings.density is not None or len(rows.x) == 0:
        return
    if not isinstance(settings.plausibility, int | float):
        return
    count, n = MEMBERS + settings.judges, len(rows.x)
    try:
        with hide_progress():
            seconds = _training_seconds(rows, rules, encoder, settings, count)
    except TrainingError:  # the training itself says what is wrong
        return
    whole = seconds if settings.confidence is None else SEARCHED * seconds
    text = f"Fit: {count} densities learn from {n:,} rows"
    if refits is not None:
        whole += refits.seconds_left() + LASTING * seconds
        text += f", and {refits.count} models are retrained"
    say(f"{text}; about {duration(whole)}.")


def _training_seconds(
    rows: TrainingRows, rules: CompiledRules, encoder: Encoder, settings: FitSettings, count: int
) -> float:
    some = slice(0, min(len(rows.x), ROWS))
    x, y = rows.x[some].float(), rows.classes[some]
    base = MixedDensity.from_layout(encoder.layout, rules.immutable, random_state=settings.random_state)
    copies = [replace(base, random_state=settings.random_state + m) for m in range(count)]
    used = torch.ones(count, len(y), dtype=torch.bool)
    begun = time.perf_counter()
    fit_mixed(copies, x, y, used, rows.n_classes, OneCycle(epochs=2), "")
    per_epoch = (time.perf_counter() - begun) / 2 * len(rows.x) / len(x)
    return per_epoch * EFFORTS[settings.effort].training.all_epochs
