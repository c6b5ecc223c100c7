"""Flows and networks of categories of the same shape as stacks, and their common training.

The weights of all members have a leading dimension, so that a layer of all members is one batched matrix
product; see :mod:`plausiflow.densities.one_cycle`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from plausiflow.densities.levels import ConditionalLevels, LevelsNetwork, block_log_prob
from plausiflow.densities.one_cycle import OneCycle, train_stack

if TYPE_CHECKING:
    from plausiflow.densities.flows import ConditionalFlow, FlowNetwork


def fit_flows(
    flows: Sequence[ConditionalFlow],
    x: Tensor,
    y: Tensor,
    used: Tensor,
    n_classes: int,
    settings: OneCycle,
    label: str,
    blur: Callable[[Tensor], Tensor] | None = None,
) -> None:
    """Fit flows with the same settings, in place, on their own rows, given as a mask of shape ``(M, n)``.

    ``blur`` gives the noise that belongs to rows ``(n, d)``, besides that of the training settings.
    """
    training, n_features = flows[0].training, x.shape[1]
    networks = [flow.build_network(n_features, n_classes).to(x) for flow in flows]
    columns = networks[0].modelled
    noise = torch.tensor(training.noise, dtype=x.dtype, device=x.device).expand(n_features)[columns]
    own, blurred = x[:, columns], None if blur is None else blur(x)[:, columns]
    for flow, network, rows in zip(flows, networks, used, strict=True):
        network.standardise(own[rows], flow.sd_floor, None if blurred is None else blurred[rows])
    train_stack(
        FlowStack(networks, flows[0].log_scale_bound),
        x,
        y,
        used,
        settings.limited(training),
        noise.expand_as(own) if blurred is None else torch.hypot(noise, blurred),
        random_state=flows[0].random_state,
        label=label,
    )
    for flow, network in zip(flows, networks, strict=True):
        flow.adopt_network(network, n_features, n_classes)


def fit_levels(
    levels: Sequence[ConditionalLevels],
    x: Tensor,
    y: Tensor,
    used: Tensor,
    n_classes: int,
    settings: OneCycle,
    label: str,
) -> None:
    """Fit networks of categories with the same settings, in place, on their own rows.

    They learn in half of the epochs.
    """
    limited = settings.limited(levels[0].training)
    networks = [own.build_network(n_classes).to(x) for own in levels]
    train_stack(
        LevelsStack(networks),
        x,
        y,
        used,
        replace(limited, epochs=max(1, limited.epochs // 2)),
        None,
        random_state=levels[0].random_state,
        label=label,
    )
    for own, network in zip(levels, networks, strict=True):
        own.adopt_network(network, x.shape[1], n_classes)


class FlowStack:
    """Masked autoregressive flows of the same shape; see :class:`~plausiflow.densities.StackedMAF`.

    Args:
        flows: The untrained networks, standardised by their own rows.
        bound: Soft bound of the log-scales.
    """

    def __init__(self, flows: Sequence[FlowNetwork], bound: float) -> None:
        self.flows, self.bound, self.n_modelled = flows, bound, len(flows[0].modelled)
        self.modelled, self.given, self.n_classes = flows[0].modelled, flows[0].given, flows[0].n_classes
        self.mean = torch.stack([flow.mean for flow in flows])[:, None]
        self.sd = torch.stack([flow.sd for flow in flows])[:, None]
        layers = [flow.linear_layers() for flow in flows]
        depth = range(len(layers[0][0]))
        self.weights = [_stacked([[t[j].weight.mT for t in own] for own in layers]) for j in depth]
        self.biases = [_stacked([[t[j].bias[None] for t in own] for own in layers]) for j in depth]
        self.masks = [torch.stack([_mask(t[j]) for t in layers[0]]).to(self.mean) for j in depth]

    def parameters(self) -> list[Tensor]:
        """Return weights ``(M, T, inputs, outputs)`` and biases ``(M, T, 1, outputs)`` of each layer."""
        return [*self.weights, *self.biases]

    def split_columns(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the modelled columns of rows, and their context: one-hot class and given columns."""
        context = torch.cat([F.one_hot(y, self.n_classes).to(x), x[:, self.given]], dim=1)
        return x[:, self.modelled], context

    def log_prob(self, x: Tensor, context: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return the log-densities of each member's rows, ``(M, b, m), (M, b, c) -> (M, b)``."""
        u, total = (x - self.mean) / self.sd, -self.sd.log()
        masked = [weight * mask for weight, mask in zip(self.weights, self.masks, strict=True)]
        # A single number depends on no other: its network has the context as its only input.
        n_inputs = masked[0].shape[2] - context.shape[2]
        inputs = masked[0][:, :, :n_inputs].unbind(1)
        # What the context adds to the first layers of all transforms is one product.
        by_context = torch.baddbmm(
            self.biases[0].transpose(1, 2).flatten(2),
            context,
            masked[0][:, :, n_inputs:].transpose(1, 2).flatten(2),
        ).split(masked[0].shape[3], dim=2)
        layers, biases = [weight.unbind(1) for weight in masked[1:]], [b.unbind(1) for b in self.biases[1:]]
        for t, first in enumerate(by_context):
            output = torch.baddbmm(first, u, inputs[t]) if n_inputs else first
            for weight, bias in zip(layers, biases, strict=True):
                output = torch.baddbmm(bias[t], torch.tanh(output), weight[t])
            shift, raw = output.view(*u.shape, 2).unbind(-1)
            log_scale = raw / (1 + raw.abs() / self.bound)
            u, total = torch.addcmul(shift, u, log_scale.exp()), total + log_scale
        return torch.addcmul(total, u, u, value=-0.5).sum(dim=2)

    @torch.no_grad()
    def write_back(self) -> None:
        """Copy the parameters to the networks of the members."""
        for m, flow in enumerate(self.flows):
            for t, layers in enumerate(flow.linear_layers()):
                for j, layer in enumerate(layers):
                    layer.weight.copy_(self.weights[j][m, t].mT)
                    layer.bias.copy_(self.biases[j][m, t, 0])


class LevelsStack:
    """Networks of categories of the same shape.

    Args:
        networks: The untrained networks.
    """

    def __init__(self, networks: Sequence[LevelsNetwork]) -> None:
        self.networks, self.first_network, self.n_modelled = networks, networks[0], len(networks[0].sizes)
        names = [name for name, _ in networks[0].named_parameters()]
        self.stacked = {
            name: torch.stack([n.get_parameter(name).detach() for n in networks]) for name in names
        }

    def parameters(self) -> list[Tensor]:
        """Return the stacked parameters of the networks."""
        return list(self.stacked.values())

    def split_columns(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the levels of rows, and their context: one-hot class and given columns."""
        own = self.first_network
        context = torch.cat([F.one_hot(y, own.n_classes).to(x), x[:, own.given]], dim=1)
        return x[:, own.modelled], context

    def log_prob(self, x: Tensor, context: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return the log-probabilities of each member's rows; in training, levels drop out."""
        own, p, seen = self.first_network, self.stacked, x
        if generator is not None:
            seen = x * (torch.rand(x.shape, generator=generator, device=x.device) >= own.dropout)
        # Hidden units and logits have the same inputs: one product for both.
        by_level = torch.cat([p["first.weight"] * own.hidden_mask, p["skip.weight"] * own.skip_mask], dim=1)
        by_context = torch.cat([p["first_context.weight"], p["skip_context.weight"]], dim=1)
        weights = torch.cat([by_level, by_context], dim=2).mT
        bias = torch.cat([p["first.bias"], p["second.bias"]], dim=1)[:, None]
        both = torch.baddbmm(bias, torch.cat([seen, context], dim=2), weights)
        hidden, logits = both.split([len(own.hidden_mask), x.shape[2]], dim=2)
        logits = torch.baddbmm(logits, torch.tanh(hidden), (p["second.weight"] * own.output_mask).mT)
        return block_log_prob(logits, x, own.sizes)

    @torch.no_grad()
    def write_back(self) -> None:
        """Copy the parameters to the networks of the members."""
        for m, network in enumerate(self.networks):
            for name, values in self.stacked.items():
                network.get_parameter(name).copy_(values[m])


def _mask(layer: Any) -> Tensor:  # noqa: ANN401
    """Return which weights of a layer count, shape ``(inputs, outputs)``."""
    weight: Tensor = layer.weight
    mask: Tensor = getattr(layer, "mask", torch.ones_like(weight))
    return mask.mT


def _stacked(parts: Sequence[Sequence[Tensor]]) -> Tensor:
    return torch.stack([torch.stack([part.detach() for part in own]) for own in parts])
