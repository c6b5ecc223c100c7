"""Saving over a saved explainer: processes that are killed, save at the same time, or load meanwhile."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest
import torch

from plausiflow import Explainer, atomic
from plausiflow.persistence.files import FolderContents, read_folder, write_folder
from processes import forked, wait_for

SAVERS, SAVES = 4, 25


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def save_until_stopped(explainer, folder, begun, place):
    """Save with training rows, and wait forever at a place."""
    torch.set_num_threads(1)

    def stop(*_):
        begun.touch()
        time.sleep(1000)

    write = Path.write_bytes
    if place == "first file":
        Path.write_bytes = lambda path, content: (write(path, content), stop())
    elif place == "document":
        Path.write_bytes = lambda path, content: (
            stop() if path.name == "explainer.json" else write(path, content)
        )
    elif place == "moved aside":
        atomic.exchange, os.replace = lambda *_: False, stop
    else:
        setattr(atomic, place, stop)
    explainer.save(folder, training_rows=True)


PLACES = {
    "first file": False,
    "document": False,
    "_flush": False,
    "exchange": False,
    "moved aside": False,
    "_remove": True,
}
"""Where a process is killed, and whether the new explainer is there by then."""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs renameat2")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("after", ["load", "save"])
def test_a_save_that_is_killed_leaves_one_whole_explainer_and_no_rows(place, after, fitted, tmp_path):
    explainer, folder, begun = fitted("network"), tmp_path / "saved" / "mine", tmp_path / "begun"
    explainer.save(folder)
    pid = forked(lambda: save_until_stopped(explainer, folder, begun, place))
    wait_for(begun.exists)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert any(path.name.startswith(".mine.") for path in folder.parent.iterdir())
    if after == "load":
        Explainer.load(folder)
        assert (folder / "training.safetensors").exists() == PLACES[place]
    else:
        explainer.save(folder)
        assert not (folder / "training.safetensors").exists()
    assert names(folder.parent) == ["mine"]


def contents_of(number: int) -> FolderContents:
    """Contents that are all made of one number."""
    tensors = {name: {"x": torch.full((100,), float(number))} for name in ("bank", "network", "judges")}
    return FolderContents(document={"number": number}, tensors=tensors, models={})


def number_in(contents: FolderContents) -> set[float]:
    """Return the numbers that contents are made of."""
    return {contents.document["number"]}.union(
        *(set(state["x"].tolist()) for state in contents.tensors.values())
    )


@pytest.mark.parametrize("can_exchange", [True, False])
def test_processes_save_and_load_at_the_same_time_and_no_explainer_is_a_mix(tmp_path, can_exchange):
    folder = tmp_path / "saved" / "mine"
    write_folder(folder, contents_of(99))

    def save(saver):
        if not can_exchange:
            atomic.exchange = lambda *_: False
        for number in range(SAVES):
            write_folder(folder, contents_of(saver * SAVES + number))

    waiting = {forked(lambda saver=saver: save(saver)) for saver in range(SAVERS)}
    loads, codes = 0, []
    while waiting:
        assert len(number_in(read_folder(folder))) == 1
        loads += 1
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid in waiting:
            waiting.remove(pid)
            codes.append(status)
    assert codes == [0] * SAVERS
    assert loads > 10
    (number,) = number_in(read_folder(folder))
    assert number % SAVES == SAVES - 1
    assert names(folder.parent) == ["mine"]


def test_a_load_does_not_disturb_a_save_and_a_second_save_waits_for_it(tmp_path):
    folder, begun, second = tmp_path / "saved" / "mine", tmp_path / "begun", tmp_path / "second"
    write_folder(folder, contents_of(1))

    def stop(*_):
        begun.touch()
        time.sleep(1000)

    def save():
        atomic._flush = stop
        write_folder(folder, contents_of(2))

    def wait_and_save():
        write_folder(folder, contents_of(3))
        second.touch()

    first = forked(save)
    wait_for(begun.exists)
    temporary = names(folder.parent)
    assert number_in(read_folder(folder)) == {1}
    assert names(folder.parent) == temporary
    other = forked(wait_and_save)
    time.sleep(0.3)
    assert not second.exists()
    os.kill(first, signal.SIGKILL)
    for pid in (first, other):
        os.waitpid(pid, 0)
    assert number_in(read_folder(folder)) == {3}
    assert names(folder.parent) == ["mine"]
