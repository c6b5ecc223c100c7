"""Several masked autoregressive flows of one shape, evaluated in one batched call.

The members' weights are stacked along a first dimension, so that a layer of all members is one batched matrix
product: small batches, which pay for the number of operations and not for their size, cost hardly more than
with one member. What a row is given (its class, its categories) enters the first layer of each network only,
as a bias; a search that moves nothing but numbers computes it once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import cast

import torch
import torch.nn.functional as F
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
        self.own, self.given, self.n_classes = flows[0].own, flows[0].given, flows[0].n_classes
        self.bound = members[0].log_scale_bound
        self.register_buffer("mean", torch.stack([flow.mean for flow in flows])[:, None])
        self.register_buffer("sd", torch.stack([flow.sd for flow in flows])[:, None])
        networks = [
            [list(transform.hyper)[::2] for transform in flow.flow.transform.transforms] for flow in flows
        ]
        n_context = self.n_classes + len(self.given)
        self.layers = nn.ModuleList(
            nn.ModuleList(
                _Linear([network[i][j] for network in networks], n_context, j, len(networks[0][i]))
                for j in range(len(networks[0][i]))
            )
            for i in range(len(networks[0]))
        )

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Log-densities of rows ``(n, d)`` given classes ``(n,)``, shape ``(M, n)``."""
        return self.log_prob(x[:, self.own] if self.given else x, self.conditions(x, y))

    def conditions(self, x: Tensor, y: Tensor) -> Tensor:
        """What the rows are given, as biases of the first layers, shape ``(M, n, transforms, hidden)``."""
        if not self.given:
            return torch.stack([network[0].context[:, y] for network in self.layers], dim=2)  # type: ignore[index]
        context = torch.cat([F.one_hot(y, self.n_classes).to(x), x[:, self.given]], dim=1)
        return torch.stack([context @ network[0].context for network in self.layers], dim=2)  # type: ignore[index]

    def log_prob(self, numbers: Tensor, conditions: Tensor) -> Tensor:
        """Log-densities of the columns that are modelled ``(n, own)`` under conditions, shape ``(M, n)``."""
        u = (numbers - self.mean) / self.sd
        log_det = -self.sd.log().sum(dim=2)
        for i, network in enumerate(self.layers):
            first, *middle, last = cast(Iterable[_Linear], network)
            # Small batches pay for every call: layers have no hooks, so that theirs are made directly.
            hidden = torch.tanh(first.forward(u) + conditions[:, :, i])
            for layer in middle:
                hidden = torch.tanh(layer.forward(hidden))
            shift, raw = last.forward(hidden).chunk(2, dim=2)
            log_scale = raw / (1 + (raw / self.bound).abs())
            u = u * log_scale.exp() + shift
            log_det = log_det + log_scale.sum(dim=2)
        return log_det - 0.5 * (u * u).sum(dim=2) - 0.5 * len(self.own) * math.log(2 * math.pi)


class _Linear(nn.Module):
    """One layer of all members; the first knows its context, the last gives shifts, then scales."""

    weight: Tensor
    bias: Tensor
    context: Tensor

    def __init__(self, members: Sequence[nn.Linear], n_context: int, number: int, count: int) -> None:
        super().__init__()
        weight, bias = torch.stack([m.weight for m in members]), torch.stack([m.bias for m in members])
        if number == count - 1:
            order = torch.arange(weight.shape[1]).view(-1, 2).T.flatten()
            weight, bias = weight[:, order], bias[:, order]
        if number == 0:
            n_features = weight.shape[2] - n_context
            self.register_buffer("context", weight[:, :, n_features:].mT.contiguous())
            # A number that is alone depends on no other: zuko's network sees nothing but the context.
            weight = weight[:, :, :n_features] if n_features else torch.zeros_like(weight[:, :, :1])
        self.register_buffer("weight", weight.mT.contiguous())
        self.register_buffer("bias", bias[:, None])

    def forward(self, hidden: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, hidden.expand(len(self.weight), -1, -1), self.weight)
