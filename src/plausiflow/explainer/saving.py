"""Save an explainer to a directory, and load it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plausiflow.constraints import CompiledRules, LearnedRules
from plausiflow.core import Solver, TargetCriterion
from plausiflow.explainer.settings import (
    AnyExplainer,
    FittedWith,
    current_settings,
    fit_settings,
    with_checked_settings,
)
from plausiflow.explanations import metrics_context
from plausiflow.persistence import SavedExplainer, SavedRefits, as_artefact_error, load, save
from plausiflow.search import (
    CostModel,
    Durability,
    MakeMethod,
    SearchContext,
    feature_weights,
    log_proba_of,
    restore_engine,
)
from plausiflow.solvers import SQP

if TYPE_CHECKING:
    from plausiflow.explainer.explainer import Explainer

NOT_SAVED = ("model", "constraints", "density", "solver", "method", "retrain")
"""Settings that are not JSON: saved in another way, or given again to ``load``."""


def save_explainer(explainer: Explainer, folder: Path, *, training_rows: bool) -> None:
    """Save a fitted explainer; see :meth:`Explainer.save`."""
    encoder, model, engine = explainer._fitted()
    names = [f.name for f in fields(explainer) if f.init and f.name not in NOT_SAVED]
    own = with_checked_settings(explainer)
    settings = {name: getattr(own, name) for name in names}
    if not isinstance(settings["plausibility"], float):
        settings["plausibility"] = 0.5
    if isinstance(
        explainer.decision_threshold, Mapping
    ):  # labels may be numbers, which JSON has no names for
        settings["decision_threshold"] = [list(pair) for pair in explainer.decision_threshold.items()]
    context = explainer.context_ if training_rows else None
    assert explainer.training_summary_ is not None
    parts = SavedExplainer(
        settings=settings,
        constraints=explainer.constraints,
        learned_rules=explainer.learned_rules,
        encoder=encoder,
        user_model=explainer.model,
        model=model,
        criterion=explainer.criterion_.to_dict(),
        outcome=explainer.outcome_,
        training_summary=explainer.training_summary_,
        plausibility=engine.plausibility,
        judges=explainer.judges_,
        bank=engine.bank_state(),
        training={} if context is None else {"x": context.x_train, "y": context.y_train},
        refits=_refits(engine.durability),
    )
    save(folder, parts)


def _refits(durability: Durability | None) -> SavedRefits | None:
    """Return the retrained models and what was learned with them."""
    if durability is None:
        return None
    students = durability.students
    return SavedRefits(
        models=durability.models,
        resolved=(*durability.guides, *durability.jurors),
        document=durability.describe(),
        tensors={} if students is None else dict(students.state()),
    )


def load_explainer(
    cls: type[AnyExplainer],
    folder: Path,
    model: object,
    density: object,
    *,
    solver: Solver | None,
    method: MakeMethod | None,
    retrain: Sequence[object] | None,
) -> AnyExplainer:
    """Load a saved explainer; see :meth:`Explainer.load`."""
    parts = load(folder, model, density, log_proba_of, retrain)
    with as_artefact_error(folder):
        given: dict[str, Any] = {
            "constraints": parts.constraints,
            "solver": solver or SQP(),
            "method": method,
            "retrain": retrain,
        }
        settings = dict(parts.settings)
        if isinstance(settings["decision_threshold"], list):
            settings["decision_threshold"] = dict(settings["decision_threshold"])
        made = with_checked_settings(cls(parts.user_model, **given, **settings))
        made.encoder_, made.model_, made.judges_ = parts.encoder, parts.model, parts.judges
        made.learned_rules = LearnedRules(parts.learned_rules)
        made.criterion_ = TargetCriterion.from_dict(parts.criterion)
        if made.criterion_.cutoffs != parts.model.decision.cutoffs:
            raise ValueError("the cut-offs of the criterion are not those of the model")
        made.training_summary_, made.outcome_ = parts.training_summary, parts.outcome
        active = [rule for rule in parts.learned_rules if rule.active]
        rules = CompiledRules([*parts.constraints, *active], parts.encoder.schema, parts.encoder.layout)
        cost_model = CostModel(
            layout=parts.encoder.layout,
            weights=feature_weights(made.weights, parts.encoder.layout),
            distance=made.distance,
            deviations=parts.bank["deviations"].clone(),
            prices=rules.prices,
        )
        context = SearchContext(
            rules,
            parts.encoder,
            parts.model,
            made.criterion_,
            parts.plausibility,
            cost_model,
            fit_settings(made),
        )
        training = (parts.training["x"], parts.training["y"]) if parts.training else None
        made.engine_ = restore_engine(parts.bank, context, training)
        if parts.refits is not None:
            durability = Durability.restore(
                parts.refits.document,
                (parts.refits.models, parts.refits.resolved),
                made.criterion_,
                parts.refits.tensors,
                parts.encoder.layout,
            )
            made.engine_ = replace(made.engine_, durability=durability)
        made.fitted_with_ = FittedWith(current_settings(made), context, None)
        if training is not None:
            made.context_ = metrics_context(parts.model, *training)
    return made
