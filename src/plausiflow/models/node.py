r"""NODE: ensembles of differentiable oblivious decision trees (Popov, Morozov and Babenko, ICLR 2020).

An oblivious tree of depth D applies the same D splits to every row, so its :math:`2^D` leaves are numbered by
the bits of the outcomes. Split k compares :math:`v_k = a_k \cdot x` with a threshold, where :math:`a_k` is a
sparse distribution over the features. The row goes to "above" with weight
:math:`\sigma_k = \sigma((v_k - b_k) e^{-\tau_k})`. The weight of a leaf is the product of :math:`\sigma_k`
where its bit k is 0 and :math:`1 - \sigma_k` where it is 1. The tree returns the weighted sum of its leaf
responses. Each layer also takes the outputs of all earlier trees. The logits are the mean over all trees.
``sparsemax`` and ``entmax15`` choose the features; their two-class versions weight the splits.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Self

import numpy as np
import torch
from entmax import entmax15, sparsemax
from torch import Tensor, nn

from plausiflow.core import Pullback, Training
from plausiflow.errors import InvalidInputError
from plausiflow.models.networks import NetworkClassifier, Weights, as_tensor

Activation = Callable[[Tensor], Tensor]

_PUBLISHED_NAMES = {
    "response": "response",
    "feature_selection_logits": "selection",
    "feature_thresholds": "thresholds",
    "log_temperatures": "log_temperatures",
}
_INIT_ROWS = 2000
_MAX_LEAVES = 2**20  # leaf weights that fit into a processor's cache
_GRADIENT_LEAVES = 2**18  # the same where all steps of the trees are kept for the gradient


def sparsemoid(difference: Tensor) -> Tensor:
    r"""Return the first entry of ``sparsemax([u, 0])``: :math:`\min(\max((u + 1) / 2, 0), 1)`, elementwise.

    It is flat outside [-1, 1], where its gradient is zero.

    Example:
        >>> sparsemoid(torch.tensor([-2.0, 0.0, 0.5]))
        tensor([0.0000, 0.5000, 0.7500])
    """
    return (0.5 * difference + 0.5).clamp(0, 1)


def entmoid15(difference: Tensor) -> Tensor:
    r"""Return the first entry of ``entmax15([u, 0])``, elementwise.

    It is :math:`\frac12 + \frac18 c \sqrt{8 - c^2}`, with c = u clipped to [-2, 2]: the condition
    :math:`(c / 2 - \tau)^2 + \tau^2 = 1` gives :math:`\tau = (c - \sqrt{8 - c^2}) / 4`. It is flat
    outside [-2, 2].

    Example:
        >>> entmoid15(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([0.0000, 0.5000, 1.0000])
    """
    clipped = difference.clamp(-2, 2)
    return 0.5 + 0.125 * clipped * (8 - clipped.square()).sqrt()


def _sparsemoid_slope(difference: Tensor) -> Tensor:
    """Return the derivative of :func:`sparsemoid`."""
    return (difference.abs() <= 1).to(difference).mul_(0.5)


def _entmoid15_slope(difference: Tensor) -> Tensor:
    r"""Return the derivative of :func:`entmoid15`, :math:`\frac14 (4 - c^2) / \sqrt{8 - c^2}`."""
    squared = difference.clamp(-2, 2).square_()
    return (4 - squared).mul_(0.25).div_((8 - squared).sqrt_())


_CHOICES: dict[str, Activation] = {"sparsemax": sparsemax, "entmax15": entmax15}
_BINS: dict[str, Activation] = {"sparsemoid": sparsemoid, "entmoid15": entmoid15}


_SLOPES: dict[Activation, Activation] = {sparsemoid: _sparsemoid_slope, entmoid15: _entmoid15_slope}


class ODST(nn.Module):
    """One layer of oblivious trees, ``(n, d) -> (n, trees, classes)``.

    ``choice`` maps scores to the feature weights of a split, over the last dimension; ``bins`` maps the
    scaled difference to the threshold to the weight in [0, 1] of the branch "above".
    """

    feature_weights: Tensor | None
    split_weights: Tensor
    split_biases: Tensor
    leaf_responses: Tensor

    def __init__(
        self, n_features: int, n_classes: int, n_trees: int, depth: int, choice: Activation, bins: Activation
    ) -> None:
        super().__init__()
        self.depth, self.choice, self.bins = depth, choice, bins
        self.response = nn.Parameter(torch.randn(n_trees, n_classes, 2**depth))
        self.selection = nn.Parameter(torch.rand(n_features, n_trees, depth))
        self.thresholds = nn.Parameter(torch.randn(n_trees, depth))
        self.log_temperatures = nn.Parameter(torch.randn(n_trees, depth))
        self.register_buffer("feature_weights", None, persistent=False)

    def freeze(self) -> None:
        """Compute the feature weights once, for a layer that is no longer trained."""
        self.feature_weights = self._feature_weights().detach()
        # The same for `value_and_grad`: splits first, then rows or features, then trees.
        sharpness = (-self.log_temperatures.detach().double()).exp()
        weights = self.feature_weights.double().view(-1, *sharpness.shape) * sharpness
        shifts = -self.thresholds.detach().double() * sharpness
        for name, value in (
            ("split_weights", weights.permute(2, 0, 1)),
            ("split_biases", shifts.T[:, None]),
            ("leaf_responses", self.response.detach().double().permute(2, 0, 1) / len(self.response)),
        ):
            self.register_buffer(name, value.contiguous(), persistent=False)

    def split_values(self, x: Tensor) -> Tensor:
        """Return the value that each split compares with its threshold, shape ``(n, trees, depth)``."""
        weights = self._feature_weights() if self.feature_weights is None else self.feature_weights
        return (x @ weights).view(len(x), *self.thresholds.shape)

    def leaf_weights(self, x: Tensor) -> Tensor:
        """Return the weight of every leaf, shape ``(n, trees, 2 ** depth)``; sums to one over a tree."""
        above = self.bins((self.split_values(x) - self.thresholds) * (-self.log_temperatures).exp())
        weights = torch.stack([above[..., 0], 1 - above[..., 0]], dim=-1)
        for k in range(1, self.depth):  # bit k of a leaf's number is the most significant so far
            branch = above[..., k, None]
            weights = torch.cat([weights * branch, weights * (1 - branch)], dim=-1)
        return weights

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of every tree, shape ``(n, trees, classes)``."""
        return torch.einsum("ntl,tcl->ntc", self.leaf_weights(x), self.response)

    def mean(self, x: Tensor) -> Tensor:
        """Return the mean over the trees, shape ``(n, classes)``, without computing each tree's output."""
        response = self.response.transpose(1, 2).flatten(0, 1)
        return self.leaf_weights(x).flatten(1) @ response / len(self.response)

    def value_and_grad(self, x: Tensor) -> tuple[Tensor, Pullback]:
        """Return :meth:`mean` of a frozen layer and its pullback in closed form.

        Leaf weights have the shape ``(2 ** depth, n, trees)``: each split doubles the first dimension.
        """
        differences = torch.baddbmm(self.split_biases, x.expand(self.depth, *x.shape), self.split_weights)
        above = self.bins(differences)
        steps = [torch.stack([above[0], 1 - above[0]])]
        for branch in above[1:]:
            weights = steps[-1]
            steps.append(weights.new_empty(2 * len(weights), *branch.shape))
            top, bottom = steps[-1].chunk(2)
            torch.sub(weights, torch.mul(weights, branch, out=top), out=bottom)

        def pullback(gradient: Tensor) -> Tensor:
            of_leaves = gradient @ self.leaf_responses.mT
            of_splits = torch.empty_like(above)
            for k in reversed(range(self.depth)):
                top, bottom = of_leaves.chunk(2)
                difference = top - bottom
                if k == 0:
                    of_splits[0] = difference[0]
                else:
                    torch.sum(steps[k - 1] * difference, dim=0, out=of_splits[k])
                    of_leaves = torch.addcmul(bottom, above[k], difference)
            of_splits *= _SLOPES[self.bins](differences)
            return torch.bmm(of_splits, self.split_weights.mT).sum(dim=0)

        return torch.bmm(steps[-1], self.leaf_responses).sum(dim=0), pullback

    @torch.no_grad()
    def initialise(self, x: Tensor, generator: np.random.Generator, *, beta: float, cutoff: float) -> None:
        """Set thresholds to quantiles of the split values, and temperatures so that rows reach the slope."""
        values = self.split_values(x)
        quantiles = torch.as_tensor(generator.beta(beta, beta, size=self.thresholds.shape)).to(values)
        self.thresholds.copy_(_quantile(values, quantiles))
        spread = _quantile((values - self.thresholds).abs(), torch.full_like(quantiles, min(1.0, cutoff)))
        self.log_temperatures.copy_((spread / max(1.0, cutoff) + 1e-6).log())

    def _feature_weights(self) -> Tensor:
        return self.choice(self.selection.flatten(1).T).T


class DenseTrees(nn.Module):
    """Layers of trees that take the input and all earlier outputs, ``(n, d) -> (n, classes)``."""

    def __init__(self, layers: list[ODST]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def odst_layers(self) -> list[ODST]:
        """Return the layers, first to last."""
        return [layer for layer in self.layers if isinstance(layer, ODST)]

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean over all trees; on a CPU, in batches that fit into its cache."""
        n_leaves = max(layer.response[:, 0].numel() for layer in self.odst_layers())
        batch_size = max(64, _MAX_LEAVES // n_leaves)
        if x.device.type != "cpu" or len(x) <= batch_size:
            return self._mean(x)
        return torch.cat([self._mean(rows) for rows in x.split(batch_size)])

    def value_and_grad(self, x: Tensor) -> tuple[Tensor, Pullback]:
        """Return the mean over the trees of a single frozen layer and its pullback, in closed form."""
        (layer,) = self.odst_layers()
        size = len(x) if x.is_cuda else max(1, _GRADIENT_LEAVES // layer.response[:, 0].numel())
        if len(x) <= size:
            return layer.value_and_grad(x)
        values, pullbacks = zip(*(layer.value_and_grad(rows) for rows in x.split(size)), strict=True)

        def pullback(gradient: Tensor) -> Tensor:
            parts = zip(pullbacks, gradient.split(size), strict=True)
            return torch.cat([pull(part) for pull, part in parts])

        return torch.cat(values), pullback

    def _mean(self, x: Tensor) -> Tensor:
        *earlier, last = self.odst_layers()
        total = x.new_zeros(())
        for layer in earlier:
            outputs = layer(x)
            total = total + outputs.mean(dim=1)
            x = torch.cat([x, outputs.flatten(1)], dim=1)
        return (total + last.mean(x)) / len(self.layers)

    @torch.no_grad()
    def initialise(self, x: Tensor, random_state: int, *, beta: float, cutoff: float) -> None:
        """Set the thresholds and temperatures of every layer from rows, first layer first."""
        generator = np.random.default_rng(random_state)
        for layer in self.odst_layers():
            layer.initialise(x, generator, beta=beta, cutoff=cutoff)
            x = torch.cat([x, layer(x).flatten(1)], dim=1)


@dataclass(kw_only=True, eq=False, repr=False)
class NODE(NetworkClassifier):
    """Neural oblivious decision ensembles.

    The default has the size of the paper's runs with the activations of NODE's authors. ``entmoid15`` is flat
    for fewer rows than ``sparsemoid``, so a gradient search finds a direction more often.

    Attributes:
        n_trees: Trees per layer.
        depth: Splits per tree.
        n_layers: Densely connected layers.
        choice: Activation that chooses the features of a split.
        bins: Activation that weights the two branches of a split.
        init_beta: Initial thresholds are Beta(b, b) quantiles of the training rows. One is uniform; larger
            values are closer to the median.
        init_cutoff: Share of the training rows whose scaled difference starts within [-1, 1]; above one, all
            rows start within a range that is larger by this factor.
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
            raise InvalidInputError("; ".join(problems) + ". The defaults of `NODE()` work for most tables.")

    def value_and_grad(self, x: Tensor) -> tuple[Tensor, Pullback]:
        """Return logits ``(n, k)`` and the function that maps output gradients ``(n, k)`` to ``(n, d)``.

        One layer has a closed form; more layers are left to autograd.
        """
        module = self._frozen_module(x)
        if type(self) is NODE and self.n_layers == 1 and isinstance(module, DenseTrees):
            with torch.no_grad():
                return module.value_and_grad(x)
        return self.value_and_grad_by_autograd(x)

    @classmethod
    def paper(cls, *, random_state: int = 0) -> Self:
        """Return the settings of the published runs: 128 trees of depth 4, with sparsemax and sparsemoid."""
        return cls(choice="sparsemax", bins="sparsemoid", random_state=random_state)

    @classmethod
    def popov(cls, *, random_state: int = 0) -> Self:
        """Return a smaller version of NODE's own settings: two layers of 128 trees of depth 6.

        The authors used 2048 trees in one layer, or 128 to 1024 in two to eight. This size trains in minutes
        on one core. More classes take longer, because the second layer takes one input per tree and class.
        """
        # Deviation: AdamW on unscaled inputs; NODE's authors use QHAdam, quantile-normalised inputs and
        # averaged weights.
        return cls(depth=6, n_layers=2, random_state=random_state)

    @classmethod
    def from_weights(
        cls,
        weights: Mapping[str, Weights],
        *,
        choice: Literal["sparsemax", "entmax15"] = "sparsemax",
        bins: Literal["sparsemoid", "entmoid15"] = "sparsemoid",
    ) -> Self:
        """Return a NODE with weights that were trained elsewhere.

        The activations default to those of the published runs.

        Args:
            weights: For every layer i, ``dense_block.<i>.`` with ``response`` ``(trees, classes, leaves)``,
                ``feature_selection_logits`` ``(features, trees, depth)``, ``feature_thresholds`` and
                ``log_temperatures`` ``(trees, depth)``, with any prefix. Other names are ignored.
            choice: Activation that chooses the features of a split.
            bins: Activation that weights the two branches of a split.
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
        node = cls(n_trees=n_trees, depth=depth, n_layers=n_layers, choice=choice, bins=bins)
        return node.load_state(state)

    def _build(self, n_features: int, n_classes: int) -> nn.Module:
        widths = [n_features + i * self.n_trees * n_classes for i in range(self.n_layers)]
        settings = (n_classes, self.n_trees, self.depth, _CHOICES[self.choice], _BINS[self.bins])
        return DenseTrees([ODST(width, *settings) for width in widths])

    def _sizes(self, state: Mapping[str, Tensor]) -> tuple[int, int]:
        return state["layers.0.selection"].shape[0], state["layers.0.response"].shape[1]

    def _prepare(self, module: nn.Module, x: Tensor) -> None:
        if isinstance(module, DenseTrees):
            module.initialise(x[:_INIT_ROWS], self.random_state, beta=self.init_beta, cutoff=self.init_cutoff)

    def _for_evaluation(self, module: nn.Module) -> nn.Module:
        evaluated = copy.deepcopy(module)
        for layer in evaluated.modules():
            if isinstance(layer, ODST):
                layer.freeze()
        return evaluated


def _quantile(values: Tensor, quantiles: Tensor) -> Tensor:
    """Return linearly interpolated quantiles over the rows, one per entry: ``(n, ...), (...) -> (...)``."""
    ordered = values.sort(dim=0).values
    position = quantiles * (len(values) - 1)
    below, above = (ordered.gather(0, at.long()[None])[0] for at in (position.floor(), position.ceil()))
    return torch.lerp(below, above, position - position.floor())
