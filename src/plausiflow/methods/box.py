"""Methods that keep counterfactuals in a box, by default the range of the training rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from plausiflow.core import check_rows
from plausiflow.errors import NotFittedError
from plausiflow.methods.base import Method


@dataclass(kw_only=True, eq=False)
class BoxedMethod(Method):
    """A method whose counterfactuals stay in a box.

    Attributes:
        lower: Smallest allowed value, for all features or each ``(d,)``; default: that of the training rows.
        upper: Largest allowed value, as ``lower``.
    """

    lower: Tensor | float | None = None
    upper: Tensor | float | None = None
    range_: tuple[Tensor, Tensor] | None = field(init=False, default=None, repr=False)

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Learn each feature's range from training rows ``(n, d)``; their classes ``(n,)`` are checked."""
        check_rows(x, y, n_classes=self.classifier.n_classes)
        self.range_ = (x.amin(dim=0), x.amax(dim=0))
        return self

    def box(self, x: Tensor, *, widened: bool = True) -> tuple[Tensor, Tensor]:
        """Return the smallest and largest allowed values of each row, shape ``(n, d)`` each.

        Args:
            x: The rows.
            widened: Whether a row outside keeps its own value as bound, so that staying is always allowed.
        """
        if self.range_ is None and (self.lower is None or self.upper is None):
            raise NotFittedError(
                "The box is not known. Call `fit(x, y)` with training rows, or give `lower` and `upper`."
            )
        smallest, largest = self.range_ or (None, None)
        lower = torch.as_tensor(smallest if self.lower is None else self.lower).to(x).expand_as(x)
        upper = torch.as_tensor(largest if self.upper is None else self.upper).to(x).expand_as(x)
        return (torch.minimum(lower, x), torch.maximum(upper, x)) if widened else (lower, upper)
