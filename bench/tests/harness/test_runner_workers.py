"""Killed runs repeat no task; a dead worker loses only its own task, and no worker is left behind."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from plausiflow.errors import InvalidInputError
from plausiflow.workers import Processes, Ray
from plausiflow_bench.harness import runner
from plausiflow_bench.harness.runner import RunOutcome, StudyTask, run
from processes import forked, wait_for
from running import Work, finished, grid, task, untimed

HERE = Path(__file__).parent


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_run_that_is_killed_at_random_points_goes_on_and_repeats_nothing(tmp_path):
    tasks, folder, work = grid(), tmp_path / "run", Work(str(tmp_path / "log"), seconds=0.02)
    expected = run(tasks, tmp_path / "whole", Work(str(tmp_path / "other log"))).rows
    rng = random.Random(1)
    done: set[str] = set()
    for enough in (1, 4, 8):
        before = len(work.begun())
        pid = forked(lambda: run(tasks, folder, work))
        wait_for(lambda enough=enough: len(finished(folder)) >= enough)
        time.sleep(rng.uniform(0, 0.03))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert not done & set(work.begun()[before:])
        assert done <= finished(folder)
        done = finished(folder)
    before = len(work.begun())
    outcome = run(tasks, folder, work)
    assert outcome.earlier == len(done)
    assert sorted(work.begun()[before:]) == sorted({t.key for t in tasks} - done)
    assert untimed(outcome.rows) == untimed(expected)
    assert list(folder.rglob("*.tmp")) == []


# Worker processes.


@dataclass(frozen=True)
class InProcesses:
    tasks: list[StudyTask]
    outcome: RunOutcome
    work: Work


@pytest.fixture(scope="module")
def in_processes(tmp_path_factory) -> InProcesses:
    """One run for all the tests of workers that need one: starting workers takes seconds."""
    folder = tmp_path_factory.mktemp("processes")
    work = Work(str(folder / "log"))
    tasks = [*grid(2), task("law", "raises", 9), task("law", "dies once", 1)]
    outcome = run(tasks, folder, work, executor=Processes(workers=2, log=folder / "workers.log"))
    return InProcesses(tasks, outcome, work)


@pytest.mark.slow
def test_workers_give_the_rows_that_this_process_gives(in_processes, tmp_path):
    kept = [t for t in in_processes.tasks if not t.method.startswith("dies")]
    rows = [row for row in in_processes.outcome.rows if not row["method"].startswith("dies")]
    inline = run(kept, tmp_path, Work(str(tmp_path / "log"))).rows
    assert untimed([{**row, "error_at": ""} for row in rows]) == untimed(
        [{**row, "error_at": ""} for row in inline]
    )
    assert {row.get("threads", 1) for row in rows} == {1}


@pytest.mark.slow
def test_a_worker_that_dies_takes_only_its_own_task_which_is_tried_again(in_processes):
    assert [row.get("error") for row in in_processes.outcome.rows] == [None] * 8 + [
        "ValueError: no law",
        None,
    ]
    counts = [in_processes.work.count("begin", t) for t in in_processes.tasks]
    assert counts == [1] * 9 + [2]


@pytest.mark.slow
def test_workers_are_gone_after_a_run(in_processes):
    lines = Path(in_processes.work.log).read_text().splitlines()
    workers = {int(line.split()[2]) for line in lines}
    assert len(workers - {os.getpid()}) >= 2
    wait_for(lambda: not any(map(is_alive, workers)))


def test_what_workers_cannot_import_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(InvalidInputError, match=r"import the function that they run: .*not as a lambda"):
        run([task()], tmp_path, lambda task: {}, executor=Processes(workers=1))


# Slow: interpreters of their own.


def started(code: str) -> subprocess.Popen:
    path = os.pathsep.join([str(HERE), *filter(None, sys.path)])
    return subprocess.Popen(
        [sys.executable, "-c", f"import test_runner_workers as t; from pathlib import Path; {code}"],
        env=os.environ | {"PYTHONPATH": path},
        stderr=subprocess.PIPE,
    )


def study(folder: Path, log: str, sleeping: int = 0) -> None:
    """What the interpreters of the slow tests run."""
    runner.source_fingerprint = lambda: "the same"  # also where somebody edits the code meanwhile
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests run in the background
    tasks = grid(4) + [task(method="sleeps", fold=10 + i) for i in range(sleeping)]
    run(tasks, folder, Work(log, seconds=0.1), executor=Processes(workers=2))


def pids(log: str) -> set[int]:
    return {int(line.split()[2]) for line in Path(log).read_text().splitlines()}


@pytest.mark.slow
def test_a_run_with_workers_that_is_killed_leaves_none_of_them_and_goes_on(tmp_path, monkeypatch):
    folder, work = tmp_path / "run", Work(str(tmp_path / "log"))
    rng = random.Random(2)
    done: set[str] = set()
    for enough in (1, 5, 9):
        before = len(work.begun())
        process = started(f"t.study(Path({str(folder)!r}), {work.log!r})")
        wait_for(lambda enough=enough, process=process: process.poll() or len(finished(folder)) >= enough)
        time.sleep(rng.uniform(0, 0.2))
        process.kill()
        process.communicate()
        workers = pids(work.log)
        wait_for(lambda workers=workers: not any(map(is_alive, workers)))
        assert not done & set(work.begun()[before:])
        assert done <= finished(folder)
        done = finished(folder)
    before = len(work.begun())
    process = started(f"t.study(Path({str(folder)!r}), {work.log!r})")
    _, errors = process.communicate()
    assert process.returncode == 0, errors.decode()
    assert sorted(work.begun()[before:]) == sorted({t.key for t in grid(4)} - done)
    monkeypatch.setattr(runner, "source_fingerprint", lambda: "the same")
    resumed = run(grid(4), folder, work)
    whole = run(grid(4), tmp_path / "whole", Work(str(tmp_path / "other log")))
    assert resumed.earlier == 16
    same = {"dtype": "that of its process", "commit": "that of its time"}
    assert untimed([row | same for row in resumed.rows]) == untimed([row | same for row in whole.rows])


@pytest.mark.slow
def test_ctrl_c_ends_the_workers_and_keeps_the_rows(tmp_path):
    folder, work = tmp_path / "run", Work(str(tmp_path / "log"))
    sleeping = {task(method="sleeps", fold=10 + i).key for i in range(2)}
    process = started(f"t.study(Path({str(folder)!r}), {work.log!r}, sleeping=2)")
    wait_for(lambda: process.poll() or (sleeping <= set(work.begun()) and len(finished(folder)) == 16))
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert errors.decode().rstrip().endswith("KeyboardInterrupt")
    assert not any(map(is_alive, pids(work.log)))
    assert finished(folder) == {t.key for t in grid(4)}


@pytest.mark.slow
def test_a_task_that_kills_every_worker_is_given_up_and_leaves_no_process(tmp_path):
    work = Work(str(tmp_path / "log"))
    tasks = [task(), task(method="dies after a fork"), task(fold=1)]
    outcome = run(tasks, tmp_path, work, executor=Processes(workers=2))
    errors = [row.get("error") for row in outcome.rows]
    assert errors[0] is errors[2] is None
    assert re.match(r"Lost: tried 2 times, the last time its process was ended by SIGKILL", errors[1])
    assert work.count("begin", tasks[1]) == work.count("child", tasks[1]) == 2
    wait_for(lambda: not any(map(is_alive, pids(work.log))))


@pytest.mark.slow
@pytest.mark.ray
def test_ray_gives_the_rows_that_this_process_gives(tmp_path):
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    tasks = [*grid(1), task("law", "raises"), task("moons", "dies")]
    work = Work(str(tmp_path / "log"))
    outcome = run(tasks, tmp_path / "ray", work, executor=Ray(workers=2))
    inline = run(tasks[:-1], tmp_path / "inline", Work(str(tmp_path / "other log")))
    assert untimed(outcome.rows[:-1]) == untimed(inline.rows)
    assert outcome.rows[-1]["error"].startswith("Lost: tried 2 times")
    assert work.count("begin", tasks[-1]) == 2
