"""What ``Explainer.fit`` learns for the search: plausibility, calibrated margin, bank.

The default density is a cross-fitted ensemble of mixed densities given what cannot change. Its margin is
calibrated by searching training rows. The bank holds the training rows that are answers already; for a model
without gradients only those that are valid at corners around them too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

import pandas as pd
import torch
from torch import Tensor

from plausiflow.constraints import CompiledRules, check_partners, partner_levels
from plausiflow.core import (
    Classifier,
    Density,
    Plausibility,
    RowScores,
    Solver,
    TargetCriterion,
    ValidityConstraint,
)
from plausiflow.densities import (
    Calibratable,
    ClassLogProba,
    PlausibilityWarning,
    calibrate,
)
from plausiflow.errors import InvalidInputError
from plausiflow.exact import is_installed
from plausiflow.models import BlackBox, TableModel
from plausiflow.search.bank import Bank
from plausiflow.search.beam import Beam
from plausiflow.search.black_box import COLD, CORNERS, HOT, PROMISE, REACH, BlackBoxSearch
from plausiflow.search.costs import CostModel
from plausiflow.search.effort import EFFORTS, EffortName
from plausiflow.search.engine import Engine
from plausiflow.search.exact_start import ExactStart
from plausiflow.search.method_search import MethodSearch, RowSearch
from plausiflow.search.mixed import MixedSearch
from plausiflow.search.references import reference_rows
from plausiflow.search.strategy import SearchStrategy
from plausiflow.search.targets import bin_outcomes, outcome_names
from plausiflow.search.true_model import TrueModel
from plausiflow.solvers import SQP
from plausiflow.tables import Encoder

LIGHT, LIGHT_BANK_ROWS = Beam(depth=3, width=2, evaluated=8, kept=1), 2
"""The beam and the bank rows of the searches that calibrate. Their answers cost a little more; of training
rows, members that were left out accept as many of them as with the full beam."""
MakeMethod = Callable[..., Any]
"""A Method class, or a function of ``classifier`` and ``plausibility`` that returns a Method."""


@dataclass(frozen=True, kw_only=True)
class FitSettings:
    """Settings of a fit.

    Attributes:
        plausibility: Quantile of held-out log-densities that is the threshold, or a fitted plausibility.
        confidence: Share of the counterfactuals that a second opinion must accept; None for none.
        max_extra_cost: How much more an answer with fewer changes may cost, as a share.
        model_rows: How many rows a model without gradients may be asked about for each explained row.
        judges: Number of densities that give a second opinion.
        random_state: Seed of everything that is learned.
        effort: How much the fit may cost, one of ``EFFORTS``.
        density: A user's density; None for the default ensemble.
        solver: Solver for the numbers.
        method: A method that replaces the default search.
    """

    plausibility: float | Plausibility
    confidence: float | None
    max_extra_cost: float
    model_rows: int
    judges: int
    random_state: int
    effort: EffortName = "standard"
    density: Density | None = None
    solver: Solver = field(default_factory=SQP)
    method: MakeMethod | None = None

    @property
    def quantile(self) -> float:
        """The quantile of the thresholds; the median if a fitted plausibility is given."""
        return float(self.plausibility) if isinstance(self.plausibility, int | float) else 0.5


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingRows:
    """Training rows.

    Attributes:
        frame: Rows of the table.
        x: The same rows, encoded, shape ``(n, width)``.
        classes: Classes or bins of their outcomes, shape ``(n,)``.
        n_classes: Number of classes or bins.
        log_proba: Log-probabilities of the classes, if these replace labels (Bayes' rule).
    """

    frame: pd.DataFrame
    x: Tensor
    classes: Tensor
    n_classes: int
    log_proba: ClassLogProba | None = None


@dataclass(frozen=True, eq=False)
class SearchContext:
    """What a search needs besides training rows.

    Attributes:
        rules: What may change.
        encoder: Encoder of the table.
        model: The user's model.
        criterion: Compares its outputs with targets.
        plausibility: A fitted plausibility.
        cost_model: What changes cost.
        settings: Settings of the fit.
    """

    rules: CompiledRules
    encoder: Encoder
    model: TableModel
    criterion: TargetCriterion
    plausibility: Plausibility
    cost_model: CostModel
    settings: FitSettings


def log_proba_of(model: TableModel) -> ClassLogProba:
    """Return the log-probabilities of encoded rows, those of the surrogate if there are no gradients."""
    if not model.labels:
        raise InvalidInputError(
            '`labels` must be "given" or "model" for a model that predicts a number, which has no '
            'probabilities; got "bayes". With "model" the density learns from its predictions.'
        )
    outputs = model.outputs_at(COLD)
    return lambda x: outputs(x).log_softmax(dim=1)


def make_criterion(model: TableModel, outcomes: Tensor, margin: float) -> tuple[TargetCriterion, Tensor]:
    """Return how targets are compared, and the class or bin of each training row, shape ``(n,)``."""
    if model.labels:
        return TargetCriterion(margin, cutoffs=model.decision.cutoffs), outcomes
    edges, classes = bin_outcomes(outcomes)
    return TargetCriterion(margin, edges, unit=0.1 * float(outcomes.std())), classes


def build_engine(rows: TrainingRows, context: SearchContext) -> Engine:
    """Build the engine from training rows; a plausibility with a margin is calibrated, in place."""
    layout = context.encoder.layout
    typical = Bank.free_numbers(layout, rows.x)
    partners = partner_levels(layout, layout.codes(rows.x))
    engine = replace(_engine(Bank({}, typical), context), partners=partners)
    plausibility = context.plausibility
    outputs = context.model.predict_outputs(rows.x, rows.frame)
    decided = context.criterion.classes(outputs)
    if context.model.labels:
        decided = context.model.decide(outputs, rows.x, rows.frame)
    _warn_of_missing_outcomes(decided, context.model.labels)
    if context.settings.confidence is not None and isinstance(plausibility, Calibratable):
        names = outcome_names(context.model.labels, context.criterion)
        _calibrate(engine, plausibility, rows, decided, context.settings, names)
    valid = _valid_rows(engine, rows, outputs, decided)
    bank, wider = (
        Bank(_plausible_rows(plausibility, valid, with_margin=with_margin), typical)
        for with_margin in (True, False)
    )
    engine = replace(engine, bank=bank, wider_bank=wider, reference_bank=reference_rows(valid, typical))
    _set_probe(context.model, wider)
    return _with_method(engine, context, rows.x, rows.classes)


def restore_engine(
    state: Mapping[str, Tensor], context: SearchContext, training: tuple[Tensor, Tensor] | None = None
) -> Engine:
    """Restore a saved engine from the tensors of its banks.

    Args:
        state: The tensors of :meth:`Engine.bank_state`.
        context: What the search needs.
        training: Encoded training rows and their classes, which a method needs.
    """
    n_classes = context.criterion.n_bins or len(context.model.labels)
    if len(context.criterion.cutoffs) not in (0, len(context.model.labels)):
        raise InvalidInputError(
            f"The criterion must have a cut-off for each of {len(context.model.labels)} outcomes; got "
            f"{len(context.criterion.cutoffs)}."
        )
    known = getattr(context.plausibility, "n_classes", n_classes)
    if n_classes != known:
        raise InvalidInputError(
            f"The criterion must have {known} classes or bins, as many as the density; got {n_classes}."
        )
    bank, wider = (
        Bank.load_state(state, name, context.rules.layout, n_classes) for name in ("bank", "wider")
    )
    partners = check_partners(state["partners"], context.rules.layout)
    references = None  # An explainer that was saved by an earlier version has none.
    if "references.0" in state:
        references = Bank.load_state(state, "references", context.rules.layout, n_classes)
    engine = replace(_engine(bank, context), wider_bank=wider, reference_bank=references, partners=partners)
    _set_probe(context.model, wider)
    if context.settings.method is not None and training is None:
        raise InvalidInputError(
            "An explainer with a `method` needs its training rows. Save it with `training_rows=True`."
        )
    return engine if training is None else _with_method(engine, context, *training)


def _set_probe(model: TableModel, bank: Bank) -> None:
    """Give the model a training row that it has decided for."""
    known = next((rows for rows in bank.rows.values() if len(rows)), None)
    if known is not None:
        model.set_probe(known[:1])


def _engine(bank: Bank, context: SearchContext) -> Engine:
    model, criterion, settings = context.model, context.criterion, context.settings
    mixed = MixedSearch(max_extra_cost=settings.max_extra_cost)
    validity = ValidityConstraint(model.outputs_at(COLD), criterion, model.value_and_grad_at(COLD))
    strategy: SearchStrategy = mixed
    true_model = None
    if model.true_outputs is not None:
        true_model = TrueModel(
            outputs=model.true_outputs,
            criterion=criterion,
            encoder=context.encoder,
            budget=settings.model_rows,
            tree_outputs=model.tree_outputs,
        )
        hot = ValidityConstraint(model.outputs_at(HOT), criterion, model.value_and_grad_at(HOT))
        # Only without a density: a plausible answer is far from the cheapest row of the trees.
        exact = ExactStart(model, PROMISE) if settings.quantile == 0 and _is_exact(model) else None
        strategy = BlackBoxSearch(hot=hot, cold=validity, base=mixed, exact=exact)
    return Engine(
        rules=context.rules,
        validity=validity,
        plausibility=context.plausibility,
        bank=bank,
        cost_model=context.cost_model,
        strategy=strategy,
        solver=settings.solver,
        true_model=true_model,
        model=model,
    )


def _is_exact(model: TableModel) -> TypeGuard[BlackBox]:
    """Return whether the trees of a model were read, and the solver is installed."""
    return isinstance(model, BlackBox) and model.tree_outputs is not None and is_installed()


def _with_method(engine: Engine, context: SearchContext, x: Tensor, classes: Tensor) -> Engine:
    """Return the engine with a user's method as its strategy, if there is one."""
    if context.settings.method is None:
        return engine
    classifier = context.model.classifier
    if not isinstance(classifier, Classifier):
        raise InvalidInputError(
            "`method` must be None for a model that predicts a number: methods explain classifiers only."
        )
    method = context.settings.method(classifier=classifier, plausibility=context.plausibility)
    reason = method.unsupported()
    if reason:
        raise InvalidInputError(f"`method` cannot explain this model: {reason}. Choose another method.")
    search: RowSearch = method.fit(x, classes)
    return replace(engine, strategy=MethodSearch(method=search))


def _warn_of_missing_outcomes(decided: Tensor, labels: tuple[Any, ...]) -> None:
    missing = [label for number, label in enumerate(labels) if not bool((decided == number).any())]
    if missing:
        warnings.warn(
            f"The model decides none of the {len(decided)} training rows for "
            f"{', '.join(map(repr, missing))}, so rows can hardly be changed to reach it. Check that this is "
            "the fitted model of this table, and that there are enough rows of every outcome.",
            PlausibilityWarning,
            stacklevel=5,
        )


def _calibrate(
    engine: Engine,
    ensemble: Calibratable,
    rows: TrainingRows,
    decided: Tensor,
    settings: FitSettings,
    names: list[str],
) -> None:
    """Raise the margins; a model without gradients is represented by its surrogate."""
    assert settings.confidence is not None
    effort = EFFORTS[settings.effort]
    light = MixedSearch(
        max_extra_cost=settings.max_extra_cost, finalists=1, bank_rows=LIGHT_BANK_ROWS, beam=LIGHT
    )

    def search(x: Tensor, y_target: Tensor, scores: RowScores, bank: dict[int, Tensor]) -> Tensor:
        task = engine.task(x, engine.validity.criterion.of_class(y_target), scores=scores)
        found = light.draft(task, replace(engine.bank, rows=bank)).feasible
        x_cf = torch.full_like(x, torch.nan)
        x_cf[found.rows] = found.x
        return x_cf

    calibrate(
        ensemble,
        rows.x,
        decided,
        validity=engine.validity,
        search=search,
        confidence=settings.confidence,
        random_state=settings.random_state,
        n_rows=effort.calibration_rows,
        names=names,
    )


@torch.no_grad()
def _valid_rows(engine: Engine, rows: TrainingRows, outputs: Tensor, decided: Tensor) -> dict[int, Tensor]:
    """Return the distinct training rows that the model decides for each class or bin."""
    valid: dict[int, Tensor] = {}
    criterion = engine.validity.criterion
    distinct, first = _distinct(rows.x)
    for k in range(rows.n_classes):
        targets = criterion.of_class(torch.full((len(first),), k))
        holds = (criterion.value(outputs[first], targets) >= 0) & (decided[first] == k)
        holds = holds.nonzero()[:, 0]
        if engine.true_model is not None and len(holds):
            frame = rows.frame.iloc[first[holds].numpy()]
            oracle = replace(engine.true_model, budget=CORNERS).oracle(frame, distinct[holds], targets[holds])
            everyone = torch.arange(len(holds))
            stable = oracle.stability(distinct[holds], everyone, corners=CORNERS, reach=REACH, salt=1)
            holds = holds[stable == 1]
        valid[k] = distinct[holds]
    return valid


def _distinct(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distinct rows, sorted, and the position of the first occurrence of each."""
    distinct, inverse = torch.unique(x, dim=0, return_inverse=True)
    first = torch.full((len(distinct),), len(x))
    first.scatter_reduce_(0, inverse, torch.arange(len(x)), "amin")
    return distinct, first


@torch.no_grad()
def _plausible_rows(
    plausibility: Plausibility, rows: dict[int, Tensor], *, with_margin: bool
) -> dict[int, Tensor]:
    """Return those rows of each class that are plausible, with or without the calibrated margin."""
    plausible = {}
    for k, own in rows.items():
        margin = 0.0
        if not with_margin and isinstance(plausibility, Calibratable):
            margin = -float(plausibility.margin_[k])
        parts = [plausibility.score(some, torch.full((len(some),), k)) >= margin for some in own.split(4096)]
        plausible[k] = own[torch.cat(parts)] if len(own) else own
    return plausible
