"""Runs of many tasks: killed and resumed, with tasks and workers that fail, and folders that are not as left.

What tasks do is written to a log as they begin and end, which is the truth about what ran and how often.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from plausiflow.benchmark import runner
from plausiflow.benchmark.runner import TIMES, Outcome, Pace, Task, in_order, run
from plausiflow.benchmark.store import locked
from plausiflow.benchmark.study import environment
from plausiflow.errors import InvalidInputError
from plausiflow.workers import Processes, Ray
from processes import forked, wait_for

TESTS = Path(__file__).parent


def task(dataset: str = "moons", method: str = "PPCEF", fold: int = 0, **other) -> Task:
    named = {"study": "test", "classifier": "lr", "seed": 0} | other
    return Task(dataset=dataset, method=method, fold=fold, **named)


def grid(folds: int = 3) -> list[Task]:
    return [task(d, m, f) for d in ("moons", "law") for m in ("PPCEF", "WACH") for f in range(folds)]


@dataclass(frozen=True)
class Work:
    """What tasks do here; ``method`` says which of them misbehave, and how."""

    log: str
    seconds: float = 0.0

    def __call__(self, task: Task) -> dict:
        self.note("begin", task)
        time.sleep(1000 if task.method == "sleeps" else self.seconds)
        if task.method == "raises":
            raise ValueError(f"no {task.dataset}")
        if task.method == "exits":
            sys.exit(3)
        if task.method == "dies after a fork" and not os.fork():
            self.note("child", task)
            time.sleep(1000)
        if task.method.startswith("dies after"):
            wait_for(lambda: self.count("child", task) == self.count("begin", task))
            os.kill(os.getpid(), signal.SIGKILL)
        if task.method == "dies" or (task.method == "dies once" and self.count("begin", task) == 1):
            os.kill(os.getpid(), signal.SIGKILL)
        drawn = float(torch.rand((), dtype=torch.float64))
        row = {"drawn": drawn, "nothing": float("nan"), "text": "ä\n", "whole": 3, "share": 0.1 + 0.2}
        row["threads"], row["dtype"] = torch.get_num_threads(), str(torch.get_default_dtype())
        self.note("end", task)
        return row

    def note(self, what: str, task: Task) -> None:
        with open(self.log, "a") as file:
            file.write(f"{what} {task.key} {os.getpid()}\n")

    def count(self, what: str, task: Task) -> int:
        return Path(self.log).read_text().count(f"{what} {task.key} ")

    def begun(self) -> list[str]:
        lines = Path(self.log).read_text().splitlines() if Path(self.log).exists() else []
        return [line.split()[1] for line in lines if line.startswith("begin")]


@pytest.fixture
def work(tmp_path) -> Work:
    return Work(str(tmp_path / "log"))


def untimed(rows: list[dict]) -> str:
    """Rows without their times, as text: floats to the last bit, and not-a-number equals itself."""
    return repr([{k: v for k, v in row.items() if k not in TIMES} for row in rows])


def finished(folder: Path) -> set[str]:
    return {path.stem for path in folder.glob("results/*.json")}


# Tasks and rows.


def test_a_key_is_a_readable_file_name():
    key = task("../a b\0/ü", method="x" * 500).key
    assert re.fullmatch(r"test-___a_b___-lr-x{30}-0-0-[0-9a-f]{10}", key)


def test_keys_of_different_tasks_differ_on_any_file_system():
    base = task("a-b", "c")
    others = [
        task("a", "b-c"),
        task("a_b", "c"),
        task("A-b", "c"),
        task("a-b", "c", 1),
        task("a-b", "c", seed=1),
    ]
    others += [replace(base, study="t"), replace(base, classifier="mlp"), task("x" * 40), task("x" * 41)]
    assert len({one.key.lower() for one in [base, *others]}) == len(others) + 1


def test_a_row_says_what_was_run_with_which_code_and_how_long_it_took(work, tmp_path):
    asked = task(seed=7)
    (row,) = run([asked], tmp_path, work).rows
    assert {name: row[name] for name in ("study", "dataset", "classifier", "method", "fold", "seed")} == {
        "study": "test", "dataset": "moons", "classifier": "lr", "method": "PPCEF", "fold": 0, "seed": 7
    }  # fmt: skip
    assert {name: row[name] for name in environment()} == environment()
    assert all(row[name] >= 0 for name in TIMES)
    stored = json.loads((tmp_path / "results" / f"{asked.key}.json").read_text())
    assert stored["nothing"] is None
    assert list(stored) == list(row)


def test_rows_come_in_the_order_of_the_tasks(work, tmp_path):
    tasks = random.Random(0).sample(grid(), 12)
    rows = run(tasks, tmp_path, work).rows
    assert [(r["dataset"], r["method"], r["fold"]) for r in rows] == [
        (t.dataset, t.method, t.fold) for t in tasks
    ]


def test_a_task_draws_the_same_whatever_ran_before(work, tmp_path):
    tasks = grid()
    one, other = (run(tasks[::step], tmp_path / str(step), work).rows for step in (1, -1))
    assert untimed(one) == untimed(other[::-1])
    alone = torch.rand((), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert one[0]["drawn"] == float(alone)


def test_no_tasks_give_no_rows(work, tmp_path):
    assert run([], tmp_path, work).rows == []


def test_a_task_that_is_there_twice_is_refused(work, tmp_path):
    with pytest.raises(InvalidInputError, match=f"once; got again: {task().key}"):
        run([task(), task("law"), task()], tmp_path, work)


def test_tasks_that_share_models_run_together_and_long_ones_first():
    tasks = [task("a", "x", 0), task("b", "x", 0), task("a", "y", 1), task("b", "y", 0), task("a", "y", 0)]
    assert in_order(tasks, None) == [tasks[i] for i in (0, 4, 1, 3, 2)]
    cost = dict(zip(tasks, (1.0, 3.0, 9.0, 4.0, 2.0), strict=True)).__getitem__
    assert in_order(tasks, cost) == [tasks[i] for i in (2, 3, 1, 4, 0)]


# Failures.


def test_a_task_that_raises_is_a_row_and_is_tried_again(work, tmp_path):
    tasks = [task(method="raises"), task(), task(method="exits")]
    outcome = run(tasks, tmp_path, work)
    assert [row.get("error") for row in outcome.rows] == ["ValueError: no moons", None, "SystemExit: 3"]
    assert outcome.rows[0]["error_at"].startswith("test_runner.py:")
    assert [row["dataset"] for row in outcome.failed] == ["moons", "moons"]
    assert str(outcome).startswith("3 tasks: 0 finished earlier, 1 now, 2 failed. Run it again")
    assert "moons lr raises 0: ValueError: no moons" in str(outcome)
    again = run(tasks, tmp_path, work)
    assert untimed(again.rows) == untimed(outcome.rows)
    assert again.earlier == 1
    assert work.begun() == [t.key for t in [*tasks, tasks[0], tasks[2]]]


def returns_tensor(task: Task) -> dict:
    return {"l2": torch.ones(())}


def returns_another_method(task: Task) -> dict:
    return {"method": "WACH"}


def returns_nothing(task: Task) -> None:
    return None


def returns_odd_name(task: Task) -> dict:
    return {(1, 2): 3.0}


@pytest.mark.parametrize(
    ("work", "error"),
    [
        (returns_tensor, "`l2` must be a text or a number, got a Tensor"),
        (returns_another_method, "`method` must be 'PPCEF' as in the task, got 'WACH'"),
        (returns_nothing, "NoneType"),
        (returns_odd_name, "keys must be str"),
    ],
)
def test_a_row_that_cannot_be_written_is_an_error_of_its_task(work, error, tmp_path):
    (row,) = run([task()], tmp_path, work).rows
    assert error in row["error"]


def test_ctrl_c_in_a_task_keeps_the_rows_before_it(tmp_path):
    def work(task: Task) -> dict:
        if task.fold == 2:
            raise KeyboardInterrupt
        return {}

    tasks = [task(fold=fold) for fold in range(4)]
    with pytest.raises(KeyboardInterrupt):
        run(tasks, tmp_path, work)
    assert finished(tmp_path) == {tasks[0].key, tasks[1].key}


# Folders that are not as they were left.


def hostile_files():
    yield "empty", b""
    yield "cut", b'{"study": "test", "dat'
    yield "a list", b"[]"
    yield "no text", b"\xff\xfe\x00"
    yield "no JSON", b'{"study": NaN}'
    yield "deep", b"[" * 100_000
    yield "an endless number", b'{"fold": ' + b"9" * 10_000 + b"}"
    yield "another task", json.dumps(dict.fromkeys(("study", "dataset"), "other")).encode()
    yield "not flat", json.dumps(vars(task()) | {"l2": [1]}).encode()


@pytest.mark.parametrize("content", [pytest.param(c, id=name) for name, c in hostile_files()])
def test_a_hostile_result_file_is_put_aside_and_its_task_runs_again(content, work, tmp_path):
    tasks = grid(1)
    expected = run(tasks, tmp_path, work)
    path = tmp_path / "results" / f"{task().key}.json"
    path.write_bytes(content)
    outcome = run(tasks, tmp_path, work)
    assert untimed(outcome.rows) == untimed(expected.rows)
    assert outcome.earlier == len(tasks) - 1
    assert len(outcome.notes) == 1
    assert f"{path.name} could not be read" in outcome.notes[0]
    assert outcome.notes[0] in str(outcome)
    assert path.with_suffix(".unreadable").read_bytes() == content
    assert work.begun().count(task().key) == 2


def test_a_folder_in_the_place_of_a_result_is_put_aside(work, tmp_path):
    (tmp_path / "results" / f"{task().key}.json").mkdir(parents=True)
    run([], tmp_path / "other", work)
    (tmp_path / "manifest.json").write_bytes((tmp_path / "other" / "manifest.json").read_bytes())
    assert len(run([task()], tmp_path, work).finished) == 1


def test_leftovers_of_a_killed_run_are_removed(work, tmp_path):
    run([task()], tmp_path, work)
    for name in ("results/some.json.77.tmp", "manifest.json.77.tmp"):
        (tmp_path / name).write_text("half")
    run([task()], tmp_path, work)
    assert list(tmp_path.rglob("*.tmp")) == []


def test_more_tasks_extend_a_run(work, tmp_path):
    run(grid(1), tmp_path, work)
    assert run(grid(2), tmp_path, work).earlier == 4
    assert len(work.begun()) == 8


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"rows": 100}, "settings.rows is 50 there, 100 here"),
        ({"rows": 50, "solver": "sqp"}, "settings.solver is None there, 'sqp' here"),
        ({}, "settings.rows is 50 there, None here"),
    ],
)
def test_a_run_with_other_settings_is_not_continued(changed, said, work, tmp_path):
    run([task()], tmp_path, work, settings={"rows": 50})
    with pytest.raises(InvalidInputError, match=f"another run.*{said}.*another folder.*--fresh"):
        run([task()], tmp_path, work, settings=changed)
    assert run([task()], tmp_path, work, settings={"rows": 50}).earlier == 1


def test_a_run_of_other_code_is_not_continued(work, tmp_path, monkeypatch):
    run([task()], tmp_path, work)
    with pytest.raises(InvalidInputError, match=r"work is 'test_runner.Work' there, .*returns_tensor' here"):
        run([task()], tmp_path, returns_tensor)
    monkeypatch.setattr(runner, "source_fingerprint", lambda: "other")
    with pytest.raises(InvalidInputError, match=r"the code has changed \(commit .* there, .* here\)"):
        run([task()], tmp_path, work)
    monkeypatch.setattr(runner, "environment", lambda: environment() | {"plausiflow": "99", "commit": "c"})
    with pytest.raises(InvalidInputError, match=r"plausiflow is '.*' there, '99' here"):
        run([task()], tmp_path, work)


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff"])
def test_a_manifest_that_cannot_be_read_is_not_overwritten(content, work, tmp_path):
    run([task()], tmp_path, work)
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"manifest.json cannot be read"):
        run([task()], tmp_path, work)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(InvalidInputError, match=r"manifest.json cannot be read"):
        run([task()], tmp_path, work)


def test_a_fresh_run_forgets_the_rows_and_nothing_else(work, tmp_path):
    run(grid(1), tmp_path, work, settings={"rows": 50})
    own = tmp_path / "results" / "mine.json"
    own.write_text("{}")
    outcome = run([task()], tmp_path, work, settings={"rows": 9}, fresh=True)
    assert outcome.earlier == 0
    assert finished(tmp_path) == {task().key, "mine"}
    assert run([task()], tmp_path, work, settings={"rows": 9}).earlier == 1


def test_settings_must_be_json(work, tmp_path):
    with pytest.raises(InvalidInputError, match="`settings` must be what JSON can hold"):
        run([task()], tmp_path, work, settings={"rows": {1, 2}})


def test_two_runs_cannot_use_one_folder_at_once(work, tmp_path):
    with (
        locked(tmp_path / "run.lock"),
        pytest.raises(InvalidInputError, match=f"in use by process {os.getpid()} on"),
    ):
        run([task()], tmp_path, work)
    assert len(run([task()], tmp_path, work).finished) == 1


# Progress.


def test_the_time_left_weighs_tasks_by_their_cost():
    tasks = [task(fold=fold) for fold in range(4)]
    pace = Pace(10, tasks, {t: (1.0, 1.0, 3.0, 5.0)[t.fold] for t in tasks}.__getitem__)
    for one in tasks[:2]:
        pace.started(one)
    assert pace.told(5.0) == "6/10; moons lr PPCEF 0, moons lr PPCEF 1"
    for one in tasks[:2]:
        pace.ended(one)
    pace.started(tasks[3])
    # Two units took ten seconds, and eight are left.
    assert pace.told(10.0) == "8/10, 12.0 a minute, about 40 s left; moons lr PPCEF 3"
    assert "about 4 min left" in pace.told(60.0)
    assert "about 2 h left" in pace.told(1800.0)


# Killed runs.


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
    tasks: list[Task]
    outcome: Outcome
    work: Work


@pytest.fixture(scope="module")
def in_processes(tmp_path_factory) -> InProcesses:
    """One run for all the tests of workers that need one: starting workers takes seconds."""
    folder = tmp_path_factory.mktemp("processes")
    work = Work(str(folder / "log"))
    tasks = [*grid(2), task("law", "raises", 9), task("law", "dies once", 1)]
    outcome = run(tasks, folder, work, executor=Processes(workers=2, log=folder / "workers.log"))
    return InProcesses(tasks, outcome, work)


def test_workers_give_the_rows_that_this_process_gives(in_processes, tmp_path):
    kept = [t for t in in_processes.tasks if not t.method.startswith("dies")]
    rows = [row for row in in_processes.outcome.rows if not row["method"].startswith("dies")]
    inline = run(kept, tmp_path, Work(str(tmp_path / "log"))).rows
    assert untimed([{**row, "error_at": ""} for row in rows]) == untimed(
        [{**row, "error_at": ""} for row in inline]
    )
    assert {row.get("threads", 1) for row in rows} == {1}


def test_a_worker_that_dies_takes_only_its_own_task_which_is_tried_again(in_processes):
    assert [row.get("error") for row in in_processes.outcome.rows] == [None] * 8 + [
        "ValueError: no law",
        None,
    ]
    counts = [in_processes.work.count("begin", t) for t in in_processes.tasks]
    assert counts == [1] * 9 + [2]


def test_workers_are_gone_after_a_run(in_processes):
    lines = Path(in_processes.work.log).read_text().splitlines()
    workers = {int(line.split()[2]) for line in lines}
    assert len(workers - {os.getpid()}) >= 2
    wait_for(lambda: not any(map(is_alive, workers)))


def test_what_workers_cannot_import_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(InvalidInputError, match=r"import what they do; they cannot: .*not a lambda"):
        run([task()], tmp_path, lambda task: {}, executor=Processes(workers=1))


# Slow: interpreters of their own.


def started(code: str) -> subprocess.Popen:
    path = os.pathsep.join([str(TESTS), *filter(None, sys.path)])
    return subprocess.Popen(
        [sys.executable, "-c", f"import test_runner as t; from pathlib import Path; {code}"],
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
    same = {"dtype": "that of its process"}
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
