r"""The distribution of categories given other features: a masked autoregressive network.

.. math:: p(c | \text{given}, y) = \prod_j p(c_j | c_1, \dots, c_{j-1}, \text{given}, y)

Every factor is a softmax over the levels of one feature. One network computes all of them in a single pass:
its masks connect the logits of feature j to earlier features only. Probabilities are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from plausiflow.core import (
    Frozen,
    Training,
    check_query,
    check_rows,
    local_seed,
    negative_log_likelihood,
    train,
)
from plausiflow.errors import InvalidInputError, NotFittedError

FEW_LOGITS = 20_000
"""Below so many logits a gather is faster than one operation for each block."""
LEVELS_TRAINING = Training(learning_rate=5e-3, patience=8, reductions=2, weight_decay=1e-3, tolerance=1e-3)


@dataclass(kw_only=True, eq=False)
class ConditionalLevels:
    """Probabilities of one-hot blocks of an encoded row.

    Example:
        >>> x = F.one_hot(torch.arange(60) % 3, 3).double()
        >>> y = torch.arange(60) % 2
        >>> levels = ConditionalLevels(groups=((0, 3),), training=Training(epochs=2)).fit(x, y)
        >>> levels.log_prob(x, y).shape
        torch.Size([60])
    """

    groups: tuple[tuple[int, int], ...]  # columns (start, stop) of the blocks that are modelled
    given: tuple[int, ...] = ()  # columns that are context, like the class
    offsets: tuple[float, ...] = ()  # added to the log-probability, one for each level; none if empty
    hidden: int = 96  # number of hidden units
    dropout: float = 0.1  # dropout rate of the levels in training
    training: Training = field(default_factory=lambda: LEVELS_TRAINING)
    random_state: int = 0

    n_features_: int = field(init=False, default=0, repr=False)
    n_classes_: int = field(init=False, default=0, repr=False)
    _frozen: Frozen[LevelsNetwork] | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.groups or any(stop <= start for start, stop in self.groups):
            raise InvalidInputError(
                f"`groups` must have at least one range of columns (start, stop); got {self.groups}."
            )

    def fit(self, x: Tensor, y: Tensor, *, n_classes: int | None = None) -> Self:
        """Learn the probabilities of blocks of ``x`` given the ``given`` columns and the classes ``y``."""
        check_rows(x, y, n_classes=n_classes)
        n_classes = n_classes or int(y.max()) + 1
        network = self.build_network(n_classes).to(x)
        train(
            network,
            lambda rows, classes: negative_log_likelihood(network(rows, classes)),
            x,
            y,
            settings=self.training,
            random_state=self.random_state,
            label="Training the network of categories",
        )
        return self.adopt_network(network, x.shape[1], n_classes)

    def log_prob(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the log-probability of each row's levels, shape ``(n,)``; keeps the graph."""
        network = self.frozen(x)
        check_query(x, y, self.n_features_, self.n_classes_)
        log_prob: Tensor = network(x, y)
        return log_prob

    def frozen(self, like: Tensor) -> LevelsNetwork:
        """Return the trained network, frozen, in the dtype and on the device of ``like``."""
        return self._fitted()(like)

    def state(self) -> dict[str, Tensor]:
        """Return everything learned, as tensors."""
        weights = self._fitted().module.state_dict()
        shape = torch.tensor([self.n_features_, self.n_classes_])
        return {"shape": shape} | {f"net.{k}": v.clone() for k, v in weights.items()}

    def load_state(self, state: dict[str, Tensor]) -> Self:
        """Restore what :meth:`state` returned, in an object with the same settings."""
        n_features, n_classes = state["shape"].tolist()
        network = self.build_network(n_classes)
        weights = {k.removeprefix("net."): v for k, v in state.items() if k.startswith("net.")}
        if {k: v.shape for k, v in weights.items()} != {k: v.shape for k, v in network.state_dict().items()}:
            raise InvalidInputError(
                "`state` must come from levels with the same groups, given columns and hidden units; its "
                "tensors have other names or shapes. Load it into an object with the same settings."
            )
        network.to(weights["first.weight"]).load_state_dict(weights)
        return self.adopt_network(network, n_features, n_classes)

    def build_network(self, n_classes: int) -> LevelsNetwork:
        """Return an untrained network for so many classes."""
        with local_seed(self.random_state, torch.device("cpu")):
            network = LevelsNetwork(
                self.groups, list(self.given), n_classes, self.hidden, self.dropout, self.offsets
            )
            return network.float()

    def adopt_network(self, network: LevelsNetwork, n_features: int, n_classes: int) -> Self:
        """Use a trained network."""
        self.n_features_, self.n_classes_ = n_features, n_classes
        self._frozen = Frozen(network)
        return self

    def _fitted(self) -> Frozen[LevelsNetwork]:
        if self._frozen is None:
            raise NotFittedError(
                "These levels have not been fitted. Call `fit(x, y)` first, or `load_state(state)`."
            )
        return self._frozen


class LevelsNetwork(nn.Module):
    """Network whose ``forward(x, y)`` gives the log-probabilities of the blocks, shape ``(n,)``."""

    hidden_mask: Tensor
    output_mask: Tensor
    skip_mask: Tensor
    offsets: Tensor

    def __init__(
        self,
        groups: Sequence[tuple[int, int]],
        given: list[int],
        n_classes: int,
        hidden: int,
        dropout: float,
        offsets: Sequence[float] = (),
    ) -> None:
        super().__init__()
        self.modelled = [column for start, stop in groups for column in range(start, stop)]
        self.given, self.n_classes, self.dropout = given, n_classes, dropout
        sizes = [stop - start for start, stop in groups]
        group = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
        sees = torch.arange(hidden) % len(sizes)  # a hidden unit depends on the groups before this one
        self.register_buffer("hidden_mask", (sees[:, None] > group[None]).float(), persistent=False)
        self.register_buffer("output_mask", (group[:, None] >= sees[None]).float(), persistent=False)
        self.register_buffer("skip_mask", (group[:, None] > group[None]).float(), persistent=False)
        self.sizes = tuple(sizes)
        added = torch.tensor(offsets or [0.0] * sum(sizes))
        self.register_buffer("offsets", added, persistent=False)
        width, n_context = len(self.modelled), n_classes + len(given)
        self.first, self.second = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.first_context = nn.Linear(n_context, hidden, bias=False)
        self.skip = nn.Linear(width, width, bias=False)
        self.skip_context = nn.Linear(n_context, width, bias=False)
        with torch.no_grad():
            for layer in (self.skip, self.skip_context):
                layer.weight.mul_(0.1)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the log-probabilities of the rows' levels; levels drop out in training."""
        one_hot, context = x[:, self.modelled], _context(x, y, self.given, self.n_classes)
        seen = F.dropout(one_hot, self.dropout, self.training) * (1 - self.dropout if self.training else 1.0)
        hidden = F.linear(seen, self.first.weight * self.hidden_mask, self.first.bias)
        hidden = torch.tanh(hidden + self.first_context(context))
        logits = F.linear(hidden, self.second.weight * self.output_mask, self.second.bias)
        logits = logits + F.linear(seen, self.skip.weight * self.skip_mask) + self.skip_context(context)
        return block_log_prob(logits, one_hot, self.sizes) + one_hot @ self.offsets


class StackedLevels(nn.Module):
    """Several networks of the same shape in one batched call."""

    first: Tensor
    second: Tensor
    skip: Tensor
    first_bias: Tensor
    second_bias: Tensor
    offsets: Tensor

    def __init__(self, members: Sequence[ConditionalLevels]) -> None:
        super().__init__()
        networks = [member.frozen(torch.zeros(0, dtype=torch.float64)) for member in members]
        first = networks[0]
        self.modelled, self.given, self.n_classes = first.modelled, first.given, first.n_classes
        weights: dict[str, list[tuple[Tensor, ...]]] = {
            "first": [(n.first.weight * n.hidden_mask, n.first_context.weight) for n in networks],
            "second": [(n.second.weight * n.output_mask,) for n in networks],
            "skip": [(n.skip.weight * n.skip_mask, n.skip_context.weight) for n in networks],
        }
        for name, parts in weights.items():
            stack = torch.stack([torch.cat(part, dim=1) for part in parts])
            self.register_buffer(name, stack.mT.contiguous())
        self.register_buffer("first_bias", torch.stack([n.first.bias for n in networks])[:, None])
        self.register_buffer("second_bias", torch.stack([n.second.bias for n in networks])[:, None])
        self.sizes = first.sizes
        self.register_buffer("offsets", first.offsets)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the log-probabilities of rows ``(n, d)`` given classes ``(n,)``, shape ``(M, n)``."""
        one_hot = x[:, self.modelled]
        inputs = torch.cat([one_hot, _context(x, y, self.given, self.n_classes)], dim=1)
        inputs = inputs.expand(len(self.first), -1, -1)
        # tanh, by the faster logistic function
        hidden = 2 * torch.sigmoid(torch.baddbmm(self.first_bias, inputs, self.first).mul_(2)) - 1
        logits = torch.baddbmm(self.second_bias, hidden, self.second).baddbmm_(inputs, self.skip)
        return block_log_prob(logits, one_hot, self.sizes) + one_hot @ self.offsets


def block_log_prob(logits: Tensor, one_hot: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Return the sum over blocks of the log-softmax at the row's level, ``(..., n, levels) -> (..., n)``.

    ``sizes`` are the numbers of levels of the blocks. Sums over blocks are one matrix product, because the
    gradient of a gather is slow.
    """
    padded, block_of, members = _blocks(sizes, logits.dtype, logits.device)
    with torch.no_grad():
        if logits.numel() < FEW_LOGITS:
            padding = logits.new_full((*logits.shape[:-1], 1), -torch.inf)
            largest = torch.cat([logits, padding], dim=-1)[..., padded].amax(dim=-1)
        else:
            largest = torch.stack([own.amax(dim=-1) for own in logits.split(sizes, dim=-1)], dim=-1)
    shifted = logits - largest[..., block_of]
    return (shifted * one_hot).sum(dim=-1) - (shifted.exp() @ members).log().sum(dim=-1)


@lru_cache(maxsize=64)
def _blocks(
    sizes: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the columns of each block, padded, the block of each column, and that as a matrix."""
    block_of = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    members = F.one_hot(block_of, len(sizes))
    return _padded_index(sizes).to(device), block_of.to(device), members.to(device, dtype)


def _context(x: Tensor, y: Tensor, given: list[int], n_classes: int) -> Tensor:
    """Return one-hot class and given columns, shape ``(n, n_classes + given)``."""
    return torch.cat([F.one_hot(y, n_classes).to(x), x[:, given]], dim=1)


def _padded_index(sizes: Sequence[int]) -> Tensor:
    """Return the columns of each block, shape ``(blocks, levels)``, padded with the column after the last."""
    total, start = sum(sizes), 0
    index = torch.full((len(sizes), max(sizes)), total)
    for i, size in enumerate(sizes):
        index[i, :size] = torch.arange(start, start + size)
        start += size
    return index
