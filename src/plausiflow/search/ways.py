"""Different ways: alternatives of a row differ in what the decision needs, or in which direction.

Two answers that need the same features in the same direction are one piece of advice. Of such answers only
the cheapest is kept.
"""

from __future__ import annotations

import numpy as np
import torch

from plausiflow.search.candidates import cheapest
from plausiflow.search.engine import Engine
from plausiflow.search.request import SearchRequest
from plausiflow.search.roles import Settled

Way = frozenset[tuple[str, int]]
"""Needed features, each with its direction: 1 or -1 for a number, the new level for a category."""


def needed_ways(engine: Engine, request: SearchRequest, settled: Settled) -> list[Way]:
    """Return what each answer needs, and in which direction; all its changes if it needs none alone."""
    answers, roles = settled.answers, settled.roles
    blocks = {block.name: block for block in engine.rules.layout.blocks}
    x, needed = request.encoded.x[answers.of], roles.needed
    some = np.bincount(roles.answer[needed], minlength=len(answers.of)) > 0
    ways: list[set[tuple[str, int]]] = [set() for _ in range(len(answers.of))]
    for i in (needed | ~some[roles.answer]).nonzero()[0].tolist():
        answer, block = int(roles.answer[i]), blocks[roles.feature[i]]
        own, new = x[answer], answers.x_cf[answer]
        if len(block.levels) and not torch.equal(own[block.level_slice], new[block.level_slice]):
            way = 2 + int(new[block.level_slice].argmax())
        else:
            way = 1 if new[block.number] > own[block.number] else -1
        ways[answer].add((block.name, way))
    return [frozenset(way) for way in ways]


def distinct_ways(engine: Engine, request: SearchRequest, settled: Settled) -> Settled:
    """Return up to ``k`` answers of each row, cheapest first, no two of which need the same changes."""
    if request.k > 1:
        seen: set[tuple[int, Way]] = set()
        kept = []
        for i, way in enumerate(needed_ways(engine, request, settled)):
            key = int(settled.answers.of[i]), way
            if key not in seen:
                kept.append(i)
                seen.add(key)
        settled = settled.select(torch.tensor(kept, dtype=torch.long))
    answers = settled.answers
    return settled.select(cheapest(answers.of, answers.cost, request.k))
