"""Where a search over a table begins: the row itself, real rows near by, and a beam of changed categories.

A real row is an answer by its own right only after the row's immutable values and bounds have been put into
it and everything has been checked again; such *verified* rows are why few rows come back empty. The beam
changes one category after another, and ranks by what the changes cost plus how far validity and plausibility
are from holding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from plausiflow.errors import InvalidInputError
from plausiflow.search.task import Candidates, Task, cheapest
from plausiflow.tables import Layout

NEAR, MORE = 48, 512
ASKED, AT_ONCE = 256, 16_384
SHORTFALL = 2.0
"""What a nat or a logit that is missing counts in the beam, in units of cost."""
WIDTH, DEPTH, KEEP, DOZEN = 4, 4, 5, 12


@dataclass(frozen=True, eq=False)
class RealRows:
    """Training rows that are plausible and decided so, by class, for a table.

    Attributes:
        rows: Distinct encoded rows, by class.
        typical: The median number where its level leaves it free, by column of a number with states.
        least: The smallest such number, by column.
    """

    rows: dict[int, Tensor]
    typical: dict[int, float]
    least: dict[int, float]

    @classmethod
    def free_numbers(cls, layout: Layout, x: Tensor) -> tuple[dict[int, float], dict[int, float]]:
        """``typical`` and ``least`` of training rows ``(n, width)``."""
        typical, least = {}, {}
        free = layout.free(layout.codes(x))
        for block in layout.with_levels:
            if block.number is not None:
                values = x[:, block.number][free[:, block.number]]
                typical[block.number] = float(values.median()) if len(values) else 0.5
                least[block.number] = float(values.min()) if len(values) else 0.0
        return typical, least

    def state(self, name: str) -> dict[str, Tensor]:
        """All as tensors below a name; :meth:`of_state` takes them back."""
        columns = torch.tensor(list(self.typical), dtype=torch.long)
        free = torch.tensor([[self.typical[c], self.least[c]] for c in self.typical], dtype=torch.float64)
        own = {f"{name}.{k}": rows for k, rows in self.rows.items()}
        return own | {f"{name}.columns": columns, f"{name}.free": free.reshape(-1, 2)}

    @classmethod
    def of_state(cls, state: Mapping[str, Tensor], name: str, layout: Layout, n_classes: int) -> Self:
        """The rows that :meth:`state` gave.

        Raises:
            InvalidInputError: They are no rows of the layout.
        """
        rows = {k: state[f"{name}.{k}"].clone() for k in range(n_classes)}
        columns, free = state[f"{name}.columns"].tolist(), state[f"{name}.free"]
        fine = all(x.shape == (len(x), layout.width) and x.dtype == torch.float64 for x in rows.values())
        fine = fine and all(bool(x.isfinite().all()) for x in rows.values())
        if not fine or free.shape != (len(columns), 2) or set(columns) != set(_with_states(layout)):
            raise InvalidInputError(
                f"`state` must hold the rows of {n_classes} classes, finite doubles of width {layout.width}, "
                "and a typical number for each column with states."
            )
        typical, least = ({c: float(v) for c, v in zip(columns, part, strict=True)} for part in free.T)
        return cls(rows, typical, least)

    def near(self, task: Task, rows: Tensor, count: int, *, among: int = NEAR) -> Candidates:
        """The cheapest ``count`` verified rows for each of some rows, among so many that look cheap."""
        parts = []
        for y in task.y_target[rows].unique().tolist():
            bank = self.rows.get(y, task.x[:0]).to(task.x)
            for some in rows[task.y_target[rows] == y].split(256):
                if len(bank):
                    looks = _resemblance(task, some, bank).topk(min(among, len(bank)), largest=False)
                    owners = some[:, None].expand_as(looks.indices).reshape(-1)
                    moved = transplanted(task, bank[looks.indices.reshape(-1)], owners)
                    parts.append(task.candidates(owners, moved))
        if not parts:
            return task.candidates(rows[:0], task.x[:0])
        return task.checked(Candidates.joined(*parts), changes=False).answers.distinct().best(count)

    def anywhere(self, task: Task, rows: Tensor, count: int, *, asked: int = ASKED) -> Candidates:
        """The cheapest ``count`` verified rows for each of some rows, among all: where none near will do.

        The model itself is asked about the cheapest so many of them that are plausible.
        """
        first, kept = task.unasked, [task.candidates(rows[:0], task.x[:0])]
        for y in task.y_target[rows].unique().tolist():
            bank = self.rows.get(y, task.x[:0]).to(task.x)
            for some in rows[task.y_target[rows] == y].split(max(1, AT_ONCE // max(1, len(bank)))):
                owners = some.repeat_interleave(len(bank))
                moved = transplanted(task, bank.repeat(len(some), 1), owners)
                fine = first.checked(task.candidates(owners, moved)).answers
                kept.append(fine.distinct().best(asked))
        return task.checked(Candidates.joined(*kept)).answers.best(count)


def _with_states(layout: Layout) -> list[int]:
    """Columns of numbers that have states."""
    return [block.number for block in layout.with_levels if block.number is not None]


def _resemblance(task: Task, rows: Tensor, bank: Tensor) -> Tensor:
    """About what it would cost each row to become each real row, shape ``(n, bank)``; immutables apart."""

    def parts(x: Tensor) -> tuple[Tensor, Tensor]:
        codes = dict(zip((b.name for b in task.layout.with_levels), task.layout.codes(x).T, strict=True))
        measured, named = [x[:, :0]], [x[:, :0]]
        for block in task.mutable:
            weight = task.weight_of[block.name]
            if block.number is not None:
                measured.append(weight**0.5 * x[:, block.number : block.number + 1])
            elif block.ordered:
                measured.append(
                    (weight**0.5 / max(1, len(block.levels) - 1)) * codes[block.name].to(x)[:, None]
                )
            else:  # two columns differ where a category does
                named.append(weight / 2 * x[:, block.levels.start : block.levels.stop])
        return torch.cat(measured, dim=1), torch.cat(named, dim=1)

    (measured, named), (bank_measured, bank_named) = parts(task.x[rows]), parts(bank)
    distance = torch.cdist(measured, bank_measured, compute_mode="donot_use_mm_for_euclid_dist")
    return distance + torch.cdist(named, bank_named, p=1.0)


def transplanted(task: Task, x: Tensor, rows: Tensor) -> Tensor:
    """Real rows ``(p, width)`` with what the rules fix for each row put in: its levels, its bounds."""
    codes, own = task.layout.codes(x), task.layout.codes(task.x[rows])
    for j, block in enumerate(task.layout.with_levels):
        allowed = task.allowance.levels[rows][:, block.levels.start : block.levels.stop]
        codes[:, j] = torch.where(allowed.gather(1, codes[:, j : j + 1])[:, 0], codes[:, j], own[:, j])
    lower, upper = task.allowance.lower[rows], task.allowance.upper[rows]
    free = task.layout.free(codes)
    moved = torch.where(free, torch.minimum(torch.maximum(x, lower), upper), x)
    return task.layout.with_codes(moved, codes)


def beam(task: Task, rows: Tensor, typical: dict[int, float]) -> Candidates:
    """The most promising settings of categories, up to ``DEPTH`` changes away from each of some rows."""
    layout = task.layout
    columns = [column for block in layout.with_levels for column in block.levels]
    if not columns:
        return task.candidates(rows[:0], task.x[:0])
    sizes = torch.tensor([len(block.levels) for block in layout.with_levels], device=task.x.device)
    allowed, own = task.allowance.levels.clone(), layout.codes(task.x)
    states, kept = task.candidates(rows, task.x[rows]), []
    for depth in range(min(DEPTH, task.allowance.max_changes or DEPTH)):
        # A category is turned once: never back, nor on to a level that one turn reaches.
        as_before = (layout.codes(states.x) == own[states.rows]).repeat_interleave(sizes, dim=1)
        options = allowed[states.rows][:, columns] & as_before & (states.x[:, columns] == 0)
        which, flip = options.nonzero(as_tuple=True)
        if len(which) == 0:
            break
        flipped = task.candidates(
            states.rows[which], _flipped(layout, states.x[which], flip, columns, typical)
        ).distinct()
        merit = task.costs(flipped.x, flipped.rows)
        merit = merit + SHORTFALL * (-task.constraint_values(flipped.x, flipped.rows)).clamp_min(0).sum(dim=1)
        if depth == 0:  # later changes combine the best dozen of the first ones
            best = cheapest(flipped.rows, merit, DOZEN)
            dozen = torch.zeros_like(allowed)
            turned = (flipped.x[best] != task.x[flipped.rows[best]]) & (flipped.x[best] != 0)
            dozen.index_put_((flipped.rows[best],), turned, accumulate=True)
            allowed &= dozen
        kept.append(flipped[cheapest(flipped.rows, merit, KEEP)])
        states = flipped[cheapest(flipped.rows, merit, WIDTH)]
    return Candidates.joined(*kept) if kept else task.candidates(rows[:0], task.x[:0])


def _flipped(
    layout: Layout, x: Tensor, flip: Tensor, columns: list[int], typical: dict[int, float]
) -> Tensor:
    """Rows ``(p, width)``, each with one level turned on, ``flip`` counting the level columns."""
    block_of = torch.zeros(len(columns), layout.width, dtype=torch.bool, device=x.device)
    pins = torch.full((len(columns),), torch.nan, dtype=x.dtype, device=x.device)
    number_of = torch.full((len(columns),), -1, device=x.device)
    place = 0
    for block in layout.with_levels:
        for i in range(len(block.levels)):
            block_of[place, block.levels.start : block.levels.stop] = True
            if block.number is not None:
                pin = block.pinned[i]
                number_of[place] = block.number
                pins[place] = typical[block.number] if pin is None else pin
            place += 1
    turned = torch.tensor(columns, device=x.device)[flip]
    everyone = torch.arange(len(x), device=x.device)
    x = x.masked_fill(block_of[flip], 0.0)
    x[everyone, turned] = 1.0
    with_number = number_of[flip] >= 0
    x[everyone[with_number], number_of[flip][with_number]] = pins[flip][with_number]
    return x
