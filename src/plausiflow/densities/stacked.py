r"""Several masked autoregressive flows of one shape, evaluated in one batched call.

The members' weights are stacked along a first dimension, so that a layer of all members is one batched matrix
product: small batches, which pay for the number of operations and not for their size, cost hardly more than
with one member. What a row is given (its class, its categories) enters the first layer of each network only,
as a bias; a search that moves nothing but numbers computes it once.

Each of the T transforms maps u to :math:`u e^{a(u)} + b(u)`, where a and b come from a masked network, and a
is softly bounded: :math:`a = r / (1 + |r| / bound)`.
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
    """The members side by side: ``forward(x, y)`` gives each one's log-density, shape ``(M, n)``."""

    mean: Tensor
    sd: Tensor
    volume: Tensor
    context: Tensor

    def __init__(self, members: Sequence[ConditionalFlow]) -> None:
        super().__init__()
        like = torch.zeros(0, dtype=torch.float64)
        flows = [member.frozen(like) for member in members]
        self.own, self.given, self.n_classes = flows[0].own, flows[0].given, flows[0].n_classes
        self.bound = members[0].log_scale_bound
        self.register_buffer("mean", torch.stack([flow.mean for flow in flows])[:, None])
        self.register_buffer("sd", torch.stack([flow.sd for flow in flows])[:, None])
        self.register_buffer("volume", -self.sd.log() - 0.5 * math.log(2 * math.pi))
        linear = [
            [list(transform.hyper)[::2] for transform in flow.flow.transform.transforms] for flow in flows
        ]
        transforms, self.depth = range(len(linear[0])), len(linear[0][0])
        for j in range(self.depth):
            layers = [[network[i][j] for network in linear] for i in transforms]
            weight = torch.stack([torch.stack([layer.weight.mT for layer in own]) for own in layers])
            bias = torch.stack([torch.stack([layer.bias[None] for layer in own]) for own in layers])
            if j == 0:
                weight, context = _without_context(weight, len(self.own))
                context[..., : self.n_classes, :] += bias  # a row has exactly one class
                self.register_buffer("context", context)
            if j == self.depth - 1:  # shifts, then scales
                order = torch.arange(weight.shape[-1]).view(-1, 2).T.flatten()
                weight, bias = weight[..., order], bias[..., order]
            self.register_buffer(f"weight_{j}", weight.contiguous())
            self.register_buffer(f"bias_{j}", bias.contiguous())
        self._networks: list[_Network] | None = None

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> StackedMAF:
        """Torch's: moves the buffers; what is at hand of them is of no use any more."""
        self._networks = None
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    @property
    def networks(self) -> list[_Network]:
        """Weights and biases of each transform, at hand: looking them up would cost small batches dearly."""
        if self._networks is None:
            self._networks = []
            for i in range(len(self.context)):
                weights, biases = (
                    [getattr(self, f"{name}_{j}")[i] for j in range(self.depth)]
                    for name in ("weight", "bias")
                )
                backwards = [weight.mT.contiguous() for weight in reversed(weights)]
                self._networks.append(_Network(weights, biases, backwards))
        return self._networks

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Log-densities of rows ``(n, d)`` given classes ``(n,)``, shape ``(M, n)``."""
        return self.log_prob(x[:, self.own] if self.given else x, self.conditions(x, y))

    def conditions(self, x: Tensor, y: Tensor) -> Tensor:
        """What the rows are given, as biases of the first layers, shape ``(T, M, n, hidden)``."""
        if not self.given:
            return self.context[:, :, y]
        return torch.cat([F.one_hot(y, self.n_classes).to(x), x[:, self.given]], dim=1) @ self.context

    def log_prob(self, numbers: Tensor, conditions: Tensor) -> Tensor:
        """Log-densities of the columns that are modelled ``(n, own)`` under conditions, shape ``(M, n)``."""
        if torch.is_grad_enabled() and numbers.requires_grad and not conditions.requires_grad:
            log_prob: Tensor = _LogDensity.apply(numbers, conditions, self)  # type: ignore[no-untyped-call]
            return log_prob
        return self.passed(numbers, conditions)[0]

    def value_and_grad(
        self, numbers: Tensor, conditions: Tensor, shares: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Log-densities ``(M, n)``, and the gradient ``(n, own)`` of their sum with ``shares`` ``(M, n)``."""
        log_prob, latent, passes = self.passed(numbers, conditions)
        return log_prob, self.pulled_back(shares(log_prob), latent, passes)

    def pulled_back(self, outer: Tensor, latent: Tensor, passes: list[_Pass]) -> Tensor:
        """The gradient ``(n, own)`` of log-densities that count so much ``(M, n)``, once they are known."""
        share = outer[..., None]
        gradient = -latent * share
        for (_, _, backwards), done in zip(reversed(self.networks), reversed(passes), strict=True):
            scaled = gradient * done.scale
            steep = torch.addcmul(share, scaled, done.u) / (done.damp * done.damp)
            inner = torch.cat([gradient, steep], dim=2)
            for weight, hidden in zip(backwards, reversed(done.hidden), strict=False):
                inner = torch.bmm(inner, weight)
                inner = torch.addcmul(inner, inner * hidden, hidden, value=-1)
            gradient = torch.baddbmm(scaled, inner, backwards[-1])
        return (gradient / self.sd).sum(dim=0)

    def passed(self, numbers: Tensor, conditions: Tensor) -> tuple[Tensor, Tensor, list[_Pass]]:
        """Log-densities ``(M, n)``, latents ``(M, n, own)``, and what is computed on the way."""
        u, total, passes = (numbers - self.mean) / self.sd, self.volume, []
        for (weights, biases, _), condition in zip(self.networks, conditions.unbind(), strict=True):
            hidden = [torch.tanh(torch.baddbmm(condition, u, weights[0]))]
            for weight, bias in zip(weights[1:-1], biases[1:-1], strict=True):
                hidden.append(torch.tanh(torch.baddbmm(bias, hidden[-1], weight)))
            shift, raw = torch.baddbmm(biases[-1], hidden[-1], weights[-1]).chunk(2, dim=2)
            damp = 1 + raw.abs() / self.bound
            log_scale = raw / damp
            scale = log_scale.exp()
            passes.append(_Pass(u, hidden, damp, scale))
            u, total = torch.addcmul(shift, u, scale), total + log_scale
        return torch.addcmul(total, u, u, value=-0.5).sum(dim=2), u, passes


class _Network(NamedTuple):
    """A transform's layers: weights ``(M, inputs, outputs)`` and biases ``(M, 1, outputs)``.

    ``backwards`` are the weights transposed, the last layer first.
    """

    weights: list[Tensor]
    biases: list[Tensor]
    backwards: list[Tensor]


class _Pass(NamedTuple):
    """What a transform has computed: its input, hidden layers, damping of its log-scales, and scales."""

    u: Tensor
    hidden: list[Tensor]
    damp: Tensor
    scale: Tensor


class _LogDensity(torch.autograd.Function):
    """The same log-densities with their gradient written down: half the time where rows are few.

    The gradient of the gradient, where somebody wants it, is left to torch.
    """

    @staticmethod
    def forward(ctx: Any, numbers: Tensor, conditions: Tensor, flow: StackedMAF) -> Tensor:  # noqa: ANN401
        log_prob, ctx.latent, ctx.passes = flow.passed(numbers, conditions)
        ctx.flow = flow
        ctx.save_for_backward(numbers, conditions)
        return log_prob

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        numbers, conditions = ctx.saved_tensors
        flow: StackedMAF = ctx.flow
        if torch.is_grad_enabled():
            log_prob = flow.passed(numbers, conditions)[0]
            return torch.autograd.grad(log_prob, numbers, outer[0], create_graph=True)[0], None, None
        return flow.pulled_back(outer[0], ctx.latent, ctx.passes), None, None


def _without_context(weight: Tensor, n_features: int) -> tuple[Tensor, Tensor]:
    """The first layer's part for what is modelled, and that for what is given, ``(T, M, inputs, hidden)``."""
    # A number that is alone depends on no other: zuko's network sees nothing but the context.
    if n_features == 1:
        return torch.zeros_like(weight[..., :1, :]), weight.clone()
    return weight[..., :n_features, :], weight[..., n_features:, :].clone()
