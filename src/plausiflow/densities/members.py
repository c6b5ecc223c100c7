"""Members of an ensemble: trained in worker processes if that is faster, evaluated in one batched call.

A worker is a new interpreter that reads one folder and writes its weights as safetensors: no fork of a
process with threads, no guarded main module, no pickle. Members are always trained with one thread, so the
number of workers does not change the result.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from plausiflow.core import Training
from plausiflow.densities.flows import ConditionalFlow
from plausiflow.densities.mixed import MixedDensity, StackedMixed
from plausiflow.densities.stacked import StackedMAF
from plausiflow.errors import TrainingError
from plausiflow.progress import progress_bar

WORKER_CLASSES: dict[str, type[ConditionalFlow] | type[MixedDensity]] = {
    "flow": ConditionalFlow,
    "mixed": MixedDensity,
}
"""Densities that can be trained in a worker process, from their settings."""
WORTH_A_WORKER = 100_000
"""Number of table entries from which training takes much longer than the start of an interpreter."""


class Member(Protocol):
    """A density that can be a member of an ensemble or a judge."""

    def fit(self, x: Tensor, y: Tensor, *, n_classes: int | None = None) -> Self:
        """Learn from rows ``(n, d)`` and their classes ``(n,)``, of which some may have no rows."""
        ...

    def log_prob(self, x: Tensor, y: Tensor) -> Tensor:
        """Return :math:`log p(x | y)`, ``(n, d), (n,) -> (n,)``; keeps the graph."""
        ...

    def state(self) -> dict[str, Tensor]:
        """Return everything learned, as tensors."""
        ...

    def load_state(self, state: dict[str, Tensor]) -> object:
        """Restore what :meth:`state` returned, in an object with the same settings."""
        ...


M = TypeVar("M", bound=Member)


def copy_with_seed(base: M, random_state: int) -> M:
    """Return a copy with another seed, not fitted; a density without a seed is copied as it is."""
    if is_dataclass(base) and any(field.name == "random_state" and field.init for field in fields(base)):
        return replace(base, random_state=random_state)
    other = copy.deepcopy(base)
    if hasattr(other, "random_state"):
        other.random_state = random_state
    return other


def stack(members: Sequence[Member]) -> nn.Module:
    """Return one module whose ``forward(x, y)`` gives each member's log-density, shape ``(M, n)``."""
    mixed = [member for member in members if isinstance(member, MixedDensity)]
    if len(mixed) == len(members):
        return StackedMixed(mixed)
    flows = [m for m in members if isinstance(m, ConditionalFlow) and m.architecture == "maf"]
    return StackedMAF(flows) if len(flows) == len(members) else _OneByOne(members)


class _OneByOne(nn.Module):
    """Members that cannot be stacked, evaluated one after the other."""

    def __init__(self, members: Sequence[Member]) -> None:
        super().__init__()
        self.members = list(members)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.stack([member.log_prob(x, y) for member in self.members])


def member_settings(member: ConditionalFlow | MixedDensity) -> dict[str, Any]:
    """Return the settings of a member as plain values; :func:`build_member` reads them."""
    kind = next(name for name, known in WORKER_CLASSES.items() if type(member) is known)
    values = {f.name: getattr(member, f.name) for f in fields(member) if f.init}
    return {"kind": kind} | {k: asdict(v) if isinstance(v, Training) else v for k, v in values.items()}


def build_member(settings: dict[str, Any]) -> ConditionalFlow | MixedDensity:
    """Return the unfitted member that :func:`member_settings` described, also through JSON."""
    values = {k: _to_tuples(v) for k, v in settings.items() if k != "kind"}
    for name in ("training", "levels_training"):
        if name in values:
            values[name] = Training(**{k: _to_tuples(v) for k, v in values[name].items()})
    return WORKER_CLASSES[settings["kind"]](**values)


def _to_tuples(value: Any) -> Any:  # noqa: ANN401
    return tuple(map(_to_tuples, value)) if isinstance(value, list | tuple) else value


def train_members(
    members: Sequence[Member],
    x: Tensor,
    y: Tensor,
    training_rows: Tensor,
    n_classes: int,
    workers: int | None = None,
    label: str = "Training the members of the ensemble",
) -> None:
    """Fit every member, in place, on its own rows, given as a mask of shape ``(M, n)``.

    By default there is one worker per core if the table is large. Densities of other classes than
    ``WORKER_CLASSES`` are trained in this process.
    """
    if workers is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        large = x.numel() >= WORTH_A_WORKER and x.device.type == "cpu"
        workers = min(cores, len(members)) if large else 1
    with progress_bar(label, len(members)) as advance:
        if workers > 1 and all(type(member) in WORKER_CLASSES.values() for member in members):
            rows = {"x": x.contiguous(), "y": y.contiguous(), "training_rows": training_rows.contiguous()}
            _train_in_processes(members, rows, n_classes, workers, lambda: advance(1, ""))
            return
        with _one_thread():
            for member, used in zip(members, training_rows, strict=True):
                member.fit(x[used], y[used], n_classes=n_classes)
                advance(1, "")


def _train_in_processes(
    members: Sequence[Any], rows: dict[str, Tensor], n_classes: int, workers: int, advance: Callable[[], None]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_file(rows, folder / "rows.safetensors")
        waiting = list(enumerate(members))
        running: dict[int, subprocess.Popen[str]] = {}
        path = os.pathsep.join(filter(None, sys.path))
        environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    m, member = waiting.pop(0)
                    settings, dtype = member_settings(member), str(torch.get_default_dtype())
                    task = {"n_classes": n_classes, "dtype": dtype, "settings": settings}
                    (folder / f"{m}.json").write_text(json.dumps(task))
                    command = [sys.executable, "-m", "plausiflow.densities.members", name, str(m)]
                    running[m] = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
                m, process = next(iter(running.items()))
                _, errors = process.communicate()
                del running[m]
                if process.returncode:
                    lines = errors.strip().splitlines() or [f"its process ended with {process.returncode}"]
                    raise TrainingError(f"Member {m} of the ensemble could not be trained: {lines[-1]}")
                members[m].load_state(load_file(folder / f"{m}.safetensors"))
                advance()
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


def main(folder: Path, number: int) -> None:
    """Train one member in a worker: read its settings and rows, fit it, write its weights."""
    torch.set_num_threads(1)
    task = json.loads((folder / f"{number}.json").read_text())
    rows = load_file(folder / "rows.safetensors")
    torch.set_default_dtype(getattr(torch, task["dtype"].removeprefix("torch.")))
    used = rows["training_rows"][number]
    member = build_member(task["settings"]).fit(rows["x"][used], rows["y"][used], n_classes=task["n_classes"])
    save_file(member.state(), folder / f"{number}.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
