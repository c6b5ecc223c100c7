"""A map around a row: the output of the model and the plausibility on a plane of two axes.

With two features as axes, all other features keep their values. A numeric axis covers the training range and
all points; a categorical axis has one band for each level.

Without features, the map is a projection: a plane in the encoded numbers. Its first axis leads from the row
to the first counterfactual, its second axis to the second one. If there is none, or if it is almost on the
first axis, the second axis follows the largest spread of plausible real rows across the first. Both axes have
the same scale, so that distances are true. Immutable numbers stay, and levels are those of the nearest row.
Rows outside the plane are drawn at its nearest point.

Scores use the conditions of the row, like the scores of its counterfactuals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from plausiflow.core import Targets
from plausiflow.densities import row_scores
from plausiflow.errors import InvalidInputError
from plausiflow.explanations import json_value
from plausiflow.search import Target, parse_target
from plausiflow.service.schemas import MapRequest
from plausiflow.service.served_model import ServedModel
from plausiflow.tables import CellValue, Encoder, Feature, Layout, round_to_grid

MAX_LEAD = 10.0
"""Leads of a predicted number are clipped here, in units of its spread."""
PADDING, MIN_REACH = 0.9, 0.15
"""Half the side of a projection: a share of the extent of its points, and the smallest value."""
MIN_ANGLE = 0.05
"""A second counterfactual gives an axis if it leaves the first axis by this share of its distance."""


@dataclass(frozen=True, eq=False)
class MapAxis:
    """One axis of a map."""

    description: dict[str, Any]  # its description in the response
    values: list[Any]  # value of the feature in each cell; None on a projection
    positions: list[float | None]  # of each point, 0 to 1 along the axis; None if the number is missing


def draw_map(served: ServedModel, request: MapRequest, target: Target) -> dict[str, Any]:
    """Return the outputs of the model and the scores of the density around a row, as JSON values.

    They are ``kind`` (``features`` or ``projection``), both axes, and grids with the lowest line first: the
    ``probability`` of the target or the ``prediction``, the ``lead`` (by how much the target wins; not
    negative where the target is met) and the ``score`` (nats above the threshold). Cells outside the training
    range are None. ``points`` are positions on the axes, the row first. A level, or one of few values of a
    number, has one cell.
    """
    encoder, model, engine = served.encoder, served.model, served.explainer.engine_
    assert engine is not None
    rows = _read_rows(encoder, [request.instance, *request.points])
    x = encoder.encode(rows).x
    choices = parse_target(target, model.predict_outputs(x[:1]), served.explainer.criterion_, model.labels)
    wanted = choices[0]
    if request.horizontal is None or request.vertical is None:
        real = engine.bank.rows.get(int(wanted.y), x[:0])
        cells, inside, (across, up) = _project(encoder.layout, x, real, engine.rules.immutable, request.size)
    else:
        names = (request.horizontal, request.vertical)
        across, up = (_feature_axis(encoder, name, rows[name], x, request.size) for name in names)
        cells = encoder.encode(_cross(rows.iloc[:1], across, up)).x
        inside = torch.ones(len(cells), dtype=torch.bool)
    grids = _measure(served, x[:1], cells, choices)
    width = len(across.values)
    return {
        "kind": "projection" if request.horizontal is None else "features",
        "horizontal": across.description,
        "vertical": up.description,
        **{name: _to_lines(values, inside, width) for name, values in grids.items()},
        "points": [list(position) for position in zip(across.positions, up.positions, strict=True)],
    }


def _read_rows(encoder: Encoder, rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return rows as a data frame, or raise an error that names all rows the encoder cannot read."""
    names = encoder.schema.names
    frame = pd.DataFrame({name: pd.Series([row[name] for row in rows], dtype=object) for name in names})
    problems = [
        f"{f'point {i}' if i else '`instance`'}: {problem}"
        for i, problem in enumerate(encoder.encode(frame).problems)
        if problem is not None
    ]
    if problems:
        raise InvalidInputError(f"The model must be able to read all rows of a map: {'; '.join(problems)}.")
    return frame


@torch.no_grad()
def _measure(served: ServedModel, row: Tensor, cells: Tensor, choices: list[Targets]) -> dict[str, Tensor]:
    """Return the grids of a map, each of shape ``(m,)``; for an interval the score of its best bin."""
    assert served.explainer.engine_ is not None
    wanted, plausibility = choices[0], served.explainer.engine_.plausibility
    outputs = served.model.predict_outputs(cells)
    first = torch.zeros(len(cells), dtype=torch.long)
    bins = choices if not served.labels else choices[:1]
    scores = [row_scores(plausibility, row, own.y, with_margin=False).score(cells, first) for own in bins]
    score = torch.stack(scores).amax(dim=0)
    if not served.labels:
        lead = served.explainer.criterion_.value(outputs, wanted).clamp(-MAX_LEAD, MAX_LEAD)
        return {"prediction": outputs, "lead": lead, "score": score}
    shown = served.model.shown_outputs(outputs, cells).exp()[:, int(wanted.y)]
    proba = served.explainer.criterion_.decision_logits(outputs).softmax(dim=1)
    target, rival = proba[:, int(wanted.y)], proba.index_fill(1, wanted.y, -1.0).amax(dim=1)
    return {"probability": shown, "lead": target - rival, "score": score}


def _to_lines(values: Tensor, inside: Tensor, width: int) -> list[list[float | None]]:
    """Return the lines of a grid with five digits; None for cells outside and values that are not finite."""
    rounded = [
        float(f"{value:.5g}") if is_inside and np.isfinite(value) else None
        for value, is_inside in zip(values.tolist(), inside.tolist(), strict=True)
    ]
    return [rounded[start : start + width] for start in range(0, len(rounded), width)]


# ---------------------------------------------------------------- features as axes


def _feature_axis(encoder: Encoder, name: str, column: pd.Series, x: Tensor, size: int) -> MapAxis:
    """Return the axis of a feature; ``column`` has its values for the points, ``x`` the encoded points."""
    feature, block = encoder.schema.feature(name), encoder.layout.block(name)
    if block.number is not None:
        apart = torch.tensor(block.apart or (False,))
        special = apart[x[:, block.level_slice].argmax(dim=1)] if len(block.levels) else apart.expand(len(x))
        return _number_axis(feature, x[:, block.number], (~special).tolist(), size)
    levels: list[CellValue | None] = [*feature.levels]
    if len(block.levels) > len(levels):
        levels.append(None)  # missing values are a level
    codes = x[:, block.levels.start : block.levels.stop].argmax(dim=1).tolist()
    description = {"name": name, "scale": "bands", "values": [json_value(level) for level in levels]}
    return MapAxis(description, levels, [(code + 0.5) / len(levels) for code in codes])


def _number_axis(feature: Feature, encoded: Tensor, known: list[bool], size: int) -> MapAxis:
    """Return an axis over the training range and all points ``(n,)``; few values have one cell each."""
    scale, step = feature.scale, feature.step
    ends = torch.cat([encoded[torch.tensor(known)], torch.tensor([0.0, 1.0]).to(encoded)])
    low, high = (float(end) for end in ends.aminmax())
    start, end = scale.decode(torch.tensor([low, high]).to(encoded)).tolist()
    if step and not scale.log and round((end - start) / step) < size:
        values = step * np.arange(round(start / step), round(end / step) + 1)
        start, end = start - step / 2, end + step / 2
        low, high = scale.encode(torch.tensor([start, end]).to(encoded)).tolist()
    else:
        middles = low + (torch.arange(size).to(encoded) + 0.5) / size * (high - low)
        values = scale.decode(middles).numpy()
    cells = (round_to_grid(values, step, feature.decimals) if step else values).tolist()
    shares = ((encoded - low) / (high - low)).tolist()
    description = {"name": feature.name, "scale": "log" if scale.log else "linear", "from": start, "to": end}
    positions = [share if is_known else None for share, is_known in zip(shares, known, strict=True)]
    return MapAxis(description | {"values": cells}, cells, positions)


def _cross(row: pd.DataFrame, across: MapAxis, up: MapAxis) -> pd.DataFrame:
    """Return the row with every pair of values, line by line."""
    width, height = len(across.values), len(up.values)
    frame = row.iloc[np.zeros(width * height, dtype=np.int64)].reset_index(drop=True)
    frame[across.description["name"]] = pd.Series(across.values * height, dtype=object)
    lines = [value for value in up.values for _ in range(width)]
    frame[up.description["name"]] = pd.Series(lines, dtype=object)
    return frame


# ---------------------------------------------------------------- projection


def _project(
    layout: Layout, x: Tensor, real: Tensor, immutable: Sequence[str], size: int
) -> tuple[Tensor, Tensor, list[MapAxis]]:
    """Return the plane through rows ``x`` ``(n, width)``, the first of which is explained.

    It is encoded rows of ``size`` × ``size`` cells, line by line; which are in the training range; both axes.
    """
    blocks = [b for b in layout.blocks if b.number is not None and b.name not in immutable]
    if len(blocks) < 2:
        raise InvalidInputError(
            f"A projection needs two numbers that can change; this table has {len(blocks)}. Name two "
            "features as `horizontal` and `vertical`."
        )
    columns = [b.number for b in blocks if b.number is not None]
    directions, names = _directions((x - x[0])[:, columns], real[:, columns])
    coordinates = (x - x[0])[:, columns] @ directions.T
    low, high = coordinates.aminmax(dim=0)
    reach = max(MIN_REACH, PADDING * float((high - low).max()))
    corner, side = (low + high) / 2 - reach, 2 * reach

    middles = (torch.arange(size).to(x) + 0.5) * side / size
    grid = torch.cartesian_prod(middles, middles).flip(1) + corner
    cells = x[:1].repeat(len(grid), 1)
    cells[:, columns] += grid @ directions
    low, high = x[:, columns].aminmax(dim=0)
    moved = cells[:, columns]
    inside = ((moved >= low.clamp_max(0)) & (moved <= high.clamp_min(1))).all(dim=1)
    if layout.with_levels:
        nearest = torch.cdist(grid, coordinates).argmin(dim=1)
        cells = layout.with_codes(cells, layout.codes(x)[nearest])

    axes = []
    positions = ((coordinates - corner) / side).T.tolist()
    for k, start in enumerate(corner.tolist()):
        shares = [(b.name, share) for b, share in zip(blocks, directions[k].tolist(), strict=True)]
        shares.sort(key=lambda pair: -abs(pair[1]))
        parts = [{"feature": name, "share": round(share, 4)} for name, share in shares]
        ends = {"from": start, "to": start + side}
        description = {"name": names[k], "scale": "linear", **ends, "parts": parts}
        axes.append(MapAxis(description, [None] * size, positions[k]))
    return cells, inside, axes


def _directions(moves: Tensor, real: Tensor) -> tuple[Tensor, list[str]]:
    """Return two orthogonal unit vectors ``(2, d)`` and the name of each."""
    found: list[Tensor] = []
    names: list[str] = []
    for number, move in enumerate(moves[1:3], start=1):
        rest = _project_out(move[None], found)[0]
        if len(found) + 1 == number and float(rest.norm()) > max(1e-6, MIN_ANGLE * float(move.norm())):
            found.append(rest / rest.norm())
            names.append(f"towards answer {number}")
    while len(found) < 2:
        spread = _project_out(real - real.mean(dim=0), found) if len(real) > 1 else real
        if not len(spread) or float(spread.abs().max()) < 1e-6:
            spread = _project_out(torch.eye(moves.shape[1]).to(moves), found)
        direction = torch.linalg.svd(spread, full_matrices=False).Vh[0]
        found.append(direction * direction[direction.abs().argmax()].sign())
        names.append("along the spread of plausible rows")
    return torch.stack(found), names


def _project_out(rows: Tensor, directions: Sequence[Tensor]) -> Tensor:
    """Return the part of rows ``(n, d)`` that is orthogonal to some unit vectors."""
    for direction in directions:
        rows = rows - (rows @ direction)[:, None] * direction
    return rows
