r"""Judges: independent densities that check plausibility and never guide a search.

Each judge j is a flow with its own seed, trained on its own 80 % of the rows. A row is plausible for it if

.. math:: \log p_j(x | y) \ge \log\delta_j(y),

where the threshold is a quantile of the log-densities of the other 20 %. Overfitting would raise thresholds
from training rows. With the median, about half of new real rows pass.
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
from plausiflow.densities.one_cycle import OneCycle
from plausiflow.densities.thresholds import lower_quantile
from plausiflow.errors import InvalidInputError, NotFittedError

HELD_OUT = 0.2
MIN_ROWS = 30
"""Minimum number of held-out rows of a class for a threshold of a single judge."""


@dataclass(kw_only=True, eq=False)
class Judges:
    r"""Independent flows that decide whether a row is plausible.

    Attributes:
        count: Number of judges.
        quantile: Which quantile of a class's held-out log-densities a row must reach.
        base: The flow or mixed density whose settings the judges have, except for the seed.
        context: The part of the thresholds that depends on immutable features, for all judges, or None.
        training: Settings of the training of all judges.
        random_state: Seed of the first judge; the others count up. It differs from those of flows that guide
            a search.
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
    training: OneCycle = field(default_factory=OneCycle, repr=False)
    random_state: int = 777_000
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
        """Train every judge on its part of the rows, and compute its thresholds on the others.

        If a judge holds out fewer than thirty rows of a class, the threshold is the quantile over those that
        all judges hold out; if there are none, over all rows that this judge holds out.
        """
        check_rows(x, y, n_classes=n_classes)
        n_classes = n_classes or int(y.max()) + 1
        flows, used = self.untrained(y)
        train_members(flows, x, y, used, n_classes, self.training, label="Training judges")
        return self.adopt_members(flows, x, y, n_classes)

    def untrained(self, y: Tensor) -> tuple[list[Member], Tensor]:
        """Return judges that are not trained, and their training rows as a mask of shape ``(count, n)``."""
        used = torch.zeros(self.count, len(y), dtype=torch.bool, device=y.device)
        for j in range(self.count):
            used[j, split_by_class_share(y, HELD_OUT, self.random_state + j)[1]] = True
        return self._untrained(), used

    def adopt_members(self, flows: list[Member], x: Tensor, y: Tensor, n_classes: int) -> Self:
        """Use trained judges, and compute their thresholds; the rows are those of the fit."""
        self.flows_ = flows
        return self.set_quantile(self.quantile, x, y, n_classes=n_classes)

    def set_quantile(self, quantile: float, x: Tensor, y: Tensor, *, n_classes: int | None = None) -> Self:
        """Compute the thresholds of a quantile; the rows are those of the fit."""
        self.quantile, flows = quantile, self.flows_
        n_classes = n_classes or (int(y.max()) + 1 if self.log_delta_ is None else self.log_delta_.shape[1])
        rows = [split_by_class_share(y, HELD_OUT, self.random_state + j) for j in range(self.count)]
        held = [(_log_prob(flow, x[out], y[out]), y[out]) for flow, (out, _) in zip(flows, rows, strict=True)]
        self.log_delta_ = _thresholds(held, n_classes, self.quantile)
        if self.context is not None:
            scores = [value - self.log_delta_[j].to(value)[of] for j, (value, of) in enumerate(held)]
            pooled = torch.cat([out for out, _ in rows])
            self.context = replace(self.context, quantile=self.quantile)
            self.context.fit(x[pooled].double(), y[pooled], torch.cat(scores), n_classes=n_classes)
        return self

    def passes(self, x: Tensor, y: Tensor, given: Tensor | None = None) -> Tensor:
        """Return whether each row is plausible for each judge, in double precision and without gradients.

        Args:
            x: Rows, shape ``(n, d)``.
            y: Their classes, shape ``(n,)``.
            given: The rows before any change, for thresholds of immutable features; by default ``x``.

        Returns:
            Booleans of shape ``(n, count)``.
        """
        thresholds = self._fitted()
        log_prob = torch.stack([_log_prob(flow, x, y) for flow in self.flows_], dim=1)
        log_delta = thresholds.to(x.device)[:, y].T
        if self.context is not None:
            log_delta = log_delta + self.context((x if given is None else given).double(), y)[:, None]
        return log_prob >= log_delta

    def state(self) -> dict[str, Tensor]:
        """Return everything learned, as tensors."""
        state = {"log_delta": self._fitted().clone()}
        if self.context is not None:
            state["context"] = self.context.state()
        for j, flow in enumerate(self.flows_):
            state |= {f"{j}.{name}": value for name, value in flow.state().items()}
        return state

    def load_state(self, state: dict[str, Tensor]) -> Self:
        """Restore what :meth:`state` returned, in judges with the same settings."""
        log_delta = state["log_delta"]
        if len(log_delta) != self.count:
            raise InvalidInputError(
                f"`state` must be that of {self.count} judges, as `count` says; got {len(log_delta)}. "
                f"Load it into `Judges(count={len(log_delta)})`, with the same `base`."
            )
        flows = self._untrained()
        for j, flow in enumerate(flows):
            flow.load_state({k.removeprefix(f"{j}."): v for k, v in state.items() if k.startswith(f"{j}.")})
        self.flows_, self.log_delta_ = flows, log_delta.clone()
        if self.context is not None:
            self.context = self.context.load_state(state["context"])
        return self

    def _untrained(self) -> list[Member]:
        return [copy_with_seed(self.base, self.random_state + j) for j in range(self.count)]

    def _fitted(self) -> Tensor:
        if self.log_delta_ is None:
            raise NotFittedError(
                "These judges have not been fitted. Call `fit(x, y)` with training rows first, or "
                "`load_state(state)`."
            )
        return self.log_delta_


def split_by_class_share(y: Tensor, share: float, random_state: int) -> tuple[Tensor, Tensor]:
    """Return the held-out rows, a share of each class, and the others; all rows twice if none is held out."""
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
    """Return the thresholds, ``(count, k)``, from each judge's held-out log-densities and their classes."""
    pooled, classes = (torch.cat(parts) for parts in zip(*held, strict=True))

    def threshold(log_prob: Tensor, y: Tensor, k: int) -> Tensor:
        by_judge, by_all = log_prob[y == k], pooled[classes == k]
        if len(by_judge) < MIN_ROWS:
            by_judge = by_all if len(by_all) else log_prob
        return lower_quantile(by_judge, quantile)

    rows = [torch.stack([threshold(log_prob, y, k) for k in range(n_classes)]) for log_prob, y in held]
    return torch.stack(rows)
