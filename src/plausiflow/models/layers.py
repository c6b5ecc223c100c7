"""The affine maps of a linear model or a network with ReLU, over what each feature of a table contributes.

The first map is a sum with one term for each feature: its *units* are affine in the basis of an encoded row
(:class:`~plausiflow.models.sklearn.columns.Basis`), and every element of the basis depends on one feature.
Each later map follows a ReLU. The last units are the logits of a classifier, up to a constant that all
classes share, or the number that a regressor predicts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from plausiflow.models.networks import LinearClassifier, MLPClassifier
from plausiflow.models.sklearn.columns import Affine, Basis, UnsupportedModelError
from plausiflow.models.sklearn.conversion import ConvertedClassifier, ConvertedRegressor
from plausiflow.models.sklearn.estimators import LinkedScores
from plausiflow.models.table_model import EncodedModel, TableModel

Array = npt.NDArray[np.float64]
Map = tuple[Array, Array]
"""Weights ``(inputs, outputs)`` and biases ``(outputs,)``."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Layers:
    """The maps of a model.

    Attributes:
        basis: Maps encoded rows to the inputs of the first map; None for the rows themselves.
        maps: The maps, at least one; the last one has an output for each class, or one for a regressor.
        converted: Whether the user's own model may predict a little more or less.
    """

    basis: Basis | None
    maps: tuple[Map, ...]
    converted: bool = False

    @torch.no_grad()
    def first(self, x: Tensor) -> Array:
        """Return the units of the first map for encoded rows, shape ``(n, units)``."""
        weight, bias = self.maps[0]
        inputs = (x if self.basis is None else self.basis(x)).numpy()[:, : len(weight)]
        return np.asarray(inputs @ weight + bias)

    def outputs(self, x: Tensor) -> Array:
        """Return the outputs for encoded rows, shape ``(n, outputs)``."""
        units = self.first(x)
        for weight, bias in self.maps[1:]:
            units = np.maximum(units, 0.0) @ weight + bias
        return np.asarray(units)


def read_layers(model: TableModel | None) -> Layers:
    """Read the maps of a model.

    Raises:
        UnsupportedModelError: The model is not made of affine maps and ReLU; the message gives the reason.
    """
    own = model.model if isinstance(model, EncodedModel) else None
    if type(own) in (LinearClassifier, MLPClassifier):
        return Layers(basis=None, maps=tuple(_network_maps(own)))  # type: ignore[arg-type]
    if not isinstance(own, ConvertedClassifier | ConvertedRegressor):
        raise UnsupportedModelError("proofs need a model of trees, a linear model or a network with ReLU")
    basis, head = own.module[0], own.module[1]  # type: ignore[index]
    if isinstance(head, LinkedScores):
        if head.link == "one_vs_rest":
            raise UnsupportedModelError("it normalises scores of one class against the rest")
        head = head.scores
    maps = _module_maps(head)
    if isinstance(own, ConvertedClassifier) and maps[-1][0].shape[1] == 1:  # one score for two classes
        weight, bias = maps[-1]
        maps[-1] = np.pad(weight, ((0, 0), (1, 0))), np.pad(bias, (1, 0))
    plain = 1 + own.n_features + len(basis.columns)
    weight, bias = maps[0]
    if np.any(weight[plain:]):
        raise UnsupportedModelError("its preprocessing clips or multiplies numbers")
    maps[0] = weight[:plain], bias
    return Layers(basis=basis, maps=tuple(maps), converted=isinstance(own, ConvertedRegressor))


def _network_maps(own: LinearClassifier | MLPClassifier) -> Iterator[Map]:
    module = own.module_
    for layer in module if isinstance(module, nn.Sequential) else [module]:
        if isinstance(layer, nn.Linear):
            yield layer.weight.detach().double().t().numpy(), layer.bias.detach().double().numpy()


def _module_maps(head: nn.Module) -> list[Map]:
    """Return the maps of a module of affine maps and ReLU; maps without a ReLU between them become one."""
    maps: list[Map] = []
    joined = False
    for layer in _flat(head):
        if isinstance(layer, Affine):
            weight = layer.weight.numpy()
            bias = np.zeros(weight.shape[1]) if layer.bias is None else layer.bias.numpy()
            if joined:
                before, shift = maps.pop()
                weight, bias = before @ weight, shift @ weight + bias
            maps.append((weight, bias))
            joined = True
        elif isinstance(layer, nn.ReLU) and joined:
            joined = False
        else:
            raise UnsupportedModelError(f"its layers use {type(layer).__name__}, not affine maps and ReLU")
    if not joined:
        raise UnsupportedModelError("its last layer is not an affine map")
    return maps


def _flat(head: nn.Module) -> Iterator[nn.Module]:
    """Yield the layers of nested sequences, without identities."""
    if isinstance(head, nn.Sequential):
        for layer in head:
            yield from _flat(layer)
    elif not isinstance(head, nn.Identity):
        yield head
