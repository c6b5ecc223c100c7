"""One batch run that is measured: the command in a process of its own, what it said, and what it wrote."""

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
from plausiflow_bench.study import Row

_SUMMARY = re.compile(
    r"([\d,]+) rows \((.*?)\) in .*?; ([\d,]+) rows now, in ([\d,]+) seconds .*?"
    r"a worker used ([\d,]+) MiB, ([\d,]+) beyond"
)


class BatchRunError(PlausiflowError, RuntimeError):
    """A batch run that was to be measured failed."""


@dataclass(frozen=True, kw_only=True)
class BatchRun:
    """``plausiflow batch`` with these arguments.

    Attributes:
        explainer: Its folder.
        given: The file of rows.
        out: Where answers go.
        device: ``cpu`` or ``cuda``.
        unit: Most rows of a unit.
        engine: ``local`` or ``ray``.
        workers: How many; on Ray they share one GPU where the device is one.
    """

    explainer: Path
    given: Path
    out: Path
    device: str
    unit: int
    engine: str = "local"
    workers: int = 1

    def measure(self) -> Row:
        """Run it to its end, and read what it says there."""
        start = time.monotonic()
        done = subprocess.run(self._command(), capture_output=True, text=True, check=False)
        seconds = time.monotonic() - start
        told = _SUMMARY.search(done.stdout)
        if done.returncode or told is None:
            text = " ".join((done.stdout + done.stderr).split())[-500:]
            raise BatchRunError(
                f"`plausiflow batch` ended with {done.returncode}: {text} Where {self.out} was complete "
                "already, there is nothing to measure: take another folder."
            )
        rows, now = (int(told[i].replace(",", "")) for i in (1, 3))
        found = re.search(r"([\d,]+) found", told[2])
        return {
            "method": self.engine,
            "device": self.device,
            "cores": os.cpu_count() or 1,
            "workers": self.workers,
            "rows": rows,
            "found": int(found[1].replace(",", "")) / rows if found else 0.0,
            "seconds": round(seconds),
            "throughput": now / seconds,
            "worker_mib": int(told[5].replace(",", "")),
            "beyond_mib": int(told[6].replace(",", "")),
            "once": "yes" if self.each_once(rows) else "no",
        }

    def kill(self, times: int, within: float, seed: int) -> None:
        """Begin it, and kill it with all its workers up to ``within`` seconds after a part; so many times."""
        rng, quiet = random.Random(seed), subprocess.DEVNULL
        for _ in range(times):
            before = len(self._parts())
            process = subprocess.Popen(self._command(), stdout=quiet, stderr=quiet, start_new_session=True)
            while process.poll() is None and len(self._parts()) == before:
                time.sleep(0.1)
            time.sleep(rng.uniform(0, within))
            if process.poll() is not None:
                raise BatchRunError(
                    f"`plausiflow batch` was to be killed, and ended before with {process.returncode}. "
                    "Take more rows."
                )
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            time.sleep(1)  # workers in sessions of their own see that their parent is gone

    def digest(self) -> str:
        """Of the names and the bytes of all parts."""
        digest = hashlib.sha256()
        for path in self._parts():
            digest.update(path.name.encode() + path.read_bytes())
        return digest.hexdigest()

    def each_once(self, rows: int) -> bool:
        """Whether the parts have a line for each row of the one file, and no row twice."""
        import numpy as np
        import pyarrow.parquet as pq

        read = [pq.read_table(path, columns=["row"])["row"].to_numpy() for path in self._parts()]
        return np.array_equal(np.sort(np.concatenate(read)), np.arange(1, rows + 1))

    def _parts(self) -> list[Path]:
        return sorted(self.out.glob("part-*.parquet"))

    def _command(self) -> list[str]:
        command = [sys.executable, "-m", "plausiflow", "batch", str(self.explainer), str(self.given)]
        command += [str(self.out), "--resume", "--engine", self.engine, "--jobs", str(self.workers)]
        command += ["--rows-per-unit", str(self.unit), "--device", self.device]
        if self.engine == "ray" and self.device == "cuda":
            command += ["--gpus-per-worker", str(1 / self.workers)]
        return command
