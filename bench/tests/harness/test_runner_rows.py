"""Tasks of a run and their rows: named, ordered, drawn alike, and an error in a row where a task fails."""

import json
import random
import re
from dataclasses import replace

import pytest
import torch

from plausiflow.errors import InvalidInputError
from plausiflow_bench.harness.rows import environment
from plausiflow_bench.harness.runner import TIME_COLUMNS, RunProgress, StudyTask, run, schedule
from running import finished, grid, returns_tensor, task, untimed


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
    assert all(row[name] >= 0 for name in TIME_COLUMNS)
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
    with pytest.raises(InvalidInputError, match=f"once; got repeatedly: {task().key}"):
        run([task(), task("law"), task()], tmp_path, work)


def test_tasks_that_share_models_run_together_and_long_ones_first():
    tasks = [task("a", "x", 0), task("b", "x", 0), task("a", "y", 1), task("b", "y", 0), task("a", "y", 0)]
    assert schedule(tasks, None) == [tasks[i] for i in (0, 4, 1, 3, 2)]
    cost = dict(zip(tasks, (1.0, 3.0, 9.0, 4.0, 2.0), strict=True)).__getitem__
    assert schedule(tasks, cost) == [tasks[i] for i in (2, 3, 1, 4, 0)]


# Failures.


def test_a_task_that_raises_is_a_row_and_is_tried_again(work, tmp_path):
    tasks = [task(method="raises"), task(), task(method="exits")]
    outcome = run(tasks, tmp_path, work)
    assert [row.get("error") for row in outcome.rows] == ["ValueError: no moons", None, "SystemExit: 3"]
    assert outcome.rows[0]["error_at"].startswith("running.py:")
    assert [row["dataset"] for row in outcome.failed] == ["moons", "moons"]
    assert str(outcome).startswith("3 tasks: 0 finished earlier, 1 now, 2 failed. Run it again")
    assert "moons lr raises 0: ValueError: no moons" in str(outcome)
    again = run(tasks, tmp_path, work)
    assert untimed(again.rows) == untimed(outcome.rows)
    assert again.earlier == 1
    assert work.begun() == [t.key for t in [*tasks, tasks[0], tasks[2]]]


def returns_another_method(task: StudyTask) -> dict:
    return {"method": "WACH"}


def returns_nothing(task: StudyTask) -> None:
    return None


def returns_odd_name(task: StudyTask) -> dict:
    return {(1, 2): 3.0}


@pytest.mark.parametrize(
    ("work", "error"),
    [
        (returns_tensor, "`l2` must be a text or a number; got a Tensor"),
        (returns_another_method, "`method` must be 'PPCEF' as in the task; got 'WACH'"),
        (returns_nothing, "NoneType"),
        (returns_odd_name, "keys must be str"),
    ],
)
def test_a_row_that_cannot_be_written_is_an_error_of_its_task(work, error, tmp_path):
    (row,) = run([task()], tmp_path, work).rows
    assert error in row["error"]


def test_ctrl_c_in_a_task_keeps_the_rows_before_it(tmp_path):
    def work(task: StudyTask) -> dict:
        if task.fold == 2:
            raise KeyboardInterrupt
        return {}

    tasks = [task(fold=fold) for fold in range(4)]
    with pytest.raises(KeyboardInterrupt):
        run(tasks, tmp_path, work)
    assert finished(tmp_path) == {tasks[0].key, tasks[1].key}


# Progress.


def test_the_time_left_weighs_tasks_by_their_cost():
    tasks = [task(fold=fold) for fold in range(4)]
    pace = RunProgress(10, tasks, {t: (1.0, 1.0, 3.0, 5.0)[t.fold] for t in tasks}.__getitem__)
    for one in tasks[:2]:
        pace.start(one)
    assert pace.describe(5.0) == "6/10; moons lr PPCEF 0, moons lr PPCEF 1"
    for one in tasks[:2]:
        pace.finish(one)
    pace.start(tasks[3])
    # Two units took ten seconds, and eight are left.
    assert pace.describe(10.0) == "8/10, 12.0 a minute, about 40 s left; moons lr PPCEF 3"
    assert "about 4 min left" in pace.describe(60.0)
    assert "about 2 h left" in pace.describe(1800.0)
