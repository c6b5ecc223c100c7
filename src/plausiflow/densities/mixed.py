r"""The density of a mixed table: categories times numbers, given what cannot change.

.. math:: p(x_{mutable} | x_{given}, y) = p(x_{cat} | x_{given}, y) \; p(x_{num} | x_{cat}, x_{given}, y)

The first factor is a masked autoregressive network over levels, the second a flow whose context holds the
levels as well. Both are exact, and once the categories are fixed the second is smooth in the numbers, which
is all that a search needs. Features that cannot change (age, sex) are given to both: the density of what may
change, given what cannot, keeps rare people from being implausible for who they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor, nn

from plausiflow.core import Training, check_query, check_rows
from plausiflow.densities.flows import FLOW_TRAINING, ConditionalFlow
from plausiflow.densities.levels import LEVELS_TRAINING, ConditionalLevels, StackedLevels
from plausiflow.densities.stacked import StackedMAF
from plausiflow.errors import InvalidInputError, NotFittedError, ShapeError
from plausiflow.tables import Layout

NOISE, NOISE_PER_STEP = 0.02, 0.3
FEW_ROWS, SMALL_BATCH = 2000, 64


@dataclass(kw_only=True, eq=False)
class MixedDensity:
    """Categories and numbers of encoded rows; build it with :meth:`of`.

    Attributes:
        width: Columns of an encoded row.
        numbers: Columns of the numbers that are modelled.
        groups: First and one past the last column of each block of levels that is modelled; all other columns
            are context.
        noise: Standard deviation of the training noise of each modelled number.
        transforms: Of the flow.
        hidden: Widths of the flow's networks.
        training: How the flow is trained, but for its noise.
        levels_training: How the categories' network is trained.
        seed: Weights and training.
    """

    width: int
    numbers: tuple[int, ...]
    groups: tuple[tuple[int, int], ...]
    noise: tuple[float, ...] = ()
    transforms: int = 4
    hidden: tuple[int, ...] = (48, 48)
    training: Training = field(default_factory=lambda: replace(FLOW_TRAINING, weight_decay=1e-3))
    levels_training: Training = field(default_factory=lambda: LEVELS_TRAINING)
    seed: int = 0

    n_features_: int = field(init=False, default=0, repr=False)
    n_classes_: int = field(init=False, default=0, repr=False)
    levels_: ConditionalLevels | None = field(init=False, default=None, repr=False)
    flow_: ConditionalFlow | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.numbers and not self.groups:
            raise InvalidInputError(
                "A density needs at least one feature that may change; every one is context here. Take one "
                "out of the immutable features."
            )

    @classmethod
    def of(cls, layout: Layout, context: Sequence[str] = (), *, seed: int = 0) -> Self:
        """A density of the features of a layout that are not context."""
        own = [block for block in layout.blocks if block.name not in context]
        numbers = [block for block in own if block.number is not None]
        return cls(
            width=layout.width,
            numbers=tuple(block.number for block in numbers if block.number is not None),
            groups=tuple((b.levels.start, b.levels.stop) for b in own if len(b.levels)),
            noise=tuple(
                max(NOISE, NOISE_PER_STEP * block.scale.encoded_step) for block in numbers if block.scale
            ),
            seed=seed,
        )

    @property
    def given(self) -> tuple[int, ...]:
        """Columns that are context."""
        own = {column for start, stop in self.groups for column in range(start, stop)} | {*self.numbers}
        return tuple(column for column in range(self.width) if column not in own)

    def fit(self, x: Tensor, y: Tensor, *, n_classes: int | None = None) -> Self:
        """Learn both factors from encoded rows ``(n, width)`` and their classes ``(n,)``."""
        check_rows(x, y, n_classes=n_classes)
        if x.shape[1] != self.width:
            raise ShapeError(
                f"`x` must have shape (n, {self.width}), rows as encoded by the layout of this density; got "
                f"{tuple(x.shape)}."
            )
        n_classes = n_classes or int(y.max()) + 1
        batch = SMALL_BATCH if len(x) < FEW_ROWS else self.training.batch_size
        self.levels_, self.flow_ = self._levels(batch), self._flow(batch)
        for factor in (self.levels_, self.flow_):
            if factor is not None:
                factor.fit(x, y, n_classes=n_classes)
        self.n_features_, self.n_classes_ = x.shape[1], n_classes
        return self

    def log_prob(self, x: Tensor, y: Tensor) -> Tensor:
        """Log-density of what may change given the rest, shape ``(n,)``; keeps the graph."""
        if not self.n_features_:
            raise NotFittedError("This density has not been fitted. Call `fit(x, y)` first.")
        check_query(x, y, self.n_features_, self.n_classes_)
        log_probs = [part.log_prob(x, y) for part in (self.levels_, self.flow_) if part is not None]
        return torch.stack(log_probs).sum(dim=0)

    def state(self) -> dict[str, Tensor]:
        """Everything learned, as tensors; :meth:`load_state` takes it back."""
        if not self.n_features_:
            raise NotFittedError(
                "This density has not been fitted: there is no state. Call `fit(x, y)` first."
            )
        state = {"shape": torch.tensor([self.n_features_, self.n_classes_])}
        for name, part in (("levels", self.levels_), ("numbers", self.flow_)):
            if part is not None:
                state |= {f"{name}.{k}": v for k, v in part.state().items()}
        return state

    def load_state(self, state: dict[str, Tensor]) -> Self:
        """Take back what :meth:`state` gave, into a density with the same settings."""
        levels, flow = self._levels(SMALL_BATCH), self._flow(SMALL_BATCH)
        parts = {"levels": levels, "numbers": flow}
        n_features, n_classes = state["shape"].tolist()
        expected = {"shape", *(name for name, part in parts.items() if part is not None)}
        if n_features != self.width or {k.split(".", 1)[0] for k in state} != expected:
            raise InvalidInputError(
                f"`state` does not fit {self!r}: it comes from a density of other columns. Load it into one "
                "with the settings of the one that was saved."
            )
        for name, part in parts.items():
            if part is not None:
                own = {k.removeprefix(f"{name}."): v for k, v in state.items() if k.startswith(f"{name}.")}
                part.load_state(own)
        self.levels_, self.flow_ = levels, flow
        self.n_features_, self.n_classes_ = n_features, n_classes
        return self

    def _levels(self, batch: int) -> ConditionalLevels | None:
        if not self.groups:
            return None
        training = replace(self.levels_training, batch_size=batch)
        return ConditionalLevels(groups=self.groups, given=self.given, training=training, seed=self.seed)

    def _flow(self, batch: int) -> ConditionalFlow | None:
        if not self.numbers:
            return None
        noise = dict(zip(self.numbers, self.noise, strict=True)) if self.noise else {}
        given = tuple(column for column in range(self.width) if column not in self.numbers)
        training = replace(
            self.training,
            batch_size=batch,
            noise=tuple(noise.get(column, 0.0) for column in range(self.width)),
        )
        return ConditionalFlow(
            transforms=self.transforms, hidden=self.hidden, given=given, training=training, seed=self.seed + 1
        )


class StackedMixed(nn.Module):
    """Several mixed densities of one shape in one batched call: ``forward(x, y)``, shape ``(M, n)``."""

    def __init__(self, members: Sequence[MixedDensity]) -> None:
        super().__init__()
        levels = [member.levels_ for member in members if member.levels_ is not None]
        flows = [member.flow_ for member in members if member.flow_ is not None]
        self.levels = StackedLevels(levels) if levels else None
        self.flow = StackedMAF(flows) if flows else None

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Log-densities of rows ``(n, d)`` given classes ``(n,)``, shape ``(M, n)``."""
        parts = [part(x, y) for part in (self.levels, self.flow) if part is not None]
        return torch.stack(parts).sum(dim=0)
