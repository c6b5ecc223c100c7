r"""A target that retrained models must meet too.

Of k models trained on other samples, the *guides*, let :math:`m_j(x)` be the margins for the target, positive
where guide j decides as wanted. Retrainings vary like the guides, so a share d of them decides as wanted if

.. math:: \bar m(x) - c \, s(x) \ge 0,

with :math:`s` the deviation of the margins and c the one-sided tolerance factor of a normal sample. A search
finds points where few guides happen to agree, so the variance is shrunk towards the one that is common at
counterfactuals, :math:`s^2 = (\nu_0 s_0^2 + (k - 1) s_k^2) / (\nu_0 + k - 1)`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Self

import torch
from scipy.stats import nct, norm
from torch import Tensor

from plausiflow.core.criterion import TargetCriterion, Targets
from plausiflow.core.losses import interval_value, value_and_grad

PRIOR = 15.0
"""How many guides the common variance counts as."""
_TINY = 1e-8


def tolerance_factor(guides: int, durability: float, confidence: float, prior: float = PRIOR) -> float:
    """Return how many deviations the mean margin of some guides must be above zero.

    At least the share ``durability`` of a normal population is then above zero, with this confidence.

    Example:
        >>> round(tolerance_factor(15, 0.9, 0.95, prior=0), 2)  # tabulated: 2.07
        2.07
        >>> round(tolerance_factor(15, 0.9, 0.95), 2)
        1.88
    """
    quantile = float(norm.ppf(durability)) * math.sqrt(guides)
    return float(nct.ppf(confidence, df=prior + guides - 1, nc=quantile)) / math.sqrt(guides)


@dataclass(frozen=True)
class DurableCriterion(TargetCriterion):
    """A target that a model and its guides must meet.

    Its outputs are those of the model and then those of each guide; outputs of the model alone are compared
    as they are.

    Attributes:
        n_classes: Number of classes; 0 for a regressor.
        guides: Number of guides.
        factors: Tolerance factor of each class or bin.
        variances: Common variance of the margins of each class or bin.
    """

    n_classes: int = 0
    guides: int = 0
    factors: tuple[float, ...] = ()
    variances: tuple[float, ...] = ()

    def split(self, outputs: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the outputs of the model, and of the guides ``(n, guides, k)`` or ``(n, guides)``."""
        if self.n_classes:
            if outputs.shape[1] == self.n_classes:
                return outputs, None
            own, others = outputs[:, : self.n_classes], outputs[:, self.n_classes :]
            return own, others.reshape(len(outputs), self.guides, self.n_classes)
        return (outputs, None) if outputs.ndim == 1 else (outputs[:, 0], outputs[:, 1:])

    def margins(self, guides: Tensor, targets: Targets) -> Tensor:
        """Return the margin of each guide for the target, shape ``(n, guides)``."""
        if not self.n_classes:
            assert targets.low is not None
            assert targets.high is not None
            return interval_value(guides, targets.low[:, None], targets.high[:, None], self.unit)
        wanted = targets.y[:, None, None].expand(-1, guides.shape[1], 1)
        own = guides.gather(2, wanted)[..., 0]
        return own - guides.scatter(2, wanted, -torch.inf).amax(dim=2)

    def bound(self, guides: Tensor, targets: Targets) -> Tensor:
        """Return the mean margin less the deviations that durability asks for, shape ``(n,)``."""
        margins = self.margins(guides, targets)
        mean = margins.mean(dim=1)
        variance = (margins - mean[:, None]).square().sum(dim=1) / (self.guides - 1)
        return self._below(mean, variance, targets)

    def _below(self, mean: Tensor, variance: Tensor, targets: Targets) -> Tensor:
        """Return the mean margin less as many shrunk deviations as the tolerance factor says."""
        common = torch.tensor(self.variances, dtype=mean.dtype, device=mean.device)[targets.y]
        factor = torch.tensor(self.factors, dtype=mean.dtype, device=mean.device)[targets.y]
        shrunk = (PRIOR * common + (self.guides - 1) * variance) / (PRIOR + self.guides - 1)
        return mean - factor * (shrunk + _TINY).sqrt()

    def value(self, outputs: Tensor, targets: Targets | Tensor) -> Tensor:
        """Return the smaller one of the model's own value and the bound of the guides, shape ``(n,)``."""
        targets = targets if isinstance(targets, Targets) else self.of_class(targets)
        own, guides = self.split(outputs)
        value = super().value(own, targets)
        if guides is None:
            return value
        bound = self.bound(guides, targets)
        if targets.extra_margin is not None:
            bound = bound - self._extra_margin(targets).to(bound)
        return torch.minimum(value, bound)

    def value_and_grad(self, outputs: Tensor, targets: Targets) -> tuple[Tensor, Tensor]:
        """Return the value ``(n,)`` and its gradient in the outputs, shaped like them."""
        return value_and_grad(lambda own: self.value(own, targets), outputs)

    def decision_logits(self, outputs: Tensor) -> Tensor:
        """Return the model's own logits ``(n, k)`` whose largest one is the decision."""
        return super().decision_logits(self.split(outputs)[0])

    def classes(self, outputs: Tensor) -> Tensor:
        """Return the class that the model decides for, or the bin of its prediction, shape ``(n,)``."""
        return super().classes(self.split(outputs)[0])

    def met(self, outputs: Tensor, targets: Targets, decided: Tensor | None = None) -> Tensor:
        """Return whether the model meets the target without any margin, shape ``(n,)`` bool."""
        return super().met(self.split(outputs)[0], targets, decided)

    def with_factors(self, factors: tuple[float, ...]) -> Self:
        """Return the criterion with other tolerance factors."""
        return replace(self, factors=factors)

    @property
    def summary(self) -> SummaryCriterion:
        """The same criterion for means and deviations of the guides' margins."""
        return SummaryCriterion(**{f.name: getattr(self, f.name) for f in fields(self)})


@dataclass(frozen=True)
class SummaryCriterion(DurableCriterion):
    """The same for a search without gradients, which follows what students say about the guides.

    Its outputs are those of the model's surrogate, and then the mean and the deviation of the guides' margins
    as students predict them: for class 1 of two, for each of more classes, or of a predicted number.
    """

    def split(self, outputs: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the outputs of the model, and means and deviations, shape ``(n, 2, columns)``."""
        width = self.n_classes or 1
        if outputs.ndim == 1 or outputs.shape[1] == width:
            return outputs, None
        own = outputs[:, :width] if self.n_classes else outputs[:, 0]
        return own, outputs[:, width:].unflatten(1, (2, -1))

    def bound(self, guides: Tensor, targets: Targets) -> Tensor:
        """Return the mean margin less the deviations that durability asks for, shape ``(n,)``."""
        mean, deviation = guides.unbind(dim=1)
        if not self.n_classes:
            assert targets.low is not None
            assert targets.high is not None
            mean = interval_value(mean[:, 0], targets.low, targets.high, self.unit)
            return self._below(mean, (deviation[:, 0] / self.unit).square(), targets)
        if self.n_classes == 2:
            sign = 2.0 * targets.y.to(mean) - 1
            return self._below(sign * mean[:, 0], deviation[:, 0].square(), targets)
        own = targets.y[:, None]
        return self._below(mean.gather(1, own)[:, 0], deviation.gather(1, own)[:, 0].square(), targets)
