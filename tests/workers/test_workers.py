"""Workers: what happens to tasks, in which order they are given out, and what becomes of workers that die."""

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
    locked,
    processes,
    tasks,
)


@dataclass
class Work:
    """Squares numbers; notes who did what, and ends its process where it is told to."""

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


def test_a_worker_stays_with_a_group_then_takes_one_that_nobody_has():
    groups = ["a", "a", "b", "b", "c", "c"]
    queue = tasks.Queue(range(6), groups.__getitem__)
    one, two = queue.take(), queue.take()
    assert (one, two) == (0, 2)
    queue.returned(one, None)
    assert queue.take(one) == 1
    queue.returned(1, None)
    assert queue.take(1) == 4
    assert queue.take() == 3  # every group is somebody's: the first that waits
    queue.lost(3, "it died")
    assert (queue.waiting, queue.left) == (2, 4)
    assert queue.take(4) == 5
    assert queue.take(4) == 3
    assert queue.lost(3, "it died") == [Lost(3, "tried 2 times, the last time it died")]
    assert (queue.waiting, queue.left) == (0, 3)


def test_giving_out_a_hundred_thousand_tasks_takes_no_time():
    queue = tasks.Queue(range(100_000), lambda task: task % 3)
    start, last = time.process_time(), None
    for _ in range(100_000):
        last = queue.take(last)
        queue.returned(last, None)
    assert queue.left == 0
    assert time.process_time() - start < 2


def test_a_number_of_workers_must_be_positive():
    for executor in (Processes, Ray):
        with pytest.raises(InvalidInputError, match="`workers` must be at least 1; got 0"):
            executor(workers=0)


def test_a_share_of_gpus_must_not_be_negative():
    with pytest.raises(InvalidInputError, match="`gpus` must be a number of 0 or more, such as 1; got -1"):
        Ray(gpus=-1)


def test_inline_tells_what_happens_in_order():
    events = list(Inline().run(str, [5, 6], hash))
    assert events == [Started(0), Returned(0, "5"), Started(1), Returned(1, "6")]


def test_ray_is_asked_for_by_name_where_it_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"plausiflow\[ray\]"):
        next(Ray().run(str, [1], hash))


def test_a_lock_that_is_held_says_by_whom(tmp_path):
    with (
        locked(tmp_path / "lock"),
        pytest.raises(LockedError, match=f"process {os.getpid()} on "),
        locked(tmp_path / "lock", wait=False),
    ):
        pass
    with locked(tmp_path / "lock", wait=False):
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
    monkeypatch.setattr(processes, "_serve", gone)
    with pytest.raises(WorkerError, match=r"end before they have started.*__main__"):
        list(Processes(workers=1).run(str, [1], hash))


class Deadly:
    """Ends the process that it is sent to."""

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


def test_memory_that_is_kept_is_not_cleared_again():
    counts = {}
    for how in ("keep", "leave"):
        command = [sys.executable, "-c", FAULTS, how]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        if done.returncode == 77:
            pytest.skip("the C library of this system cannot be asked to keep memory")
        assert done.returncode == 0, done.stderr
        counts[how] = int(done.stdout)
    assert counts["keep"] < counts["leave"] / 10
