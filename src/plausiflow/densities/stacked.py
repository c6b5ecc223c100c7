"""Several masked autoregressive flows of one shape, evaluated in one batched call.

The members' weights are stacked along a first dimension, so that a layer of all members is one batched matrix
product: small batches, which pay for the number of operations and not for their size, cost hardly more than
with one member.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from plausiflow.densities.flows import ConditionalFlow


class StackedMAF(nn.Module):
    """The members side by side: ``forward(x, y)`` gives each one's log-density, shape ``(M, n)``."""

    mean: Tensor
    sd: Tensor

    def __init__(self, members: Sequence[ConditionalFlow]) -> None:
        super().__init__()
        like = torch.zeros(0, dtype=torch.float64)
        flows = [member.frozen(like) for member in members]
        self.n_features, self.bound = members[0].n_features_, members[0].log_scale_bound
        self.register_buffer("mean", torch.stack([flow.mean for flow in flows])[:, None])
        self.register_buffer("sd", torch.stack([flow.sd for flow in flows])[:, None])
        networks = [
            [list(transform.hyper)[::2] for transform in flow.flow.transform.transforms] for flow in flows
        ]
        self.layers = nn.ModuleList(
            nn.ModuleList(
                _Linear([network[i][j] for network in networks], self.n_features, j, len(networks[0][i]))
                for j in range(len(networks[0][i]))
            )
            for i in range(len(networks[0]))
        )

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Log-densities of rows ``(n, d)`` given classes ``(n,)``, shape ``(M, n)``."""
        u = (x - self.mean) / self.sd
        log_det = -self.sd.log().sum(dim=2)
        for network in self.layers:
            hidden = u
            for layer in network[:-1]:  # type: ignore[index]
                hidden = torch.tanh(layer(hidden, y))
            shift, raw = network[-1](hidden, y).chunk(2, dim=2)  # type: ignore[index]
            log_scale = raw / (1 + (raw / self.bound).abs())
            u = u * log_scale.exp() + shift
            log_det = log_det + log_scale.sum(dim=2)
        return log_det - 0.5 * (u * u).sum(dim=2) - 0.5 * self.n_features * math.log(2 * math.pi)


class _Linear(nn.Module):
    """One layer of all members.

    The first knows the class, whose weights become a table of biases; the last gives shifts, then scales.
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, members: Sequence[nn.Linear], n_features: int, number: int, count: int) -> None:
        super().__init__()
        weight, bias = torch.stack([m.weight for m in members]), torch.stack([m.bias for m in members])
        if number == count - 1:
            order = torch.arange(weight.shape[1]).view(-1, 2).T.flatten()
            weight, bias = weight[:, order], bias[:, order]
        self.by_class = number == 0
        if self.by_class:
            bias = bias[:, None] + weight[:, :, n_features:].mT
            weight = weight[:, :, :n_features]
        self.register_buffer("weight", weight.mT.contiguous())
        self.register_buffer("bias", bias if self.by_class else bias[:, None])

    def forward(self, hidden: Tensor, y: Tensor) -> Tensor:
        return torch.baddbmm(self.bias[:, y] if self.by_class else self.bias, hidden, self.weight)
