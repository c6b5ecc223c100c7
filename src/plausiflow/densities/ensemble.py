r"""A density that survives a second opinion: several flows, each held to rows it has not seen.

A search that stops on the boundary of one flow is often outside of it for another one trained on the same
data. The ensemble asks several: each member m is trained without one part of the rows and has its threshold
:math:`\tau_m(y)` on that part, where overfitting cannot inflate it. A row's score is

.. math:: \operatorname{mean}_m \bigl( \log p_m(x | y) - \tau_m(y) \bigr) - \text{margin}(y)

The margin is what :mod:`plausiflow.densities.calibration` raises until a flow that guided nothing agrees. In a
table with features that cannot change, a threshold for what the row is given comes on top
(:mod:`plausiflow.densities.context`). Where labels are scarce, the members learn the density of all rows and
a classifier tells the classes apart (:mod:`plausiflow.densities.bayes`).
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
from plausiflow.densities.row_scores import PlainRowScores
from plausiflow.densities.stacked import StackedMAF
from plausiflow.densities.thresholds import held_out_thresholds, spread_of, weighted_quantile
from plausiflow.errors import InvalidInputError, NotFittedError


@dataclass(kw_only=True, eq=False)
class CrossFitEnsemble:
    """M conditional flows on different splits of the data; both a density and a plausibility.

    Attributes:
        members: How many flows; each is trained without one of as many parts of the rows.
        base: The flow or mixed density that each member is like.
        context: The part of the thresholds that depends on what a row is given; learned on held-out rows.
        outcome: A classifier's log-probabilities: the class-conditional density then comes from the density
            of all rows by Bayes' rule, and rows count as much as they are probable, not by label.
        quantile: Which quantile of the held-out log-densities of a class is its threshold.
        aggregation: ``mean`` or ``min`` over members.
        workers: Processes that train members; by default one for each core where the data is large enough to
            gain from it.
        seed: Of splits and members.
        held_out_: Percentiles of the scores of each class's rows, without the margin, each under the member
            that has not seen it, shape ``(k, 101)``; what a counterfactual's score can be compared with.
    """

    members: int = 5
    base: Member = field(default_factory=ConditionalFlow)
    context: ContextThreshold | None = None
    outcome: ClassLogProba | None = field(default=None, repr=False)
    quantile: float = 0.5
    aggregation: Literal["mean", "min"] = "mean"
    workers: int | None = None
    seed: int = 0

    flows_: list[Member] = field(init=False, default_factory=list, repr=False)
    thresholds_: Tensor = field(init=False, default_factory=lambda: torch.zeros(0, 0), repr=False)
    errors_: Tensor = field(init=False, default_factory=lambda: torch.zeros(0, 0), repr=False)
    margin_: Tensor = field(init=False, default_factory=lambda: torch.zeros(0), repr=False)
    most_margin_: Tensor = field(init=False, default_factory=lambda: torch.zeros(0), repr=False)
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
        """Train every member without its part of the rows, and take its thresholds there; no margin yet.

        With an ``outcome``, the classes only spread rows evenly over the parts.
        """
        check_rows(x, y, n_classes=n_classes)
        part = split_by_class(y, self.members, self.seed)
        flows, count = self._untrained(), 1 if self.outcome is not None else n_classes or int(y.max()) + 1
        kept = part != torch.arange(self.members, device=part.device)[:, None]
        train_members(flows, x, self.known(y), kept, count, self.workers)
        self._adopt(flows)
        self.thresholds_ = torch.zeros(self.members, count)
        if self.rule_ is not None:
            self.rule_.fit(x.double())
        rows, classes, weights = self._weighed(x.double(), y)
        part = part.repeat(len(rows) // len(x))
        with torch.no_grad():
            own = self.member_log_probs(rows, classes)[part, torch.arange(len(part), device=part.device)]
        parts = [part == m for m in range(self.members)]
        self.thresholds_, self.errors_ = held_out_thresholds(
            own, classes, weights, parts, self.n_classes, self.quantile
        )
        scores = own - self.thresholds_.to(own)[part, classes]
        if self.context is not None:
            self.context = replace(self.context, quantile=self.quantile)
            self.context.fit(rows, classes, scores, weights, n_classes=self.n_classes)
        self.held_out_ = spread_of(
            scores - self.context_threshold(rows, classes), classes, weights, self.n_classes
        )
        return self.aggregating(self.aggregation, x, y)

    @torch.no_grad()
    def aggregating(self, aggregation: Literal["mean", "min"], x: Tensor, y: Tensor) -> Self:
        """Aggregate so from now on, without a margin; ``x`` and ``y`` are the rows of the fit."""
        self.aggregation = aggregation
        x, y, weights = self._weighed(x.double(), y)
        score = self.least_left_out(x, y)
        most = [_reached(score[y == k], weights[y == k]) for k in range(self.n_classes)]
        self.margin_, self.most_margin_ = torch.zeros(len(most), dtype=torch.float64), torch.stack(most).cpu()
        return self

    def _weighed(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rows, their classes and how much they count: as labelled, or as one of each class in turn."""
        if self.rule_ is None:
            return x, y, x.new_ones(len(x))
        weights = self.rule_.weights(x).T
        classes = torch.arange(len(weights), device=y.device).repeat_interleave(len(y))
        return x.repeat(len(weights), 1), classes, weights.flatten()

    @property
    def n_classes(self) -> int:
        """How many classes there are."""
        return self.thresholds_.shape[1] if self.rule_ is None else self.rule_.n_classes

    def known(self, y: Tensor) -> Tensor:
        """The classes as members know them: all are one where a classifier tells them apart."""
        return y if self.outcome is None else torch.zeros_like(y)

    def member_log_probs(self, x: Tensor, y: Tensor) -> Tensor:
        """Each member's log-density, shape ``(M, n)``, in one batched call; keeps the graph."""
        self.stacked(x)
        check_query(x, y, getattr(self.flows_[0], "n_features_", x.shape[-1]), self.n_classes)
        return self.unchecked_log_probs(x, y)

    def unchecked_log_probs(self, x: Tensor, y: Tensor) -> Tensor:
        """Return :meth:`member_log_probs` of rows and classes that were checked before."""
        if len(x) == 0:
            return x.sum(dim=1).expand(self.members, 0)
        log_probs: Tensor = self.stacked(x)(x, self.known(y))
        return log_probs if self.rule_ is None else log_probs + self.rule_(x, y)

    def member_scores(self, x: Tensor, y: Tensor) -> Tensor:
        """Each member's log-density minus its own threshold, shape ``(M, n)``."""
        return plausibility_value(self.member_log_probs(x, y), self.thresholds_.to(x)[:, y])

    def log_prob(self, x: Tensor, y: Tensor) -> Tensor:
        """Log of the members' mean density, shape ``(n,)``: a density itself."""
        return torch.logsumexp(self.member_log_probs(x, y), dim=0) - math.log(self.members)

    def score(self, x: Tensor, y: Tensor) -> Tensor:
        """The members' scores aggregated, minus the margin of the class, shape ``(n,)``."""
        scores = self.aggregated(self.member_scores(x, y))
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

        Args:
            x: Factual rows.
            y_target: Target classes.
            with_margin: Whether scores are reduced by the margin of the class.
            margin: Margins of the classes instead of the calibrated ones, shape ``(k,)``.
            left_out: The member that is left out for each row, shape ``(n,)``; it can judge afterwards.
        """
        if len(y_target) and not 0 <= int(y_target.min()) <= int(y_target.max()) < self.n_classes:
            check_classes(y_target, self.n_classes)
        margin = self.margin_ if margin is None else margin
        margin = margin if with_margin else torch.zeros_like(margin)
        return EnsembleRowScores(self, x, y_target, margin.to(x)[y_target], left_out)

    def context_threshold(self, x: Tensor, y: Tensor) -> Tensor:
        """The part of the threshold that depends on what a row is given, shape ``(n,)``."""
        return x.new_zeros(len(x)) if self.context is None else self.context(x, y)

    def aggregated(self, scores: Tensor, left_out: Tensor | None = None) -> Tensor:
        """Mean or minimum over members ``(M, n) -> (n,)``, for a row without the one ``left_out`` names."""
        if left_out is None:
            return scores.mean(dim=0) if self.aggregation == "mean" else scores.amin(dim=0)
        out = torch.arange(self.members, device=scores.device)[:, None] == left_out
        if self.aggregation == "min":
            return scores.masked_fill(out, math.inf).amin(dim=0)
        return scores.masked_fill(out, 0.0).sum(dim=0) / (self.members - 1)

    def shares(self, scores: Tensor, left_out: Tensor | None = None) -> Tensor:
        """How much each member counts in what is aggregated: its gradient, shape ``(M, n)``."""
        members = torch.arange(self.members, device=scores.device)[:, None]
        out = torch.zeros_like(scores, dtype=torch.bool) if left_out is None else members == left_out
        if self.aggregation == "min":
            return (members == scores.masked_fill(out, math.inf).argmin(dim=0)).to(scores)
        return (~out).to(scores) / (self.members if left_out is None else self.members - 1)

    def least_left_out(self, x: Tensor, y: Tensor) -> Tensor:
        """The lowest score without the margin that leaving out any one member gives, shape ``(n,)``."""
        scores = self.member_scores(x, y)
        members = torch.arange(self.members, device=x.device)
        least = torch.stack([self.aggregated(scores, m.expand(len(x))) for m in members]).amin(dim=0)
        return least - self.context_threshold(x, y)

    def state(self) -> dict[str, Tensor]:
        """Everything learned, as tensors; :meth:`load_state` takes it back."""
        if self._stacked is None:
            raise NotFittedError(
                "This ensemble has not been fitted: there is no state to save. Call `fit(x, y)` first."
            )
        names = ("thresholds", "errors", "margin", "most_margin")
        own = {name: getattr(self, f"{name}_").clone() for name in names}
        if self.held_out_.numel():
            own["held_out"] = self.held_out_.clone()
        for name, part in (("context", self.context), ("rule", self.rule_)):
            if part is not None:
                own[name] = part.state()
        return own | {f"{m}.{k}": v for m, flow in enumerate(self.flows_) for k, v in flow.state().items()}

    def load_state(self, state: dict[str, Tensor]) -> Self:
        """Take back what :meth:`state` gave, into an ensemble with the same settings."""
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
        self.margin_, self.most_margin_ = state["margin"].clone(), state["most_margin"].clone()
        self.held_out_ = state.get("held_out", torch.zeros(0, 0)).clone()
        if self.context is not None:
            self.context = self.context.load_state(state["context"])
        return self

    def stacked(self, like: Tensor) -> nn.Module:
        """All members as one module, in the dtype and on the device of ``like``."""
        if self._stacked is None:
            raise NotFittedError(
                "This ensemble has not been fitted. Call `fit(x, y)` first, or `load_state(state)`."
            )
        known = self._stacked.copies.get((like.dtype, like.device))
        return self._stacked(like) if known is None else known

    def _untrained(self) -> list[Member]:
        return [copy_with_seed(self.base, self.seed * 1000 + m) for m in range(self.members)]

    def _adopt(self, flows: list[Member]) -> None:
        self.flows_ = flows
        self._stacked = Frozen(stack(flows))
        if self.outcome is not None:
            self.rule_ = BayesRule(outcome=self.outcome, given=getattr(flows[0], "given", ()))


class EnsembleRowScores(PlainRowScores):
    """Scores of candidates for some rows under an ensemble; see :meth:`CrossFitEnsemble.for_rows`."""

    def __init__(
        self,
        ensemble: CrossFitEnsemble,
        x: Tensor,
        y_target: Tensor,
        margin: Tensor,
        left_out: Tensor | None,
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
        """Return the scores of candidates ``(m, d)`` for the rows ``(m,)``, shape ``(m,)``; keeps the graph."""
        return plausibility_value(self._excess(x_cf, rows), self.threshold[rows].to(x_cf))

    def of_columns(self, moving: MovingColumns, rows: Tensor) -> tuple[RowFunction, RowValueAndGrad | None]:
        """Return the score before its threshold as a function of the moving columns.

        If only the numbers of a mixed density move, the part of the categories is computed once.
        """
        ensemble, stacked = self.ensemble, self.ensemble.stacked(moving.template)
        flow = stacked if isinstance(stacked, StackedMAF) else getattr(stacked, "flow", None)
        columns = list(range(moving.template.shape[1])) if moving.columns is None else moving.columns.tolist()
        if not isinstance(flow, StackedMAF) or flow.modelled != columns:
            return lambda z, which: self._excess(moving.encoded(z, which), rows[which]), None
        y, known, rule = self.y_target[rows], ensemble.known(self.y_target[rows]), ensemble.rule_
        left_out = None if self.left_out is None else self.left_out[rows]
        constant = -ensemble.thresholds_.to(moving.template)[:, y]
        if isinstance(stacked, StackedMixed) and stacked.levels is not None:
            constant = constant + stacked.levels(moving.template, known)
        given = flow.conditions(moving.template, known) if flow.given else None

        def prepared(which: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
            conditions = (
                flow.conditions(moving.template, known[which]) if given is None else given[:, :, which]
            )
            return conditions, constant[:, which], None if left_out is None else left_out[which]

        def excess(z: Tensor, which: Tensor) -> Tensor:
            conditions, own, out = prepared(which)
            scores = flow.log_prob(z, conditions) + own
            if rule is not None:
                scores = scores + rule(moving.encoded(z, which), y[which])
            return ensemble.aggregated(scores, out)

        def excess_and_grad(z: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
            conditions, own, out = prepared(which)
            log_probs, gradient = flow.value_and_grad(
                z, conditions, lambda found: ensemble.shares(found + own, out)
            )
            return ensemble.aggregated(log_probs + own, out), gradient

        return excess, excess_and_grad if rule is None else None

    def _excess(self, x_cf: Tensor, rows: Tensor) -> Tensor:
        """Aggregate the members' log-densities minus their thresholds, shape ``(m,)``."""
        y = self.y_target[rows]
        scores = self.ensemble.unchecked_log_probs(x_cf, y) - self.ensemble.thresholds_.to(x_cf)[:, y]
        return self.ensemble.aggregated(scores, None if self.left_out is None else self.left_out[rows])


def split_by_class(y: Tensor, parts: int, seed: int) -> Tensor:
    """A part for every row, at random, each class spread evenly over the parts, shape ``(n,)``."""
    generator = torch.Generator().manual_seed(seed)
    part = torch.empty(len(y), dtype=torch.long)
    offset = 0
    for k in y.unique().tolist():
        rows = (y == k).nonzero()[:, 0].cpu()
        shuffled = rows[torch.randperm(len(rows), generator=generator)]
        part[shuffled] = (torch.arange(len(rows)) + offset) % parts
        offset += len(rows)
    return part.to(y.device)


def _reached(scores: Tensor, weights: Tensor) -> Tensor:
    """What a tenth of the rows still reach; nothing for a class without rows."""
    return weighted_quantile(scores, weights, 0.9).clamp_min(0) if len(scores) else scores.new_zeros(())
