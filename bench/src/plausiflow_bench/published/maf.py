r"""The flow of the published runs, built from its stored weights.

It is a masked autoregressive flow with residual networks. Each layer reverses the features and maps
:math:`u \leftarrow s u + t`, with s and t from a masked network that takes the class as *one float*. Its
hidden width is 4, so that only four features per layer can influence the others. Use it to compare with the
published numbers; to train a flow, use :class:`plausiflow.densities.ConditionalFlow`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Self

import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from plausiflow.core import Frozen, check_query
from plausiflow.errors import InvalidInputError


class PublishedMAF:
    """The published flow as a density. It has the interface of a density but cannot be fitted.

    Args:
        arrays: Weights by name, as in ``<data set>_maf.npz``.
    """

    def __init__(self, arrays: Mapping[str, NDArray]) -> None:  # type: ignore[type-arg]
        numbers = sorted({int(match[1]) for name in arrays if (match := re.match(r"maf\.(\d+)\.", name))})
        layers = [n for n in numbers if f"maf.{n}.autoregressive_net.initial_layer.weight" in arrays]
        if not layers:
            raise InvalidInputError(
                "`arrays` must hold the weights of the published flow (names like "
                f"`maf.1.autoregressive_net.initial_layer.weight`); got {sorted(arrays)[:3]}. Read "
                "`<data set>_maf.npz`."
            )
        weights = {name: torch.as_tensor(value) for name, value in arrays.items()}
        module = nn.ModuleList(_Layer(weights, number) for number in layers)
        self.n_features = len(weights[f"maf.{layers[0] - 1}._permutation"])
        self._frozen: Frozen[nn.ModuleList] = Frozen(module)

    def __repr__(self) -> str:
        return f"PublishedMAF({self.n_features} features, {len(self._frozen.module)} layers)"

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Raise an error: the weights are those that were published."""
        raise InvalidInputError(
            "PublishedMAF holds published weights and cannot be fitted. Use ConditionalFlow to train a flow."
        )

    def log_prob(self, x: Tensor, y: Tensor) -> Tensor:
        r"""Return :math:`\log p(x | y)`, shape ``(n,)``. [PPCEF Eq. 10]"""
        check_query(x, y, self.n_features)
        context = y[:, None].to(x)
        u, log_det = x, torch.zeros_like(x[:, 0])
        for layer in self._frozen(x):
            u, part = layer(u, context)
            log_det = log_det + part
        return log_det - 0.5 * (u * u).sum(dim=1) - 0.5 * self.n_features * math.log(2 * math.pi)


class _Layer(nn.Module):
    """A reversal of the features and an affine autoregressive map, with masks multiplied into the weights."""

    def __init__(self, weights: Mapping[str, Tensor], number: int) -> None:
        super().__init__()
        prefix = f"maf.{number}.autoregressive_net."

        def linear(name: str) -> nn.Linear:
            weight, bias = weights[f"{prefix}{name}.weight"], weights[f"{prefix}{name}.bias"]
            layer: nn.Linear = nn.utils.skip_init(
                nn.Linear, weight.shape[1], weight.shape[0], dtype=weight.dtype
            )
            mask = weights.get(f"{prefix}{name}.mask", torch.ones_like(weight))
            layer.load_state_dict({"weight": weight * mask, "bias": bias})
            return layer

        self.register_buffer("order", weights[f"maf.{number - 1}._permutation"])
        self.initial, self.context, self.final = (
            linear("initial_layer"),
            linear("context_layer"),
            linear("final_layer"),
        )
        count = sum(
            name.startswith(f"{prefix}blocks.") and name.endswith("context_layer.bias") for name in weights
        )
        parts = ("linear_layers.0", "linear_layers.1", "context_layer")
        self.blocks = nn.ModuleList(
            _Block(*(linear(f"blocks.{i}.{part}") for part in parts)) for i in range(count)
        )

    def forward(self, u: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        u = u[:, self.order]  # type: ignore[index]
        hidden = self.initial(u) + F.relu(self.context(context))
        for block in self.blocks:
            hidden = block(hidden, context)
        raw_scale, shift = self.final(hidden).view(len(u), -1, 2).unbind(dim=2)
        scale = F.softplus(raw_scale) + 1e-3
        return scale * u + shift, scale.log().sum(dim=1)


class _Block(nn.Module):
    """A residual block that is conditioned on the class."""

    def __init__(self, first: nn.Linear, second: nn.Linear, context: nn.Linear) -> None:
        super().__init__()
        self.first, self.second, self.context = first, second, context

    def forward(self, hidden: Tensor, context: Tensor) -> Tensor:
        change: Tensor = self.second(F.relu(self.first(F.relu(hidden)) + self.context(context)))
        return hidden + change
