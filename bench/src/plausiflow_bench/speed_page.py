"""The measurements of ``plausiflow benchmark speed`` as a section of a page, one for each kind of device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from plausiflow.errors import InvalidInputError
from plausiflow_bench.cases import CLOSE, write_section
from plausiflow_bench.study import Row, geometric_mean
from plausiflow_bench.tables import markdown

KINDS = {"cpu": "a processor", "cuda": "CUDA"}
MARKS = {kind: f"<!-- written by `plausiflow benchmark speed --page`, {kind} -->" for kind in KINDS}
_FORMATS = {
    **dict.fromkeys(("rows", "rows_per_second"), ",.0f"),
    "ratio": ".2f",
    **dict.fromkeys(("p50_ms", "p95_ms", "allocated_mib", "reserved_mib"), ".1f"),
    **dict.fromkeys(("seconds", "cpu_seconds", "ms_per_row", "l2_cpu"), ".4f"),
    **dict.fromkeys(("bank_seconds", "peak_gib"), ".3f"),
}
_MODELS = ("dataset", "classifier", "density")


@dataclass(frozen=True)
class _Part:
    """A part of a section: its title, the columns of its studies' tables, and what is said below these."""

    title: str
    studies: dict[str, tuple[str, ...]]
    description: str


_TIMES = ("seconds", "cpu_seconds")
_PARTS = (
    _Part(
        "Rows per second against batch size",
        {
            "batch": (
                *_MODELS, "threads", "rows", "repeats", *_TIMES, "rows_per_second", "feasible", "l2",
                "gradients", "peak_gib",
            )
        },
        "`one` is a single MAF with the median log-density of each class as threshold, `ensemble` what "
        "`PPCEF` learns by default, calibrated for the classifier. `seconds` are by the clock and "
        "`cpu_seconds` of all threads, medians of `repeats` with other rows each, drawn from the test rows "
        "with replacement; `rows_per_second` = `rows` / `seconds`.",
    ),
    _Part(
        "One row at a time",
        {"single": (*_MODELS, "rows", "p50_ms", "p95_ms", "feasible")},
        "Processor milliseconds of a call with one row, after a few calls that do not count. The last line "
        "is `Explainer.explain` of a frame with one row of a mixed table, with its rules, the written row's "
        "verdict and the judges.",
    ),
    _Part(
        "Cost against the number of columns and of rows",
        {
            "columns": ("columns", "rows", "repeats", "ms_per_row", "ratio", "gradients", "feasible", "l2"),
            "growth": ("columns", "rows", "repeats", "ms_per_row", "ratio", "gradients", "feasible", "l2"),
        },
        "Two Gaussian classes, logistic regression, one MAF, trained briefly and with the same settings for "
        "any number of columns. `ms_per_row` are milliseconds {clock}. In the first table `ratio` is the "
        "cost of a row and column over that of the fewest columns (1 where cost grows linearly), in the "
        "second that of a row over that of the fewest rows.",
    ),
    _Part(
        "Against the paper's solver",
        {
            "paper": (
                *_MODELS, "solver", "rows", *_TIMES, "bank_seconds", "ratio", "feasible", "l2", "gradients",
            )
        },
        "The same models and rows in the same run. `penalty_adam` is the paper's Adam as published{steps}, "
        "without a box. `ratio` is its seconds {clock} over those of `sqp` and its bank of feasible training "
        "rows (`bank_seconds`, once for all rows): geometric mean {ratio}.",
    ),
    _Part(
        "Memory from run to run",
        {"memory": ("run", *_MODELS, "rows", "seconds", "peak_gib", "allocated_mib", "reserved_mib")},
        "What is allocated and reserved on the device after each run.",
    ),
    _Part(
        "Answers held against the processor's",
        {
            "agreement": (
                *_MODELS, "rows", "same_feasible", "feasible", "feasible_cpu", "l2", "l2_cpu", "gradients",
                "gradients_cpu",
            )
        },
        "All test rows, with the same models on both; `same_feasible` is the share of rows that are feasible "
        "on both or on neither.",
    ),
)  # fmt: skip


def sections(rows: Sequence[Row]) -> dict[str, str]:
    """The tables of each kind of device that was measured on."""
    wrong = [row for row in rows if "study" not in row or row.get("device") not in KINDS]
    if wrong or not rows:
        raise InvalidInputError(
            "The page of `plausiflow benchmark speed` must be made from rows that it has measured; got "
            f"{len(rows)} rows, of which {len(wrong)} are of something else."
        )
    by_kind = {kind: [row for row in rows if row["device"] == kind] for kind in KINDS}
    return {kind: _section(kind, own) for kind, own in by_kind.items() if own}


def _section(kind: str, rows: Sequence[Row]) -> str:
    texts = [f"## Speed on {KINDS[kind]}", told(rows)]
    ratios = [float(row["ratio"]) for row in rows if row["study"] == "paper" and row["solver"] == "sqp"]
    values = {
        "clock": "by the clock" if kind == "cuda" else "of the processor",
        "ratio": f"{geometric_mean(ratios):.1f}",
        "steps": ", but for few steps" if _quick(rows) else "",
    }
    for part in _PARTS:
        shown = {study: [_shown(row) for row in rows if row["study"] == study] for study in part.studies}
        tables = [markdown(own, part.studies[study]) for study, own in shown.items() if own]
        if tables:
            texts += [f"### {part.title}", *tables, part.description.format(**values)]
    return "\n\n".join(texts)


def told(rows: Sequence[Row]) -> str:
    """What was run, where, and how long it took."""
    ran = {
        name: ", ".join(sorted({str(row[name]) for row in rows}))
        for name in ("device_name", "threads", "seed", "plausiflow", "torch", "python", "commit")
    }
    said = "; ".join(f"{name.replace('_', ' ')} {values}" for name, values in ran.items())
    seconds = sum(float(row["elapsed"]) for row in rows)
    spent = f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{seconds:.0f} seconds"
    parts = [
        "Written by `plausiflow benchmark speed`, a run of its own. `PPCEF` with the SQP, mode `fast`, in "
        "the [0, 1] box, rows in memory; a whole call of `explain` is timed, with the check of every answer "
        "in double precision, whose outcome is `feasible`. Training, and the bank of feasible training rows, "
        "are not timed unless a table says so.",
        f"Run: {said}; {spent} in all, training included.",
    ]
    if _quick(rows):
        parts.append("This was a quick look: drawn rows, small models, few repeats.")
    elif any(row["study"] == "batch" and row["dataset"] != "heloc" for row in rows):
        parts.append("The file of heloc was not there: drawn rows of two Gaussian classes stand in for it.")
    return "\n".join(parts)


def write_page(rows: Sequence[Row], path: Path) -> None:
    """Put the section of each kind of device between its marks in a page, at its end where it has none.

    What else is on the page stays, and so does the section of another kind of device.
    """
    for kind, written in sections(rows).items():
        page = path.read_text() if path.exists() else "# Performance\n"
        if MARKS[kind] not in page:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{page.rstrip()}\n\n{MARKS[kind]}\n{CLOSE}\n")
        write_section(path, MARKS[kind], written)


def _quick(rows: Sequence[Row]) -> bool:
    return any(row["quick"] for row in rows)


def _shown(row: Row) -> Row:
    """A row with its numbers as this page writes them."""
    return {
        name: f"{value:{_FORMATS[name]}}" if name in _FORMATS and isinstance(value, int | float) else value
        for name, value in row.items()
    }
