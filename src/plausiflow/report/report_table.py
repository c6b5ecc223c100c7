"""Tables of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Share:
    """A table cell with a share as text, and a bar of that length; ``label`` describes the bar."""

    text: str
    fraction: float
    label: str


@dataclass(frozen=True)
class ReportTable:
    """A table; the first cell of each row is its heading."""

    caption: str
    columns: dict[str, str]  # name of each column, and its style: "number", "words" for long texts, or ""
    rows: Sequence[Sequence[str | Share]]
