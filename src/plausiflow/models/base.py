"""What our own networks share: training, frozen evaluation and state.

A subclass of ``NetworkClassifier`` says which module it is and how the number of features and classes is read
off its weights; everything else is here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from plausiflow.core import Frozen, Training, check_rows, cross_entropy, local_seed, train
from plausiflow.errors import InvalidInputError, NotFittedError, ShapeError

Weights = Tensor | np.ndarray
"""Weights that somebody else trained."""


def check_columns(x: Tensor, n_features: int, which: str) -> None:
    """Check that rows are floats, with so many columns.

    Args:
        x: Rows.
        n_features: How many columns they must have.
        which: What these are, for the message.

    Raises:
        ShapeError: They have another shape.
        InvalidInputError: They are not floats.
    """
    if x.ndim != 2 or x.shape[1] != n_features:
        raise ShapeError(
            f"`x` must have shape (n, {n_features}), {which}; got {tuple(x.shape)}. A single row needs "
            "`x[None]`."
        )
    if not x.is_floating_point():
        raise InvalidInputError(f"`x` must be a float tensor; got {x.dtype}. Convert it with `x.double()`.")


@dataclass(kw_only=True, eq=False, repr=False)
class NetworkClassifier(ABC):
    """A network that is trained here; its fields are its settings.

    Attributes:
        training: How it is trained.
        seed: All randomness of ``fit``: the first weights, the held-out rows, the batches and dropout.
        n_features: Number of columns it was fitted on; zero before.
        n_classes: Number of classes it decides between; zero before ``fit``.
        module_: The trained module; none before ``fit``. It is never evaluated itself: ``logits`` uses frozen
            copies.
    """

    training: Training = field(default_factory=Training)
    seed: int = 0
    n_features: int = field(default=0, init=False)
    n_classes: int = field(default=0, init=False)
    module_: nn.Module | None = field(default=None, init=False)
    _frozen: Frozen[nn.Module] | None = field(default=None, init=False)

    differentiable = True

    @abstractmethod
    def _build(self, n_features: int, n_classes: int) -> nn.Module:
        """A new module, ``(n, d) -> (n, k)`` logits, first weights drawn from torch's global generator."""

    @abstractmethod
    def _sizes(self, state: Mapping[str, Tensor]) -> tuple[int, int]:
        """Numbers of features and classes of the module that has this state."""

    def _prepare(self, module: nn.Module, x: Tensor) -> None:  # noqa: B027  (most modules need nothing)
        """Set first weights from the rows trained on."""

    def _training(self, n_rows: int) -> Training:
        """How it is trained on so many rows."""
        return self.training

    def _for_evaluation(self, module: nn.Module) -> nn.Module:
        """The module that is evaluated, where that differs from the one that is trained."""
        return module

    def fit(self, x: Tensor, y: Tensor, *, n_classes: int | None = None) -> Self:
        """Train on rows and their classes, in the precision and on the device of the rows.

        Args:
            x: Rows, shape ``(n, d)``.
            y: Classes numbered from 0, shape ``(n,)``, long.
            n_classes: Number of classes, where the last ones may be missing from ``y``.
        """
        check_rows(x, y, n_classes=n_classes)
        if bool((y == y[0]).all()):
            raise InvalidInputError(
                f"`y` must hold at least two classes for a classifier to tell apart; all {len(y)} rows are "
                f"of class {int(y[0])}. Fit on rows of every class: look at how the rows were selected, or "
                "stratify the split by class."
            )
        n_features, n_classes = x.shape[1], n_classes or int(y.max()) + 1
        with local_seed(self.seed, x.device):
            module = self._build(n_features, n_classes).to(dtype=x.dtype, device=x.device)
        train(
            module,
            lambda rows, classes: cross_entropy(module(rows), classes),
            x,
            y,
            settings=self._training(len(x)),
            seed=self.seed,
            label=type(self).__name__,
            prepare=lambda rows, _: self._prepare(module, rows),
        )
        return self._adopt(module, n_features, n_classes)

    def logits(self, x: Tensor) -> Tensor:
        """Unnormalised log-probabilities, ``(n, d) -> (n, k)``.

        In x's dtype and on its device; keeps the graph.
        """
        logits: Tensor = self._evaluated(x)(x)
        return logits

    def _evaluated(self, x: Tensor) -> nn.Module:
        """The frozen module for these rows, after a look at them."""
        if self._frozen is None:
            raise _not_fitted(self)
        if x.ndim != 2 or x.shape[1] != self.n_features:
            raise ShapeError(
                f"`x` must have shape (n, {self.n_features}), as when this classifier was fitted; got "
                f"{tuple(x.shape)}. Encode the rows as the training data was encoded; a single row needs "
                "`x[None]`."
            )
        if not x.is_floating_point():
            raise InvalidInputError(
                f"`x` must be a float tensor; got {x.dtype}. Convert it with `x.double()`."
            )
        return self._frozen(x)

    def state(self) -> dict[str, Tensor]:
        """The weights by name, copied; ``load_state`` takes them back."""
        if self.module_ is None:
            raise _not_fitted(self)
        return {name: value.detach().clone() for name, value in self.module_.state_dict().items()}

    def load_state(self, state: Mapping[str, Tensor]) -> Self:
        """Take over weights that ``state`` returned, from a classifier with the same settings."""
        try:
            n_features, n_classes = self._sizes(state)
        except (KeyError, IndexError) as error:
            raise _foreign_state(self, [f"{error} cannot be read"]) from error
        like = next(iter(state.values()))
        with local_seed(self.seed, like.device):
            module = self._build(n_features, n_classes).to(dtype=like.dtype, device=like.device)
        expected = {name: tuple(value.shape) for name, value in module.state_dict().items()}
        problems = [f"`{name}` is missing" for name in expected if name not in state]
        problems += [f"`{name}` is not known" for name in state if name not in expected]
        problems += [
            f"`{name}` must have shape {shape}, got {tuple(state[name].shape)}"
            for name, shape in expected.items()
            if name in state and tuple(state[name].shape) != shape
        ]
        if problems:
            raise _foreign_state(self, problems)
        module.load_state_dict(state)
        return self._adopt(module, n_features, n_classes)

    def __repr__(self) -> str:
        settings = [f.name for f in fields(self) if f.init and f.name != "training"]
        size = (
            "not fitted" if self.module_ is None else f"{self.n_features} features, {self.n_classes} classes"
        )
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in settings)
        return f"{type(self).__name__}({values}; {size})"

    def _adopt(self, module: nn.Module, n_features: int, n_classes: int) -> Self:
        self.module_, self.n_features, self.n_classes = module.eval(), n_features, n_classes
        module.zero_grad(set_to_none=True)
        self._frozen = Frozen(self._for_evaluation(module))
        return self


def as_tensor(values: Weights) -> Tensor:
    """Own copy of an array or tensor, as a tensor of the same precision."""
    return torch.as_tensor(values).detach().clone()


def _not_fitted(classifier: NetworkClassifier) -> NotFittedError:
    name = type(classifier).__name__
    return NotFittedError(
        f"This {name} has no weights yet. Call `fit(x, y)` or `load_state(state)`, or make it with "
        f"`{name}.from_weights`."
    )


def _foreign_state(classifier: NetworkClassifier, problems: list[str]) -> InvalidInputError:
    return InvalidInputError(
        f"These are not the weights of {classifier!r}: {'; '.join(problems)}. "
        "Make the classifier with the settings it had when its `state()` was saved."
    )
