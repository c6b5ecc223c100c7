"""Final maps of scikit-learn estimators, from scores over the basis to predictions.

Log-probabilities are finite wherever the scores are, so the gradient never vanishes by underflow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from plausiflow.models.sklearn.columns import Affine, Array

Link = Literal["sigmoid", "softmax", "one_vs_rest", "margin"]


class LinkedScores(nn.Module):
    """Logits from scores: a single score for two classes if the link allows it, else one per class."""

    def __init__(self, scores: nn.Module, link: Link) -> None:
        super().__init__()
        self.scores, self.link = scores, link

    def forward(self, basis: Tensor) -> Tensor:
        """Return log-probabilities, or margins, ``(n, size) -> (n, k)``."""
        scores: Tensor = self.scores(basis)
        if self.link == "softmax":
            return scores.log_softmax(dim=1)
        if self.link == "one_vs_rest":
            return logsigmoid(scores).log_softmax(dim=1)
        if scores.shape[1] > 1:
            return scores
        if self.link == "margin":
            return torch.cat([torch.zeros_like(scores), scores], dim=1)
        return torch.cat([logsigmoid(-scores), logsigmoid(scores)], dim=1)

    def decision(self, basis: Tensor) -> Tensor:
        """Return the model's decision function, shape ``(n, 1)`` for two classes, else ``(n, k)``."""
        scores: Tensor = self.scores(basis)
        return scores[:, 1:] - scores[:, :1] if scores.shape[1] == 2 else scores


class QuadraticScores(nn.Module):
    r"""Scores :math:`c_k - \lVert A_k x - a_k \rVert^2 / 2`, one for each class."""

    constant: Tensor

    def __init__(self, maps: Sequence[Array], constant: Array) -> None:
        super().__init__()
        widest = max(part.shape[1] for part in maps)
        padded = [np.pad(part, ((0, 0), (0, widest - part.shape[1]))) for part in maps]
        self.distances = Affine(np.concatenate(padded, axis=1))
        self.register_buffer("constant", torch.from_numpy(np.array(constant, dtype=np.float64)))

    def forward(self, basis: Tensor) -> Tensor:
        """Return shape ``(n, k)``."""
        squares: Tensor = self.distances(basis).square().unflatten(1, (len(self.constant), -1)).sum(dim=2)
        return self.constant - squares / 2


class CalibratedScores(nn.Module):
    """Log-probabilities from a normalised sigmoid of each class's decision or probability."""

    slope: Tensor
    offset: Tensor

    def __init__(self, model: nn.Module, by_decision: bool, slope: Array, offset: Array) -> None:
        super().__init__()
        self.model, self.by_decision = model, by_decision
        self.register_buffer("slope", torch.from_numpy(slope))
        self.register_buffer("offset", torch.from_numpy(offset))

    def forward(self, basis: Tensor) -> Tensor:
        """Return shape ``(n, k)``."""
        if self.by_decision and isinstance(self.model, LinkedScores):
            response = self.model.decision(basis)
        else:
            response = self.model(basis).exp()
            response = response[:, 1:] if response.shape[1] == 2 else response
        scores = -(self.slope * response + self.offset)
        if scores.shape[1] > 1:
            return logsigmoid(scores).log_softmax(dim=1)
        return torch.cat([logsigmoid(-scores), logsigmoid(scores)], dim=1)


class MeanProbabilities(nn.Module):
    """Logarithm of a weighted mean of probabilities."""

    log_weights: Tensor

    def __init__(self, members: Sequence[nn.Module], weights: Array) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.register_buffer("log_weights", torch.from_numpy(np.log(weights / weights.sum())))

    def forward(self, basis: Tensor) -> Tensor:
        """Return shape ``(n, k)``."""
        parts = torch.stack([member(basis) for member in self.members])
        return (parts + self.log_weights[:, None, None]).logsumexp(dim=0)


class Exponential(nn.Module):
    """The exponential function."""

    def forward(self, scores: Tensor) -> Tensor:
        """Return the shape of ``scores``."""
        return scores.exp()
