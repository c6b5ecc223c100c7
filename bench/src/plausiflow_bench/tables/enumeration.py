"""All combinations of few changes, which a search with a limit on changes is compared with.

A *move* changes one feature of a row: to another allowed level, or to a quantile of the numbers of training
rows with the target outcome. Every combination of at most ``most`` moves of different features is checked as
the search checks its own candidates: by the rules, the model and the density, without the calibrated margin.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from plausiflow.densities import row_scores
from plausiflow.search import Bank, Candidates, SearchTask, parse_target, read_rows
from plausiflow.tables import Block, Mask
from plausiflow_bench.tables.cases import Case

QUANTILES = (0.02, 0.14, 0.26, 0.38, 0.5, 0.62, 0.74, 0.86, 0.98)
CHUNK = 16_384


def find_enumerated(case: Case, most: int) -> Mask:
    """Return for which test rows of a case some combination of at most ``most`` moves is an answer."""
    found = np.zeros(len(case.test.x), dtype=bool)
    bank = case.engine.wider_bank or case.engine.bank
    for task in tasks_without_margin(case):
        left = torch.from_numpy(np.flatnonzero(~found[case.usable.numpy()]))
        rows = left[enumerate_answers(task.at(left), bank, most).rows]
        found[case.usable[rows].numpy()] = True
    return found


def tasks_without_margin(case: Case) -> Iterator[SearchTask]:
    """Yield the task of the usable test rows for each target that is enough for them."""
    frame, engine = case.test.x.iloc[case.usable.numpy()], case.engine
    read = read_rows(case.encoder, case.model, frame)
    choices = parse_target(
        case.target, read.outputs, case.explainer.criterion_, case.model.labels, decided=read.decided
    )
    for targets in choices:
        scores = row_scores(engine.plausibility, read.encoded.x, targets.y, with_margin=False)
        yield engine.task(read.encoded.x, targets, frame=frame, scores=scores)


@torch.no_grad()
def enumerate_answers(task: SearchTask, bank: Bank, most: int) -> Candidates:
    """Return for each row a feasible combination of as few moves as possible, if ``most`` are enough."""
    none = task.candidates(torch.zeros(0, dtype=torch.long), task.x[:0])
    found = [_first_answer(task, row, row_moves(task, bank, row), most) for row in range(len(task))]
    return Candidates.concat(none, *(answer for answer in found if answer is not None))


def _first_answer(task: SearchTask, row: int, moves: Tensor, most: int) -> Candidates | None:
    x = task.x[row]
    feature = task.layout.changed(moves, x.expand_as(moves)).long().argmax(dim=1)
    for count in range(1, most + 1):
        for chosen in _combinations(feature, count).split(CHUNK):
            x_cf = x.expand(len(chosen), -1)
            for move in moves[chosen].unbind(dim=1):
                x_cf = torch.where(move != x, move, x_cf)
            of = torch.full((len(x_cf),), row)
            valid = task.validity(x_cf, task.targets, of) >= 0  # cheaper than the rest of the check
            checked = task.check(task.candidates(of[valid], x_cf[valid])).feasible
            if len(checked):
                return checked.cheapest(1)
    return None


def _combinations(feature: Tensor, count: int) -> Tensor:
    """Return the combinations of moves of different features, shape ``(p, count)``."""
    chosen = torch.combinations(torch.arange(len(feature)), count)
    return chosen[(feature[chosen].diff(dim=1) != 0).all(dim=1)]


def row_moves(task: SearchTask, bank: Bank, row: int) -> Tensor:
    """Return the row with each of its moves, ordered by feature, shape ``(m, width)``."""
    real = bank.rows[int(task.y_target[row])]
    moves = [move for block in task.mutable for move in _block_moves(task, real, row, block)]
    return torch.stack(moves) if moves else task.x[:0]


def _block_moves(task: SearchTask, real: Tensor, row: int, block: Block) -> Iterator[Tensor]:
    own, levels = task.x[row], block.levels
    values: list[float] = []
    if block.number is not None:
        values = _typical_numbers(task, real, row, block, block.number)
    for place, column in enumerate(levels):
        if bool(own[column]) or not bool(task.allowance.levels[row, column]):
            continue
        levelled = own.clone()
        levelled[block.level_slice] = 0.0
        levelled[column] = 1.0
        if block.number is None:
            yield levelled
            continue
        pin = block.pinned[place]
        for value in values if pin is None else [pin]:
            yield levelled.index_fill(0, torch.tensor([block.number]), value)
    if block.number is not None and bool(task.free[row, block.number]):
        for value in values:
            if value != float(own[block.number]):
                yield own.index_fill(0, torch.tensor([block.number]), value)


def _typical_numbers(task: SearchTask, real: Tensor, row: int, block: Block, number: int) -> list[float]:
    """Return quantiles of the numbers of real rows, on the grid, that are allowed and not special."""
    free = task.free_numbers(task.codes_of(real))[:, number]
    if block.scale is None or not bool(free.any()):
        return []
    shares = torch.tensor(QUANTILES, dtype=real.dtype)
    values = torch.quantile(real[free, number], shares, interpolation="nearest")
    low, high = task.allowance.lower[row, number], task.allowance.upper[row, number]
    values = block.scale.snap(values.clamp(low, high)).unique()
    allowed = values[(values >= low) & (values <= high)]
    return [value for value in allowed.tolist() if value not in block.pinned]
