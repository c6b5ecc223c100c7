"""``plausiflow benchmark soak``: a bounded mix of bad clients, kills, damaged files and odd tables.

An explainer of a generated table is saved and served. Each part runs for a share of the time: clients of the
service with bad ones among them, batch runs that are killed and resumed, damaged copies of the saved
explainer, and odd tables. Everything that was tried is counted as right, as a clear error, as wrong or as
lost; the last two must be zero.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from plausiflow.datasets import load_table
from plausiflow.errors import InvalidInputError
from plausiflow.explainer import Explainer
from plausiflow.models import MLPClassifier
from plausiflow_bench.harness.pages import write_section
from plausiflow_bench.harness.printing import markdown
from plausiflow_bench.harness.rows import Row, environment, provenance
from plausiflow_bench.serving.load import NAME, run_server
from plausiflow_bench.soak.clients import ServiceSoak
from plausiflow_bench.soak.frames import soak_frames
from plausiflow_bench.soak.kills import soak_batches
from plausiflow_bench.soak.mutations import soak_files
from plausiflow_bench.soak.outcomes import Countdown, Outcomes

MINUTES, CLIENTS, TRAINING, ROWS, BATCH_ROWS = 20.0, 64, 600, 100, 300
HEADER_SECONDS = "5"
PARTS = {"service": 0.35, "batch": 0.25, "files": 0.25, "tables": 0.15}
"""The parts, and their shares of the time."""
COLUMNS = ("part", "tried", "right", "clear", "wrong", "lost", "seconds")
MARK = "<!-- written by `plausiflow benchmark soak --page` -->"


@dataclass(frozen=True, kw_only=True)
class SoakSelection:
    """How long a soak takes, and how large it is.

    Attributes:
        minutes: Time of all parts together.
        clients: Concurrent clients of the service.
        batch_rows: Rows of the batch runs.
        parts: Any of ``PARTS``.
        seed: Seed of the model.
    """

    minutes: float = MINUTES
    clients: int = CLIENTS
    batch_rows: int = BATCH_ROWS
    parts: tuple[str, ...] = tuple(PARTS)
    seed: int = 0

    def __post_init__(self) -> None:
        unknown = [part for part in self.parts if part not in PARTS]
        if unknown or not 0 < self.minutes <= 24 * 60 or self.clients < 1 or self.batch_rows < 1:
            raise InvalidInputError(
                f"A soak needs minutes of at most a day, one client and one row or more, and parts among "
                f"{', '.join(PARTS)}; got {self}."
            )


def run(selection: SoakSelection) -> Iterator[Row]:
    """Yield one row per part, with examples of what was wrong or lost."""
    with tempfile.TemporaryDirectory() as folder:
        soak = _Soak(selection, Path(folder))
        total = sum(PARTS[part] for part in selection.parts)
        for part in selection.parts:
            outcomes = Outcomes(part)
            countdown = Countdown(60 * selection.minutes * PARTS[part] / total)
            getattr(soak, part)(outcomes, countdown)
            yield outcomes.row(countdown.elapsed) | {
                "clients": selection.clients if part == "service" else 0,
                "examples": "; ".join(outcomes.examples),
                "seed": selection.seed,
                **environment(),
            }


class _Soak:
    """An explainer with the rows and answers that all parts use."""

    def __init__(self, selection: SoakSelection, folder: Path) -> None:
        self.selection, self.folder = selection, folder
        train, test = load_table("loans").split(TRAINING, ROWS)
        model = MLPClassifier(random_state=selection.seed)
        self.rows = test.x.reset_index(drop=True)
        self.explainer = Explainer(model, confidence=None, judges=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.explainer.fit(train.x, train.y)
        self.saved = folder / NAME
        self.explainer.save(self.saved)

    def service(self, outcomes: Outcomes, countdown: Countdown) -> None:
        written = json.loads(self.explainer.explain(self.rows).to_json())["rows"]
        instances = json.loads(self.rows.to_json(orient="records"))
        options = ("--header-timeout", HEADER_SECONDS)
        with run_server(self.saved, *options) as server:
            expected = [{**row, "row": 0} for row in written]
            ServiceSoak(server.address, instances, expected, outcomes, countdown).run(self.selection.clients)
            if server.process.poll() is not None:
                outcomes.add("wrong", f"the server ended with {server.process.returncode}")

    def batch(self, outcomes: Outcomes, countdown: Countdown) -> None:
        data = self.folder / "data.csv"
        copies = -(-self.selection.batch_rows // len(self.rows))
        pd.concat([self.rows] * copies, ignore_index=True).iloc[: self.selection.batch_rows].to_csv(
            data, index=False
        )
        soak_batches(self.saved, data, self.folder, outcomes, countdown)

    def files(self, outcomes: Outcomes, countdown: Countdown) -> None:
        few = self.rows.iloc[:3]
        rows, expected = self.folder / "rows.pkl", self.folder / "expected.pkl"
        few.to_pickle(rows)
        Explainer.load(self.saved).explain(few).counterfactuals.to_pickle(expected)
        soak_files(self.saved, rows, expected, self.folder, outcomes, countdown)

    def tables(self, outcomes: Outcomes, countdown: Countdown) -> None:
        soak_frames(self.explainer, self.rows, outcomes, countdown)


def failures(rows: Sequence[Row]) -> int:
    """Return how much was wrong or lost."""
    return sum(int(row["wrong"]) + int(row["lost"]) for row in rows)


def write_page(rows: Sequence[Row], path: Path) -> None:
    """Write the table into its section of a page."""
    text = provenance(list(rows), ("seed", "commit"))
    write_section(path, MARK, f"{markdown(rows, COLUMNS)}\n\nOne run: {text}.")
