"""The last step: answers are settled, and different from each other.

Every change of an answer gets its role (:mod:`plausiflow.search.roles`), and of several answers of a row no
two need the same changes (:mod:`plausiflow.search.ways`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from plausiflow.search.answers import Answers
from plausiflow.search.candidates import cheapest
from plausiflow.search.engine import Engine
from plausiflow.search.method_search import MethodSearch
from plausiflow.search.pipeline import SearchResult
from plausiflow.search.request import SearchRequest
from plausiflow.search.roles import settle_changes
from plausiflow.search.tolerance import tolerate
from plausiflow.search.ways import distinct_ways
from plausiflow.tables import Encoder


def finish_answers(
    engine: Engine, encoder: Encoder, request: SearchRequest, result: SearchResult
) -> SearchResult:
    """Return the result with settled answers, and the roles of their changes.

    The answers of another method stay as they are, and once the time is over nothing is undone.
    """
    answers = Answers(result.of, result.x_cf, result.decoded, result.cost, result.score)
    ours, late = not isinstance(engine.strategy, MethodSearch), request.late
    if late:
        answers = answers.select(cheapest(answers.of, answers.cost, request.k))
    settled = settle_changes(engine, encoder, request, answers, undo=ours and not late)
    if ours and not late and request.tolerance is not None:
        settled = tolerate(engine, encoder, request, settled)
    if ours:
        settled = distinct_ways(engine, request, settled)
    answers, reason = settled.answers, result.reason.copy()
    if request.k > 1:
        count = np.bincount(answers.of.numpy(), minlength=len(reason))
        for row in np.flatnonzero((count > 0) & (count < request.k) & (reason == "")):
            ways = "one way" if count[row] == 1 else f"{count[row]} ways"
            reason[row] = f"{ways} only: no counterfactual was found that needs other changes"
    return replace(
        result,
        reason=reason,
        of=answers.of,
        x_cf=answers.x_cf,
        decoded=answers.decoded,
        cost=answers.cost,
        score=answers.score,
        roles=settled.roles,
    )
