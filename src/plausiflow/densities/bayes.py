r"""Classes without labels: a classifier turns the density of all rows into that of each class.

By Bayes' rule, z being what a row is given and cannot change,

.. math:: \log p(x | z, y) = \log p(x | z) + \log p(y | x, z) - \log p(y | z)

The first term is a density that needs no labels, the second is the classifier. The last keeps the result a
density: a softmax regression of the classifier's probabilities on z, or their mean where nothing is given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from plausiflow.errors import InvalidInputError, NotFittedError

Outcome = Callable[[Tensor], Tensor]
"""``x -> (n, k)``: log-probabilities of the classes of encoded rows; keeps the graph."""
LOWEST, LEAST_WEIGHT = -745.0, 1e-9
STEPS, RIDGE = 200, 1e-4


@dataclass(kw_only=True, eq=False)
class BayesRule:
    """What a class adds to the log-density of all rows.

    Attributes:
        outcome: The classifier's log-probabilities.
        given: Columns that the density of all rows is given.
        weights_: Of the softmax regression, shape ``(k, features)``.
    """

    outcome: Outcome
    given: tuple[int, ...] = ()
    weights_: Tensor | None = field(init=False, default=None, repr=False)

    @property
    def n_classes(self) -> int:
        """How many classes there are."""
        return len(self._weights())

    @torch.enable_grad()
    def fit(self, x: Tensor) -> Self:
        """Learn how probable each class is given what rows ``(n, d)`` are given; no label is used."""
        with torch.no_grad():
            proba = self._checked(x).exp()
            features = self._features(x)
            weights = features.new_zeros(proba.shape[1], features.shape[1])
            weights[:, 0] = proba.mean(dim=0).clamp_min(LEAST_WEIGHT).log()
        if self.given:
            weights.requires_grad_()
            solver = torch.optim.LBFGS([weights], max_iter=STEPS, line_search_fn="strong_wolfe")

            def loss() -> Tensor:
                solver.zero_grad()
                error = -(proba * (features @ weights.T).log_softmax(dim=1)).sum(dim=1).mean()
                error = error + RIDGE * (weights[:, 1:] ** 2).sum()
                error.backward()
                return error

            solver.step(loss)
        self.weights_ = weights.detach()
        return self

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """What the classes ``(n,)`` add for rows ``(n, d)``, shape ``(n,)``; keeps the graph."""
        prior = (self._features(x) @ self._weights().to(x).T).log_softmax(dim=1)
        added = self.outcome(x).clamp_min(LOWEST) - prior
        return added.gather(1, y[:, None])[:, 0]

    @torch.no_grad()
    def weights(self, x: Tensor) -> Tensor:
        """How much each row counts as one of each class, shape ``(n, k)``."""
        return self.outcome(x).exp().clamp_min(LEAST_WEIGHT)

    def state(self) -> Tensor:
        """What was learned; :meth:`load_state` takes it back."""
        return self._weights().clone()

    def load_state(self, state: Tensor) -> Self:
        """Take back what :meth:`state` gave."""
        self.weights_ = state.clone()
        return self

    def _checked(self, x: Tensor) -> Tensor:
        log_proba = self.outcome(x)
        if log_proba.ndim != 2 or len(log_proba) != len(x) or log_proba.shape[1] < 2:
            raise InvalidInputError(
                f"`outcome` must give log-probabilities of shape ({len(x)}, k), two classes or more; got "
                f"{tuple(log_proba.shape)}."
            )
        wrong = int((~((log_proba.exp().sum(dim=1) - 1).abs() < 1e-3)).sum())
        if wrong:
            raise InvalidInputError(
                f"`outcome` must give the logarithms of probabilities that sum to one; {wrong} of {len(x)} "
                "rows have others. Give `logits.log_softmax(dim=1)`."
            )
        return log_proba

    def _features(self, x: Tensor) -> Tensor:
        own = x[:, list(self.given)]
        return torch.cat([x.new_ones(len(x), 1), own, own**2], dim=1)

    def _weights(self) -> Tensor:
        if self.weights_ is None:
            raise NotFittedError("This rule has not been fitted. Call `fit(x)` with training rows first.")
        return self.weights_
