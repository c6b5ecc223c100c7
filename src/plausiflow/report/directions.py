"""The picture of features and directions: how often each rises, falls or becomes another value.

One line per feature, the most frequent first: rises to the right of the axis, falls to the left, and other
values in a third colour after the rises.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from plausiflow.report.labels import format_count, format_share

MOST_FEATURES = 15
NAME_CHARACTERS = 26
WIDTH, NAME_WIDTH, NUMBER_WIDTH, ROW, TOP = 640, 190, 110, 24, 26


@dataclass(frozen=True, kw_only=True)
class DirectionLine:
    """One feature, in pixels: its bars start at ``left``, ``axis`` and ``other_left``."""

    name: str
    short: str
    text: str
    y: int
    left: float
    fall: float
    rise: float
    other_left: float
    other: float


@dataclass(frozen=True, kw_only=True)
class DirectionChart:
    """The picture; ``label`` says in words what it shows."""

    label: str
    caption: str
    lines: tuple[DirectionLine, ...]
    axis: float
    end: float
    width: int
    height: int
    top: int = TOP


def direction_chart(features: pd.DataFrame, found: int) -> DirectionChart | None:
    """Return the picture for the summary's table of features; None if nothing changes.

    Args:
        features: One line per target and feature, with ``changed``, ``rises`` and ``falls``.
        found: Number of rows with the status found.
    """
    counts = features.groupby("feature", sort=False)[["changed", "rises", "falls"]].sum()
    counts = counts[counts["changed"] > 0].sort_values("changed", ascending=False, kind="stable")
    if not found or not len(counts):
        return None
    shown = counts.head(MOST_FEATURES)
    others = shown["changed"] - shown["rises"] - shown["falls"]
    left, right = float(shown["falls"].max()), float((shown["rises"] + others).max())
    scale = (WIDTH - NAME_WIDTH - NUMBER_WIDTH) / (left + right)
    axis = NAME_WIDTH + scale * left
    shown = shown.assign(others=others)
    lines = tuple(
        _line(str(name), place, line, scale, axis, found)
        for place, (name, line) in enumerate(shown.iterrows())
    )
    first = "; ".join(f"{line.name}: {line.text}" for line in lines[:5])
    hidden = len(counts) - len(shown)
    caption = f"Which features change, and in which direction, in {format_count(found, 'row')} with an answer"
    return DirectionChart(
        label=f"{caption}. {first}",
        caption=caption
        + (f"; {format_count(hidden, 'feature')} that change less often not shown" if hidden else ""),
        lines=lines,
        axis=round(axis, 1),
        end=WIDTH - NUMBER_WIDTH,
        width=WIDTH,
        height=TOP + ROW * len(lines) + 6,
    )


def _line(name: str, place: int, line: pd.Series, scale: float, axis: float, found: int) -> DirectionLine:
    rises, falls, others = (int(line[part]) for part in ("rises", "falls", "others"))
    parts = [(rises, "up"), (falls, "down"), (others, "to another value")]
    ways = ", ".join(f"{count:,} {way}" for count, way in parts if count)
    short = name if len(name) <= NAME_CHARACTERS else name[: NAME_CHARACTERS - 1] + "…"
    return DirectionLine(
        name=name,
        short=short,
        text=f"{format_share(int(line['changed']), found)} of rows ({ways})",
        y=TOP + ROW * place,
        left=round(axis - scale * falls, 1),
        fall=round(scale * falls, 1),
        rise=round(scale * rises, 1),
        other_left=round(axis + scale * rises, 1),
        other=round(scale * others, 1),
    )
