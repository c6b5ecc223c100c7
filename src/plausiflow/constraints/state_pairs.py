"""Pairs of states that may not occur in one row, as a table over all levels of encoded rows.

Implications between states, pairs that never occur and hierarchies are all of this form: "husband implies
male" forbids the pairs of *husband* with every other level. The table is symmetric.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from plausiflow.constraints.clauses import InStates
from plausiflow.constraints.encoded_clauses import RuleClause, true_levels
from plausiflow.tables import Feature, Layout

_CHUNK = 2**22
"""Levels of points that are looked up at once."""


@dataclass(frozen=True, eq=False)
class StatePairs:
    """Forbidden pairs of levels, counted over the blocks with levels of a layout.

    Attributes:
        strict: Pairs that no row may end with, shape ``(levels, levels)`` bool.
        lenient: Pairs that a row may keep if it has them, but not enter, of the same shape.
        starts: Number of levels before each block, shape ``(blocks,)``.
        blocks: Pairs of blocks that have a forbidden pair, shape ``(2, m)``.
    """

    strict: Tensor
    lenient: Tensor
    starts: Tensor
    blocks: Tensor

    @classmethod
    def of(
        cls, layout: Layout, features: Mapping[str, Feature], clauses: Sequence[RuleClause]
    ) -> StatePairs | None:
        """Build the table of clauses that forbid pairs; None without any."""
        if not clauses:
            return None
        sizes = [len(block.levels) for block in layout.with_levels]
        starts = torch.tensor([sum(sizes[:j]) for j in range(len(sizes))])
        place = {block.name: (j, block) for j, block in enumerate(layout.with_levels)}
        tables = torch.zeros(2, sum(sizes), sum(sizes), dtype=torch.bool)
        for clause in clauses:
            sides = []
            for statement in clause.statements:
                assert isinstance(statement, InStates)
                j, block = place[statement.feature]
                off = ~true_levels(statement, features[statement.feature], block)
                sides.append(int(starts[j]) + off.nonzero()[:, 0])
            first, second = sides
            table = tables[int(clause.rule.lenient)]
            table[first[:, None], second[None]] = True
            table[second[:, None], first[None]] = True
        block_of = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
        rows, columns = tables.any(dim=0).nonzero(as_tuple=True)
        used = torch.unique(torch.stack([block_of[rows], block_of[columns]]), dim=1)
        return cls(tables[0], tables[1], starts, used[:, used[0] < used[1]])

    @cached_property
    def apart(self) -> tuple[Tensor, Tensor]:
        """The tables ``strict`` and ``lenient`` as numbers, for matrix products."""
        return self.strict.to(torch.float32), self.lenient.to(torch.float32)

    @cached_property
    def _parts(self) -> list[tuple[slice, Tensor]]:
        """The levels of each block with a forbidden pair, and what each of them excludes."""
        apart = (self.strict | self.lenient).to(torch.float32)
        ends = [*self.starts.tolist(), len(self.strict)]
        parts = [slice(ends[j], ends[j + 1]) for j in self.blocks.flatten().unique().tolist()]
        return [(part, apart[part]) for part in parts]

    def marked(self, codes: Tensor, which: Tensor) -> Tensor:
        """Return one-hot levels of some features ``which`` ``(k, blocks)`` of points, ``(k, levels)``."""
        marks = torch.zeros(len(codes), len(self.strict), dtype=torch.float32, device=codes.device)
        return marks.scatter_(1, codes + self.starts, which.to(torch.float32))

    def broken(self, codes: Tensor, own: Tensor) -> Tensor:
        """Return which points have a forbidden pair, shape ``(k,)``.

        ``codes`` are the levels of points ``(k, blocks)``, ``own`` those of their factual rows.
        """
        strict, lenient = self.apart
        broken = torch.zeros(len(codes), dtype=torch.bool, device=codes.device)
        for some in torch.arange(len(codes), device=codes.device).split(max(1, _CHUNK // len(strict))):
            now, changed = codes[some], codes[some] != own[some]
            levels = self.marked(now, torch.ones_like(changed))
            conflicts = levels @ strict + self.marked(now, changed) @ lenient
            broken[some] = (conflicts * levels).sum(dim=1) > 0
        return broken

    def supported(self, levels: Tensor, own: Tensor) -> Tensor:
        """Return which allowed levels of rows can occur with some allowed level of every other feature.

        Args:
            levels: Allowed levels of each row, counted over the blocks with levels, shape ``(n, levels)``.
            own: The rows' own levels, one-hot, of the same shape; a row may keep them.
        """
        kept = levels
        for _ in range(2):
            allowed, marks = kept, kept.to(torch.float32)
            for part, apart in self._parts:
                options = marks[:, part]
                conflicts = options @ apart
                left = options.sum(dim=1, keepdim=True) - conflicts > 0
                left[:, part] = True
                allowed = allowed & (left | own)
            if torch.equal(allowed, kept):
                break
            kept = allowed
        return kept

    def to(self, device: torch.device) -> StatePairs:
        """Return the table on a device."""
        if device == self.strict.device:
            return self
        return StatePairs(
            self.strict.to(device), self.lenient.to(device), self.starts.to(device), self.blocks.to(device)
        )
