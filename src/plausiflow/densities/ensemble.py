r"""A density that survives a second opinion: several flows, each held to rows it has not seen.

A search that stops on the boundary of one flow is often outside of it for another one trained on the same
data. The ensemble asks several: each member m is trained without one part of the rows and has its threshold
:math:`\tau_m(y)` on that part, where overfitting cannot inflate it. A row's score is

.. math:: \operatorname{mean}_m \bigl( \log p_m(x | y) - \tau_m(y) \bigr) - \text{margin}(y)

The margin is what :mod:`plausiflow.search.calibration` raises until a flow that guided nothing agrees. In a
table with features that cannot change, a threshold for what the row is given comes on top
(:mod:`plausiflow.densities.context`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal, Self

import torch
from torch import Tensor, nn

from plausiflow.densities.context import ContextThreshold
from plausiflow.densities.flows import ConditionalFlow
from plausiflow.densities.members import Member, stack, train_members
from plausiflow.densities.thresholds import quantile_of
from plausiflow.errors import InvalidInputError, NotFittedError
from plausiflow.frozen import Frozen
from plausiflow.training import check_query, check_rows

FEW_ROWS = 20


@dataclass(kw_only=True, eq=False)
class CrossFitEnsemble:
    """M conditional flows on different splits of the data; both a density and a plausibility.

    Attributes:
        members: How many flows; each is trained without one of as many parts of the rows.
        base: The flow or mixed density that each member is like; several are taken in turn.
        context: The part of the thresholds that depends on what a row is given; learned on held-out rows.
        quantile: Which quantile of the held-out log-densities of a class is its threshold.
        aggregation: ``mean`` or ``min`` over members.
        workers: Processes that train members; by default one for each core where the data is large enough to
            gain from it.
        seed: Of splits and members.
    """

    members: int = 5
    base: Member | tuple[Member, ...] = field(default_factory=ConditionalFlow)
    context: ContextThreshold | None = None
    quantile: float = 0.5
    aggregation: Literal["mean", "min"] = "mean"
    workers: int | None = None
    seed: int = 0

    flows_: list[Member] = field(init=False, default_factory=list, repr=False)
    thresholds_: Tensor = field(init=False, default_factory=lambda: torch.zeros(0, 0), repr=False)
    errors_: Tensor = field(init=False, default_factory=lambda: torch.zeros(0, 0), repr=False)
    margin_: Tensor = field(init=False, default_factory=lambda: torch.zeros(0), repr=False)
    most_margin_: Tensor = field(init=False, default_factory=lambda: torch.zeros(0), repr=False)
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

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Train every member without its part of the rows, and take its thresholds there; no margin yet."""
        check_rows(x, y)
        n_classes = int(y.max()) + 1
        part = split_by_class(y, self.members, self.seed)
        flows = self._untrained()
        kept = part != torch.arange(self.members, device=part.device)[:, None]
        train_members(flows, x, y, kept, n_classes, self.workers)
        self._adopt(flows)
        with torch.no_grad():
            own = self.member_log_probs(x.double(), y)[part, torch.arange(len(y), device=y.device)]
        self.thresholds_, self.errors_ = self._thresholds(own, y, part, n_classes)
        if self.context is not None:
            thresholds = self.thresholds_.to(own)[part, y]
            self.context = replace(self.context, quantile=self.quantile).fit(x.double(), y, own - thresholds)
        return self.aggregating(self.aggregation, x, y)

    @torch.no_grad()
    def aggregating(self, aggregation: Literal["mean", "min"], x: Tensor, y: Tensor) -> Self:
        """Aggregate so from now on, without a margin; ``x`` and ``y`` are the rows of the fit."""
        self.aggregation = aggregation
        self.margin_ = torch.zeros(self.thresholds_.shape[1], dtype=torch.float64)
        score = self.least_left_out(x.double(), y)
        classes = range(len(self.margin_))
        self.most_margin_ = torch.stack([_reached(score[y == k], 0.9) for k in classes]).cpu()
        return self

    def _thresholds(self, own: Tensor, y: Tensor, part: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
        """Each member's threshold for each class and its standard error, shape ``(M, k)`` each."""
        thresholds, errors = own.new_zeros(2, self.members, n_classes)
        for k in range(n_classes):
            of_class = own[y == k] if bool((y == k).any()) else own
            for m in range(self.members):
                held_out = own[(y == k) & (part == m)]
                rows = held_out if len(held_out) >= FEW_ROWS else of_class
                thresholds[m, k] = quantile_of(rows, self.quantile)
                # A quantile's standard error in ranks is sqrt(n q (1 - q)).
                spread = math.sqrt(self.quantile * (1 - self.quantile) / len(rows))
                ends = (max(0.0, self.quantile - spread), min(1.0, self.quantile + spread))
                errors[m, k] = (quantile_of(rows, ends[1]) - quantile_of(rows, ends[0])) / 2
        return thresholds.cpu(), errors.cpu()

    def member_log_probs(self, x: Tensor, y: Tensor) -> Tensor:
        """Each member's log-density, shape ``(M, n)``, in one batched call; keeps the graph."""
        stacked = self.stacked(x)
        check_query(x, y, self.flows_[0].n_features_, self.flows_[0].n_classes_)
        if len(x) == 0:
            return x.sum(dim=1).expand(self.members, 0)
        log_probs: Tensor = stacked(x, y)
        return log_probs

    def member_scores(self, x: Tensor, y: Tensor) -> Tensor:
        """Each member's log-density minus its own threshold, shape ``(M, n)``."""
        return self.member_log_probs(x, y) - self.thresholds_.to(x)[:, y]

    def log_prob(self, x: Tensor, y: Tensor) -> Tensor:
        """Log of the members' mean density, shape ``(n,)``: a density itself."""
        return torch.logsumexp(self.member_log_probs(x, y), dim=0) - math.log(self.members)

    def score(self, x: Tensor, y: Tensor) -> Tensor:
        """The members' scores aggregated, minus the margin of the class, shape ``(n,)``."""
        return self.aggregated(self.member_scores(x, y)) - self.bar(x, y)

    def bar(self, x: Tensor, y: Tensor) -> Tensor:
        """What aggregated scores are held against: margin, and threshold for what x is given, ``(n,)``."""
        return self.margin_.to(x)[y] + self.given_bar(x, y)

    def given_bar(self, x: Tensor, y: Tensor) -> Tensor:
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

    def least_left_out(self, x: Tensor, y: Tensor) -> Tensor:
        """The lowest score without the margin that leaving out any one member gives, shape ``(n,)``."""
        scores = self.member_scores(x, y)
        members = torch.arange(self.members, device=x.device)
        least = torch.stack([self.aggregated(scores, m.expand(len(x))) for m in members]).amin(dim=0)
        return least - self.given_bar(x, y)

    def state(self) -> dict[str, Tensor]:
        """Everything learned, as tensors; :meth:`load_state` takes it back."""
        if self._stacked is None:
            raise NotFittedError(
                "This ensemble has not been fitted: there is no state to save. Call `fit(x, y)` first."
            )
        names = ("thresholds", "errors", "margin", "most_margin")
        own = {name: getattr(self, f"{name}_").clone() for name in names}
        if self.context is not None:
            own["context"] = self.context.state()
        return own | {f"{m}.{k}": v for m, flow in enumerate(self.flows_) for k, v in flow.state().items()}

    def load_state(self, state: dict[str, Tensor]) -> Self:
        """Take back what :meth:`state` gave, into an ensemble with the same settings."""
        present = {k.split(".", 1)[0] for k in state if "." in k}
        if present != {str(m) for m in range(self.members)}:
            raise InvalidInputError(
                f"`state` holds {len(present)} members and this ensemble has {self.members}. Load it into an "
                "ensemble with the settings of the one that was saved."
            )
        flows = self._untrained()
        for m, flow in enumerate(flows):
            flow.load_state({k.removeprefix(f"{m}."): v for k, v in state.items() if k.startswith(f"{m}.")})
        self._adopt(flows)
        self.thresholds_, self.errors_ = state["thresholds"].clone(), state["errors"].clone()
        self.margin_, self.most_margin_ = state["margin"].clone(), state["most_margin"].clone()
        if self.context is not None:
            self.context = self.context.load_state(state["context"])
        return self

    def stacked(self, like: Tensor) -> nn.Module:
        """All members as one module, in the dtype and on the device of ``like``."""
        if self._stacked is None:
            raise NotFittedError(
                "This ensemble has not been fitted. Call `fit(x, y)` first, or `load_state(state)`."
            )
        return self._stacked(like)

    def _untrained(self) -> list[Member]:
        bases = self.base if isinstance(self.base, tuple) else (self.base,)
        return [replace(bases[m % len(bases)], seed=self.seed * 1000 + m) for m in range(self.members)]

    def _adopt(self, flows: list[Member]) -> None:
        self.flows_ = flows
        self._stacked = Frozen(stack(flows))


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


def _reached(scores: Tensor, share: float) -> Tensor:
    """What a tenth of the rows still reach; nothing for a class without rows."""
    return quantile_of(scores, share).clamp_min(0) if len(scores) else scores.new_zeros(())
