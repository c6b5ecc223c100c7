"""What is wanted of each row, and whether a model's answers are so.

A classifier must decide for a class, by a margin, and where it is asked for with a least probability. A
regressor must predict a number inside bounds; the density then is that of rows whose outcome lies in one of a
few bins, and ``y`` is the bin that the prediction comes to first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self

import torch
from torch import Tensor

from plausiflow.core import Pullback, validity_value, validity_value_and_grad, value_and_grad
from plausiflow.errors import InvalidInputError
from plausiflow.validation import number

ROUNDING = 1e-9
"""Log odds by which a probability may miss the least one: the 0.9 of a forest is 0.9."""


@dataclass(frozen=True, eq=False)
class Targets:
    """What is wanted of some rows.

    Attributes:
        y: The class, or the bin of the outcome, whose density counts, shape ``(n,)``.
        least: Least probability of the class, shape ``(n,)``; nothing where winning is enough.
        low: Smallest wanted prediction of a regressor, minus infinity where there is none, shape ``(n,)``.
        high: Largest one.
        firmer: How much farther than needed a search must go, in units of the value, shape ``(n,)``.
    """

    y: Tensor
    least: Tensor | None = None
    low: Tensor | None = None
    high: Tensor | None = None
    firmer: Tensor | None = None

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, rows: Tensor) -> Targets:
        return Targets(*(None if part is None else part[rows] for part in self._parts()))  # type: ignore[arg-type]

    def to(self, device: torch.device) -> Targets:
        """The same on a device."""
        return Targets(*(None if part is None else part.to(device) for part in self._parts()))  # type: ignore[arg-type]

    def held(self, firmer: Tensor) -> Targets:
        """The same, but farther than needed by so much ``(n,)``."""
        return replace(self, firmer=firmer)

    @classmethod
    def joined(cls, parts: list[Targets]) -> Targets:
        """Several, one after the other; all of the same kind."""
        columns = zip(*(part._parts() for part in parts), strict=True)
        return cls(
            *(
                None if column[0] is None else torch.cat([c for c in column if c is not None])
                for column in columns
            )  # type: ignore[arg-type]
        )

    def _parts(self) -> tuple[Tensor | None, ...]:
        return (self.y, self.least, self.low, self.high, self.firmer)


@dataclass(frozen=True)
class TargetCriterion:
    """How answers of a model are held against what is wanted.

    Attributes:
        margin: By how much the wanted class must win.
        edges: Of the bins of a regressor's outcomes, ascending, infinite at both ends; else none.
        unit: Of a regressor's predictions, in which distances from bounds are counted.
    """

    margin: float = 0.0
    edges: tuple[float, ...] = ()
    unit: float = 1.0

    def value(self, outputs: Tensor, wanted: Targets | Tensor) -> Tensor:
        """Not negative where the answers are as wanted, shape ``(n,)``; keeps the graph.

        Args:
            outputs: Logits ``(n, k)`` of a classifier, predictions ``(n,)`` of a regressor.
            wanted: Or classes alone, or bins, shape ``(n,)``.
        """
        wanted = wanted if isinstance(wanted, Targets) else self.of_class(wanted)
        value = self._number(outputs, wanted) if self.edges else self._decision(outputs, wanted)
        return value if wanted.firmer is None else value - self._firmer(wanted).to(value)

    def slope(self, outputs: Tensor, wanted: Targets) -> tuple[Tensor, Tensor]:
        """The same value ``(n,)``, and its gradient in the outputs, shaped like them."""
        if self.edges or wanted.least is not None:
            return value_and_grad(lambda own: self.value(own, wanted), outputs)
        value, shares = validity_value_and_grad(outputs, wanted.y, self.margin)
        return value if wanted.firmer is None else value - wanted.firmer.to(value), shares

    def of_class(self, y: Tensor) -> Targets:
        """Any answer of a class, or in a bin."""
        if not self.edges:
            return Targets(y)
        edges = torch.tensor(self.edges, dtype=torch.float64, device=y.device)
        return Targets(y, low=edges[y], high=edges[y + 1])

    def classes(self, outputs: Tensor) -> Tensor:
        """What a model decides, a class or a bin, shape ``(n,)``."""
        if not self.edges:
            return outputs.argmax(dim=1)
        inner = torch.tensor(self.edges[1:-1], dtype=outputs.dtype, device=outputs.device)
        return torch.bucketize(outputs, inner, right=True)

    def to_dict(self) -> dict[str, Any]:
        """Only what JSON can hold, which has no infinity; :meth:`from_dict` reads it."""
        inner = [float(edge) for edge in self.edges[1:-1]]
        return {"margin": float(self.margin), "edges": inner, "unit": float(self.unit)}

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> Self:
        """What :meth:`to_dict` wrote.

        Raises:
            InvalidInputError: These are no margin, edges and unit.
        """
        margin, unit = number(written["margin"]), number(written["unit"])
        inner = [number(edge) for edge in written["edges"]]
        edges = (-math.inf, *inner, math.inf) if inner else ()
        if not (0 <= margin < 0.5 and 0 < unit < math.inf and all(a < b for a, b in pairwise(edges))):
            raise InvalidInputError(
                f"An aim needs a margin in [0, 0.5), a positive unit and ascending edges; got {written!r}."
            )
        return cls(margin, edges, unit)

    def met(self, outputs: Tensor, wanted: Targets) -> Tensor:
        """Whether rows are as wanted already, however narrowly, shape ``(n,)`` bool; false where unknown."""
        if self.edges:
            return self.value(outputs, wanted) >= 0
        return (self.classes(outputs) == wanted.y) & (replace(self, margin=0.0).value(outputs, wanted) >= 0)

    def _firmer(self, wanted: Targets) -> Tensor:
        """How much farther to go; between bounds at most half of the way to the middle."""
        assert wanted.firmer is not None
        if wanted.low is None or wanted.high is None:
            return wanted.firmer
        return torch.minimum(wanted.firmer, (wanted.high - wanted.low) / (4 * self.unit))

    def _decision(self, logits: Tensor, wanted: Targets) -> Tensor:
        value = validity_value(logits, wanted.y, self.margin)
        if wanted.least is None:
            return value
        own = logits.log_softmax(dim=1).gather(1, wanted.y[:, None])[:, 0]
        # log odds of the wanted class, against those asked for
        others = torch.log1p(-own.exp().clamp_max(1 - 1e-15))
        asked = torch.logit(wanted.least.to(own)) - ROUNDING
        return torch.minimum(value, own - others - asked)

    def _number(self, values: Tensor, wanted: Targets) -> Tensor:
        assert wanted.low is not None
        assert wanted.high is not None
        above, below = values - wanted.low.to(values), wanted.high.to(values) - values
        return torch.minimum(above, below).clamp_max(1e6 * self.unit) / self.unit


@dataclass(frozen=True)
class ValidityConstraint:
    """Whether a model with gradients answers as wanted: ``decides(x, wanted)`` is not negative where it does.

    Attributes:
        outputs: Logits ``(n, k)`` or predictions ``(n,)`` of encoded rows; keeps the graph.
        aim: How they are held against what is wanted.
        value_and_grad: Outputs with their gradients, where the model knows these without a graph.
    """

    outputs: Callable[[Tensor], Tensor]
    aim: TargetCriterion
    value_and_grad: Callable[[Tensor], tuple[Tensor, Pullback]] | None = None

    def __call__(self, x: Tensor, wanted: Targets | Tensor) -> Tensor:
        """How far answers are inside what is wanted, shape ``(n,)``; keeps the graph."""
        return self.aim.value(self.outputs(x), wanted)

    def slope(self, x: Tensor, wanted: Targets) -> tuple[Tensor, Tensor]:
        """The same with its gradient in the rows ``(n, d)``, of a model that knows its own."""
        assert self.value_and_grad is not None
        outputs, pulled_back = self.value_and_grad(x)
        value, shares = self.aim.slope(outputs, wanted)
        return value, pulled_back(shares)
