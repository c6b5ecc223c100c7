r"""Class-conditional densities without labels: Bayes' rule with a classifier and the density of all rows.

With z the features of a row that cannot change,

.. math:: \log p(x | z, y) = \log p(x | z) + \log p(y | x, z) - \log p(y | z)

The first term is a density that needs no labels, the second is the classifier. The last one makes the result
a density: a softmax regression of the classifier's probabilities on z, or their mean without such features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from plausiflow.errors import InvalidInputError, NotFittedError

ClassLogProba = Callable[[Tensor], Tensor]
"""``x -> (n, k)``: log-probabilities of the classes of encoded rows; keeps the graph."""
MIN_LOG_PROBA, MIN_WEIGHT = -745.0, 1e-9
STEPS, RIDGE = 200, 1e-4


@dataclass(kw_only=True, eq=False)
class BayesRule:
    """The term that a class adds to the log-density of all rows.

    ``given`` are the columns that the density is conditioned on; ``weights_``, shape ``(k, features)``, are
    those of the softmax regression.
    """

    outcome: ClassLogProba
    given: tuple[int, ...] = ()
    weights_: Tensor | None = field(init=False, default=None, repr=False)

    @property
    def n_classes(self) -> int:
        """The number of classes."""
        return len(self._fitted())

    @torch.enable_grad()
    def fit(self, x: Tensor) -> Self:
        """Learn :math:`p(y | z)` from rows ``(n, d)`` and the classifier, without labels."""
        with torch.no_grad():
            proba = self._checked_log_proba(x).exp()
            features = self._features(x)
            weights = features.new_zeros(proba.shape[1], features.shape[1])
            weights[:, 0] = proba.mean(dim=0).clamp_min(MIN_WEIGHT).log()
        if self.given:
            weights.requires_grad_()
            optimizer = torch.optim.LBFGS([weights], max_iter=STEPS, line_search_fn="strong_wolfe")

            def loss() -> Tensor:
                optimizer.zero_grad()
                value = -(proba * (features @ weights.T).log_softmax(dim=1)).sum(dim=1).mean()
                value = value + RIDGE * (weights[:, 1:] ** 2).sum()
                value.backward()
                return value

            optimizer.step(loss)
        self.weights_ = weights.detach()
        return self

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the terms of classes ``(n,)`` for rows ``(n, d)``, shape ``(n,)``; keeps the graph."""
        log_prior = (self._features(x) @ self._fitted().to(x).T).log_softmax(dim=1)
        terms = self.outcome(x).clamp_min(MIN_LOG_PROBA) - log_prior
        return terms.gather(1, y[:, None])[:, 0]

    @torch.no_grad()
    def weights(self, x: Tensor) -> Tensor:
        """Return the weight of each row in each class, shape ``(n, k)``."""
        return self.outcome(x).exp().clamp_min(MIN_WEIGHT)

    def state(self) -> Tensor:
        """Return the learned weights."""
        return self._fitted().clone()

    def load_state(self, state: Tensor) -> Self:
        """Restore what :meth:`state` returned."""
        self.weights_ = state.clone()
        return self

    def _checked_log_proba(self, x: Tensor) -> Tensor:
        log_proba = self.outcome(x)
        if log_proba.ndim != 2 or len(log_proba) != len(x) or log_proba.shape[1] < 2:
            raise InvalidInputError(
                f"`outcome` must return log-probabilities of shape ({len(x)}, k), with at least two classes; "
                f"got {tuple(log_proba.shape)}."
            )
        wrong = int((~((log_proba.exp().sum(dim=1) - 1).abs() < 1e-3)).sum())
        if wrong:
            raise InvalidInputError(
                f"`outcome` must return logarithms of probabilities that sum to one; those of {wrong} of "
                f"{len(x)} rows do not. Return `logits.log_softmax(dim=1)`."
            )
        return log_proba

    def _features(self, x: Tensor) -> Tensor:
        given = x[:, list(self.given)]
        return torch.cat([x.new_ones(len(x), 1), given, given**2], dim=1)

    def _fitted(self) -> Tensor:
        if self.weights_ is None:
            raise NotFittedError("This rule has not been fitted. Call `fit(x)` first.")
        return self.weights_
