"""The explainer: tables in, explanations out.

``fit`` reads the table (:class:`~plausiflow.data.schema.Schema`), learns how plausible rows are given what
cannot change (:mod:`plausiflow.densities.mixed`), how far inside a search must stay
(:mod:`plausiflow.search.calibration`) and which training rows are answers already. ``explain`` gives every
row a verdict; an answer is called found only after the decoded row has passed the model, the density and the
rules once more.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator
from torch import Tensor

from plausiflow.classifiers.conversion import differentiable
from plausiflow.classifiers.tabular import Decides, EncodedModel, as_model, in_order, labels_of
from plausiflow.constraints import Increasing, Locked, Rule, Rules, locked_mask
from plausiflow.data.encoding import Encoded, Encoder
from plausiflow.data.features import Kind
from plausiflow.data.schema import Schema
from plausiflow.densities import CrossFitEnsemble
from plausiflow.densities.context import ContextThreshold
from plausiflow.densities.mixed import MixedDensity
from plausiflow.errors import InvalidInputError, NotFittedError
from plausiflow.explanations import Explanations
from plausiflow.metrics import Context
from plausiflow.protocols import Classifier, Density
from plausiflow.search.answering import Answers, Question, answered
from plausiflow.search.calibration import calibrate
from plausiflow.search.candidates import RealRows
from plausiflow.search.finder import Finder
from plausiflow.search.guide import Guide
from plausiflow.search.judges import Judges
from plausiflow.search.mixed import MixedSearch
from plausiflow.search.targets import Target, wanted_classes

MEMBERS, CALIBRATION_ROWS = 4, 120
MOST_ANSWERS = 48


@dataclass(kw_only=True, eq=False)
class Explainer:
    """Plausible counterfactuals for the rows of a table.

    Attributes:
        model: What decides: one of our classifiers (trained in ``fit`` unless it is already), a fitted
            scikit-learn classifier or pipeline of the table that can be converted exactly, or any
            :class:`~plausiflow.protocols.Classifier` of encoded rows.
        constraints: What may change; see :mod:`plausiflow.constraints`.
        plausibility: How dense a counterfactual must be: a quantile of the log-densities of real rows that
            have the same immutable features and the wanted outcome (0.5: denser than half of them).
        confidence: Share of the counterfactuals that a density which did not guide the search must accept,
            too; nothing asks for no second opinion.
        weights: What a change of a feature costs, by name: one over a number's whole range, or one for
            another category, unless given.
        sparsity: How much more an answer that changes fewer features may cost, as a share; nothing keeps all
            changes.
        margin: By how much the wanted class must win.
        kinds: Kinds of columns that are not what they look like, by name.
        orders: Levels of ordered categories, lowest first, by name.
        missing: ``"keep"``: a missing value stays missing. ``"impute"``: it is filled with the median or the
            most common level.
        judges: How many densities that guide nothing give every answer a second opinion.
        random_state: Of all that is learned.

    Example:
        >>> from plausiflow import LinearClassifier
        >>> x = pd.DataFrame({"income": [37 * i % 41 for i in range(80)], "debt": [i % 7 for i in range(80)]})
        >>> y = (x["income"] > 20).map({True: "granted", False: "rejected"})
        >>> explainer = Explainer(LinearClassifier(), confidence=None, judges=0).fit(x, y)
        >>> explainer.explain(x.iloc[:2]).status["status"].tolist()
        ['found', 'found']
    """

    model: Classifier | BaseEstimator = field(kw_only=False)
    constraints: Sequence[Rule] = ()
    plausibility: float = 0.5
    confidence: float | None = 0.95
    weights: Mapping[str, float] | None = None
    sparsity: float | None = 0.1
    margin: float = 0.02
    kinds: Mapping[str, Kind] | None = None
    orders: Mapping[str, Sequence[Any]] | None = None
    missing: Literal["keep", "impute"] = "keep"
    judges: int = 3
    random_state: int = 0

    encoder_: Encoder | None = field(init=False, default=None, repr=False)
    model_: EncodedModel | None = field(init=False, default=None, repr=False)
    finder_: Finder | None = field(init=False, default=None, repr=False)
    judges_: Judges | None = field(init=False, default=None, repr=False)
    context_: Context | None = field(init=False, default=None, repr=False)
    outcome_: str = field(init=False, default="outcome", repr=False)

    def __post_init__(self) -> None:
        names = ("weights", "kinds", "orders")
        fine = {
            "plausibility": ("a quantile in [0, 1]", 0 <= _number(self.plausibility) <= 1),
            "confidence": (
                "a share between 0 and 1, or None",
                self.confidence is None or 0 < _number(self.confidence) < 1,
            ),
            "sparsity": (
                "a share of 0 or more, or None",
                self.sparsity is None or _number(self.sparsity) >= 0,
            ),
            "margin": ("in [0, 0.5)", 0 <= _number(self.margin) < 0.5),
            "judges": ("a whole number, 0 or more", _is_whole(self.judges) and self.judges >= 0),
            "random_state": (
                "a whole number from 0 to 2**32 - 1",
                _is_whole(self.random_state) and 0 <= self.random_state < 2**32,
            ),
        } | {
            name: ("a mapping from names of columns, or None", isinstance(given, Mapping | None))
            for name, given in ((name, getattr(self, name)) for name in names)
        }
        _raise_unless(fine, {name: getattr(self, name) for name in fine})

    def fit(self, x: pd.DataFrame, y: Sequence[Any] | pd.Series) -> Self:
        """Learn from a table ``x`` and the outcomes ``y`` of its rows."""
        schema = Schema.infer(x, kinds=self.kinds, orders=self.orders)
        encoder = Encoder(schema, self.missing)
        rules = Rules(self.constraints, schema, encoder.layout)
        if not encoder.layout.blocks:
            raise InvalidInputError(
                "The table cannot be used: none of its columns can change, all are constants or identifiers. "
                "Give rows that differ, or name the kinds of the columns with `kinds`."
            )
        weights = self._weights(encoder)
        given = differentiable(self.model, encoder, x)
        labels, classes = in_order(*labels_of(y, len(x)), getattr(given, "classes", None))
        immutable, rising, falling = rules.immutable, *_monotone(rules)
        base = MixedDensity.of(encoder.layout, immutable, seed=self.random_state)
        context = ContextThreshold.of(encoder.layout, immutable=immutable, rising=rising, falling=falling)
        rows = encoder.encode(x).x
        model = as_model(given, rows, classes, labels)
        single = rows.float()
        ensemble = CrossFitEnsemble(
            members=MEMBERS,
            base=base,
            context=context,
            quantile=self.plausibility,
            seed=self.random_state,
        ).fit(single, classes)
        typical, least = RealRows.free_numbers(encoder.layout, rows)
        finder = Finder(
            rules=rules,
            validity=Decides(model.classifier, self.margin),
            plausibility=ensemble,
            bank=RealRows({}, typical, least),
            weights=weights,
            search=MixedSearch(sparsity=self.sparsity),
        )
        if self.confidence is not None:
            self._calibrate(finder, ensemble, rows, model.predict(rows))
        banks = [
            RealRows(_real_rows(finder, ensemble, rows, model.n_classes, margin), typical, least)
            for margin in (ensemble.margin_, torch.zeros_like(ensemble.margin_))
        ]
        finder = replace(finder, bank=banks[0], wider_bank=banks[1])
        self.encoder_, self.model_, self.finder_ = encoder, model, finder
        # Plausibility and judges are held against what each row is given, which only a verdict knows.
        self.context_ = Context(classifier=model.classifier, x_train=rows, y_train=classes)
        self.judges_ = None
        if self.judges:
            self.judges_ = Judges(count=self.judges, quantile=self.plausibility, base=base, context=context)
            self.judges_.fit(single, classes)
        self.outcome_ = str(y.name) if isinstance(y, pd.Series) and y.name is not None else "outcome"
        return self

    def explain(
        self,
        rows: pd.DataFrame,
        target: Target = "opposite",
        *,
        k: int = 1,
        locked: Locked | None = None,
        time_limit: float | None = None,
        relaxed: bool = False,
    ) -> Explanations:
        """A verdict for every row, and counterfactuals where there are any.

        Args:
            rows: Rows of the table, in any order of its columns.
            target: The outcome wanted: ``"opposite"`` (of two), ``"runner_up"`` (the most probable other
                one), a label, or one label for each row.
            k: How many counterfactuals for each row, different from each other; at most 48.
            locked: Features that keep their value here: names for all rows, names for each row, or a table of
                booleans.
            time_limit: Seconds after which no further rows are searched; they are ``not_reached``.
            relaxed: Where there is no answer, give the nearest miss, valid and allowed but less plausible.
        """
        encoder, model, finder = self._fitted()
        fine = {
            "k": (f"a whole number from 1 to {MOST_ANSWERS}", _is_whole(k) and 1 <= k <= MOST_ANSWERS),
            "time_limit": ("seconds, 0 or more, or None", time_limit is None or _number(time_limit) >= 0),
            "relaxed": ("True or False", isinstance(relaxed, bool | np.bool_)),
        }
        _raise_unless(fine, {"k": k, "time_limit": time_limit, "relaxed": relaxed})
        started = time.monotonic()
        encoded, proba = self._read(rows)
        frame = rows.copy(deep=False).set_flags(allows_duplicate_labels=True)  # answers repeat rows
        frame.attrs = {}
        question = Question(
            frame=frame,
            encoded=encoded,
            classes=proba.argmax(dim=1),
            y_target=wanted_classes(target, proba, model.labels, len(rows)),
            count=k,
            locked=None if locked is None else locked_mask(locked, encoder.schema.names, len(rows)),
            deadline=None if time_limit is None else started + float(time_limit),
            relaxed=relaxed,
        )
        return self._explanations(question, answered(finder, encoder, question), proba)

    def predict_proba(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The model's probabilities, one column per label; missing for a row that cannot be read."""
        encoded, proba = self._read(rows)
        values = proba.numpy()
        values[~encoded.usable] = np.nan
        _, model, _ = self._fitted()
        return pd.DataFrame(values, index=rows.index, columns=list(model.labels))

    def predict(self, rows: pd.DataFrame) -> pd.Series:
        """The outcome the model decides for each row; missing for a row that cannot be read."""
        encoded, proba = self._read(rows)
        _, model, _ = self._fitted()
        outcomes = model.named(proba.argmax(dim=1), encoded.usable)
        return pd.Series(outcomes, index=rows.index, name=self.outcome_)

    def _read(self, rows: pd.DataFrame) -> tuple[Encoded, Tensor]:
        """Encoded rows and the model's probabilities; a row that has none has a problem."""
        encoder, model, _ = self._fitted()
        encoded = encoder.encode(rows)
        proba = model.proba(encoded.x)
        undecided = encoded.usable & proba.isnan().any(dim=1).numpy()
        encoded.problems[undecided] = (
            "the model gives no probabilities for it; a number may be too far from the training range"
        )
        return encoded, proba

    def _explanations(self, question: Question, answers: Answers, before: Tensor) -> Explanations:
        _, model, finder = self._fitted()
        x, of = question.encoded.x[answers.of], answers.of
        wanted = question.y_target[of]
        proba = model.proba(answers.x_cf)
        judged = torch.full((len(of),), torch.nan, dtype=torch.float64)
        if self.judges_ is not None and len(of):
            judged = self.judges_.passes(answers.x_cf, wanted, x).double().mean(dim=1)
        delta = answers.x_cf - x
        log_density = torch.full_like(judged, torch.nan)
        if isinstance(finder.plausibility, Density):
            with torch.no_grad():
                log_density = finder.plausibility.log_prob(answers.x_cf, wanted)
        figures = pd.DataFrame(
            {
                "cost": answers.cost.numpy(),
                "l1": delta.abs().sum(dim=1).numpy(),
                "l2": torch.linalg.vector_norm(delta, dim=1).numpy(),
                "n_changes": finder.rules.layout.changed(answers.x_cf, x).sum(dim=1).numpy(),
                "probability": proba.gather(1, wanted[:, None])[:, 0].numpy(),
                "log_density": log_density.numpy(),
                "score": answers.score.numpy(),
                "judged": judged.numpy(),
            }
        )
        usable = question.encoded.usable
        wanted_before = before.gather(1, question.y_target[:, None])[:, 0].numpy()
        verdicts = pd.DataFrame(
            {
                "status": answers.status,
                "reason": answers.reason,
                "predicted": model.named(question.classes, usable),
                "target": model.named(question.y_target, usable),
                "probability": np.where(usable, wanted_before, np.nan),
            },
            index=question.frame.index,
        )
        return Explanations(
            rows=question.frame,
            answers=answers.decoded,
            of=of.numpy(),
            figures=figures,
            verdicts=verdicts,
            misses=answers.misses,
            misses_of=answers.misses_of,
            misses_why=answers.misses_why,
            schema=finder.rules.schema,
            outcome=self.outcome_,
            labels=model.labels,
            encoded=(question.encoded.x, answers.x_cf, question.y_target),
            context=self.context_,
        )

    def _fitted(self) -> tuple[Encoder, EncodedModel, Finder]:
        if self.encoder_ is None or self.model_ is None or self.finder_ is None:
            raise NotFittedError(
                "This explainer has not been fitted. Call `fit(x, y)` with training rows first."
            )
        return self.encoder_, self.model_, self.finder_

    def _weights(self, encoder: Encoder) -> Tensor:
        given = dict(self.weights or {})
        names = [block.name for block in encoder.layout.blocks]
        problems = [f"{name!r} is no feature that can change" for name in given if name not in names]
        problems += [
            f"the weight of {name!r} must be a positive number; got {value!r}"
            for name, value in given.items()
            if not 0 < _number(value) < math.inf
        ]
        if problems:
            raise InvalidInputError(
                "`weights` cannot be used: " + "; ".join(problems) + ". Features that may not change go into "
                "`Immutable`."
            )
        return torch.tensor([float(given.get(name, 1.0)) for name in names], dtype=torch.float64)

    def _calibrate(self, finder: Finder, ensemble: CrossFitEnsemble, x: Tensor, classes: Tensor) -> None:
        assert self.confidence is not None
        light = MixedSearch(real_rows=4, sparsity=self.sparsity, finalists=1)

        def search(rows: Tensor, wanted: Tensor, guide: Guide, bank: dict[int, Tensor]) -> Tensor:
            task = finder.task(rows, wanted, guide=guide)
            found = light.run(task, replace(finder.bank, rows=bank))
            x_cf = torch.full_like(rows, torch.nan)
            x_cf[found.rows] = found.x
            return x_cf

        calibrate(
            ensemble,
            x,
            classes,
            validity=finder.validity,
            search=search,
            confidence=self.confidence,
            seed=self.random_state,
            n_rows=CALIBRATION_ROWS,
        )


@torch.no_grad()
def _real_rows(
    finder: Finder, ensemble: CrossFitEnsemble, x: Tensor, n_classes: int, margin: Tensor
) -> dict[int, Tensor]:
    """Distinct training rows that are valid, and plausible by these margins of the classes, by class."""
    distinct, rows = torch.unique(x, dim=0), {}
    for k in range(n_classes):
        wanted = torch.full((len(distinct),), k)
        fine = torch.cat(
            [
                (finder.validity(own, of) >= 0) & (ensemble.score(own, of) >= (margin - ensemble.margin_)[k])
                for own, of in zip(distinct.split(4096), wanted.split(4096), strict=True)
            ]
        )
        rows[k] = distinct[fine]
    return rows


def _monotone(rules: Rules) -> tuple[list[str], list[str]]:
    """Features that may only rise, and that may only fall."""
    monotone = rules.monotone
    rising = [rule.feature for rule in rules.constraints if isinstance(rule, Increasing)]
    return [n for n in monotone if n in rising], [n for n in monotone if n not in rising]


def _number(value: object) -> float:
    """A number as a float; NaN, which compares with nothing, where it is none."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool | np.bool_)


def _raise_unless(fine: Mapping[str, tuple[str, bool]], given: Mapping[str, object]) -> None:
    """Raise for all settings that are not as asked: what each must be, and whether it is."""
    problems = [
        f"`{name}` must be {what}; got {given[name]!r}" for name, (what, is_so) in fine.items() if not is_so
    ]
    if problems:
        raise InvalidInputError("; ".join(problems) + ".")
