"""The paper's evaluation as files: a Markdown page, LaTeX tables, an HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from plausiflow_bench.harness.pages import read_section
from plausiflow_bench.harness.rows import Row, provenance
from plausiflow_bench.harness.runner import TIME_COLUMNS
from plausiflow_bench.paper.tables import Results, make_sheets
from plausiflow_bench.published import study as published

_HEAD = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>The paper's evaluation</title>
<style>body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:100rem;padding:0 1rem;color:#1a1a1a}
table{border-collapse:collapse;font-size:.8rem;display:block;overflow-x:auto;margin:2rem 0 .5rem}
caption{text-align:left;font-weight:600;font-size:1rem;padding:.3rem 0}
th,td{padding:.15rem .5rem;text-align:right;white-space:nowrap;border-bottom:1px solid #ddd}
th:first-child,td:first-child,th:nth-child(2),td:nth-child(2){text-align:left}
li{color:#444;font-size:.85rem}
@media (prefers-color-scheme:dark){body{background:#16181d;color:#e6e6e6}
th,td{border-color:#333}li{color:#aaa}}
</style></head><body>
"""


def write_page(results: Results, path: Path, *, wall_seconds: float | None = None, figure: str = "") -> None:
    """Write all tables as one Markdown page.

    The section of ``plausiflow benchmark published`` on the page is not changed.

    Args:
        results: The rows of a run.
        path: The page.
        wall_seconds: Duration of the whole run, or None if unknown.
        figure: Path of figure 1, relative to the page, or empty.
    """
    parts = [
        "# The paper's evaluation",
        "Written by `plausiflow benchmark paper --page`. Cells are means over folds (± standard deviation), "
        "followed in brackets by the published mean over the same folds and the difference to it. Bold: the "
        "best mean of a data set, as printed. [Deviations](deviations.md) lists the differences to the paper "
        "and their reasons; [methods](methods.md) describes the methods.",
        describe_run(results.rows, wall_seconds),
        *([f"![The search on moons, with the paper's solver and with ours]({figure})"] if figure else []),
        *(sheet.markdown() for sheet in make_sheets(results)),
        read_section(path, published.MARK),
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join(parts) + "\n")


def write_latex(results: Results, path: Path) -> None:
    """Write all tables as LaTeX tabulars."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(sheet.latex() for sheet in make_sheets(results)))


def write_html(results: Results, path: Path, *, wall_seconds: float | None = None) -> None:
    """Write all tables as one self-contained HTML file."""
    body = "\n".join(sheet.html() for sheet in make_sheets(results))
    path.parent.mkdir(parents=True, exist_ok=True)
    head = f"{_HEAD}<h1>The paper's evaluation</h1><p>{describe_run(results.rows, wall_seconds)}</p>"
    path.write_text(f"{head}\n{body}\n</body></html>\n")


def describe_run(rows: Sequence[Row], wall_seconds: float | None = None) -> str:
    """Return the number of tasks, the time they took, and the code that ran."""
    ran = provenance(rows, ("seed", "fold", "commit", "torch"))
    wall, cpu = (sum(float(row[name]) for row in rows) / 60 for name in TIME_COLUMNS)
    whole = "" if wall_seconds is None else f", {wall_seconds / 60:.0f} minutes from start to end"
    return f"{len(rows)} tasks, {cpu:.0f} processor minutes ({wall:.0f} of wall time){whole}. Run: {ran}."
