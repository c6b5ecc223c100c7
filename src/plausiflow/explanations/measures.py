"""Measures of counterfactuals, verdicts of rows, and the metrics of a whole result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from plausiflow.constraints import CompiledRules, Rule
from plausiflow.core import (
    METRICS,
    Context,
    Density,
    Plausibility,
    Variant,
    evaluate,
    verify,
    verify_counterfactuals,
)
from plausiflow.densities import Judges
from plausiflow.explanations.checks import FIGURES
from plausiflow.explanations.realism import RealismJudge
from plausiflow.models import TableModel
from plausiflow.search import (
    FINAL_CORNERS,
    PROMISE,
    Answers,
    Engine,
    ReadRows,
    SearchRequest,
    SearchResult,
    predicted_labels,
    targets_as_text,
    tolerant_share,
)
from plausiflow.tables import Encoder, FloatArray

if TYPE_CHECKING:
    from plausiflow.explanations.result import Explanations

_TIMES = ("seconds", "cpu_seconds")


def metrics_context(model: TableModel, x: Tensor, classes: Tensor) -> Context | None:
    """Return the metrics' context of a classifier: encoded training rows and their classes.

    It has no plausibility and no judges: these depend on the context of each row.
    """
    classifier = model.classifier
    return None if classifier is None else Context(classifier=classifier, x_train=x, y_train=classes)


def realism_judge(
    encoder: Encoder, context: Context | None, rules: CompiledRules, given: Sequence[Rule]
) -> RealismJudge | None:
    """Return a judge that knows the training rows of a context; None without a context.

    Args:
        encoder: Encoder of the table.
        context: Context of the metrics.
        rules: Rules of the explainer: those that were given, then those that were learned.
        given: Rules that were given.
    """
    if context is None:
        return None
    return RealismJudge(
        schema=encoder.schema,
        load=partial(encoder.decode, context.x_train),
        outcomes=context.y_train.cpu().numpy(),
        immutable=rules.immutable,
        learned_rules=tuple(rules.constraints[len(given) :]),
    )


@torch.no_grad()
def measure_counterfactuals(
    request: SearchRequest,
    answers: SearchResult,
    model: TableModel,
    engine: Engine,
    judges: Judges | None,
    encoder: Encoder,
) -> pd.DataFrame:
    """Return the figures of each answer; ``steady`` calls a model without gradients once more."""
    x, of = request.encoded.x[answers.of], answers.of
    y_target = request.targets.y[of]
    outputs = model.predict_outputs(answers.x_cf, answers.decoded)
    decided = model.decide(outputs, answers.x_cf, answers.decoded) if model.labels and len(of) else None
    met = verify(outputs, request.targets[of], engine.validity.criterion, answers.score, decided)
    outputs = model.shown_outputs(outputs, answers.x_cf, answers.decoded) if len(of) else outputs
    judged = torch.full((len(of),), torch.nan, dtype=torch.float64)
    if judges is not None and len(of):
        judged = judges.passes(answers.x_cf, y_target, x).double().mean(dim=1)
    delta = answers.x_cf - x
    log_density = probability = torch.full_like(judged, torch.nan)
    if isinstance(engine.plausibility, Density):
        log_density = engine.plausibility.log_prob(answers.x_cf, y_target)
    if model.labels:
        probability = outputs.gather(1, y_target[:, None])[:, 0].exp()
    figures = {
        "cost": answers.cost,
        "l1": delta.abs().sum(dim=1),
        "l2": torch.linalg.vector_norm(delta, dim=1),
        "n_changes": engine.rules.layout.changed(answers.x_cf, x).sum(dim=1),
        "probability": probability,
        "log_density": log_density,
        "score": answers.score,
        "judged": judged,
        "valid": met.valid,
    }
    if not model.labels:
        figures["prediction"] = outputs
    if request.tolerance is not None:
        own = Answers(of, answers.x_cf, answers.decoded, answers.cost, answers.score)
        figures["tolerant"] = tolerant_share(engine, encoder, request, own)
    if engine.durability is not None:
        figures["lasting"] = engine.durability.lasting(answers.x_cf, answers.decoded, request.targets[of])
    if engine.true_model is not None:
        # A budget of its target_probability: what the search has spent does not count.
        # The model itself, and not its trees that the search has asked.
        true_model = replace(engine.true_model, budget=FINAL_CORNERS * len(of), tree_outputs=None)
        oracle = true_model.oracle(request.frame, request.encoded.x, request.targets)
        figures["steady"] = oracle.stability(answers.x_cf, of, corners=FINAL_CORNERS, reach=PROMISE, salt=4)
    return pd.DataFrame({name: values.numpy() for name, values in figures.items()})


def verdict_table(
    request: SearchRequest, answers: SearchResult, before: ReadRows, labels: tuple[Any, ...]
) -> pd.DataFrame:
    """Return the verdict of each row; ``before`` is what the model predicts for the unchanged rows."""
    usable = request.encoded.usable
    probability = np.full(len(usable), np.nan)
    if labels:
        probability[usable] = before.shown.gather(1, request.targets.y[:, None])[:, 0].exp().numpy()[usable]
    return pd.DataFrame(
        {
            "status": answers.status,
            "reason": answers.reason,
            "predicted": predicted_labels(before.outputs, before.decided, labels, usable),
            "target": targets_as_text(request.targets, labels, usable),
            "probability": probability,
        },
        index=request.frame.index,
    )


def held_out_percentiles(plausibility: Plausibility) -> FloatArray | None:
    """Return percentiles of the scores of held-out rows by class, ``(k, 101)``; None if unknown."""
    held_out: Tensor | None = getattr(plausibility, "held_out_", None)
    if held_out is None or not held_out.numel():
        return None
    return held_out.numpy()


def result_metrics(result: Explanations, variant: Variant) -> pd.Series:
    """Return the share of rows found and means over the best answers of found rows."""
    needed = int(result.is_needed.sum())
    values = {"coverage": float(result.is_found.sum()) / needed if needed else np.nan}
    known = {name: result.found_figures(name) for name in FIGURES}
    known = {name: figures[~np.isnan(figures)] for name, figures in known.items()}
    known["plausibility"] = (known["score"] >= 0).astype(np.float64)
    values |= {name: float(figures.mean()) if len(figures) else np.nan for name, figures in known.items()}
    for name, value in _encoded_metrics(result, variant).items():
        if name not in values or not np.isnan(value):
            values[name] = value
    if variant == "sound" and "valid" in result.figures:
        # The decision is that of the user's model, not that of what stands in for it in the search.
        valid = result.found_figures("valid")[result.is_found]
        names = [name for name in ("validity", "target_validity") if name in values]
        values |= dict.fromkeys(names, float(valid.mean()) if len(valid) else np.nan)
    values |= _realism(result)
    metrics = pd.Series(values, dtype=np.float64, name="metrics")
    metrics.attrs["distance"] = result.distance
    return metrics


def _encoded_metrics(result: Explanations, variant: Variant) -> dict[str, float]:
    """Return the metrics of the rows that need an answer; none without encoded rows or a context."""
    if result.encoded is None or result.context is None:
        return {}
    x, answers, y_target = result.encoded
    x_cf = torch.full_like(x, torch.nan)
    found = torch.tensor(result.is_found, device=x.device)
    x_cf[found] = answers[torch.tensor(result.best[result.is_found], device=answers.device)].to(x)
    rows, classifier = torch.tensor(result.is_needed, device=x.device), result.context.classifier
    cf = verify_counterfactuals(
        classifier=classifier, plausibility=None, x=x[rows], x_cf=x_cf[rows], y_target=y_target[rows]
    )
    names = [name for name in METRICS.get(variant, {}) if name not in _TIMES]
    return evaluate(cf, result.context, variant=variant, names=names)


def _realism(result: Explanations) -> dict[str, float]:
    """Return what the judges of another kind say of the best answers; none without real rows."""
    if result.encoded is None or result.realism is None:
        return {}
    names = ("gower_distance", "gower_outliers", "two_sample_auc", "learned_rules_broken")
    found, real = result.is_found & result.is_needed, result.realism
    if not found.any():
        return dict.fromkeys(names, np.nan)
    answers = result.answers.iloc[result.best[found]]
    outcomes = result.encoded[2].cpu().numpy()[found]
    figures = (
        real.neighbour_distances(answers, outcomes).mean(),
        real.outliers(answers, outcomes).mean(),
        real.two_sample_auc(answers, outcomes),
        real.learned_rules_broken(result.rows.iloc[found], answers).mean(),
    )
    return dict(zip(names, map(float, figures), strict=True))
