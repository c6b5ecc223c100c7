"""Folders of runs that are not as they were left: what can be used is, the rest is put aside or refused."""

import json
import os

import pytest

from plausiflow.errors import InvalidInputError
from plausiflow.workers import hold_lock
from plausiflow_bench.harness import runner
from plausiflow_bench.harness.rows import environment
from plausiflow_bench.harness.runner import run
from running import finished, grid, returns_tensor, task, untimed


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
    for name in ("results/.some.json.77.tmp", ".manifest.json.77.tmp"):
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
    with pytest.raises(InvalidInputError, match=r"work is 'running.Work' there, .*returns_tensor' here"):
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
    with pytest.raises(InvalidInputError, match="`settings` must be JSON values"):
        run([task()], tmp_path, work, settings={"rows": {1, 2}})


def test_two_runs_cannot_use_one_folder_at_once(work, tmp_path):
    with (
        hold_lock(tmp_path / "run.lock"),
        pytest.raises(InvalidInputError, match=f"in use by process {os.getpid()} on"),
    ):
        run([task()], tmp_path, work)
    assert len(run([task()], tmp_path, work).finished) == 1
