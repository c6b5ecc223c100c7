r"""NNCE: the nearest training row that the model assigns to the target class, a baseline for every method.

.. math:: x' = \arg\min_{x_i} d(x, x_i) \quad\text{where the model decides } x_i \text{ as } y'

Such a row is real and valid. ``NearestDense`` also requires that it is plausible, which solves the paper's
problem [PPCEF Eq. 3] over the training rows instead of the whole space.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from plausiflow.core import Plausibility, Solution, check_rows, predict
from plausiflow.errors import InvalidInputError, NotFittedError
from plausiflow.methods.base import Method
from plausiflow.methods.reference.statistics import median_absolute_deviations, pairwise_distances
from plausiflow.search import Bank
from plausiflow.validation import raise_unless

_BLOCK = 512


@dataclass(kw_only=True, eq=False)
class Nearest(Method):
    """The nearest training row of the target class; a row that is in it already stays unchanged.

    Attributes:
        distance: Distance between rows: ``l2``, ``l1``, or ``mad``, the L1 distance in units of each
            feature's median absolute deviation (one if that is zero).

    Example:
        >>> from plausiflow.models import LinearClassifier
        >>> model = LinearClassifier.from_weights(torch.tensor([[1.0, 0.0]]), torch.tensor([0.0]))
        >>> x = torch.tensor([[-1.0, 0.0], [1.0, 0.0], [2.0, 0.0]])
        >>> Nearest(classifier=model).fit(x, torch.tensor([0, 1, 1])).explain(x[:1]).x_cf
        tensor([[1., 0.]])
    """

    label: ClassVar[str] = "NNCE"

    distance: Literal["l2", "l1", "mad"] = "l2"
    bank_: Bank | None = field(init=False, default=None, repr=False)
    deviations_: Tensor | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        raise_unless({"distance": ("'l2', 'l1' or 'mad'", self.distance in ("l2", "l1", "mad"))}, vars(self))

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Group training rows ``(n, d)`` by the class that the model predicts; ``y`` is only checked."""
        check_rows(x, y, n_classes=self.classifier.n_classes)
        self.bank_ = Bank.of(x.detach(), self.classifier.n_classes, self._qualifies)
        deviations = median_absolute_deviations(x.detach().double())
        self.deviations_ = torch.where(deviations > 0, deviations, 1.0)
        return self

    @torch.no_grad()
    def nearest(self, x: Tensor, y_target: Tensor, count: int) -> Tensor:
        """Return the nearest distinct training rows that qualify, nearest first.

        Args:
            x: Rows, shape ``(n, d)``; a row that is not finite has no neighbours.
            y_target: Target classes, shape ``(n,)``.
            count: Number of training rows.

        Returns:
            Training rows, shape ``(n, count, d)``; NaN if there are fewer.
        """
        if self.bank_ is None:
            raise NotFittedError("This method has no training rows. Call `fit(x, y)` first.")
        found = torch.full((len(x), count, x.shape[1]), torch.nan, dtype=x.dtype, device=x.device)
        usable = torch.isfinite(x).all(dim=1)
        for y in y_target.unique().tolist():
            bank = self.bank_.rows[y].to(x.device)
            for rows in (usable & (y_target == y)).nonzero()[:, 0].split(_BLOCK):
                near = self._distances(x[rows].double(), bank).topk(min(count, len(bank)), largest=False)
                found[rows, : near.indices.shape[1]] = bank[near.indices].to(x.dtype)
        return found

    @torch.no_grad()
    def search(self, x: Tensor, y_target: Tensor) -> Solution:
        """Return the nearest training row that qualifies."""
        near = self.nearest(x, y_target, count=1)[:, 0]
        already = self._qualifies(x.double(), y_target)
        return Solution(x=torch.where(already[:, None], x, near), gradients=torch.zeros_like(y_target))

    @torch.no_grad()
    def _qualifies(self, x: Tensor, y_target: Tensor) -> Tensor:
        """Return whether rows are counterfactuals for their target classes, shape ``(n,)``."""
        return predict(self.classifier, x) == y_target

    def _distances(self, x: Tensor, bank: Tensor) -> Tensor:
        """Return shape ``(n, bank rows)``."""
        if self.distance == "l2":
            return pairwise_distances(x, bank)
        if self.distance == "mad" and self.deviations_ is not None:
            x, bank = x / self.deviations_.to(x), bank / self.deviations_.to(x)
        return torch.cdist(x, bank, p=1.0)


@dataclass(kw_only=True, eq=False)
class NearestDense(Nearest):
    """The nearest training row that is in the target class and plausible.

    Attributes:
        plausibility: Criterion for plausible rows; it must be fitted.
    """

    label: ClassVar[str] = "NNCE-dense"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._required_plausibility()

    @torch.no_grad()
    def _qualifies(self, x: Tensor, y_target: Tensor) -> Tensor:
        return super()._qualifies(x, y_target) & (self._required_plausibility().score(x, y_target) >= 0)

    def _required_plausibility(self) -> Plausibility:
        if self.plausibility is None or isinstance(self.plausibility, int | float):
            raise InvalidInputError(
                "`plausibility` must be a fitted plausibility, which tells dense training rows from others; "
                f"got {self.plausibility!r}. Give a fitted `Thresholded`, or use `Nearest`."
            )
        return self.plausibility
