"""Where the counterfactuals of some rows may be, in encoded units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from plausiflow.constraints.clause_matrix import ClauseMatrix
from plausiflow.constraints.encoded_clauses import EncodedClause
from plausiflow.constraints.state_pairs import StatePairs
from plausiflow.tables import Layout


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
    clauses: tuple[EncodedClause, ...]  # the m linear relations and other clauses of the rules
    offsets: Tensor  # the constants of their pieces for each row, (n, pieces)
    binding: Tensor  # which of them bind a row, (n, m); not those with a missing value
    pairs: StatePairs | None = None  # pairs of levels that may not occur together
    matrices: dict[torch.device, ClauseMatrix] = field(default_factory=dict, repr=False)  # of the clauses

    @property
    def equalities(self) -> list[int]:
        """Positions of the first sides of equalities among the clauses; the other side follows each."""
        return [j for j, clause in enumerate(self.clauses) if clause.tolerance is not None]

    @cached_property
    def _first_column(self) -> Tensor:
        """Column of the first level of each feature with levels."""
        return self.layout.index(self.x.device).first_column

    def clause_values(self, x_cf: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return the value of each clause: at least zero if it is true, one if it does not bind.

        ``x_cf`` are points, shape ``(k, width)``; ``rows`` are their rows, shape ``(k,)``, or None if there
        is one point for each row. The values are of the order of one, shape ``(k, m)``; the graph is kept.
        """
        if not self.clauses:
            return x_cf.new_zeros(len(x_cf), 0)
        tensors = self.x, self.offsets, self.binding
        own, offsets, binding = tensors if rows is None else (tensor[rows] for tensor in tensors)
        return torch.where(binding, self._matrix(x_cf.device).values(x_cf, own, offsets), 1.0)

    def has_closed_form(self, device: torch.device) -> bool:
        """Whether :meth:`least_clause` can be computed."""
        return self._matrix(device).has_closed_form

    def least_clause(self, x_cf: Tensor, rows: Tensor, clauses: Tensor) -> tuple[Tensor, Tensor]:
        """Return the least value of some clauses ``(k,)``, and its gradient in the numbers ``(k, width)``.

        ``clauses`` are positions; the other arguments are as for :meth:`clause_values`.
        """
        own, offsets, binding = self.x[rows], self.offsets[rows], self.binding[rows]
        return self._matrix(x_cf.device).least(x_cf, own, offsets, binding, clauses)

    def _matrix(self, device: torch.device) -> ClauseMatrix:
        """Return all clauses as matrices; built once, and shared by the allowances of the same clauses."""
        if device not in self.matrices:
            self.matrices[device] = ClauseMatrix(self.clauses, self.x.shape[1], device)
        return self.matrices[device]

    def clause_value(self, j: int, x_cf: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return the value of one clause, shape ``(k,)``; arguments as for :meth:`clause_values`."""
        tensors = self.x, self.offsets, self.binding[:, j]
        own, offsets, binding = tensors if rows is None else (tensor[rows] for tensor in tensors)
        return torch.where(binding, self.clauses[j].value(x_cf, own, offsets), 1.0)

    def contains(
        self,
        x_cf: Tensor,
        rows: Tensor | None = None,
        *,
        max_changes: bool = True,
        codes: Tensor | None = None,
    ) -> Tensor:
        """Return whether points are allowed, shape ``(k,)``; arguments as for :meth:`clause_values`.

        Relations may be missed by the rounding of a few operations. Grids are not checked, and with
        ``max_changes=False`` neither is the number of changed features. ``codes`` are the points' levels, if
        they are known.
        """
        own = self if rows is None else self.at(rows)
        codes = self.layout.codes(x_cf) if codes is None else codes
        free = self.layout.always_free
        free = self.layout.free(codes) if free is None else free.to(x_cf.device)
        inside = (((x_cf >= own.lower) & (x_cf <= own.upper)) | ~free).all(dim=1)
        inside &= own.levels.gather(1, self._first_column + codes).all(dim=1)
        if self.clauses:
            inside &= (own.clause_values(x_cf) >= -8 * torch.finfo(x_cf.dtype).eps).all(dim=1)
        if self.pairs is not None:
            inside &= ~self.pairs.broken(codes, self.layout.codes(own.x))
        if max_changes and self.max_changes is not None:
            inside &= self.layout.changed(x_cf, own.x).sum(dim=1) <= self.max_changes
        return inside & own.possible

    def joins(self, other: Allowance) -> bool:
        """Whether rows of both can be searched at once, if both come from the same compiled rules."""
        alike = self.max_changes == other.max_changes and self.pairs is other.pairs
        return alike and self.layout == other.layout

    @classmethod
    def join(cls, parts: Sequence[Allowance]) -> Allowance:
        """Return one allowance for the rows of several that join."""
        return parts[0]._of(lambda name: torch.cat([getattr(part, name) for part in parts]))

    def at(self, rows: Tensor) -> Allowance:
        """Return the allowance of some rows, which may repeat; ``rows`` is long, shape ``(k,)``."""
        return self._map(lambda tensor: tensor[rows])

    def to(self, device: torch.device) -> Allowance:
        """Return the allowance on a device."""
        pairs = None if self.pairs is None else self.pairs.to(device)
        return replace(self._map(lambda tensor: tensor.to(device)), pairs=pairs)

    def _map(self, function: Callable[[Tensor], Tensor]) -> Allowance:
        return self._of(lambda name: function(getattr(self, name)))

    def _of(self, tensor: Callable[[str], Tensor]) -> Allowance:
        """Return the allowance with other tensors, by name."""
        names = ("x", "lower", "upper", "levels", "possible", "offsets", "binding")
        return replace(self, **{name: tensor(name) for name in names})  # type: ignore[arg-type]
