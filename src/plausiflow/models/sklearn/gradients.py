"""Outputs of converted models and their gradients in closed form, which is faster than autograd for few rows.

A converted model is a basis followed by affine maps with activations between them and perhaps a link. Each
step returns its value and its pullback. A model with other steps, such as products of features, is left to
autograd.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from plausiflow.core import Pullback
from plausiflow.models.sklearn.columns import Affine, Basis
from plausiflow.models.sklearn.estimators import LinkedScores

Step = Callable[[Tensor], tuple[Tensor, Pullback]]


def closed_form(module: nn.Module) -> Step | None:
    """Return a function ``x -> outputs, pullback`` of a converted model, or None if a step is not known."""
    steps = _steps(module)
    if steps is None:
        return None

    def value_and_grad(x: Tensor) -> tuple[Tensor, Pullback]:
        pullbacks = []
        for step in steps:
            x, pullback = step(x)
            pullbacks.append(pullback)

        def pull_all(gradient: Tensor) -> Tensor:
            for pullback in reversed(pullbacks):
                gradient = pullback(gradient)
            return gradient

        return x, pull_all

    return value_and_grad


def _steps(module: nn.Module) -> list[Step] | None:
    """Return the steps of a module, in order, or None if one is not known."""
    if isinstance(module, nn.Sequential):
        parts = [_steps(part) for part in module]
        return None if any(part is None for part in parts) else [s for part in parts for s in part or []]
    if isinstance(module, LinkedScores):
        inner = _steps(module.scores)
        return None if inner is None else [*inner, link_step(module)]
    if isinstance(module, Basis):
        return [module.value_and_grad] if not len(module.added) else None
    if isinstance(module, Affine):
        return [_affine(module)]
    known = ACTIVATIONS.get(type(module))
    return None if known is None else [known]


def _affine(module: Affine) -> Step:
    weight, bias, transposed = module.weight, module.bias, module.weight.mT.contiguous()

    def step(x: Tensor) -> tuple[Tensor, Pullback]:
        assert x.shape[1] == len(weight)
        value = x @ weight if bias is None else (x @ weight).add_(bias)
        return value, lambda gradient: gradient @ transposed

    return step


def _identity(x: Tensor) -> tuple[Tensor, Pullback]:
    return x, lambda gradient: gradient


def _sigmoid(x: Tensor) -> tuple[Tensor, Pullback]:
    value = torch.sigmoid(x)
    return value, lambda gradient: gradient * value * (1 - value)


def _tanh(x: Tensor) -> tuple[Tensor, Pullback]:
    value = torch.tanh(x)
    return value, lambda gradient: gradient * (1 - value * value)


def _relu(x: Tensor) -> tuple[Tensor, Pullback]:
    value = x.relu()
    return value, lambda gradient: torch.ops.aten.threshold_backward(gradient, value, 0)


def link_step(module: LinkedScores) -> Step:
    """Return the link from scores to log-probabilities as a step."""

    def step(scores: Tensor) -> tuple[Tensor, Pullback]:
        outputs = module.linked(scores)
        if module.link == "softmax":
            return outputs, lambda g: g - outputs.exp() * g.sum(dim=1, keepdim=True)
        if module.link == "one_vs_rest":
            inner = torch.sigmoid(-scores)
            return outputs, lambda g: (g - outputs.exp() * g.sum(dim=1, keepdim=True)) * inner
        if scores.shape[1] > 1:
            return outputs, lambda g: g
        if module.link == "margin":
            return outputs, lambda g: g[:, 1:]
        positive = torch.sigmoid(scores)
        return outputs, lambda g: g[:, 1:] * (1 - positive) - g[:, :1] * positive

    return step


ACTIVATIONS: dict[type[nn.Module], Step] = {
    nn.Identity: _identity,
    nn.Sigmoid: _sigmoid,
    nn.Tanh: _tanh,
    nn.ReLU: _relu,
}
"""Steps of activations, which take tensors of any shape."""
