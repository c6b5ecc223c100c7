r"""Several masked autoregressive flows of the same shape, evaluated in one batched call.

The weights of the members are stacked along a first dimension, so that a layer of all members is one batched
matrix product: for small batches, where the number of operations dominates, the cost is hardly more than that
of one member. The context of a row (its class, its categories) enters only the first layer of each network,
as a bias; a search that changes only numbers computes it once.

Each of the T transforms maps u to :math:`u e^{a(u)} + b(u)`, where a masked network computes a and b, and a
is softly bounded: :math:`a = r / (1 + |r| / bound)`. The hidden units are trained as :math:`\tanh`. Here they
are logistic, which takes a quarter of the time: :math:`\tanh(z) = 2 \sigma(2 z) - 1`, and the weights take
the factors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

if TYPE_CHECKING:
    from plausiflow.densities.flows import ConditionalFlow


class StackedMAF(nn.Module):
    """Stacked flows: ``forward(x, y)`` gives each member's log-density, shape ``(M, n)``."""

    mean: Tensor
    sd: Tensor
    volume: Tensor
    context: Tensor

    def __init__(self, members: Sequence[ConditionalFlow]) -> None:
        super().__init__()
        flows = [member.frozen(torch.zeros(0, dtype=torch.float64)) for member in members]
        self.modelled, self.given, self.n_classes = flows[0].modelled, flows[0].given, flows[0].n_classes
        self.bound = members[0].log_scale_bound
        self.register_buffer("mean", torch.stack([flow.mean for flow in flows])[:, None])
        self.register_buffer("sd", torch.stack([flow.sd for flow in flows])[:, None])
        self.register_buffer("volume", -self.sd.log() - 0.5 * math.log(2 * math.pi))
        linear = [[list(layer.hyper)[::2] for layer in flow.flow.transform.transforms] for flow in flows]
        transforms, self.depth = range(len(linear[0])), len(linear[0][0])
        for j in range(self.depth):
            layers = [[network[i][j] for network in linear] for i in transforms]
            weight = torch.stack([torch.stack([layer.weight.mT for layer in stage]) for stage in layers])
            bias = torch.stack([torch.stack([layer.bias[None] for layer in stage]) for stage in layers])
            if j > 0:
                weight, bias = 2 * weight, bias - weight.sum(dim=-2, keepdim=True)
            if j < self.depth - 1:
                weight, bias = 2 * weight, 2 * bias
            if j == 0:
                weight, context = _split_context(weight, len(self.modelled))
                context[..., : self.n_classes, :] += bias  # a row has exactly one class
                self.register_buffer("context", context)
            if j == self.depth - 1:  # shifts, then scales
                order = torch.arange(weight.shape[-1]).view(-1, 2).T.flatten()
                weight, bias = weight[..., order], bias[..., order]
            self.register_buffer(f"weight_{j}", weight.contiguous())
            self.register_buffer(f"bias_{j}", bias.contiguous())
        self._networks: list[_Network] | None = None

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> StackedMAF:
        """Move the buffers, as torch does, and drop the cached views of them."""
        self._networks = None
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    @property
    def networks(self) -> list[_Network]:
        """Weights and biases of each transform, cached because lookups are slow for small batches."""
        if self._networks is None:
            self._networks = []
            for i in range(len(self.context)):
                weights = [getattr(self, f"weight_{j}")[i] for j in range(self.depth)]
                biases = [getattr(self, f"bias_{j}")[i] for j in range(self.depth)]
                backwards = [weight.mT.contiguous() for weight in reversed(weights)]
                self._networks.append(_Network(weights, biases, backwards))
        return self._networks

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the log-densities of rows ``(n, d)`` given classes ``(n,)``, shape ``(M, n)``."""
        return self.log_prob(x[:, self.modelled] if self.given else x, self.conditions(x, y))

    def conditions(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the context of rows as biases of the first layers, shape ``(T, M, n, hidden)``."""
        if not self.given:
            return self.context[:, :, y]
        return torch.cat([F.one_hot(y, self.n_classes).to(x), x[:, self.given]], dim=1) @ self.context

    def log_prob(self, numbers: Tensor, conditions: Tensor) -> Tensor:
        """Return log-densities ``(M, n)`` of the modelled columns ``(n, modelled)`` under conditions."""
        if torch.is_grad_enabled() and numbers.requires_grad and not conditions.requires_grad:
            log_prob: Tensor = _LogDensity.apply(numbers, conditions, self)  # type: ignore[no-untyped-call]
            return log_prob
        return self.forward_pass(numbers, conditions)[0]

    def value_and_grad(
        self, numbers: Tensor, conditions: Tensor, shares: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Return log-densities ``(M, n)`` and the gradient ``(n, modelled)`` of a weighted sum of them.

        ``shares`` maps the log-densities to their weights ``(M, n)``.
        """
        log_prob, latent, passes = self.forward_pass(numbers, conditions)
        return log_prob, self.pullback(shares(log_prob), latent, passes)

    def pullback(self, outer: Tensor, latent: Tensor, passes: list[_Pass]) -> Tensor:
        """Return the gradient ``(n, modelled)`` of log-densities with weights ``outer`` ``(M, n)``."""
        share = outer[..., None]
        gradient = latent * -share
        for (_, _, backwards), step in zip(reversed(self.networks), reversed(passes), strict=True):
            scaled = gradient * step.scale
            steep = torch.addcmul(share, scaled, step.u).div_(step.damp * step.damp)
            inner = torch.cat([gradient, steep], dim=2)
            for weight, hidden in zip(backwards, reversed(step.hidden), strict=False):
                inner = torch.bmm(inner, weight)
                torch.ops.aten.sigmoid_backward.grad_input(inner, hidden, grad_input=inner)
            gradient = torch.baddbmm(scaled, inner, backwards[-1])
        return gradient.div_(self.sd).sum(dim=0)

    def forward_pass(self, numbers: Tensor, conditions: Tensor) -> tuple[Tensor, Tensor, list[_Pass]]:
        """Return log-densities ``(M, n)``, latents ``(M, n, modelled)`` and the intermediate values."""
        u, total, passes = (numbers - self.mean) / self.sd, self.volume, []
        for (weights, biases, _), condition in zip(self.networks, conditions.unbind(), strict=True):
            hidden = [torch.baddbmm(condition, u, weights[0]).sigmoid_()]
            for weight, bias in zip(weights[1:-1], biases[1:-1], strict=True):
                hidden.append(torch.baddbmm(bias, hidden[-1], weight).sigmoid_())
            shift, raw = torch.baddbmm(biases[-1], hidden[-1], weights[-1]).chunk(2, dim=2)
            damp = raw.abs().div_(self.bound).add_(1)
            log_scale = raw / damp
            scale = log_scale.exp()
            passes.append(_Pass(u, hidden, damp, scale))
            u, total = torch.addcmul(shift, u, scale), total + log_scale
        return torch.addcmul(total, u, u, value=-0.5).sum(dim=2), u, passes


class _Network(NamedTuple):
    """The layers of a transform: weights ``(M, inputs, outputs)`` and biases ``(M, 1, outputs)``.

    ``backwards`` are the transposed weights, the last layer first.
    """

    weights: list[Tensor]
    biases: list[Tensor]
    backwards: list[Tensor]


class _Pass(NamedTuple):
    """Intermediate values of a transform: input, hidden layers, damping of the log-scales, and scales."""

    u: Tensor
    hidden: list[Tensor]
    damp: Tensor
    scale: Tensor


class _LogDensity(torch.autograd.Function):
    """The log-densities with an explicit gradient, which takes half the time for few rows.

    Second derivatives are left to torch.
    """

    @staticmethod
    def forward(ctx: Any, numbers: Tensor, conditions: Tensor, flow: StackedMAF) -> Tensor:  # noqa: ANN401
        log_prob, ctx.latent, ctx.passes = flow.forward_pass(numbers, conditions)
        ctx.flow = flow
        ctx.save_for_backward(numbers, conditions)
        return log_prob

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        numbers, conditions = ctx.saved_tensors
        flow: StackedMAF = ctx.flow
        if torch.is_grad_enabled():
            log_prob = flow.forward_pass(numbers, conditions)[0]
            return torch.autograd.grad(log_prob, numbers, outer[0], create_graph=True)[0], None, None
        return flow.pullback(outer[0], ctx.latent, ctx.passes), None, None


def _split_context(weight: Tensor, n_features: int) -> tuple[Tensor, Tensor]:
    """Split the first layer into modelled and context inputs, ``(T, M, inputs, hidden)`` each."""
    # A single number depends on no other: zuko's network has the context as its only input.
    if n_features == 1:
        return torch.zeros_like(weight[..., :1, :]), weight.clone()
    return weight[..., :n_features, :], weight[..., n_features:, :].clone()
