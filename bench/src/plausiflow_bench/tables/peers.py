"""``plausiflow benchmark peers``: DiCE and NICE on the same model, rows and target classes.

Each library runs in a separate process (:mod:`plausiflow_bench.tables.peer_process`), with the interpreter
that has it installed, and with time limits for each row and each method. A library gets the rules that it
supports: DiCE the features that may vary, and ranges for those that may only increase; NICE none. All
counterfactuals are measured alike (:func:`plausiflow_bench.tables.mixed.measure_answers`): by our rules, our
judges and our cost, which the other libraries do not optimise. The best value of a column wins it, ties
included.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from plausiflow.errors import InvalidInputError, ModelError, PlausiflowError
from plausiflow.models import MLPClassifier
from plausiflow.tables import Feature, FloatArray, IntArray, read_level_codes, read_numbers, replace_cells
from plausiflow_bench.harness.pages import describe_runs, write_section
from plausiflow_bench.harness.printing import format_cell, markdown
from plausiflow_bench.harness.rows import CpuTimer, Row
from plausiflow_bench.tables import peer_process
from plausiflow_bench.tables.cases import Case, TableSelection
from plausiflow_bench.tables.mixed import measure_answers

DEFAULT_TABLES, ROWS, CHECK_SECONDS = ("adult", "german_credit"), 100, 300.0
METHODS = tuple(peer_process.PACKAGES)
BETTER = {
    "found": max, "validity": max, "rules_broken": min, "judged": max, "knn_judge": max, "changes": min,
    "cost": min, "cpu_seconds_per_row": min, "fit_cpu_seconds": min,
}  # fmt: skip
COLUMNS = ("dataset", "method", "wins", *BETTER, "rows", "version", "timeouts", "why_not")
MARK = "<!-- written by `plausiflow benchmark peers --page` -->"
INSTALL = (
    "python -m venv peers && peers/bin/pip install numpy pandas scikit-learn tqdm jsonschema && "
    "peers/bin/pip install --no-deps dice-ml==0.12 raiutils==0.4.2 NICEx==0.2.3"
)


class MissingPeerError(PlausiflowError, ImportError):
    """A library is not installed in the interpreter that should run it."""


@dataclass(frozen=True, kw_only=True)
class PeerSettings:
    """How other libraries are run.

    Attributes:
        python: The interpreter that has them installed.
        methods: Any of ``METHODS``.
        seconds_per_row: Time limit per row; a row beyond it has no counterfactual.
        seconds_per_method: Time limit per method; rows that it does not reach have no counterfactual.
        script: The script that the interpreter runs.
    """

    python: Path = Path(sys.executable)
    methods: tuple[str, ...] = METHODS
    seconds_per_row: float = 20.0
    seconds_per_method: float = 1800.0
    script: Path = Path(peer_process.__file__)

    def __post_init__(self) -> None:
        problems = [
            f"Unknown method {name!r}; choose from {', '.join(METHODS)}"
            for name in self.methods
            if name not in METHODS
        ]
        if min(self.seconds_per_row, self.seconds_per_method) <= 0:
            problems.append("Time limits must be positive")
        if problems:
            raise InvalidInputError(". ".join(problems) + ".")

    def versions(self) -> dict[str, str]:
        """Return the version of each library.

        Raises:
            MissingPeerError: If a library is missing; the message has the command that installs it.
        """
        done = self._call(["--check", *self.methods], seconds=CHECK_SECONDS)
        if done.returncode:
            raise InvalidInputError(
                f"{self.python} must have NumPy and pandas; got: {_last_line(done.stderr)}."
            )
        found: dict[str, str | None] = json.loads(done.stdout)
        missing = [name for name in self.methods if found.get(name) is None]
        if missing:
            raise MissingPeerError(
                f"The peers {', '.join(missing)} are not installed for {self.python}. They need other "
                f"packages than plausiflow: install them separately with `{INSTALL}`, and set "
                "`--python peers/bin/python`."
            )
        return {name: str(found[name]) for name in self.methods}

    def answers(self, folder: Path, method: str) -> list[dict[str, Any]]:
        """Run a method on the task in a folder; return the lines that it wrote in time."""
        try:
            done = self._call([str(folder), method], seconds=self.seconds_per_method)
        except subprocess.TimeoutExpired:
            done = None
        if done is not None and done.returncode:
            raise ModelError(f"The peer {method} failed: {_last_line(done.stderr)}")
        path = folder / f"{method}.jsonl"
        # A line that was being written at the time limit has no newline.
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def _call(self, arguments: Sequence[str], *, seconds: float) -> subprocess.CompletedProcess[str]:
        command = [str(self.python), "-I", str(self.script), *arguments]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        try:
            return subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=seconds, check=False
            )
        except OSError as error:
            raise InvalidInputError(
                f"`python` must be a Python interpreter; got {self.python}, which does not start: {error}."
            ) from error


def run(selection: TableSelection, peers: PeerSettings) -> Iterator[Row]:
    """Yield one row per table and method, ours first."""
    versions = peers.versions()
    for name in selection.tables:
        case = selection.case(name)
        with tempfile.TemporaryDirectory() as folder:
            write_task(case, Path(folder), peers.seconds_per_row, selection.seed)
            found = [_measure_ours(case)]
            for method in peers.methods:
                row: Row = {"method": method, "version": versions[method]}
                found.append(row | measure_peer(case, peers.answers(Path(folder), method)))
        yield from (case.with_provenance(row, selection.seed) for row in mark_wins(found))


def write_task(case: Case, folder: Path, seconds_per_row: float, seed: int) -> None:
    """Write the files that a library gets: rows, weights of the model, rules and target classes."""
    features = _features(case)
    classifier = case.model.model
    assert isinstance(classifier, MLPClassifier)
    state = {name: value.double().numpy() for name, value in classifier.state().items()}
    layers = sorted({int(name.split(".")[0]) for name in state})
    arrays = {
        "train": to_matrix(case.train.x, features),
        "classes": case.class_indices(case.train.y).numpy(),
        "rows": to_matrix(case.test.x, features),
        "proba": case.model.predict_outputs(case.x).exp().numpy(),
    }
    for i, layer in enumerate(layers):
        arrays[f"weight{i}"], arrays[f"bias{i}"] = state[f"{layer}.weight"], state[f"{layer}.bias"]
    np.savez(folder / "arrays.npz", **arrays)  # type: ignore[arg-type]
    task = {
        "features": [_describe(feature) for feature in features],
        "immutable": case.train.immutable,
        "increasing": case.train.increasing,
        "targets": case.y_target.tolist(),
        "maps": len(layers),
        "seconds_per_row": seconds_per_row,
        "seed": seed,
    }
    (folder / "task.json").write_text(json.dumps(task))


def _features(case: Case) -> list[Feature]:
    """Return the encoded features; raise if the table has missing values or unreadable rows."""
    features = [f for f in case.encoder.schema.features if f.is_number or f.has_levels]
    problems = [f"{f.name} may be missing" for f in features if f.can_miss]
    if len(case.usable) < len(case.test.x):
        problems.append(f"{len(case.test.x) - len(case.usable)} rows cannot be read")
    if problems:
        raise InvalidInputError(f"The peers do not support {case.test.name}: {'; '.join(problems)}.")
    return features


def _describe(feature: Feature) -> dict[str, Any]:
    scale = feature.scale
    return {
        "name": feature.name,
        "levels": len(feature.levels) if feature.has_levels else 0,
        "minimum": scale.minimum,
        "maximum": scale.maximum,
        "log": feature.log,
        "special": list(feature.special),
        "whole": bool(feature.step) and float(feature.step).is_integer(),
    }


def to_matrix(frame: pd.DataFrame, features: Sequence[Feature]) -> FloatArray:
    """Return one column per feature: numbers in original units, and level codes."""
    columns = [
        read_numbers(frame[f.name])[0]
        if f.is_number
        else read_level_codes(frame[f.name], f.levels).astype(float)
        for f in features
    ]
    return np.stack(columns, axis=1)


def to_frame(values: FloatArray, rows: pd.DataFrame, features: Sequence[Feature]) -> pd.DataFrame:
    """Return rows with the values of a matrix; cells with unchanged values are kept bit for bit."""
    before, result = to_matrix(rows, features), rows.copy()
    for j, feature in enumerate(features):
        changed = values[:, j] != before[:, j]
        if changed.any():
            new: Any = values[changed, j]
            if feature.has_levels:
                new = np.array(feature.levels, dtype=object)[new.astype(int)]
            result[feature.name] = replace_cells(rows[feature.name], changed, new, feature.levels)
    return result


def _measure_ours(case: Case) -> Row:
    """Measure our explainer; the whole ``explain`` is timed, with judges and reasons."""
    with CpuTimer() as timer:
        result = case.explainer.explain(case.test.x)
    row: Row = {"method": "plausiflow"}
    seconds: Row = {
        "cpu_seconds_per_row": timer.seconds / len(case.test.x),
        "fit_cpu_seconds": case.fit_cpu_seconds,
    }
    return row | measure_answers(case, result.answers, result.of) | seconds


def read_answers(case: Case, lines: list[dict[str, Any]]) -> tuple[pd.DataFrame, IntArray]:
    """Return the counterfactuals of a library as rows of the table, and the position of each one's row."""
    features, found = _features(case), [line for line in lines if line.get("values") is not None]
    of: IntArray = np.array([line["row"] for line in found], dtype=np.int64)
    values = np.array([line["values"] for line in found], dtype=np.float64).reshape(-1, len(features))
    return to_frame(values, case.test.x.iloc[of], features), of


def measure_peer(case: Case, lines: list[dict[str, Any]]) -> Row:
    """Measure the counterfactuals of a library, from the lines that it wrote."""
    rows = [line for line in lines if "row" in line]
    answers, of = read_answers(case, lines)
    why = Counter(line["why"][:60] for line in rows if line["values"] is None)
    why["not reached"] = len(case.test.x) - len(rows)
    seconds = [line["cpu_seconds"] for line in rows]
    setup = [line["setup_cpu_seconds"] for line in lines if "setup_cpu_seconds" in line]
    return measure_answers(case, answers, of) | {
        "cpu_seconds_per_row": sum(seconds) / len(seconds) if seconds else float("nan"),
        "fit_cpu_seconds": setup[0] if setup else float("nan"),
        "timeouts": why["time limit"] + why["not reached"],
        "why_not": "; ".join(f"{count} × {reason}" for reason, count in why.most_common() if count) or "–",
    }


def mark_wins(rows: Sequence[Row]) -> list[Row]:
    """Add to the rows of one table the columns in which each has the best value."""
    wins: list[list[str]] = [[] for _ in rows]
    for name, best in BETTER.items():
        values = [float(row.get(name, float("nan"))) for row in rows]
        known = [value for value in values if value == value]
        for won, value in zip(wins, values, strict=True):
            if known and value == best(known):
                won.append(name)
    return [row | {"wins": ", ".join(won) or "–"} for row, won in zip(rows, wins, strict=True)]


def page_table(rows: list[Row]) -> str:
    """Return the rows as Markdown, with the best value of each column in bold, and what was run."""
    marked: list[Row] = [
        row
        | {
            name: f"**{format_cell(name, row[name])}**"
            for name in BETTER
            if name in str(row["wins"]).split(", ")
        }
        for row in rows
    ]
    return f"{markdown(marked, [c for c in COLUMNS if c != 'wins'])}\n\n{describe_runs(rows)}"


def write_page(rows: list[Row], path: Path) -> None:
    """Write the comparison into its section of a page."""
    write_section(path, MARK, page_table(rows))


def _last_line(errors: str) -> str:
    return (errors.strip().splitlines() or ["no error message"])[-1]
