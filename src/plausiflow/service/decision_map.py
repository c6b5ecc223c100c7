"""A map around a row: the output of the model and the plausibility on a plane of two axes.

With two features as axes, all other features keep their values. A numeric axis covers the training range and all
points; a categorical axis has one band for each level. Without features, the map is a plane in the encoded numbers
through the row and its counterfactuals (:mod:`plausiflow.service.projection`). There, immutable numbers stay, and
categories are those of the nearest of these rows. Counterfactuals after the second may be outside the plane; they
are drawn at its nearest point. Scores use the conditions of the row, like the scores of its counterfactuals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from plausiflow.core import Targets
from plausiflow.densities import row_scores
from plausiflow.errors import InvalidInputError, NotFittedError
from plausiflow.explainer import Explainer
from plausiflow.explanations import json_value
from plausiflow.search import Target, parse_target
from plausiflow.service.projection import Plane
from plausiflow.tables import CellValue, Encoder, Feature, round_to_grid

MAX_LEAD = 10.0
"""Leads of a predicted number are clipped here, in units of its spread."""


@dataclass(frozen=True, eq=False)
class MapAxis:
    """One axis of a map.

    Attributes:
        description: Its description in the response.
        values: Value of the feature in each cell; None on a projection.
        positions: Position of each point, 0 to 1 along the axis; None if the number is missing.
    """

    description: dict[str, Any]
    values: list[Any]
    positions: list[float | None]


def draw_map(
    explainer: Explainer,
    instance: dict[str, Any],
    target: Target,
    *,
    points: list[dict[str, Any]],
    horizontal: str | None,
    vertical: str | None,
    size: int,
) -> dict[str, Any]:
    """Return the outputs of the model and the scores of the density around a row, as JSON values.

    Args:
        explainer: A fitted explainer.
        instance: The row, with a value for each feature.
        target: The wanted outcome, or the interval of a predicted number.
        points: Further rows on the map, such as counterfactuals, the best one first.
        horizontal: Feature of the horizontal axis; if None, the map is a projection.
        vertical: Feature of the vertical axis; None exactly if ``horizontal`` is None.
        size: Number of cells along each axis; a level, or one of few values of a number, has one cell.

    Returns:
        ``kind`` (``features`` or ``projection``), both axes, and grids with the lowest line first: the
        ``probability`` of the target or the ``prediction``, the ``lead`` (by how much the target wins; not
        negative where the target is met) and the ``score`` (nats above the threshold). Cells outside the
        training range are None. ``points`` are positions on the axes, the instance first.

    Raises:
        InvalidInputError: A row cannot be read, or fewer than two numbers span the projection.
    """
    if explainer.encoder_ is None or explainer.model_ is None or explainer.engine_ is None:
        raise NotFittedError("This explainer has not been fitted. Call `fit(x, y)` with training rows first.")
    encoder, model = explainer.encoder_, explainer.model_
    rows = _read_rows(encoder, [instance, *points])
    x = encoder.encode(rows).x
    wanted = parse_target(target, model.predict_outputs(x[:1]), explainer.criterion_, model.labels)[0]
    if horizontal is None or vertical is None:
        real = explainer.engine_.bank.rows.get(int(wanted.y), x[:0])
        plane = Plane.through(encoder.layout, x, real, explainer.engine_.rules.immutable)
        cells, inside = plane.cells(size)
        across, up = (MapAxis(plane.axis(k), [None] * size, [*plane.positions(k)]) for k in range(2))
    else:
        across, up = (_feature_axis(encoder, name, rows[name], x, size) for name in (horizontal, vertical))
        cells = encoder.encode(_cross(rows.iloc[:1], across, up)).x
        inside = torch.ones(len(cells), dtype=torch.bool)
    grids = _measure(explainer, x[:1], cells, wanted)
    width = len(across.values)
    return {
        "kind": "projection" if horizontal is None else "features",
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


def _feature_axis(encoder: Encoder, name: str, column: pd.Series, x: Tensor, size: int) -> MapAxis:
    """Return the axis of a feature; ``column`` has its values for the points, ``x`` the encoded points."""
    feature, block = encoder.schema.feature(name), encoder.layout.block(name)
    if block.number is not None:
        return _number_axis(feature, x[:, block.number], (~column.isna()).tolist(), size)
    levels: list[CellValue | None] = [*feature.levels]
    if len(block.levels) > len(levels):
        levels.append(None)  # missing values are a level
    codes = x[:, block.levels.start : block.levels.stop].argmax(dim=1).tolist()
    description = {"name": name, "scale": "bands", "values": [json_value(level) for level in levels]}
    return MapAxis(description, list(levels), [(code + 0.5) / len(levels) for code in codes])


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
    values = (round_to_grid(values, step, feature.decimals) if step else values).tolist()
    shares = ((encoded - low) / (high - low)).tolist()
    description = {
        "name": feature.name,
        "scale": "log" if scale.log else "linear",
        "from": start,
        "to": end,
        "values": values,
    }
    positions = [share if is_known else None for share, is_known in zip(shares, known, strict=True)]
    return MapAxis(description, values, positions)


def _cross(row: pd.DataFrame, across: MapAxis, up: MapAxis) -> pd.DataFrame:
    """Return the row with every pair of values, line by line."""
    width, height = len(across.values), len(up.values)
    frame = row.iloc[np.zeros(width * height, dtype=np.int64)].reset_index(drop=True)
    frame[across.description["name"]] = pd.Series(across.values * height, dtype=object)
    lines = [value for value in up.values for _ in range(width)]
    frame[up.description["name"]] = pd.Series(lines, dtype=object)
    return frame


@torch.no_grad()
def _measure(explainer: Explainer, row: Tensor, cells: Tensor, wanted: Targets) -> dict[str, Tensor]:
    """Return the grids of a map, each of shape ``(m,)``."""
    assert explainer.model_ is not None
    assert explainer.engine_ is not None
    outputs = explainer.model_.predict_outputs(cells)
    scores = row_scores(explainer.engine_.plausibility, row, wanted.y, with_margin=False)
    score = scores.score(cells, torch.zeros(len(cells), dtype=torch.long))
    if not explainer.model_.labels:
        lead = explainer.criterion_.value(outputs, wanted).clamp(-MAX_LEAD, MAX_LEAD)
        return {"prediction": outputs, "lead": lead, "score": score}
    proba = outputs.exp()
    target, rival = proba[:, int(wanted.y)], proba.index_fill(1, wanted.y, -1.0).amax(dim=1)
    return {"probability": target, "lead": target - rival, "score": score}


def _to_lines(values: Tensor, inside: Tensor, width: int) -> list[list[float | None]]:
    """Return the lines of a grid with five digits; None for cells outside and values that are not finite."""
    rounded = [
        float(f"{value:.5g}") if is_inside and np.isfinite(value) else None
        for value, is_inside in zip(values.tolist(), inside.tolist(), strict=True)
    ]
    return [rounded[start : start + width] for start in range(0, len(rounded), width)]
