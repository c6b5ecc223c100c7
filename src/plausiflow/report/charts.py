"""Small pictures as inline SVG. Each says in words what it shows; colours come from the page's style."""

from __future__ import annotations

import math

import numpy as np

from plausiflow.report.markup import Attributes, Html, element, joined
from plausiflow.tables import Numbers

WIDTH, HEIGHT, BASE, TOP = 264, 140, 112, 22
POINTS, BINS = 64, 20
_SMOOTHING = 0.9


def share_bar(share: float, text: str) -> Html:
    """A bar as long as a share of its cell, and the share in words."""
    full = min(1.0, max(0.0, share if math.isfinite(share) else 0.0))
    bar = element("rect", {"width": f"{100 * full:.1f}%", "height": 10, "rx": 2})
    return element("svg", {"class": "bar", "height": 10, "role": "img", "aria-label": text}, bar)


def histogram(values: Numbers, *, title: str, line: str = "", whole: bool = False) -> Html:
    """How often values occur; a ``line`` marks zero, and ``whole`` numbers have a bar each."""
    values = values[np.isfinite(values)]
    if not len(values):
        return Html("")
    edges = _edges(values, through_zero=bool(line), whole=whole)
    counts, _ = np.histogram(values, edges)
    low, high = float(edges[0]), float(edges[-1])

    def across(value: float) -> float:
        return WIDTH * (value - low) / (high - low)

    bars = []
    for count, left, right in zip(counts.tolist(), edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        height = (BASE - TOP) * count / counts.max()
        below = "below" if line and right <= 0 else None
        place = {"x": f"{across(left) + 0.5:.1f}", "width": f"{across(right) - across(left) - 1:.1f}"}
        tall = {"y": f"{BASE - height:.1f}", "height": f"{height:.1f}"}
        bars.append(element("rect", place | tall | {"class": below}))
    ends = (low + 0.5, high - 0.5) if whole else (low, high)
    drawn = [*bars, _axis(), *_ends(*ends), *([_threshold(across(0.0), line)] if line else [])]
    return _picture(f"{title}: {in_words(values)}", drawn)


def in_words(values: Numbers) -> str:
    """Such as "300 values from 0.1 to 2.4, median 0.7"."""
    low, middle, high = np.quantile(values, [0, 0.5, 1]).tolist()
    many = f"{len(values):,} value{'' if len(values) == 1 else 's'}"
    return f"{many} from {low:.3g} to {high:.3g}, median {middle:.3g}"


def density_points(percentiles: Numbers) -> list[tuple[float, float]]:
    """A smooth curve through what percentiles say, its top at one; its thin left tail is cut off."""
    middles = (percentiles[1:] + percentiles[:-1]) / 2
    spread = min(float(middles.std()), float(np.subtract(*np.quantile(middles, [0.75, 0.25]))) / 1.34)
    width = max(_SMOOTHING * spread * len(middles) ** -0.2, 1e-3)
    low, high = min(float(percentiles[3]), 0.0) - width, max(float(percentiles[-1]), 0.0) + 2 * width
    places = np.linspace(low, high, POINTS)
    heights = np.exp(-0.5 * ((places[:, None] - middles) / width) ** 2).sum(axis=1)
    heights /= heights.max()
    return [
        (round(place, 4), round(height, 4))
        for place, height in zip(places.tolist(), heights.tolist(), strict=True)
    ]


def _edges(values: Numbers, *, through_zero: bool, whole: bool) -> Numbers:
    """Of the bars; one of them is zero where a line is drawn there."""
    low, high = float(values.min()), float(values.max())
    if whole:
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
    edges[0], edges[-1] = min(edges[0], low), max(edges[-1], high)  # whatever was rounded
    return edges


def _picture(label: str, drawn: list[Html]) -> Html:
    attributes: Attributes = {
        "class": "chart",
        "role": "img",
        "aria-label": label,
        "width": WIDTH,
        "height": HEIGHT,
        "viewBox": f"0 0 {WIDTH} {HEIGHT}",
    }
    return element("svg", attributes, element("title", None, label), *drawn)


def _axis() -> Html:
    return element("line", {"x1": 0, "x2": WIDTH, "y1": BASE, "y2": BASE, "class": "axis"})


def _ends(low: float, high: float) -> list[Html]:
    """What the ends of the axis are."""
    y = BASE + 18
    return [
        element("text", {"x": 0, "y": y}, f"{low:.3g}"),
        element("text", {"x": WIDTH, "y": y, "text-anchor": "end"}, f"{high:.3g}"),
    ]


def _threshold(place: float, text: str) -> Html:
    anchor = "start" if place < WIDTH / 3 else "end" if place > 2 * WIDTH / 3 else "middle"
    x = f"{place:.1f}"
    mark = element("line", {"x1": x, "x2": x, "y1": TOP - 6, "y2": BASE, "class": "threshold"})
    return joined([mark, element("text", {"x": x, "y": TOP - 10, "text-anchor": anchor}, text)])
