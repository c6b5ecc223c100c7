"""Saved explainers with damaged files: each must load and answer as before, or raise a clear error.

Each copy is damaged in one place and loaded in a separate process, which may not crash.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from plausiflow_bench.soak.outcomes import Countdown, Outcomes

SECONDS = 120.0
_PROGRAM = """
import sys, warnings
import pandas as pd
from plausiflow import Explainer
from plausiflow.errors import PlausiflowError
warnings.simplefilter("ignore")
rows, expected = pd.read_pickle(sys.argv[1]), pd.read_pickle(sys.argv[2])
for folder in sys.argv[3:]:
    try:
        found = Explainer.load(folder).explain(rows).counterfactuals
    except PlausiflowError:
        print("clear", flush=True)
    except BaseException as error:
        print("wrong", type(error).__name__, str(error)[:200].replace(chr(10), " "), flush=True)
    else:
        print("right" if found.equals(expected) else "wrong other answers", flush=True)
"""


def soak_files(
    explainer: Path, rows: Path, expected: Path, folder: Path, outcomes: Outcomes, countdown: Countdown
) -> None:
    """Damage copies of a saved explainer until the time is over; ``rows`` and ``expected`` are pickles."""
    draw, together = random.Random(0), 12
    while not countdown.over:
        copies, damage = [], []
        for number in range(together):
            copy = folder / f"copy{number}"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(explainer, copy)
            damage.append(_damage(copy, draw))
            copies.append(copy)
        lines, code = _load(rows, expected, copies)
        for place, what in enumerate(damage):
            line = lines[place] if place < len(lines) else ""
            if line:
                outcomes.add(line.split()[0], f"{what}: {line}")
            elif place == len(lines):
                outcomes.add("wrong", f"{what}: the process ended with {code}")


def _load(rows: Path, expected: Path, copies: list[Path]) -> tuple[list[str], int]:
    command = [sys.executable, "-c", _PROGRAM, str(rows), str(expected), *map(str, copies)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired as late:
        text = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or ""
        return text.splitlines(), -1
    return done.stdout.splitlines(), done.returncode


def _damage(folder: Path, draw: random.Random) -> str:
    """Damage one file of a folder; return what was done."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path = draw.choice(files)
    ways: list[Callable[[Path, random.Random], str]] = [_flip, _truncate, _delete, _append]
    if path.suffix == ".json":
        ways += [_change_json] * 4
    return f"{path.name}: {draw.choice(ways)(path, draw)}"


def _flip(path: Path, draw: random.Random) -> str:
    content = bytearray(path.read_bytes())
    places = [draw.randrange(len(content)) for _ in range(draw.choice((1, 4, 64)))] if content else []
    for place in places:
        content[place] ^= 1 << draw.randrange(8)
    path.write_bytes(bytes(content))
    return f"{len(places)} bits flipped"


def _truncate(path: Path, draw: random.Random) -> str:
    content = path.read_bytes()
    path.write_bytes(content[: draw.randrange(len(content) + 1)])
    return "truncated"


def _delete(path: Path, draw: random.Random) -> str:
    path.unlink()
    return "deleted"


def _append(path: Path, draw: random.Random) -> str:
    path.write_bytes(path.read_bytes() + bytes(draw.randrange(256) for _ in range(100)))
    return "bytes appended"


def _change_json(path: Path, draw: random.Random) -> str:
    """Replace one value of a document by another one, of another type or size."""
    try:
        document: Any = json.loads(path.read_bytes())
    except ValueError:
        return "left"
    places: list[tuple[Any, Any]] = []
    pending = [document]
    while pending:
        own = pending.pop()
        items = list(own.items()) if isinstance(own, dict) else list(enumerate(own))
        for key, value in items:
            places.append((own, key))
            if isinstance(value, dict | list):
                pending.append(value)
    if not places:
        return "left"
    own, key = draw.choice(places)
    values: list[Any] = [
        None,
        -1,
        2**63,
        1e308,
        "",
        "x" * 1000,
        [],
        {},
        True,
        [[[]]],
        "../../etc/passwd",
        float("nan"),
    ]
    own[key] = draw.choice(values)
    path.write_text(json.dumps(document))
    return f"{key!r} is now {str(own[key])[:40]!r}"
