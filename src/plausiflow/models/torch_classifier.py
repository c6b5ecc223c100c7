"""A user's torch module as a classifier. A user's torch module is called only here.

:func:`detect_output` finds out whether a module returns logits or probabilities. Values in [0, 1] are not
enough: the logits of a barely trained module are small, too. But probabilities stay in [0, 1] for rows far
from the training rows, where logits grow; and a single output of a linear map is a logit, even if its inputs
are bounded.
"""

from __future__ import annotations

import copy
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from plausiflow.core import Frozen
from plausiflow.errors import InvalidInputError, ModelError

_TOLERANCE = 1e-3
_FAR_SCALES = (-1e6, -10.0, 10.0, 1e6)
"""Factors by which rows are moved away from their mean, on both sides."""
_RESHAPING = ("NanToNum", "Cat", "Squeeze", "Unsqueeze", "View", "UnsafeView", "Select", "Slice", "Clone")
_LINEAR = ("Addmm", "Mm", "Addmv", "Mv")


@dataclass(eq=False, repr=False)
class TorchClassifier:
    """Any torch module as a classifier.

    The module is copied and not changed: it stays in its mode, and training it further does not change this
    classifier. The copy runs in evaluation mode, in the precision and on the device of its input.

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
            example = "For example: `TorchClassifier(module, n_classes=2)`."
            raise InvalidInputError(f"{'; '.join(problems)}. {example}")
        try:
            self._frozen = Frozen(copy.deepcopy(self.module))
        except Exception as error:
            raise ModelError(
                f"The module could not be copied ({type(error).__name__}: {error}). It may hold only "
                "parameters, buffers and plain values; call `detach()` on other tensors."
            ) from error

    def logits(self, x: Tensor) -> Tensor:
        """Return unnormalised log-probabilities, ``(n, d) -> (n, k)``; differentiable."""
        output = self._call(x)
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
            proba = torch.cat([1 - output, output], dim=1) if single else output
            return proba.clamp_min(torch.finfo(proba.dtype).tiny).log()
        if single:
            output = torch.cat([torch.zeros_like(output), output], dim=1)
        largest = torch.finfo(output.dtype).max ** 0.5  # infinite logits would make softmax NaN
        return output.nan_to_num(nan=torch.nan, posinf=largest, neginf=-largest)

    def __repr__(self) -> str:
        name = type(self.module).__name__
        return f"TorchClassifier({name}, n_classes={self.n_classes}, output={self.output!r})"

    def _call(self, x: Tensor) -> Tensor:
        try:
            output = self._frozen(x)(x)
        except Exception as error:
            raise ModelError(
                f"The module raised {type(error).__name__} for rows of shape {tuple(x.shape)} and {x.dtype}: "
                f"{error}. It must accept any number of rows, also in double precision: tensors that it "
                "creates must follow `x.dtype`. Call it on such rows to see."
            ) from error
        if not isinstance(output, Tensor):
            raise ModelError(
                f"The module must return a tensor; got {type(output).__name__}. Wrap it in a module that "
                "returns only the logits."
            )
        if x.requires_grad and torch.is_grad_enabled() and not output.requires_grad:
            raise ModelError(
                "The module's output has no gradient with respect to its input. "
                "Remove `detach()`, `torch.no_grad()`, `argmax` and numpy from its `forward`."
            )
        return output.to(x.dtype)

    def _check(self, output: Tensor, x: Tensor) -> None:
        output, finite = output.detach(), torch.isfinite(x).all(dim=1)
        invalid = output.isnan().any(dim=1) & finite
        if invalid.any():
            raise ModelError(
                f"The module returned NaN for {int(invalid.sum())} of {len(x)} rows although their values "
                f"are finite (first: row {int(invalid.nonzero()[0])}). Check logarithms, divisions and "
                "values far outside the training data."
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


def detect_output(model: TorchClassifier, rows: Tensor) -> Literal["logits", "probabilities"]:
    """Return whether a module, wrapped with ``output="logits"``, returns logits or probabilities.

    They are probabilities if all outputs are in [0, 1] (and sum to one, if there is more than one column),
    also for rows ten and a million times as far from the mean, and a single output does not come from a
    linear map. Inputs ``rows``, shape ``(n, d)``, are NaN where a cell is missing.
    """
    rows = rows.detach().requires_grad_()
    logits = model.logits(rows)
    if not _look_like_probabilities(logits) or (_is_single_output(logits) and _ends_in_linear_map(logits)):
        return "logits"
    mean = rows.nanmean(dim=0)
    for scale in _FAR_SCALES:
        try:
            if not _look_like_probabilities(model.logits(mean + scale * (rows - mean))):
                return "logits"
        except ModelError:  # a failure so far away says nothing
            continue
    return "probabilities"


def check_gradient(outputs: Tensor, x: Tensor) -> None:
    """Raise unless outputs ``(n,)`` or ``(n, k)`` have a finite, nonzero gradient at some row."""
    columns = outputs[:, None] if outputs.ndim == 1 else outputs
    weights = torch.arange(columns.shape[1]).to(columns) + 1
    (gradient,) = torch.autograd.grad((columns.nan_to_num() @ weights).sum(), x)
    if not (gradient.isfinite().all(dim=1) & (gradient != 0).any(dim=1)).any():
        raise ModelError(
            f"The module has no finite, nonzero gradient at any of {len(x)} training rows. "
            "Remove rounding, comparisons and `argmax` from its `forward`. If it is saturated, scale its "
            "input, and let it return logits instead of probabilities."
        )


def _is_single_output(logits: Tensor) -> bool:
    """Return whether the module has one output, to which a column of zeros was added."""
    return logits.shape[1] == 2 and not bool(logits[:, 0].any())


def _look_like_probabilities(logits: Tensor) -> bool:
    """Return whether all rows without NaN are in [0, 1] and sum to one."""
    known = logits.detach()[~logits.isnan().any(dim=1)]
    inside = ((known >= -_TOLERANCE) & (known <= 1 + _TOLERANCE)).all()
    sums = ((known.sum(dim=1) - 1).abs() <= _TOLERANCE).all()
    return bool(inside and (sums or _is_single_output(known)))


def _ends_in_linear_map(logits: Tensor) -> bool:
    """Return whether the last operation, apart from reshaping, is a matrix product."""
    node = logits.grad_fn
    while node is not None and node.name().startswith(_RESHAPING):
        parents = [parent for parent, _ in node.next_functions if parent is not None]
        node = parents[0] if len(parents) == 1 else None
    return node is not None and node.name().startswith(_LINEAR)
