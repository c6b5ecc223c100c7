"""Where the counterfactuals of some rows may be, in encoded units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from plausiflow.tables import Block, Feature, Layout


@dataclass(frozen=True, eq=False)
class Term:
    """A feature's value times a coefficient in original units, read from an encoded row."""

    coefficient: float
    block: Block
    level_values: Tensor | None  # the number of each level, shape (levels,); None for a number

    @classmethod
    def of(cls, coefficient: float, block: Block, feature: Feature) -> Term:
        """Return the term of a numeric feature; a missing level counts as zero."""
        if block.number is not None:
            return cls(coefficient, block, None)
        numbers = feature.level_numbers + [0.0] * (len(block.levels) - len(feature.levels))
        return cls(coefficient, block, torch.tensor(numbers, dtype=torch.float64))

    def value(self, x: Tensor) -> Tensor:
        """Return the term in original units, shape ``(n,)``; keeps the graph."""
        if self.level_values is not None:
            return self.coefficient * (x[:, self.block.level_slice] @ self.level_values.to(x))
        assert self.block.scale is not None
        return self.coefficient * self.block.scale.decode(x[:, self.block.number])

    def maximum(self, allowance: Allowance) -> Tensor:
        """Return the largest value that the bounds and levels of each row allow, shape ``(n,)``."""
        if self.level_values is None:
            return torch.maximum(self.value(allowance.lower), self.value(allowance.upper))
        values = (self.coefficient * self.level_values).to(allowance.lower).expand(len(allowance.lower), -1)
        return values.masked_fill(~allowance.levels[:, self.block.level_slice], -torch.inf).amax(dim=1)


@dataclass(frozen=True, eq=False)
class Inequality:
    r"""One side of a linear relation: :math:`\sum_j a_j x_j + b \ge 0`."""

    name: str  # the rule as people write it
    terms: tuple[Term, ...]  # terms of the features that are encoded
    scale: float  # by how much the sum varies over the training ranges; values are divided by it


@dataclass(frozen=True, kw_only=True, eq=False)
class Allowance:
    """What the rules allow the counterfactuals of some rows to be.

    A point that :meth:`contains` accepts and whose numbers are on the grids of ``layout`` decodes to a row
    that breaks no rule. There is one exception: a number that moves by less than the 10^-11-th part of its
    range. Decoding may round such a change to the wrong side of the row's own number, so undo it. If a row
    has no choice, its bounds and levels are its own values.
    """

    layout: Layout  # of encoded rows, with the steps that the rules ask for
    x: Tensor  # factual rows, (n, width)
    lower: Tensor  # smallest values, (n, width): of a number that is free; one for an only level
    upper: Tensor  # largest values, (n, width); zero for a level that is not allowed
    levels: Tensor  # which levels a row may be at, (n, width); false for numbers
    possible: Tensor  # whether a row has any choice, as far as single rules tell, (n,)
    max_changes: int | None  # how many features may change
    inequalities: tuple[Inequality, ...]  # the m linear relations
    offsets: Tensor  # their constants for each row, (n, m)
    binding: Tensor  # which of them bind a row, (n, m); not those with a missing value

    def linear_values(self, x_cf: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return the value of each linear relation: at least zero if it holds, one if it does not bind.

        ``x_cf`` are points, shape ``(k, width)``; ``rows`` are their rows, shape ``(k,)``, or None if there
        is one point for each row. The values are of the order of one, shape ``(k, m)``; the graph is kept.
        """
        own = self if rows is None else self.at(rows)
        if not self.inequalities:
            return x_cf.new_zeros(len(x_cf), 0)
        columns = []
        for j, inequality in enumerate(self.inequalities):
            total = own.offsets[:, j].to(x_cf)
            for term in inequality.terms:
                total = total + term.value(x_cf)
            columns.append(total / inequality.scale)
        values = torch.stack(columns, dim=1)
        return torch.where(own.binding, values, torch.ones_like(values))

    def contains(
        self,
        x_cf: Tensor,
        rows: Tensor | None = None,
        *,
        max_changes: bool = True,
        codes: Tensor | None = None,
    ) -> Tensor:
        """Return whether points are allowed, shape ``(k,)``; arguments as for :meth:`linear_values`.

        Relations may be missed by the rounding of a few operations. Grids are not checked, and with
        ``max_changes=False`` neither is the number of changed features. ``codes`` are the points' levels, if
        they are known.
        """
        own = self if rows is None else self.at(rows)
        codes = self.layout.codes(x_cf) if codes is None else codes
        free = self.layout.always_free
        free = self.layout.free(codes) if free is None else free.to(x_cf.device)
        inside = (((x_cf >= own.lower) & (x_cf <= own.upper)) | ~free).all(dim=1)
        for j, block in enumerate(self.layout.with_levels):
            inside &= own.levels[:, block.level_slice].gather(1, codes[:, j : j + 1])[:, 0]
        inside &= (own.linear_values(x_cf) >= -8 * torch.finfo(x_cf.dtype).eps).all(dim=1)
        if max_changes and self.max_changes is not None:
            inside &= self.layout.changed(x_cf, own.x).sum(dim=1) <= self.max_changes
        return inside & own.possible

    def at(self, rows: Tensor) -> Allowance:
        """Return the allowance of some rows, which may repeat; ``rows`` is long, shape ``(k,)``."""
        return self._map(lambda tensor: tensor[rows])

    def to(self, device: torch.device) -> Allowance:
        """Return the allowance on a device."""
        return self._map(lambda tensor: tensor.to(device))

    def _map(self, function: Callable[[Tensor], Tensor]) -> Allowance:
        names = ("x", "lower", "upper", "levels", "possible", "offsets", "binding")
        tensors = {name: function(getattr(self, name)) for name in names}
        return replace(self, **tensors)  # type: ignore[arg-type]
