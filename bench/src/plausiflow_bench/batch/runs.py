"""One measured batch run: ``plausiflow batch`` in a separate process, its summary and its output."""

from __future__ import annotations

import hashlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from plausiflow.errors import PlausiflowError
from plausiflow_bench.harness.rows import Row

_SUMMARY = re.compile(
    r"([\d,]+) rows \((.*?)\) in .*?; ([\d,]+) rows now, in ([\d,]+) seconds .*?"
    r"a worker used ([\d,]+) MiB, ([\d,]+) beyond"
)


class BatchRunError(PlausiflowError, RuntimeError):
    """A batch run that was to be measured failed."""


@dataclass(frozen=True, kw_only=True)
class BatchRun:
    """``plausiflow batch`` with its arguments.

    Attributes:
        explainer: Folder of the saved explainer.
        rows_file: The file of rows.
        out: The folder of the output.
        device: ``cpu`` or ``cuda``.
        unit: The maximum number of rows per unit of work.
        engine: ``local`` or ``ray``.
        workers: The number of workers. On Ray they share one GPU if the device is ``cuda``.
    """

    explainer: Path
    rows_file: Path
    out: Path
    device: str
    unit: int
    engine: str = "local"
    workers: int = 1

    def measure(self) -> Row:
        """Run the command to its end, and return the measures from its summary."""
        start = time.monotonic()
        done = subprocess.run(self._command(), capture_output=True, text=True, check=False)
        seconds = time.monotonic() - start
        summary = _SUMMARY.search(done.stdout)
        if done.returncode or summary is None:
            text = " ".join((done.stdout + done.stderr).split())[-500:]
            raise BatchRunError(
                f"`plausiflow batch` ended with {done.returncode}: {text} If {self.out} was complete, "
                "nothing can be measured: use another folder."
            )
        rows, now = (int(summary[i].replace(",", "")) for i in (1, 3))
        found = re.search(r"([\d,]+) found", summary[2])
        return {
            "method": self.engine,
            "device": self.device,
            "cores": os.cpu_count() or 1,
            "workers": self.workers,
            "rows": rows,
            "found": int(found[1].replace(",", "")) / rows if found else 0.0,
            "seconds": round(seconds),
            "throughput": now / seconds,
            "worker_mib": int(summary[5].replace(",", "")),
            "beyond_mib": int(summary[6].replace(",", "")),
            "once": "yes" if self.has_each_row_once(rows) else "no",
        }

    def kill(self, times: int, within: float, seed: int) -> None:
        """Start the command and kill it with all its workers, repeatedly.

        Args:
            times: How often.
            within: Each kill is up to this many seconds after a new part was written.
            seed: Seed of the random times.
        """
        rng, quiet = random.Random(seed), subprocess.DEVNULL
        for _ in range(times):
            before = len(self._parts())
            process = subprocess.Popen(self._command(), stdout=quiet, stderr=quiet, start_new_session=True)
            while process.poll() is None and len(self._parts()) == before:
                time.sleep(0.1)
            time.sleep(rng.uniform(0, within))
            if process.poll() is not None:
                raise BatchRunError(
                    f"`plausiflow batch` ended with {process.returncode} before it could be killed. "
                    "Use more rows."
                )
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            time.sleep(1)  # workers in other sessions notice that their parent is gone

    def digest(self) -> str:
        """Return a hash of the names and the bytes of all parts."""
        digest = hashlib.sha256()
        for path in self._parts():
            digest.update(path.name.encode() + path.read_bytes())
        return digest.hexdigest()

    def has_each_row_once(self, rows: int) -> bool:
        """Whether the parts have every row of the file exactly once."""
        import numpy as np
        import pyarrow.parquet as pq

        read = [pq.read_table(path, columns=["row"])["row"].to_numpy() for path in self._parts()]
        return np.array_equal(np.sort(np.concatenate(read)), np.arange(1, rows + 1))

    def _parts(self) -> list[Path]:
        return sorted(self.out.glob("part-*.parquet"))

    def _command(self) -> list[str]:
        command = [sys.executable, "-m", "plausiflow", "batch", str(self.explainer), str(self.rows_file)]
        command += [str(self.out), "--resume", "--engine", self.engine, "--jobs", str(self.workers)]
        command += ["--rows-per-unit", str(self.unit), "--device", self.device]
        if self.engine == "ray" and self.device == "cuda":
            command += ["--gpus-per-worker", str(1 / self.workers)]
        return command
