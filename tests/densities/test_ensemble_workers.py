"""Members trained in worker processes equal those trained here, and their errors are reported."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from crossfitting import BRIEF
from estimating import rows
from plausiflow.densities import ConditionalFlow, CrossFitEnsemble
from plausiflow.densities import members as members_module
from plausiflow.errors import TrainingError


def equal_states(one, other):
    assert one.keys() == other.keys()
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(
    params=[
        torch.float32,
        torch.float64,
    ]
)
def default(request):
    before = torch.get_default_dtype()
    torch.set_default_dtype(request.param)
    yield request.param
    torch.set_default_dtype(before)


@pytest.mark.slow
def test_members_trained_in_worker_processes_equal_those_trained_here_bit_for_bit(default):
    x, y = rows(2, n=60, precision=default)
    settings = {"members": 3, "base": BRIEF, "random_state": 1}
    here = CrossFitEnsemble(**settings, workers=1).fit(x, y)
    elsewhere = CrossFitEnsemble(**settings, workers=2).fit(x, y)
    assert equal_states(here.state(), elsewhere.state())
    assert torch.equal(here.score(x, y), elsewhere.score(x, y))


class Worker:
    """A fake process that does the work of a worker in this process, or fails with a given message."""

    fails_with: str | None = None
    started, killed = 0, 0
    lock = threading.Lock()  # training in this process uses its generator

    def __init__(self, command, *, env, stdin, stdout, stderr):
        self.number = type(self).started
        type(self).started += 1
        assert command[1:3] == ["-m", "plausiflow.densities.members"]
        assert env["OMP_NUM_THREADS"] == "1"
        self.returncode = None

    def communicate(self, task):
        if self.fails_with is not None and b'"random_state": 1' in task.partition(b"\n")[0]:
            self.returncode = 1
            return b"", self.fails_with.encode()
        with self.lock:
            threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
            weights = members_module.train_member(task)
            torch.set_num_threads(threads)
            torch.set_default_dtype(dtype)
        self.returncode = 0
        return weights, b""

    def kill(self):
        type(self).killed += 1

    def poll(self):
        return self.returncode


@pytest.fixture
def worker(monkeypatch):
    kind = type("Recorded", (Worker,), {"started": 0, "killed": 0})
    monkeypatch.setattr(members_module.subprocess, "Popen", kind)
    return kind


@pytest.mark.parametrize("architecture", ["maf", "nsf"])
def test_settings_and_weights_of_a_worker_are_complete(worker, architecture):
    x, y = rows(2, n=60)
    base = replace(BRIEF, architecture=architecture, log_scale_bound=1.5, sd_floor=0.1)
    settings = {"members": 3, "base": base, "random_state": 1}
    here = CrossFitEnsemble(**settings, workers=1).fit(x, y)
    assert worker.started == 0
    elsewhere = CrossFitEnsemble(**settings, workers=2).fit(x, y)
    assert worker.started == 3
    assert worker.killed == 0
    assert equal_states(here.state(), elsewhere.state())


def test_a_worker_that_fails_is_an_error_that_says_why_and_ends_the_others(worker):
    worker.fails_with = "Traceback\n  line\nMemoryError: too large\n"
    with pytest.raises(
        TrainingError, match=r"Member 1 of the ensemble could not be trained: MemoryError: too large"
    ):
        CrossFitEnsemble(members=3, base=BRIEF, workers=3).fit(*rows(2, n=60))
    assert worker.started > 1


@pytest.mark.slow
def test_a_real_worker_that_fails_is_an_error_with_its_last_line(monkeypatch):
    dumps = members_module.json.dumps
    monkeypatch.setattr(
        members_module.json,
        "dumps",
        lambda task: dumps(
            task | {"settings": task["settings"] | {"architecture": "flow"}}
            if task["settings"]["random_state"] == 1
            else task
        ),
    )
    with pytest.raises(
        TrainingError, match=r"Member 1 of the ensemble could not be trained: .*`architecture` must be one of"
    ):
        CrossFitEnsemble(members=2, base=BRIEF, workers=2).fit(*rows(2, n=60))


def test_a_worker_that_is_killed_silently_is_the_same_error(worker):
    worker.fails_with = ""
    with pytest.raises(TrainingError, match="Member 1 of the ensemble could not be trained"):
        CrossFitEnsemble(members=2, base=BRIEF, workers=2).fit(*rows(2, n=60))


def test_classes_from_a_slice_reach_the_workers_too(worker):
    x, y = rows(2, n=120)
    CrossFitEnsemble(members=2, base=BRIEF, workers=2).fit(x[::2], y[::2])
    assert worker.started == 2


def test_small_tables_are_trained_here(worker):
    CrossFitEnsemble(members=2, base=BRIEF).fit(*rows(2, n=60))
    assert worker.started == 0


@pytest.mark.parametrize("cores", [1, 8])
def test_large_tables_are_trained_on_the_cores_that_there_are(worker, monkeypatch, cores):
    monkeypatch.setattr(members_module, "WORTH_A_WORKER", 100)
    monkeypatch.setattr(members_module.os, "sched_getaffinity", lambda _: range(cores), raising=False)
    CrossFitEnsemble(members=2, base=BRIEF).fit(*rows(2, n=60))
    assert worker.started == (0 if cores == 1 else 2)


@pytest.mark.parametrize("fails", [False, True])
def test_members_are_trained_with_one_thread_and_the_number_of_threads_is_put_back(monkeypatch, fails):
    seen = []

    def fit(self, x, y, **settings):
        seen.append(torch.get_num_threads())
        if fails:
            raise TrainingError("no")
        return original(self, x, y, **settings)

    original = ConditionalFlow.fit
    monkeypatch.setattr(ConditionalFlow, "fit", fit)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(TrainingError) if fails else nullcontext():
            CrossFitEnsemble(members=2, base=BRIEF).fit(*rows(2, n=60))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert set(seen) == {1}


KILLED = """
import torch
from plausiflow.core import Training
from plausiflow.densities import ConditionalFlow, CrossFitEnsemble
base = ConditionalFlow(training=Training(epochs=100_000, patience=100_000))
CrossFitEnsemble(members=2, base=base, workers=2).fit(torch.randn(400, 3), torch.arange(400) % 2)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to list child processes")
def test_a_killed_fit_leaves_no_process_and_no_row_behind(tmp_path):
    environment = os.environ | {
        "TMPDIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    fit = subprocess.Popen([sys.executable, "-c", KILLED], env=environment)
    try:
        children = wait_for(lambda: workers_of(fit.pid), lambda found: len(found) == 2)
    finally:
        fit.send_signal(signal.SIGKILL)
        fit.wait()
    assert len(children) == 2
    assert wait_for(lambda: [pid for pid in children if is_running(pid)], lambda left: not left) == []
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def wait_for(look, enough, seconds=60):
    end = time.monotonic() + seconds
    while not enough(found := look()) and time.monotonic() < end:
        time.sleep(0.2)
    return found


def workers_of(pid):
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in threads for child in path.read_text().split()]


def is_running(pid):
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
