"""``plausiflow benchmark batch``: how fast batch runs are, what memory they take, and what many rows cost.

The numbers of loan applications are written to Parquet files, and an explainer of a linear classifier is
fitted to others of them. It keeps all that makes an answer one, the whole ensemble of densities and the
verdict on the written row, and leaves out what may be left out where rows are many: judges, the margin for a
second opinion, and the search for fewer changes. The command ``plausiflow batch`` then explains the files in
processes of its own, with one worker and with two, here and on Ray; and a larger file with many workers, if
asked for also killed again and again.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from plausiflow.datasets import STEPS, draw
from plausiflow.errors import InvalidInputError, MissingExtraError
from plausiflow.explainer import Explainer
from plausiflow.models import LinearClassifier
from plausiflow_bench.batch_runs import BatchRun
from plausiflow_bench.cases import what_ran, write_section
from plausiflow_bench.study import Row, environment
from plausiflow_bench.tables import markdown

ROWS, MANY, TRAINING = 20_000, 1_000_000, 1000
UNITS = {"cpu": 5_000, "cuda": 100_000}
"""Rows of a unit, by device; also of a row group of the file."""
PRICE, MACHINES = 0.05, (16, 256, 4096)
COLUMNS = (
    "dataset", "method", "device", "cores", "workers", "rows", "found", "kills", "seconds", "throughput",
    "ratio", "worker_mib", "beyond_mib", "once", "same",
)  # fmt: skip
MARK = "<!-- written by `plausiflow benchmark batch --page` -->"


@dataclass(frozen=True, kw_only=True)
class BatchSelection:
    """What is measured.

    Attributes:
        rows: That are explained with one worker and with two.
        many: That are explained once, with ``workers``; none leaves it out.
        workers: That many.
        kills: How often that run is killed when it is made once more, to be held against the first.
        engines: Where workers run: ``local``, ``ray``.
        device: Where they search: ``cpu``, ``cuda``.
        train: Training rows.
        seed: Of everything that is drawn or trained.
        folder: Where files are kept, so that a long run goes on after it was stopped; none keeps nothing.
    """

    rows: int = ROWS
    many: int = MANY
    workers: int = 2
    kills: int = 0
    engines: tuple[str, ...] = ("local", "ray")
    device: str = "cpu"
    train: int = TRAINING
    seed: int = 0
    folder: Path | None = None

    def __post_init__(self) -> None:
        wrong = not self.engines or set(self.engines) - {"local", "ray"} or self.device not in UNITS
        least = {"rows": 1, "many": 0, "workers": 1, "kills": 0, "train": 2}
        small = [name for name, bound in least.items() if getattr(self, name) < bound]
        if wrong or small:
            asked = {name: getattr(self, name) for name in ("engines", "device", *least)}
            raise InvalidInputError(
                "Engines must be local or ray, the device cpu or cuda, `rows` and `workers` at least 1, "
                f"`many` and `kills` at least 0 and `train` at least 2; got {asked}."
            )
        # Up to its kill every worker may end a unit, and one of them another.
        least_rows = UNITS[self.device] * (self.kills * (self.workers + 1) + 1)
        if self.kills and self.many < least_rows:
            raise InvalidInputError(
                f"`many` must be at least {least_rows:,}, for something to be left after {self.kills} kills "
                f"of {self.workers} workers; got {self.many:,}."
            )


def run(selection: BatchSelection) -> Iterator[Row]:
    """One row for each run."""
    with _kept(selection.folder) as folder:
        explainer, device = folder / "explainer", selection.device
        if not explainer.exists():
            _fit(selection, explainer)
        batch = BatchRun(explainer=explainer, given=folder, out=folder, device=device, unit=UNITS[device])
        for row in chain(_few(selection, batch, folder), _many(selection, batch, folder)):
            named: Row = {"dataset": "loans", "training_rows": selection.train, "seed": selection.seed}
            yield named | row | environment()


def _few(selection: BatchSelection, batch: BatchRun, folder: Path) -> Iterator[Row]:
    """With one worker and with two, on each engine."""
    given, same = folder / f"rows-{selection.rows}.parquet", ""
    _write(given, selection.rows, selection.seed + 1, batch.unit)
    for engine in selection.engines:
        alone = 0.0
        for workers in (1, 2):
            out = folder / f"{engine}-{workers}"
            shutil.rmtree(out, ignore_errors=True)
            batch = replace(batch, given=given, out=out, engine=engine, workers=workers)
            row, digest = batch.measure(), batch.digest()
            same, alone = same or digest, alone or float(row["throughput"])
            yield row | {"ratio": float(row["throughput"]) / alone, "same": _yes(digest == same)}


def _many(selection: BatchSelection, batch: BatchRun, folder: Path) -> Iterator[Row]:
    """With many workers: undisturbed, and killed again and again."""
    if not selection.many:
        return
    given, engine = folder / f"rows-{selection.many}.parquet", selection.engines[0]
    _write(given, selection.many, selection.seed + 2, batch.unit)
    whole = replace(batch, given=given, out=folder / "many", engine=engine, workers=selection.workers)
    row = whole.measure()
    yield row
    if selection.kills:
        killed = replace(whole, out=folder / "killed")
        a_unit = float(row["seconds"]) * selection.workers * batch.unit / selection.many
        killed.kill(selection.kills, a_unit / 2, selection.seed)
        rest = killed.measure()
        del rest["seconds"], rest["throughput"]  # of what the kills had left to do
        yield rest | {"kills": selection.kills, "same": _yes(killed.digest() == whole.digest())}


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


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


def _write(path: Path, n: int, seed: int, group: int) -> None:
    """Applications in a Parquet file, a row group for every so many."""
    if path.exists():
        return
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtraError("pyarrow", "files", "Writing Parquet files") from error
    beside = path.with_suffix(".tmp")
    writer = None
    for number, start in enumerate(range(0, n, group)):
        x, _ = draw(min(group, n - start), 1000 * seed + number)
        table = pa.Table.from_pandas(x[list(STEPS)], preserve_index=False)
        writer = writer or pq.ParquetWriter(beside, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()
    beside.rename(path)


def sizing(rows: Sequence[Row], price: float, count: int = 10**9) -> str:
    """What many rows take and cost at the rate of the largest run here.

    Args:
        rows: Of this study.
        price: Of a processor core for an hour.
        count: How many rows.
    """
    here = [row for row in rows if row["method"] == "local" and row["device"] == "cpu"]
    rated = [row for row in here if row.get("throughput")]
    if not rated:
        return f"What {count:,} rows cost is reckoned from local runs on processors; here is none."
    largest = max(rated, key=lambda row: int(row["rows"]))
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
    older: Row = {"device": "cpu"}  # files that do not say
    rows = [older | row for row in rows]
    threads = f"torch {', '.join(sorted({str(row['torch']) for row in rows}))}, one thread a worker."
    text = f"{markdown(rows, COLUMNS)}\n\n{what_ran(rows)} {threads}\n\n{sizing(rows, price)}"
    write_section(path, MARK, text)
