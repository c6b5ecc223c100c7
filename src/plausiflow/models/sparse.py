r"""Sparse relatives of softmax and sigmoid, with which NODE chooses features and routes rows.

:math:`\alpha`-entmax maps scores z to the distribution
:math:`p = \max((\alpha - 1) z - \tau, 0)^{1 / (\alpha - 1)}` whose threshold :math:`\tau` makes it sum to
one; softmax is :math:`\alpha = 1`, sparsemax :math:`\alpha = 2`, and entmax15 :math:`\alpha = 1.5`. For these
two the threshold is found exactly by sorting. The largest score is shifted to zero first, after which
:math:`-1 \le \tau < 0`: a score below -1 gets no weight however small it is, so it may be cut off.

The two-class cases, as functions of the difference of the scores, are ``sparsemoid`` and ``entmoid15``. Both
are exactly flat outside an interval ([-1, 1] and [-2, 2]), where a search by gradients gets no direction from
them.
"""

from __future__ import annotations

import torch
from torch import Tensor

_CUT = -2.0  # below any threshold, with room for rounding


def sparsemax(scores: Tensor) -> Tensor:
    r"""The point of the simplex closest to the scores, over the last dimension.

    .. math:: \arg\min_p \lVert p - z \rVert^2

    Args:
        scores: Scores z, shape ``(..., m)``.

    Returns:
        Distributions, shape ``(..., m)``, often with exact zeros.

    Example:
        >>> sparsemax(torch.tensor([1.0, 0.5, -1.0]))
        tensor([0.7500, 0.2500, 0.0000])
    """
    shifted = (scores - scores.amax(dim=-1, keepdim=True)).clamp_min(_CUT)
    ordered = shifted.sort(dim=-1, descending=True).values
    sums = ordered.cumsum(dim=-1)
    support = (1 + _ranks(ordered) * ordered > sums).sum(dim=-1, keepdim=True)
    threshold = (sums.gather(-1, support - 1) - 1) / support
    return (shifted - threshold).clamp_min(0)


def entmax15(scores: Tensor) -> Tensor:
    r"""1.5-entmax, half-way between softmax and sparsemax, over the last dimension.

    .. math:: p = \max(z / 2 - \tau, 0)^2

    With M and S the mean and the sum of squared deviations of the k largest :math:`z / 2`, the threshold
    solves :math:`k (M - \tau)^2 + S = 1`.

    Args:
        scores: Scores z, shape ``(..., m)``.

    Returns:
        Distributions, shape ``(..., m)``.

    Example:
        >>> entmax15(torch.tensor([1.0, 1.0, -3.0]))
        tensor([0.5000, 0.5000, 0.0000])
    """
    shifted = ((scores - scores.amax(dim=-1, keepdim=True)) / 2).clamp_min(_CUT)
    ordered = shifted.sort(dim=-1, descending=True).values
    ranks = _ranks(ordered)
    mean = ordered.cumsum(dim=-1) / ranks
    spread = ordered.square().cumsum(dim=-1) - ranks * mean.square()
    with torch.no_grad():
        thresholds = mean - ((1 - spread) / ranks).clamp_min(0).sqrt()
        support = (thresholds <= ordered).sum(dim=-1, keepdim=True)
    # Only the chosen threshold carries a gradient: the square root of an unchosen one may be zero, where its
    # slope is infinite.
    mean, spread = mean.gather(-1, support - 1), spread.gather(-1, support - 1)
    threshold = mean - ((1 - spread) / support).sqrt()
    return (shifted - threshold).clamp_min(0).square()


def sparsemoid(difference: Tensor) -> Tensor:
    r"""The first entry of ``sparsemax([u, 0])``: :math:`\min(\max((u + 1) / 2, 0), 1)`, elementwise.

    Example:
        >>> sparsemoid(torch.tensor([-2.0, 0.0, 0.5]))
        tensor([0.0000, 0.5000, 0.7500])
    """
    return (0.5 * difference + 0.5).clamp(0, 1)


def entmoid15(difference: Tensor) -> Tensor:
    r"""The first entry of ``entmax15([u, 0])``, elementwise.

    It is :math:`\frac12 + \frac18 c \sqrt{8 - c^2}`, with c = u cut to [-2, 2].

    The condition :math:`(c / 2 - \tau)^2 + \tau^2 = 1` gives :math:`\tau = (c - \sqrt{8 - c^2}) / 4`, and
    from it the formula.

    Example:
        >>> entmoid15(torch.tensor([-2.0, 0.0, 3.0]))
        tensor([0.0000, 0.5000, 1.0000])
    """
    cut = difference.clamp(-2, 2)
    return 0.5 + 0.125 * cut * (8 - cut.square()).sqrt()


def _ranks(ordered: Tensor) -> Tensor:
    return torch.arange(1, ordered.shape[-1] + 1, dtype=ordered.dtype, device=ordered.device)
