r"""A second opinion on plausibility: densities that never guide a search.

A search that stops on the boundary of one flow is often outside of it for another flow of the same data. So
each judge is a flow of its own, with its own seed, trained on its own 80 % of the rows. It calls a row
plausible where

.. math:: \log p_j(x | y) \ge \log\delta_j(y),

its threshold being a quantile of the log-densities of the 20 % it has not seen: thresholds from training rows
are inflated by overfitting, and at the median about half of new real rows pass.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from plausiflow.core import blocks, check_rows
from plausiflow.densities.context import ContextThreshold
from plausiflow.densities.flows import ConditionalFlow
from plausiflow.densities.members import Member, copy_with_seed, train_members
from plausiflow.densities.thresholds import quantile_of
from plausiflow.errors import InvalidInputError, NotFittedError

HELD_OUT = 0.2
FEWEST = 30
"""Fewer rows of a class do not make a threshold: what differs between judges is then less than its error."""


@dataclass(kw_only=True, eq=False)
class Judges:
    r"""Independent flows that say whether a row is plausible.

    Attributes:
        count: How many judges.
        quantile: Which quantile of a class's held-out log-densities a row must reach.
        base: The settings of the flows or mixed densities, but for their seed.
        context: The part of the thresholds that depends on what a row is given, one for all judges.
        seed: The first judge's, for its rows, weights and training; the others count up from it. Far from the
            seeds of flows that guide a search, so that none of them is met again.
        log_delta_: The thresholds :math:`\log\delta_j(y)`, shape ``(count, k)``.

    Example:
        >>> from plausiflow.core.training import Training
        >>> x, y = torch.rand(100, 2), torch.arange(100) % 2
        >>> judges = Judges(count=2, base=ConditionalFlow(training=Training(epochs=1))).fit(x, y)
        >>> judges.passes(x, y).shape
        torch.Size([100, 2])
    """

    count: int = 3
    quantile: float = 0.5
    base: Member = field(default_factory=ConditionalFlow)
    context: ContextThreshold | None = None
    seed: int = 777_000
    log_delta_: Tensor | None = field(init=False, default=None, repr=False)
    flows_: list[Member] = field(init=False, default_factory=list, repr=False)

    def __post_init__(self) -> None:
        problems = []
        if self.count < 1:
            problems.append(f"`count` must be at least 1; got {self.count}")
        if not 0 <= self.quantile <= 1:
            problems.append(f"`quantile` must be between 0 and 1; got {self.quantile}")
        if problems:
            raise InvalidInputError("; ".join(problems) + ".")

    def fit(self, x: Tensor, y: Tensor, *, n_classes: int | None = None) -> Self:
        """Train every judge on its part of the rows, and take its thresholds from the rest.

        Where a judge holds out fewer than thirty rows of a class, the threshold is the quantile over those
        that all judges hold out; where none does, over those of all classes that this judge holds out.
        """
        check_rows(x, y, n_classes=n_classes)
        n_classes = n_classes or int(y.max()) + 1
        rows = [split_by_class_share(y, HELD_OUT, self.seed + j) for j in range(self.count)]
        kept = torch.zeros(self.count, len(y), dtype=torch.bool, device=y.device)
        for j, (_, own) in enumerate(rows):
            kept[j, own] = True
        flows = [self._judge(j) for j in range(self.count)]
        train_members(flows, x, y, kept, n_classes, label="Training judges")
        held = [(_log_prob(flow, x[out], y[out]), y[out]) for flow, (out, _) in zip(flows, rows, strict=True)]
        self.flows_, self.log_delta_ = flows, _thresholds(held, n_classes, self.quantile)
        if self.context is not None:
            scores = [value - self.log_delta_[j].to(value)[of] for j, (value, of) in enumerate(held)]
            pooled = torch.cat([out for out, _ in rows])
            self.context = replace(self.context, quantile=self.quantile)
            self.context.fit(x[pooled].double(), y[pooled], torch.cat(scores), n_classes=n_classes)
        return self

    def passes(self, x: Tensor, y: Tensor, given: Tensor | None = None) -> Tensor:
        """Whether each judge calls a row ``(n, d)`` plausible for its class ``(n,)``.

        In double precision and without gradients.

        Args:
            x: Rows.
            y: Their classes.
            given: The rows before any change, which tell what each is given; by default ``x`` itself.

        Returns:
            One column per judge, bool, shape ``(n, count)``.
        """
        thresholds = self._fitted()
        log_prob = torch.stack([_log_prob(flow, x, y) for flow in self.flows_], dim=1)
        log_delta = thresholds.to(x.device)[:, y].T
        if self.context is not None:
            log_delta = log_delta + self.context((x if given is None else given).double(), y)[:, None]
        return log_prob >= log_delta

    def state(self) -> dict[str, Tensor]:
        """Everything learned, as tensors; :meth:`load_state` takes it back."""
        state = {"log_delta": self._fitted().clone()}
        if self.context is not None:
            state["context"] = self.context.state()
        for j, flow in enumerate(self.flows_):
            state |= {f"{j}.{name}": value for name, value in flow.state().items()}
        return state

    def load_state(self, state: dict[str, Tensor]) -> Self:
        """Take back what :meth:`state` gave, into judges with the same settings."""
        log_delta = state["log_delta"]
        if len(log_delta) != self.count:
            raise InvalidInputError(
                f"`state` must be that of {self.count} judges, as `count` says; got {len(log_delta)}. "
                f"Load it into `Judges(count={len(log_delta)})`, with the same `base`."
            )
        parts = [
            {k.removeprefix(f"{j}."): v for k, v in state.items() if k.startswith(f"{j}.")}
            for j in range(self.count)
        ]
        flows = [self._judge(j) for j in range(self.count)]
        for flow, part in zip(flows, parts, strict=True):
            flow.load_state(part)
        self.flows_ = flows
        self.log_delta_ = log_delta.clone()
        if self.context is not None:
            self.context = self.context.load_state(state["context"])
        return self

    def _judge(self, j: int) -> Member:
        return copy_with_seed(self.base, self.seed + j)

    def _fitted(self) -> Tensor:
        if self.log_delta_ is None:
            raise NotFittedError(
                "These judges have not been fitted. Call `fit(x, y)` with training rows first, or "
                "`load_state(state)`."
            )
        return self.log_delta_


def split_by_class_share(y: Tensor, share: float, random_state: int) -> tuple[Tensor, Tensor]:
    """Return the rows held out, a share of each class, and the rows kept; all rows for both if none is held out."""
    generator = torch.Generator().manual_seed(random_state)
    order = torch.randperm(len(y), generator=generator).to(y.device)
    held_out = torch.zeros(len(y), dtype=torch.bool, device=y.device)
    for k in y.unique().tolist():
        own = order[y[order] == k]
        held_out[own[: round(share * len(own))]] = True
    if not held_out.any():
        return order, order
    return held_out.nonzero()[:, 0], (~held_out).nonzero()[:, 0]


@torch.no_grad()
def _log_prob(flow: Member, x: Tensor, y: Tensor) -> Tensor:
    return torch.cat([flow.log_prob(*block) for block in blocks(x.double(), y)])


def _thresholds(held: list[tuple[Tensor, Tensor]], n_classes: int, quantile: float) -> Tensor:
    """One per judge and class, shape ``(count, k)``, from held-out log-densities and their classes."""
    pooled, classes = (torch.cat(parts) for parts in zip(*held, strict=True))

    def threshold(log_prob: Tensor, y: Tensor, k: int) -> Tensor:
        own, of_all_judges = log_prob[y == k], pooled[classes == k]
        few = of_all_judges if len(of_all_judges) else log_prob
        return quantile_of(own if len(own) >= FEWEST else few, quantile)

    rows = [torch.stack([threshold(log_prob, y, k) for k in range(n_classes)]) for log_prob, y in held]
    return torch.stack(rows)
