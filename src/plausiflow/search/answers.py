"""Answers: what a search found, decoded, encoded again, and verified on the tables themselves."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
import torch
from torch import Tensor

from plausiflow.densities import row_scores
from plausiflow.search.candidates import Candidates, cheapest
from plausiflow.search.engine import Engine
from plausiflow.search.request import SearchRequest
from plausiflow.tables import Encoder

WITHOUT_MARGIN = "plausible, but not all with a margin to spare: a second opinion may differ"


@dataclass(frozen=True, eq=False)
class Answers:
    """Answers that hold on the decoded rows, ordered by row and cost."""

    of: Tensor
    x_cf: Tensor
    decoded: pd.DataFrame
    cost: Tensor
    score: Tensor

    def select(self, which: Tensor) -> Answers:
        """Return some of the answers, by position."""
        decoded = self.decoded.iloc[which.numpy()].reset_index(drop=True)
        return Answers(self.of[which], self.x_cf[which], decoded, self.cost[which], self.score[which])

    def unique(self, k: int) -> Answers:
        """Drop repeated answers, and keep the cheapest ``k`` of every row."""
        first = Candidates(rows=self.of, x=self.x_cf, cost=self.cost).first_occurrences()
        return self.select(first[cheapest(self.of[first], self.cost[first], k)])

    @classmethod
    def concat(cls, encoder: Encoder, frame: pd.DataFrame, parts: list[Answers]) -> Answers:
        """Concatenate answers, ordered by row and cost; ``frame`` has the columns of the table."""
        parts = [part for part in parts if len(part.of)]
        if not parts:
            x = torch.zeros(0, encoder.layout.width, dtype=torch.float64)
            return cls(torch.zeros(0, dtype=torch.long), x, frame.iloc[:0], x.sum(dim=1), x.sum(dim=1))
        of = torch.cat([part.of for part in parts])
        order = torch.argsort(torch.cat([part.cost for part in parts]), stable=True)
        order = order[torch.argsort(of[order], stable=True)]
        frames = [part.decoded for part in parts]
        decoded = frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)
        return cls(
            of[order],
            torch.cat([part.x_cf for part in parts])[order],
            decoded.iloc[order.numpy()].reset_index(drop=True),
            torch.cat([part.cost for part in parts])[order],
            torch.cat([part.score for part in parts])[order],
        )


@dataclass(frozen=True, eq=False)
class Verified:
    """Answers that hold, and which of the rules that were left out each of them breaks.

    ``candidate`` is the position of each answer among the candidates, shape ``(m,)``.
    """

    answers: Answers
    broken: pd.DataFrame
    candidate: Tensor


def verify_candidates(
    engine: Engine,
    encoder: Encoder,
    request: SearchRequest,
    found: Candidates,
    rows: Tensor,
    without: frozenset[str] = frozenset(),
) -> Verified:
    """Decode candidates for some rows of the request, and keep those that model and rules accept.

    Args:
        engine: What was fitted.
        encoder: Encoder of the table.
        request: The request.
        found: Candidates; their rows count those of ``rows``.
        rows: Rows of the request.
        without: Names of rules that need not hold, as people write them, or ``locked``.
    """
    of = rows[found.rows]
    x, targets, before, locked = request.part(of)
    decoded = encoder.decode(found.x, like=before, encoded=x)
    again = encoder.encode(decoded)
    filled = encoder.decode(x, like=before, encoded=x) if encoder.missing == "impute" else before
    violations = engine.rules.violations(filled, decoded, locked).reset_index(drop=True)
    left_out = [name for name in violations.columns if name in without]
    broken = violations.drop(columns=left_out).to_numpy().any(axis=1)
    scores = row_scores(engine.plausibility, x, targets.y, with_margin=False)
    score = scores.score(again.x, torch.arange(len(of)))
    holds = torch.from_numpy(again.usable & ~broken)
    index = holds.nonzero()[:, 0]
    holding = targets if len(index) == len(of) else targets[index]
    verified = engine.verify(again.x[index], decoded.iloc[index.numpy()], holding, score[index])
    layout = engine.rules.layout
    cost = engine.cost_model((x, layout.codes(x)), (again.x, layout.codes(again.x)))
    chosen = index[verified.safely_valid]
    answers = Answers(of, again.x, decoded, cost, score).select(chosen)
    return Verified(answers, violations[left_out].iloc[chosen.numpy()].reset_index(drop=True), chosen)
