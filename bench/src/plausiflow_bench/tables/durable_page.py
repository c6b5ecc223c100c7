"""The page and the figure of the study of retrained models (:mod:`plausiflow_bench.tables.durable`)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from plausiflow.plots import ACCENT, QUIET, WARM, new_figure
from plausiflow_bench.harness.pages import describe_runs, write_section
from plausiflow_bench.harness.printing import markdown
from plausiflow_bench.harness.rows import Row
from plausiflow_bench.tables.durable import EARLY, LEVEL, MODELS

COLUMNS = (
    "dataset", "model", "confidence", "method", "draw", "found", "survive", "rows_90", "as_asked",
    "asked_survive", "asked_rows_90", "other_settings", "fewer_rows", "cost", "durable_cost", "changes",
    "judged", "lasting", "fit_cpu_seconds", "cpu_ms_per_row", "extra_ms",
)  # fmt: skip
MARK = "<!-- written by `plausiflow benchmark durable --page` -->"


def draw_figure(rows: list[Row], path: Path) -> None:
    """Draw the share that survives against the cost, a panel for each model."""
    rows = _once(rows)
    kinds = [kind for kind in (*MODELS, EARLY) if any(row["model"] == kind for row in rows)]
    figure = new_figure(4.4 * len(kinds), 3.8)
    panels = figure.subplots(1, len(kinds), squeeze=False, sharey=True).ravel()
    for axes, kind in zip(panels, kinds, strict=True):
        for method, colour in _COLOURS.items():
            own = [r for r in rows if r["model"] == kind and str(r["method"]).startswith(method)]
            own = [r for r in own if np.isfinite(float(r["cost"])) and "survive" in r]
            size = [90 * float(r["found"]) + 6 for r in own]
            points = [float(r["cost"]) for r in own], [float(r["survive"]) for r in own]
            axes.scatter(*points, s=size, color=colour, alpha=0.8, label=method.replace("_", " "))
        axes.axhline(LEVEL, color=QUIET, linewidth=0.8, linestyle="dotted")
        axes.set(title=_TITLES[kind], xlabel="cost, in multiples of the default")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("share of unseen retrainings that still decide so")
    panels[0].legend(frameon=False, loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


_COLOURS = {"default": QUIET, "min_probability": WARM, "Beta check": "#16a34a", "durability": ACCENT}
_TITLES = {
    "lr": "logistic regression",
    "mlp": "neural network",
    "boosted": "boosted trees",
    EARLY: "network, stopped early",
}


def write_page(rows: list[Row], path: Path) -> None:
    """Write the table into a page, between its marks."""
    shown: list[Row] = [
        {name: f"{value:.2f}" if isinstance(value, float) else value for name, value in row.items()}
        for row in _once(rows)
    ]
    text = f"{markdown(shown, COLUMNS)}\n\n{describe_runs(rows)}"
    write_section(path, MARK, text)


def _once(rows: list[Row]) -> list[Row]:
    """Return each measurement once, ordered by case: runs of single draws repeat the default."""
    names = [f"{row['dataset']} {row['model']} {row['confidence']}" for row in rows]
    order = list(dict.fromkeys(names))
    known: dict[tuple[str, str, str], Row] = {}
    for name, row in sorted(zip(names, rows, strict=True), key=lambda pair: order.index(pair[0])):
        known.setdefault((name, str(row["method"]), str(row.get("draw", 0))), row)
    return list(known.values())
