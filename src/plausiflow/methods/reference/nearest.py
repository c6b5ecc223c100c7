r"""NNCE: the nearest training row that the model decides as wanted, the floor of every comparison.

.. math:: x' = \arg\min_{x_i} d(x, x_i) \quad\text{where the model decides } x_i \text{ as } y'

Such a row is real and decided as wanted. ``NearestDense`` asks that it be plausible, too, which solves the
paper's problem [PPCEF Eq. 3] over the training rows instead of over the whole space.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from plausiflow.core import Plausibility, Solution, check_rows, predict
from plausiflow.errors import InvalidInputError, NotFittedError
from plausiflow.methods.base import Method
from plausiflow.search import Bank

_BLOCK = 512


@dataclass(kw_only=True, eq=False)
class Nearest(Method):
    """The nearest training row that the model decides as wanted; a row that already is stays as it is.

    Attributes:
        distance: What is near: ``l2``, ``l1``, or ``mad``, the L1 distance in units of each feature's median
            absolute deviation (one, where that is zero).

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
        if self.distance not in ("l2", "l1", "mad"):
            raise InvalidInputError(f"`distance` must be 'l2', 'l1' or 'mad'; got {self.distance!r}.")

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Keep the training rows ``(n, d)`` by the class the model gives them; ``y`` is only checked."""
        check_rows(x, y, n_classes=self.classifier.n_classes)
        self.bank_ = Bank.of(x.detach(), self.classifier.n_classes, self._as_wanted)
        self.deviations_ = _median_absolute_deviations(x.detach().double())
        return self

    @torch.no_grad()
    def nearest(self, x: Tensor, y_target: Tensor, count: int) -> Tensor:
        """The nearest distinct training rows that would do, nearest first.

        Args:
            x: Rows, shape ``(n, d)``; one that is not finite has no neighbours.
            y_target: Target classes, shape ``(n,)``.
            count: How many.

        Returns:
            Training rows, shape ``(n, count, d)``; NaN where there are fewer.
        """
        if self.bank_ is None:
            raise NotFittedError("This method knows no training rows. Call `fit(x, y)` with them first.")
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
        near = self.nearest(x, y_target, count=1)[:, 0]
        already = self._as_wanted(x.double(), y_target)
        return Solution(x=torch.where(already[:, None], x, near), gradients=torch.zeros_like(y_target))

    @torch.no_grad()
    def _as_wanted(self, x: Tensor, y_target: Tensor) -> Tensor:
        """Whether a row would do as a counterfactual for that class, shape ``(n,)``."""
        return predict(self.classifier, x) == y_target

    def _distances(self, x: Tensor, bank: Tensor) -> Tensor:
        """Shape ``(n, bank rows)``."""
        if self.distance == "l2":
            return distances(x, bank)
        if self.distance == "mad" and self.deviations_ is not None:
            x, bank = x / self.deviations_.to(x), bank / self.deviations_.to(x)
        return torch.cdist(x, bank, p=1.0)


@dataclass(kw_only=True, eq=False)
class NearestDense(Nearest):
    """The nearest training row that is decided as wanted and plausible: feasible wherever there is one.

    Attributes:
        plausibility: Which rows are dense enough; it must be fitted.
    """

    label: ClassVar[str] = "NNCE-dense"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._required_plausibility()

    @torch.no_grad()
    def _as_wanted(self, x: Tensor, y_target: Tensor) -> Tensor:
        return super()._as_wanted(x, y_target) & (self._required_plausibility().score(x, y_target) >= 0)

    def _required_plausibility(self) -> Plausibility:
        if self.plausibility is None or isinstance(self.plausibility, int | float):
            raise InvalidInputError(
                "`plausibility` must be a fitted plausibility, which says which training rows are dense "
                f"enough; got {self.plausibility!r}. Give a fitted `Thresholded`, or use `Nearest`."
            )
        return self.plausibility


def distances(a: Tensor, b: Tensor) -> Tensor:
    """Euclidean, of each row of ``a`` to each of ``b``; the quicker matrix product rounds by the batch."""
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")


def _median_absolute_deviations(x: Tensor) -> Tensor:
    """Of each column, shape ``(d,)``; one where it is zero."""
    deviations = _medians((x - _medians(x)).abs())
    return torch.where(deviations > 0, deviations, 1.0)


def _medians(x: Tensor) -> Tensor:
    """Of each column, the mean of the two middle values where their number is even."""
    ordered = x.sort(dim=0).values
    return (ordered[(len(x) - 1) // 2] + ordered[len(x) // 2]) / 2
