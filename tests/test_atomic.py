"""Files and directories are written whole or not at all."""

import os
import signal
import sys
import time

import pytest

from plausiflow import atomic
from plausiflow.atomic import atomic_path, exchange, recover, remove_leftovers, write_atomically
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


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_directory_replaces_an_older_one(tmp_path, monkeypatch, can_exchange):
    if not can_exchange:
        monkeypatch.setattr(atomic, "_exchange_call", lambda: None)
    for names in (["a", "b"], ["c"]):
        write_folder(tmp_path / "folder", names)
        assert sorted(entry.name for entry in (tmp_path / "folder").iterdir()) == names
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize("can_exchange", [True, False])
@pytest.mark.parametrize("function", ["fsync", "replace"])
@pytest.mark.parametrize(
    "write", [lambda path: write_atomically(path, b"new"), lambda p: write_folder(p, ["new"])]
)
def test_a_failed_write_keeps_the_old_content(tmp_path, monkeypatch, can_exchange, function, write):
    path = tmp_path / "old"
    write_folder(path, ["a"])
    monkeypatch.setattr(os, function, lambda *_: 1 / 0)
    monkeypatch.setattr(atomic, "exchange", (lambda *_: 1 / 0) if can_exchange else lambda *_: False)
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


def killed(function, begun):
    """Run a function in another process, and kill it once ``begun`` exists."""
    pid = forked(function)
    wait_for(begun.exists)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    begun.unlink()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs renameat2")
def test_two_directories_are_exchanged_in_one_step(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name / f"of {name}").mkdir(parents=True)
    assert exchange(tmp_path / "a", tmp_path / "b")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["of b"]
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["of a"]
    with pytest.raises(FileNotFoundError):
        exchange(tmp_path / "a", tmp_path / "missing")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs renameat2")
def test_a_directory_that_is_replaced_exists_at_every_moment(tmp_path):
    path = tmp_path / "folder"
    write_folder(path, ["a"])

    def write():
        for number in range(200):
            write_folder(path, ["b" if number % 2 else "c"])

    pid, reads, missing = forked(write), 0, 0
    while not os.waitpid(pid, os.WNOHANG)[0]:
        reads += 1
        missing += not path.is_dir()
    assert reads > 100
    assert missing == 0
    assert [entry.name for entry in path.iterdir()] == ["b"]


@pytest.mark.parametrize("place", ["_flush", "rename", "_remove"])
@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_process_that_is_killed_anywhere_leaves_one_whole_directory(tmp_path, place, can_exchange):
    path, begun = tmp_path / "folder", tmp_path / "begun"
    write_folder(path, ["a", "b"])

    def stop(*_):
        begun.touch()
        time.sleep(1000)

    def write():
        if not can_exchange:
            atomic._exchange_call = lambda: None
        if place == "rename":  # after the old directory was moved aside, or just before the exchange
            atomic.exchange = stop if can_exchange else lambda *_: False
            os.replace = stop
        else:
            setattr(atomic, place, stop)
        write_folder(path, ["c", "d"])

    killed(write, begun)
    assert any(entry.name.startswith(".folder.") for entry in tmp_path.iterdir())
    recover(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]
    expected = ["c", "d"] if place == "_remove" else ["a", "b"]
    assert sorted(entry.name for entry in path.iterdir()) == expected


def test_leftovers_of_other_names_stay(tmp_path):
    mine = [f".a.{'0' * 32}.tmp", f".a.{'1' * 32}.old"]
    others = [f".a.b.{'0' * 32}.tmp", ".a.tmp", ".a.0.tmp", f".aa.{'0' * 32}.tmp", f"a.{'0' * 32}.tmp"]
    for name in [*mine, *others, "a"]:
        (tmp_path / name).mkdir()
    recover(tmp_path / "a")
    assert {entry.name for entry in tmp_path.iterdir()} == {*others, "a"}
