"""Rows near an answer that the model must accept, too, as further parts of the program.

An answer should hold when its numbers move a little. Changed numbers keep away from cuts; numbers that keep
their value do not, and a cut next to one of them may be crossed by a small move. Where the model rejects a
row near an answer, the program is solved again with the trees once more, for a row whose kept numbers are
moved so.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from torch import Tensor

from plausiflow.exact.row_program import Corner, RowProblem
from plausiflow.exact.scores import ScoreRow

Mask = npt.NDArray[np.bool_]


def corner_of(problem: RowProblem, x_cf: Tensor, moved: Tensor, rows: list[ScoreRow]) -> Corner:
    """Return the corner at which kept numbers are where ``moved`` has them; both rows are ``(1, width)``."""
    x = problem.allowance.x
    left: list[Mask | None] = []
    for atoms, own in zip(problem.atoms, problem.space.splits, strict=True):
        block = atoms.block
        left.append(None)
        if block.number is None or own.axis is None or not bool(atoms.kept.any()):
            continue
        kept = bool((x_cf[0, block.columns] == x[0, block.columns]).all())
        free = not len(block.levels) or int(x[0, block.level_slice].argmax()) == 0
        if kept and free and bool(moved[0, block.number] != x[0, block.number]):
            place = own.axis.positions(moved[0, [block.number]].numpy())
            left[-1] = own.left(place, np.zeros(1, dtype=np.int64))[:, 0]
    return Corner(left, rows)
