"""The explainer: tables in, explanations out.

``fit`` reads the table, resolves the model, learns how plausible rows are given what cannot change,
calibrates the margin, and keeps the training rows that are answers already. ``explain`` gives every row a
verdict; an answer counts as found only after model, density and rules have verified the decoded row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from plausiflow.constraints import LearnedRules, LockedFeatures, Rule
from plausiflow.core import Context, Density, Plausibility, Solver, TargetCriterion, suitable_threads
from plausiflow.densities import Judges
from plausiflow.errors import InvalidInputError, NotFittedError
from plausiflow.explainer.conventions import SklearnConventions
from plausiflow.explainer.fitting import fit_explainer
from plausiflow.explainer.grouping import explain_groups
from plausiflow.explainer.rechecking import recheck
from plausiflow.explainer.results import build_explanations
from plausiflow.explainer.saved_groups import load_groups
from plausiflow.explainer.saving import load_explainer, save_explainer
from plausiflow.explainer.settings import FittedWith, check_verbose, refresh
from plausiflow.explainer.switching import switch_off, switch_on
from plausiflow.explanations import (
    Explanations,
    check_seconds,
)
from plausiflow.models import (
    DecisionThreshold,
    LabelSource,
    ModelType,
    Retrain,
    TableModel,
    count_model_calls,
)
from plausiflow.persistence import TrainingSummary
from plausiflow.progress import verbosity
from plausiflow.report import explainer_table, explainer_text
from plausiflow.search import (
    Distance,
    EffortName,
    Engine,
    MakeMethod,
    Target,
    Tolerance,
    check_effort,
    finish_answers,
    parse_target,
    parse_tolerance,
    plausibility_scores,
    predict_rows,
    prepare_request,
    read_rows,
    search_targets,
)
from plausiflow.solvers import SQP
from plausiflow.tables import Encoder, Kind, Schema


@dataclass(kw_only=True, eq=False)
class Explainer(SklearnConventions):
    """Plausible counterfactuals for the rows of a table.

    Attributes:
        model: A fitted scikit-learn model or pipeline of the table, an XGBoost, LightGBM or CatBoost model, a
            torch module of its columns, any function of a table that returns probabilities, labels or
            numbers; one of our classifiers (trained in ``fit`` unless it is already), or any
            :class:`~plausiflow.core.protocols.Classifier` of encoded rows.
        model_type: What the model is, if it is not what it looks like; ``repr`` shows how it was resolved.
            See :data:`~plausiflow.models.resolve.ModelType`.
        decision_threshold: Cut-off of a model without ``predict``, such as a function or a torch module: the
            probability from which the second of two outcomes is decided for, or a mapping with a cut-off for
            each outcome, whose largest ratio of probability to cut-off decides. None: the largest
            probability decides. A model with ``predict`` decides by ``predict``.
        labels: Where the density gets outcomes from: ``given`` takes those of ``y``; for scarce labels,
            ``model`` takes what the model decides, and ``bayes`` its probabilities by Bayes' rule.
        constraints: Rules about what may change; see :mod:`plausiflow.constraints`.
        learn_rules: Whether to learn rules from the training table and obey them; see ``learned_rules``.
        plausibility: How dense a counterfactual must be: a quantile of the log-densities of real rows with
            the target outcome (0.5: denser than half of them), or a fitted plausibility of encoded rows.
        confidence: Share of the counterfactuals that a density which did not guide the search must accept
            too; None skips this calibration.
        density: A density of your own with ``fit(x, y)`` and ``log_prob(x, y)``; None for our ensemble.
        solver: Solver for the numbers, with ``solve(problem, starts)``.
        method: A :class:`~plausiflow.methods.base.Method` class, or a function of ``classifier`` and
            ``plausibility`` that returns a method, instead of the default search.
        distance: How changes add up to a cost: ``"l2"``, ``"l1"``, or ``"l1-mad"`` with numbers divided by
            their median absolute deviation; see :mod:`plausiflow.search.costs`.
        weights: How much more a change of a feature costs, by name; default 1. See also ``Price``.
        max_extra_cost: How much more than the cheapest answer one with fewer changes may cost, as a share;
            and how much more than that one an answer with fewer changes that alone take the row farther
            from its target.
        margin: By how much the target class must win.
        kinds: Kinds of columns that are not what they look like, by name.
        orders: Levels of ordered categories, lowest first, by name.
        steps: Steps of numbers, as in ``{"amount": 500}``: a changed number is a multiple; found by default.
        special: Special values of numbers, as in ``{"days": [-1]}``; ``[]`` for none, and found by default.
        missing: ``"keep"`` keeps a missing value, ``"impute"`` fills in the median or the commonest level.
        judges: Number of independent densities that give every answer a second opinion.
        model_rows: How many rows a model without gradients may be asked about for each row and search.
        durability: The share of models retrained on other samples of the rows that shall decide an answer as
            wanted, such as 0.9; None does not ask for it. ``figures["lasting"]`` has the share of retrained
            models that took no part in the search and agree. See docs/guide/durable.md.
        refits: Number of retrained models that guide the search.
        retrain: How the model is retrained, if it is not a scikit-learn model or one of our networks: a
            function ``(x, y, seed)`` that trains and returns a model, or a list of models that are there.
        random_state: Seed of everything that is learned.

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
    decision_threshold: DecisionThreshold | None = None
    labels: LabelSource = "given"
    constraints: Sequence[Rule] = ()
    learn_rules: bool = True
    plausibility: float | Plausibility = 0.5
    confidence: float | None = 0.98
    density: Density | None = None
    solver: Solver = field(default_factory=SQP)
    method: MakeMethod | None = None
    distance: Distance = "l2"
    weights: Mapping[str, float] | None = None
    max_extra_cost: float = 0.3
    margin: float = 0.02
    kinds: Mapping[str, Kind] | None = None
    orders: Mapping[str, Sequence[Any]] | None = None
    special: Mapping[str, Sequence[float]] | None = None
    steps: Mapping[str, float] | None = None
    missing: Literal["keep", "impute"] = "keep"
    judges: int = 3
    model_rows: int = 600
    durability: float | None = None
    refits: int = 15
    retrain: Retrain | Sequence[object] | None = None
    random_state: int = 0

    encoder_: Encoder | None = field(init=False, default=None, repr=False)
    model_: TableModel | None = field(init=False, default=None, repr=False)
    criterion_: TargetCriterion = field(init=False, default_factory=TargetCriterion, repr=False)
    engine_: Engine | None = field(init=False, default=None, repr=False)
    judges_: Judges | None = field(init=False, default=None, repr=False)
    context_: Context | None = field(init=False, default=None, repr=False)
    outcome_: str = field(init=False, default="outcome", repr=False)
    learned_rules: LearnedRules = field(init=False, default_factory=LearnedRules, repr=False)
    training_summary_: TrainingSummary | None = field(init=False, default=None, repr=False)
    fitted_with_: FittedWith | None = field(init=False, default=None, repr=False)

    __repr__ = explainer_text
    _repr_html_ = explainer_table

    def infer_schema(self, x: pd.DataFrame) -> Schema:
        """Return what the columns of a table are, with the settings of this explainer."""
        return Schema.infer(x, kinds=self.kinds, orders=self.orders, special=self.special, steps=self.steps)

    def fit(
        self,
        x: pd.DataFrame,
        y: Sequence[Any] | pd.Series | None = None,
        *,
        effort: EffortName = "standard",
        verbose: bool | None = None,
    ) -> Self:
        """Learn from a table and the outcomes of its rows.

        Args:
            x: Training rows.
            y: Their outcomes; only ``labels="given"`` needs one for every row. A Series is paired with the
                rows by its index, anything else by position.
            effort: ``"quick"`` takes about half of the time, ``"thorough"`` about three times as long.
            verbose: Whether to show how long it takes. None: a bar on a terminal, a line in a notebook.
                True: also lines in a log. False: nothing.
        """
        check_effort(effort)
        check_verbose(verbose)
        with suitable_threads(), verbosity(verbose):
            fit_explainer(self, x, y, effort)
        return self

    def explain(
        self,
        rows: pd.DataFrame,
        target: Target = "opposite",
        *,
        min_probability: float | None = None,
        k: int = 1,
        locked: LockedFeatures | None = None,
        time_limit: float | None = None,
        relaxed: bool = False,
        constraints: Sequence[Rule] = (),
        second_opinion: bool = True,
        diagnose: bool = True,
        tolerance: Tolerance | None = None,
        certify: float | None = None,
        device: str = "auto",
        verbose: bool | None = None,
    ) -> Explanations:
        """Return a verdict for every row, and its counterfactuals.

        Args:
            rows: Rows of the table; their columns may be in any order.
            target: The wanted outcome: ``"opposite"`` (of two), ``"runner_up"`` (the most probable other
                one), ``"other"`` (whichever other one is cheapest), a label, or one label for each row. For
                a predicted number: the smallest and the largest wanted, ``None`` for no bound, or such a pair
                for each row, shape ``(n, 2)``.
            min_probability: Minimum probability of the target outcome; by default it must win.
            k: Number of counterfactuals for each row, different from each other; at most 48.
            locked: Features that keep their value: names for all rows, for each row, or a table of booleans.
            time_limit: Seconds after which the search ends; rows that it had no time for are ``not_reached``.
            relaxed: Whether a row without an answer gets its nearest, less plausible miss.
            constraints: More rules for this call, such as ``Range("income", 0, 5000)``.
            second_opinion: Whether answers keep the margin that ``confidence`` asks for.
            diagnose: Whether to find out why a row has no answer; ``reason`` says if nobody asked.
            tolerance: By how much changed numbers may be missed, as a share of their range, for all or by
                name: the answer must hold at 32 ways to miss it, if such an answer is found;
                ``figures["tolerant"]`` has the share of them that hold.
            certify: Seconds that the proof of each row may take; see :meth:`Explanations.certify`.
            device: Device of the search; ``auto`` is CUDA for many rows of a model with gradients.
            verbose: Whether to show progress; see :meth:`fit`.
        """
        check_verbose(verbose)
        if certify is not None:
            check_seconds(certify)
        encoder, model, engine = self._fitted()
        with suitable_threads(rows), count_model_calls() as counted, verbosity(verbose):
            request, choices, read = prepare_request(
                encoder,
                model,
                self.criterion_,
                rows,
                target,
                min_probability=min_probability,
                k=k,
                locked=locked,
                time_limit=time_limit,
                relaxed=relaxed,
                second_opinion=second_opinion,
                diagnose=diagnose,
                device=device,
            )
            if tolerance is not None:
                request = replace(request, tolerance=parse_tolerance(tolerance, encoder.layout))
            if constraints or str(device) != engine.device:
                engine = replace(engine.with_rules(constraints), device=str(device))
            request, found = search_targets(engine, encoder, request, choices)
            found = finish_answers(engine, encoder, request, found)
            rules = [*self.constraints, *constraints]
            result = build_explanations(self, engine, request, found, read, counted, rules)
            return result if certify is None else result.certify(certify)

    switch_off, switch_on = switch_off, switch_on
    explain_groups, load_groups, recheck = explain_groups, load_groups, recheck

    def predict_proba(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return the model's probabilities, one column per label; NaN for a row that cannot be read."""
        encoder, model, _ = self._fitted()
        if not model.labels:
            raise InvalidInputError("No model with probabilities; this one predicts a number. Use `predict`.")
        read = read_rows(encoder, model, rows)
        values = read.shown.exp().numpy()
        values[~read.encoded.usable] = np.nan
        return pd.DataFrame(values, index=rows.index, columns=list(model.labels))

    def predict(self, rows: pd.DataFrame) -> pd.Series:
        """Return what the model predicts, an outcome or a number; missing for a row that cannot be read.

        It is ``model.predict``, if the model has it, else by ``decision_threshold`` or largest probability.
        """
        encoder, model, _ = self._fitted()
        return pd.Series(predict_rows(encoder, model, rows), index=rows.index, name=self.outcome_)

    def score(self, rows: pd.DataFrame, target: Target) -> npt.NDArray[Any]:
        """Return the plausibility score of rows for their target outcomes, shape ``(n,)``.

        A row is plausible if its score, log-density minus threshold, is at least zero; NaN if it cannot be
        read. The margin that answers keep for a second opinion does not count.
        """
        encoder, model, engine = self._fitted()
        read = read_rows(encoder, model, rows)
        choices = parse_target(target, read.outputs, self.criterion_, model.labels, decided=read.decided)
        return plausibility_scores(engine, read.encoded, choices)

    def save(self, folder: str | Path, *, training_rows: bool = False) -> None:
        """Save to a directory of safetensors and JSON; an explainer that was saved there is replaced.

        The directory holds training rows, because searches need them: it is as confidential as the table. A
        model that cannot be stored without pickle, its retrained models, and a density, solver or method of
        your own are given again to :meth:`load`.

        Args:
            folder: A new or empty directory, or one with a saved explainer.
            training_rows: Whether to save all training rows, encoded: ``result.metrics()`` and a ``method``
                need them.
        """
        save_explainer(self, Path(folder), training_rows=training_rows)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        model: object = None,
        density: object = None,
        *,
        solver: Solver | None = None,
        method: MakeMethod | None = None,
        retrain: Sequence[object] | None = None,
    ) -> Self:
        """Load an explainer that was saved to a directory; its answers are the same bit for bit.

        Args:
            folder: The directory. Nothing in it is executed, but load models only from people you trust.
            model: The model, if it was not stored, or instead of the stored one. Its outputs for synthetic
                rows must equal the saved ones.
            density: An object of your own class with ``load_state``, if the explainer was saved with one.
            solver: The solver, if it is not the default.
            method: The method, if there was one; the explainer must be saved with ``training_rows=True``.
            retrain: The retrained models (``retrained_models``) if they were not stored, in the same order.

        Raises:
            ArtefactError: The directory is damaged, of another version, or not a saved explainer.
            InvalidInputError, ModelError: The model or retrained models must be given, or are other ones.
        """
        return load_explainer(
            cls, Path(folder), model, density, solver=solver, method=method, retrain=retrain
        )

    @property
    def retrained_models(self) -> list[object]:
        """The models that ``durability`` retrained: guides, then jurors; empty without it."""
        found = None if self.engine_ is None else self.engine_.durability
        return [] if found is None else list(found.models)

    def _fitted(self) -> tuple[Encoder, TableModel, Engine]:
        """Return encoder, model and engine, with settings assigned after ``fit``; raise if not fitted."""
        if self.encoder_ is None or self.model_ is None or self.engine_ is None:
            raise NotFittedError("This explainer has not been fitted. Call `fit(x, y)` with rows first.")
        refresh(self)
        return self.encoder_, self.model_, self.engine_
