"""The explainer: tables in, explanations out.

``fit`` reads the table (:class:`~plausiflow.tables.schema.Schema`), learns how plausible rows are given what
cannot change (:mod:`plausiflow.densities.mixed`), how far inside a search must stay
(:mod:`plausiflow.densities.calibration`) and which training rows are answers already. ``explain`` gives every
row a verdict; an answer is called found only after the decoded row has passed the model, the density and the
rules once more.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from plausiflow.constraints import Locked, Rule, Rules, locked_mask
from plausiflow.core import Context, Plausibility
from plausiflow.densities import Judges
from plausiflow.errors import InvalidInputError, NotFittedError
from plausiflow.explanations import Explanations, context_of, figures_of, held_out_of, verdicts_of
from plausiflow.models import (
    BlackBox,
    EncodedModel,
    ModelResolver,
    ModelType,
    in_order,
    numbers_of,
    predicts_numbers,
)
from plausiflow.persistence import KINDS, Origin, Parts, load, reading, save
from plausiflow.report import explainer_table
from plausiflow.search import (
    Engine,
    Rows,
    SearchContext,
    SearchRequest,
    SearchResult,
    Settings,
    Target,
    TargetCriterion,
    answers_as_text,
    binned,
    build_engine,
    cheapest_of,
    check_asked,
    check_settings,
    densities,
    outcome_of,
    parse_target,
    read_rows,
    restore_engine,
    scores,
    weights_of,
    with_rules,
)
from plausiflow.tables import Encoded, Encoder, Kind, Schema


@dataclass(kw_only=True, eq=False)
class Explainer:
    """Plausible counterfactuals for the rows of a table.

    Attributes:
        model: What decides: a fitted scikit-learn model or pipeline of the table, XGBoost, LightGBM or
            CatBoost, a torch module of its columns, any function of a table that returns probabilities,
            labels or numbers; one of our classifiers (trained in ``fit`` unless it is already), or any
            :class:`~plausiflow.core.protocols.Classifier` of encoded rows.
        model_type: What the model must be taken for, where it is not what it looks like; ``repr`` tells what
            it was. See :data:`~plausiflow.models.resolve.ModelType`.
        labels: What teaches the density about outcomes: those ``given``; where these are scarce or not known,
            what the ``model`` decides, or the model's probabilities, by Bayes' rule (``bayes``).
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
        model_rows: How many rows a model without gradients may be asked about for each row and search.
        random_state: Of all that is learned.

    Example:
        >>> from plausiflow import LinearClassifier
        >>> x = pd.DataFrame({"income": [37 * i % 41 for i in range(80)], "debt": [i % 7 for i in range(80)]})
        >>> y = (x["income"] > 20).map({True: "granted", False: "rejected"})
        >>> explainer = Explainer(LinearClassifier(), confidence=None, judges=0).fit(x, y)
        >>> explainer.explain(x.iloc[:2]).status["status"].tolist()
        ['found', 'found']
    """

    model: Any = field(kw_only=False)
    model_type: ModelType = "auto"
    labels: Literal["given", "model", "bayes"] = "given"
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
    model_rows: int = 600
    random_state: int = 0

    encoder_: Encoder | None = field(init=False, default=None, repr=False)
    model_: EncodedModel | BlackBox | None = field(init=False, default=None, repr=False)
    criterion_: TargetCriterion = field(init=False, default_factory=TargetCriterion, repr=False)
    engine_: Engine | None = field(init=False, default=None, repr=False)
    judges_: Judges | None = field(init=False, default=None, repr=False)
    context_: Context | None = field(init=False, default=None, repr=False)
    outcome_: str = field(init=False, default="outcome", repr=False)
    origin_: Origin | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        check_settings({f.name: getattr(self, f.name) for f in fields(self) if f.init})
        self.random_state = int(self.random_state)

    def __repr__(self) -> str:
        name = type(self.model).__name__
        if self.model_ is None:
            return f"Explainer({name}, not fitted)"
        return f"Explainer({name}, taken for: {self.model_.description})"

    _repr_html_ = explainer_table

    def fit(self, x: pd.DataFrame, y: Sequence[Any] | pd.Series | None = None) -> Self:
        """Learn from a table ``x`` and the outcomes ``y`` of its rows; only ``labels="given"`` needs all."""
        schema = Schema.infer(x, kinds=self.kinds, orders=self.orders)
        encoder = Encoder(schema, self.missing)
        rules = Rules(self.constraints, schema, encoder.layout)
        if not encoder.layout.blocks:
            raise InvalidInputError(
                "The table cannot be used: none of its columns can change, all are constants or identifiers. "
                "Give rows that differ, or name the kinds of the columns with `kinds`."
            )
        weights = weights_of(self.weights, encoder.layout)
        encoded = encoder.encode(x).x
        model, classes, aim = self._taken(encoder, x, encoded, y)
        n_classes = len(aim.edges) - 1 if aim.edges else len(model.labels)
        outcome = outcome_of(model) if self.labels == "bayes" else None
        rows = Rows(frame=x, x=encoded, classes=classes, n_classes=n_classes, outcome=outcome)
        settings = self._settings
        plausibility, judges = self._densities(rows, rules, encoder, settings)
        means = SearchContext(rules, encoder, model, aim, plausibility, weights, settings)
        finder = build_engine(rows, means)
        self.encoder_, self.model_, self.criterion_, self.engine_ = encoder, model, aim, finder
        self.judges_, self.context_ = judges, context_of(model, encoded, classes)
        self.origin_ = Origin.of(x, encoder, encoded, classes)
        self.outcome_ = str(y.name) if isinstance(y, pd.Series) and y.name is not None else "outcome"
        return self

    @property
    def _settings(self) -> Settings:
        return Settings(
            plausibility=self.plausibility,
            confidence=self.confidence,
            sparsity=self.sparsity,
            budget=self.model_rows,
            judges=self.judges,
            seed=self.random_state,
        )

    def _densities(
        self, rows: Rows, rules: Rules, encoder: Encoder, settings: Settings
    ) -> tuple[Plausibility, Judges | None]:
        """How plausible rows are, and the judges; studies put others here."""
        return densities(rows, rules=rules, encoder=encoder, settings=settings)

    def _taken(
        self, encoder: Encoder, frame: pd.DataFrame, x: Tensor, y: Sequence[Any] | pd.Series | None
    ) -> tuple[EncodedModel | BlackBox, Tensor, TargetCriterion]:
        """The model, the class or bin of each training row, and how answers are held against wishes."""
        taken = ModelResolver(self.model, self.model_type, encoder, frame)
        if predicts_numbers(self.model, y):
            taken.labels(None)
            model = taken.regressor(x, self.random_state)
            outcomes = y if self.labels == "given" else model.answers(x, frame).numpy()
            values = numbers_of(outcomes, len(x))
            edges, classes = binned(values)
            return model, classes, TargetCriterion(self.margin, edges, unit=0.1 * float(values.std()))
        labels, classes, known = taken.outcomes(y, len(x), needed=self.labels == "given")
        order = taken.labels(labels)
        labels, classes = in_order(labels, classes, order)
        model = taken.classifier(x, classes, known, labels, self.random_state)
        aim = TargetCriterion(self.margin)
        return model, classes if self.labels == "given" else aim.classes(model.answers(x, frame)), aim

    def explain(
        self,
        rows: pd.DataFrame,
        target: Target = "opposite",
        *,
        min_probability: float | None = None,
        k: int = 1,
        locked: Locked | None = None,
        time_limit: float | None = None,
        relaxed: bool = False,
        constraints: Sequence[Rule] = (),
        second_opinion: bool = True,
        device: str = "auto",
    ) -> Explanations:
        """A verdict for every row, and counterfactuals where there are any.

        Args:
            rows: Rows of the table, in any order of its columns.
            target: The outcome wanted: ``"opposite"`` (of two), ``"runner_up"`` (the most probable other
                one), ``"other"`` (whichever other one is cheapest), a label, or one label for each row. Of a
                number that is predicted: the smallest and the largest one wanted, ``None`` for no bound, or
                both for each row, shape ``(n, 2)``.
            min_probability: What the model must give the wanted outcome at least; by default it must win.
            k: How many counterfactuals for each row, different from each other; at most 48.
            locked: Features that keep their value here: names for all rows, names for each row, or a table of
                booleans.
            time_limit: Seconds after which no further rows are searched; they are ``not_reached``.
            relaxed: Where there is no answer, give the nearest miss, valid and allowed but less plausible.
            constraints: More rules, for these rows only, such as ``Range("income", 0, 5000)``.
            second_opinion: Whether answers keep the margin that ``confidence`` asks for.
            device: Where to search; ``auto`` is CUDA if it is there, rows are many, the model has gradients.
        """
        encoder, model, finder = self._fitted()
        check_asked(
            k=k,
            time_limit=time_limit,
            relaxed=relaxed,
            min_probability=min_probability,
            second_opinion=second_opinion,
            device=device,
            numbers=bool(self.criterion_.edges),
        )
        finder = replace(with_rules(finder, constraints), device=str(device))
        started = time.monotonic()
        before = (model.asked.calls, model.asked.rows) if isinstance(model, BlackBox) else (0, 0)
        encoded, outputs = self._read(rows)
        frame = rows.copy(deep=False).set_flags(allows_duplicate_labels=True)  # answers repeat rows
        frame.attrs = {}
        wishes = parse_target(target, outputs, self.criterion_, model.labels, min_probability)
        question = SearchRequest(
            frame=frame,
            encoded=encoded,
            already=self.criterion_.met(outputs, wishes[0])
            if len(wishes) == 1
            else torch.zeros(len(rows)).bool(),
            wanted=wishes[0],
            count=k,
            locked=None if locked is None else locked_mask(locked, encoder.schema.names, len(rows)),
            deadline=None if time_limit is None else started + float(time_limit),
            relaxed=relaxed,
            second_opinion=second_opinion,
        )
        question, answers = cheapest_of(finder, encoder, question, wishes)
        result = self._result(finder, question, answers, outputs)
        if isinstance(model, BlackBox):
            calls, asked = model.asked.calls - before[0], model.asked.rows - before[1]
            result = replace(result, model_calls=calls, model_rows=asked)
        return result

    def _result(
        self, finder: Engine, question: SearchRequest, answers: SearchResult, before: Tensor
    ) -> Explanations:
        _, model, _ = self._fitted()
        return Explanations(
            rows=question.frame,
            answers=answers.decoded,
            of=answers.of.numpy(),
            figures=figures_of(question, answers, model, finder, self.judges_),
            verdicts=verdicts_of(question, answers, before, model.labels),
            misses=answers.misses,
            misses_of=answers.misses_of,
            misses_why=answers.misses_why,
            schema=finder.rules.schema,
            outcome=self.outcome_,
            labels=model.labels,
            encoded=(question.encoded.x, answers.x_cf, question.wanted.y),
            context=self.context_,
            held_out=held_out_of(finder.plausibility),
        )

    def predict_proba(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The model's probabilities, one column per label; missing for a row that cannot be read."""
        _, model, _ = self._fitted()
        if not model.labels:
            raise InvalidInputError(
                "`model` must decide between outcomes; it predicts a number. Use `predict`."
            )
        encoded, outputs = self._read(rows)
        values = outputs.exp().numpy()
        values[~encoded.usable] = np.nan
        return pd.DataFrame(values, index=rows.index, columns=list(model.labels))

    def predict(self, rows: pd.DataFrame) -> pd.Series:
        """What the model answers for each row, an outcome or a number; missing where it cannot be read."""
        encoded, outputs = self._read(rows)
        _, model, _ = self._fitted()
        texts = answers_as_text(outputs, model.labels, encoded.usable)
        return pd.Series(texts, index=rows.index, name=self.outcome_)

    def score(self, rows: pd.DataFrame, target: Target) -> npt.NDArray[Any]:
        """How plausible rows are with the outcome wanted of each, in nats above the threshold, ``(n,)``.

        Not negative: plausible. Missing for a row that cannot be read. The margin that answers keep for a
        second opinion is not part of it.
        """
        _, model, finder = self._fitted()
        encoded, outputs = self._read(rows)
        return scores(finder, encoded, parse_target(target, outputs, self.criterion_, model.labels))

    def _read(self, rows: pd.DataFrame) -> tuple[Encoded, Tensor]:
        encoder, model, _ = self._fitted()
        return read_rows(encoder, model, rows)

    def save(self, folder: str | Path, *, training_rows: bool = False) -> None:
        """Save to a directory of safetensors and JSON; an explainer that was saved there is replaced.

        It holds the training rows that are answers already, encoded, for answers need them: it is as
        confidential as the table. A model that is not stored without pickle is given again to :meth:`load`.

        Args:
            folder: New, empty, or of an explainer that was saved before.
            training_rows: Whether to keep all training rows, encoded: ``result.metrics()`` needs them.
        """
        encoder, model, finder = self._fitted()
        names = (f.name for f in fields(self) if f.init and f.name not in ("model", "constraints"))
        context = self.context_ if training_rows else None
        parts = Parts(
            settings={name: getattr(self, name) for name in names},
            constraints=self.constraints,
            encoder=encoder,
            model=self.model,
            decider=model,
            aim=self.criterion_.to_dict(),
            outcome=self.outcome_,
            origin=self.origin_,
            densities=finder.plausibility,
            judges=self.judges_,
            bank=finder.rows_state(),
            training={} if context is None else {"x": context.x_train, "y": context.y_train},
        )
        save(Path(folder), parts, KINDS.with_(Judges))

    @classmethod
    def load(cls, folder: str | Path, model: object = None) -> Self:
        """The explainer that was saved to a directory; its answers are the same to the bit.

        Args:
            folder: Where it was saved. Nothing in it is executed, but load models only from whom you trust.
            model: The model, where it was not stored, or instead of the stored one. It must be the one that
                was explained: it is asked about synthetic rows whose answers are kept.

        Raises:
            ArtefactError: The directory is damaged, of another version, or not a saved explainer.
            InvalidInputError: The model must be given.
            ModelError: It is another model.
        """
        parts = load(Path(folder), model, KINDS.with_(Judges), outcome_of)
        with reading(Path(folder)):
            made = cls(parts.model, constraints=parts.constraints, **parts.settings)
            made.encoder_, made.model_, made.judges_ = parts.encoder, parts.decider, parts.judges
            made.criterion_, made.origin_, made.outcome_ = (
                TargetCriterion.from_dict(parts.aim),
                parts.origin,
                parts.outcome,
            )
            encoder, taken = parts.encoder, parts.decider
            weights = weights_of(made.weights, encoder.layout)
            rules = Rules(parts.constraints, encoder.schema, encoder.layout)
            means = SearchContext(
                rules, encoder, taken, made.criterion_, parts.densities, weights, made._settings
            )
            made.engine_ = restore_engine(parts.bank, means)
            if parts.training:
                made.context_ = context_of(taken, parts.training["x"], parts.training["y"])
        return made

    def _fitted(self) -> tuple[Encoder, EncodedModel | BlackBox, Engine]:
        if self.encoder_ is None or self.model_ is None or self.engine_ is None:
            raise NotFittedError(
                "This explainer has not been fitted. Call `fit(x, y)` with training rows first."
            )
        return self.encoder_, self.model_, self.engine_
