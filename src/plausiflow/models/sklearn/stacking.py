"""Converted models of one shape, evaluated as one: weights are stacked, and layers are batched products.

The retrained models of a table have the same layers with other weights. One after the other, they spend most
of the time on small products; stacked, each layer is one product for all of them. The first layer is a single
matrix, because all models get the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from plausiflow.core import Pullback
from plausiflow.models.sklearn.columns import Affine, Basis
from plausiflow.models.sklearn.conversion import ConvertedClassifier, ConvertedRegressor
from plausiflow.models.sklearn.estimators import LinkedScores
from plausiflow.models.sklearn.gradients import ACTIVATIONS, Step, link_step

Converted: TypeAlias = ConvertedClassifier | ConvertedRegressor


class StackedModels:
    """Outputs of several converted models of one shape, side by side, with their pullback."""

    def __init__(self, models: Sequence[Converted]) -> None:
        self.models = tuple(models)
        self._steps: dict[tuple[torch.dtype, torch.device], list[Step]] = {}

    @classmethod
    def of(cls, models: Sequence[Converted], x: Tensor) -> StackedModels | None:
        """Return the models as one, or None if they differ in shape or have steps that are not known."""
        stacked = cls(models)
        steps = _stack([model.evaluated(x) for model in models])
        if steps is None:
            return None
        stacked._steps[x.dtype, x.device] = steps
        return stacked

    def value_and_grad(self, x: Tensor) -> tuple[Tensor, Pullback]:
        """Return the outputs ``(n, models * k)``, model by model, and their pullback to rows ``(n, d)``."""
        key = (x.dtype, x.device)
        if key not in self._steps:
            steps = _stack([model.evaluated(x) for model in self.models])
            assert steps is not None
            self._steps[key] = steps
        count, pullbacks = len(self.models), []
        for step in self._steps[key]:
            x, pullback = step(x)
            pullbacks.append(pullback)

        def pull_all(gradient: Tensor) -> Tensor:
            gradient = gradient.unflatten(1, (count, -1)).transpose(0, 1)
            for pullback in reversed(pullbacks):
                gradient = pullback(gradient)
            return gradient

        return x.transpose(0, 1).flatten(1), pull_all

    def __getstate__(self) -> dict[str, object]:
        # Steps are functions of frozen copies, which are made again.
        return {"models": self.models, "_steps": {}}


def _stack(modules: Sequence[nn.Module]) -> list[Step] | None:
    """Return the steps of several modules at once; None if they cannot be stacked."""
    parts = [_flatten(module) for module in modules]
    if len({tuple(map(_shape, own)) for own in parts}) != 1 or not isinstance(parts[0][0], Basis):
        return None
    steps: list[Step] = []
    for place, alike in enumerate(zip(*parts, strict=True)):
        first = alike[0]
        if isinstance(first, Basis) and place == 0 and not len(first.added):
            steps.append(first.value_and_grad)
        elif isinstance(first, Affine) and place > 0:
            layers = [layer for layer in alike if isinstance(layer, Affine)]
            steps.append(_shared_input(layers) if place == 1 else _batched(layers))
        elif isinstance(first, LinkedScores) and place > 1:
            steps.append(_flattened(link_step(first)))
        elif type(first) in ACTIVATIONS and place > 1:
            steps.append(ACTIVATIONS[type(first)])
        else:
            return None
    return steps if len(steps) > 1 else None


def _flatten(module: nn.Module) -> list[nn.Module]:
    """Return the parts of a module in order; a link comes after its scores."""
    if isinstance(module, nn.Sequential):
        return [part for inner in module for part in _flatten(inner)]
    if isinstance(module, LinkedScores):
        return [*_flatten(module.scores), module]
    return [module]


def _shape(module: nn.Module) -> tuple[object, ...]:
    if isinstance(module, Affine):
        return (Affine, tuple(module.weight.shape), module.bias is None)
    if isinstance(module, LinkedScores):
        return (LinkedScores, module.link)
    return (type(module), module.size) if isinstance(module, Basis) else (type(module),)


def _shared_input(layers: Sequence[Affine]) -> Step:
    """Return the first layer of all models: rows ``(n, d)`` to ``(models, n, h)``."""
    count, (rows, columns) = len(layers), layers[0].weight.shape
    weight = torch.cat([layer.weight for layer in layers], dim=1)
    transposed, bias = weight.mT.contiguous(), _biases(layers)

    def step(x: Tensor) -> tuple[Tensor, Pullback]:
        product = (x[:, :rows] @ weight).unflatten(1, (count, columns)).transpose(0, 1)
        value = product if bias is None else product + bias

        def pullback(gradient: Tensor) -> Tensor:
            return gradient.transpose(0, 1).flatten(1) @ transposed

        return value, pullback

    return step


def _batched(layers: Sequence[Affine]) -> Step:
    """Return a later layer of all models: ``(models, n, h)`` to ``(models, n, o)``."""
    weight, bias = torch.stack([layer.weight for layer in layers]), _biases(layers)
    transposed = weight.mT.contiguous()

    def step(x: Tensor) -> tuple[Tensor, Pullback]:
        product = torch.bmm(x, weight)
        return (product if bias is None else product + bias), lambda gradient: gradient @ transposed

    return step


def _biases(layers: Sequence[Affine]) -> Tensor | None:
    biases = [layer.bias for layer in layers if layer.bias is not None]
    return torch.stack(biases)[:, None] if biases else None


def _flattened(step: Step) -> Step:
    """Return a step of rows ``(n, k)`` for ``(models, n, k)``."""

    def flattened(x: Tensor) -> tuple[Tensor, Pullback]:
        count = len(x)
        value, pullback = step(x.flatten(0, 1))
        shape = (count, -1)
        return value.unflatten(0, shape), lambda g: pullback(g.flatten(0, 1)).unflatten(0, shape)

    return flattened
