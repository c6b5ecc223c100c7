"""The plausibility of the rows of a table: an ensemble of densities of what may change, and its judges."""

from __future__ import annotations

from plausiflow.constraints import CompiledRules, Increasing
from plausiflow.core import Plausibility
from plausiflow.densities import (
    ContextThreshold,
    CrossFitEnsemble,
    Judges,
    MixedDensity,
    fit_plausibility,
    fit_with_judges,
)
from plausiflow.search.effort import EFFORTS
from plausiflow.search.fit import FitSettings, TrainingRows
from plausiflow.tables import Encoder

MEMBERS = 4


def learn_plausibility(
    rows: TrainingRows, *, rules: CompiledRules, encoder: Encoder, settings: FitSettings
) -> tuple[Plausibility, Judges | None]:
    """Return how plausible rows are, without a margin yet, and the judges.

    By default plausibility is a cross-fitted ensemble of densities of what may change, given what cannot.
    """
    immutable, (rising, falling) = rules.immutable, monotone_features(rules)
    effort = EFFORTS[settings.effort]
    base = MixedDensity.from_layout(encoder.layout, immutable, random_state=settings.random_state)
    context = ContextThreshold.from_layout(
        encoder.layout, immutable=immutable, rising=rising, falling=falling
    )
    single, quantile, count = rows.x.float(), settings.quantile, rows.n_classes
    judges = None
    if settings.judges:
        judges = Judges(
            count=settings.judges, quantile=quantile, base=base, context=context, training=effort.training
        )
    if isinstance(settings.plausibility, int | float) and settings.density is None:
        ensemble = CrossFitEnsemble(
            members=MEMBERS,
            base=base,
            context=context,
            outcome=rows.log_proba,
            quantile=quantile,
            training=effort.training,
            random_state=settings.random_state,
        )
        if judges is None:
            return ensemble.fit(single, rows.classes, n_classes=count), None
        return fit_with_judges(ensemble, judges, single, rows.classes, n_classes=count), judges
    plausibility = settings.plausibility
    if isinstance(plausibility, int | float):
        assert settings.density is not None
        plausibility = fit_plausibility(
            settings.density, single, rows.classes, quantile=quantile, n_classes=count
        )
    return plausibility, None if judges is None else judges.fit(single, rows.classes, n_classes=count)


def monotone_features(rules: CompiledRules) -> tuple[list[str], list[str]]:
    """Return the features that may only rise, and those that may only fall."""
    names = rules.monotone
    rising = [rule.feature for rule in rules.constraints if isinstance(rule, Increasing)]
    return [n for n in names if n in rising], [n for n in names if n not in rising]
