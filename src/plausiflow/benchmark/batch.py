"""``plausiflow benchmark batch``: how fast batch runs are, what memory they take, and what many rows cost.

The numbers of loan applications are written to Parquet files, and an explainer of a linear classifier is
fitted to others of them. It keeps all that makes an answer one, the whole ensemble of densities and the
verdict on the written row, and leaves out what may be left out where rows are many: judges, the margin for a
second opinion, and the search for fewer changes. The command ``plausiflow batch`` then explains the files in
processes of its own, with one worker and with two, here and on Ray.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from plausiflow.benchmark.cases import what_ran, write_section
from plausiflow.benchmark.study import Row, environment
from plausiflow.benchmark.tables import markdown
from plausiflow.classifiers import LinearClassifier
from plausiflow.data.loans import STEPS, draw
from plausiflow.errors import InvalidInputError, MissingExtraError, PlausiflowError
from plausiflow.explainer import Explainer

ROWS, MANY, TRAINING, CHUNK = 20_000, 1_000_000, 1000, 5_000
PRICE, MACHINES = 0.05, (16, 256, 4096)
COLUMNS = (
    "dataset", "method", "cores", "workers", "rows", "found", "seconds", "throughput", "ratio", "worker_mib",
    "beyond_mib", "same",
)  # fmt: skip
MARK = "<!-- written by `plausiflow benchmark batch --page` -->"
_SUMMARY = re.compile(
    r"([\d,]+) rows \((.*?)\) in .*?; ([\d,]+) rows now, in ([\d,]+) seconds .*?"
    r"a worker used ([\d,]+) MiB, ([\d,]+) beyond"
)


class BatchRunError(PlausiflowError, RuntimeError):
    """A batch run that was to be measured failed."""


@dataclass(frozen=True, kw_only=True)
class BatchSelection:
    """What is measured.

    Attributes:
        rows: That are explained with one worker and with two.
        many: That are explained once, with ``workers``; none leaves it out.
        workers: That many.
        engines: Where workers run: ``local``, ``ray``.
        train: Training rows.
        seed: Of everything that is drawn or trained.
        folder: Where files are kept, so that a long run goes on after it was stopped; none keeps nothing.
    """

    rows: int = ROWS
    many: int = MANY
    workers: int = 2
    engines: tuple[str, ...] = ("local", "ray")
    train: int = TRAINING
    seed: int = 0
    folder: Path | None = None

    def __post_init__(self) -> None:
        wrong = [name for name in self.engines if name not in ("local", "ray")]
        if wrong or self.rows < 1 or self.many < 0 or self.workers < 1 or self.train < 2:
            raise InvalidInputError(
                "Engines must be local or ray, `rows` and `workers` at least 1, `many` at least 0 and "
                f"`train` at least 2; got {', '.join(self.engines)}, {self.rows}, {self.workers}, "
                f"{self.many} and {self.train}."
            )


def run(selection: BatchSelection) -> Iterator[Row]:
    """One row for each run."""
    with _kept(selection.folder) as folder:
        explainer = folder / "explainer"
        if not explainer.exists():
            _fit(selection, explainer)
        first, same = folder / f"rows-{selection.rows}.parquet", ""
        _write(first, selection.rows, selection.seed + 1)
        for engine in selection.engines:
            alone = 0.0
            for workers in (1, 2):
                out = folder / f"{engine}-{workers}"
                shutil.rmtree(out, ignore_errors=True)
                row = _measured(explainer, first, out, engine, workers)
                digest = _digest(out)
                same = same or digest
                alone = alone or float(row["throughput"])
                ratio = float(row["throughput"]) / alone
                yield _named(row | {"ratio": ratio, "same": "yes" if digest == same else "no"}, selection)
        if selection.many:
            path = folder / f"rows-{selection.many}.parquet"
            _write(path, selection.many, selection.seed + 2)
            yield _named(_measured(explainer, path, folder / "many", "local", selection.workers), selection)


def _named(row: Row, selection: BatchSelection) -> Row:
    named: Row = {"dataset": "loans", "training_rows": selection.train, "seed": selection.seed}
    return named | row | environment()


@contextmanager
def _kept(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def _fit(selection: BatchSelection, folder: Path) -> None:
    """The cheapest explainer whose answers are verified as any other's."""
    x, y = draw(selection.train, selection.seed)
    model = LinearClassifier(seed=selection.seed)
    explainer = Explainer(model, confidence=None, judges=0, sparsity=None, random_state=selection.seed)
    explainer.fit(x[list(STEPS)], y).save(folder)


def _write(path: Path, n: int, seed: int) -> None:
    """Applications in a Parquet file, a row group for every five thousand."""
    if path.exists():
        return
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtraError("pyarrow", "files", "Writing Parquet files") from error
    beside = path.with_suffix(".tmp")
    writer = None
    for number, start in enumerate(range(0, n, CHUNK)):
        x, _ = draw(min(CHUNK, n - start), 1000 * seed + number)
        table = pa.Table.from_pandas(x[list(STEPS)], preserve_index=False)
        writer = writer or pq.ParquetWriter(beside, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()
    beside.rename(path)


def _measured(explainer: Path, given: Path, out: Path, engine: str, workers: int) -> Row:
    """Run the command, and read what it says at its end."""
    program = "from plausiflow.cli import app; app()"
    command = [sys.executable, "-c", program, "batch", str(explainer), str(given), str(out), "--resume"]
    command += ["--engine", engine, "--jobs", str(workers)]
    start = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - start
    told = _SUMMARY.search(done.stdout)
    if done.returncode or told is None:
        text = " ".join((done.stdout + done.stderr).split())[-500:]
        raise BatchRunError(
            f"`plausiflow batch` ended with {done.returncode}: {text} Where {out} was complete already, "
            "there is nothing to measure: take another folder."
        )
    rows, now = (int(told[i].replace(",", "")) for i in (1, 3))
    found = re.search(r"([\d,]+) found", told[2])
    return {
        "method": engine,
        "cores": os.cpu_count() or 1,
        "workers": workers,
        "rows": rows,
        "found": int(found[1].replace(",", "")) / rows if found else 0.0,
        "seconds": round(seconds),
        "throughput": now / seconds,
        "worker_mib": int(told[5].replace(",", "")),
        "beyond_mib": int(told[6].replace(",", "")),
    }


def _digest(out: Path) -> str:
    """Of the names and the bytes of all parts."""
    digest = hashlib.sha256()
    for path in sorted(out.glob("part-*.parquet")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def sizing(rows: Sequence[Row], price: float, count: int = 10**9) -> str:
    """What many rows take and cost at the rate of the largest run here.

    Args:
        rows: Of this study.
        price: Of a processor core for an hour.
        count: How many rows.
    """
    largest = max((row for row in rows if row["method"] == "local"), key=lambda row: int(row["rows"]))
    rate = float(largest["throughput"]) / int(largest["workers"])
    hours = count / rate / 3600
    lines = [f"| {cores:,} | {hours / cores:,.1f} h | {hours * price:,.0f} |" for cores in MACHINES]
    return (
        f"{count:,} rows like these, at the {rate:,.0f} rows a second and core of the largest run: "
        f"{count:,} / {rate:,.0f} / 3600 = **{hours:,.0f} core hours**. At {price:g} for a core and hour:\n\n"
        "| cores | time | cost |\n| --- | --- | --- |\n" + "\n".join(lines)
    )


def write_page(rows: list[Row], path: Path, price: float = PRICE) -> None:
    """Put the measured rates, and what follows from them, between their marks in a page."""
    threads = f"torch {', '.join(sorted({str(row['torch']) for row in rows}))}, one thread a worker."
    text = f"{markdown(rows, COLUMNS)}\n\n{what_ran(rows)} {threads}\n\n{sizing(rows, price)}"
    write_section(path, MARK, text)
