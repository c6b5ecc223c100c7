"""What is measured of answers, and the verdicts of rows, as tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from plausiflow.core import Classifier, Context, Density, Plausibility
from plausiflow.densities import CrossFitEnsemble, Judges
from plausiflow.models import BlackBox, EncodedModel
from plausiflow.search import (
    FINAL_CORNERS,
    PROMISE,
    Engine,
    SearchRequest,
    SearchResult,
    answers_as_text,
    targets_as_text,
)
from plausiflow.tables import Numbers


def context_of(model: EncodedModel | BlackBox, x: Tensor, classes: Tensor) -> Context | None:
    """What a classifier's answers are measured against: encoded training rows and their classes.

    Plausibility and judges are held against what each row is given, which only a verdict knows.
    """
    if not model.labels:
        return None
    decider = model if isinstance(model, BlackBox) else model.model
    assert isinstance(decider, Classifier)
    return Context(classifier=decider, x_train=x, y_train=classes)


@torch.no_grad()
def figures_of(
    question: SearchRequest,
    answers: SearchResult,
    model: EncodedModel | BlackBox,
    finder: Engine,
    judges: Judges | None,
) -> pd.DataFrame:
    """The figures of each answer; for a model without gradients it is asked once more, and at corners."""
    x, of = question.encoded.x[answers.of], answers.of
    wanted = question.wanted.y[of]
    outputs = model.answers(answers.x_cf, answers.decoded)
    judged = torch.full((len(of),), torch.nan, dtype=torch.float64)
    if judges is not None and len(of):
        judged = judges.passes(answers.x_cf, wanted, x).double().mean(dim=1)
    delta = answers.x_cf - x
    log_density = probability = torch.full_like(judged, torch.nan)
    if isinstance(finder.plausibility, Density):
        log_density = finder.plausibility.log_prob(answers.x_cf, wanted)
    if model.labels:
        probability = outputs.gather(1, wanted[:, None])[:, 0].exp()
    figures = {
        "cost": answers.cost,
        "l1": delta.abs().sum(dim=1),
        "l2": torch.linalg.vector_norm(delta, dim=1),
        "n_changes": finder.rules.layout.changed(answers.x_cf, x).sum(dim=1),
        "probability": probability,
        "log_density": log_density,
        "score": answers.score,
        "judged": judged,
    }
    if not model.labels:
        figures["prediction"] = outputs
    if finder.itself is not None:
        # Whatever the search has spent, every corner is asked about.
        itself = replace(finder.itself, budget=FINAL_CORNERS * len(of))
        oracle = itself.oracle(question.frame, question.encoded.x, question.wanted)
        figures["steady"] = oracle.steady(answers.x_cf, of, corners=FINAL_CORNERS, reach=PROMISE, salt=4)
    return pd.DataFrame({name: values.numpy() for name, values in figures.items()})


def verdicts_of(
    question: SearchRequest, answers: SearchResult, before: Tensor, labels: tuple[Any, ...]
) -> pd.DataFrame:
    """The verdict of each row; ``before`` is what the model says of the rows as they are."""
    usable = question.encoded.usable
    likely = np.full(len(usable), np.nan)
    if labels:
        own = before.gather(1, question.wanted.y[:, None])[:, 0].exp().numpy()
        likely = np.where(usable, own, np.nan)
    return pd.DataFrame(
        {
            "status": answers.status,
            "reason": answers.reason,
            "predicted": answers_as_text(before, labels, usable),
            "target": targets_as_text(question.wanted, labels, usable),
            "probability": likely,
        },
        index=question.frame.index,
    )


def held_out_of(plausibility: Plausibility) -> Numbers | None:
    """Percentiles of the scores of held-out rows by class, ``(k, 101)``; nothing where they are not known."""
    if not isinstance(plausibility, CrossFitEnsemble) or not plausibility.held_out_.numel():
        return None
    return plausibility.held_out_.numpy()
