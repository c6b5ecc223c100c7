"""Rows as tables: on a terminal, and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from plausiflow_bench.harness.rows import Row, environment, geometric_mean

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


def format_cell(name: str, value: object) -> str:
    """Return a value as text, with the decimals of its column, or a dash for None and NaN."""
    if value is None or (isinstance(value, float) and value != value):
        return "–"
    if not isinstance(value, float):
        return str(value)
    shown = f"{value:.{_DECIMALS.get(name, 3)}f}"
    return f"{value:.6f}" if shown == "1.000" and value != 1 else shown


def print_table(rows: Iterable[Row], columns: Sequence[str], title: str) -> None:
    """Print rows and their caption, with as many columns as fit the terminal."""
    rows = list(rows)
    console = Console(width=None if Console().is_terminal else 220)
    present = [column for column in columns if any(column in row for row in rows)]
    shown = select_columns(rows, present, console.width)
    table = Table(title=title, title_justify="left", caption_justify="left", box=box.SIMPLE_HEAD)
    for column in shown:
        is_text = all(isinstance(row.get(column, ""), str) for row in rows)
        table.add_column(column, justify="left" if is_text else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(format_cell(column, row.get(column)) for column in shown))
    table.caption = caption(rows)
    console.print(table)
    if hidden := len(present) - len(shown):
        console.print(
            f"{hidden} columns do not fit: widen the terminal, or read them with --json FILE", style="dim"
        )
    console.print(
        f"commit {environment()['commit']}, torch {environment()['torch']}, one thread", style="dim"
    )


def select_columns(rows: Sequence[Row], columns: Sequence[str], width: int) -> list[str]:
    """Return the most important columns that fit into ``width`` characters, in their given order."""
    left = width - 2
    selected = set()
    for column in sorted(
        columns, key=lambda c: _IMPORTANCE.index(c) if c in _IMPORTANCE else len(_IMPORTANCE)
    ):
        left -= 3 + max(len(column), *(len(format_cell(column, row.get(column))) for row in rows))
        if left >= 0:
            selected.add(column)
    return [column for column in columns if column in selected]


def caption(rows: Sequence[Row]) -> str:
    """Return a summary of the ratios of processor seconds, or an empty text if the rows have none."""
    ratios = [float(row["ratio"]) for row in rows if "ratio" in row and row.get("solver") == "sqp"]
    if not ratios:
        return ""
    return (
        f"ratio = processor seconds of penalty_adam / (sqp and its bank), same run: "
        f"geometric mean {geometric_mean(ratios):.1f}, smallest {min(ratios):.1f}"
    )


def markdown(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """Return rows as a Markdown table, without columns that no row has."""
    shown = [column for column in columns if any(column in row for row in rows)]
    return markdown_table(shown, [[format_cell(column, row.get(column)) for column in shown] for row in rows])


def markdown_table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return lines of text cells as a Markdown table."""
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, ["---"] * len(header), *lines))
