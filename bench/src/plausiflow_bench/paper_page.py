"""The paper's evaluation as files: a page, LaTeX tables, one HTML file, the rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from plausiflow_bench import published
from plausiflow_bench.cases import kept_section
from plausiflow_bench.paper_tables import Results, sheets
from plausiflow_bench.runner import TIMES
from plausiflow_bench.study import Row

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
    """All tables as one Markdown page, with what was run and how long it took.

    The section of ``plausiflow benchmark published`` stays as it is.
    """
    parts = [
        "# The paper's evaluation",
        "Written by `plausiflow benchmark paper --page`; nothing here is typed by hand. Means over folds "
        "(± standard deviation); in brackets the published mean over the same folds and the difference to "
        "it; bold: the best mean of a data set as printed. What differs from the paper, and why: "
        "[deviations](deviations.md); what the methods are: [methods](methods.md).",
        told(results.rows, wall_seconds),
        *([f"![The search on moons, by the paper's solver and by ours]({figure})"] if figure else []),
        *(sheet.markdown() for sheet in sheets(results)),
        kept_section(path, published.MARK),
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join(parts) + "\n")


def write_latex(results: Results, path: Path) -> None:
    """All tables as tabulars."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(sheet.latex() for sheet in sheets(results)))


def write_html(results: Results, path: Path, *, wall_seconds: float | None = None) -> None:
    """All tables as one HTML file that needs nothing else."""
    body = "\n".join(sheet.html() for sheet in sheets(results))
    path.parent.mkdir(parents=True, exist_ok=True)
    said = told(results.rows, wall_seconds)
    path.write_text(f"{_HEAD}<h1>The paper's evaluation</h1><p>{said}</p>\n{body}\n</body></html>\n")


def told(rows: Sequence[Row], wall_seconds: float | None = None) -> str:
    """What was run, with which code, and how long it took."""
    ran = {
        name: sorted({str(row[name]) for row in rows}) for name in ("seed", "fold", "commit", "torch") if rows
    }
    said = "; ".join(f"{name} {', '.join(values)}" for name, values in ran.items())
    wall, cpu = (sum(float(row[name]) for row in rows) / 60 for name in TIMES)
    whole = "" if wall_seconds is None else f", {wall_seconds / 60:.0f} minutes from start to end"
    return f"{len(rows)} tasks, {cpu:.0f} processor minutes ({wall:.0f} by the clock){whole}. Run: {said}."
