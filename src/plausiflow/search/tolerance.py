"""Tolerance: an answer that still holds if its changed numbers are missed by a little.

Nobody arrives exactly at an income of 51,500. Each changed number of an answer is moved up or down by its
tolerance, a share of its range, or by less, at random and all at once, and the model is asked: between the
value and the end of its tolerance trees may decide otherwise than at both. Where it decides
otherwise, the row is searched again for an answer that is as much farther inside the target as was lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from plausiflow.densities import row_scores
from plausiflow.errors import InvalidInputError
from plausiflow.search.answers import Answers, verify_candidates
from plausiflow.search.candidates import cheapest
from plausiflow.search.engine import Engine
from plausiflow.search.request import SearchRequest
from plausiflow.search.roles import Settled, settle_changes
from plausiflow.search.row_random import row_keys, signs, uniforms
from plausiflow.tables import Encoder, Layout
from plausiflow.validation import to_float

SAMPLES = 48
"""Ways to miss an answer that are tried: half of them by the whole tolerance, half by less."""
FACTORS = (1.0, 1.5, 2.5)
"""By how much of what was lost the target must be met more, one after the other."""
Tolerance = float | Mapping[str, float]


def parse_tolerance(tolerance: object, layout: Layout) -> Tensor:
    """Return how far each encoded column may be missed, shape ``(width,)``; zero for anything but numbers.

    Raises:
        InvalidInputError: It is neither a share nor a mapping from numbers to shares.
    """
    numbers = {block.name: block.number for block in layout.blocks if block.number is not None}
    given = tolerance if isinstance(tolerance, Mapping) else dict.fromkeys(numbers, tolerance)
    unknown = [repr(name) for name in given if name not in numbers]
    wrong = [repr(value) for value in given.values() if not 0 < to_float(value) <= 0.5]
    if unknown or wrong:
        raise InvalidInputError(
            "`tolerance` must be a share of the range of a number, above 0 and at most 0.5, for all numbers "
            f"or by name; got {', '.join(unknown + wrong)}."
        )
    width = torch.zeros(layout.width, dtype=torch.float64)
    for name, value in given.items():
        width[numbers[name]] = to_float(value)
    return width


@torch.no_grad()
def tolerant_share(engine: Engine, encoder: Encoder, request: SearchRequest, answers: Answers) -> Tensor:
    """Return the share of ways to miss each answer at which the model still decides as wanted."""
    return _missed(engine, encoder, request, answers)[0]


@torch.no_grad()
def tolerate(engine: Engine, encoder: Encoder, request: SearchRequest, settled: Settled) -> Settled:
    """Search rows again whose answers do not hold if they are missed; the best ones found are kept."""
    share, lost = _missed(engine, encoder, request, settled.answers)
    for factor in FACTORS:
        rows = settled.answers.of[share < 1].unique()
        more = lost.new_zeros(len(request.frame)).scatter_reduce(0, settled.answers.of, lost, "amax")
        search = partial(_search_inside, engine, encoder, request, factor * more)
        found = [part for _, part in request.search_in_time(rows, search)]
        if not found:
            break
        settled = Settled.concat(encoder, request.frame, [settled, *found])
        share, lost = _missed(engine, encoder, request, settled.answers)
        # The answers of a row that hold best, then the cheapest of them.
        of = settled.answers.of
        best = share.new_zeros(len(request.frame)).scatter_reduce(0, of, share, "amax")
        keep = (share >= best[of]).nonzero()[:, 0]
        keep = keep[cheapest(of[keep], settled.answers.cost[keep], request.pool)]
        settled, share, lost = settled.select(keep), share[keep], lost[keep]
    return settled


def _search_inside(
    engine: Engine, encoder: Encoder, request: SearchRequest, more: Tensor, rows: Tensor
) -> Settled:
    """Search rows for answers that are by ``more`` ``(n,)`` farther inside their targets."""
    part = request.repeat(rows, request.targets[rows].with_extra_margin(more[rows]))
    x, targets, frame, locked = part.part(torch.arange(len(rows)))
    scores = row_scores(engine.plausibility, x, targets.y, with_margin=request.second_opinion)
    task = engine.lasting.task(x, targets, frame=frame, locked=locked, scores=scores)
    found = engine.lasting.search(task, request.k)
    held = verify_candidates(engine, encoder, part, found, torch.arange(len(rows))).answers
    held = held.select((held.score >= scores.margin[held.of]).nonzero()[:, 0])
    return settle_changes(engine, encoder, request, replace(held, of=rows[held.of]), undo=False)


def _missed(
    engine: Engine, encoder: Encoder, request: SearchRequest, answers: Answers
) -> tuple[Tensor, Tensor]:
    """Return the share of samples that hold, and how much of the target's value is lost, ``(m,)`` each."""
    assert request.tolerance is not None
    count = len(answers.of)
    if count == 0:
        return answers.cost, answers.cost
    layout = encoder.layout
    x, targets, before, _ = request.part(answers.of)
    changed = (answers.x_cf != x) & layout.free(layout.codes(answers.x_cf))
    keys, shape = row_keys(answers.x_cf), (count, SAMPLES, layout.width)
    moves = signs(keys, SAMPLES * layout.width, 6).view(shape)
    less = uniforms(keys, SAMPLES * layout.width, 7).view(shape)
    moves = torch.cat([moves[:, ::2], (moves * less)[:, 1::2]], dim=1)
    moved = answers.x_cf[:, None] + moves * (request.tolerance * changed)[:, None]
    points = layout.settle(layout.snap(moved.reshape(-1, layout.width)))
    of = torch.arange(count).repeat_interleave(SAMPLES)
    frame = encoder.decode(points, like=before.iloc[of.numpy()], encoded=x[of])
    wanted = replace(targets[of], extra_margin=None)
    verified = engine.verify(points, frame, wanted, torch.zeros(len(points)))
    share = verified.valid.view(count, SAMPLES).double().mean(dim=1)
    both = torch.cat([answers.x_cf, points])
    model, criterion = engine.model, engine.validity.criterion
    outputs = engine.validity.outputs(both) if model is None else model.predict_outputs(both, None)
    own = criterion.value(outputs[:count], replace(targets, extra_margin=None))
    least = criterion.value(outputs[count:], wanted).view(count, SAMPLES).amin(dim=1)
    return share, (own - least).clamp_min(0)
