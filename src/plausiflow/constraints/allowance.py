"""Where the counterfactuals of some rows may lie, in encoded units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from plausiflow.tables import Block, Layout


def levels_of(block: Block) -> slice:
    """The columns of its levels."""
    return slice(block.levels.start, block.levels.stop)


@dataclass(frozen=True, eq=False)
class Term:
    """A feature's number times a coefficient, read from an encoded row.

    Attributes:
        coefficient: In original units.
        block: Of the feature.
        numbers: What its levels stand for, a missing one too, shape ``(levels,)``; nothing for a number.
    """

    coefficient: float
    block: Block
    numbers: Tensor | None

    def value(self, x: Tensor) -> Tensor:
        """In original units, shape ``(n,)``; keeps the graph."""
        if self.numbers is not None:
            return self.coefficient * (x[:, levels_of(self.block)] @ self.numbers.to(x))
        assert self.block.scale is not None
        return self.coefficient * self.block.scale.decode(x[:, self.block.number])

    def most(self, allowance: Allowance) -> Tensor:
        """The largest value that the bounds and levels of each row allow, shape ``(n,)``."""
        if self.numbers is not None:
            values = (self.coefficient * self.numbers).to(allowance.lower).expand(len(allowance.lower), -1)
            return values.masked_fill(~allowance.levels[:, levels_of(self.block)], -torch.inf).amax(dim=1)
        return torch.maximum(self.value(allowance.lower), self.value(allowance.upper))


@dataclass(frozen=True, eq=False)
class Inequality:
    r"""One side of a relation: :math:`\sum_j a_j x_j + b \ge 0`, divided by how far the sum reaches.

    Attributes:
        name: Of the rule.
        terms: Of the features that an encoded row holds.
        scale: How far the sum reaches over the training ranges.
    """

    name: str
    terms: tuple[Term, ...]
    scale: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Allowance:
    """What rules leave to each of some rows.

    A point that :meth:`contains` accepts, its numbers on their grids, decodes to a row that breaks no rule. A
    number that moves by less than a 10^-11-th part of its range is the exception: such a change is lost in
    rounding, perhaps to the wrong side of the row's own number, and should be undone.

    Attributes:
        layout: Of encoded rows.
        x: The rows, shape ``(n, width)``.
        lower: Smallest allowed values, shape ``(n, width)``: of a number where its level leaves it free, and
            for a level one where it is the only one.
        upper: Largest allowed values, shape ``(n, width)``: for a level zero where it is not allowed.
        levels: Which levels a row may be at, shape ``(n, width)``; false for numbers.
        possible: Whether anything at all is left to a row, as far as single rules tell, shape ``(n,)``. Where
            nothing is, its bounds and levels are what the row holds.
        max_changes: How many features may change; nothing where any number may.
        inequalities: The linear relations.
        offsets: Their constants for each row, shape ``(n, m)``.
        binding: Which of them bind a row, shape ``(n, m)``; not those that touch a missing value.
    """

    layout: Layout
    x: Tensor
    lower: Tensor
    upper: Tensor
    levels: Tensor
    possible: Tensor
    max_changes: int | None
    inequalities: tuple[Inequality, ...]
    offsets: Tensor
    binding: Tensor

    def linear_values(self, x_cf: Tensor, rows: Tensor | None = None) -> Tensor:
        """How far each linear relation is met: not negative where it is, and one where it does not bind.

        Args:
            x_cf: Points, shape ``(k, width)``; the graph is kept.
            rows: Whose points these are, long, shape ``(k,)``; nothing where there is one for each row.

        Returns:
            Shape ``(k, m)``, of the order of one.
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

    def contains(self, x_cf: Tensor, rows: Tensor | None = None) -> Tensor:
        """Whether points are allowed, shape ``(k,)``; arguments as for :meth:`linear_values`.

        Relations may be missed by the rounding of a few operations.
        """
        own = self if rows is None else self.at(rows)
        codes = self.layout.codes(x_cf)
        free = self.layout.free(codes)
        inside = (((x_cf >= own.lower) & (x_cf <= own.upper)) | ~free).all(dim=1)
        for j, block in enumerate(self.layout.with_levels):
            inside &= own.levels[:, levels_of(block)].gather(1, codes[:, j : j + 1])[:, 0]
        inside &= (own.linear_values(x_cf) >= -8 * torch.finfo(x_cf.dtype).eps).all(dim=1)
        if self.max_changes is not None:
            inside &= self.layout.changed(x_cf, own.x).sum(dim=1) <= self.max_changes
        return inside & own.possible

    def at(self, rows: Tensor) -> Allowance:
        """The same for some rows, each as often as it is named; ``rows`` is long, shape ``(k,)``."""
        return self._each(lambda part: part[rows])

    def to(self, device: torch.device) -> Allowance:
        """The same on a device."""
        return self._each(lambda part: part.to(device))

    def _each(self, change: Callable[[Tensor], Tensor]) -> Allowance:
        return replace(
            self,
            x=change(self.x),
            lower=change(self.lower),
            upper=change(self.upper),
            levels=change(self.levels),
            possible=change(self.possible),
            offsets=change(self.offsets),
            binding=change(self.binding),
        )
