"""Several models of one table, evaluated together: the retrained models that guide a search.

Converted models of one shape are stacked, and trees that were read are walked at once. Any other models are
asked one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TypeAlias

import pandas as pd
import torch
from torch import Tensor

from plausiflow.core import Pullback, TargetCriterion
from plausiflow.errors import InvalidInputError
from plausiflow.models.black_box import BlackBox
from plausiflow.models.sklearn.conversion import ConvertedClassifier, ConvertedRegressor
from plausiflow.models.sklearn.stacking import StackedModels
from plausiflow.models.surrogate import JoinedTrees
from plausiflow.models.table_model import EncodedModel, TableModel

Gradients: TypeAlias = Callable[[Tensor], tuple[Tensor, Pullback]]


class JointModels:
    """Several models of one table with the same outcomes.

    Their outputs are side by side, ``(n, models * k)`` for k classes or ``(n, models)`` for numbers. The
    largest output of a classifier is its decision, whatever its cut-offs.
    """

    def __init__(self, models: Sequence[TableModel]) -> None:
        self.models = tuple(models)
        self.n_classes = len(models[0].labels)

    def __len__(self) -> int:
        return len(self.models)

    @cached_property
    def _stacked(self) -> StackedModels | None:
        """The models as one, if they can be stacked."""
        converted = [model.model for model in self.models if isinstance(model, EncodedModel)]
        known = [own for own in converted if isinstance(own, ConvertedClassifier | ConvertedRegressor)]
        if len(known) < len(self.models):
            return None
        return StackedModels.of(known, torch.zeros(1, known[0].n_features, dtype=torch.float64))

    @cached_property
    def _trees(self) -> JoinedTrees | None:
        """The trees of all models, if they were read."""
        read = [model.surrogate for model in self.models if isinstance(model, BlackBox)]
        if len(read) < len(self.models) or any(own.own_trees is None for own in read):
            return None
        try:
            return JoinedTrees(read)
        except InvalidInputError:
            return None

    @property
    def has_gradients(self) -> bool:
        """Whether all models have gradients."""
        return all(isinstance(model, EncodedModel) for model in self.models)

    @property
    def reads_trees(self) -> bool:
        """Whether encoded rows are enough for the exact outputs of models without gradients."""
        return self._trees is not None

    def outputs(self, x: Tensor) -> Tensor:
        """Return the outputs of encoded rows; differentiable, but not for models without gradients."""
        if self._stacked is not None and not (torch.is_grad_enabled() and x.requires_grad):
            return self._shifted(self._stacked.value_and_grad(x)[0])
        return self._beside([model.outputs_at(0.0)(x) for model in self.models])

    @property
    def value_and_grad(self) -> Gradients | None:
        """Outputs with their pullback, if no model needs autograd; else None."""
        if self._stacked is not None:
            return self._stacked_value_and_grad
        known = [model.value_and_grad for model in self.models if model.value_and_grad is not None]
        return None if len(known) < len(self.models) else self._value_and_grad

    def _stacked_value_and_grad(self, x: Tensor) -> tuple[Tensor, Pullback]:
        assert self._stacked is not None
        outputs, pullback = self._stacked.value_and_grad(x)
        return self._shifted(outputs), pullback

    def _value_and_grad(self, x: Tensor) -> tuple[Tensor, Pullback]:
        own = [model.value_and_grad(x) for model in self.models if model.value_and_grad is not None]
        flat = [outputs.ndim == 1 for outputs, _ in own]
        widths = [1 if one else outputs.shape[1] for (outputs, _), one in zip(own, flat, strict=True)]

        def pullback(gradient: Tensor) -> Tensor:
            pieces = zip(own, flat, gradient.split(widths, dim=1), strict=True)
            pulled = [pull(piece[:, 0] if one else piece) for (_, pull), one, piece in pieces]
            return torch.stack(pulled).sum(dim=0)

        return self._beside([outputs for outputs, _ in own]), pullback

    @torch.no_grad()
    def predict(self, x: Tensor, frame: pd.DataFrame | None) -> Tensor:
        """Return the outputs of the models themselves, without gradients.

        Args:
            x: Encoded rows, shape ``(n, width)``.
            frame: The same rows of the table; decoded from ``x`` if None and needed.
        """
        if self._trees is not None:
            outputs = self._trees(x)
            if self.n_classes:
                outputs = outputs.unflatten(1, (len(self), -1)).log_softmax(dim=2).flatten(1)
            return self._shifted(outputs)
        if self._stacked is not None and self.n_classes:
            return self.outputs(x.double())
        return self._beside([model.predict_outputs(x, frame) for model in self.models])

    def _beside(self, parts: Sequence[Tensor]) -> Tensor:
        columns = [part if part.ndim == 2 else part[:, None] for part in parts]
        return self._shifted(torch.cat(columns, dim=1))

    def _shifted(self, outputs: Tensor) -> Tensor:
        """Return outputs whose largest one is the decision of each model."""
        if not any(model.decision.cutoffs for model in self.models):
            return outputs
        parts = outputs.split(self.n_classes, dim=1)
        criteria = [TargetCriterion(cutoffs=model.decision.cutoffs) for model in self.models]
        return torch.cat(
            [own.decision_logits(part) for own, part in zip(criteria, parts, strict=True)], dim=1
        )
