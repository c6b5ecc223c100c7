"""Executors: the events of tasks, the order in which workers get them, and workers that die; lock files."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from plausiflow.errors import InvalidInputError, MissingExtraError
from plausiflow.workers import (
    Inline,
    LockedError,
    Lost,
    Processes,
    Ray,
    Returned,
    Started,
    WorkerError,
    hold_lock,
    processes,
    tasks,
)
from processes import forked, wait_for


@dataclass
class Work:
    """Squares numbers, logs which process did it, and kills its process for some tasks."""

    log: str
    dies: tuple[int, ...] = ()
    dies_once: tuple[int, ...] = ()
    done: list[int] = field(default_factory=list)

    def __call__(self, task: int) -> tuple[int, int, int]:
        with open(self.log, "a") as file:
            file.write(f"{task} {os.getpid()}\n")
        first = Path(self.log).read_text().count(f"{task} ") == 1
        if task in self.dies or (task in self.dies_once and first):
            os.kill(os.getpid(), signal.SIGKILL)
        self.done.append(task)
        return task**2, len(self.done), torch.get_num_threads()

    def tries(self) -> Counter:
        return Counter(int(line.split()[0]) for line in Path(self.log).read_text().splitlines())


def results(events) -> dict[int, object]:
    return {
        event.number: event.result if isinstance(event, Returned) else event.reason
        for event in events
        if not isinstance(event, Started)
    }


def test_a_worker_stays_with_a_group_then_takes_one_without_a_worker():
    groups = ["a", "a", "b", "b", "c", "c"]
    queue = tasks.TaskQueue(range(6), groups.__getitem__)
    one, two = queue.take(), queue.take()
    assert (one, two) == (0, 2)
    queue.finish(one, None)
    assert queue.take(one) == 1
    queue.finish(1, None)
    assert queue.take(1) == 4
    assert queue.take() == 3  # every group has a worker: the first waiting task
    queue.fail(3, "it died")
    assert (queue.n_waiting, queue.n_left) == (2, 4)
    assert queue.take(4) == 5
    assert queue.take(4) == 3
    assert queue.fail(3, "it died") == [Lost(3, "tried 2 times, the last time it died")]
    assert (queue.n_waiting, queue.n_left) == (0, 3)


def test_a_queue_of_a_hundred_thousand_tasks_is_fast():
    queue = tasks.TaskQueue(range(100_000), lambda task: task % 3)
    start, last = time.process_time(), None
    for _ in range(100_000):
        last = queue.take(last)
        queue.finish(last, None)
    assert queue.n_left == 0
    assert time.process_time() - start < 2


def test_a_number_of_workers_must_be_positive():
    for executor in (Processes, Ray):
        with pytest.raises(InvalidInputError, match="`workers` must be at least 1; got 0"):
            executor(workers=0)


def test_a_share_of_gpus_must_not_be_negative():
    with pytest.raises(InvalidInputError, match="`gpus` must be a number of 0 or more, such as 1; got -1"):
        Ray(gpus=-1)


def test_inline_yields_events_in_order():
    events = list(Inline().run(str, [5, 6], hash))
    assert events == [Started(0), Returned(0, "5"), Started(1), Returned(1, "6")]


def test_a_missing_ray_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"plausiflow\[ray\]"):
        next(Ray().run(str, [1], hash))


def test_a_held_lock_names_its_holder(tmp_path):
    with (
        hold_lock(tmp_path / "lock"),
        pytest.raises(LockedError, match=f"process {os.getpid()} on "),
        hold_lock(tmp_path / "lock", wait=False),
    ):
        pass
    with hold_lock(tmp_path / "lock", wait=False):
        pass
    assert (tmp_path / "lock").read_text() == ""


def test_a_lock_is_released_when_its_holder_is_killed(tmp_path):
    lock = tmp_path / "lock"

    def hold():
        with hold_lock(lock):
            time.sleep(1000)

    pid = forked(hold)
    wait_for(lambda: lock.exists() and lock.read_text().startswith(f"process {pid} on "))
    with pytest.raises(LockedError, match=f"process {pid} on "), hold_lock(lock, wait=False):
        pass
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    with hold_lock(lock, wait=False):
        assert lock.read_text().startswith(f"process {os.getpid()} on ")


def test_a_lock_is_waited_for(tmp_path):
    lock, log = tmp_path / "lock", tmp_path / "log"

    def hold():
        with hold_lock(lock):
            log.touch()
            time.sleep(0.3)
            log.write_text("done")

    pid = forked(hold)
    wait_for(log.exists)
    with hold_lock(lock):
        assert log.read_text() == "done"
    os.waitpid(pid, 0)


def test_no_lock_is_held_where_the_file_system_has_none(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSYS, "no locks here")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with hold_lock(tmp_path / "lock", wait=False), hold_lock(tmp_path / "lock", wait=False):
        pass


@pytest.mark.slow
def test_a_task_is_tried_twice_and_a_worker_keeps_its_work(tmp_path):
    work = Work(str(tmp_path / "log"), dies=(3,), dies_once=(5,))
    found = results(Processes(workers=2).run(work, range(8), hash))
    assert found.pop(3).startswith("tried 2 times, the last time its process was ended by SIGKILL")
    assert {number: value[0] for number, value in found.items()} == {n: n**2 for n in range(8) if n != 3}
    assert max(value[1] for value in found.values()) > 1
    assert {value[2] for value in found.values()} == {1}
    assert work.tries() == Counter(range(8)) + Counter([3, 5])


def gone(*_) -> None:
    os._exit(7)


@pytest.mark.slow
def test_workers_that_cannot_start_are_an_error(monkeypatch):
    monkeypatch.setattr(processes, "_run_worker", gone)
    with pytest.raises(WorkerError, match=r"end before they have started.*__main__"):
        list(Processes(workers=1).run(str, [1], hash))


class Deadly:
    """Ends the process that unpickles it."""

    def __reduce__(self):
        return gone, ()

    def __call__(self, task: int) -> None: ...


@pytest.mark.slow
@pytest.mark.ray
def test_on_ray_the_same_happens_as_in_processes(tmp_path):
    ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")
    work = Work(str(tmp_path / "log"), dies=(3,), dies_once=(5,))
    found = results(Ray(workers=2).run(work, range(8), hash))
    assert found.pop(3).startswith("tried 2 times, the last time")
    assert {number: value[0] for number, value in found.items()} == {n: n**2 for n in range(8) if n != 3}
    assert max(value[1] for value in found.values()) > 1
    assert {value[2] for value in found.values()} == {1}
    assert work.tries() == Counter(range(8)) + Counter([3, 5])
    assert not ray.is_initialized()


@pytest.mark.slow
@pytest.mark.ray
def test_on_ray_what_cannot_start_is_an_error():
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    with pytest.raises(WorkerError, match=r"asks for 2 GPU, and the cluster has 0"):
        list(Ray(gpus=2).run(str, [1], hash))
    with pytest.raises(WorkerError, match=r"Actors on Ray end before they have started"):
        list(Ray(workers=1).run(Deadly(), [1], hash))


FAULTS = """
import resource, sys
import torch
from plausiflow.workers.memory import keep_memory
if sys.argv[1] == "keep" and not keep_memory():
    sys.exit(77)
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def work():
    return [float(torch.ones(12_000_000).sum()) for _ in range(20)]
work()
before = faults()
work()
print(faults() - before)
"""


@pytest.mark.slow
def test_kept_memory_is_not_cleared_again():
    counts = {}
    for how in ("keep", "leave"):
        command = [sys.executable, "-c", FAULTS, how]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        if done.returncode == 77:
            pytest.skip("the C library of this system cannot keep freed memory")
        assert done.returncode == 0, done.stderr
        counts[how] = int(done.stdout)
    assert counts["keep"] < counts["leave"] / 10


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc, which Linux has")
def test_a_worker_hears_no_ctrl_c_from_its_first_moment():
    worker = processes._WorkerProcess(str, Path(os.devnull))
    try:
        status = Path(f"/proc/{worker.process.pid}/status").read_text()
        masks = dict(
            line.split(":\t") for line in status.splitlines() if line.startswith(("SigBlk", "SigIgn"))
        )
        deaf = int(masks["SigBlk"], 16) | int(masks["SigIgn"], 16)
        assert deaf >> (signal.SIGINT - 1) & 1
    finally:
        worker.kill()
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, set())
