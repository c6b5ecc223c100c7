"""Sections of Markdown pages: a study writes its section between two marks and leaves the rest alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from plausiflow.errors import InvalidInputError
from plausiflow_bench.harness.printing import markdown
from plausiflow_bench.harness.rows import Row, provenance

END_MARK = "<!-- end -->"


def write_section(path: Path, mark: str, text: str) -> None:
    """Replace the text between ``mark`` and the next end mark of a page."""
    before, found, rest = path.read_text().partition(mark)
    _, closed, after = rest.partition(END_MARK)
    if not (found and closed):
        raise InvalidInputError(
            f"{path} must have the mark {mark!r}, followed by {END_MARK!r}; at least one is missing. "
            "Put both where the table belongs."
        )
    path.write_text(f"{before}{mark}\n{text}\n{END_MARK}{after}")


def write_table(rows: list[Row], columns: Sequence[str], mark: str, path: Path) -> None:
    """Write rows as a table into a section of a page, with the seeds and commits behind them."""
    shown: list[Row] = [
        {name: f"{value:.3f}" if isinstance(value, float) else value for name, value in row.items()}
        for row in rows
    ]
    write_section(path, mark, f"{markdown(shown, columns)}\n\n{provenance(rows, ('seed', 'commit'))}.")


def read_section(path: Path, mark: str) -> str:
    """Return a section with its marks; the section is empty if the page or the mark does not exist."""
    _, found, rest = (path.read_text() if path.exists() else "").partition(mark)
    text = rest.partition(END_MARK)[0].strip() if found else ""
    return f"{mark}\n{text}\n{END_MARK}"


def describe_runs(rows: list[Row]) -> str:
    """Return the sizes, seeds and commits behind a table."""
    sizes = {f"{row['dataset']} {row['training_rows']}": None for row in rows}
    return f"Training rows: {', '.join(sizes)}; {provenance(rows, ('seed', 'commit'))}."
