"""Repair candidates that break rules about several features, so that a search does not lose them.

- *States.* If a state rules out the state of another feature, that feature follows: to the row's own state if
  that fits, else to the state that most training rows have with it, else to the first one that fits.
- *Computed numbers.* If a number of an equality has moved, one of the others is computed again, on its grid:
  a number that has changed already if that is possible.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from plausiflow.constraints.allowance import Allowance
from plausiflow.constraints.encoded_clauses import EncodedClause, LinearPiece, ProductPiece
from plausiflow.constraints.state_pairs import StatePairs
from plausiflow.constraints.terms import Term
from plausiflow.errors import InvalidInputError
from plausiflow.tables import Layout, rows_to_read


def partner_levels(layout: Layout, codes: Tensor) -> Tensor:
    """Return the most common level of each block among rows at each level, shape ``(levels, blocks)``.

    ``codes`` are the levels of training rows, shape ``(n, blocks)``.
    """
    sizes = [len(block.levels) for block in layout.with_levels]
    some = rows_to_read(len(codes), len(sizes))
    columns = np.ascontiguousarray(codes.numpy()[some].T)
    partners = np.zeros((sum(sizes), len(sizes)), dtype=np.int64)
    start = 0
    for j, size in enumerate(sizes):
        for k, other in enumerate(sizes):
            counts = np.bincount(columns[j] * other + columns[k], minlength=size * other)
            partners[start : start + size, k] = counts.reshape(size, other).argmax(axis=1)
        start += size
    return torch.from_numpy(partners)


def check_partners(partners: Tensor, layout: Layout) -> Tensor:
    """Return saved partner levels; an error if they are not those of a layout."""
    sizes = torch.tensor([len(block.levels) for block in layout.with_levels], dtype=torch.long)
    fine = partners.dtype == torch.long and partners.shape == (int(sizes.sum()), len(sizes))
    if not fine or bool(((partners < 0) | (partners >= sizes)).any()):
        raise InvalidInputError("`partners` must hold a level of every feature for each level of the layout.")
    return partners.clone()


def repair_codes(
    pairs: StatePairs, codes: Tensor, own: Tensor, levels: Tensor, keep: Tensor, partners: Tensor | None
) -> Tensor:
    """Return levels without forbidden pairs, as far as that is possible.

    Args:
        pairs: Forbidden pairs of levels.
        codes: Levels of the candidates, shape ``(p, blocks)``.
        own: Levels of their factual rows, of the same shape.
        levels: Levels that each may be at, shape ``(p, levels)``.
        keep: Features whose level must stay, shape ``(p, blocks)``.
        partners: The most common level of each block among rows at each level, ``(levels, blocks)``.
    """
    codes = codes.clone()
    wrong = pairs.broken(codes, own).nonzero()[:, 0]
    if len(wrong) == 0:
        return codes
    ends = torch.cat([pairs.starts[1:], pairs.starts.new_tensor([levels.shape[1]])])
    counts = torch.nn.functional.pad(levels[wrong].long().cumsum(dim=1), (1, 0))
    locked = keep[wrong] | (counts[:, ends] - counts[:, pairs.starts] <= 1)
    left = _Conflicts.of(pairs, codes[wrong], own[wrong], levels[wrong], locked)
    for _ in range(codes.shape[1]):
        moving = left.moving()
        # A candidate of which no feature may move stays as it is.
        able = moving.any(dim=1).nonzero()[:, 0]
        if len(able) == 0:
            break
        if len(able) < len(wrong):
            wrong, left, moving = wrong[able], left.select(able), moving[able]
        block = moving.long().argmax(dim=1)
        codes[wrong, block] = left.move(block, partners)
    return codes


@dataclass(eq=False)
class _Conflicts:
    """Candidates in which states of features rule each other out.

    Attributes:
        pairs: Forbidden pairs of levels.
        codes: Levels of the candidates, shape ``(p, blocks)``.
        own: Levels of their factual rows, of the same shape.
        levels: Levels that each may be at, shape ``(p, levels)``.
        locked: Features whose level stays, shape ``(p, blocks)``.
        forbidden: Levels that a locked feature rules out, shape ``(p, levels)``.
        own_forbidden: The same for a feature at the level of its row, which may stay with another such level
            unless a strict rule forbids it.
    """

    pairs: StatePairs
    codes: Tensor
    own: Tensor
    levels: Tensor
    locked: Tensor
    forbidden: Tensor
    own_forbidden: Tensor

    @classmethod
    def of(cls, pairs: StatePairs, codes: Tensor, own: Tensor, levels: Tensor, locked: Tensor) -> _Conflicts:
        strict, lenient = pairs.apart
        held = pairs.marked(codes, locked)
        never, seldom = held @ strict, held @ lenient
        entered = pairs.marked(codes, locked & (codes != own)) @ lenient
        return cls(pairs, codes, own, levels, locked, (never + seldom) > 0, (never + entered) > 0)

    def select(self, rows: Tensor) -> _Conflicts:
        """Return some of the candidates."""
        names = ("codes", "own", "levels", "locked", "forbidden", "own_forbidden")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    def moving(self) -> Tensor:
        """Return the features that a locked one rules out and that are not locked, ``(p, blocks)``.

        If no conflict of a candidate has a locked side, the first changed feature of one is locked.
        """
        ruled_out = self._ruled_out()
        free = (~ruled_out.any(dim=1)).nonzero()[:, 0]
        if len(free):
            clash = _clashes(self.pairs, self.codes[free], self.own[free]).any(dim=2)
            changed = self.codes[free] != self.own[free]
            some = clash.any(dim=1).nonzero()[:, 0]
            first = (clash.long() * (1 + changed.long())).argmax(dim=1)
            self._lock(free[some], first[some])
            ruled_out = self._ruled_out()
        return ruled_out & ~self.locked

    def _ruled_out(self) -> Tensor:
        at = self.codes + self.pairs.starts
        return torch.where(
            self.codes == self.own, self.own_forbidden.gather(1, at), self.forbidden.gather(1, at)
        )

    def _lock(self, rows: Tensor, block: Tensor) -> None:
        """Lock one feature of some candidates at its level."""
        pairs, code = self.pairs, self.codes[rows, block]
        level, entered = code + pairs.starts[block], code != self.own[rows, block]
        strict, lenient = pairs.strict[level], pairs.lenient[level]
        self.locked[rows, block] = True
        self.forbidden[rows] |= strict | lenient
        self.own_forbidden[rows] |= strict | (lenient & entered[:, None])

    def move(self, block: Tensor, partners: Tensor | None) -> Tensor:
        """Move one feature of each candidate to a level that fits, if any does, lock it; return its level."""
        everyone = torch.arange(len(self.codes), device=self.codes.device)
        new = self._choose(block, partners)
        self.codes[everyone, block] = new
        self._lock(everyone, block)
        return new

    def _choose(self, block: Tensor, partners: Tensor | None) -> Tensor:
        """Return the new level of one feature of each candidate, its old one if none fits, ``(p,)``."""
        starts = self.pairs.starts
        sizes = torch.diff(starts, append=starts.new_tensor([self.levels.shape[1]]))
        level = torch.arange(int(sizes.max()), device=block.device)
        inside = level < sizes[block][:, None]
        at = (starts[block][:, None] + level).clamp_max(self.levels.shape[1] - 1)
        kept = level == self.own.gather(1, block[:, None])
        forbidden = torch.where(kept, self.own_forbidden.gather(1, at), self.forbidden.gather(1, at))
        fits = self.levels.gather(1, at) & inside & ~forbidden
        rank = 4 * kept.long()
        if partners is not None:
            clash = _clashes_of(self.pairs, self.codes, self.own, block) & self.locked
            cause = clash.long().argmax(dim=1, keepdim=True)
            source = (self.codes + starts).gather(1, cause)
            rank += 2 * (level == partners[source, block[:, None]]).long()
        best = rank.masked_fill(~fits, -1).argmax(dim=1)
        return torch.where(fits.any(dim=1), best, self.codes.gather(1, block[:, None])[:, 0])


def _clashes(pairs: StatePairs, codes: Tensor, own: Tensor) -> Tensor:
    """Return which pairs of features are in conflict, shape ``(p, blocks, blocks)``."""
    at, kept = codes + pairs.starts, codes == own
    i, j = at[:, :, None], at[:, None, :]
    return pairs.strict[i, j] | (pairs.lenient[i, j] & ~(kept[:, :, None] & kept[:, None, :]))


def _clashes_of(pairs: StatePairs, codes: Tensor, own: Tensor, block: Tensor) -> Tensor:
    """Return which features are in conflict with one feature of each candidate, shape ``(p, blocks)``."""
    at, kept = codes + pairs.starts, codes == own
    i = at.gather(1, block[:, None])
    return pairs.strict[i, at] | (pairs.lenient[i, at] & ~(kept.gather(1, block[:, None]) & kept))


def repair_numbers(allowance: Allowance, x: Tensor, rows: Tensor) -> Tensor:
    """Return points ``(p, width)`` of ``rows`` in which computed numbers follow the others."""
    for j, clause in ((j, allowance.clauses[j]) for j in allowance.equalities):
        piece = clause.pieces[0]
        assert isinstance(piece, LinearPiece | ProductPiece)
        for changed in (True, False):
            for term in piece.terms:
                values = torch.minimum(
                    allowance.clause_value(j, x, rows), allowance.clause_value(j + 1, x, rows)
                )
                wrong = (values < 0).nonzero()[:, 0]
                if len(wrong) == 0:
                    break
                x = _recompute(allowance, x, rows, wrong, clause, term, changed=changed)
    return x


def _recompute(
    allowance: Allowance,
    x: Tensor,
    rows: Tensor,
    wrong: Tensor,
    clause: EncodedClause,
    term: Term,
    *,
    changed: bool,
) -> Tensor:
    """Return the points with one number of an equality computed from the others, where that is allowed."""
    block, piece = term.block, clause.pieces[0]
    if block.number is None or block.scale is None or not isinstance(piece, LinearPiece | ProductPiece):
        return x
    own, of = x[wrong], rows[wrong]
    assert clause.tolerance is not None
    number = piece.solved(own, allowance.offsets[of, clause.start] - clause.tolerance, term)
    at = block.scale.snap(block.scale.encode(number))
    lower, upper = allowance.lower[of, block.number], allowance.upper[of, block.number]
    fits = (at >= lower - 1e-12) & (at <= upper + 1e-12) & (upper > lower)
    placed = torch.minimum(torch.maximum(at, lower), upper)
    level = torch.zeros_like(wrong)
    if len(block.levels):
        levels = allowance.levels[of][:, block.level_slice]
        fits &= levels[:, 0]
        for code, value in enumerate(block.special):
            pin = block.pinned[code]
            if value is not None and pin is not None:
                there = ((number - value).abs() <= clause.tolerance / abs(term.coefficient)) & levels[:, code]
                level, placed = torch.where(there, code, level), torch.where(there, pin, placed)
                fits |= there
    differs = (own[:, block.columns] != allowance.x[of][:, block.columns]).any(dim=1)
    fits &= differs | (not changed)
    moved, rows_moved = x.clone(), wrong[fits]
    moved[rows_moved, block.number] = placed[fits]
    if len(block.levels):
        moved[rows_moved, block.level_slice] = torch.nn.functional.one_hot(level[fits], len(block.levels)).to(
            x
        )
    return moved
