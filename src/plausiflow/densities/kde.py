r"""Conditional kernel density estimate: one Gaussian kernel on every training row of the class.

.. math::
    \log p(x | y) = \log\sum_{i: y_i = y} \exp\bigl(-\lVert x - x_i\rVert^2 / 2h^2\bigr)
    - \log n_y - d \log h - \tfrac d2 \log 2\pi
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from plausiflow.core import Parameters, check_query, check_rows
from plausiflow.errors import InvalidInputError, NotFittedError


@dataclass(kw_only=True, eq=False)
class KDE(Parameters):
    """Gaussian kernel density per class.

    Attributes:
        bandwidth: The standard deviation of the kernels. The default is that of the paper, for features in
            [0, 1].
        rows_: The training rows of each class.
    """

    bandwidth: float = 0.1
    rows_: dict[int, Tensor] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not self.bandwidth > 0:
            raise InvalidInputError(f"`bandwidth` must be positive; got {self.bandwidth}.")

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Store the rows of each class."""
        check_rows(x, y)
        self.rows_ = {k: x[y == k].detach().clone() for k in range(int(y.max()) + 1)}
        return self

    def log_prob(self, x: Tensor, y: Tensor) -> Tensor:
        r"""Return :math:`\log p(x | y)`, shape ``(n,)``; minus infinity for a class without rows."""
        check_query(x, y, self._fitted()[0].shape[1])
        log_prob = x.new_full((len(x),), -math.inf)
        for k in y.unique().tolist():
            rows = self.rows_.get(k, x[:0]).to(x)
            if len(rows):
                members = (y == k).nonzero()[:, 0]
                log_prob = log_prob.index_put((members,), self._class_log_prob(x[members], rows))
        return log_prob

    def _class_log_prob(self, x: Tensor, rows: Tensor) -> Tensor:
        # |x - r|^2 is expanded: one matrix product, and a finite gradient on training rows, unlike cdist. The
        # rows are centred first, because the expansion cancels badly far from the origin.
        centre = rows.mean(dim=0)
        x, rows = x - centre, rows - centre
        squared = (x * x).sum(1)[:, None] + (rows * rows).sum(1)[None] - 2 * x @ rows.T
        kernels = torch.logsumexp(-squared.clamp_min(0) / (2 * self.bandwidth**2), dim=1)
        d = x.shape[1]
        return kernels - math.log(len(rows)) - d * math.log(self.bandwidth) - 0.5 * d * math.log(2 * math.pi)

    def state(self) -> dict[str, Tensor]:
        """Return everything learned, as tensors."""
        return {f"rows.{k}": rows.clone() for k, rows in self._fitted().items()}

    def load_state(self, state: dict[str, Tensor]) -> Self:
        """Restore what :meth:`state` returned."""
        self.rows_ = {int(name.removeprefix("rows.")): rows.clone() for name, rows in state.items()}
        return self

    def _fitted(self) -> dict[int, Tensor]:
        if not self.rows_:
            raise NotFittedError(
                "This KDE has not been fitted. Call `fit(x, y)` first, or `load_state(state)`."
            )
        return self.rows_
