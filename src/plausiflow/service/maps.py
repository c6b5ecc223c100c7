"""A map around a row: what the model says and how plausible rows are, on a plane of two axes.

With two features as axes, all others are as in the row: number axes run over the training range and
everything that is drawn, levels are bands. The projection is a plane in the encoded numbers, through the row
and its answers (:mod:`plausiflow.service.planes`); immutable numbers stay, and categories are those of the
nearest of the row and its answers. Answers beyond the second lie beside that plane, and are drawn at the
point of it that is nearest.

Scores are held against what the row is given, as the scores of its answers are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from plausiflow.densities import RowScores
from plausiflow.errors import InvalidInputError, NotFittedError
from plausiflow.explainer import Explainer
from plausiflow.explanations import json_value
from plausiflow.search import Target, Targets, parse_target
from plausiflow.service.planes import Plane
from plausiflow.tables import Encoder, Feature, Value, to_grid

SMALLEST, LARGEST = 2, 100
FARTHEST = 10.0
"""Leads of a predicted number are cut here, in units of its spread."""


@dataclass(frozen=True, eq=False)
class _Axis:
    """One axis of two features.

    Attributes:
        told: What is said of it in the answer.
        cells: The feature's value in each cell.
        places: Where the points lie, as shares of the axis; nothing where a number is missing.
    """

    told: dict[str, Any]
    cells: list[Any]
    places: list[float | None]


def map_of(
    explainer: Explainer,
    instance: dict[str, Any],
    target: Target,
    points: list[dict[str, Any]],
    horizontal: str | None,
    vertical: str | None,
    size: int,
) -> dict[str, Any]:
    """What the model and the density say around a row, as JSON can hold it.

    Args:
        explainer: Fitted.
        instance: The row, a value for each feature.
        target: The wanted outcome, or the interval of a predicted number.
        points: Rows to be placed on the map, such as answers, the best one first.
        horizontal: The feature along the horizontal axis; nothing, for both, asks for the projection.
        vertical: The feature along the vertical axis.
        size: Cells along each axis; levels, and numbers with fewer values, have one cell each.

    Returns:
        ``kind`` (``features`` or ``projection``), both axes, and grids with the lowest line first: the
        ``probability`` of the target or the ``prediction``, the ``lead`` (by how much the target wins, not
        negative where the decision is as wanted) and the ``score`` (nats above the threshold). Cells
        outside the range of training rows are null. ``points`` are shares of the axes, the instance first.

    Raises:
        InvalidInputError: With what was expected.
    """
    if explainer.encoder_ is None or explainer.model_ is None or explainer.engine_ is None:
        raise NotFittedError("This explainer has not been fitted. Call `fit(x, y)` with training rows first.")
    encoder, model = explainer.encoder_, explainer.model_
    _check(encoder, horizontal, vertical, size)
    rows = _read(encoder, [instance, *points])
    x = encoder.encode(rows).x
    wanted = parse_target(target, model.answers(x[:1]), explainer.criterion_, model.labels)[0]
    if horizontal is None or vertical is None:
        real = explainer.engine_.bank.rows.get(int(wanted.y), x[:0])
        plane = Plane.through(encoder.layout, x, real, explainer.engine_.rules.immutable)
        cells, inside = plane.cells(size)
        across, up = (_Axis(plane.axis(k), [None] * size, [*plane.shares(k)]) for k in range(2))
    else:
        across, up = (_axis(encoder, name, rows[name], x, size) for name in (horizontal, vertical))
        cells = encoder.encode(_crossed(rows.iloc[:1], across, up)).x
        inside = torch.ones(len(cells), dtype=torch.bool)
    grids = _measured(explainer, x[:1], cells, wanted)
    shape = (len(up.cells), len(across.cells))
    return {
        "kind": "projection" if horizontal is None else "features",
        "horizontal": across.told,
        "vertical": up.told,
        **{name: _written(values, inside, shape) for name, values in grids.items()},
        "points": [list(place) for place in zip(across.places, up.places, strict=True)],
    }


def _check(encoder: Encoder, horizontal: object, vertical: object, size: object) -> None:
    names = [block.name for block in encoder.layout.blocks]
    problems = []
    if (horizontal is None) != (vertical is None):
        problems.append("`horizontal` and `vertical` must both name a feature, or both be null")
    for what, name in (("horizontal", horizontal), ("vertical", vertical)):
        if name is not None and name not in names:
            problems.append(f"`{what}` must be one of {', '.join(names)}; got {name!r}")
    if horizontal is not None and horizontal == vertical:
        problems.append(f"`horizontal` and `vertical` must differ; both are {horizontal!r}")
    if isinstance(size, bool) or not isinstance(size, int) or not SMALLEST <= size <= LARGEST:
        problems.append(f"`size` must be a whole number from {SMALLEST} to {LARGEST}; got {size!r}")
    if problems:
        raise InvalidInputError("; ".join(problems) + ".")


def _read(encoder: Encoder, rows: list[dict[str, Any]]) -> pd.DataFrame:
    """The row and the points as a table; the message names all that cannot be read."""
    names = encoder.schema.names
    titles = ["`instance`", *(f"point {number}" for number in range(1, len(rows)))]
    problems = []
    for title, row in zip(titles, rows, strict=True):
        if not isinstance(row, dict):
            problems.append(f"{title} is no object")
            continue
        absent = [name for name in names if name not in row]
        nested = [name for name in names if isinstance(row.get(name), list | dict)]
        problems += [f"{title} lacks {', '.join(absent)}"] if absent else []
        problems += [f"{title} has several values as {', '.join(nested)}"] if nested else []
    if problems:
        raise InvalidInputError(f"Rows of a map need one value for each feature: {'; '.join(problems)}.")
    frame = pd.DataFrame({name: pd.Series([row[name] for row in rows], dtype=object) for name in names})
    unread = zip(titles, encoder.encode(frame).problems, strict=True)
    problems = [f"{title}: {problem}" for title, problem in unread if problem is not None]
    if problems:
        raise InvalidInputError(f"Rows of a map must be readable: {'; '.join(problems)}.")
    return frame


def _axis(encoder: Encoder, name: str, column: pd.Series, x: Tensor, size: int) -> _Axis:
    """The axis of a feature; ``column`` holds it for the points, ``x`` are the points encoded."""
    feature, block = encoder.schema.feature(name), encoder.layout.block(name)
    if block.number is not None:
        return _number_axis(feature, x[:, block.number], (~column.isna()).tolist(), size)
    levels: list[Value | None] = [*feature.levels]
    if len(block.levels) > len(levels):
        levels.append(None)  # missing is a level, too
    codes = x[:, block.levels.start : block.levels.stop].argmax(dim=1).tolist()
    told = {"name": name, "scale": "bands", "values": [json_value(level) for level in levels]}
    return _Axis(told, list(levels), [(code + 0.5) / len(levels) for code in codes])


def _number_axis(feature: Feature, own: Tensor, known: list[bool], size: int) -> _Axis:
    """Over the training range and all points ``(n,)``; one cell for each value where there are few."""
    scale, step = feature.scale, feature.step
    drawn = torch.cat([own[torch.tensor(known)], torch.tensor([0.0, 1.0]).to(own)])
    low, high = (float(end) for end in drawn.aminmax())
    start, end = scale.decode(torch.tensor([low, high]).to(own)).tolist()
    if step and not scale.log and round((end - start) / step) < size:
        values = to_grid(step * np.arange(round(start / step), round(end / step) + 1), step, feature.decimals)
        start, end = start - step / 2, end + step / 2
        low, high = scale.encode(torch.tensor([start, end]).to(own)).tolist()
    else:
        middles = low + (torch.arange(size).to(own) + 0.5) / size * (high - low)
        values = scale.decode(middles).numpy()
        values = to_grid(values, step, feature.decimals) if step else values
    told = {"name": feature.name, "scale": "log" if scale.log else "linear", "from": start, "to": end}
    shares = ((own - low) / (high - low)).tolist()
    places = [share if there else None for share, there in zip(shares, known, strict=True)]
    return _Axis({**told, "values": values.tolist()}, values.tolist(), places)


def _crossed(row: pd.DataFrame, across: _Axis, up: _Axis) -> pd.DataFrame:
    """The row at every pair of cells, line by line."""
    width, height = len(across.cells), len(up.cells)
    frame = row.iloc[np.zeros(width * height, dtype=np.int64)].reset_index(drop=True)
    frame[across.told["name"]] = pd.Series(across.cells * height, dtype=object)
    lines = [cell for cell in up.cells for _ in range(width)]
    frame[up.told["name"]] = pd.Series(lines, dtype=object)
    return frame


@torch.no_grad()
def _measured(explainer: Explainer, row: Tensor, cells: Tensor, wanted: Targets) -> dict[str, Tensor]:
    """What is known of each cell, shape ``(m,)`` each."""
    assert explainer.model_ is not None
    assert explainer.engine_ is not None
    outputs = explainer.model_.answers(cells)
    guide = RowScores.without_margin(explainer.engine_.plausibility, row, wanted.y)
    score = guide.score(cells, torch.zeros(len(cells), dtype=torch.long))
    if not explainer.model_.labels:
        lead = explainer.criterion_.value(outputs, wanted).clamp(-FARTHEST, FARTHEST)
        return {"prediction": outputs, "lead": lead, "score": score}
    proba = outputs.exp()
    own, rival = proba[:, int(wanted.y)], proba.index_fill(1, wanted.y, -1.0).amax(dim=1)
    return {"probability": own, "lead": own - rival, "score": score}


def _written(values: Tensor, inside: Tensor, shape: tuple[int, int]) -> list[list[float | None]]:
    """Lines of a grid with five digits, null where there is nothing."""
    shown = [
        float(f"{value:.5g}") if there and np.isfinite(value) else None
        for value, there in zip(values.tolist(), inside.tolist(), strict=True)
    ]
    return [shown[line * shape[1] : (line + 1) * shape[1]] for line in range(shape[0])]
