"""What ``Explainer.fit`` does, step by step: columns, rules, model, densities, margin and bank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from plausiflow.constraints import CompiledRules, LearnedRules, learn_rules
from plausiflow.errors import InvalidInputError, ModelError
from plausiflow.explainer.settings import FittedWith, current_settings, fit_settings, with_checked_settings
from plausiflow.explanations import metrics_context
from plausiflow.models import (
    MIN_GUIDES,
    MIN_JURORS,
    RefitPlan,
    TableModel,
    pair_outcomes,
    resolve_model,
    resolve_refit,
)
from plausiflow.persistence import TrainingSummary
from plausiflow.search import (
    JURORS,
    CostModel,
    Durability,
    EffortName,
    Engine,
    SearchContext,
    TrainingRows,
    absolute_deviations,
    announce_fit,
    build_engine,
    feature_weights,
    fit_durability,
    learn_plausibility,
    log_proba_of,
    make_criterion,
    outcome_names,
)
from plausiflow.tables import Encoder, read_table, read_values

if TYPE_CHECKING:
    from plausiflow.explainer.explainer import Explainer
    from plausiflow.explainer.formats import Table


def fit_explainer(explainer: Explainer, table: Table, y: Any, effort: EffortName) -> None:  # noqa: ANN401
    """Fit an explainer, in place; the arguments are those of :meth:`Explainer.fit`."""
    own = with_checked_settings(explainer)
    x, table_format = read_table(table, own.feature_names, what="`x`", one_row=False)
    schema = own.infer_schema(x)
    encoder = Encoder(schema, own.missing)
    rules = CompiledRules(own.constraints, schema, encoder.layout)
    if not encoder.layout.blocks:
        raise InvalidInputError(
            "The table must have a column that can change; all are constants or identifiers. Give rows "
            "that differ, or name the kinds of the columns with `kinds`."
        )
    encoded = encoder.encode(x).x
    learned = LearnedRules()
    if own.learn_rules:
        learned = learn_rules(x, encoded, encoder, own.constraints, own.random_state)
    rules = CompiledRules([*own.constraints, *learned], schema, encoder.layout)
    cost_model = CostModel(
        layout=encoder.layout,
        weights=feature_weights(own.weights, encoder.layout),
        distance=own.distance,
        deviations=absolute_deviations(encoder.layout, encoded),
        prices=rules.prices,
    )
    y = pair_outcomes(x.index, read_values(y))
    chosen = (own.labels, own.random_state, own.decision_threshold, table_format)
    model, outcomes = resolve_model(own.model, own.model_type, encoder, x, encoded, y, *chosen)
    criterion, classes = make_criterion(model, outcomes, own.margin)
    rows = TrainingRows(
        frame=x,
        x=encoded,
        classes=classes,
        n_classes=criterion.n_bins or len(model.labels),
        log_proba=log_proba_of(model) if own.labels == "bayes" else None,
    )
    settings = fit_settings(own, effort)
    plan = None if own.durability is None else _plan_refits(own, rows, y)
    announce_fit(rows, rules=rules, encoder=encoder, settings=settings, refits=plan)
    plausibility, judges = learn_plausibility(rows, rules=rules, encoder=encoder, settings=settings)
    context = SearchContext(rules, encoder, model, criterion, plausibility, cost_model, settings)
    engine = build_engine(rows, context)
    if plan is not None:
        engine = replace(engine, durability=_durability(own, engine, encoder, model, rows, plan))
    explainer.engine_ = engine
    explainer.fitted_with_ = FittedWith(current_settings(explainer), context, rows)
    explainer.encoder_, explainer.model_, explainer.criterion_ = encoder, model, criterion
    explainer.learned_rules = learned
    explainer.judges_, explainer.context_ = judges, metrics_context(model, encoded, classes)
    explainer.training_summary_ = TrainingSummary.from_table(x, encoder, encoded, classes)
    explainer.outcome_ = str(y.name) if isinstance(y, pd.Series) and y.name is not None else "outcome"


def _plan_refits(explainer: Explainer, rows: TrainingRows, y: Sequence[Any] | pd.Series | None) -> RefitPlan:
    """Return how the model will be retrained."""
    if y is None:
        raise InvalidInputError(
            "`durability` needs the outcomes `y` of the rows, to train models on them; got None. Pass them: "
            "`fit(x, y)`."
        )
    return RefitPlan(
        explainer.model,
        rows.frame,
        y,
        (rows.x, rows.classes),
        count=explainer.refits + JURORS,
        seed=explainer.random_state,
        retrain=explainer.retrain,
    )


def _durability(
    explainer: Explainer,
    engine: Engine,
    encoder: Encoder,
    model: TableModel,
    rows: TrainingRows,
    plan: RefitPlan,
) -> Durability:
    """Retrain the model, and learn what a lasting answer needs."""
    assert explainer.durability is not None
    drawn = plan.draw()
    how = (explainer.model_type, encoder, rows.frame, rows.x, plan.y, explainer.decision_threshold)
    models = []
    for number, refit in enumerate(drawn):
        try:
            models.append(resolve_refit(refit, model, *how))
        except (InvalidInputError, ModelError) as error:
            raise type(error)(f"Retrained model {number} cannot be used for `durability`. {error}") from error
    outputs = model.predict_outputs(rows.x, rows.frame)
    criterion = engine.validity.criterion
    decided = model.decide(outputs, rows.x, rows.frame) if model.labels else criterion.classes(outputs)
    return fit_durability(
        engine,
        encoder,
        (drawn, models),
        (rows.x, rows.frame),
        decided,
        level=explainer.durability,
        confidence=0.95 if explainer.confidence is None else explainer.confidence,
        jurors=JURORS if len(models) >= JURORS + MIN_GUIDES else MIN_JURORS,
        seed=explainer.random_state,
        names=outcome_names(model.labels, criterion),
    )
