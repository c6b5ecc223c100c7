r"""What outcome is wanted, and whether a model's outputs meet it.

A classifier must decide for a class, by a margin, and if asked for with a minimum probability. A regressor
must predict a number inside an interval; the density is then that of rows whose outcome is in one of a few
bins, and ``y`` is one of the bins that the interval meets.

A classifier decides for the class with the largest probability, or by cut-offs :math:`t_k`: for the class
with the largest :math:`p_k / t_k`. With two classes and :math:`t_0 = 1 - t_1` that is class 1 where
:math:`p_1 \ge t_1`. So the paper's losses are applied to the logits :math:`z_k - \log t_k`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal, Self

import torch
from torch import Tensor

from plausiflow.core.losses import (
    cross_entropy,
    interval_value,
    multiclass_validity_hinge,
    plausibility_hinge,
    plausibility_value,
    probability_value,
    published_logit_hinge,
    validity_hinge,
    validity_value,
    validity_value_and_grad,
    value_and_grad,
)
from plausiflow.core.problem import Constraint, LastRows, MovingColumns, RowFunction
from plausiflow.core.protocols import Classifier, HasValueAndGrad, Pullback, RowScores
from plausiflow.errors import InvalidInputError
from plausiflow.validation import to_float

VALIDITY_BUFFER, PLAUSIBILITY_BUFFER = 1e-3, 5e-3
"""How far inside validity (in logits) and plausibility (in nats) a solver aims."""

ValidityLoss = Literal["hinge", "cross_entropy", "published"]
"""The validity loss of penalty solvers: the paper's hinge (Eqs. 7 and 8), the cross entropy of its ablation,
or the hinge on logits of its published multiclass runs."""


@dataclass(frozen=True, eq=False)
class Targets:
    """The outcome wanted for each of some rows.

    Attributes:
        y: The class, or the bin of the outcome, whose density counts, shape ``(n,)``.
        min_probability: Minimum probability of the class, shape ``(n,)``; None if winning is enough.
        low: Smallest wanted prediction of a regressor, -inf for no bound, shape ``(n,)``.
        high: Largest wanted prediction of a regressor, inf for no bound, shape ``(n,)``.
        extra_margin: By how much more than needed a search must meet the target, in units of the criterion,
            shape ``(n,)``.
    """

    y: Tensor
    min_probability: Tensor | None = None
    low: Tensor | None = None
    high: Tensor | None = None
    extra_margin: Tensor | None = None

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, rows: Tensor) -> Targets:
        return self._map(lambda part: part[rows])

    def to(self, device: torch.device) -> Targets:
        """Move to a device."""
        return self._map(lambda part: part.to(device))

    def with_extra_margin(self, extra_margin: Tensor) -> Targets:
        """Return the same targets, to be met by more than needed, shape ``(n,)``."""
        return replace(self, extra_margin=extra_margin)

    @classmethod
    def concat(cls, parts: list[Targets]) -> Targets:
        """Concatenate targets of the same kind."""
        columns = zip(*(part._fields() for part in parts), strict=True)
        return cls(*(_concat(column) for column in columns))  # type: ignore[arg-type]

    def _map(self, change: Callable[[Tensor], Tensor]) -> Targets:
        return Targets(*(None if part is None else change(part) for part in self._fields()))  # type: ignore[arg-type]

    def _fields(self) -> tuple[Tensor | None, ...]:
        return (self.y, self.min_probability, self.low, self.high, self.extra_margin)


def _concat(parts: tuple[Tensor | None, ...]) -> Tensor | None:
    return None if parts[0] is None else torch.cat([part for part in parts if part is not None])


@dataclass(frozen=True)
class TargetCriterion:
    """Whether model outputs meet a target.

    Attributes:
        margin: By how much the target class must win.
        edges: Edges of the bins of a regressor's outcomes, ascending, infinite at both ends; empty for a
            classifier.
        unit: Unit of a regressor's predictions in which the distance from an interval's bounds is measured.
        cutoffs: A cut-off for each class; empty if the largest probability decides.
    """

    margin: float = 0.0
    edges: tuple[float, ...] = ()
    unit: float = 1.0
    cutoffs: tuple[float, ...] = ()

    @property
    def n_bins(self) -> int:
        """The number of bins of a regressor's outcomes; 0 for a classifier."""
        return max(0, len(self.edges) - 1)

    def decision_logits(self, outputs: Tensor) -> Tensor:
        """Return logits ``(n, k)`` whose largest one is the decision: ``outputs`` minus the log cut-offs."""
        if not self.cutoffs:
            return outputs
        return outputs - _log_cutoffs(self.cutoffs, outputs.dtype, outputs.device)

    def smallest_probability(self, k: int, n_classes: int) -> float:
        """Return the smallest probability with which class ``k`` can be decided for."""
        return self.cutoffs[k] / sum(self.cutoffs) if self.cutoffs else 1 / n_classes

    def value(self, outputs: Tensor, targets: Targets | Tensor) -> Tensor:
        """Return a value that is at least zero where outputs meet the target, shape ``(n,)``.

        Keeps the graph.

        Args:
            outputs: Logits ``(n, k)`` of a classifier, predictions ``(n,)`` of a regressor.
            targets: Targets, or classes or bins alone, shape ``(n,)``.
        """
        targets = targets if isinstance(targets, Targets) else self.of_class(targets)
        if self.edges:
            assert targets.low is not None
            assert targets.high is not None
            value = interval_value(outputs, targets.low, targets.high, self.unit)
        else:
            value = validity_value(self.decision_logits(outputs), targets.y, self.margin)
            if targets.min_probability is not None:
                value = torch.minimum(value, probability_value(outputs, targets.y, targets.min_probability))
        return value if targets.extra_margin is None else value - self._extra_margin(targets).to(value)

    def value_and_grad(self, outputs: Tensor, targets: Targets) -> tuple[Tensor, Tensor]:
        """Return the value ``(n,)`` and its gradient in the outputs, shaped like them."""
        if self.edges or targets.min_probability is not None:
            return value_and_grad(lambda own: self.value(own, targets), outputs)
        value, grad = validity_value_and_grad(self.decision_logits(outputs), targets.y, self.margin)
        return value if targets.extra_margin is None else value - targets.extra_margin.to(value), grad

    def loss(self, outputs: Tensor, targets: Targets, kind: ValidityLoss = "hinge") -> Tensor:
        """Return the validity loss of penalty solvers, shape ``(n,)``. [PPCEF Eqs. 7 and 8]

        Targets that the paper does not know, a minimum probability or an interval, use the hinge of
        :meth:`value`.
        """
        if self.edges or targets.min_probability is not None or targets.extra_margin is not None:
            return (-self.value(outputs, targets)).clamp_min(0)
        outputs = self.decision_logits(outputs)
        if kind == "cross_entropy":
            return cross_entropy(outputs, targets.y)
        if kind == "published":
            return published_logit_hinge(outputs, targets.y, self.margin)
        hinge = validity_hinge if outputs.shape[1] == 2 else multiclass_validity_hinge
        return hinge(outputs.softmax(dim=1), targets.y, self.margin)

    def of_class(self, y: Tensor) -> Targets:
        """Return targets that ask for a class, or for a prediction in a bin, shape ``(n,)``."""
        if not self.edges:
            return Targets(y)
        edges = torch.tensor(self.edges, dtype=torch.float64, device=y.device)
        return Targets(y, low=edges[y], high=edges[y + 1])

    def classes(self, outputs: Tensor) -> Tensor:
        """Return the class that a classifier decides for, or the bin of a prediction, shape ``(n,)``."""
        if len(self.cutoffs) == 2:  # a probability equal to the cut-off is enough for class 1
            logits = self.decision_logits(outputs)
            return (logits[:, 1] >= logits[:, 0]).long()
        if not self.edges:
            return self.decision_logits(outputs).argmax(dim=1)
        inner = torch.tensor(self.edges[1:-1], dtype=outputs.dtype, device=outputs.device)
        return torch.bucketize(outputs.contiguous(), inner, right=True)

    def met(self, outputs: Tensor, targets: Targets, decided: Tensor | None = None) -> Tensor:
        """Return whether rows meet the target without any margin, shape ``(n,)`` bool; False for NaN.

        ``decided`` are the classes ``(n,)`` that the model itself decides for, where these are known: they
        take the place of the outputs, which then only say whether a minimum probability is reached.
        """
        if self.edges:
            return self.value(outputs, targets) >= 0
        if decided is None:
            value = replace(self, margin=0.0).value(outputs, targets)
            return (self.classes(outputs) == targets.y) & (value >= 0)
        met = decided == targets.y
        if targets.min_probability is None:
            return met
        return met & (probability_value(outputs, targets.y, targets.min_probability) >= 0)

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold, which has no infinity; :meth:`from_dict` reads it."""
        inner = [float(edge) for edge in self.edges[1:-1]]
        cutoffs = [float(cutoff) for cutoff in self.cutoffs]
        return {
            "margin": float(self.margin),
            "edges": inner,
            "unit": float(self.unit),
            "cutoffs": cutoffs,
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Restore a criterion from :meth:`to_dict`.

        Raises:
            InvalidInputError: The document has no valid margin, edges, unit and cut-offs.
        """
        margin, unit = to_float(document["margin"]), to_float(document["unit"])
        inner = [to_float(edge) for edge in document["edges"]]
        edges = (-math.inf, *inner, math.inf) if inner else ()
        cutoffs = tuple(to_float(cutoff) for cutoff in document["cutoffs"])
        fine = 0 <= margin < 0.5 and 0 < unit < math.inf and all(a < b for a, b in pairwise(edges))
        fine = fine and all(0 < cutoff < 1 for cutoff in cutoffs) and len(cutoffs) != 1
        if not fine or (cutoffs and edges):
            raise InvalidInputError(
                "A criterion needs a margin in [0, 0.5), a positive unit, and ascending edges, or cut-offs "
                f"between 0 and 1; got {document!r}."
            )
        return cls(margin, edges, unit, cutoffs)

    def _extra_margin(self, targets: Targets) -> Tensor:
        """The extra margin; inside an interval at most half of the way to its middle."""
        assert targets.extra_margin is not None
        if targets.low is None or targets.high is None:
            return targets.extra_margin
        return torch.minimum(targets.extra_margin, (targets.high - targets.low) / (4 * self.unit))


@lru_cache(maxsize=64)
def _log_cutoffs(cutoffs: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the logarithms of cut-offs, shape ``(k,)``; made once, as a captured graph needs it."""
    return torch.tensor(cutoffs, dtype=torch.float64).log().to(device, dtype)


@dataclass(frozen=True)
class ValidityConstraint:
    """Whether a differentiable model meets the target: a value that is at least zero where it does.

    Attributes:
        outputs: Logits ``(n, k)`` or predictions ``(n,)`` of encoded rows; keeps the graph.
        criterion: Compares outputs with targets.
        model_value_and_grad: Outputs and their pullback, of a model that needs no autograd graph; else None.
        loss_kind: The loss of penalty solvers.
    """

    outputs: Callable[[Tensor], Tensor]
    criterion: TargetCriterion
    model_value_and_grad: Callable[[Tensor], tuple[Tensor, Pullback]] | None = None
    loss_kind: ValidityLoss = "hinge"

    @classmethod
    def of_classifier(
        cls, classifier: Classifier, margin: float, loss_kind: ValidityLoss = "hinge"
    ) -> ValidityConstraint:
        """Return the constraint of a classifier of encoded rows."""
        known = classifier.value_and_grad if isinstance(classifier, HasValueAndGrad) else None
        return cls(classifier.logits, TargetCriterion(margin), known, loss_kind)

    def __call__(self, x: Tensor, targets: Targets | Tensor, rows: Tensor | None = None) -> Tensor:
        """Return the constraint value of encoded rows, shape ``(n,)``; keeps the graph.

        Args:
            x: Encoded rows, shape ``(n, d)``.
            targets: Their targets, or classes alone.
            rows: Which of the targets belong to the rows, shape ``(n,)``; None for one after the other.
        """
        return self.criterion.value(self.outputs(x), targets if rows is None else targets[rows])

    def value_and_grad(self, x: Tensor, targets: Targets) -> tuple[Tensor, Tensor]:
        """Return the value and its gradient in the rows ``(n, d)``; needs ``model_value_and_grad``."""
        assert self.model_value_and_grad is not None
        outputs, pullback = self.model_value_and_grad(x)
        value, grad = self.criterion.value_and_grad(outputs, targets)
        return value, pullback(grad)

    def constraint(
        self, targets: Targets, rows: Tensor, moving: MovingColumns
    ) -> tuple[Constraint, RowFunction]:
        """Return the constraint of a problem that moves some columns, and the loss of penalty solvers.

        Args:
            targets: Targets of some rows.
            rows: Which of the targets belongs to each of the problem's rows, shape ``(p,)``.
            moving: The columns that move.
        """
        targets = targets[rows]
        chosen = LastRows(targets.__getitem__)

        def value(z: Tensor, which: Tensor) -> Tensor:
            return self(moving.encoded(z, which), targets[which])

        def value_and_grad(z: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
            own, gradient = self.value_and_grad(moving.encoded(z, which), chosen(which))
            return own, moving.gradient(gradient)

        def loss(z: Tensor, which: Tensor) -> Tensor:
            return self.criterion.loss(self.outputs(moving.encoded(z, which)), targets[which], self.loss_kind)

        known = self.model_value_and_grad is not None
        return Constraint(value, VALIDITY_BUFFER, value_and_grad if known else None), loss


def plausibility_constraint(
    scores: RowScores, moving: MovingColumns, rows: Tensor, extra: float | Tensor = 0.0
) -> tuple[Constraint, RowFunction]:
    """Return the plausibility constraint of a problem, and the loss of penalty solvers. [PPCEF Eq. 9]

    Args:
        scores: Plausibility of candidates.
        moving: The columns that move.
        rows: The row of ``scores`` that each of the problem's rows belongs to, shape ``(p,)``.
        extra: How much more plausible than needed answers must be, in nats; may be ``(p,)``.
    """
    excess, excess_and_grad = scores.of_columns(moving, rows)
    threshold = scores.threshold[rows] + extra
    threshold_of = LastRows(threshold.__getitem__)

    def value(z: Tensor, which: Tensor) -> Tensor:
        return plausibility_value(excess(z, which), threshold[which].to(z))

    def value_and_grad(z: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
        assert excess_and_grad is not None
        own, gradient = excess_and_grad(z, which)
        return plausibility_value(own, threshold_of(which).to(z)), gradient

    def loss(z: Tensor, which: Tensor) -> Tensor:
        return plausibility_hinge(excess(z, which), threshold[which].to(z))

    known = excess_and_grad is not None
    return Constraint(value, PLAUSIBILITY_BUFFER, value_and_grad if known else None), loss
