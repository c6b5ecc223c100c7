"""``plausiflow benchmark readme``: copies figures of the generated pages into the README.

Nothing is run. Tables are read from ``docs/performance.md`` and ``docs/tables.md`` as their studies wrote
them, and some of their columns are written between the marks of other pages, with the commits that the tables
name. A page has the marks of the sections that it needs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from plausiflow.errors import InvalidInputError
from plausiflow_bench.harness.pages import read_section, write_section
from plausiflow_bench.harness.printing import markdown_table
from plausiflow_bench.speed import page as speed_page
from plausiflow_bench.tables import peers

PAGES = (Path("README.md"), Path("docs/comparison.md"))
Cells = Mapping[str, str]

_SHORT = (
    "dataset", "method", "found", "rules_broken", "judged", "knn_judge", "changes", "cost",
    "cpu_seconds_per_row", "fit_cpu_seconds", "version",
)  # fmt: skip
_BOTH_SOLVERS, _SQP_ONLY = ("feasible", "l2", "gradients"), ("farther", "ratio")


def solvers(docs: Path) -> str:
    """Return both solvers on the published models, and the time of a million rows on CUDA."""
    path = docs / "performance.md"
    page = _read(path)
    found = _table(
        page, "## Published models", ("dataset", "solver", "rows", *_BOTH_SOLVERS, *_SQP_ONLY), path
    )
    papers = {row["dataset"]: row for row in found if row["solver"] == "penalty_adam"}
    head = [f"{name}, {whose}" for name in _BOTH_SOLVERS for whose in ("paper", "ours")]
    lines = []
    for ours in (row for row in found if row["solver"] == "sqp" and row["dataset"] in papers):
        both = [row[name] for name in _BOTH_SOLVERS for row in (papers[ours["dataset"]], ours)]
        lines.append([ours["dataset"], ours["rows"], *both, *(ours[name] for name in _SQP_ONLY)])
    commit = _match(page, r"Commit (\w+)", path)
    ratio = _match(page, r"(?s)## Models trained here.*?(geometric mean [\d.]+, smallest [\d.]+)", path)
    run = f"Commit {commit}. The ratio on models trained here, logistic regression and perceptron: {ratio}."
    return "\n\n".join(
        [markdown_table(["dataset", "rows", *head, *_SQP_ONLY], lines), run, *_largest_batch(path)]
    )


def peers_short(docs: Path) -> str:
    """Return DiCE and NICE beside the default explainer, with the most important columns."""
    found, ran = _peers(docs)
    return markdown_table(_SHORT, [[row[name] for name in _SHORT] for row in found]) + f"\n\n{ran}"


def peers_in_full(docs: Path) -> str:
    """Return the same comparison with all columns."""
    found, ran = _peers(docs)
    return markdown_table(list(found[0]), [list(row.values()) for row in found]) + f"\n\n{ran}"


def peers_better(docs: Path) -> str:
    """Return every column of the comparison in which another library has the best value."""
    found, ran = _peers(docs)
    lines = []
    for ours in (row for row in found if row["method"] == "plausiflow"):
        rivals = [row for row in found if row["dataset"] == ours["dataset"] and row is not ours]
        for name in (name for name in peers.BETTER if name in ours and not _is_best(ours[name])):
            winners = [row for row in rivals if _is_best(row[name])]
            best = ", ".join(row["method"] for row in winners)
            value = winners[0][name].strip("*") if winners else "–"
            lines.append([ours["dataset"], name, best, value, ours[name]])
    text = markdown_table(["dataset", "column", "best", "value", "plausiflow"], lines)
    return (text if lines else "No other library has a better value in any column.") + f"\n\n{ran}"


SECTIONS: dict[str, Callable[[Path], str]] = {
    "solvers": solvers,
    "peers": peers_short,
    "peers in full": peers_in_full,
    "where peers are better": peers_better,
}


def mark(section: str) -> str:
    """Return the mark before a section of a page."""
    return f"<!-- written by `plausiflow benchmark readme`, {section} -->"


def write_page(page: Path, docs: Path) -> list[str]:
    """Write every section that a page has a mark for.

    Args:
        page: The page that is written.
        docs: The folder of the pages that are read.

    Returns:
        The names of the sections.

    Raises:
        InvalidInputError: If the page has no mark, or if a page that is read lacks the table.
    """
    text = _read(page)
    sections = [section for section in SECTIONS if mark(section) in text]
    if not sections:
        raise InvalidInputError(
            f"{page} must have a mark such as {mark('peers')!r}; it has none. Put one where the table "
            f"belongs, followed by an end mark. The sections are {', '.join(SECTIONS)}."
        )
    for section in sections:
        write_section(page, mark(section), SECTIONS[section](docs))
    return sections


def _peers(docs: Path) -> tuple[list[Cells], str]:
    """Return the table of peers, and the description of its run."""
    path = docs / "tables.md"
    text = read_section(path, peers.MARK)
    return _table(text, peers.MARK, _SHORT, path), _match(text, r"(?m)^(Training rows: .*)$", path)


def _largest_batch(path: Path) -> list[str]:
    """Return how long the largest batch takes on CUDA, or an empty list if that was not run."""
    text = read_section(path, speed_page.MARKS["cuda"])
    heading = "### Rows per second against batch size"
    if heading not in text:
        return []
    found = _table(text, heading, ("dataset", "rows", "seconds"), path)
    largest = max(found, key=lambda row: int(row["rows"].replace(",", "")))["rows"]
    seconds = [float(row["seconds"]) for row in found if row["rows"] == largest]
    device, commit = _match(text, r"device name ([^;]+);", path), _match(text, r"commit (\w+)", path)
    return [
        f"{largest} rows of {found[0]['dataset']} in memory, on one {device}: {min(seconds):.1f} to "
        f"{max(seconds):.1f} seconds of wall time, depending on classifier and density. Commit {commit}."
    ]


def _table(text: str, heading: str, columns: Sequence[str], path: Path) -> list[Cells]:
    """Return the rows of the first table after a heading."""
    table: list[list[str]] = []
    for line in text.partition(f"{heading}\n")[2].splitlines():
        if line.startswith("|"):
            table.append([cell.strip() for cell in line.strip("|").split("|")])
        elif table or line.startswith("#"):
            break
    missing = [name for name in columns if not table or name not in table[0]]
    if missing or len(table) < 3:
        raise InvalidInputError(
            f"{path} must have a table with rows and the columns {', '.join(columns)} after {heading!r}; "
            f"missing: {', '.join(missing) or 'rows'}. Write the page again with its own command."
        )
    return [dict(zip(table[0], cells, strict=True)) for cells in table[2:]]


def _match(text: str, pattern: str, path: Path) -> str:
    found = re.search(pattern, text)
    if found is None:
        raise InvalidInputError(
            f"{path} must have a text that matches {pattern!r}; it has none. Write the page again with its "
            "own command."
        )
    return found[1]


def _is_best(cell: str) -> bool:
    """Whether a page shows a value in bold, as the best of its column."""
    return cell.startswith("**")


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise InvalidInputError(
            f"{path} cannot be read: {error}. Run this command in the root of the repository, or set --page "
            "and --docs."
        ) from error
