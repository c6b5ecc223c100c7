"""All clauses of the rules at once: a few matrix products instead of a function for each clause.

The values of :class:`~plausiflow.constraints.encoded_clauses.EncodedClause` are the largest of those of its
pieces. Linear pieces of all clauses are one product with the numbers in original units, pieces about levels
one product with the encoded rows. Products and ratios of numbers, which are rare, are evaluated one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from plausiflow.constraints.encoded_clauses import (
    EncodedClause,
    KeptPiece,
    LevelPiece,
    LinearPiece,
    ProductPiece,
)
from plausiflow.constraints.terms import Term
from plausiflow.tables import decode_log


class ClauseMatrix:
    """Clauses as matrices, in double precision.

    Args:
        clauses: The clauses.
        width: Number of columns of an encoded row.
        device: Where points are.
    """

    def __init__(self, clauses: Sequence[EncodedClause], width: int, device: torch.device) -> None:
        pieces = [(clause.start + i, piece) for clause in clauses for i, piece in enumerate(clause.pieces)]
        self._numbers = _Numbers([piece for _, piece in pieces if isinstance(piece, LinearPiece)], width)
        self._others = [(place, piece) for place, piece in pieces if isinstance(piece, ProductPiece)]
        self._places: dict[str, list[int]] = {
            "linear": [place for place, piece in pieces if isinstance(piece, LinearPiece)],
            "levels": [place for place, piece in pieces if isinstance(piece, LevelPiece)],
            "kept": [place for place, piece in pieces if isinstance(piece, KeptPiece)],
        }
        levels = torch.zeros(width, len(self._places["levels"]), dtype=torch.float64)
        for j, piece in enumerate(piece for _, piece in pieces if isinstance(piece, LevelPiece)):
            levels[piece.block.level_slice, j] = piece.levels.to("cpu", torch.float64)
        kept = torch.zeros(width, len(self._places["kept"]), dtype=torch.float64)
        for j, own in enumerate(piece for _, piece in pieces if isinstance(piece, KeptPiece)):
            kept[own.columns, j] = 1.0
        evaluated = [*self._places["linear"], *self._places["levels"], *self._places["kept"]]
        evaluated += [place for place, _ in self._others]
        column = {place: j for j, place in enumerate(evaluated)}
        most = max(len(clause.pieces) for clause in clauses)
        # A clause with fewer pieces repeats its first one.
        of_clause = [
            [column[clause.start + (i if i < len(clause.pieces) else 0)] for i in range(most)]
            for clause in clauses
        ]
        self._levels, self._kept = levels.to(device), kept.to(device)
        self._order = torch.tensor(evaluated, dtype=torch.long, device=device)
        self._sizes = [len(places) for places in self._places.values()]
        self._of_clause = torch.tensor(of_clause, device=device)
        self._chosen: tuple[Tensor, Tensor] | None = None
        self._numbers.to(device)

    def values(self, x: Tensor, own: Tensor, offsets: Tensor) -> Tensor:
        """Return the values of the clauses, shape ``(k, m)``; the graph is kept.

        Args:
            x: Points, shape ``(k, width)``.
            own: Their factual rows, of the same shape.
            offsets: The constants of all pieces for each, shape ``(k, pieces)``.
        """
        return self._pieces(x, own, offsets)[:, self._of_clause].amax(dim=2)

    @property
    def has_closed_form(self) -> bool:
        """Whether :meth:`least` can compute gradients: no clause has a product or a ratio of numbers."""
        return not self._others

    def least(
        self, x: Tensor, own: Tensor, offsets: Tensor, binding: Tensor, clauses: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the least value of some clauses, ``(k,)``, and its gradient in the numbers, ``(k, width)``.

        ``binding`` tells which clauses bind, shape ``(k, m)``; the others are as for :meth:`values`.
        """
        numbers = self._numbers.at(x)
        pieces, totals = self._pieces_at(numbers, x, own, offsets)
        of_clause = self._pieces_of(clauses)
        values, piece = pieces[:, of_clause].max(dim=2)
        binding = binding.index_select(1, clauses)
        least, which = torch.where(binding, values, 1.0).min(dim=1, keepdim=True)
        place = of_clause[which[:, 0]].gather(1, piece.gather(1, which))
        linear = binding.gather(1, which) & (place < self._sizes[0])
        return least[:, 0], self._numbers.gradient(x, numbers, totals, place, linear)

    def _pieces_of(self, clauses: Tensor) -> Tensor:
        """Return the pieces of some clauses, ``(clauses, most)``; a search asks for the same ones often."""
        chosen = self._chosen
        if chosen is None or chosen[0] is not clauses:
            self._chosen = chosen = (clauses, self._of_clause[clauses])
        return chosen[1]

    def _pieces(self, x: Tensor, own: Tensor, offsets: Tensor) -> Tensor:
        """Return the values of the pieces, linear ones first, shape ``(k, pieces)``; the graph is kept."""
        return self._pieces_at(self._numbers.at(x), x, own, offsets)[0]

    def _pieces_at(self, numbers: _Amounts, x: Tensor, own: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the values of the pieces, and the sums of the linear ones before tolerance and scale."""
        linear, levels, kept = (
            offsets.index_select(1, self._order).to(x)[:, : sum(self._sizes)].split(self._sizes, dim=1)
        )
        totals = numbers.amounts @ self._numbers.coefficients.to(x) + linear
        parts = [self._numbers.values(totals)]
        if self._sizes[1]:
            parts.append((2 * (x @ self._levels.to(x))).sub_(1).add_(levels))
        if self._sizes[2]:
            moved = (x != own).to(x) @ self._kept.to(x)
            parts.append(torch.where(moved > 0, -1.0, 1.0) + kept)
        parts += [piece.value(x, own, offsets[:, place])[:, None] for place, piece in self._others]
        return torch.cat(parts, dim=1), totals


class _Amounts(NamedTuple):
    """Numbers of points in the units of the rules."""

    amounts: Tensor  # by term, (k, terms)
    logs: Tensor  # numbers before their logarithmic scale is undone, (k, numbers)
    free: Tensor | None  # one where a number counts, zero where a level of its feature does; None: all count


class _Numbers:
    """Linear pieces: numbers in original units times a matrix."""

    def __init__(self, pieces: Sequence[LinearPiece], width: int) -> None:
        # Features as terms read them: a level may count by its number or by its rank.
        terms = {_key(term): term for piece in pieces for term in piece.terms}
        place = {key: j for j, key in enumerate(terms)}
        numbers = [term for term in terms.values() if term.block.number is not None]
        self.coefficients = torch.zeros(len(terms), len(pieces), dtype=torch.float64)
        for j, piece in enumerate(pieces):
            for term in piece.terms:
                self.coefficients[place[_key(term)], j] += term.coefficient
        # What a level of a feature is worth; its number counts at its first level, if it has any.
        self.of_levels = torch.zeros(width, len(terms), dtype=torch.float64)
        for j, term in enumerate(terms.values()):
            if term.level_values is not None:
                self.of_levels[term.block.level_slice, j] = term.level_values
        first = [-1 if term.level_values is None else term.block.levels.start for term in numbers]
        self.at_level = torch.tensor(first, dtype=torch.long)
        self.columns = torch.tensor([term.block.number for term in numbers], dtype=torch.long)
        self.places = torch.tensor([place[_key(term)] for term in numbers], dtype=torch.long)
        scales = [term.block.scale for term in numbers]
        ends = [scale.ends for scale in scales if scale is not None]
        self.starts, self.spans = (
            torch.tensor([end[i] for end in ends], dtype=torch.float64) for i in (0, 1)
        )
        self.logs = torch.tensor([scale.log for scale in scales if scale is not None], dtype=torch.bool)
        self.scale = torch.tensor([piece.scale for piece in pieces], dtype=torch.float64)
        equal = [piece.equal for piece in pieces]
        self.equal = torch.tensor([tolerance is not None for tolerance in equal], dtype=torch.bool)
        self.tolerance = torch.tensor([tolerance or 0.0 for tolerance in equal], dtype=torch.float64)
        self.any_log, self.any_equal = bool(self.logs.any()), bool(self.equal.any())
        self.any_level = bool((self.at_level >= 0).any())
        # The derivative of each piece in the encoded numbers, but for logarithmic scales and tolerances.
        self.slopes = (self.coefficients[self.places].mT * self.spans / self.scale[:, None]).contiguous()

    def to(self, device: torch.device) -> None:
        """Move to a device."""
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(self, name, value.to(device))

    def at(self, x: Tensor) -> _Amounts:
        """Return the numbers of points ``(k, width)``; the graph is kept."""
        logs = x.index_select(1, self.columns) * self.spans.to(x) + self.starts.to(x)
        numbers = torch.where(self.logs, decode_log(logs), logs) if self.any_log else logs
        free = None
        if self.any_level:
            free = torch.where(self.at_level >= 0, x[:, self.at_level.clamp_min(0)], 1.0)
            numbers = numbers * free
        return _Amounts((x @ self.of_levels.to(x)).index_add(1, self.places, numbers), logs, free)

    def values(self, totals: Tensor) -> Tensor:
        """Return the values of the pieces, shape ``(k, pieces)``; the graph is kept."""
        if self.any_equal:
            totals = torch.where(self.equal, self.tolerance.to(totals) - totals.abs(), totals)
        return totals / self.scale.to(totals)

    def gradient(self, x: Tensor, at: _Amounts, totals: Tensor, piece: Tensor, linear: Tensor) -> Tensor:
        """Return the gradient of one piece ``(k, 1)`` of each point in its numbers, shape ``(k, width)``.

        It is zero where ``linear`` ``(k, 1)`` is false.
        """
        piece = piece * linear
        own = self.slopes.to(x).index_select(0, piece[:, 0])
        own *= linear
        if self.any_log:
            own = torch.where(self.logs, own * at.logs.abs().exp_(), own)
        if at.free is not None:
            own = own * at.free
        if self.any_equal:
            sign = -totals.gather(1, piece).sign()
            own = torch.where(self.equal[piece], sign * own, own)
        return torch.zeros_like(x).index_add_(1, self.columns, own)


def _key(term: Term) -> tuple[str, tuple[float, ...] | None]:
    return term.block.name, None if term.level_values is None else tuple(term.level_values.tolist())
