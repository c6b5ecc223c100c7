"""Benchmark rows as a table people can read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from plausiflow_bench.study import Row, environment, geometric_mean

_DECIMALS = {
    "difference": 6,
    "l1": 3,
    "l2": 4,
    "l2_common": 4,
    "l2_common_penalty": 4,
    "gradients": 1,
    "ratio": 1,
    "cpu_seconds": 2,
}


_IMPORTANCE = (
    "dataset", "classifier", "solver", "method", "feasible", "l2", "ratio", "cpu_seconds", "log_density",
    "median_log_density", "evaluation_ms", "difference", "farther", "rows", "gradients", "fold",
)  # fmt: skip


def text(name: str, value: object) -> str:
    """One cell: numbers with the decimals their column deserves, a dash where there is none."""
    if value is None or (isinstance(value, float) and value != value):
        return "–"
    if not isinstance(value, float):
        return str(value)
    shown = f"{value:.{_DECIMALS.get(name, 3)}f}"
    return f"{value:.6f}" if shown == "1.000" and value != 1 else shown


def print_table(rows: Iterable[Row], columns: Sequence[str], title: str) -> list[Row]:
    """Print the rows and what they add up to, as many columns as fit the terminal; returns the rows."""
    kept = list(rows)
    console = Console(width=None if Console().is_terminal else 220)
    present = [column for column in columns if any(column in row for row in kept)]
    shown = fitting(kept, present, console.width)
    table = Table(title=title, title_justify="left", caption_justify="left", box=box.SIMPLE_HEAD)
    for column in shown:
        words = all(isinstance(row.get(column, ""), str) for row in kept)
        table.add_column(column, justify="left" if words else "right", no_wrap=True)
    for row in kept:
        table.add_row(*(text(column, row.get(column)) for column in shown))
    table.caption = caption(kept)
    console.print(table)
    if hidden := len(present) - len(shown):
        console.print(
            f"{hidden} columns do not fit: widen the terminal, or read them with --json FILE", style="dim"
        )
    console.print(
        f"commit {environment()['commit']}, torch {environment()['torch']}, one thread", style="dim"
    )
    return kept


def fitting(rows: Sequence[Row], columns: Sequence[str], width: int) -> list[str]:
    """The most important columns that fit, in their own order."""
    room = width - 2
    kept = set()
    for column in sorted(
        columns, key=lambda c: _IMPORTANCE.index(c) if c in _IMPORTANCE else len(_IMPORTANCE)
    ):
        room -= 3 + max(len(column), *(len(text(column, row.get(column))) for row in rows))
        if room >= 0:
            kept.add(column)
    return [column for column in columns if column in kept]


def caption(rows: Sequence[Row]) -> str:
    """What the ratios add up to; nothing where there are none."""
    ratios = [float(row["ratio"]) for row in rows if "ratio" in row and row.get("solver") == "sqp"]
    if not ratios:
        return ""
    return (
        f"ratio = processor seconds of penalty_adam / (sqp and its bank), same run: "
        f"geometric mean {geometric_mean(ratios):.1f}, smallest {min(ratios):.1f}"
    )


def markdown(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """The same table for a page."""
    shown = [column for column in columns if any(column in row for row in rows)]
    lines = [
        shown,
        ["---"] * len(shown),
        *([text(column, row.get(column)) for column in shown] for row in rows),
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
