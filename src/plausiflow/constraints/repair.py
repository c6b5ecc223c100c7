"""Repair candidates that break rules about several features, so that a search does not lose them.

- *States.* If a state rules out the state of another feature, that feature follows: to the row's own state if
  that fits, else to the state that most training rows have with it, else to the first one that fits.
- *Computed numbers.* If a number of an equality has moved, one of the others is computed again, on its grid:
  a number that has changed already if that is possible.
"""

from __future__ import annotations

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
    for _ in range(codes.shape[1]):
        if len(wrong) == 0:
            break
        now, was = codes[wrong], own[wrong]
        clash = _clashes(pairs, now, was)
        # If no conflict has a locked side, the first changed feature of one stays.
        stuck = ~(clash & locked[:, :, None]).flatten(1).any(dim=1)
        first = (clash.any(dim=2).long() * (1 + (now != was).long())).argmax(dim=1)
        locked[stuck, first[stuck]] = True
        moving = (clash & locked[:, :, None] & ~locked[:, None, :]).any(dim=1)
        block = moving.long().argmax(dim=1)
        able = moving.any(dim=1).nonzero()[:, 0]
        if len(able) == 0:
            break
        block = block[able]
        chosen = _choose(pairs, now[able], was[able], levels[wrong[able]], locked[able], block, partners)
        codes[wrong[able], block] = chosen
        locked[able, block] = True
        left = pairs.broken(codes[wrong], own[wrong])
        wrong, locked = wrong[left], locked[left]
    return codes


def _clashes(pairs: StatePairs, codes: Tensor, own: Tensor) -> Tensor:
    """Return which pairs of features are in conflict, shape ``(p, blocks, blocks)``."""
    at, kept = codes + pairs.starts, codes == own
    i, j = at[:, :, None], at[:, None, :]
    return pairs.strict[i, j] | (pairs.lenient[i, j] & ~(kept[:, :, None] & kept[:, None, :]))


def _choose(
    pairs: StatePairs,
    codes: Tensor,
    own: Tensor,
    levels: Tensor,
    locked: Tensor,
    block: Tensor,
    partners: Tensor | None,
) -> Tensor:
    """Return the new level of one block of each candidate, its old one if none fits, shape ``(p,)``."""
    everyone = torch.arange(len(codes), device=codes.device)
    n_levels = levels.shape[1]
    at, (strict, lenient) = codes + pairs.starts, pairs.apart
    never, seldom = (pairs.marked(codes, locked) @ table for table in (strict, lenient))
    # The row's own pair of states stays allowed, unless a strict rule forbids it.
    own_level = own[everyone, block] + pairs.starts[block]
    changed = pairs.marked(codes, locked & (codes != own))
    seldom[everyone, own_level] = (changed * lenient[:, own_level].T).sum(dim=1)
    forbidden = (never + seldom) > 0
    ends = torch.cat([pairs.starts[1:], pairs.starts.new_tensor([n_levels])])
    place = torch.arange(n_levels, device=codes.device)
    inside = (place >= pairs.starts[block][:, None]) & (place < ends[block][:, None])
    fits = levels & ~forbidden & inside
    rank = torch.zeros(fits.shape, device=codes.device)
    rank[everyone, own[everyone, block] + pairs.starts[block]] = 4.0
    if partners is not None:
        clash = _clashes(pairs, codes, own)[everyone, :, block] & locked
        source = at[everyone, clash.long().argmax(dim=1)]
        rank[everyone, partners[source, block] + pairs.starts[block]] += 2.0
    rank = rank.masked_fill(~fits, -1.0)
    best = rank.argmax(dim=1)
    return torch.where(fits.any(dim=1), best - pairs.starts[block], codes[everyone, block])


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
