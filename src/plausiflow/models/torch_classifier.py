"""Models that users bring, as classifiers. This is the one place where a user's torch module is called."""

from __future__ import annotations

import copy
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from plausiflow.core import Frozen
from plausiflow.errors import InvalidInputError, ModelError

_TOLERANCE = 1e-3


@dataclass(eq=False, repr=False)
class TorchClassifier:
    """Any torch module as a classifier.

    The module is copied when it is wrapped and left alone: it stays in its mode, and training it further does
    not change this classifier. The copy runs in evaluation mode, in the precision and on the device of its
    input.

    Attributes:
        module: The model, ``(n, d) -> (n, k)``; with two classes also ``(n, 1)`` or ``(n,)``, the logit or
            the probability of class 1.
        n_classes: Number of classes.
        output: Whether the module returns logits or probabilities.

    Example:
        >>> module = nn.Sequential(nn.Linear(3, 1), nn.Sigmoid())
        >>> classifier = TorchClassifier(module, n_classes=2, output="probabilities")
        >>> classifier.logits(torch.zeros(5, 3)).shape
        torch.Size([5, 2])
    """

    module: nn.Module
    _: KW_ONLY
    n_classes: int
    output: Literal["logits", "probabilities"] = "logits"
    _frozen: Frozen[nn.Module] = field(init=False)

    differentiable = True

    def __post_init__(self) -> None:
        problems = []
        if not isinstance(self.module, nn.Module):
            problems.append(f"`module` must be a torch.nn.Module; got {type(self.module).__name__}")
        if self.n_classes < 2:
            problems.append(
                "`n_classes` must be at least 2, also for a module with a single output; got "
                f"{self.n_classes}"
            )
        if self.output not in ("logits", "probabilities"):
            problems.append(f'`output` must be "logits" or "probabilities"; got {self.output!r}')
        if problems:
            raise InvalidInputError(
                "; ".join(problems) + ". For example: `TorchClassifier(module, n_classes=2)`."
            )
        try:
            self._frozen = Frozen(copy.deepcopy(self.module))
        except Exception as error:
            raise ModelError(
                f"The module could not be copied ({type(error).__name__}: {error}). "
                "Let it hold parameters, buffers and plain values only, and call `detach()` on other tensors."
            ) from error

    def logits(self, x: Tensor) -> Tensor:
        """Unnormalised log-probabilities, ``(n, d) -> (n, k)``; keeps the graph."""
        output = self._called(x)
        if output.ndim == 1 and self.n_classes == 2:
            output = output[:, None]
        single = self.n_classes == 2 and output.shape[1:] == (1,)
        if output.shape != (len(x), 1 if single else self.n_classes):
            also = f" or ({len(x)}, 1)" if self.n_classes == 2 else ""
            raise ModelError(
                f"The module must return shape ({len(x)}, {self.n_classes}){also} for {len(x)} rows; got "
                f"{tuple(output.shape)}. Set `n_classes` to the number of its outputs, or wrap it in a "
                "module that returns one row per row."
            )
        self._check(output, x)
        if self.output == "probabilities":
            return _log_probabilities(output, single)
        if single:
            output = torch.cat([torch.zeros_like(output), output], dim=1)
        largest = torch.finfo(output.dtype).max ** 0.5  # infinite logits would make softmax NaN
        return output.nan_to_num(nan=torch.nan, posinf=largest, neginf=-largest)

    def __repr__(self) -> str:
        name = type(self.module).__name__
        return f"TorchClassifier({name}, n_classes={self.n_classes}, output={self.output!r})"

    def _called(self, x: Tensor) -> Tensor:
        try:
            output = self._frozen(x)(x)
        except Exception as error:
            raise ModelError(
                f"The module raised {type(error).__name__} for rows of shape {tuple(x.shape)} and {x.dtype}: "
                f"{error}. Call it on such rows by hand; it must take any number of rows, and double "
                "precision too (tensors that it makes itself must follow `x.dtype`)."
            ) from error
        if not isinstance(output, Tensor):
            raise ModelError(
                f"The module must return a tensor; got {type(output).__name__}. Wrap it in a module that "
                "returns the logits only."
            )
        if x.requires_grad and torch.is_grad_enabled() and not output.requires_grad:
            raise ModelError(
                "The module's output has no gradient with respect to its input. "
                "Remove `detach()`, `torch.no_grad()`, `argmax` and numpy from its `forward`."
            )
        return output.to(x.dtype)

    def _check(self, output: Tensor, x: Tensor) -> None:
        output, finite = output.detach(), torch.isfinite(x).all(dim=1)
        bad = output.isnan().any(dim=1) & finite
        if bad.any():
            raise ModelError(
                f"The module returned NaN for {int(bad.sum())} of {len(x)} rows although their values are "
                f"finite (first: row {int(bad.nonzero()[0])}). Look for logarithms, divisions and values far "
                "outside the training data."
            )
        if self.output == "logits":
            return
        output = output[finite]
        outside = (output < -_TOLERANCE) | (output > 1 + _TOLERANCE)
        if outside.any() or (output.shape[1] > 1 and ((output.sum(dim=1) - 1).abs() > _TOLERANCE).any()):
            raise ModelError(
                "The module must return probabilities, in [0, 1] and summing to one over the classes; got "
                f"values from {float(output.min()):.4g} to {float(output.max()):.4g}. "
                'Use `output="logits"` for a module that ends without sigmoid or softmax.'
            )


def _log_probabilities(proba: Tensor, single: bool) -> Tensor:
    if single:
        proba = torch.cat([1 - proba, proba], dim=1)
    return proba.clamp_min(torch.finfo(proba.dtype).tiny).log()
