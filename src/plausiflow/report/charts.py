"""Histograms and density curves, as the numbers that templates and the page's script draw."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from plausiflow.report.labels import format_count
from plausiflow.tables import FloatArray

WIDTH, HEIGHT, BASE, TOP = 264, 140, 112, 22
CURVE_POINTS, BINS = 64, 20
_BANDWIDTH = 0.9


@dataclass(frozen=True, kw_only=True)
class Histogram:
    """A histogram, in pixels; ``label`` describes it, ``low`` and ``high`` are the ends of its axis.

    A bar has its left, top, width and height, and whether its values are below the threshold, zero.
    """

    label: str
    bars: list[tuple[float, float, float, float, bool]]
    low: str
    high: str
    threshold: float | None
    width: int = WIDTH
    height: int = HEIGHT
    base: int = BASE
    top: int = TOP


def histogram(
    values: FloatArray, *, title: str, threshold: bool = False, integers: bool = False
) -> Histogram | None:
    """Return a histogram of the finite values, or None without any; ``title`` starts its description.

    With ``threshold``, a line marks zero, which is an edge of the bars; with ``integers``, each has its bar.
    """
    values = values[np.isfinite(values)]
    if not len(values):
        return None
    edges = _bin_edges(values, through_zero=threshold, integers=integers)
    counts, _ = np.histogram(values, edges)
    low, high = float(edges[0]), float(edges[-1])
    left, right = WIDTH * (edges[:-1] - low) / (high - low), WIDTH * (edges[1:] - low) / (high - low)
    heights = (BASE - TOP) * counts / counts.max()
    shapes = np.stack([left + 0.5, BASE - heights, right - left - 1, heights]).round(1)
    smallest, median, largest = np.quantile(values, [0, 0.5, 1]).tolist()
    inset = 0.5 if integers else 0.0
    return Histogram(
        label=f"{title}: {format_count(len(values), 'value')} from {smallest:.3g} to {largest:.3g}, "
        f"median {median:.3g}",
        bars=list(zip(*shapes.tolist(), (threshold & (edges[1:] <= 0)).tolist(), strict=True)),
        low=f"{low + inset:.3g}",
        high=f"{high - inset:.3g}",
        threshold=round(WIDTH * (0.0 - low) / (high - low), 1) if threshold else None,
    )


def density_points(percentiles: FloatArray) -> list[tuple[float, float]]:
    """Return points of a smooth density with these percentiles; its maximum is one, its left tail is cut."""
    middles = (percentiles[1:] + percentiles[:-1]) / 2
    spread = min(float(middles.std()), float(np.subtract(*np.quantile(middles, [0.75, 0.25]))) / 1.34)
    width = max(_BANDWIDTH * spread * len(middles) ** -0.2, 1e-3)
    low, high = min(float(percentiles[3]), 0.0) - width, max(float(percentiles[-1]), 0.0) + 2 * width
    places = np.linspace(low, high, CURVE_POINTS)
    heights = np.exp(-0.5 * ((places[:, None] - middles) / width) ** 2).sum(axis=1)
    heights /= heights.max()
    pairs = zip(places.tolist(), heights.tolist(), strict=True)
    return [(round(place, 4), round(height, 4)) for place, height in pairs]


def _bin_edges(values: FloatArray, *, through_zero: bool, integers: bool) -> FloatArray:
    low, high = float(values.min()), float(values.max())
    if integers:
        width = max(1, math.ceil((high - low + 1) / BINS))
        return np.arange(low - 0.5, high + 0.5 + width, width, dtype=np.float64)
    if through_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if high - low <= 1e-12 * max(abs(low), abs(high), 1.0):
        low, high = low - 0.5, high + 0.5
    if not through_zero:
        return np.linspace(low, high, BINS + 1)
    step = (high - low) / BINS
    edges = step * np.arange(math.floor(low / step), math.ceil(high / step) + 1, dtype=np.float64)
    edges[0], edges[-1] = min(edges[0], low), max(edges[-1], high)  # include values lost to rounding
    return edges
