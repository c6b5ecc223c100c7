"""What is learned from the rows of a table: how plausible rows are, how far inside to stay, and real answers.

The density is a cross-fitted ensemble of mixed densities given what cannot change; its margin is calibrated
by searching training rows; and the bank holds the training rows that are answers already, for a model without
gradients only those that hold at corners around them, too.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from plausiflow.constraints import Increasing, Rules
from plausiflow.core import Plausibility
from plausiflow.densities import (
    ContextThreshold,
    CrossFitEnsemble,
    Judges,
    MixedDensity,
    Outcome,
    PlausibilityWarning,
    RowScores,
    calibrate,
)
from plausiflow.errors import InvalidInputError
from plausiflow.models import BlackBox, EncodedModel
from plausiflow.search.black_box import CORNERS, REACH, VerifiedSearch
from plausiflow.search.candidates import RealRows
from plausiflow.search.criterion import TargetCriterion, ValidityConstraint
from plausiflow.search.engine import Engine
from plausiflow.search.mixed import MixedSearch
from plausiflow.search.true_model import TrueModel
from plausiflow.tables import Encoder, Layout
from plausiflow.validation import number

MEMBERS, CALIBRATION_ROWS = 4, 120
HOT, COLD = 0.03, 0.01
"""Temperatures of a likeness, in ranges of a number."""
BLOCK = 4096


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a fit is told.

    Attributes:
        plausibility: Quantile of held-out log-densities that is the threshold.
        confidence: Share of the counterfactuals that a second opinion must accept; nothing asks for none.
        sparsity: How much more an answer with fewer changes may cost, as a share; nothing keeps all changes.
        budget: How many rows a model without gradients may be asked about for each row that is explained.
        judges: How many densities give a second opinion.
        seed: Of all that is learned.
    """

    plausibility: float
    confidence: float | None
    sparsity: float | None
    budget: int
    judges: int
    seed: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """Training rows.

    Attributes:
        frame: As they came.
        x: Encoded, shape ``(n, width)``.
        classes: Of their outcomes, or bins of these, shape ``(n,)``.
        n_classes: How many there are.
        outcome: Log-probabilities of the classes, where these and not labels tell the classes apart.
    """

    frame: pd.DataFrame
    x: Tensor
    classes: Tensor
    n_classes: int
    outcome: Outcome | None = None


def outcome_of(model: EncodedModel | BlackBox) -> Outcome:
    """A classifier's log-probabilities of encoded rows, those of its likeness where it has no gradients."""
    if not model.labels:
        raise InvalidInputError(
            '`labels` must be "given" or "model" where the model predicts a number, which has no '
            'probabilities; got "bayes". With "model" the density learns from its predictions.'
        )
    outputs = model.outputs(COLD) if isinstance(model, BlackBox) else model.outputs
    return lambda x: outputs(x).log_softmax(dim=1)


def densities(
    rows: Rows, *, rules: Rules, encoder: Encoder, settings: Settings
) -> tuple[CrossFitEnsemble, Judges | None]:
    """How plausible rows are given what cannot change, without a margin yet, and the judges."""
    immutable, (rising, falling) = rules.immutable, monotone(rules)
    base = MixedDensity.of(encoder.layout, immutable, seed=settings.seed)
    context = ContextThreshold.of(encoder.layout, immutable=immutable, rising=rising, falling=falling)
    single, quantile = rows.x.float(), settings.plausibility
    ensemble = CrossFitEnsemble(
        members=MEMBERS,
        base=base,
        context=context,
        outcome=rows.outcome,
        quantile=quantile,
        seed=settings.seed,
    ).fit(single, rows.classes, n_classes=rows.n_classes)
    if not settings.judges:
        return ensemble, None
    judges = Judges(count=settings.judges, quantile=quantile, base=base, context=context)
    return ensemble, judges.fit(single, rows.classes, n_classes=rows.n_classes)


@dataclass(frozen=True, eq=False)
class SearchContext:
    """What a search needs besides training rows.

    Attributes:
        rules: What may change.
        encoder: Of the table.
        model: That decides.
        aim: How its answers are held against what is wanted.
        plausibility: Fitted.
        weights: Cost of each feature.
        settings: Of the fit.
    """

    rules: Rules
    encoder: Encoder
    model: EncodedModel | BlackBox
    aim: TargetCriterion
    plausibility: Plausibility
    weights: Tensor
    settings: Settings


def build_engine(rows: Rows, means: SearchContext) -> Engine:
    """Everything a search needs; an ensemble is calibrated, in place."""
    free = RealRows.free_numbers(means.encoder.layout, rows.x)
    finder, plausibility = _finder(RealRows({}, *free), means), means.plausibility
    answers = means.model.answers(rows.x, rows.frame)
    _tell_of_outcomes_never_met(means.aim.classes(answers), means.model.labels)
    if means.settings.confidence is not None and isinstance(plausibility, CrossFitEnsemble):
        _calibrate(finder, plausibility, rows, means.aim.classes(answers), means.settings)
    valid = _valid_rows(finder, rows, means.aim, answers)
    bank, wider = (RealRows(_plausible(plausibility, valid, wide), *free) for wide in (False, True))
    return replace(finder, bank=bank, wider_bank=wider)


def _tell_of_outcomes_never_met(decided: Tensor, labels: tuple[Any, ...]) -> None:
    never = [label for number, label in enumerate(labels) if not bool((decided == number).any())]
    if never:
        warnings.warn(
            f"The model decides none of the {len(decided)} training rows for {', '.join(map(repr, never))}: "
            "rows like these can hardly be turned into one that it does. Is it the fitted model of this "
            "table, and are there enough rows of every outcome?",
            PlausibilityWarning,
            stacklevel=4,
        )


def restore_engine(state: Mapping[str, Tensor], means: SearchContext) -> Engine:
    """The finder that was saved: with the state of its training rows."""
    n = means.plausibility.n_classes if isinstance(means.plausibility, CrossFitEnsemble) else 0
    if len(means.aim.edges or (*means.model.labels, "")) - 1 != n:
        raise InvalidInputError(f"`aim` must tell {n} classes or bins apart, as many as the density knows.")
    bank, wider = (RealRows.of_state(state, name, means.rules.layout, n) for name in ("bank", "wider"))
    return replace(_finder(bank, means), wider_bank=wider)


def _finder(bank: RealRows, means: SearchContext) -> Engine:
    model, aim, settings = means.model, means.aim, means.settings
    plain = MixedSearch(sparsity=settings.sparsity)
    search: MixedSearch | VerifiedSearch = plain
    itself = None
    if not isinstance(model, BlackBox):
        validity = ValidityConstraint(model.outputs, aim, model.value_and_grad)
    else:
        validity = ValidityConstraint(model.outputs(COLD), aim)
        itself = TrueModel(answer=model.answer, aim=aim, encoder=means.encoder, budget=settings.budget)
        search = VerifiedSearch(hot=ValidityConstraint(model.outputs(HOT), aim), cold=validity, base=plain)
    return Engine(
        rules=means.rules,
        validity=validity,
        plausibility=means.plausibility,
        bank=bank,
        weights=means.weights,
        search=search,
        itself=itself,
    )


def weights_of(weights: Mapping[str, float] | None, layout: Layout) -> Tensor:
    """What a change of each feature costs, shape ``(blocks,)``: one, unless it is given by name."""
    given = dict(weights or {})
    names = [block.name for block in layout.blocks]
    problems = [f"{name!r} is no feature that can change" for name in given if name not in names]
    problems += [
        f"the weight of {name!r} must be a positive number; got {value!r}"
        for name, value in given.items()
        if not 0 < number(value) < math.inf
    ]
    if problems:
        raise InvalidInputError(
            "`weights` cannot be used: " + "; ".join(problems) + ". Features that may not change go into "
            "`Immutable`."
        )
    return torch.tensor([float(given.get(name, 1.0)) for name in names], dtype=torch.float64)


def _calibrate(
    finder: Engine, ensemble: CrossFitEnsemble, rows: Rows, classes: Tensor, settings: Settings
) -> None:
    """Raise the margins; a model without gradients is represented by its likeness."""
    assert settings.confidence is not None
    light = MixedSearch(real_rows=4, sparsity=settings.sparsity, finalists=1)

    def search(x: Tensor, wanted: Tensor, guide: RowScores, bank: dict[int, Tensor]) -> Tensor:
        task = finder.task(x, finder.plain(wanted), guide=guide)
        found = light.run(task, replace(finder.bank, rows=bank))
        x_cf = torch.full_like(x, torch.nan)
        x_cf[found.rows] = found.x
        return x_cf

    calibrate(
        ensemble,
        rows.x,
        classes,
        validity=finder.validity,
        search=search,
        confidence=settings.confidence,
        seed=settings.seed,
        n_rows=CALIBRATION_ROWS,
    )


@torch.no_grad()
def _valid_rows(finder: Engine, rows: Rows, aim: TargetCriterion, answers: Tensor) -> dict[int, Tensor]:
    """Distinct training rows that the model answers so, by class or bin."""
    valid: dict[int, Tensor] = {}
    distinct, first = _distinct(rows.x)
    for k in range(rows.n_classes):
        wanted = torch.full((len(first),), k)
        holds = (aim.value(answers[first], aim.of_class(wanted)) >= 0).nonzero()[:, 0]
        if finder.itself is not None and len(holds):
            oracle = replace(finder.itself, budget=CORNERS).oracle(
                rows.frame.iloc[first[holds].numpy()], distinct[holds], aim.of_class(wanted[holds])
            )
            everyone = torch.arange(len(holds))
            steady = oracle.steady(distinct[holds], everyone, corners=CORNERS, reach=REACH, salt=1)
            holds = holds[steady == 1]
        valid[k] = distinct[holds]
    return valid


def _distinct(x: Tensor) -> tuple[Tensor, Tensor]:
    """Distinct rows, sorted, and where each first stands."""
    distinct, inverse = torch.unique(x, dim=0, return_inverse=True)
    first = torch.full((len(distinct),), len(x))
    first.scatter_reduce_(0, inverse, torch.arange(len(x)), "amin")
    return distinct, first


@torch.no_grad()
def _plausible(plausibility: Plausibility, real: dict[int, Tensor], wide: bool) -> dict[int, Tensor]:
    """Those of the rows of each class that are plausible; ``wide`` asks for no margin."""
    rows = {}
    for k, own in real.items():
        ensemble = plausibility if isinstance(plausibility, CrossFitEnsemble) else None
        bar = -float(ensemble.margin_[k]) if wide and ensemble is not None else 0.0
        parts = [plausibility.score(some, torch.full((len(some),), k)) >= bar for some in own.split(BLOCK)]
        rows[k] = own[torch.cat(parts)] if len(own) else own
    return rows


def monotone(rules: Rules) -> tuple[list[str], list[str]]:
    """Features that may only rise, and that may only fall."""
    names = rules.monotone
    rising = [rule.feature for rule in rules.constraints if isinstance(rule, Increasing)]
    return [n for n in names if n in rising], [n for n in names if n not in rising]
