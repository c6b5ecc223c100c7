"""Classifiers that plausiflow trains: their base class, logistic regression and a multilayer perceptron."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from plausiflow.core import (
    Frozen,
    Parameters,
    Pullback,
    Training,
    check_rows,
    cross_entropy,
    local_seed,
    train,
)
from plausiflow.errors import InvalidInputError, NotFittedError, ShapeError

Weights = Tensor | np.ndarray
"""Weights that were trained elsewhere."""


def check_columns(x: Tensor, n_features: int, expected: str) -> None:
    """Raise unless ``x`` is a float tensor ``(n, n_features)``; ``expected`` names these columns."""
    if x.ndim != 2 or x.shape[1] != n_features:
        raise ShapeError(
            f"`x` must have shape (n, {n_features}), {expected}; got {tuple(x.shape)}. A single row needs "
            "`x[None]`."
        )
    if not x.is_floating_point():
        raise InvalidInputError(f"`x` must be a float tensor; got {x.dtype}. Convert it with `x.double()`.")


@dataclass(kw_only=True, eq=False, repr=False)
class NetworkClassifier(Parameters, ABC):
    """A neural network that plausiflow trains. Its fields are its settings.

    Attributes:
        training: Training settings.
        random_state: Seed of ``fit``: initial weights, validation split, batches and dropout.
        n_features: Number of input columns; 0 before ``fit``.
        n_classes: Number of classes; 0 before ``fit``.
        module_: The trained module; None before ``fit``. ``logits`` evaluates frozen copies of it.
    """

    training: Training = field(default_factory=Training)
    random_state: int = 0
    n_features: int = field(default=0, init=False)
    n_classes: int = field(default=0, init=False)
    module_: nn.Module | None = field(default=None, init=False)
    _frozen: Frozen[nn.Module] | None = field(default=None, init=False)

    differentiable = True

    @abstractmethod
    def _build(self, n_features: int, n_classes: int) -> nn.Module:
        """Return a new module, ``(n, d) -> (n, k)`` logits, initialised from torch's global generator."""

    @abstractmethod
    def _sizes(self, state: Mapping[str, Tensor]) -> tuple[int, int]:
        """Return the numbers of features and classes of a module with this state."""

    def _prepare(self, module: nn.Module, x: Tensor) -> None:
        """Initialise weights from the training rows."""

    def _training(self, n_rows: int) -> Training:
        """Return the training settings for this number of rows."""
        return self.training

    def _for_evaluation(self, module: nn.Module) -> nn.Module:
        """Return the module to evaluate, if it differs from the trained one."""
        return module

    def fit(self, x: Tensor, y: Tensor, *, n_classes: int | None = None) -> Self:
        """Train on rows and their classes, in the precision and on the device of the rows.

        Args:
            x: Rows, shape ``(n, d)``.
            y: Classes numbered from 0, shape ``(n,)``, long.
            n_classes: Number of classes, if the last ones may be missing from ``y``.
        """
        check_rows(x, y, n_classes=n_classes)
        if bool((y == y[0]).all()):
            raise InvalidInputError(
                f"`y` must hold at least two classes; all {len(y)} rows are of class {int(y[0])}. Fit on "
                "rows of every class, for example with a split that is stratified by class."
            )
        n_features, n_classes = x.shape[1], n_classes or int(y.max()) + 1
        with local_seed(self.random_state, x.device):
            module = self._build(n_features, n_classes).to(dtype=x.dtype, device=x.device)
        train(
            module,
            lambda rows, classes: cross_entropy(module(rows), classes),
            x,
            y,
            settings=self._training(len(x)),
            random_state=self.random_state,
            label=type(self).__name__,
            prepare=lambda rows, _: self._prepare(module, rows),
        )
        return self._adopt(module, n_features, n_classes)

    def logits(self, x: Tensor) -> Tensor:
        """Return unnormalised log-probabilities, ``(n, d) -> (n, k)``, in x's dtype and on its device.

        The result is differentiable with respect to ``x``.
        """
        logits: Tensor = self._frozen_module(x)(x)
        return logits

    def value_and_grad_by_autograd(self, x: Tensor) -> tuple[Tensor, Pullback]:
        """Return logits ``(n, k)`` and their pullback from a graph."""
        with torch.enable_grad():
            leaf = x.detach().requires_grad_(True)
            logits = self.logits(leaf)
        return logits.detach(), lambda output_gradient: torch.autograd.grad(
            logits, leaf, output_gradient, retain_graph=True
        )[0]

    def _frozen_module(self, x: Tensor) -> nn.Module:
        """Check the rows and return the frozen module in their dtype and on their device."""
        if self._frozen is None:
            raise _not_fitted(self)
        check_columns(x, self.n_features, "as when this classifier was fitted")
        known = self._frozen.copies.get((x.dtype, x.device))
        return self._frozen(x) if known is None else known

    def state(self) -> dict[str, Tensor]:
        """Return a copy of the weights by name, for ``load_state``."""
        if self.module_ is None:
            raise _not_fitted(self)
        return {name: value.detach().clone() for name, value in self.module_.state_dict().items()}

    def load_state(self, state: Mapping[str, Tensor]) -> Self:
        """Load weights that ``state`` of a classifier with the same settings returned."""
        try:
            n_features, n_classes = self._sizes(state)
        except (KeyError, IndexError) as error:
            raise _wrong_state(self, [f"{error} cannot be read"]) from error
        with torch.device("meta"):  # shapes without memory, which a wrong state could ask for
            module = self._build(n_features, n_classes)
        expected = {name: tuple(value.shape) for name, value in module.state_dict().items()}
        problems = [f"`{name}` is missing" for name in expected if name not in state]
        problems += [f"`{name}` is not known" for name in state if name not in expected]
        problems += [
            f"`{name}` must have shape {shape}, got {tuple(state[name].shape)}"
            for name, shape in expected.items()
            if name in state and tuple(state[name].shape) != shape
        ]
        if problems:
            raise _wrong_state(self, problems)
        like = next(iter(state.values()))
        with local_seed(self.random_state, like.device):
            module = self._build(n_features, n_classes).to(dtype=like.dtype, device=like.device)
        module.load_state_dict(state)
        return self._adopt(module, n_features, n_classes)

    def __repr__(self) -> str:
        settings = [f.name for f in fields(self) if f.init and f.name != "training"]
        size = f"{self.n_features} features, {self.n_classes} classes" if self.n_classes else "not fitted"
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in settings)
        return f"{type(self).__name__}({values}; {size})"

    def _adopt(self, module: nn.Module, n_features: int, n_classes: int) -> Self:
        self.module_, self.n_features, self.n_classes = module.eval(), n_features, n_classes
        module.zero_grad(set_to_none=True)
        self._frozen = Frozen(self._for_evaluation(module))
        return self


class _AffineReLU(NetworkClassifier):
    """Affine maps with ReLU between them; the gradient is computed in closed form, without autograd."""

    def value_and_grad(self, x: Tensor) -> tuple[Tensor, Pullback]:
        """Return logits ``(n, k)`` and the function that maps output gradients ``(n, k)`` to ``(n, d)``."""
        if type(self) not in (LinearClassifier, MLPClassifier):  # a subclass may override `logits`
            return self.value_and_grad_by_autograd(x)
        module = self._frozen_module(x)
        layers = module if isinstance(module, nn.Sequential) else [module]
        maps = [layer for layer in layers if isinstance(layer, nn.Linear)]
        activations = [x]
        for layer in maps[:-1]:
            activations.append(F.linear(activations[-1], layer.weight, layer.bias).relu_())
        logits = F.linear(activations[-1], maps[-1].weight, maps[-1].bias)
        if len(maps) == 1:
            return logits, partial(torch.matmul, other=maps[0].weight)

        def pullback(output_gradient: Tensor) -> Tensor:
            gradient = output_gradient @ maps[-1].weight
            for layer, activation in zip(reversed(maps[:-1]), reversed(activations[1:]), strict=True):
                gradient = torch.ops.aten.threshold_backward(gradient, activation, 0) @ layer.weight
            return gradient

        return logits, pullback


@dataclass(kw_only=True, eq=False, repr=False)
class LinearClassifier(_AffineReLU):
    r"""Logistic regression with two or more classes: logits :math:`z = W x + b`.

    Example:
        >>> classifier = LinearClassifier.from_weights(torch.tensor([[2.0, 0.0]]), torch.tensor([-1.0]))
        >>> classifier.logits(torch.tensor([[1.0, 5.0]]))
        tensor([[0., 1.]])
    """

    training: Training = field(
        default_factory=lambda: Training(learning_rate=3e-2, batch_size=256, patience=20)
    )

    def _training(self, n_rows: int) -> Training:
        """Raise the patience where an epoch is a single step: the loss may rise before it falls."""
        single_batch = n_rows <= self.training.batch_size
        patience = max(self.training.patience, 100)
        return replace(self.training, patience=patience) if single_batch else self.training

    @classmethod
    def from_weights(cls, weight: Weights, bias: Weights) -> Self:
        """Return a classifier with weights that were trained elsewhere.

        Args:
            weight: Shape ``(k, d)``. A single row is a sigmoid model; its logits become the two columns
                ``[0, w x + b]``.
            bias: Shape ``(k,)``.
        """
        weight, bias = _with_two_outputs(as_tensor(weight), as_tensor(bias))
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
class MLPClassifier(_AffineReLU):
    """A multilayer perceptron: each hidden layer is an affine map, dropout and ReLU.

    Attributes:
        hidden: Sizes of the hidden layers.
        dropout: Dropout probability during training.

    Example:
        >>> MLPClassifier(hidden=(64, 64))
        MLPClassifier(random_state=0, hidden=(64, 64), dropout=0.2; not fitted)
    """

    training: Training = field(
        default_factory=lambda: Training(learning_rate=3e-3, batch_size=256, patience=20, weight_decay=1e-4)
    )
    hidden: tuple[int, ...] = (256, 256, 256)
    dropout: float = 0.2

    @classmethod
    def from_weights(cls, weights: Sequence[Weights], biases: Sequence[Weights]) -> Self:
        """Return a classifier with weights that were trained elsewhere.

        Args:
            weights: Weights of each affine map, shape ``(out, in)``, the output layer last. An output layer
                with one row is a sigmoid model; its logits become two columns.
            biases: Biases of each affine map, shape ``(out,)``.
        """
        if len(weights) != len(biases) or not weights:
            raise ShapeError(
                f"Every affine map needs a weight and a bias; got {len(weights)} weights and {len(biases)} "
                "biases."
            )
        maps = [(as_tensor(weight), as_tensor(bias)) for weight, bias in zip(weights, biases, strict=True)]
        maps[-1] = _with_two_outputs(*maps[-1])
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


def as_tensor(values: Weights) -> Tensor:
    """Return a copy of an array or tensor as a tensor of the same precision."""
    return torch.as_tensor(values).detach().clone()


def _with_two_outputs(weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Check an output layer; put a row of zeros before the single row of a sigmoid model."""
    if weight.ndim != 2 or bias.shape != weight.shape[:1]:
        raise ShapeError(
            f"`weight` must have shape (k, d) and `bias` shape (k,); got {tuple(weight.shape)} and "
            f"{tuple(bias.shape)}. scikit-learn's `coef_` and `intercept_` have these shapes."
        )
    if len(weight) > 1:
        return weight, bias
    return torch.cat([torch.zeros_like(weight), weight]), torch.cat([torch.zeros_like(bias), bias])


def _not_fitted(classifier: NetworkClassifier) -> NotFittedError:
    name = type(classifier).__name__
    return NotFittedError(
        f"This {name} has no weights yet. Call `fit(x, y)` or `load_state(state)`, or create it with "
        f"`{name}.from_weights`."
    )


def _wrong_state(classifier: NetworkClassifier, problems: list[str]) -> InvalidInputError:
    return InvalidInputError(
        f"These are not the weights of {classifier!r}: {'; '.join(problems)}. "
        "Create the classifier with the settings it had when its `state()` was saved."
    )
