r"""NODE: ensembles of differentiable oblivious decision trees (Popov, Morozov and Babenko, ICLR 2020).

An oblivious tree of depth D asks every row the same D questions, so its :math:`2^D` leaves are numbered by
the bits of the answers. SearchRequest k looks at :math:`v_k = a_k \cdot x`, where :math:`a_k` is a sparse
distribution over the features, and is answered "above" with weight
:math:`\sigma_k = \sigma((v_k - b_k) e^{-\tau_k})`. A leaf's weight is the product of :math:`\sigma_k` where
its bit k is 0 and :math:`1 - \sigma_k` where it is 1; the tree answers with the weighted sum of its leaves'
responses. Each layer also sees the answers of all trees before it. The logits are the mean over all trees.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from plausiflow.core import Training
from plausiflow.errors import InvalidInputError
from plausiflow.models.base import NetworkClassifier, Weights, as_tensor
from plausiflow.models.sparse import entmax15, entmoid15, sparsemax, sparsemoid

Activation = Callable[[Tensor], Tensor]

_CHOICES: dict[str, Activation] = {"sparsemax": sparsemax, "entmax15": entmax15}
_BINS: dict[str, Activation] = {"sparsemoid": sparsemoid, "entmoid15": entmoid15}
_PUBLISHED_NAMES = {
    "response": "response",
    "feature_selection_logits": "selection",
    "feature_thresholds": "thresholds",
    "log_temperatures": "log_temperatures",
}
_FIRST_ROWS = 2000
_LEAVES_AT_ONCE = 2**20  # what a processor's cache holds


class ODST(nn.Module):
    """One layer of oblivious trees, ``(n, d) -> (n, trees, classes)``.

    Args:
        n_features: Number of input columns.
        n_classes: Number of responses per leaf.
        n_trees: Number of trees.
        depth: Questions per tree.
        choice: How a question chooses features: scores over the last dimension to weights.
        bins: How a question is answered: a difference to a weight in [0, 1].
    """

    fixed: Tensor | None

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        *,
        n_trees: int,
        depth: int,
        choice: Activation,
        bins: Activation,
    ) -> None:
        super().__init__()
        self.depth, self.choice, self.bins = depth, choice, bins
        self.response = nn.Parameter(torch.randn(n_trees, n_classes, 2**depth))
        self.selection = nn.Parameter(torch.rand(n_features, n_trees, depth))
        self.thresholds = nn.Parameter(torch.randn(n_trees, depth))
        self.log_temperatures = nn.Parameter(torch.randn(n_trees, depth))
        self.register_buffer("fixed", None, persistent=False)

    def freeze(self) -> None:
        """Compute the weights of the features once, for a layer that is not trained any more."""
        self.fixed = self._chosen().detach()

    def values(self, x: Tensor) -> Tensor:
        """What each question looks at, shape ``(n, trees, depth)``."""
        chosen = self._chosen() if self.fixed is None else self.fixed
        return (x @ chosen).view(len(x), *self.thresholds.shape)

    def leaves(self, x: Tensor) -> Tensor:
        """The weight of every leaf, shape ``(n, trees, 2 ** depth)``; sums to one over a tree's leaves."""
        above = self.bins((self.values(x) - self.thresholds) * (-self.log_temperatures).exp())
        weights = torch.stack([above[..., 0], 1 - above[..., 0]], dim=-1)
        for k in range(1, self.depth):  # bit k of a leaf's number is the most significant so far
            answer = above[..., k, None]
            weights = torch.cat([weights * answer, weights * (1 - answer)], dim=-1)
        return weights

    def forward(self, x: Tensor) -> Tensor:
        """The answer of every tree, shape ``(n, trees, classes)``."""
        return torch.einsum("ntl,tcl->ntc", self.leaves(x), self.response)

    def mean(self, x: Tensor) -> Tensor:
        """The mean over the trees, shape ``(n, classes)``, without the answers of single trees."""
        response = self.response.transpose(1, 2).flatten(0, 1)
        return self.leaves(x).flatten(1) @ response / len(self.response)

    @torch.no_grad()
    def initialise(self, x: Tensor, generator: np.random.Generator, *, beta: float, cutoff: float) -> None:
        """Set thresholds to quantiles of what the questions see.

        Temperatures are set so that the rows fall into the bins' slope.
        """
        values = self.values(x)
        quantiles = torch.as_tensor(generator.beta(beta, beta, size=self.thresholds.shape)).to(values)
        self.thresholds.copy_(_quantile(values, quantiles))
        spread = _quantile((values - self.thresholds).abs(), torch.full_like(quantiles, min(1.0, cutoff)))
        self.log_temperatures.copy_((spread / max(1.0, cutoff) + 1e-6).log())

    def _chosen(self) -> Tensor:
        return self.choice(self.selection.flatten(1).T).T


class DenseTrees(nn.Module):
    """Layers of trees, ``(n, d) -> (n, classes)``.

    Each of them sees the input and the answers of all trees before it.
    """

    def __init__(self, layers: list[ODST]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def odsts(self) -> list[ODST]:
        """The layers, first to last."""
        return [layer for layer in self.layers if isinstance(layer, ODST)]

    def forward(self, x: Tensor) -> Tensor:
        """The mean answer of all trees; on a processor, as many rows at a time as its cache holds."""
        leaves = max(layer.response[:, 0].numel() for layer in self.odsts())
        at_once = max(64, _LEAVES_AT_ONCE // leaves)
        if x.device.type != "cpu" or len(x) <= at_once:
            return self._answered(x)
        return torch.cat([self._answered(rows) for rows in x.split(at_once)])

    def _answered(self, x: Tensor) -> Tensor:
        *earlier, last = self.odsts()
        total = x.new_zeros(())
        for layer in earlier:
            answers = layer(x)
            total = total + answers.mean(dim=1)
            x = torch.cat([x, answers.flatten(1)], dim=1)
        return (total + last.mean(x)) / len(self.layers)

    @torch.no_grad()
    def initialise(self, x: Tensor, seed: int, *, beta: float, cutoff: float) -> None:
        """Set every layer's thresholds and temperatures from rows, first layer first."""
        generator = np.random.default_rng(seed)
        for layer in self.odsts():
            layer.initialise(x, generator, beta=beta, cutoff=cutoff)
            x = torch.cat([x, layer(x).flatten(1)], dim=1)


@dataclass(kw_only=True, eq=False, repr=False)
class NODE(NetworkClassifier):
    """Neural oblivious decision ensembles.

    The default has the size of the paper's runs with the activations of NODE's authors, whose bins are flat
    for fewer rows than ``sparsemoid``'s: a search by gradients gets a direction more often.

    Attributes:
        n_trees: Trees per layer.
        depth: Questions per tree.
        n_layers: Densely connected layers.
        choice: How a question chooses features.
        bins: How a question is answered.
        init_beta: First thresholds are Beta(b, b) quantiles of the training rows; one: uniform, more: nearer
            the median.
        init_cutoff: Share of the training rows that a question's bins see within [-1, 1] at first; above one,
            all rows, spread over so much more.
    """

    training: Training = field(
        default_factory=lambda: Training(learning_rate=2e-2, batch_size=256, patience=20, weight_decay=1e-4)
    )
    n_trees: int = 128
    depth: int = 4
    n_layers: int = 1
    choice: Literal["sparsemax", "entmax15"] = "entmax15"
    bins: Literal["sparsemoid", "entmoid15"] = "entmoid15"
    init_beta: float = 1.0
    init_cutoff: float = 1.0

    def __post_init__(self) -> None:
        problems = []
        if min(self.n_trees, self.depth, self.n_layers) < 1:
            problems.append(
                f"`n_trees`, `depth`, `n_layers` must be at least 1; got {self.n_trees}, {self.depth}, "
                f"{self.n_layers}"
            )
        if self.choice not in _CHOICES:
            problems.append(f"`choice` must be one of {', '.join(_CHOICES)}; got {self.choice!r}")
        if self.bins not in _BINS:
            problems.append(f"`bins` must be one of {', '.join(_BINS)}; got {self.bins!r}")
        if min(self.init_beta, self.init_cutoff) <= 0:
            problems.append(
                f"`init_beta` and `init_cutoff` must be positive; got {self.init_beta}, {self.init_cutoff}"
            )
        if problems:
            raise InvalidInputError("; ".join(problems) + ". `NODE()` has settings that work.")

    @classmethod
    def paper(cls, *, seed: int = 0) -> Self:
        """What the published runs used: one layer of 128 trees of depth 4, with sparsemax and sparsemoid."""
        return cls(choice="sparsemax", bins="sparsemoid", seed=seed)

    @classmethod
    def popov(cls, *, seed: int = 0) -> Self:
        """NODE's own recipe, smaller: two dense layers of 128 trees of depth 6, with entmax15 and entmoid15.

        Its authors used 2048 trees in one layer, or 128 to 1024 in two to eight. This size trains in minutes
        on one core; more classes take longer, since the second layer sees every class's answer of every tree.
        """
        # Deviation: AdamW on the inputs as they are; NODE's authors use QHAdam, quantile-normalised inputs
        # and mean weights.
        return cls(depth=6, n_layers=2, seed=seed)

    @classmethod
    def from_weights(
        cls,
        weights: Mapping[str, Weights],
        *,
        choice: Literal["sparsemax", "entmax15"] = "sparsemax",
        bins: Literal["sparsemoid", "entmoid15"] = "sparsemoid",
    ) -> Self:
        """A NODE that was trained elsewhere; the activations default to those of the published runs.

        Args:
            weights: For every layer i, ``dense_block.<i>.`` with ``response`` ``(trees, classes, leaves)``,
                ``feature_selection_logits`` ``(features, trees, depth)``, ``feature_thresholds`` and
                ``log_temperatures`` ``(trees, depth)``, with any prefix; other names are ignored.
            choice: How it chooses features.
            bins: How it answers a question.
        """
        state = {}
        for name, values in weights.items():
            match = re.search(r"dense_block\.(\d+)\.(\w+)$", name)
            if match and match[2] in _PUBLISHED_NAMES:
                state[f"layers.{match[1]}.{_PUBLISHED_NAMES[match[2]]}"] = as_tensor(values)
        if "layers.0.thresholds" not in state:
            raise InvalidInputError(
                f"Expected weights such as `dense_block.0.feature_thresholds`; got {list(weights)}."
            )
        n_trees, depth = state["layers.0.thresholds"].shape
        n_layers = len({name.split(".")[1] for name in state})
        return cls(n_trees=n_trees, depth=depth, n_layers=n_layers, choice=choice, bins=bins).load_state(
            state
        )

    def _build(self, n_features: int, n_classes: int) -> nn.Module:
        widths = [n_features + i * self.n_trees * n_classes for i in range(self.n_layers)]
        choice, bins = _CHOICES[self.choice], _BINS[self.bins]
        return DenseTrees(
            [
                ODST(w, n_classes, n_trees=self.n_trees, depth=self.depth, choice=choice, bins=bins)
                for w in widths
            ]
        )

    def _sizes(self, state: Mapping[str, Tensor]) -> tuple[int, int]:
        return state["layers.0.selection"].shape[0], state["layers.0.response"].shape[1]

    def _prepare(self, module: nn.Module, x: Tensor) -> None:
        if isinstance(module, DenseTrees):
            module.initialise(x[:_FIRST_ROWS], self.seed, beta=self.init_beta, cutoff=self.init_cutoff)

    def _for_evaluation(self, module: nn.Module) -> nn.Module:
        evaluated = copy.deepcopy(module)
        for layer in evaluated.modules():
            if isinstance(layer, ODST):
                layer.freeze()
        return evaluated


def _quantile(values: Tensor, quantiles: Tensor) -> Tensor:
    """Linear-interpolated quantiles over the rows, one for each entry: ``(n, ...), (...) -> (...)``."""
    ordered = values.sort(dim=0).values
    position = quantiles * (len(values) - 1)
    low = position.floor().long()[None]
    high = position.ceil().long()[None]
    below, above = ordered.gather(0, low)[0], ordered.gather(0, high)[0]
    return torch.lerp(below, above, position - position.floor())
