"""What a torch module returns, found out by asking it: logits or probabilities, with a gradient or without.

A single number in [0, 1] is no proof: logits of a module that has hardly been trained are small, too. But
probabilities stay in [0, 1] however far a row is from the training rows, while logits grow; and a linear map
to a single number gives logits even where what it maps is bounded.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from plausiflow.errors import ModelError
from plausiflow.models.torch_classifier import TorchClassifier

_TOLERANCE = 1e-3
_FAR = (-1e6, -10.0, 10.0, 1e6)
"""Rows are moved to so many times their distance from the mean, on both sides of it."""
_SHAPING = ("NanToNum", "Cat", "Squeeze", "Unsqueeze", "View", "UnsafeView", "Select", "Slice", "Clone")
_LINEAR = ("Addmm", "Mm", "Addmv", "Mv")


def found_output(model: TorchClassifier, rows: Tensor) -> Literal["logits", "probabilities"]:
    """What a module returns.

    Args:
        model: The module, wrapped as one that returns logits.
        rows: That it takes, shape ``(n, d)``; NaN where a cell is missing.

    Returns:
        "probabilities" where all outputs are in [0, 1], and sum to one where there is more than one column;
        where that is still so for rows ten and a million times as far from the mean; and where a single
        column is not made by a linear map. Otherwise "logits".

    Raises:
        ModelError: The module fails on the rows.
    """
    rows = rows.detach().requires_grad_()
    logits = model.logits(rows)
    if not _like_probabilities(logits) or (_is_single(logits) and _ends_in_a_linear_map(logits)):
        return "logits"
    centre = rows.nanmean(dim=0)
    for scale in _FAR:
        try:
            if not _like_probabilities(model.logits(centre + scale * (rows - centre))):
                return "logits"
        except ModelError:  # it cannot be asked so far away, which tells nothing
            continue
    return "probabilities"


def check_gradient(answers: Tensor, x: Tensor) -> None:
    """Check that answers ``(n,)`` or ``(n, k)`` have a gradient with respect to rows.

    Raises:
        ModelError: There is none that is finite and not zero, at any row.
    """
    columns = answers[:, None] if answers.ndim == 1 else answers
    weights = torch.arange(columns.shape[1]).to(columns) + 1
    (gradient,) = torch.autograd.grad((columns.nan_to_num() @ weights).sum(), x)
    if not (gradient.isfinite().all(dim=1) & (gradient != 0).any(dim=1)).any():
        raise ModelError(
            f"The module has no gradient that is finite and not zero at any of {len(x)} training rows. "
            "Remove rounding, comparisons and `argmax` from its `forward`; scale its input where it is "
            "saturated, and let it return logits instead of probabilities."
        )


def _is_single(logits: Tensor) -> bool:
    """Whether these are of a module with one output, which stands beside a column of zeros."""
    return logits.shape[1] == 2 and not bool(logits[:, 0].any())


def _like_probabilities(logits: Tensor) -> bool:
    """Whether all that is not NaN is in [0, 1], and sums to one."""
    known = logits.detach()[~logits.isnan().any(dim=1)]
    inside = ((known >= -_TOLERANCE) & (known <= 1 + _TOLERANCE)).all()
    sums = ((known.sum(dim=1) - 1).abs() <= _TOLERANCE).all()
    return bool(inside and (sums or _is_single(known)))


def _ends_in_a_linear_map(logits: Tensor) -> bool:
    """Whether the last operation that is not mere shaping is a product with a matrix."""
    node = logits.grad_fn
    while node is not None and node.name().startswith(_SHAPING):
        before = [parent for parent, _ in node.next_functions if parent is not None]
        node = before[0] if len(before) == 1 else None
    return node is not None and node.name().startswith(_LINEAR)
