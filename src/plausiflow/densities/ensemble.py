r"""An ensemble of flows, each with thresholds from rows that it was not trained on.

A point that is just plausible for one flow is often implausible for another flow of the same data. Each
member m is trained without one part of the rows, and its threshold :math:`\tau_m(y)` comes from that part,
where overfitting cannot raise it. A row's score is

.. math:: \operatorname{mean}_m \bigl( \log p_m(x | y) - \tau_m(y) \bigr) - \text{margin}(y)

:mod:`plausiflow.densities.calibration` sets the margin, :mod:`plausiflow.densities.context` adds thresholds
that depend on immutable features, :mod:`plausiflow.densities.bayes` is for data with few labels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal, Self

import torch
from torch import Tensor, nn

from plausiflow.core import (
    Frozen,
    MovingColumns,
    Parameters,
    RowFunction,
    RowValueAndGrad,
    check_classes,
    check_query,
    check_rows,
    plausibility_value,
)
from plausiflow.densities.bayes import BayesRule, ClassLogProba
from plausiflow.densities.context import ContextThreshold
from plausiflow.densities.flows import ConditionalFlow
from plausiflow.densities.members import Member, copy_with_seed, stack, train_members
from plausiflow.densities.mixed import StackedMixed
from plausiflow.densities.one_cycle import OneCycle
from plausiflow.densities.row_scores import PlainRowScores, once_for_the_same_rows
from plausiflow.densities.stacked import StackedMAF
from plausiflow.densities.thresholds import class_percentiles, held_out_thresholds, weighted_quantile
from plausiflow.errors import InvalidInputError, NotFittedError

IMPRECISION = 0.1
"""By how much a score in single precision is wrong at most, with plenty to spare; in nats."""


@dataclass(kw_only=True, eq=False)
class CrossFitEnsemble(Parameters):
    """Conditional flows of different parts of the rows; both a density and a plausibility.

    Attributes:
        members: Number of flows M; the rows are split into as many parts.
        base: The flow or mixed density whose settings the members have.
        context: The part of the thresholds that depends on immutable features, or None.
        outcome: Log-probabilities of a classifier. The members then learn the density of all rows, Bayes'
            rule gives that of a class, and rows are weighted by their probabilities instead of labelled.
        quantile: Which quantile of the held-out log-densities of a class is its threshold.
        aggregation: ``mean`` or ``min`` over members.
        training: Settings of the training of all members.
        random_state: Seed of the split and of the members.
        held_out_: Percentiles of the scores of each class, without the margin, of each row by the member that
            was not trained on it, shape ``(k, 101)``.
    """

    members: int = 5
    base: Member = field(default_factory=ConditionalFlow)
    context: ContextThreshold | None = None
    outcome: ClassLogProba | None = field(default=None, repr=False)
    quantile: float = 0.5
    aggregation: Literal["mean", "min"] = "mean"
    training: OneCycle = field(default_factory=OneCycle, repr=False)
    random_state: int = 0

    flows_: list[Member] = field(init=False, default_factory=list, repr=False)
    thresholds_: Tensor = field(init=False, default_factory=lambda: torch.zeros(0, 0), repr=False)
    errors_: Tensor = field(init=False, default_factory=lambda: torch.zeros(0, 0), repr=False)
    margin_: Tensor = field(init=False, default_factory=lambda: torch.zeros(0), repr=False)
    max_margin_: Tensor = field(init=False, default_factory=lambda: torch.zeros(0), repr=False)
    held_out_: Tensor = field(init=False, default_factory=lambda: torch.zeros(0, 0), repr=False)
    rule_: BayesRule | None = field(init=False, default=None, repr=False)
    _stacked: Frozen[nn.Module] | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        problems = []
        if self.members < 2:
            problems.append(f"`members` must be at least 2; got {self.members}")
        if not 0 <= self.quantile <= 1:
            problems.append(f"`quantile` must be between 0 and 1; got {self.quantile}")
        if self.aggregation not in ("mean", "min"):
            problems.append(f"`aggregation` must be 'mean' or 'min'; got {self.aggregation!r}")
        if problems:
            raise InvalidInputError("; ".join(problems) + ".")

    def fit(self, x: Tensor, y: Tensor, *, n_classes: int | None = None) -> Self:
        """Train each member without its part of the rows, and compute its thresholds there; margins are zero.

        With an ``outcome``, the classes only serve to split the rows evenly.
        """
        check_rows(x, y, n_classes=n_classes)
        flows, used = self.untrained(y)
        count = 1 if self.outcome is not None else n_classes or int(y.max()) + 1
        train_members(flows, x, self.member_classes(y), used, count, self.training)
        return self.adopt_members(flows, x, y, count)

    def untrained(self, y: Tensor) -> tuple[list[Member], Tensor]:
        """Return members that are not trained, and their training rows as a mask of shape ``(M, n)``."""
        part = split_by_class(y, self.members, self.random_state)
        return self._untrained(), part != torch.arange(self.members, device=part.device)[:, None]

    def adopt_members(self, flows: list[Member], x: Tensor, y: Tensor, n_classes: int) -> Self:
        """Use trained members, and compute their thresholds; the rows are those of the fit."""
        self._adopt(flows)
        self.thresholds_ = torch.zeros(self.members, n_classes)
        if self.rule_ is not None:
            self.rule_.fit(x.double())
        return self.set_quantile(self.quantile, x, y)

    def set_quantile(self, quantile: float, x: Tensor, y: Tensor) -> Self:
        """Compute the thresholds of a quantile, and set the margin to zero; the rows are those of the fit."""
        self.quantile = quantile
        rows, classes, weights = self._weighted_rows(x.double(), y)
        part = split_by_class(y, self.members, self.random_state).repeat(len(rows) // len(x))
        with torch.no_grad():
            log_probs = self.member_log_probs(rows, classes)
        self.thresholds_, self.errors_ = held_out_thresholds(
            log_probs, classes, weights, part, self.n_classes, self.quantile
        )
        log_prob = log_probs[part, torch.arange(len(part), device=part.device)]
        scores = log_prob - self.thresholds_.to(log_prob)[part, classes]
        if self.context is not None:
            self.context = replace(self.context, quantile=self.quantile)
            self.context.fit(rows, classes, scores, weights, n_classes=self.n_classes)
        scores = scores - self.context_threshold(rows, classes)
        self.held_out_ = class_percentiles(scores, classes, weights, self.n_classes)
        return self.set_aggregation(self.aggregation, x, y)

    @torch.no_grad()
    def set_aggregation(self, aggregation: Literal["mean", "min"], x: Tensor, y: Tensor) -> Self:
        """Set how members are aggregated, and the margin to zero; ``x`` and ``y`` are the rows of the fit."""
        self.aggregation = aggregation
        x, y, weights = self._weighted_rows(x.double(), y)
        score = self.lowest_left_out_score(x, y)
        self.margin_ = torch.zeros(self.n_classes, dtype=torch.float64)
        self.max_margin_ = torch.zeros_like(self.margin_)
        for k in y.unique().tolist():  # A tenth of the rows of a class reach its largest margin.
            self.max_margin_[k] = weighted_quantile(score[y == k], weights[y == k], 0.9).clamp_min(0)
        return self

    def _weighted_rows(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return rows, classes and weights; with an ``outcome``, each row once per class, by probability."""
        if self.rule_ is None:
            return x, y, x.new_ones(len(x))
        weights = self.rule_.weights(x).T
        classes = torch.arange(len(weights), device=y.device).repeat_interleave(len(y))
        return x.repeat(len(weights), 1), classes, weights.flatten()

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return self.thresholds_.shape[1] if self.rule_ is None else self.rule_.n_classes

    def member_classes(self, y: Tensor) -> Tensor:
        """Return the classes for the members, which have a single one if there is an ``outcome``."""
        return y if self.outcome is None else torch.zeros_like(y)

    def member_log_probs(self, x: Tensor, y: Tensor) -> Tensor:
        """Return each member's log-density, shape ``(M, n)``, in one batched call; keeps the graph."""
        self.stacked(x)
        check_query(x, y, getattr(self.flows_[0], "n_features_", x.shape[-1]), self.n_classes)
        return self.unchecked_log_probs(x, y)

    def unchecked_log_probs(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the same without checks."""
        if len(x) == 0:
            return x.sum(dim=1).expand(self.members, 0)
        log_probs: Tensor = self.stacked(x)(x, self.member_classes(y))
        return log_probs if self.rule_ is None else log_probs + self.rule_(x, y)

    def member_scores(self, x: Tensor, y: Tensor) -> Tensor:
        """Return each member's log-density minus its threshold, shape ``(M, n)``."""
        return plausibility_value(self.member_log_probs(x, y), self.thresholds_.to(x)[:, y])

    def log_prob(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the log of the members' mean density, shape ``(n,)``."""
        return torch.logsumexp(self.member_log_probs(x, y), dim=0) - math.log(self.members)

    def score(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the aggregated scores minus margin and context threshold, shape ``(n,)``."""
        scores = self.aggregate(self.member_scores(x, y))
        return plausibility_value(scores, self.margin_.to(x)[y] + self.context_threshold(x, y))

    def for_rows(
        self,
        x: Tensor,
        y_target: Tensor,
        *,
        with_margin: bool = True,
        margin: Tensor | None = None,
        left_out: Tensor | None = None,
    ) -> EnsembleRowScores:
        """Prepare for factual rows ``(n, d)`` and their target classes ``(n,)``.

        ``margin``, shape ``(k,)``, replaces the calibrated margins of the classes. ``left_out``, shape
        ``(n,)``, is a member for each row that its scores do without.
        """
        if len(y_target) and not 0 <= int(y_target.min()) <= int(y_target.max()) < self.n_classes:
            check_classes(y_target, self.n_classes)
        margin = self.margin_ if margin is None else margin
        margin = margin if with_margin else torch.zeros_like(margin)
        return EnsembleRowScores(self, x, y_target, margin.to(x)[y_target], left_out)

    def context_threshold(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the part of the threshold that depends on immutable features, shape ``(n,)``."""
        return x.new_zeros(len(x)) if self.context is None else self.context(x, y)

    def aggregate(self, scores: Tensor, left_out: Tensor | None = None) -> Tensor:
        """Return mean or minimum over members, ``(M, n) -> (n,)``, without each row's ``left_out`` member."""
        if left_out is None:
            return scores.mean(dim=0) if self.aggregation == "mean" else scores.amin(dim=0)
        out = torch.arange(self.members, device=scores.device)[:, None] == left_out
        if self.aggregation == "min":
            return scores.masked_fill(out, math.inf).amin(dim=0)
        return scores.masked_fill(out, 0.0).sum(dim=0) / (self.members - 1)

    def aggregation_gradient(self, scores: Tensor, left_out: Tensor | None = None) -> Tensor:
        """Return the gradient of :meth:`aggregate` with respect to the scores, shape ``(M, n)``."""
        if left_out is None and self.aggregation == "mean":
            return torch.full_like(scores, 1 / self.members)
        members = torch.arange(self.members, device=scores.device)[:, None]
        out = torch.zeros_like(scores, dtype=torch.bool) if left_out is None else members == left_out
        if self.aggregation == "min":
            return (members == scores.masked_fill(out, math.inf).argmin(dim=0)).to(scores)
        return (~out).to(scores) / (self.members - 1)

    def lowest_left_out_score(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the lowest score without the margin if any one member is left out, shape ``(n,)``."""
        scores = self.member_scores(x, y)
        members = torch.arange(self.members, device=x.device)
        least = torch.stack([self.aggregate(scores, m.expand(len(x))) for m in members]).amin(dim=0)
        return least - self.context_threshold(x, y)

    def state(self) -> dict[str, Tensor]:
        """Return everything learned, as tensors."""
        if self._stacked is None:
            raise NotFittedError(
                "This ensemble has not been fitted: there is no state to save. Call `fit(x, y)` first."
            )
        names = ("thresholds", "errors", "margin", "max_margin")
        state = {name: getattr(self, f"{name}_").clone() for name in names}
        if self.held_out_.numel():
            state["held_out"] = self.held_out_.clone()
        for name, part in (("context", self.context), ("rule", self.rule_)):
            if part is not None:
                state[name] = part.state()
        return state | {f"{m}.{k}": v for m, flow in enumerate(self.flows_) for k, v in flow.state().items()}

    def load_state(self, state: dict[str, Tensor]) -> Self:
        """Restore what :meth:`state` returned, in an ensemble with the same settings."""
        present = {k.split(".", 1)[0] for k in state if "." in k}
        if present != {str(m) for m in range(self.members)}:
            raise InvalidInputError(
                f"`state` holds {len(present)} members and this ensemble has {self.members}. Load it into an "
                "ensemble with the settings of the one that was saved."
            )
        if ("rule" in state) != (self.outcome is not None):
            raise InvalidInputError(
                "`state` does not fit: one of both has an `outcome`, the other has none. Load it into an "
                "ensemble with the settings of the one that was saved."
            )
        flows = self._untrained()
        for m, flow in enumerate(flows):
            flow.load_state({k.removeprefix(f"{m}."): v for k, v in state.items() if k.startswith(f"{m}.")})
        self._adopt(flows)
        if self.rule_ is not None:
            self.rule_.load_state(state["rule"])
        self.thresholds_, self.errors_ = state["thresholds"].clone(), state["errors"].clone()
        self.margin_, self.max_margin_ = state["margin"].clone(), state["max_margin"].clone()
        self.held_out_ = state.get("held_out", torch.zeros(0, 0)).clone()
        if self.context is not None:
            self.context = self.context.load_state(state["context"])
        return self

    def stacked(self, like: Tensor) -> nn.Module:
        """Return all members as one module, in the dtype and on the device of ``like``."""
        if self._stacked is None:
            raise NotFittedError(
                "This ensemble has not been fitted. Call `fit(x, y)` first, or `load_state(state)`."
            )
        copy = self._stacked.copies.get((like.dtype, like.device))
        return self._stacked(like) if copy is None else copy

    def _untrained(self) -> list[Member]:
        return [copy_with_seed(self.base, self.random_state * 1000 + m) for m in range(self.members)]

    def _adopt(self, flows: list[Member]) -> None:
        self.flows_ = flows
        self._stacked = Frozen(stack(flows))
        if self.outcome is not None:
            self.rule_ = BayesRule(outcome=self.outcome, given=getattr(flows[0], "given", ()))


class EnsembleRowScores(PlainRowScores):
    """Scores of candidates for some rows under an ensemble; see :meth:`CrossFitEnsemble.for_rows`."""

    def __init__(
        self, ensemble: CrossFitEnsemble, x: Tensor, y_target: Tensor, margin: Tensor, left_out: Tensor | None
    ) -> None:
        super().__init__(ensemble, x, y_target)
        self.ensemble, self.margin, self.left_out = ensemble, margin, left_out
        self.threshold = margin + ensemble.context_threshold(x, y_target)

    def at(self, rows: Tensor) -> Self:
        """Select rows, shape ``(k,)``; a row may occur more than once."""
        other = super().at(rows)
        other.left_out = None if self.left_out is None else self.left_out[rows]
        return other

    def to(self, device: torch.device) -> Self:
        """Move to a device."""
        other = super().to(device)
        other.left_out = None if self.left_out is None else self.left_out.to(device)
        return other

    def score(self, x_cf: Tensor, rows: Tensor) -> Tensor:
        """Return the scores ``(m,)`` of candidates ``(m, d)`` for the rows ``(m,)``; keeps the graph."""
        return plausibility_value(self._excess(x_cf, rows), self.threshold[rows].to(x_cf))

    def may_be_plausible(self, x_cf: Tensor, rows: Tensor) -> Tensor:
        """Return a mask ``(m,)``, false only for candidates ``(m, d)`` whose score is negative.

        Single precision costs half as much; what it leaves open is for :meth:`score` to decide.
        """
        if self.ensemble.rule_ is not None:
            return torch.ones(len(x_cf), dtype=torch.bool, device=x_cf.device)
        return ~(self.score(x_cf.float(), rows) < -IMPRECISION)

    def of_columns(self, moving: MovingColumns, rows: Tensor) -> tuple[RowFunction, RowValueAndGrad | None]:
        """Return the score before its threshold as a function of the moving columns.

        If only the numbers of a mixed density move, the part of the categories is computed once.
        """
        ensemble, stacked = self.ensemble, self.ensemble.stacked(moving.template)
        flow = stacked if isinstance(stacked, StackedMAF) else getattr(stacked, "flow", None)
        columns = list(range(moving.template.shape[1])) if moving.columns is None else moving.columns.tolist()
        if not isinstance(flow, StackedMAF) or flow.modelled != columns:
            return lambda z, which: self._excess(moving.encoded(z, which), rows[which]), None
        y, rule = self.y_target[rows], ensemble.rule_
        classes = ensemble.member_classes(y)
        left_out = None if self.left_out is None else self.left_out[rows]
        constant = -ensemble.thresholds_.to(moving.template)[:, y]
        if isinstance(stacked, StackedMixed) and stacked.levels is not None:
            constant = constant + stacked.levels(moving.template, classes)
        given = flow.conditions(moving.template, classes) if flow.given else None

        @once_for_the_same_rows
        def prepared(which: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
            if given is None:
                conditions = flow.conditions(moving.template, classes[which])
            else:
                conditions = given.index_select(2, which)
            return conditions, constant[:, which], None if left_out is None else left_out[which]

        def excess(z: Tensor, which: Tensor) -> Tensor:
            if z.dtype != moving.template.dtype:  # a solver of its own precision, such as the paper's
                return self._excess(moving.encoded(z, which), rows[which])
            conditions, offset, out = prepared(which)
            scores = flow.log_prob(z, conditions) + offset
            if rule is not None:
                scores = scores + rule(moving.encoded(z, which), y[which])
            return ensemble.aggregate(scores, out)

        def excess_and_grad(z: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
            conditions, offset, out = prepared(which)
            log_probs, latent, passes = flow.forward_pass(z, conditions)
            scores = log_probs.add_(offset)
            gradient = flow.pullback(ensemble.aggregation_gradient(scores, out), latent, passes)
            return ensemble.aggregate(scores, out), gradient

        return excess, excess_and_grad if rule is None else None

    def _excess(self, x_cf: Tensor, rows: Tensor) -> Tensor:
        """Aggregate the members' log-densities minus their thresholds, shape ``(m,)``."""
        y = self.y_target[rows]
        scores = self.ensemble.unchecked_log_probs(x_cf, y) - self.ensemble.thresholds_.to(x_cf)[:, y]
        return self.ensemble.aggregate(scores, None if self.left_out is None else self.left_out[rows])


def split_by_class(y: Tensor, parts: int, random_state: int) -> Tensor:
    """Return a random part for every row, shape ``(n,)``, with each class spread evenly over the parts."""
    generator = torch.Generator().manual_seed(random_state)
    part = torch.empty(len(y), dtype=torch.long)
    offset = 0
    for k in y.unique().tolist():
        rows = (y == k).nonzero()[:, 0].cpu()
        shuffled = rows[torch.randperm(len(rows), generator=generator)]
        part[shuffled] = (torch.arange(len(rows)) + offset) % parts
        offset += len(rows)
    return part.to(y.device)
