"""A picture of one answer: what changes, and how far for its kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from plausiflow import plots
from plausiflow.errors import InvalidInputError
from plausiflow.explanations.parts import Parts
from plausiflow.explanations.wording import Wording, spaced
from plausiflow.tables import Feature, read_codes, read_numbers


def draw(parts: Parts, i: int, rank: int) -> Any:  # noqa: ANN401
    """A figure of the answer of this rank of the row at position ``i``."""
    answers = parts.answers_of(i)
    if not 1 <= rank <= len(answers):
        raise InvalidInputError(
            f"`rank` must be 1 to {len(answers)} for the row at position {i}; got {rank!r}."
            if len(answers)
            else f"The row at position {i} has no answer to draw. {parts.row_sentences(range(i, i + 1))[0]}"
        )
    a = answers[rank - 1]
    cells = parts.cells_of(range(a, a + 1))
    features = [parts.features[j] for j in cells.column]
    pairs = list(zip(features, cells.before, cells.after, strict=True))
    figure = plots.new_figure(7, 1.2 + 0.45 * max(1, len(pairs)))
    plots.draw_moves(
        figure.subplots(),
        names=[spaced(feature.name) for feature in features],
        moves=[move(*pair) for pair in pairs],
        texts=[Wording(feature).transition(before, after) for feature, before, after in pairs],
        title=parts.wanted(parts.verdicts["target"].iloc[i]),
    )
    return figure


def move(feature: Feature, before: object, after: object) -> float:
    """How far a value moves, in units of the feature's range; NaN for what has no distance."""
    cells = pd.Series([before, after], dtype=object)
    if feature.is_number:
        numbers, _ = read_numbers(cells)
        return float(numbers[1] - numbers[0]) / ((feature.maximum - feature.minimum) or 1.0)
    codes = read_codes(cells, feature.levels)
    if feature.kind != "ordered" or codes.min() < 0:
        return np.nan
    return float(codes[1] - codes[0]) / max(1, len(feature.levels) - 1)
