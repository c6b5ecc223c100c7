"""Batching, with work that is only counted: what is done together, refused, dropped and finished."""

import threading
import time
from concurrent.futures import CancelledError
from dataclasses import dataclass, field

import pytest

from plausiflow.service import batching
from plausiflow.service.batching import Batcher, Closed, QueueFull
from processes import wait_for


@dataclass(frozen=True, eq=False)
class Sum:
    """Work that is answered with its number, and how much was done with it."""

    number: int
    key: str = "a"
    size: int = 1


@dataclass
class Counting:
    """Answers work, and remembers what was asked together; ``gate`` holds the first call back."""

    calls: list[list[int]] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    begun: threading.Event = field(default_factory=threading.Event)
    seconds: list[float] = field(default_factory=list)

    def __call__(self, works, seconds):
        self.begun.set()
        self.gate.wait(10)
        self.calls.append([w.number for w in works])
        self.seconds.append(seconds)
        wrong = [w.number for w in works if w.number < 0]
        if wrong:
            raise SystemExit if wrong[0] == -2 else ValueError(wrong[0])
        return [(w.number, len(works)) for w in works]


@pytest.fixture
def counting():
    return Counting()


@pytest.fixture
def batcher(counting):
    made = Batcher(counting, queue_rows=20, batch_rows=8, long=5, wait=1.0)
    made.start()
    yield made
    counting.gate.set()
    made.close(10)


def occupied(batcher, counting):
    """A future of work that keeps the thread busy until the gate opens."""
    (future,) = batcher.submit([Sum(0, "first")], 10)
    assert counting.begun.wait(10)
    return future


def test_work_that_waits_is_done_together_by_key_and_each_gets_its_own_answer(batcher, counting):
    first = occupied(batcher, counting)
    futures = [batcher.submit([Sum(n, "ab"[n % 2])], 10)[0] for n in range(1, 7)]
    counting.gate.set()
    assert [future.result(10) for future in futures] == [(n, 3) for n in range(1, 7)]
    assert first.result(10) == (0, 1)
    assert counting.calls == [[0], [1, 3, 5], [2, 4, 6]]


def test_no_more_rows_are_done_together_than_a_batch_has_but_larger_work_is_done_alone(batcher, counting):
    occupied(batcher, counting)
    futures = batcher.submit([Sum(1, size=5), Sum(2, size=3), Sum(3, size=1), Sum(4, size=9)], 10)
    counting.gate.set()
    assert [future.result(10)[0] for future in futures] == [1, 2, 3, 4]
    assert counting.calls[1:] == [[1, 2], [3], [4]]


def test_work_that_comes_while_more_keeps_coming_is_waited_for(batcher, counting, monkeypatch):
    monkeypatch.setattr(batching, "WAITED", 1e9)
    counting.gate.set()
    futures = batcher.submit([Sum(9)], 10)
    assert futures.pop().result(10) == (9, 1)
    for n in range(4):
        futures += batcher.submit([Sum(n)], 10)
        time.sleep(0.002)
    assert {future.result(10)[1] for future in futures} == {4}


def test_less_is_done_together_where_it_took_long_and_more_again_where_it_is_quick(counting):
    batcher = Batcher(counting, queue_rows=200, batch_rows=32, long=0.5, wait=0)
    batcher.start()
    (first,) = batcher.submit([Sum(0, "first", size=32)], 10)
    assert counting.begun.wait(10)
    futures = batcher.submit([Sum(n) for n in range(1, 81)], 10)
    time.sleep(0.55)
    counting.gate.set()
    assert [future.result(10)[0] for future in (first, *futures)] == list(range(81))
    assert [len(call) for call in counting.calls] == [1, 16, 32, 32]
    batcher.close(10)


def test_a_full_queue_refuses_all_of_a_request_and_takes_the_next_when_there_is_room(batcher, counting):
    occupied(batcher, counting)
    taken = batcher.submit([Sum(n, size=6) for n in range(1, 4)], 10)
    with pytest.raises(QueueFull):
        batcher.submit([Sum(8), Sum(9, size=2)], 10)
    assert batcher.waiting_rows == 18
    taken += batcher.submit([Sum(8, size=2)], 10)
    counting.gate.set()
    assert [future.result(10)[0] for future in taken] == [1, 2, 3, 8]
    assert batcher.waiting_rows == 0
    assert batcher.submit([Sum(9, size=20)], 10)[0].result(10) == (9, 1)


@pytest.mark.parametrize("wrong", [-1, -2])
def test_work_that_fails_does_no_harm_to_its_neighbours_nor_to_the_thread(batcher, counting, wrong):
    occupied(batcher, counting)
    futures = batcher.submit([Sum(n) for n in (1, 2, wrong, 3, 4)], 10)
    counting.gate.set()
    assert [futures[i].result(10)[0] for i in (0, 1, 3, 4)] == [1, 2, 3, 4]
    assert isinstance(futures[2].exception(10), ValueError if wrong == -1 else RuntimeError)
    assert batcher.submit([Sum(5)], 10)[0].result(10) == (5, 1)


def test_work_that_is_cancelled_or_too_late_is_not_done(batcher, counting):
    occupied(batcher, counting)
    gone, late, right = (batcher.submit([Sum(n)], s)[0] for n, s in ((1, 10), (2, 0.01), (3, 10)))
    assert gone.cancel()
    time.sleep(0.02)
    counting.gate.set()
    assert right.result(10) == (3, 1)
    assert isinstance(late.exception(10), TimeoutError)
    with pytest.raises(CancelledError):
        gone.result(10)
    assert counting.calls == [[0], [3]]
    assert 8 < counting.seconds[-1] < 9, "a tenth of the time is left for sending"


def test_when_it_is_closed_it_finishes_what_waits_and_takes_nothing_more(counting):
    batcher = Batcher(counting, queue_rows=20, batch_rows=1, long=5, wait=5)
    batcher.start()
    first = occupied(batcher, counting)
    futures = batcher.submit([Sum(n) for n in range(1, 5)], 10)
    ending = threading.Thread(target=batcher.close)
    ending.start()
    wait_for(lambda: not batcher.is_open)
    with pytest.raises(Closed):
        batcher.submit([Sum(9)], 10)
    counting.gate.set()
    ending.join(10)
    assert [future.result(0)[0] for future in (first, *futures)] == [0, 1, 2, 3, 4]


def test_a_thread_that_is_long_at_the_same_work_says_so(batcher, counting):
    assert batcher.busy_for() == 0
    occupied(batcher, counting)
    time.sleep(0.01)
    assert batcher.busy_for() >= 0.01
