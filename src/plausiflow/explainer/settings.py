"""Settings that may change after ``fit`` without training again.

``plausibility``, ``distance``, ``weights`` and the share of extra cost for fewer changes decide thresholds
and costs, not what the densities learn. Assign them, and the next call uses them: thresholds come from the
same held-out rows, the margin is calibrated again and the bank is built again, so the answers are those of a
new explainer with these settings. Any other setting that changed after ``fit`` raises an error.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeVar

from plausiflow.densities import CrossFitEnsemble, Judges, PlausibilityWarning
from plausiflow.errors import InvalidInputError
from plausiflow.search import (
    EffortName,
    FitSettings,
    SearchContext,
    TrainingRows,
    build_engine,
    check_settings,
    feature_weights,
)

if TYPE_CHECKING:
    from plausiflow.explainer.explainer import Explainer

AnyExplainer = TypeVar("AnyExplainer", bound="Explainer")
CHANGEABLE = ("plausibility", "distance", "weights", "max_extra_cost")


@dataclass(frozen=True, eq=False)
class FittedWith:
    """What an explainer was fitted with.

    Attributes:
        settings: The settings at that time.
        context: What searches need.
        rows: The training rows; None after loading.
    """

    settings: dict[str, Any]
    context: SearchContext
    rows: TrainingRows | None


def check_verbose(verbose: object) -> None:
    """Raise unless ``verbose`` is True, False or None."""
    if not (verbose is None or isinstance(verbose, bool)):
        raise InvalidInputError(
            f"`verbose` must be True (also lines in a log), False (nothing) or None (a bar on a terminal); "
            f"got {verbose!r}."
        )


def with_checked_settings(explainer: AnyExplainer) -> AnyExplainer:
    """Return a copy with the same settings, checked, and numbers of Python in place of those of NumPy.

    Raises:
        InvalidInputError: Some settings are invalid; every one is named.
    """
    check_settings(current_settings(explainer))
    own = copy.copy(explainer)
    own.feature_names = None if own.feature_names is None else list(map(str, own.feature_names))
    own.random_state = int(own.random_state)
    if isinstance(own.plausibility, Real):
        own.plausibility = float(own.plausibility)
    return own


def current_settings(explainer: Explainer) -> dict[str, Any]:
    """Return a copy of the settings."""
    values = {f.name: getattr(explainer, f.name) for f in fields(explainer) if f.init}
    return {name: dict(value) if isinstance(value, Mapping) else value for name, value in values.items()}


def fit_settings(explainer: Explainer, effort: EffortName = "standard") -> FitSettings:
    """Return what a fit of an explainer needs to know."""
    names = [f.name for f in fields(FitSettings) if f.name != "effort"]
    return FitSettings(effort=effort, **{name: getattr(explainer, name) for name in names})


def refresh(explainer: Explainer) -> None:
    """Apply settings that were assigned after ``fit``; do nothing if there are none.

    Raises:
        InvalidInputError: A setting is invalid, or needs training.
    """
    known = explainer.fitted_with_
    if known is None:
        return
    settings = current_settings(explainer)
    changed = [n for n, v in settings.items() if v is not known.settings[n] and v != known.settings[n]]
    if not changed:
        return
    fixed = [f"`{name}`" for name in changed if name not in CHANGEABLE]
    if fixed:
        raise InvalidInputError(
            f"{', '.join(fixed)} must stay as in `fit`, because it takes part in what is learned. Call `fit` "
            "again, or make a new explainer."
        )
    with_checked_settings(explainer)
    # Calibration changes the plausibility, which a copy of this explainer may share.
    plausibility, judges = copy.copy(known.context.plausibility), explainer.judges_
    if "plausibility" in changed:
        plausibility, judges = _with_quantile(known, judges, settings["plausibility"])
    layout = known.context.cost_model.layout
    weights = feature_weights(settings["weights"], layout)
    cost_model = replace(known.context.cost_model, weights=weights, distance=settings["distance"])
    context = replace(
        known.context,
        plausibility=plausibility,
        cost_model=cost_model,
        settings=fit_settings(with_checked_settings(explainer), known.context.settings.effort),
    )
    if explainer.engine_ is not None:  # learned rules may have been switched off
        context = replace(context, rules=explainer.engine_.rules)
    if known.rows is not None:
        before = None if explainer.engine_ is None else explainer.engine_.durability
        explainer.engine_ = replace(build_engine(known.rows, context), durability=before)
    else:
        _keep_margin(explainer, context, changed)
    explainer.judges_ = judges
    explainer.fitted_with_ = FittedWith(settings, context, known.rows)


def _keep_margin(explainer: Explainer, context: SearchContext, changed: list[str]) -> None:
    """Use another cost with the margin of the saved explainer, and say so."""
    engine = explainer.engine_
    if engine is None or not set(changed) <= {"distance", "weights", "max_extra_cost"}:
        raise InvalidInputError(
            "Only `distance`, `weights` and `max_extra_cost` may change in an explainer that was loaded: the "
            "rest needs the training rows. Change it before `save`, or fit again."
        )
    strategy = engine.strategy.with_extra_cost(explainer.max_extra_cost)
    explainer.engine_ = replace(engine, cost_model=context.cost_model, strategy=strategy)
    if explainer.confidence is not None:
        warnings.warn(
            "The margin that `confidence` asks for was calibrated with the settings of `fit`; it is kept, "
            "because the training rows are not here.",
            PlausibilityWarning,
            stacklevel=4,
        )


def _with_quantile(
    known: FittedWith, judges: Judges | None, quantile: object
) -> tuple[CrossFitEnsemble, Judges | None]:
    """Return the densities with other thresholds, from the rows that each was not trained on."""
    ensemble = known.context.plausibility
    if not isinstance(ensemble, CrossFitEnsemble) or not isinstance(quantile, int | float):
        raise InvalidInputError(
            "`plausibility` may change after `fit` only from one quantile to another, with the default "
            "density. Fit again."
        )
    if known.rows is None:
        raise InvalidInputError(
            "`plausibility` of an explainer that was loaded must stay: its thresholds come from training "
            "rows. Change it before `save`, or fit again."
        )
    x, y = known.rows.x.float(), known.rows.classes
    new_judges = None if judges is None else copy.copy(judges).set_quantile(float(quantile), x, y)
    return copy.copy(ensemble).set_quantile(float(quantile), x, y), new_judges
