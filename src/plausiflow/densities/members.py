"""Members of an ensemble: trained together and evaluated in one batched call, if they have the same shape."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Protocol, Self, TypeVar

import torch
from torch import Tensor, nn

from plausiflow.core import suitable_threads
from plausiflow.densities.flows import ConditionalFlow
from plausiflow.densities.mixed import MixedDensity, StackedMixed, fit_mixed
from plausiflow.densities.one_cycle import OneCycle
from plausiflow.densities.stacked import StackedMAF
from plausiflow.densities.stacked_training import fit_flows
from plausiflow.progress import progress_bar


class Member(Protocol):
    """A density that can be a member of an ensemble or a judge."""

    def fit(self, x: Tensor, y: Tensor, *, n_classes: int | None = None) -> Self:
        """Learn from rows ``(n, d)`` and their classes ``(n,)``, of which some may have no rows."""
        ...

    def log_prob(self, x: Tensor, y: Tensor) -> Tensor:
        """Return :math:`log p(x | y)`, ``(n, d), (n,) -> (n,)``; keeps the graph."""
        ...

    def state(self) -> dict[str, Tensor]:
        """Return everything learned, as tensors."""
        ...

    def load_state(self, state: dict[str, Tensor]) -> object:
        """Restore what :meth:`state` returned, in an object with the same settings."""
        ...


M = TypeVar("M", bound=Member)


def copy_with_seed(base: M, random_state: int) -> M:
    """Return a copy with another seed, not fitted; a density without a seed is copied as it is."""
    if is_dataclass(base) and any(field.name == "random_state" and field.init for field in fields(base)):
        return replace(base, random_state=random_state)
    other = copy.deepcopy(base)
    if hasattr(other, "random_state"):
        other.random_state = random_state
    return other


def stack(members: Sequence[Member]) -> nn.Module:
    """Return one module whose ``forward(x, y)`` gives each member's log-density, shape ``(M, n)``."""
    mixed = [member for member in members if isinstance(member, MixedDensity)]
    if len(mixed) == len(members):
        return StackedMixed(mixed)
    flows = [m for m in members if isinstance(m, ConditionalFlow) and m.architecture == "maf"]
    return StackedMAF(flows) if len(flows) == len(members) else _OneByOne(members)


class _OneByOne(nn.Module):
    """Members that cannot be stacked, evaluated one after the other."""

    def __init__(self, members: Sequence[Member]) -> None:
        super().__init__()
        self.members = list(members)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.stack([member.log_prob(x, y) for member in self.members])


def train_members(
    members: Sequence[Member],
    x: Tensor,
    y: Tensor,
    used: Tensor,
    n_classes: int,
    settings: OneCycle | None = None,
    label: str = "Training the members of the ensemble",
) -> None:
    """Fit every member, in place, on its own rows, given as a mask of shape ``(M, n)``.

    Masked autoregressive flows and mixed densities with the same settings are trained together; others one
    after the other, with one thread.
    """
    settings = settings or OneCycle()
    mixed = [member for member in members if isinstance(member, MixedDensity)]
    flows = [m for m in members if isinstance(m, ConditionalFlow) and m.architecture == "maf"]
    if _same_settings(mixed, members):
        fit_mixed(mixed, x, y, used, n_classes, settings, label)
    elif _same_settings(flows, members):
        fit_flows(flows, x, y, used, n_classes, settings, label)
    else:
        with progress_bar(label, len(members)) as advance, suitable_threads():
            for member, rows in zip(members, used, strict=True):
                member.fit(x[rows], y[rows], n_classes=n_classes)
                advance(1, "")


def _same_settings(alike: Sequence[Any], members: Sequence[Member]) -> bool:
    """Return whether all members are of one class and differ only in their seeds."""
    if len(alike) != len(members) or len({type(member) for member in alike}) != 1:
        return False
    return all(_settings(member) == _settings(alike[0]) for member in alike)


def _settings(member: Any) -> dict[str, Any]:  # noqa: ANN401
    return {f.name: getattr(member, f.name) for f in fields(member) if f.init and f.name != "random_state"}
