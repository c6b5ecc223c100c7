"""Batch runs that are killed and resumed: their bytes must be those of an undisturbed run."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from plausiflow_bench.soak.outcomes import Countdown, Outcomes

MOST_KILLS, ROWS_PER_UNIT = 6, 20
FIRST_SECONDS, LAST_SECONDS = 0.5, 12.0
_PROGRAM = "from plausiflow.cli import app; app()"


def soak_batches(explainer: Path, data: Path, folder: Path, outcomes: Outcomes, countdown: Countdown) -> None:
    """Run, kill and resume batch runs until the time is over."""
    plain = folder / "plain"
    done = _start(explainer, data, plain, resume=False).wait()
    if done:
        return outcomes.add("wrong", f"an undisturbed run ended with {done}")
    expected, draw, number = _parts(plain), random.Random(0), 0
    while not countdown.over:
        out = folder / f"killed{number}"
        number += 1
        _run_with_kills(explainer, data, out, draw, outcomes, countdown)
        found = _parts(out)
        if found.keys() != expected.keys():
            outcomes.add("lost", f"parts {sorted(found.keys() ^ expected.keys())[:3]} of a killed run")
        else:
            same = found == expected and (out / "_SUCCESS").exists()
            outcomes.add("right" if same else "wrong", "a killed run has other bytes")
        shutil.rmtree(out)
    return None


def _run_with_kills(
    explainer: Path, data: Path, out: Path, draw: random.Random, outcomes: Outcomes, countdown: Countdown
) -> None:
    for _ in range(draw.randrange(1, MOST_KILLS)):
        if countdown.over:
            break
        process = _start(explainer, data, out, resume=out.exists())
        try:
            process.wait(draw.uniform(FIRST_SECONDS, LAST_SECONDS))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            outcomes.add("clear")
            time.sleep(0.2)
        else:
            break
    code = _start(explainer, data, out, resume=out.exists()).wait()
    if code:
        outcomes.add("wrong", f"a resumed run ended with {code}")


def _start(explainer: Path, data: Path, out: Path, *, resume: bool) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", _PROGRAM, "batch", str(explainer), str(data), str(out)]
    command += ["--rows-per-unit", str(ROWS_PER_UNIT), *(["--resume"] if resume else [])]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdout=quiet, stderr=quiet)


def _parts(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(out.glob("part-*.parquet"))}
