"""The proven cheapest row as a start of the search for tree models.

The relaxed trees of the search lead to answers that may cost more than needed. Where no density asks for
more, the exact program (:mod:`plausiflow.exact`) gives the cheapest row that holds around itself: every
number that changes stays away from the cuts of the trees, and where the model rejects a row near by, the
program is solved again with the trees of that row in it. Its work is limited by the solver's own count of
operations and not by a clock, so the same row always gets the same answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from plausiflow.exact import Answer, Prover, model_space
from plausiflow.models import BlackBox, UnsupportedModelError
from plausiflow.search.candidates import Candidates
from plausiflow.search.task import SearchTask
from plausiflow.search.true_model import corners_of

WORK = 2.0
"""Deterministic time of the solver for each radius; about a second."""
NO_LIMIT = 1e9
CORNERS = 96
"""Corners at which an answer must hold."""


@dataclass(frozen=True, eq=False)
class ExactStart:
    """Finds the cheapest allowed rows of a tree model that hold around themselves.

    Attributes:
        model: The user's model.
        reach: How far numbers stay from cuts, as a share of their range.
    """

    model: BlackBox
    reach: float

    def find(self, task: SearchTask, rows: Tensor, found: Candidates) -> Candidates:
        """Return a candidate for each row that has one cheaper than those that were found; not checked."""
        assert task.oracle is not None
        try:
            space = model_space(self.model, task.allowance.layout)
        except UnsupportedModelError:
            return found[rows[:0]]
        prover = Prover(space, task.cost_model, task.validity.criterion)
        best = task.x.new_full((len(task),), torch.inf).scatter_reduce(0, found.rows, found.cost, "amin")
        places, points = [], []
        for row in rows.tolist():
            one = torch.tensor([row])
            proof = prover.prove(
                task.oracle.frame.iloc[[row]].reset_index(drop=True),
                task.allowance.at(one),
                replace(task.targets[one], extra_margin=None),
                lambda x_cf, row=row: self._answer(task, x_cf, row),  # type: ignore[misc]
                NO_LIMIT,
                float(best[row]),
                reach=self.reach,
                work=WORK,
                rejected=lambda x_cf, row=row: self._rejected(task, x_cf, row),  # type: ignore[misc]
            )
            if proof.answer is not None:
                places.append(row)
                points.append(proof.answer)
        x = torch.cat(points) if points else task.x[:0]
        return task.candidates(torch.tensor(places, dtype=torch.long), x)

    def _rejected(self, task: SearchTask, x_cf: Tensor, row: int) -> Tensor | None:
        """Return the corner of a row where the model is farthest from its target; None if it holds."""
        assert task.oracle is not None
        encoder = task.oracle.true_model.encoder
        moved = corners_of(encoder, x_cf, corners=CORNERS, reach=self.reach, salt=2)
        own = torch.full((len(moved),), row)
        criterion = replace(task.validity.criterion, margin=0.0)
        values = criterion.value(task.oracle._outputs(moved, own), task.targets[own])
        return moved[values.argmin()][None] if bool((values < 0).any()) else None

    @staticmethod
    def _answer(task: SearchTask, x_cf: Tensor, row: int) -> Answer:
        """Return what model and rules say about a row."""
        own = torch.tensor([row])
        if not bool(task.allowance.contains(x_cf, own)[0]):
            return "not allowed"
        assert task.oracle is not None
        outputs = task.oracle._outputs(x_cf, own)
        valid = bool(task.validity.criterion.value(outputs, task.targets[own])[0] >= 0)
        # A row that is less dense than every real one is ruled out with its cell, as one of another outcome.
        return "accepted" if valid and bool(task.scores.score(x_cf, own)[0] >= 0) else "another outcome"
