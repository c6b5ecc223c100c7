r"""The density of a mixed table: categories times numbers, given the features that cannot change.

.. math:: p(x_{mutable} | x_{given}, y) = p(x_{cat} | x_{given}, y) \; p(x_{num} | x_{cat}, x_{given}, y)

The first factor is a masked autoregressive network over levels, the second a flow whose context includes the
levels. Both are exact. For fixed categories, the second is smooth in the numbers, as a search needs. Both are
conditioned on the features that cannot change (age, sex), so that members of rare groups are not implausible
because of these features.

A special or missing value pins its number, which then has no density. The flow is trained with a Gaussian
about the pin in its place, independent of everything else, and the logarithm of that Gaussian at the pin is
subtracted: a pinned number adds nothing, and a state is as likely as its probability. A special value is an
atom among densities, so it counts as the training noise of its column spreads it. Else the densities of
numbers, which are above one where rows crowd, would make it likely to leave the most common value: 41 hours
a week instead of 40.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor, nn

from plausiflow.core import Training, check_query, check_rows
from plausiflow.densities.flows import FLOW_TRAINING, ConditionalFlow
from plausiflow.densities.levels import LEVELS_TRAINING, ConditionalLevels, StackedLevels
from plausiflow.densities.one_cycle import OneCycle
from plausiflow.densities.stacked import StackedMAF
from plausiflow.densities.stacked_training import fit_flows, fit_levels
from plausiflow.errors import InvalidInputError, NotFittedError, ShapeError
from plausiflow.tables import Layout

NOISE, NOISE_PER_STEP = 0.02, 0.3
FEW_ROWS, SMALL_BATCH = 2000, 64
PINNED = 0.25
"""Standard deviation of the Gaussian about a pin: about that of numbers on the scale [0, 1]."""


@dataclass(kw_only=True, eq=False)
class MixedDensity:
    """A density of the categories and numbers of encoded rows; see :meth:`from_layout`."""

    width: int  # number of columns of an encoded row
    numbers: tuple[int, ...]  # columns of the numbers that are modelled
    groups: tuple[tuple[int, int], ...]  # columns (start, stop) of the modelled levels; others are context
    pinned: tuple[tuple[int, int], ...] = ()  # modelled numbers, and the columns of the levels that pin them
    atoms: tuple[int, ...] = ()  # those of these columns that stand for a special value, not a missing one
    noise: tuple[float, ...] = ()  # standard deviation of the training noise of each modelled number
    transforms: int = 4  # of the flow
    hidden: tuple[int, ...] = (48, 48)  # widths of the flow's networks
    training: Training = field(default_factory=lambda: replace(FLOW_TRAINING, weight_decay=1e-3))
    levels_training: Training = field(default_factory=lambda: LEVELS_TRAINING)
    random_state: int = 0

    n_features_: int = field(init=False, default=0, repr=False)
    n_classes_: int = field(init=False, default=0, repr=False)
    levels_: ConditionalLevels | None = field(init=False, default=None, repr=False)
    flow_: ConditionalFlow | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.numbers and not self.groups:
            raise InvalidInputError(
                "A density needs at least one feature that may change; all features are context. Make at "
                "least one feature mutable."
            )

    @classmethod
    def from_layout(cls, layout: Layout, context: Sequence[str] = (), *, random_state: int = 0) -> Self:
        """Build a density of the features of a layout that are not in ``context``."""
        modelled = [block for block in layout.blocks if block.name not in context]
        return cls(
            width=layout.width,
            numbers=tuple(block.number for block in modelled if block.number is not None),
            groups=tuple((b.levels.start, b.levels.stop) for b in modelled if len(b.levels)),
            pinned=tuple(
                (b.number, column)
                for b in modelled
                if b.number is not None
                for column, pin in zip(b.levels, b.pinned, strict=True)
                if pin is not None
            ),
            atoms=tuple(
                column
                for b in modelled
                if b.number is not None and b.special
                for column, value in zip(b.levels, b.special, strict=True)
                if value is not None
            ),
            noise=tuple(max(NOISE, NOISE_PER_STEP * b.scale.encoded_step) for b in modelled if b.scale),
            random_state=random_state,
        )

    @property
    def given(self) -> tuple[int, ...]:
        """Columns that are context."""
        modelled = {column for start, stop in self.groups for column in range(start, stop)} | {*self.numbers}
        return tuple(column for column in range(self.width) if column not in modelled)

    def fit(self, x: Tensor, y: Tensor, *, n_classes: int | None = None) -> Self:
        """Learn both factors from encoded rows ``(n, width)`` and their classes ``(n,)``."""
        check_rows(x, y, n_classes=n_classes)
        self.check_width(x)
        n_classes = n_classes or int(y.max()) + 1
        batch = SMALL_BATCH if len(x) < FEW_ROWS else self.training.batch_size
        self.levels_, self.flow_ = self.build_levels(batch), self.build_flow(batch)
        if self.levels_ is not None:
            self.levels_.fit(x, y, n_classes=n_classes)
        if self.flow_ is not None:
            self.flow_.fit(self._blurred(x), y, n_classes=n_classes)
        self.n_features_, self.n_classes_ = x.shape[1], n_classes
        return self

    def check_width(self, x: Tensor) -> None:
        """Raise unless rows are encoded by the layout of this density."""
        if x.shape[1] != self.width:
            raise ShapeError(
                f"`x` must have shape (n, {self.width}), rows as encoded by the layout of this density; got "
                f"{tuple(x.shape)}. Encode the table with the encoder that made the layout."
            )

    def _blurred(self, x: Tensor) -> Tensor:
        """Return rows with a Gaussian about the pin instead of each pinned number."""
        generator = torch.Generator().manual_seed(self.random_state)
        x = x.clone()
        for number, column in self.pinned:
            draws = torch.randn(len(x), generator=generator, dtype=torch.float64).to(x)
            x[:, number] = x[:, number] + PINNED * draws * (x[:, column] == 1)
        return x

    @property
    def _offsets(self) -> tuple[float, ...]:
        """What each modelled level adds: minus the log-Gaussian at the pin, and an atom its own noise."""
        noise = dict(zip(self.numbers, self.noise, strict=True)) if self.noise else {}
        offsets = dict.fromkeys((c for start, stop in self.groups for c in range(start, stop)), 0.0)
        for number, column in self.pinned:
            sd = math.hypot(PINNED, noise.get(number, 0.0))
            offsets[column] += math.log(sd * math.sqrt(2 * math.pi))
            if column in self.atoms:
                offsets[column] -= math.log(noise.get(number, NOISE) * math.sqrt(2 * math.pi))
        return tuple(offsets.values())

    def log_prob(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the log-density of the modelled columns, shape ``(n,)``; keeps the graph."""
        self._require_fitted()
        check_query(x, y, self.n_features_, self.n_classes_)
        log_probs = [part.log_prob(x, y) for part in (self.levels_, self.flow_) if part is not None]
        return torch.stack(log_probs).sum(dim=0)

    def state(self) -> dict[str, Tensor]:
        """Return everything learned, as tensors."""
        self._require_fitted()
        state = {"shape": torch.tensor([self.n_features_, self.n_classes_])}
        for name, part in (("levels", self.levels_), ("numbers", self.flow_)):
            if part is not None:
                state |= {f"{name}.{k}": v for k, v in part.state().items()}
        return state

    def load_state(self, state: dict[str, Tensor]) -> Self:
        """Restore what :meth:`state` returned, in a density with the same settings."""
        levels, flow = self.build_levels(), self.build_flow()
        parts = {k: part for k, part in (("levels", levels), ("numbers", flow)) if part is not None}
        n_features, n_classes = state["shape"].tolist()
        if n_features != self.width or {k.split(".", 1)[0] for k in state} != {"shape", *parts}:
            raise InvalidInputError(
                f"`state` must come from a density with the settings of {self!r}; it has other columns. "
                "Load it into a density with the same settings."
            )
        for name, part in parts.items():
            prefix = f"{name}."
            part.load_state({k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)})
        self.levels_, self.flow_ = levels, flow
        self.n_features_, self.n_classes_ = n_features, n_classes
        return self

    def _require_fitted(self) -> None:
        if not self.n_features_:
            raise NotFittedError(
                "This density has not been fitted. Call `fit(x, y)` first, or `load_state(state)`."
            )

    def build_levels(self, batch: int | None = None) -> ConditionalLevels | None:
        """Return the untrained first factor, or None without categories."""
        if not self.groups:
            return None
        training = self.levels_training
        training = training if batch is None else replace(training, batch_size=batch)
        return ConditionalLevels(
            groups=self.groups,
            given=self.given,
            offsets=self._offsets,
            training=training,
            random_state=self.random_state,
        )

    def build_flow(self, batch: int | None = None) -> ConditionalFlow | None:
        """Return the untrained second factor, or None without numbers."""
        if not self.numbers:
            return None
        noise = dict(zip(self.numbers, self.noise, strict=True)) if self.noise else {}
        given = tuple(column for column in range(self.width) if column not in self.numbers)
        all_noise = tuple(noise.get(column, 0.0) for column in range(self.width))
        training = replace(self.training, batch_size=batch or self.training.batch_size, noise=all_noise)
        return ConditionalFlow(
            transforms=self.transforms,
            hidden=self.hidden,
            given=given,
            training=training,
            random_state=self.random_state + 1,
        )


def fit_mixed(
    members: Sequence[MixedDensity],
    x: Tensor,
    y: Tensor,
    used: Tensor,
    n_classes: int,
    settings: OneCycle,
    label: str,
) -> None:
    """Fit densities with the same settings, in place, on their own rows, given as a mask ``(M, n)``."""
    first = members[0]
    first.check_width(x)
    levels = [member.build_levels() for member in members]
    flows = [member.build_flow() for member in members]
    if first.groups:
        fit_levels([own for own in levels if own is not None], x, y, used, n_classes, settings, label)

    # A number has one pin at a time.
    pins, pulls = [column for _, column in first.pinned], x.new_zeros(len(first.pinned), x.shape[1])
    for place, (number, _) in enumerate(first.pinned):
        pulls[place, number] = PINNED

    def blur(rows: Tensor) -> Tensor:
        return (rows[..., pins] @ pulls).clamp_max_(PINNED)

    if first.numbers:
        own = [flow for flow in flows if flow is not None]
        fit_flows(own, x, y, used, n_classes, settings, label, blur if first.pinned else None)
    for member, own_levels, own_flow in zip(members, levels, flows, strict=True):
        member.levels_, member.flow_ = own_levels, own_flow
        member.n_features_, member.n_classes_ = x.shape[1], n_classes


class StackedMixed(nn.Module):
    """Several mixed densities of the same shape in one batched call."""

    def __init__(self, members: Sequence[MixedDensity]) -> None:
        super().__init__()
        levels = [member.levels_ for member in members if member.levels_ is not None]
        flows = [member.flow_ for member in members if member.flow_ is not None]
        self.levels = StackedLevels(levels) if levels else None
        self.flow = StackedMAF(flows) if flows else None

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the log-densities of rows ``(n, d)`` given classes ``(n,)``, shape ``(M, n)``."""
        parts = [part(x, y) for part in (self.levels, self.flow) if part is not None]
        return torch.stack(parts).sum(dim=0)
