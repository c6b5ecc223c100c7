r"""The paper's equations, one pure function each.

PPCEF (Wielopolski et al., ECAI 2024) looks for the closest :math:`x'` to :math:`x_0` that a classifier
decides as :math:`y'` and whose density passes :math:`\delta` [PPCEF Eq. 3]:

.. math::
    \arg\min_{x'} d(x_0, x') \quad \text{s.t.}\quad h(x') = y', \quad \delta \le p(x' | y')

and solves it without constraints [PPCEF Eq. 6]:

.. math::
    \arg\min_{x'} d(x_0, x') + \lambda \bigl( \ell_v(x', y') + \ell_p(x', y') \bigr)

``l2_distance`` is d, ``validity_hinge`` and ``multiclass_validity_hinge`` are :math:`\ell_v`,
``plausibility_hinge`` is :math:`\ell_p`. ``validity_value`` is the same constraint written so that its
gradient does not vanish far from the decision boundary, which is what the SQP solver works with. Everything
is per row: ``(n, ...) -> (n,)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

LOG_ODDS_TOLERANCE = 1e-9
"""Log-odds by which a probability may miss its minimum: the 0.9 of a forest counts as 0.9."""


def l2_distance(x_cf: Tensor, x: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""Euclidean distance, the cost of a change. [PPCEF Eq. 3a]

    .. math:: d(x, x') = \sqrt{\sum_j w_j (x'_j - x_j)^2}

    Its gradient at :math:`x' = x` is zero, so a search may start at the factual.

    Args:
        x_cf: Counterfactuals :math:`x'`, shape ``(n, d)``.
        x: Factuals :math:`x`, shape ``(n, d)``.
        weights: Cost per feature, shape ``(d,)``; one each if not given.

    Returns:
        One distance per row, shape ``(n,)``.

    Example:
        >>> l2_distance(torch.tensor([[3.0, 4.0]]), torch.zeros(1, 2))
        tensor([5.])
    """
    change = x_cf - x if weights is None else (x_cf - x) * weights.sqrt()
    distance: Tensor = torch.linalg.vector_norm(change, dim=-1)
    return distance


def l1_distance(x_cf: Tensor, x: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""City-block distance :math:`d(x, x') = \sum_j w_j |x'_j - x_j|`.

    Example:
        >>> l1_distance(torch.tensor([[3.0, -4.0]]), torch.zeros(1, 2))
        tensor([7.])
    """
    change = (x_cf - x).abs()
    return (change if weights is None else change * weights).sum(dim=-1)


def penalised(cost: Tensor, penalties: Tensor, weight: float) -> Tensor:
    r"""The unconstrained objective :math:`d(x_0, x') + \lambda (\ell_v + \ell_p)`. [PPCEF Eq. 6]

    Args:
        cost: :math:`d(x_0, x')`, shape ``(n,)``.
        penalties: The losses, one column each, shape ``(n, m)``.
        weight: :math:`\lambda`, large.
    """
    return cost + weight * penalties.sum(dim=-1)


def validity_hinge(proba: Tensor, y_target: Tensor, margin: float) -> Tensor:
    r"""Binary validity loss :math:`\ell_v = \max(0.5 + \epsilon - p(y' | x'), 0)`. [PPCEF Eq. 7]

    Args:
        proba: Class probabilities, shape ``(n, 2)``.
        y_target: Target classes :math:`y'`, shape ``(n,)``.
        margin: :math:`\epsilon`.

    Example:
        >>> validity_hinge(torch.tensor([[0.75, 0.25]]), torch.tensor([1]), margin=0.25)
        tensor([0.5000])
    """
    return (0.5 + margin - _of_target(proba, y_target)).clamp_min(0)


def multiclass_validity_hinge(proba: Tensor, y_target: Tensor, margin: float) -> Tensor:
    r"""Validity loss for any number of classes, against the strongest rival. [PPCEF Eq. 8]

    .. math:: \ell_v = \max\bigl(\max_{y \ne y'} p(y | x') + \epsilon - p(y' | x'), 0\bigr)
    """
    rival = _without_target(proba, y_target).amax(dim=-1)
    return (rival + margin - _of_target(proba, y_target)).clamp_min(0)


def published_logit_hinge(logits: Tensor, y_target: Tensor, margin: float) -> Tensor:
    r"""The loss of the published multiclass, MLP and NODE runs: Eq. 8 on logits, the target's own taken as 0.

    .. math:: \max\bigl(\max(0, \max_{y \ne y'} z_y) + \epsilon - z_{y'}, 0\bigr)
    """
    # Deviation: the paper's Eq. 8 is on probabilities; the published runs used logits and masked the target
    # with zero, so that the target's logit must also exceed epsilon. Only `PPCEF.paper` uses it, to land on
    # the published counterfactuals.
    rival = _without_target(logits, y_target, filler=0.0).amax(dim=-1)
    return (rival + margin - _of_target(logits, y_target)).clamp_min(0)


def cross_entropy(logits: Tensor, y_target: Tensor) -> Tensor:
    r"""Cross entropy :math:`-\log p(y' | x')`, the paper's alternative validity loss.

    BCE with two classes, CE with more.
    """
    return F.cross_entropy(logits, y_target, reduction="none")


def plausibility_hinge(log_prob: Tensor, log_delta: Tensor) -> Tensor:
    r"""Plausibility loss :math:`\ell_p = \max(\log\delta - \log p(x' | y'), 0)`. [PPCEF Eq. 9]

    Example:
        >>> plausibility_hinge(torch.tensor([-3.0, 2.0]), torch.tensor([1.0, 1.0]))
        tensor([4., 0.])
    """
    # Deviation: the paper writes densities; densities overflow in 64 dimensions, and its published runs used
    # logarithms too.
    return (log_delta - log_prob).clamp_min(0)


def validity_value(logits: Tensor, y_target: Tensor, margin: float) -> Tensor:
    r"""Validity as a constraint that is never flat: not negative exactly where the target wins by the margin.

    .. math:: g_v = z_{y'} - z_o - \log(1 + \epsilon' / p_o) \ge 0 \iff p(y' | x') \ge p_o + \epsilon'

    with o the strongest other class, :math:`\epsilon' = 2\epsilon` for two classes (then
    :math:`p(y'|x') \ge 0.5 + \epsilon`, Eq. 7) and :math:`\epsilon' = \epsilon` for more (Eq. 8). Far from
    the boundary it grows like a difference of logits, where probabilities are flat.

    Args:
        logits: Unnormalised log-probabilities, shape ``(n, k)``.
        y_target: Target classes, shape ``(n,)``.
        margin: :math:`\epsilon`.
    """
    if logits.shape[-1] == 2:
        margin = 2 * margin
        gap = (logits[..., 1] - logits[..., 0]) * (2 * y_target - 1)
        minus_log_p_rival = F.softplus(gap)
    else:
        rival = _without_target(logits, y_target).amax(dim=-1)
        gap = _of_target(logits, y_target) - rival
        minus_log_p_rival = torch.logsumexp(logits, dim=-1) - rival
    if margin == 0:
        return gap
    # log(1 + margin / p) = softplus(log(margin) - log(p)), finite for any p
    return gap - F.softplus(minus_log_p_rival + math.log(margin))


def validity_value_and_grad(logits: Tensor, y_target: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    r"""Return :func:`validity_value` ``(n,)`` and its gradient in the logits ``(n, k)``, without a graph.

    With two classes, the gradient in the gap :math:`z_{y'} - z_o` is
    :math:`(1 + \epsilon') p_o / (p_o + \epsilon')`. With more, the gradient is
    :math:`e_{y'} - e_o - s (p - e_o)` with :math:`s = \epsilon' / (p_o + \epsilon')`.
    """
    if logits.shape[-1] != 2:
        return _multiclass_value_and_grad(logits, y_target, margin)
    sign = 2 * y_target - 1
    gap = (logits[..., 1] - logits[..., 0]) * sign
    value, grad = gap, sign.to(logits)
    if margin != 0:
        against = F.softplus(gap) + math.log(2 * margin)
        value = gap - F.softplus(against)
        grad = grad * torch.sigmoid(-against) * (1 + 2 * margin)
    return value, torch.stack([-grad, grad], dim=-1)


def _multiclass_value_and_grad(logits: Tensor, y_target: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    rival, strongest = _without_target(logits, y_target).max(dim=-1)
    value = _of_target(logits, y_target) - rival
    grad = torch.zeros_like(logits).scatter_(-1, y_target[..., None], 1.0)
    if margin == 0:
        return value, grad.scatter_(-1, strongest[..., None], -1.0)
    against = torch.logsumexp(logits, dim=-1) - rival + math.log(margin)
    share = torch.sigmoid(against)[..., None]
    grad = grad - share * logits.softmax(dim=-1)
    return value - F.softplus(against), grad.scatter_add_(-1, strongest[..., None], share - 1)


def probability_value(logits: Tensor, y_target: Tensor, min_probability: Tensor) -> Tensor:
    """Return the log-odds of the target class minus those of ``min_probability``, shape ``(n,)``.

    At least zero where the model gives the target class that probability.
    """
    own = _of_target(logits.log_softmax(dim=1), y_target)
    others = torch.log1p(-own.exp().clamp_max(1 - 1e-15))
    return own - others - (torch.logit(min_probability.to(own)) - LOG_ODDS_TOLERANCE)


def interval_value(values: Tensor, low: Tensor, high: Tensor, unit: float) -> Tensor:
    """Return how far predictions are inside an interval, in units of ``unit``, shape ``(n,)``."""
    above, below = values - low.to(values), high.to(values) - values
    return torch.minimum(above, below).clamp_max(1e6 * unit) / unit


def plausibility_value(log_prob: Tensor, log_delta: Tensor) -> Tensor:
    r"""Plausibility as a constraint, :math:`g_p = \log p(x' | y') - \log\delta \ge 0`. [PPCEF Eq. 3c]"""
    return log_prob - log_delta


def negative_log_likelihood(log_prob: Tensor) -> Tensor:
    r"""What training a density minimises, per row: :math:`-\log p(x_n | y_n)`. [PPCEF Eq. 11]"""
    return -log_prob


def value_and_grad(function: Callable[[Tensor], Tensor], points: Tensor) -> tuple[Tensor, Tensor]:
    """Return a function's values ``(n,)`` at points and their gradients, shaped like the points."""
    with torch.enable_grad():
        leaf = points.detach().requires_grad_(True)
        values = function(leaf)
    (gradient,) = torch.autograd.grad(values, leaf, torch.ones_like(values))
    return values.detach(), gradient


def _of_target(values: Tensor, y_target: Tensor) -> Tensor:
    return values.gather(-1, y_target.unsqueeze(-1)).squeeze(-1)


def _without_target(values: Tensor, y_target: Tensor, filler: float = float("-inf")) -> Tensor:
    return values.scatter(-1, y_target.unsqueeze(-1), filler)
