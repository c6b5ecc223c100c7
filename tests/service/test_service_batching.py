"""Batching of jobs that only count: which run together, and which are refused, dropped and finished."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass, field

import pytest

from plausiflow.errors import ModelError
from plausiflow.service import batching
from plausiflow.service.batching import Batcher, JobsRejected
from processes import wait_for


@dataclass(frozen=True, eq=False)
class NumberedJob:
    """A job whose result is its number, and how many jobs ran together."""

    run: Callable
    number: int
    key: str = "a"
    size: int = 1


@dataclass
class Recorder:
    """Runs jobs and records which ran together; it waits until ``gate`` is set."""

    calls: list[list[int]] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    started: threading.Event = field(default_factory=threading.Event)
    seconds: list[float] = field(default_factory=list)

    def job(self, number, key="a", size=1):
        """Return a job that this recorder runs."""
        return NumberedJob(self, number, key, size)

    def __call__(self, jobs, seconds):
        self.started.set()
        self.gate.wait(10)
        self.calls.append([job.number for job in jobs])
        self.seconds.append(seconds)
        wrong = [job.number for job in jobs if job.number < 0]
        if wrong:
            raise SystemExit if wrong[0] == -2 else ValueError(wrong[0])
        return [(job.number, len(jobs)) for job in jobs]


@pytest.fixture
def recorder():
    return Recorder()


@pytest.fixture
def batcher(recorder):
    batcher = Batcher(queue_rows=20, batch_rows=8, slow=5, wait=1.0)
    batcher.start()
    yield batcher
    recorder.gate.set()
    batcher.close(10)


def occupy(batcher, recorder):
    """Return the future of a job that keeps the thread busy until the gate opens."""
    (future,) = batcher.submit([recorder.job(0, "first")], 10)
    assert recorder.started.wait(10)
    return future


def test_waiting_jobs_run_together_by_key_and_each_gets_its_own_result(batcher, recorder):
    first = occupy(batcher, recorder)
    futures = [batcher.submit([recorder.job(n, "ab"[n % 2])], 10)[0] for n in range(1, 7)]
    recorder.gate.set()
    assert [future.result(10) for future in futures] == [(n, 3) for n in range(1, 7)]
    assert first.result(10) == (0, 1)
    assert recorder.calls == [[0], [1, 3, 5], [2, 4, 6]]


def test_a_batch_has_a_limited_number_of_rows_but_a_larger_job_runs_alone(batcher, recorder):
    occupy(batcher, recorder)
    futures = batcher.submit(
        [recorder.job(1, size=5), recorder.job(2, size=3), recorder.job(3, size=1), recorder.job(4, size=9)],
        10,
    )
    recorder.gate.set()
    assert [future.result(10)[0] for future in futures] == [1, 2, 3, 4]
    assert recorder.calls[1:] == [[1, 2], [3], [4]]


def test_a_batch_waits_while_more_jobs_keep_arriving(batcher, recorder, monkeypatch):
    monkeypatch.setattr(batching, "WAIT_SHARE", 1e9)
    recorder.gate.set()
    futures = batcher.submit([recorder.job(9)], 10)
    assert futures.pop().result(10) == (9, 1)
    for n in range(4):
        futures += batcher.submit([recorder.job(n)], 10)
        time.sleep(0.002)
    assert {future.result(10)[1] for future in futures} == {4}


def test_batches_shrink_after_a_slow_one_and_grow_after_fast_ones(recorder):
    batcher = Batcher(queue_rows=200, batch_rows=32, slow=0.5, wait=0)
    batcher.start()
    (first,) = batcher.submit([recorder.job(0, "first", size=32)], 10)
    assert recorder.started.wait(10)
    futures = batcher.submit([recorder.job(n) for n in range(1, 81)], 10)
    time.sleep(0.55)
    recorder.gate.set()
    assert [future.result(10)[0] for future in (first, *futures)] == list(range(81))
    assert [len(call) for call in recorder.calls] == [1, 16, 32, 32]
    batcher.close(10)


def test_a_full_queue_refuses_all_of_a_request_and_accepts_the_next_one_that_fits(batcher, recorder):
    occupy(batcher, recorder)
    taken = batcher.submit([recorder.job(n, size=6) for n in range(1, 4)], 10)
    with pytest.raises(JobsRejected, match="18 rows are waiting"):
        batcher.submit([recorder.job(8), recorder.job(9, size=2)], 10)
    assert batcher.waiting_rows == 18
    taken += batcher.submit([recorder.job(8, size=2)], 10)
    recorder.gate.set()
    assert [future.result(10)[0] for future in taken] == [1, 2, 3, 8]
    assert batcher.waiting_rows == 0
    assert batcher.submit([recorder.job(9, size=20)], 10)[0].result(10) == (9, 1)


@pytest.mark.parametrize("wrong", [-1, -2])
def test_a_job_that_fails_affects_neither_its_neighbours_nor_the_thread(batcher, recorder, wrong):
    occupy(batcher, recorder)
    futures = batcher.submit([recorder.job(n) for n in (1, 2, wrong, 3, 4)], 10)
    recorder.gate.set()
    assert [futures[i].result(10)[0] for i in (0, 1, 3, 4)] == [1, 2, 3, 4]
    assert isinstance(futures[2].exception(10), ValueError if wrong == -1 else RuntimeError)
    assert batcher.submit([recorder.job(5)], 10)[0].result(10) == (5, 1)


def test_a_cancelled_or_late_job_does_not_run(batcher, recorder):
    occupy(batcher, recorder)
    gone, late, right = (batcher.submit([recorder.job(n)], s)[0] for n, s in ((1, 10), (2, 0.01), (3, 10)))
    assert gone.cancel()
    time.sleep(0.02)
    recorder.gate.set()
    assert right.result(10) == (3, 1)
    assert isinstance(late.exception(10), TimeoutError)
    with pytest.raises(CancelledError):
        gone.result(10)
    assert recorder.calls == [[0], [3]]
    assert 8 < recorder.seconds[-1] < 9, "a tenth of the time is left for sending"


def test_a_closed_batcher_finishes_waiting_jobs_and_accepts_no_more(recorder):
    batcher = Batcher(queue_rows=20, batch_rows=1, slow=5, wait=5)
    batcher.start()
    first = occupy(batcher, recorder)
    futures = batcher.submit([recorder.job(n) for n in range(1, 5)], 10)
    ending = threading.Thread(target=batcher.close)
    ending.start()
    wait_for(lambda: not batcher.is_open)
    with pytest.raises(JobsRejected, match="shutting down"):
        batcher.submit([recorder.job(9)], 10)
    recorder.gate.set()
    ending.join(10)
    assert [future.result(0)[0] for future in (first, *futures)] == [0, 1, 2, 3, 4]


def test_the_duration_of_the_current_batch_is_known(batcher, recorder):
    assert batcher.busy_seconds() == 0
    occupy(batcher, recorder)
    time.sleep(0.01)
    assert batcher.busy_seconds() >= 0.01


def test_jobs_with_little_time_left_run_apart_and_the_others_keep_their_time(batcher, recorder):
    occupy(batcher, recorder)
    futures = [batcher.submit([recorder.job(n)], s)[0] for n, s in ((1, 10), (2, 2), (3, 8), (4, 1.5))]
    recorder.gate.set()
    assert [future.result(10)[0] for future in futures] == [1, 2, 3, 4]
    assert recorder.calls[1:] == [[4, 2], [3, 1]]
    assert recorder.seconds[1] < 1.5, "the time of the job that has the least"
    assert 6 < recorder.seconds[2] < 8


def test_a_model_that_fails_is_called_once_for_a_batch(batcher, recorder):
    def fail(jobs, seconds):
        recorder(jobs, seconds)
        raise ModelError("it is down")

    occupy(batcher, recorder)
    futures = batcher.submit([NumberedJob(fail, n) for n in range(1, 6)], 10)
    recorder.gate.set()
    assert {type(future.exception(10)) for future in futures} == {ModelError}
    assert recorder.calls == [[0], [1, 2, 3, 4, 5]]
