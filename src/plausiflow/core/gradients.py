"""Values together with their gradients, for searches that keep no graph."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from plausiflow.core.losses import validity_value


def validity_value_and_grad(logits: Tensor, y_target: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    r"""The value of :func:`validity_value` ``(n,)``, and its gradient in the logits ``(n, k)``.

    With two classes, that in the gap :math:`z_{y'} - z_o` is :math:`(1 + \epsilon') p_o / (p_o + \epsilon')`.
    """
    if logits.shape[-1] != 2:
        return value_and_grad(lambda z: validity_value(z, y_target, margin), logits)
    sign = 2 * y_target - 1
    gap = (logits[..., 1] - logits[..., 0]) * sign
    value, slope = gap, sign.to(logits)
    if margin != 0:
        against = F.softplus(gap) + math.log(2 * margin)
        value = gap - F.softplus(against)
        slope = slope * torch.sigmoid(-against) * (1 + 2 * margin)
    return value, torch.stack([-slope, slope], dim=-1)


def value_and_grad(function: Callable[[Tensor], Tensor], points: Tensor) -> tuple[Tensor, Tensor]:
    """A function's values ``(n,)`` at points, one for each, and their gradients, shaped like the points."""
    with torch.enable_grad():
        leaf = points.detach().requires_grad_(True)
        values = function(leaf)
    (gradient,) = torch.autograd.grad(values, leaf, torch.ones_like(values))
    return values.detach(), gradient
