r"""Thresholds that depend on the features of a row that cannot change.

With one threshold per class, some rows can never reach it, because their features cannot change (immutable)
or may change in one direction only (monotone). So the threshold has a part
:math:`\delta(\text{immutable features}, \text{floors of monotone features}, y)`, the required quantile of
held-out scores among rows with these values: a linear quantile regression, shrunk towards the threshold of
the class if rows are few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from plausiflow.densities.adam import Adam
from plausiflow.errors import NotFittedError
from plausiflow.tables import Layout

STEPS, LEARNING_RATE, RIDGE = 400, 0.03, 2e-3
COPIES, MOST_ROWS = 6, 18_000
"""How often rows are used, each time with other floors, and how many rows are enough for the regression."""


@dataclass(kw_only=True, eq=False)
class ContextThreshold:
    """The part of a threshold that depends on immutable and monotone features; see :meth:`from_layout`.

    ``weights_`` are those of the regression, shape ``(k, features)``.
    """

    numbers: tuple[int, ...] = ()  # columns of immutable numbers
    levels: tuple[int, ...] = ()  # columns of the levels of immutable features
    floors: tuple[tuple[int, int], ...] = ()  # columns (start, stop) of levels that may only rise
    ceilings: tuple[tuple[int, int], ...] = ()  # columns (start, stop) of levels that may only fall
    number_floors: tuple[int, ...] = ()  # columns of numbers that may only rise
    number_ceilings: tuple[int, ...] = ()  # columns of numbers that may only fall
    quantile: float = 0.5  # required quantile of the scores
    random_state: int = 0  # seed of the floors that are drawn in training
    weights_: Tensor | None = field(init=False, default=None, repr=False)

    @classmethod
    def from_layout(
        cls,
        layout: Layout,
        *,
        immutable: Sequence[str] = (),
        rising: Sequence[str] = (),
        falling: Sequence[str] = (),
    ) -> Self | None:
        """Build it for the rules of a table; None if every feature may change freely."""
        if not (immutable or rising or falling):
            return None
        fixed = [block for block in layout.blocks if block.name in immutable]
        moving = {
            name: [b for b in layout.blocks if b.name in names and b.name not in immutable]
            for name, names in (("rising", rising), ("falling", falling))
        }

        def groups(name: str) -> tuple[tuple[int, int], ...]:
            return tuple((b.levels.start, b.levels.stop) for b in moving[name] if b.ordered)

        def columns(name: str) -> tuple[int, ...]:
            return tuple(b.number for b in moving[name] if b.number is not None)

        return cls(
            numbers=tuple(block.number for block in fixed if block.number is not None),
            levels=tuple(column for block in fixed for column in block.levels),
            floors=groups("rising"),
            ceilings=groups("falling"),
            number_floors=columns("rising"),
            number_ceilings=columns("falling"),
        )

    def fit(
        self,
        x: Tensor,
        y: Tensor,
        scores: Tensor,
        weights: Tensor | None = None,
        *,
        n_classes: int | None = None,
    ) -> Self:
        """Fit the regression to rows ``(n, d)`` and their held-out scores without this part, shape ``(n,)``.

        Rows with monotone features are used several times if they are few, each time with random floors at
        or below their values: a row with such a floor could reach their scores. Of many rows some are used.
        """
        generator = torch.Generator().manual_seed(self.random_state)
        monotone = self.floors or self.ceilings or self.number_floors or self.number_ceilings
        n_classes = n_classes or int(y.max()) + 1
        if len(x) > MOST_ROWS:
            some = torch.randperm(len(x), generator=generator)[:MOST_ROWS].to(x.device)
            x, y, scores = x[some], y[some], scores[some]
            weights = None if weights is None else weights[some]
        copies = min(COPIES, MOST_ROWS // len(x)) if monotone else 1
        x = x.detach().repeat(copies, 1)
        y, scores = y.repeat(copies), scores.detach().to(x).repeat(copies)
        reachable = torch.ones(len(x), dtype=torch.bool, device=x.device)
        for groups, sign in ((self.floors, 1), (self.ceilings, -1)):
            for start, stop in groups:
                drawn = torch.randint(stop - start, (len(x),), generator=generator).to(x.device)
                reachable &= sign * (x[:, start:stop].argmax(dim=1) - drawn) >= 0
                x[:, start:stop] = torch.nn.functional.one_hot(drawn, stop - start).to(x)
        for columns, end in ((self.number_floors, 0.0), (self.number_ceilings, 1.0)):
            for column in columns:
                share = torch.rand(len(x), generator=generator, dtype=torch.float64).to(x)
                x[:, column] = x[:, column] + share * (end - x[:, column])
        counts = torch.ones_like(scores) if weights is None else weights.to(x).repeat(copies)
        features, y, scores, counts = (v[reachable] for v in (self._features(x), y, scores, counts))
        counts = counts / counts.mean()
        derivatives = features.new_zeros(n_classes, features.shape[1])
        optimizer = Adam([derivatives])
        # The gradient of the pinball loss in closed form: each row pulls by the quantile, up or down.
        up = torch.nn.functional.one_hot(y, n_classes).to(features) * counts[:, None] / len(counts)
        for _ in range(STEPS):
            error = scores - (features @ derivatives.T).gather(1, y[:, None])[:, 0]
            pull = self.quantile - (error < 0).to(error) - 0.5 * (error == 0).to(error)
            gradient = 2 * RIDGE * derivatives
            gradient[:, 0] = 0.0
            gradient -= (pull[:, None] * up).T @ features
            optimizer.step([gradient], LEARNING_RATE)
        self.weights_ = derivatives
        return self

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the thresholds of rows before any change, shape ``(n,)``."""
        return (self._features(x) * self._fitted().to(x)[y]).sum(dim=1)

    def state(self) -> Tensor:
        """Return the learned weights."""
        return self._fitted().clone()

    def load_state(self, state: Tensor) -> Self:
        """Restore what :meth:`state` returned."""
        self.weights_ = state.clone()
        return self

    def _fitted(self) -> Tensor:
        if self.weights_ is None:
            raise NotFittedError("This threshold has not been fitted. Call `fit(x, y, scores)` first.")
        return self.weights_

    def _features(self, x: Tensor) -> Tensor:
        grouped = [column for start, stop in (*self.floors, *self.ceilings) for column in range(start, stop)]
        numbers = x[:, [*self.numbers, *self.number_floors, *self.number_ceilings]]
        parts = [x.new_ones(len(x), 1), x[:, [*self.levels, *grouped]], numbers, 4 * (numbers - 0.3) ** 2]
        return torch.cat(parts, dim=1)
