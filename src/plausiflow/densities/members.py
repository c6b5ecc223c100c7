"""Members of an ensemble: trained in worker processes if that is faster, evaluated in one batched call.

A worker is a new interpreter that reads its rows from a pipe and writes its weights to another: no fork of a
process with threads, no guarded main module, no pickle, and no file that would be left with training rows if
this process is killed. A worker ends when its parent ends. Members are always trained with one thread, so the
number of workers does not change the result.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, fields, is_dataclass, replace
from typing import Any, Protocol, Self, TypeVar

import torch
from safetensors.torch import load, save
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
            tasks = [
                _write_task(member, x[used], y[used], n_classes)
                for member, used in zip(members, training_rows, strict=True)
            ]
            _train_in_processes(members, tasks, workers, lambda: advance(1, ""))
            return
        with _one_thread():
            for member, used in zip(members, training_rows, strict=True):
                member.fit(x[used], y[used], n_classes=n_classes)
                advance(1, "")


def _write_task(member: Any, x: Tensor, y: Tensor, n_classes: int) -> bytes:  # noqa: ANN401
    """Return the settings and the rows of a member, as :func:`train_member` reads them."""
    settings, dtype = member_settings(member), str(torch.get_default_dtype())
    task = {"n_classes": n_classes, "dtype": dtype, "settings": settings}
    return json.dumps(task).encode() + b"\n" + save({"x": x.contiguous(), "y": y.contiguous()})


def _train_in_processes(
    members: Sequence[Any], tasks: Sequence[bytes], workers: int, advance: Callable[[], None]
) -> None:
    path = os.pathsep.join(filter(None, sys.path))
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "plausiflow.densities.members", str(os.getpid())]
    running: list[subprocess.Popen[bytes]] = []
    stopped = threading.Event()

    def train(m: int) -> bytes:
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe)
        running.append(process)
        if stopped.is_set():
            process.kill()
        weights, errors = process.communicate(tasks[m])
        if process.returncode:
            lines = errors.decode(errors="replace").strip().splitlines()
            reason = lines[-1] if lines else f"its process ended with {process.returncode}"
            raise TrainingError(f"Member {m} of the ensemble could not be trained: {reason}")
        return weights

    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(train, m) for m in range(len(members))]
        try:
            for future in as_completed(futures):
                future.result()
                advance()
        finally:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            for process in [each for each in running if each.poll() is None]:
                process.kill()
    for member, future in zip(members, futures, strict=True):
        member.load_state(load(future.result()))


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def train_member(task: bytes) -> bytes:
    """Return the weights of the member of a task, trained with one thread."""
    torch.set_num_threads(1)
    header, _, content = task.partition(b"\n")
    described, rows = json.loads(header), load(content)
    torch.set_default_dtype(getattr(torch, described["dtype"].removeprefix("torch.")))
    member = build_member(described["settings"])
    return save(member.fit(rows["x"], rows["y"], n_classes=described["n_classes"]).state())


def _end_with_parent(parent: int) -> None:
    """End this process if its parent has ended, which is then no longer ``parent``."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def main(parent: int) -> None:
    """Train one member in a worker of a process: read its settings and rows, fit it, write its weights."""
    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as output:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is not part of the weights
        output.write(train_member(sys.stdin.buffer.read()))


if __name__ == "__main__":
    main(int(sys.argv[1]))
