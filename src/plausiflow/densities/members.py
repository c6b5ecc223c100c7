"""The members of an ensemble: trained in worker processes where that pays, evaluated side by side.

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
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeAlias

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from plausiflow.core import Training
from plausiflow.densities.flows import ConditionalFlow
from plausiflow.densities.mixed import MixedDensity, StackedMixed
from plausiflow.densities.stacked import StackedMAF
from plausiflow.errors import TrainingError
from plausiflow.progress import progress_bar

Member: TypeAlias = ConditionalFlow | MixedDensity
KINDS: dict[str, type[ConditionalFlow] | type[MixedDensity]] = {
    "flow": ConditionalFlow,
    "mixed": MixedDensity,
}

WORTH_A_WORKER = 100_000
"""Entries of the table from which training takes so long that starting an interpreter does not matter."""


def stack(members: list[Member]) -> nn.Module:
    """One module whose ``forward(x, y)`` gives each member's log-density, shape ``(M, n)``."""
    mixed = [member for member in members if isinstance(member, MixedDensity)]
    if mixed:
        return StackedMixed(mixed)
    flows = [member for member in members if isinstance(member, ConditionalFlow)]
    if flows[0].architecture == "maf":
        return StackedMAF(flows)
    return _OneByOne(flows)


class _OneByOne(nn.Module):
    """Members that cannot be stacked, one after the other."""

    def __init__(self, flows: list[ConditionalFlow]) -> None:
        super().__init__()
        self.flows = flows

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.stack([flow.log_prob(x, y) for flow in self.flows])


def settings_of(member: Member) -> dict[str, Any]:
    """What a member was made with, as plain values; :func:`member_from` takes it back."""
    kind = next(name for name, cls in KINDS.items() if type(member) is cls)
    values = {f.name: getattr(member, f.name) for f in fields(member) if f.init}
    return {"kind": kind} | {k: asdict(v) if isinstance(v, Training) else v for k, v in values.items()}


def member_from(settings: dict[str, Any]) -> Member:
    """A member that is not trained yet, from :func:`settings_of`, also through JSON."""
    values = {k: _tuples(v) for k, v in settings.items() if k != "kind"}
    for name in ("training", "levels_training"):
        if name in values:
            values[name] = Training(**{k: _tuples(v) for k, v in values[name].items()})
    return KINDS[settings["kind"]](**values)


def _tuples(value: Any) -> Any:  # noqa: ANN401
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


def train_members(
    flows: list[Member],
    x: Tensor,
    y: Tensor,
    kept: Tensor,
    n_classes: int,
    workers: int | None = None,
    label: str = "Training the members of the ensemble",
) -> None:
    """Fit every flow, in place, on its own rows: ``kept`` is bool, shape ``(M, n)``."""
    if workers is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        large = x.numel() >= WORTH_A_WORKER and x.device.type == "cpu"
        workers = min(cores, len(flows)) if large else 1
    with progress_bar(label, len(flows)) as advance:
        if workers > 1:
            _in_processes(flows, x, y, kept, n_classes, workers, advance)
            return
        with _one_thread():
            for flow, own in zip(flows, kept, strict=True):
                flow.fit(x[own], y[own], n_classes=n_classes)
                advance(1, "")


def _in_processes(
    flows: list[Member],
    x: Tensor,
    y: Tensor,
    kept: Tensor,
    n_classes: int,
    workers: int,
    advance: object,
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = {"x": x.contiguous(), "y": y.contiguous(), "kept": kept.contiguous()}
        save_file(rows, folder / "rows.safetensors")
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
                    task = {"n_classes": n_classes, "dtype": str(torch.get_default_dtype())}
                    (folder / f"{m}.json").write_text(json.dumps(task | {"settings": settings_of(flow)}))
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
    task = json.loads((folder / f"{member}.json").read_text())
    rows = load_file(folder / "rows.safetensors")
    torch.set_default_dtype(getattr(torch, task["dtype"].removeprefix("torch.")))
    kept = rows["kept"][member]
    flow = member_from(task["settings"]).fit(rows["x"][kept], rows["y"][kept], n_classes=task["n_classes"])
    save_file(flow.state(), folder / f"{member}.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
