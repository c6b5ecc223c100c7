"""What rows with a wanted outcome are like: for each feature a histogram of few bins.

The what-if page draws it behind a change, so that people see how usual the new value is. It must not show
single training rows: a bin of fewer than ``MIN_COUNT`` rows has no share, shares are in whole per cent, a
feature of fewer than ``MIN_ROWS`` rows has no histogram, and clients cannot choose the bins. The intervals of
a predicted number are widened to the few bins of outcomes that the density was fitted with, so that intervals
which differ a little cannot be compared to find the rows between them.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plausiflow.explainer import Explainer
from plausiflow.explanations import json_value
from plausiflow.search import Target, parse_target
from plausiflow.tables import Block, Feature, round_to_grid

MIN_ROWS, MIN_COUNT = 50, 10
"""Fewest rows of a histogram, and of a bin."""
BINS = 12
"""Most bins of a number."""


def wanted_classes(explainer: Explainer, target: Target) -> tuple[int, ...]:
    """Return the class of a label, or the bins of outcomes that an interval meets."""
    assert explainer.model_ is not None
    labels, criterion = explainer.model_.labels, explainer.criterion_
    nothing = torch.zeros((1, len(labels)) if labels else (1,), dtype=torch.float64)
    targets = parse_target(target, nothing, criterion, labels)
    return tuple(sorted({int(own.y) for own in targets}))


def describe_population(explainer: Explainer, classes: tuple[int, ...]) -> dict[str, Any]:
    """Return histograms of training rows that the model decides for some classes, as JSON values.

    ``features`` has, by name, the ``shares`` of rows, from 0 to 1, in each bin between the ``edges`` of a
    number, or at each of the ``levels`` of a category; None for a bin of too few rows. ``outcome`` is the
    interval of a predicted number that the rows were chosen by, None for a label.
    """
    encoder, engine = explainer.encoder_, explainer.engine_
    assert encoder is not None
    assert engine is not None
    bank, layout = engine.reference_bank or engine.wider_bank or engine.bank, encoder.layout
    x = torch.cat([bank.rows[y].cpu() for y in classes])
    free = layout.free(layout.codes(x))
    found = {}
    for block in layout.blocks:
        feature = encoder.schema.feature(block.name)
        if block.number is not None:
            own = _number(feature, block, x[free[:, block.number], block.number])
        else:
            own = _levels(feature, x[:, block.level_slice])
        if own is not None:
            found[block.name] = own
    edges = explainer.criterion_.edges
    interval = [json_value(edges[classes[0]]), json_value(edges[classes[-1] + 1])] if edges else None
    return {"outcome": interval, "features": found}


def _number(feature: Feature, block: Block, encoded: Tensor) -> dict[str, Any] | None:
    """Return the histogram of a number; bins are equally wide on its scale, few values have one bin each."""
    scale = block.scale
    assert scale is not None
    first, last = feature.minimum, feature.maximum
    if len(encoded) < MIN_ROWS or not last > first:
        return None
    if feature.step and round((last - first) / feature.step) < BINS:
        n = round((last - first) / feature.step) + 1
        edges = np.linspace(first - feature.step / 2, last + feature.step / 2, n + 1)
    else:
        edges = scale.decode(torch.linspace(0, 1, BINS + 1, dtype=torch.float64)).numpy()
    values = scale.decode(encoded.double()).numpy()
    if feature.step:
        values = round_to_grid(values, feature.step, feature.decimals)
    places = np.searchsorted(edges[1:-1], values, side="right")
    counts = np.bincount(places, minlength=len(edges) - 1)
    return {"edges": [float(f"{edge:.6g}") for edge in edges], "shares": _shares(counts)}


def _levels(feature: Feature, encoded: Tensor) -> dict[str, Any] | None:
    """Return the share of each level of a category."""
    if len(encoded) < MIN_ROWS:
        return None
    counts = np.bincount(encoded.argmax(dim=1).numpy(), minlength=encoded.shape[1])
    levels = [json_value(level) for level in feature.levels]
    levels += [None] * (len(counts) - len(levels))  # missing values are a level
    return {"levels": levels, "shares": _shares(counts)}


def _shares(counts: np.ndarray[Any, np.dtype[np.int64]]) -> list[float | None]:
    """Return shares in whole per cent; None for fewer than ``MIN_COUNT`` rows."""
    total = int(counts.sum())
    return [round(count / total, 2) if count >= MIN_COUNT else None for count in counts.tolist()]


class Populations:
    """The histograms of one explainer; those of each set of classes are computed once."""

    def __init__(self, explainer: Explainer) -> None:
        self._explainer = explainer
        self._known: dict[Hashable, dict[str, Any]] = {}

    def of(self, target: Target) -> dict[str, Any]:
        """Return the histograms of rows with an outcome; see :func:`describe_population`."""
        classes = wanted_classes(self._explainer, target)
        if classes not in self._known:
            self._known[classes] = describe_population(self._explainer, classes)
        return self._known[classes]
