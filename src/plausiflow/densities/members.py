"""Training the members of an ensemble, in worker processes where that pays.

A worker is a fresh interpreter that reads one folder and writes its weights back as safetensors: no fork of a
process with threads, no need for a guarded main module, no pickle. Members are trained with one thread either
way, so that the number of workers does not change the result.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from plausiflow.densities.flows import ConditionalFlow
from plausiflow.errors import TrainingError
from plausiflow.progress import progress_bar
from plausiflow.training import Training

WORTH_A_WORKER = 100_000
"""Entries of the table from which training takes so long that starting an interpreter does not matter."""


def train_members(
    flows: list[ConditionalFlow], x: Tensor, y: Tensor, part: Tensor, n_classes: int, workers: int | None
) -> None:
    """Fit every flow, in place, on the rows that are not in its part."""
    if workers is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        large = x.numel() >= WORTH_A_WORKER and x.device.type == "cpu"
        workers = min(cores, len(flows)) if large else 1
    with progress_bar("Training the members of the ensemble", len(flows)) as advance:
        if workers > 1:
            _in_processes(flows, x, y, part, n_classes, workers, advance)
            return
        with _one_thread():
            for m, flow in enumerate(flows):
                flow.fit(x[part != m], y[part != m], n_classes=n_classes)
                advance(1, "")


def _in_processes(
    flows: list[ConditionalFlow],
    x: Tensor,
    y: Tensor,
    part: Tensor,
    n_classes: int,
    workers: int,
    advance: object,
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_file(
            {"x": x.contiguous(), "y": y.contiguous(), "part": part.contiguous()}, folder / "rows.safetensors"
        )
        waiting = list(enumerate(flows))
        running: dict[int, subprocess.Popen[str]] = {}
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "OMP_NUM_THREADS": "1",
        }
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    m, flow = waiting.pop(0)
                    settings = asdict(flow) | {
                        "member": m,
                        "n_classes": n_classes,
                        "dtype": str(torch.get_default_dtype()),
                    }
                    (folder / f"{m}.json").write_text(
                        json.dumps(
                            {k: v for k, v in settings.items() if not k.endswith("_") and k != "_frozen"}
                        )
                    )
                    command = [sys.executable, "-m", "plausiflow.densities.members", name, str(m)]
                    running[m] = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
                m, process = next(iter(running.items()))
                _, errors = process.communicate()
                del running[m]
                if process.returncode:
                    reason = (
                        errors.strip().splitlines() or [f"its process ended with {process.returncode}"]
                    )[-1]
                    raise TrainingError(f"Member {m} of the ensemble could not be trained: {reason}")
                flows[m].load_state(load_file(folder / f"{m}.safetensors"))
                advance(1, "")  # type: ignore[operator]
        finally:
            for process in running.values():
                process.kill()
                process.communicate()


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def main(folder: Path, member: int) -> None:
    """What a worker does: read its settings and rows, train, write its weights."""
    torch.set_num_threads(1)
    settings = json.loads((folder / f"{member}.json").read_text())
    rows = load_file(folder / "rows.safetensors")
    n_classes, m = settings.pop("n_classes"), settings.pop("member")
    torch.set_default_dtype(getattr(torch, settings.pop("dtype").removeprefix("torch.")))
    settings |= {"training": Training(**settings["training"]), "hidden": tuple(settings["hidden"])}
    kept = rows["part"] != m
    flow = ConditionalFlow(**settings).fit(rows["x"][kept], rows["y"][kept], n_classes=n_classes)
    save_file(flow.state(), folder / f"{member}.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
