"""What a number may be computed by: products, ratios, squares and logarithms, for arrays and for tensors."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from plausiflow.tables import FloatArray

Operation: TypeAlias = Literal["*", "/", "square", "log", "log1p"]

FUNCTIONS: tuple[Operation, ...] = ("square", "log", "log1p")
"""Operations of one number; the others are of two."""
OPERATIONS: tuple[Operation, ...] = ("*", "/", *FUNCTIONS)
_TINY, _LARGEST_LOG = 1e-12, 700.0


def computed(operation: Operation, first: FloatArray, second: FloatArray) -> FloatArray:
    """Return the results of an operation; infinite or NaN where it has none."""
    with np.errstate(all="ignore"):
        match operation:
            case "*":
                return first * second
            case "/":
                return first / second
            case "square":
                return first * first
            case "log":
                return np.log(first)
        return np.log1p(first)


def computed_tensor(operation: Operation, first: Tensor, second: Tensor) -> Tensor:
    """Return the results of an operation, always finite; keeps the graph."""
    match operation:
        case "*":
            return first * second
        case "/":
            return first / _not_zero(second)
        case "square":
            return first * first
        case "log":
            return torch.log(first.clamp_min(_TINY))
    return torch.log1p(first.clamp_min(_TINY - 1))


def solved_first(operation: Operation, total: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Return the first number with which an operation has a result, on the side of zero where it is."""
    match operation:
        case "*":
            return total / _not_zero(second)
        case "/":
            return total * second
        case "square":
            return torch.copysign(total.clamp_min(0).sqrt(), first)
        case "log":
            return torch.exp(total.clamp_max(_LARGEST_LOG))
    return torch.expm1(total.clamp_max(_LARGEST_LOG))


def solved_second(operation: Operation, total: Tensor, first: Tensor) -> Tensor:
    """Return the second number with which a product or a ratio has a result."""
    return first / _not_zero(total) if operation == "/" else total / _not_zero(first)


def _not_zero(values: Tensor) -> Tensor:
    """Return values that can be divided by; zero becomes tiny, so that the result is out of any range."""
    return torch.where(values.abs() < _TINY, _TINY, values)
