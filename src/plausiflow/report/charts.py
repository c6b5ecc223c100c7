"""Histograms and density curves, as the numbers that templates and the page's script draw."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from plausiflow.tables import FloatArray

WIDTH, HEIGHT, BASE, TOP = 264, 140, 112, 22
CURVE_POINTS, BINS = 64, 20
_BANDWIDTH = 0.9


@dataclass(frozen=True)
class Bar:
    """A bar of a histogram, in pixels; ``below`` marks values below the threshold."""

    x: float
    y: float
    width: float
    height: float
    below: bool


@dataclass(frozen=True, kw_only=True)
class Histogram:
    """A histogram, in pixels.

    Attributes:
        label: Description in words.
        bars: Bars from left to right.
        low: Text at the left end of the axis.
        high: Text at the right end of the axis.
        threshold: Position of the line at zero, or None.
        threshold_text: Text above the line.
    """

    label: str
    bars: list[Bar]
    low: str
    high: str
    threshold: float | None
    threshold_text: str
    width: int = WIDTH
    height: int = HEIGHT
    base: int = BASE
    top: int = TOP

    @property
    def anchor(self) -> str:
        """Alignment of the threshold's text, so that it stays inside the picture."""
        place = self.threshold or 0.0
        return "start" if place < WIDTH / 3 else "end" if place > 2 * WIDTH / 3 else "middle"


def histogram(
    values: FloatArray, *, title: str, threshold_text: str = "", integers: bool = False
) -> Histogram | None:
    """Return a histogram of the finite values, or None without any.

    Args:
        values: Any numbers.
        title: Start of the description.
        threshold_text: If given, a line marks zero with this text, and zero is an edge of the bars.
        integers: Whether each integer has its own bar.
    """
    values = values[np.isfinite(values)]
    if not len(values):
        return None
    edges = _bin_edges(values, through_zero=bool(threshold_text), integers=integers)
    counts, _ = np.histogram(values, edges)
    low, high = float(edges[0]), float(edges[-1])
    places = (WIDTH * (edges - low) / (high - low)).tolist()
    bars = []
    for k, count in enumerate(counts.tolist()):
        height = (BASE - TOP) * count / counts.max()
        bars.append(
            Bar(
                x=round(places[k] + 0.5, 1),
                y=round(BASE - height, 1),
                width=round(places[k + 1] - places[k] - 1, 1),
                height=round(height, 1),
                below=bool(threshold_text) and bool(edges[k + 1] <= 0),
            )
        )
    inset = 0.5 if integers else 0.0
    return Histogram(
        label=f"{title}: {_describe(values)}",
        bars=bars,
        low=f"{low + inset:.3g}",
        high=f"{high - inset:.3g}",
        threshold=round(WIDTH * (0.0 - low) / (high - low), 1) if threshold_text else None,
        threshold_text=threshold_text,
    )


def _describe(values: FloatArray) -> str:
    """Return a text such as "300 values from 0.1 to 2.4, median 0.7"."""
    low, middle, high = np.quantile(values, [0, 0.5, 1]).tolist()
    count = f"{len(values):,} value{'' if len(values) == 1 else 's'}"
    return f"{count} from {low:.3g} to {high:.3g}, median {middle:.3g}"


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
