"""The bank: real training rows that already satisfy every constraint, by class.

A bank row of the target class is a feasible counterfactual. Moved onto a row's own immutable values and into
its bounds it may lose that, so it is checked again where it is used. The bank is why few rows come back
without an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from plausiflow.core import PAIRS, blocks
from plausiflow.errors import InvalidInputError
from plausiflow.search.candidates import Candidates
from plausiflow.search.task import SearchTask
from plausiflow.tables import Layout

Feasible = Callable[[Tensor, Tensor], Tensor]
"""``(x, y_target) -> (n,)`` bool: whether a row is a counterfactual for that class."""

NEAR, MORE, ORACLE_ROWS = 48, 512, 256
CLAMPED = 64
"""Bank rows of each row that are moved into its bounds."""
_BLOCK, _TABLE_BLOCK = 2048, 256


@dataclass(frozen=True, eq=False)
class Bank:
    """Training rows that satisfy every constraint, by class.

    Attributes:
        rows: Distinct encoded rows, by class.
        typical: Median of a number with states, where its state leaves it free, by column.
    """

    rows: dict[int, Tensor]
    typical: dict[int, float] = field(default_factory=dict)
    _codes: dict[int, Tensor] = field(default_factory=dict, init=False, repr=False)

    def codes(self, y: int, layout: Layout) -> Tensor:
        """Return the levels of the rows of a class, shape ``(n, features with levels)``; computed once."""
        if y not in self._codes:
            self._codes[y] = layout.codes(self.rows[y])
        return self._codes[y]

    @classmethod
    def of(cls, x: Tensor, n_classes: int, feasible: Feasible) -> Bank:
        """Keep the distinct rows of ``x`` that are feasible for each class, in double precision."""
        exact = torch.unique(x, dim=0).double()
        rows = {}
        for y in range(n_classes):
            target = torch.full((len(exact),), y, device=x.device)
            rows[y] = exact[torch.cat([feasible(*block) for block in blocks(exact, target, size=_BLOCK)])]
        return cls(rows)

    @staticmethod
    def free_numbers(layout: Layout, x: Tensor) -> dict[int, float]:
        """Return ``typical`` of training rows ``(n, width)``."""
        typical, free = {}, layout.free(layout.codes(x))
        for column in _with_states(layout):
            values = x[:, column][free[:, column]]
            typical[column] = float(values.median()) if len(values) else 0.5
        return typical

    def state(self, name: str) -> dict[str, Tensor]:
        """Return everything as tensors with a common prefix; :meth:`load_state` reads them."""
        columns = torch.tensor(list(self.typical), dtype=torch.long)
        typical = torch.tensor(list(self.typical.values()), dtype=torch.float64)
        own = {f"{name}.{k}": rows for k, rows in self.rows.items()}
        return own | {f"{name}.columns": columns, f"{name}.typical": typical}

    @classmethod
    def load_state(cls, state: Mapping[str, Tensor], name: str, layout: Layout, n_classes: int) -> Self:
        """Restore a bank from :meth:`state`.

        Raises:
            InvalidInputError: The tensors are not rows of the layout.
        """
        rows = {k: state[f"{name}.{k}"].clone() for k in range(n_classes)}
        columns, typical = state[f"{name}.columns"].tolist(), state[f"{name}.typical"]
        fine = all(x.shape == (len(x), layout.width) and x.dtype == torch.float64 for x in rows.values())
        fine = fine and all(bool(x.isfinite().all()) for x in rows.values())
        fine = fine and typical.shape == (len(columns),) and bool(typical.isfinite().all())
        if not fine or set(columns) != set(_with_states(layout)):
            raise InvalidInputError(
                f"`state` must hold the rows of {n_classes} classes, finite doubles of width {layout.width}, "
                "and a typical number for each column with states."
            )
        return cls(rows, dict(zip(columns, typical.tolist(), strict=True)))

    def nearest(
        self,
        x: Tensor,
        y_target: Tensor,
        *,
        count: int,
        lower: Tensor | None = None,
        upper: Tensor | None = None,
        feasible: Feasible | None = None,
    ) -> Tensor:
        """Return the ``count`` nearest bank rows of each target class, ``(n, count, d)``, padded with NaN.

        With bounds, rows are moved into them first; if that changes a row, it must still be ``feasible``.
        """
        found = x.new_full((len(x), count, x.shape[1]), float("nan"))
        for y in y_target.unique().tolist():
            bank = self.rows.get(y, x[:0]).to(x)
            for rows in (y_target == y).nonzero()[:, 0].split(_BLOCK):
                if len(bank):
                    bounds = None if lower is None or upper is None else (lower[rows], upper[rows])
                    near = _nearest(x[rows], bank, count, bounds, feasible, y)
                    found[rows, : near.shape[1]] = near
        return found

    def verified(self, task: SearchTask, rows: Tensor, count: int, *, among: int = NEAR) -> Candidates:
        """Return the cheapest ``count`` feasible bank rows for each of some rows of a task.

        ``among`` bank rows that look cheapest are moved onto what the rules fix for a row, and checked.
        """
        candidates = task.candidates(*self.moved(task, rows, among))
        return task.cheapest_feasible(candidates, count, max_changes=False)

    def moved(self, task: SearchTask, rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return the ``count`` bank rows that look cheapest for each of some rows, moved; not checked.

        They are moved onto what the rules fix for a row. The rows that they belong to come first.
        """
        owners, found = [rows[:0]], [task.x[:0]]
        for y in task.y_target[rows].unique().tolist():
            bank = self.rows.get(y, task.x[:0]).to(task.x)
            for some in rows[task.y_target[rows] == y].split(_TABLE_BLOCK):
                if len(bank):
                    closest = self._closest(task, y, bank, some, count)
                    owners.append(some[:, None].expand_as(closest).reshape(-1))
                    found.append(transplant(task, bank[closest.reshape(-1)], owners[-1]))
        return torch.cat(owners), torch.cat(found)

    def _closest(self, task: SearchTask, y: int, bank: Tensor, rows: Tensor, count: int) -> Tensor:
        """Return the bank rows of a class that look cheapest for each of some rows, ``(rows, count)``.

        Immutable features do not count: they are put back later.
        """
        own, real = (task.x[rows], task.codes[rows]), self.codes(y, task.layout).to(rows.device)
        costs = task.cost_model.pairwise(own, (bank, real), task.mutable)
        return costs.topk(min(count, len(bank)), largest=False).indices

    def quantiles(self, task: SearchTask, rows: Tensor, count: int) -> Candidates:
        """Return ``count`` rows with quantiles of the bank's numbers for each of some rows of a task.

        Each number is one that a bank row has, within the row's bounds. The rows are not rows that exist:
        they are numbers to choose from.
        """
        parts = [task.candidates(rows[:0], task.x[:0])]
        shares = (torch.arange(count, dtype=torch.float64) + 0.5) / count
        for y in task.y_target[rows].unique().tolist():
            bank = self.rows.get(y, task.x[:0]).to(task.x)
            if len(bank) == 0:
                continue
            free = task.free_numbers(self.codes(y, task.layout).to(task.x.device))
            chosen = bank[:1].repeat(count, 1)
            for block in task.mutable:
                if block.number is not None:
                    own = bank[free[:, block.number]]
                    own = own if len(own) else bank
                    order = own[:, block.number].argsort(stable=True)
                    places = (shares * len(own)).long().to(order.device)
                    chosen[:, block.columns] = own[order[places]][:, block.columns]
            owners = rows[task.y_target[rows] == y].repeat_interleave(count)
            x = chosen.repeat(len(owners) // count, 1)
            lower, upper = task.allowance.lower[owners], task.allowance.upper[owners]
            inside = torch.minimum(torch.maximum(x, lower), upper)
            x = torch.where(task.free_numbers(task.codes_of(x)), inside, x)
            parts.append(task.candidates(owners, x))
        return Candidates.concat(*parts)

    def scan(
        self,
        task: SearchTask,
        rows: Tensor,
        count: int,
        *,
        oracle_rows: int = ORACLE_ROWS,
        checked: int = 0,
    ) -> Candidates:
        """Return the cheapest ``count`` feasible bank rows for each of some rows, among all bank rows.

        An oracle is asked about the cheapest ``oracle_rows`` of them that are plausible. The ``checked`` bank
        rows that look cheapest are left out: none of them is feasible.
        """
        first, kept = task.without_oracle, [task.candidates(rows[:0], task.x[:0])]
        for y in task.y_target[rows].unique().tolist():
            bank = self.rows.get(y, task.x[:0]).to(task.x)
            if len(bank) <= checked:
                continue
            for some in rows[task.y_target[rows] == y].split(max(1, PAIRS // max(1, len(bank)))):
                unchecked = self._few_changes(task, y, bank, some)
                if checked:
                    unchecked.scatter_(1, self._closest(task, y, bank, some, checked), False)
                own, real = unchecked.nonzero(as_tuple=True)
                owners, moved = some[own], transplant(task, bank[real], some[own])
                most = count if task.oracle is None else oracle_rows
                kept.append(first.cheapest_feasible(task.candidates(owners, moved), most))
        found = Candidates.concat(*kept)
        return found if task.oracle is None else task.check(found).feasible.cheapest(count)

    def _few_changes(self, task: SearchTask, y: int, bank: Tensor, rows: Tensor) -> Tensor:
        """Return which bank rows differ in as few features as the rules allow, ``(rows, bank)`` bool."""
        most = task.allowance.max_changes
        if most is None:
            return torch.ones(len(rows), len(bank), dtype=torch.bool, device=rows.device)
        codes = self.codes(y, task.layout).to(rows.device)
        count = torch.zeros(len(rows), len(bank), dtype=torch.long, device=rows.device)
        for block in task.mutable:
            differs = torch.zeros(len(rows), len(bank), dtype=torch.bool, device=rows.device)
            if block.number is not None:
                differs |= task.x[rows, block.number][:, None] != bank[:, block.number]
            if len(block.levels):
                j = task.layout.with_levels.index(block)
                differs |= task.codes[rows, j][:, None] != codes[:, j]
            count += differs
        return count <= most


def _with_states(layout: Layout) -> list[int]:
    """Columns of numbers that have special states."""
    return [block.number for block in layout.with_levels if block.number is not None]


def _nearest(
    x: Tensor,
    bank: Tensor,
    count: int,
    bounds: tuple[Tensor, Tensor] | None,
    feasible: Feasible | None,
    y: int,
) -> Tensor:
    """Return the nearest bank rows of one class, shape ``(n, at most count, d)``."""
    inside = bounds is None or bool(((bank.amin(0) >= bounds[0]) & (bank.amax(0) <= bounds[1])).all())
    if inside or bounds is None:
        # Pair by pair: the faster matrix product rounds differently in another batch.
        distance = torch.cdist(x, bank, compute_mode="donot_use_mm_for_euclid_dist")
        return bank[distance.topk(min(count, len(bank)), largest=False).indices]
    lower, upper = bounds
    free = (upper > lower).to(x)
    # Distance in the features that may move; the check below decides about the frozen ones.
    squared = free @ (bank * bank).mT - 2 * (free * x) @ bank.mT
    candidates = bank[squared.topk(min(CLAMPED, len(bank)), largest=False).indices]
    moved = torch.minimum(torch.maximum(candidates, lower[:, None]), upper[:, None])
    distance = torch.linalg.vector_norm(moved - x[:, None], dim=2)
    if feasible is not None:
        flat = moved.reshape(-1, moved.shape[-1])
        ok = feasible(flat, torch.full((len(flat),), y, device=x.device)).reshape(distance.shape)
        distance = distance.masked_fill(~ok, float("inf"))
    order = distance.topk(min(count, distance.shape[1]), dim=1, largest=False)
    chosen = moved.gather(1, order.indices[..., None].expand(-1, -1, moved.shape[-1]))
    return chosen.masked_fill(~torch.isfinite(order.values)[..., None], float("nan"))


def transplant(task: SearchTask, x: Tensor, rows: Tensor) -> Tensor:
    """Put what the rules fix for each row, levels and bounds, into real rows ``(p, width)``."""
    codes, own = task.codes_of(x), task.codes[rows]
    index = task.layout.index(x.device)
    fits = task.allowance.levels[rows].gather(1, index.first_column + codes)
    codes = torch.where(fits, codes, own)
    if len(index.states):
        numbers = torch.where(fits[:, index.states], x[:, index.numbers], task.x[rows][:, index.numbers])
        x = x.index_copy(1, index.numbers, numbers)
    lower, upper = task.allowance.lower[rows], task.allowance.upper[rows]
    free = task.free_numbers(codes)
    moved = torch.where(free, torch.minimum(torch.maximum(x, lower), upper), x)
    placed = task.with_codes(moved, codes)
    return task.repaired(placed, rows, task.layout.changed(placed, x))
