"""The result of a search: figures, verdicts, and what a report says about its origin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from plausiflow.constraints import Rule
from plausiflow.explanations import (
    Explanations,
    Provenance,
    drop_unsteady,
    held_out_percentiles,
    measure_counterfactuals,
    realism_judge,
    verdict_table,
)
from plausiflow.models import ModelCalls, TableModel
from plausiflow.search import Certifier, Engine, ReadRows, SearchRequest, SearchResult

if TYPE_CHECKING:
    from plausiflow.explainer.explainer import Explainer


def build_explanations(
    explainer: Explainer,
    engine: Engine,
    request: SearchRequest,
    found: SearchResult,
    read: ReadRows,
    counted: ModelCalls,
    rules: Sequence[Rule],
) -> Explanations:
    """Return the result of a search under ``rules``, which do not contain the learned ones."""
    encoder, model, fitted = explainer._fitted()
    figures = measure_counterfactuals(request, found, model, engine, explainer.judges_, encoder)
    found, figures = drop_unsteady(found, figures, relaxed=request.relaxed)
    return Explanations(
        rows=request.frame,
        answers=found.decoded,
        of=found.of.numpy(),
        figures=figures,
        verdicts=verdict_table(request, found, read, model.labels),
        misses=found.misses,
        misses_of=found.misses_of,
        misses_why=found.misses_why,
        schema=engine.rules.schema,
        outcome=explainer.outcome_,
        distance=engine.cost_model.distance,
        labels=model.labels,
        encoded=(request.encoded.x, found.x_cf, request.targets.y),
        context=explainer.context_,
        realism=realism_judge(encoder, explainer.context_, fitted.rules, explainer.constraints),
        held_out=held_out_percentiles(engine.plausibility),
        learned_rules=explainer.learned_rules,
        roles=found.roles,
        model_calls=counted.calls,
        model_rows=counted.rows,
        certifier=Certifier(engine, encoder, request),
        density=explainer.plausibility != 0,
        jurors=0 if fitted.durability is None else len(fitted.durability.jurors),
        provenance=_provenance(explainer, model, request, rules),
    )


def _provenance(
    explainer: Explainer, model: TableModel, request: SearchRequest, rules: Sequence[Rule]
) -> Provenance:
    level, confidence = explainer.plausibility, explainer.confidence
    thresholds = []
    if isinstance(level, float):
        thresholds.append(
            f"an answer must be more typical than {100 * level:.3g} % of real rows with the target outcome"
            if level
            else "an answer need not be typical of real rows"
        )
    if confidence is not None and request.second_opinion:
        thresholds.append(
            f"the margin was chosen so that independent checks accept {100 * confidence:.3g} % of the answers"
        )
    if explainer.durability is not None:
        thresholds.append(
            f"{100 * explainer.durability:.3g} % of retrained models should decide as wanted, too"
        )
    return Provenance(
        model=model.description, rules=tuple(rules), thresholds=tuple(thresholds), seed=explainer.random_state
    )
