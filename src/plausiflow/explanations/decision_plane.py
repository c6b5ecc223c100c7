"""A map around a row: model and density on the plane of two numbers, all other features fixed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from plausiflow import plots
from plausiflow.densities import row_scores
from plausiflow.errors import InvalidInputError
from plausiflow.explanations.changes import relative_moves
from plausiflow.explanations.formatting import format_value
from plausiflow.explanations.plotting import decision_title
from plausiflow.tables import Feature, FloatArray, read_numbers, round_to_grid

if TYPE_CHECKING:
    from plausiflow.explanations.result import Explanations

SIZE = 60


def plot_map(
    result: Explanations,
    i: int,
    x: str | None = None,
    y: str | None = None,
    *,
    axes: Any = None,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """Plot the model's output, its decision and where rows are plausible, on the plane of two numbers.

    All other features have the values of the answer, or those of the row if it has none. Without ``x`` and
    ``y``, the axes are the two numbers that the answer moves most.

    Args:
        result: The result.
        i: Position of the row.
        x: Feature of the horizontal axis.
        y: Feature of the vertical axis.
        axes: Where to draw; by default a new figure.

    Returns:
        The axes.

    Raises:
        InvalidInputError: A feature is not a number, or the result was made without a model.
        MissingExtraError: matplotlib is not installed.
    """
    i = result._position(i)
    names = _axis_names(result, i, x, y)
    rows = [result.rows.iloc[[i]]]
    if result.best[i] >= 0:
        rows.append(result.answers.iloc[[result.best[i]]])
    points = [tuple(_number(row, name) for name in names) for row in rows]
    plane = decision_plane(result, i, rows[-1], names)
    target, is_share = format_value(result.verdicts["target"].iloc[i]), bool(result.labels)
    axes = plots.new_axes(6.5, 4.8) if axes is None else axes
    plots.draw_plane(
        axes,
        plane=plane,
        names=names,
        points=points,  # type: ignore[arg-type]
        title=decision_title(result, i),
        label=f"probability of {target}" if is_share else result.outcome,
        as_share=is_share,
    )
    return axes


@torch.no_grad()
def decision_plane(
    result: Explanations, i: int, base: pd.DataFrame, names: tuple[str, str]
) -> plots.PlaneGrid:
    """Return what model and density say on a grid; ``base`` has the values of all other features."""
    known = result.certifier
    if known is None or known.engine.model is None:
        raise InvalidInputError("This result has no model, which `plot_map` needs. Use `plot`.")
    features = dict(zip(result.schema.names, result.schema.features, strict=True))
    across, up = (
        _axis(features[name], [_number(base, name), _number(result.rows.iloc[[i]], name)]) for name in names
    )
    grid = np.meshgrid(across, up)
    frame = base.iloc[[0] * grid[0].size].reset_index(drop=True)
    for name, values in zip(names, grid, strict=True):
        frame[name] = values.ravel()
    frame = frame.astype({name: base[name].dtype for name in names}, errors="ignore")
    x = known.encoder.encode(frame).x
    outputs = known.engine.model.predict_outputs(x, frame)
    targets = known.request.targets[torch.full((len(x),), i)]
    lead = known.engine.validity.criterion.value(outputs, targets)
    shade = outputs[:, int(targets.y[0])].exp() if result.labels else outputs
    score = None
    if result.density:
        own = row_scores(
            known.engine.plausibility, known.request.encoded.x[[i]], targets.y[:1], with_margin=False
        )
        score = _lines(own.score(x, torch.zeros(len(x), dtype=torch.long)), grid)
    return plots.PlaneGrid(across, up, _lines(shade, grid), _lines(lead, grid), score)


def _axis_names(result: Explanations, i: int, x: str | None, y: str | None) -> tuple[str, str]:
    """Return the features of both axes; those that are not given are numbers that the answer moves most."""
    numbers = [feature.name for feature in result.features if feature.is_number]
    for option, name in (("x", x), ("y", y)):
        if name is not None and name not in numbers:
            raise InvalidInputError(
                f"`{option}` must be a number of the table, one of {', '.join(numbers)}; got {name!r}."
            )
    chosen = [name for name in (x, y) if name is not None]
    candidates = [name for name in [*_moved_most(result, i), *numbers] if name not in chosen]
    for given in (x, y):
        if given is None and candidates:
            chosen.append(candidates.pop(0))
            candidates = [name for name in candidates if name not in chosen]
    if len(set(chosen)) < 2:
        raise InvalidInputError(
            "`plot_map` needs two different numbers; this table has fewer, or `x` is `y`."
        )
    return (chosen[0], chosen[1]) if x is not None or y is None else (chosen[1], chosen[0])


def _moved_most(result: Explanations, i: int) -> list[str]:
    """Return the numbers that the best answer moves, those that it moves most first."""
    changes = result.changed.select(result.answer_range(i)[:1])
    moves = np.abs(relative_moves(changes, result.features))
    order = np.argsort(-np.nan_to_num(moves), kind="stable").tolist()
    features = [result.features[changes.column[k]] for k in order]
    return [feature.name for feature in features if feature.is_number]


def _axis(feature: Feature, points: list[float]) -> FloatArray:
    """Return values on the feature's grid that cover the training rows and the points."""
    known = [value for value in points if np.isfinite(value)]
    low, high = min([feature.minimum, *known]), max([feature.maximum, *known])
    values = np.linspace(low, high, SIZE)
    if feature.step:
        values = np.unique(np.clip(round_to_grid(values, feature.step, feature.decimals), low, high))
    return values


def _number(row: pd.DataFrame, name: str) -> float:
    return float(read_numbers(row[name])[0][0])


def _lines(values: torch.Tensor, grid: Sequence[FloatArray]) -> FloatArray:
    return np.asarray(values.cpu().numpy(), dtype=np.float64).reshape(grid[0].shape)
