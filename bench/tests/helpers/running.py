"""Shared by the tests of the runner: tasks, their work, and rows that can be compared.

The work writes a log line when a task begins and ends, which records what ran and how often.
"""

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from plausiflow_bench.harness.runner import TIME_COLUMNS, StudyTask
from processes import wait_for


def task(dataset: str = "moons", method: str = "PPCEF", fold: int = 0, **other) -> StudyTask:
    named = {"study": "test", "classifier": "lr", "seed": 0} | other
    return StudyTask(dataset=dataset, method=method, fold=fold, **named)


def grid(folds: int = 3) -> list[StudyTask]:
    return [task(d, m, f) for d in ("moons", "law") for m in ("PPCEF", "WACH") for f in range(folds)]


@dataclass(frozen=True)
class Work:
    """The work of a task; ``method`` selects how it misbehaves."""

    log: str
    seconds: float = 0.0

    def __call__(self, task: StudyTask) -> dict:
        self.note("begin", task)
        time.sleep(1000 if task.method == "sleeps" else self.seconds)
        if task.method == "raises":
            raise ValueError(f"no {task.dataset}")
        if task.method == "exits":
            sys.exit(3)
        if task.method == "dies after a fork" and not os.fork():
            self.note("child", task)
            time.sleep(1000)
        if task.method.startswith("dies after"):
            wait_for(lambda: self.count("child", task) == self.count("begin", task))
            os.kill(os.getpid(), signal.SIGKILL)
        if task.method == "dies" or (task.method == "dies once" and self.count("begin", task) == 1):
            os.kill(os.getpid(), signal.SIGKILL)
        drawn = float(torch.rand((), dtype=torch.float64))
        row = {"drawn": drawn, "nothing": float("nan"), "text": "ä\n", "whole": 3, "share": 0.1 + 0.2}
        row["threads"], row["dtype"] = torch.get_num_threads(), str(torch.get_default_dtype())
        self.note("end", task)
        return row

    def note(self, what: str, task: StudyTask) -> None:
        with open(self.log, "a") as file:
            file.write(f"{what} {task.key} {os.getpid()}\n")

    def count(self, what: str, task: StudyTask) -> int:
        return Path(self.log).read_text().count(f"{what} {task.key} ")

    def begun(self) -> list[str]:
        lines = Path(self.log).read_text().splitlines() if Path(self.log).exists() else []
        return [line.split()[1] for line in lines if line.startswith("begin")]


def returns_tensor(task: StudyTask) -> dict:
    return {"l2": torch.ones(())}


def untimed(rows: list[dict]) -> str:
    """Rows without their times, as text: floats to the last bit, and not-a-number equals itself."""
    return repr([{k: v for k, v in row.items() if k not in TIME_COLUMNS} for row in rows])


def finished(folder: Path) -> set[str]:
    return {path.stem for path in folder.glob("results/*.json")}
