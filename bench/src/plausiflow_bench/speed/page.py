"""The page of ``plausiflow benchmark speed``: one section for each kind of device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from plausiflow.errors import InvalidInputError
from plausiflow_bench.harness.pages import END_MARK, write_section
from plausiflow_bench.harness.printing import markdown
from plausiflow_bench.harness.rows import Row, geometric_mean, provenance

KINDS = {"cpu": "a processor", "cuda": "CUDA"}
MARKS = {kind: f"<!-- written by `plausiflow benchmark speed --page`, {kind} -->" for kind in KINDS}
_FORMATS = {
    **dict.fromkeys(("rows", "rows_per_second"), ",.0f"),
    "engine_rows_per_second": ",.0f",
    "ratio": ".2f",
    **dict.fromkeys(("fit_ratio", "k3_ratio", "found"), ".2f"),
    **dict.fromkeys(("model_seconds", "fit_seconds", "first_answer_seconds"), ".2f"),
    **dict.fromkeys(("p50_ms", "p95_ms", "allocated_mib", "reserved_mib"), ".1f"),
    **dict.fromkeys(("seconds", "cpu_seconds", "ms_per_row", "l2_cpu"), ".4f"),
    **dict.fromkeys(("bank_seconds", "peak_gib"), ".3f"),
}
_MODELS = ("dataset", "classifier", "density")


@dataclass(frozen=True)
class _SectionPart:
    """A part of a section.

    Attributes:
        title: The heading.
        studies: The columns of each study's table.
        description: The text below the tables.
    """

    title: str
    studies: dict[str, tuple[str, ...]]
    description: str


_TIMES = ("seconds", "cpu_seconds")
_SECTION_PARTS = (
    _SectionPart(
        "Product against engine",
        {
            "product": (
                "dataset", "classifier", "train", "model_seconds", "fit_seconds", "fit_ratio", "rows",
                "found", "rows_per_second", "engine_rows_per_second", "ratio", "p50_ms", "p95_ms", "k3_ratio",
                "first_answer_seconds",
            )
        },
        "What an explainer costs, in {clock}. `fit_ratio` is `Explainer.fit` over the training of the model "
        "itself. `rows_per_second` is `Explainer.explain` of a table's rows: categories, grids, learned and "
        "given rules, few changes, judges. `engine_rows_per_second` is `PPCEF.explain` of the same rows as "
        "tensors, with the same model, density and margin, where only numbers move; boosted trees have no "
        "gradients for it. `ratio` is the first over the second. `p50_ms` and `p95_ms` are calls with one "
        "row, `k3_ratio` is what three counterfactuals cost over one. `first_answer_seconds` is a fresh "
        "process that imports the library, loads the explainer and explains one row.",
    ),
    _SectionPart(
        "Rows per second against batch size",
        {
            "batch": (
                *_MODELS, "threads", "rows", "repeats", *_TIMES, "rows_per_second", "feasible", "l2",
                "gradients", "peak_gib",
            )
        },
        "`one` is a single MAF with the median log-density of each class as threshold; `ensemble` is the "
        "default density of `PPCEF`, calibrated for the classifier. `seconds` is wall time and `cpu_seconds` "
        "the processor time of all threads: medians of `repeats`, each with other rows, drawn from the test "
        "rows with replacement. `rows_per_second` = `rows` / `seconds`.",
    ),
    _SectionPart(
        "One row at a time",
        {"single": (*_MODELS, "rows", "p50_ms", "p95_ms", "feasible")},
        "Processor milliseconds of a call with one row, after a warm-up. The last line is "
        "`Explainer.explain` for a frame with one row of a mixed table, with its rules, the check of the "
        "decoded row and the judges.",
    ),
    _SectionPart(
        "Cost against the number of columns and of rows",
        {
            "columns": ("columns", "rows", "repeats", "ms_per_row", "ratio", "gradients", "feasible", "l2"),
            "growth": ("columns", "rows", "repeats", "ms_per_row", "ratio", "gradients", "feasible", "l2"),
        },
        "Two Gaussian classes, logistic regression, and one MAF with a short training, with the same "
        "settings for any number of columns. `ms_per_row` is in milliseconds of {clock}. In the first table "
        "`ratio` is the cost per row and column divided by that of the fewest columns (1 if the cost grows "
        "linearly); in the second it is the cost per row divided by that of the fewest rows.",
    ),
    _SectionPart(
        "Against the paper's solver",
        {
            "paper": (
                *_MODELS, "solver", "rows", *_TIMES, "bank_seconds", "ratio", "feasible", "l2", "gradients",
            )
        },
        "The same models and rows in the same run. `penalty_adam` is the paper's Adam as published{steps}, "
        "without a box. `ratio` is its seconds of {clock} divided by those of `sqp` and its bank of feasible "
        "training rows (`bank_seconds`, once for all rows): geometric mean {ratio}.",
    ),
    _SectionPart(
        "Memory from run to run",
        {"memory": ("run", *_MODELS, "rows", "seconds", "peak_gib", "allocated_mib", "reserved_mib")},
        "Memory that is allocated and reserved on the device after each run.",
    ),
    _SectionPart(
        "Agreement with the processor",
        {
            "agreement": (
                *_MODELS, "rows", "same_feasible", "feasible", "feasible_cpu", "l2", "l2_cpu", "gradients",
                "gradients_cpu",
            )
        },
        "All test rows, with the same models on both devices. `same_feasible` is the share of rows that are "
        "feasible on both or on neither.",
    ),
)  # fmt: skip


def sections(rows: Sequence[Row]) -> dict[str, str]:
    """Return the section of each kind of device that was measured, as Markdown."""
    wrong = [row for row in rows if "study" not in row or row.get("device") not in KINDS]
    if wrong or not rows:
        raise InvalidInputError(
            "The page of `plausiflow benchmark speed` needs rows that this study measured; got "
            f"{len(rows)} rows, of which {len(wrong)} are from another study."
        )
    by_kind = {kind: [row for row in rows if row["device"] == kind] for kind in KINDS}
    return {kind: _section(kind, own) for kind, own in by_kind.items() if own}


def _section(kind: str, rows: Sequence[Row]) -> str:
    texts = [f"## Speed on {KINDS[kind]}", describe_run(rows)]
    ratios = [float(row["ratio"]) for row in rows if row["study"] == "paper" and row["solver"] == "sqp"]
    values = {
        "clock": "wall time" if kind == "cuda" else "processor time",
        "ratio": f"{geometric_mean(ratios):.1f}",
        "steps": ", but with few steps" if _quick(rows) else "",
    }
    for part in _SECTION_PARTS:
        shown = {study: [_format_row(row) for row in rows if row["study"] == study] for study in part.studies}
        tables = [markdown(own, part.studies[study]) for study, own in shown.items() if own]
        if tables:
            texts += [f"### {part.title}", *tables, part.description.format(**values)]
    return "\n\n".join(texts)


def describe_run(rows: Sequence[Row]) -> str:
    """Return the description of a run: device, versions and duration."""
    ran = provenance(rows, ("device_name", "threads", "seed", "plausiflow", "torch", "python", "commit"))
    seconds = sum(float(row["elapsed"]) for row in rows)
    spent = f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{seconds:.0f} seconds"
    parts = [
        "Written by `plausiflow benchmark speed`, in a separate run. `PPCEF` with the SQP, mode `fast`, in "
        "the [0, 1] box, with rows in memory. A whole call of `explain` is timed, with the check of every "
        "counterfactual in double precision, whose result is `feasible`. Training, and the bank of feasible "
        "training rows, are not timed unless a table says so.",
        f"Run: {ran}; {spent} in total, training included.",
    ]
    if _quick(rows):
        parts.append("This was a quick run: Gaussian rows, small models, few repeats.")
    elif any(row["study"] == "batch" and row["dataset"] != "heloc" for row in rows):
        parts.append("The file of heloc was not available: rows of two Gaussian classes replace it.")
    return "\n".join(parts)


def write_page(rows: Sequence[Row], path: Path) -> None:
    """Write the section of each kind of device between its marks, or at the end of the page.

    The rest of the page, and the section of another kind of device, are not changed.
    """
    for kind, written in sections(rows).items():
        page = path.read_text() if path.exists() else "# Performance\n"
        if MARKS[kind] not in page:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{page.rstrip()}\n\n{MARKS[kind]}\n{END_MARK}\n")
        write_section(path, MARKS[kind], written)


def _quick(rows: Sequence[Row]) -> bool:
    return any(row["quick"] for row in rows)


def _format_row(row: Row) -> Row:
    """Return a row with its numbers formatted for the page."""
    return {
        name: f"{value:{_FORMATS[name]}}" if name in _FORMATS and isinstance(value, int | float) else value
        for name, value in row.items()
    }
