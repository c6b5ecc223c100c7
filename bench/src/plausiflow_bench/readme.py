"""``plausiflow benchmark readme``: figures of the generated pages, quoted in the README and the comparison.

Nothing is run. Tables are read from ``docs/performance.md`` and ``docs/tables.md`` as their studies wrote
them, and some of their columns are put between the marks of other pages, with the commits that they name. A
page has the marks of the sections that it wants.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from plausiflow.errors import InvalidInputError
from plausiflow_bench import peers, speed_page
from plausiflow_bench.cases import kept_section, write_section

PAGES = (Path("README.md"), Path("docs/comparison.md"))
Cells = Mapping[str, str]

_SHORT = (
    "dataset", "method", "found", "rules_broken", "judged", "knn_judge", "changes", "cost",
    "cpu_seconds_per_row", "fit_cpu_seconds", "version",
)  # fmt: skip
_TWICE, _OURS = ("feasible", "l2", "gradients"), ("farther", "ratio")


def solvers(docs: Path) -> str:
    """The paper's Adam beside the SQP, on the published models; how long a million rows take on CUDA."""
    path = docs / "performance.md"
    page = _read(path)
    found = _table(page, "## Published models", ("dataset", "solver", "rows", *_TWICE, *_OURS), path)
    papers = {row["dataset"]: row for row in found if row["solver"] == "penalty_adam"}
    head = [f"{name}, {whose}" for name in _TWICE for whose in ("paper", "ours")]
    lines = []
    for own in (row for row in found if row["solver"] == "sqp" and row["dataset"] in papers):
        both = [row[name] for name in _TWICE for row in (papers[own["dataset"]], own)]
        lines.append([own["dataset"], own["rows"], *both, *_of(own, _OURS)])
    commit = _piece(page, r"Commit (\w+)", path)
    ratio = _piece(page, r"(?s)## Models trained here.*?(geometric mean [\d.]+, smallest [\d.]+)", path)
    run = f"Commit {commit}. The ratio on models trained here, logistic regression and perceptron: {ratio}."
    return "\n\n".join([_markdown(["dataset", "rows", *head, *_OURS], lines), run, *_million(path)])


def peers_short(docs: Path) -> str:
    """DiCE and NICE beside the default explainer, the columns that matter most."""
    found, ran = _peers(docs)
    return _markdown(_SHORT, [_of(row, _SHORT) for row in found]) + f"\n\n{ran}"


def peers_in_full(docs: Path) -> str:
    """The same with every column."""
    found, ran = _peers(docs)
    return _markdown(list(found[0]), [list(row.values()) for row in found]) + f"\n\n{ran}"


def peers_better(docs: Path) -> str:
    """Every column of the comparison in which a peer has the best value and plausiflow has not."""
    found, ran = _peers(docs)
    lines = []
    for own in (row for row in found if row["method"] == "plausiflow"):
        rivals = [row for row in found if row["dataset"] == own["dataset"] and row is not own]
        for name in (name for name in peers.BETTER if name in own and not _best(own[name])):
            winners = [row for row in rivals if _best(row[name])]
            best = ", ".join(row["method"] for row in winners)
            value = winners[0][name].strip("*") if winners else "–"
            lines.append([own["dataset"], name, best, value, own[name]])
    text = _markdown(["dataset", "column", "best", "value", "plausiflow"], lines)
    return (text if lines else "In no column has a peer a better value.") + f"\n\n{ran}"


SECTIONS: dict[str, Callable[[Path], str]] = {
    "solvers": solvers,
    "peers": peers_short,
    "peers in full": peers_in_full,
    "where peers are better": peers_better,
}


def mark(section: str) -> str:
    """What stands before a section of a page."""
    return f"<!-- written by `plausiflow benchmark readme`, {section} -->"


def write_page(page: Path, docs: Path) -> list[str]:
    """Write every section that a page has a mark for.

    Args:
        page: The page that is written.
        docs: The folder of the pages that are read.

    Returns:
        The names of the sections.

    Raises:
        InvalidInputError: The page has no mark, or a page that is read has not the table that belongs there.
    """
    text = _read(page)
    wanted = [section for section in SECTIONS if mark(section) in text]
    if not wanted:
        raise InvalidInputError(
            f"{page} must have a mark like {mark('peers')!r}; it has none. Put one where the table belongs, "
            f"and an end mark after it; sections are {', '.join(SECTIONS)}."
        )
    for section in wanted:
        write_section(page, mark(section), SECTIONS[section](docs))
    return wanted


def _peers(docs: Path) -> tuple[list[Cells], str]:
    """The table of peers, and what was run for it."""
    path = docs / "tables.md"
    text = kept_section(path, peers.MARK)
    return _table(text, peers.MARK, _SHORT, path), _piece(text, r"(?m)^(Training rows: .*)$", path)


def _million(path: Path) -> list[str]:
    """How long the largest batch takes on CUDA; nothing where that was not run."""
    text = kept_section(path, speed_page.MARKS["cuda"])
    heading = "### Rows per second against batch size"
    if heading not in text:
        return []
    found = _table(text, heading, ("dataset", "rows", "seconds"), path)
    largest = max(found, key=lambda row: int(row["rows"].replace(",", "")))["rows"]
    seconds = [float(row["seconds"]) for row in found if row["rows"] == largest]
    device, commit = _piece(text, r"device name ([^;]+);", path), _piece(text, r"commit (\w+)", path)
    return [
        f"{largest} rows of {found[0]['dataset']} in memory, on one {device}: {min(seconds):.1f} to "
        f"{max(seconds):.1f} seconds by the clock, depending on classifier and density. Commit {commit}."
    ]


def _table(text: str, heading: str, columns: Sequence[str], path: Path) -> list[Cells]:
    """The rows of the first table after a heading."""
    table: list[list[str]] = []
    for line in text.partition(f"{heading}\n")[2].splitlines():
        if line.startswith("|"):
            table.append([cell.strip() for cell in line.strip("|").split("|")])
        elif table or line.startswith("#"):
            break
    missing = [name for name in columns if not table or name not in table[0]]
    if missing or len(table) < 3:
        raise InvalidInputError(
            f"{path} must have a table with rows and the columns {', '.join(columns)} after {heading!r}; not "
            f"there: {', '.join(missing) or 'rows'}. Write the page again with its own command."
        )
    return [dict(zip(table[0], cells, strict=True)) for cells in table[2:]]


def _piece(text: str, pattern: str, path: Path) -> str:
    found = re.search(pattern, text)
    if found is None:
        raise InvalidInputError(
            f"{path} must have a text like {pattern!r}; it has none. Write the page again with its own "
            "command."
        )
    return found[1]


def _of(row: Cells, columns: Sequence[str]) -> list[str]:
    return [row[name] for name in columns]


def _best(cell: str) -> bool:
    """Whether a page shows a value in bold, as the best of its column."""
    return cell.startswith("**")


def _markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *lines))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise InvalidInputError(
            f"{path} must be a page that can be read; got {error}. Run this in the root of the repository, "
            "or give --page and --docs."
        ) from error
