"""The two plain networks: logistic regression, and a perceptron with a few hidden layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from plausiflow.core import Pullback, Training
from plausiflow.errors import ShapeError
from plausiflow.models.base import NetworkClassifier, Weights, as_tensor


class _Perceptron(NetworkClassifier):
    """Affine maps, with ReLU between them: its gradient is written down, and needs no graph."""

    def value_and_grad(self, x: Tensor) -> tuple[Tensor, Pullback]:
        """Logits ``(n, k)``, and what turns shares of them ``(n, k)`` into gradients ``(n, d)``."""
        if type(self) not in (LinearClassifier, MLPClassifier):  # what is made of them may compute otherwise
            return _by_graph(self.logits, x)
        module = self._evaluated(x)
        layers = module if isinstance(module, nn.Sequential) else [module]
        maps = [layer for layer in layers if isinstance(layer, nn.Linear)]
        hidden: list[Tensor] = []
        for layer in maps[:-1]:
            hidden.append(F.linear(hidden[-1] if hidden else x, layer.weight, layer.bias).relu_())
        logits = F.linear(hidden[-1] if hidden else x, maps[-1].weight, maps[-1].bias)

        def pulled_back(shares: Tensor) -> Tensor:
            gradient = shares @ maps[-1].weight
            for layer, own in zip(reversed(maps[:-1]), reversed(hidden), strict=True):
                gradient = torch.ops.aten.threshold_backward(gradient, own, 0) @ layer.weight
            return gradient

        return logits, pulled_back


@dataclass(kw_only=True, eq=False, repr=False)
class LinearClassifier(_Perceptron):
    r"""Logistic regression, with any number of classes: logits :math:`z = W x + b`.

    Example:
        >>> classifier = LinearClassifier.from_weights(torch.tensor([[2.0, 0.0]]), torch.tensor([-1.0]))
        >>> classifier.logits(torch.tensor([[1.0, 5.0]]))
        tensor([[0., 1.]])
    """

    training: Training = field(
        default_factory=lambda: Training(learning_rate=3e-2, batch_size=256, patience=20)
    )

    def _training(self, n_rows: int) -> Training:
        """Patient where an epoch is a single step: the loss may rise before the weights turn, then falls."""
        few = n_rows <= self.training.batch_size
        return replace(self.training, patience=max(self.training.patience, 100)) if few else self.training

    @classmethod
    def from_weights(cls, weight: Weights, bias: Weights) -> Self:
        """Logistic regression that was trained elsewhere.

        Args:
            weight: Shape ``(k, d)``; one row is a sigmoid model, whose logits become the two columns
                ``[0, w x + b]``.
            bias: Shape ``(k,)``.
        """
        weight, bias = two_columns(as_tensor(weight), as_tensor(bias))
        return cls().load_state({"weight": weight, "bias": bias})

    @property
    def weight(self) -> Tensor:
        """W, shape ``(k, d)``."""
        return self.state()["weight"]

    @property
    def bias(self) -> Tensor:
        """b, shape ``(k,)``."""
        return self.state()["bias"]

    def _build(self, n_features: int, n_classes: int) -> nn.Module:
        return nn.Linear(n_features, n_classes)

    def _sizes(self, state: Mapping[str, Tensor]) -> tuple[int, int]:
        return state["weight"].shape[1], state["weight"].shape[0]


@dataclass(kw_only=True, eq=False, repr=False)
class MLPClassifier(_Perceptron):
    """A perceptron: for each hidden layer an affine map, dropout and ReLU, then an affine map to the logits.

    Attributes:
        hidden: Sizes of the hidden layers.
        dropout: Share of hidden values dropped while training.

    Example:
        >>> MLPClassifier(hidden=(64, 64))
        MLPClassifier(seed=0, hidden=(64, 64), dropout=0.2; not fitted)
    """

    training: Training = field(
        default_factory=lambda: Training(learning_rate=3e-3, batch_size=256, patience=20, weight_decay=1e-4)
    )
    hidden: tuple[int, ...] = (256, 256, 256)
    dropout: float = 0.2

    @classmethod
    def from_weights(cls, weights: Sequence[Weights], biases: Sequence[Weights]) -> Self:
        """A perceptron that was trained elsewhere.

        Args:
            weights: Of each affine map, shape ``(out, in)``, the one to the logits last; a last map with one
                row is a sigmoid model, whose logits become two columns.
            biases: Of each affine map, shape ``(out,)``.
        """
        if len(weights) != len(biases) or not weights:
            raise ShapeError(
                f"Every affine map needs a weight and a bias; got {len(weights)} weights and {len(biases)} "
                "biases."
            )
        maps = [(as_tensor(weight), as_tensor(bias)) for weight, bias in zip(weights, biases, strict=True)]
        maps[-1] = two_columns(*maps[-1])
        state = {}
        for i, (weight, bias) in enumerate(maps):
            state[f"{3 * i}.weight"], state[f"{3 * i}.bias"] = weight, bias
        return cls(hidden=tuple(len(weight) for weight, _ in maps[:-1])).load_state(state)

    def _build(self, n_features: int, n_classes: int) -> nn.Module:
        sizes = (n_features, *self.hidden)
        layers: list[nn.Module] = []
        for i in range(len(self.hidden)):
            layers += [nn.Linear(sizes[i], sizes[i + 1]), nn.Dropout(self.dropout), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(sizes[-1], n_classes))

    def _sizes(self, state: Mapping[str, Tensor]) -> tuple[int, int]:
        return state["0.weight"].shape[1], state[f"{3 * len(self.hidden)}.weight"].shape[0]


def _by_graph(logits: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Pullback]:
    with torch.enable_grad():
        leaf = x.detach().requires_grad_(True)
        values = logits(leaf)
    return values.detach(), lambda shares: torch.autograd.grad(values, leaf, shares, retain_graph=True)[0]


def two_columns(weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The affine map to logits; a sigmoid's single row gets a row of zeros before it."""
    if weight.ndim != 2 or bias.shape != weight.shape[:1]:
        raise ShapeError(
            f"`weight` must have shape (k, d) and `bias` shape (k,); got {tuple(weight.shape)} and "
            f"{tuple(bias.shape)}. scikit-learn's `coef_` and `intercept_` have these shapes."
        )
    if len(weight) > 1:
        return weight, bias
    return torch.cat([torch.zeros_like(weight), weight]), torch.cat([torch.zeros_like(bias), bias])
