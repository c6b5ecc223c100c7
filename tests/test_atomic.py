"""Files and directories are written whole or not at all."""

import os
import signal
import time

import pytest

from plausiflow.atomic import atomic_path, remove_leftovers, write_atomically
from processes import forked, wait_for


def test_a_file_replaces_an_older_one(tmp_path):
    path = tmp_path / "new" / "file"
    for content in (b"old", b"new"):
        write_atomically(path, content)
    assert path.read_bytes() == b"new"
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]


def write_folder(path, names):
    with atomic_path(path) as temporary:
        temporary.mkdir()
        for name in names:
            (temporary / name).write_text(name)
            assert not (path / name).exists()


def test_a_directory_replaces_an_older_one(tmp_path):
    for names in (["a", "b"], ["c"]):
        write_folder(tmp_path / "folder", names)
        assert sorted(entry.name for entry in (tmp_path / "folder").iterdir()) == names
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize("function", ["fsync", "replace"])
@pytest.mark.parametrize(
    "write", [lambda path: write_atomically(path, b"new"), lambda p: write_folder(p, ["new"])]
)
def test_a_failed_write_keeps_the_old_content(tmp_path, monkeypatch, function, write):
    path = tmp_path / "old"
    write_folder(path, ["a"])
    monkeypatch.setattr(os, function, lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write(path)
    assert [entry.relative_to(tmp_path).as_posix() for entry in tmp_path.rglob("*")] == ["old", "old/a"]


def test_a_killed_process_leaves_the_old_content_and_a_leftover_that_is_removed(tmp_path):
    path, begun = tmp_path / "file", tmp_path / "begun"
    write_atomically(path, b"old")

    def write():
        with atomic_path(path) as temporary:
            temporary.write_bytes(b"half")
            begun.touch()
            time.sleep(1000)

    pid = forked(write)
    wait_for(begun.exists)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert path.read_bytes() == b"old"
    remove_leftovers(tmp_path, "other")
    assert len(list(tmp_path.glob(".file.*.tmp"))) == 1
    remove_leftovers(tmp_path, "file")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["begun", "file"]
