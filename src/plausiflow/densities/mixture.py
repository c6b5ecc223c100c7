r"""Conditional Gaussian mixture: fitted by scikit-learn, evaluated in torch so that gradients flow.

.. math:: \log p(x | y) = \log\sum_j \pi_{j,y}\, \mathcal N(x; \mu_{j,y}, \Sigma_{j,y})

[PPCEF Eq. 4 takes its max]

Each precision matrix is stored as a factor P with :math:`\Sigma^{-1} = P P^\top`, so that a component's
quadratic form is :math:`\lVert (x - \mu) P \rVert^2` and its log-determinant a sum over P's diagonal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import torch
from sklearn.mixture import GaussianMixture
from torch import Tensor

from plausiflow.core import Parameters, check_query, check_rows
from plausiflow.errors import InvalidInputError, NotFittedError


@dataclass(kw_only=True, eq=False)
class GMM(Parameters):
    """One Gaussian mixture per class.

    Attributes:
        components: Components per class; fewer if a class has fewer different rows.
        regularisation: Added to the diagonals of the covariances, for constant and duplicated columns.
        random_state: The random seed of the fit.
        parameters_: Log-weights, means and precision factors of each class.
    """

    components: int = 4
    regularisation: float = 1e-4
    random_state: int = 0
    parameters_: dict[int, dict[str, Tensor]] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.components < 1:
            raise InvalidInputError(f"`components` must be at least 1; got {self.components}.")

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Fit a mixture to the rows of each class."""
        check_rows(x, y)
        self.parameters_ = {}
        for k in y.unique().tolist():
            rows = x[y == k].detach().double().cpu().numpy()
            count = min(self.components, len(np.unique(rows, axis=0)))
            if len(rows) == 1:  # scikit-learn needs two rows; a duplicate gives the same Gaussian
                rows = rows.repeat(2, axis=0)
            settings = {"reg_covar": self.regularisation, "random_state": self.random_state, "max_iter": 500}
            mixture = GaussianMixture(count, **settings).fit(rows)
            self.parameters_[k] = {
                "log_weights": torch.as_tensor(mixture.weights_).log(),
                "means": torch.as_tensor(mixture.means_),
                "precisions_cholesky": torch.as_tensor(mixture.precisions_cholesky_),
            }
        return self

    def log_prob(self, x: Tensor, y: Tensor) -> Tensor:
        r"""Return :math:`\log p(x | y)`, shape ``(n,)``; minus infinity for a class without rows."""
        check_query(x, y, next(iter(self._fitted().values()))["means"].shape[1])
        log_prob = x.new_full((len(x),), -math.inf)
        for k in y.unique().tolist():
            if k in self.parameters_:
                members = (y == k).nonzero()[:, 0]
                log_prob = log_prob.index_put((members,), self._class_log_prob(x[members], k))
        return log_prob

    def _class_log_prob(self, x: Tensor, k: int) -> Tensor:
        log_weights, means, factors = (
            self.parameters_[k][n].to(x) for n in ("log_weights", "means", "precisions_cholesky")
        )
        whitened = torch.einsum("nd,jde->nje", x, factors) - torch.einsum("jd,jde->je", means, factors)
        log_det = factors.diagonal(dim1=1, dim2=2).log().sum(dim=1)
        log_normal = log_det - 0.5 * (whitened**2).sum(dim=2) - 0.5 * x.shape[1] * math.log(2 * math.pi)
        return torch.logsumexp(log_weights + log_normal, dim=1)

    def state(self) -> dict[str, Tensor]:
        """Return everything learned, as tensors."""
        parameters = self._fitted().items()
        return {f"{k}.{name}": value.clone() for k, part in parameters for name, value in part.items()}

    def load_state(self, state: dict[str, Tensor]) -> Self:
        """Restore what :meth:`state` returned."""
        self.parameters_ = {}
        for key, value in state.items():
            k, name = key.split(".", 1)
            self.parameters_.setdefault(int(k), {})[name] = value.clone()
        return self

    def _fitted(self) -> dict[int, dict[str, Tensor]]:
        if not self.parameters_:
            raise NotFittedError(
                "This mixture has not been fitted. Call `fit(x, y)` first, or `load_state(state)`."
            )
        return self.parameters_
