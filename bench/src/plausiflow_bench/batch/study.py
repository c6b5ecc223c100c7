"""``plausiflow benchmark batch``: throughput and memory of batch runs, and the cost of many rows.

The numeric features of loan applications are written to Parquet files, and an explainer of a linear
classifier is fitted to other applications. It has the whole ensemble of densities and verifies every decoded
row, but no judges, no calibrated margin and no search for fewer changes. ``plausiflow batch`` then explains
the files in separate processes: with one worker and with two, locally and on Ray, and a larger file with many
workers. Optionally, the run on the larger file is repeated and killed several times.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from plausiflow.atomic import atomic_path
from plausiflow.datasets import loans
from plausiflow.errors import InvalidInputError, MissingExtraError
from plausiflow.explainer import Explainer
from plausiflow.models import LinearClassifier
from plausiflow_bench.batch.runs import BatchRun
from plausiflow_bench.harness.pages import describe_runs, write_section
from plausiflow_bench.harness.printing import markdown
from plausiflow_bench.harness.rows import Row, environment

ROWS, MANY, TRAINING = 20_000, 1_000_000, 1000
UNIT_ROWS = {"cpu": 5_000, "cuda": 100_000}
"""Rows per unit of work and per row group of the file, by device."""
PRICE, CORES = 0.05, (16, 256, 4096)
COLUMNS = (
    "dataset", "method", "device", "cores", "workers", "rows", "found", "kills", "seconds", "throughput",
    "ratio", "worker_mib", "beyond_mib", "once", "same",
)  # fmt: skip
MARK = "<!-- written by `plausiflow benchmark batch --page` -->"


@dataclass(frozen=True, kw_only=True)
class BatchSelection:
    """What is measured.

    Attributes:
        rows: Rows that are explained with one worker and with two.
        many: Rows that are explained once, with ``workers``. 0 means none.
        workers: The number of workers for ``many`` rows.
        kills: How often the repeated run on ``many`` rows is killed.
        engines: Where workers run, any of ``local``, ``ray``.
        device: Where they search, ``cpu`` or ``cuda``.
        train: Training rows.
        seed: Seed of everything that is drawn or trained.
        folder: Where files are stored, so that a long study can be continued. None means a temporary folder.
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
        wrong = not self.engines or set(self.engines) - {"local", "ray"} or self.device not in UNIT_ROWS
        minimum = {"rows": 1, "many": 0, "workers": 1, "kills": 0, "train": 2}
        small = [name for name, bound in minimum.items() if getattr(self, name) < bound]
        if wrong or small:
            settings = {name: getattr(self, name) for name in ("engines", "device", *minimum)}
            raise InvalidInputError(
                "`engines` must be local or ray, `device` cpu or cuda, `rows` and `workers` at least 1, "
                f"`many` and `kills` at least 0 and `train` at least 2; got {settings}."
            )
        # Before a kill, every worker may finish a unit, and one of them another.
        needed = UNIT_ROWS[self.device] * (self.kills * (self.workers + 1) + 1)
        if self.kills and self.many < needed:
            raise InvalidInputError(
                f"`many` must be at least {needed:,}, so that rows are left after {self.kills} kills of "
                f"{self.workers} workers; got {self.many:,}."
            )


def run(selection: BatchSelection) -> Iterator[Row]:
    """Yield one row per batch run."""
    with _working_folder(selection.folder) as folder:
        explainer, device = folder / "explainer", selection.device
        if not explainer.exists():
            _fit_explainer(selection, explainer)
        batch = BatchRun(
            explainer=explainer, rows_file=folder, out=folder, device=device, unit=UNIT_ROWS[device]
        )
        for row in chain(
            _measure_scaling(selection, batch, folder), _measure_large_run(selection, batch, folder)
        ):
            named: Row = {"dataset": "loans", "training_rows": selection.train, "seed": selection.seed}
            yield named | row | environment()


def _measure_scaling(selection: BatchSelection, batch: BatchRun, folder: Path) -> Iterator[Row]:
    """Measure one worker and two, on each engine."""
    rows_file, same = folder / f"rows-{selection.rows}.parquet", ""
    _write_parquet(rows_file, selection.rows, selection.seed + 1, batch.unit)
    for engine in selection.engines:
        alone = 0.0
        for workers in (1, 2):
            out = folder / f"{engine}-{workers}"
            shutil.rmtree(out, ignore_errors=True)
            batch = replace(batch, rows_file=rows_file, out=out, engine=engine, workers=workers)
            row, digest = batch.measure(), batch.digest()
            same, alone = same or digest, alone or float(row["throughput"])
            yield row | {"ratio": float(row["throughput"]) / alone, "same": _yes(digest == same)}


def _measure_large_run(selection: BatchSelection, batch: BatchRun, folder: Path) -> Iterator[Row]:
    """Measure many workers: without interruption, and killed several times."""
    if not selection.many:
        return
    rows_file, engine = folder / f"rows-{selection.many}.parquet", selection.engines[0]
    _write_parquet(rows_file, selection.many, selection.seed + 2, batch.unit)
    whole = replace(batch, rows_file=rows_file, out=folder / "many", engine=engine, workers=selection.workers)
    row = whole.measure()
    yield row
    if selection.kills:
        killed = replace(whole, out=folder / "killed")
        unit_seconds = float(row["seconds"]) * selection.workers * batch.unit / selection.many
        killed.kill(selection.kills, unit_seconds / 2, selection.seed)
        rest = killed.measure()
        del rest["seconds"], rest["throughput"]  # they are those of the remaining rows only
        yield rest | {"kills": selection.kills, "same": _yes(killed.digest() == whole.digest())}


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


@contextmanager
def _working_folder(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def _fit_explainer(selection: BatchSelection, folder: Path) -> None:
    """Fit and save the cheapest explainer that verifies every counterfactual."""
    x, y = loans.draw(selection.train, selection.seed)
    model = LinearClassifier(random_state=selection.seed)
    explainer = Explainer(model, confidence=None, judges=0, max_extra_cost=0.0, random_state=selection.seed)
    explainer.fit(x[list(loans.STEPS)], y).save(folder)


def _write_parquet(path: Path, n: int, seed: int, group: int) -> None:
    """Write applications to a Parquet file, in row groups of ``group`` rows."""
    if path.exists():
        return
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtraError("pyarrow", "files", "Writing Parquet files") from error
    with atomic_path(path) as temporary:
        writer = None
        for number, start in enumerate(range(0, n, group)):
            x, _ = loans.draw(min(group, n - start), 1000 * seed + number)
            table = pa.Table.from_pandas(x[list(loans.STEPS)], preserve_index=False)
            writer = writer or pq.ParquetWriter(temporary, table.schema)
            writer.write_table(table)
        assert writer is not None
        writer.close()


def estimate_cost(rows: Sequence[Row], price: float, count: int = 10**9) -> str:
    """Return an estimate of time and cost for many rows, from the rate of the largest run.

    Args:
        rows: Rows of this study.
        price: Price of a processor core for an hour.
        count: The number of rows.
    """
    here = [row for row in rows if row["method"] == "local" and row["device"] == "cpu"]
    rated = [row for row in here if row.get("throughput")]
    if not rated:
        return f"The cost of {count:,} rows is estimated from local runs on processors; there are none."
    largest = max(rated, key=lambda row: int(row["rows"]))
    rate = float(largest["throughput"]) / int(largest["workers"])
    hours = count / rate / 3600
    lines = [f"| {cores:,} | {hours / cores:,.1f} h | {hours * price:,.0f} |" for cores in CORES]
    return (
        f"{count:,} rows like these, at the {rate:,.0f} rows per second and core of the largest run: "
        f"{count:,} / {rate:,.0f} / 3600 = **{hours:,.0f} core hours**. At {price:g} per core hour:\n\n"
        "| cores | time | cost |\n| --- | --- | --- |\n" + "\n".join(lines)
    )


def write_page(rows: list[Row], path: Path, price: float = PRICE) -> None:
    """Write the rates and the estimate into their section of a page."""
    older: Row = {"device": "cpu"}  # default for older files
    rows = [older | row for row in rows]
    threads = f"torch {', '.join(sorted({str(row['torch']) for row in rows}))}, one thread per worker."
    text = f"{markdown(rows, COLUMNS)}\n\n{describe_runs(rows)} {threads}\n\n{estimate_cost(rows, price)}"
    write_section(path, MARK, text)
