"""The plausibility of candidate rows as a search asks for it: every row with its own bar.

A search holds a candidate against what its factual row is given (:mod:`plausiflow.densities.context`), and
may leave one member of the ensemble out, which judges afterwards. Where nothing but numbers moves, what the
categories contribute is computed once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from plausiflow.core import Plausibility, RowValueAndGrad
from plausiflow.densities.ensemble import CrossFitEnsemble
from plausiflow.densities.mixed import StackedMixed

Numbers = Callable[[Tensor, Tensor], Tensor]
"""``(numbers, which) -> (m,)``: scores of the candidates ``which`` ``(m,)`` at these numbers ``(m, k)``."""


class RowScores:
    """Scores of candidates for some rows and wanted classes; plausible where not negative.

    Args:
        plausibility: Fitted.
        x: The rows before any change, shape ``(n, d)``.
        y_target: Targets classes, shape ``(n,)``.
        margin: Margins of the classes instead of the ensemble's own, shape ``(k,)``.
        left_out: The member of the ensemble that has no say for each row, shape ``(n,)``.
    """

    def __init__(
        self,
        plausibility: Plausibility,
        x: Tensor,
        y_target: Tensor,
        *,
        margin: Tensor | None = None,
        left_out: Tensor | None = None,
    ) -> None:
        self.plausibility, self.y_target, self.left_out = plausibility, y_target, left_out
        self.bar = x.new_zeros(len(x))
        if isinstance(plausibility, CrossFitEnsemble):
            margins = plausibility.margin_ if margin is None else margin
            self.bar = margins.to(x)[y_target] + plausibility.context_threshold(x, y_target)

    @classmethod
    def without_margin(cls, plausibility: Plausibility, x: Tensor, y_target: Tensor) -> RowScores:
        """Scores above the threshold alone, with nothing to spare for a second opinion."""
        margin = (
            torch.zeros_like(plausibility.margin_) if isinstance(plausibility, CrossFitEnsemble) else None
        )
        return cls(plausibility, x, y_target, margin=margin)

    def at(self, rows: Tensor) -> RowScores:
        """The same for some of the rows, each as often as it is named, ``(k,)``."""
        other = copy.copy(self)
        other.y_target, other.bar = self.y_target[rows], self.bar[rows]
        other.left_out = None if self.left_out is None else self.left_out[rows]
        return other

    def to(self, device: torch.device) -> RowScores:
        """The same on a device."""
        other = copy.copy(self)
        other.y_target, other.bar = self.y_target.to(device), self.bar.to(device)
        other.left_out = None if self.left_out is None else self.left_out.to(device)
        return other

    def score(self, x_cf: Tensor, rows: Tensor) -> Tensor:
        """Scores of candidates ``(m, d)`` for the rows ``(m,)``, shape ``(m,)``; keeps the graph."""
        y = self.y_target[rows]
        if not isinstance(self.plausibility, CrossFitEnsemble):
            return self.plausibility.score(x_cf, y)
        return self._held(self.plausibility.member_scores(x_cf, y), rows)

    def of_numbers(
        self, x_cf: Tensor, rows: Tensor, columns: list[int]
    ) -> tuple[Numbers, RowValueAndGrad | None]:
        """The score as a function of the numbers in some columns of the candidates ``(p, d)``.

        Also with its gradient, where that is known without a graph.
        """
        ensemble, index = self.plausibility, columns_index(columns, x_cf)
        if isinstance(ensemble, CrossFitEnsemble):
            stacked = ensemble.stacked(x_cf)
            if isinstance(stacked, StackedMixed) and stacked.flow is not None and stacked.flow.own == columns:
                flow = stacked.flow
                y, rule = self.y_target[rows], ensemble.rule_
                known = ensemble.known(y)
                conditions = flow.conditions(x_cf, known)
                constant = -ensemble.thresholds_.to(x_cf)[:, y]
                if stacked.levels is not None:
                    constant = constant + stacked.levels(x_cf, known)

                def quick(numbers: Tensor, which: Tensor) -> Tensor:
                    scores = flow.log_prob(numbers, conditions[:, :, which]) + constant[:, which]
                    if rule is not None:
                        scores = scores + rule(assembled(x_cf[which], index, numbers), y[which])
                    return self._held(scores, rows[which])

                def slope(numbers: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
                    own, left_out = constant[:, which], self._left_out(rows[which])
                    scores, gradient = flow.value_and_grad(
                        numbers,
                        conditions[:, :, which],
                        lambda found: ensemble.shares(found + own, left_out),
                    )
                    return self._held(scores + own, rows[which]), gradient

                return quick, slope if rule is None else None

        def plain(numbers: Tensor, which: Tensor) -> Tensor:
            return self.score(assembled(x_cf[which], index, numbers), rows[which])

        return plain, None

    def _held(self, scores: Tensor, rows: Tensor) -> Tensor:
        """Members' scores ``(M, m)`` aggregated and held against the rows' bars."""
        assert isinstance(self.plausibility, CrossFitEnsemble)
        return self.plausibility.aggregated(scores, self._left_out(rows)) - self.bar[rows]

    def _left_out(self, rows: Tensor) -> Tensor | None:
        return None if self.left_out is None else self.left_out[rows]


def columns_index(columns: list[int], like: Tensor) -> Tensor:
    """Columns as an index, on the device of ``like``."""
    return torch.tensor(columns, dtype=torch.long, device=like.device)


def assembled(x: Tensor, index: Tensor, numbers: Tensor) -> Tensor:
    """A copy of rows ``(m, d)`` with these numbers ``(m, k)`` in some columns; keeps the graph to them."""
    return x.index_copy(1, index, numbers)
