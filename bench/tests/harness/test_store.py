"""Fitted models come back bit for bit, are fitted once for all processes, and survive bad files and kills."""

import errno
import fcntl
import json
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from plausiflow.core.training import Training
from plausiflow.densities import GMM, KDE, ConditionalFlow, CrossFitEnsemble, Thresholded
from plausiflow.densities.context import ContextThreshold
from plausiflow.densities.judges import Judges
from plausiflow.densities.mixed import MixedDensity
from plausiflow.errors import InvalidInputError
from plausiflow.models import NODE, LinearClassifier, MLPClassifier
from plausiflow.persistence import fingerprint, get_settings, get_state, restore
from plausiflow.workers import LockedError, hold_lock
from plausiflow_bench.harness import store as module
from plausiflow_bench.harness.store import Store, StoreWarning
from plausiflow_bench.published.maf import PublishedMAF
from plausiflow_bench.speed.models import CALIBRATION_CODE
from processes import forked, wait_for

SHORT = Training(epochs=2, batch_size=32)
FLOW = ConditionalFlow(hidden=(8,), transforms=2, training=SHORT, random_state=3)


@pytest.fixture
def rows():
    x, y = torch.rand(90, 3, dtype=torch.float32), torch.arange(90) % 3
    x[:, 0] = (x[:, 0] * 4).round() / 4
    return x, y


def thresholded(rows) -> Thresholded:
    return Thresholded(density=ConditionalFlow(hidden=(8,), training=SHORT).fit(*rows), quantile=0.3)


MODELS = {
    "LinearClassifier": lambda rows: LinearClassifier(training=SHORT, random_state=1),
    "MLPClassifier": lambda rows: MLPClassifier(hidden=(8, 4), dropout=0.1, training=SHORT),
    "NODE": lambda rows: NODE(n_trees=4, depth=2, n_layers=2, training=SHORT),
    "NODE, as published": lambda rows: NODE.paper(random_state=2),
    "ConditionalFlow": lambda rows: replace(FLOW),
    "ConditionalFlow, given": lambda rows: ConditionalFlow(given=(1,), hidden=(8,), training=SHORT),
    "ConditionalFlow, splines": lambda rows: ConditionalFlow(
        architecture="nsf", transforms=1, hidden=(8,), training=Training(epochs=1, noise=(0.1, 0.2, 0.3))
    ),
    "MixedDensity": lambda rows: MixedDensity(
        width=3, numbers=(1, 2), groups=((0, 1),), training=SHORT, levels_training=SHORT
    ),
    "KDE": lambda rows: KDE(bandwidth=0.2),
    "GMM": lambda rows: GMM(components=2),
    "Thresholded": thresholded,
    "Thresholded, pooled": lambda rows: Thresholded(density=KDE().fit(*rows), scheme="pooled"),
    "CrossFitEnsemble": lambda rows: CrossFitEnsemble(members=2, base=FLOW, quantile=0.4, random_state=5),
    "CrossFitEnsemble, context": lambda rows: CrossFitEnsemble(
        members=3, base=FLOW, context=ContextThreshold(numbers=(0,)), aggregation="min"
    ),
    "Judges": lambda rows: Judges(count=2, base=FLOW, context=ContextThreshold(numbers=(0, 1))),
}


def outputs(model, x, y) -> list[torch.Tensor]:
    names = ("log_prob", "score", "passes")
    logits = [model.logits(x)] if hasattr(model, "logits") else []
    return logits + [getattr(model, name)(x, y) for name in names if hasattr(model, name)]


@pytest.mark.parametrize("name", MODELS)
def test_a_stored_model_answers_bit_for_bit_as_the_fitted_one(name, rows, tmp_path):
    fitted = Store(tmp_path).fit(MODELS[name](rows), *rows)
    again = Store(tmp_path).fit(MODELS[name](rows), *rows)
    assert (fitted.found, again.found) == (False, True)
    assert again.value is not fitted.value
    for dtype in (torch.float32, torch.float64):
        x = torch.rand(17, 3, dtype=dtype)
        expected = outputs(fitted.value, x, rows[1][:17])
        assert expected
        for one, other in zip(expected, outputs(again.value, x, rows[1][:17]), strict=True):
            assert one.dtype == other.dtype
            assert torch.equal(one, other)


@pytest.mark.parametrize("name", MODELS)
def test_settings_pass_through_json(name, rows):
    model = MODELS[name](rows).fit(*rows)
    settings = json.loads(json.dumps(get_settings(model)))
    back = restore(settings, get_state(model))
    assert type(back) is type(model)
    assert get_settings(back) == get_settings(model)


def test_the_cost_of_fitting_is_the_original_one(rows, tmp_path):
    store = Store(tmp_path)
    first = store.fit(MLPClassifier(training=SHORT), *rows)
    again = store.fit(MLPClassifier(training=SHORT), *rows)
    assert first.cpu_seconds > 0
    assert again.cpu_seconds == first.cpu_seconds


def test_tensors_of_any_kind_and_words_about_them_are_kept(tmp_path):
    made = {
        "whole": torch.arange(6).reshape(2, 3).T,
        "flags": torch.tensor([True, False]),
        "one": torch.tensor(0.1, dtype=torch.float64),
        "none": torch.zeros(0, 4),
        "half": torch.ones(3, dtype=torch.bfloat16),
        "repeated": torch.ones(1).expand(5),
    }
    store = Store(tmp_path)
    asked = ("odds", {"a": 1}, {"x": torch.zeros(2)})
    fresh = store.get_or_make(*asked, lambda: (made, {"reached": [1, None, "ä"]}))
    back = store.get_or_make(*asked, lambda: pytest.fail("made twice"))
    assert back.info == fresh.info == {"reached": [1, None, "ä"]}
    for name, value in made.items():
        assert back.value[name].dtype == value.dtype
        assert torch.equal(back.value[name], value)


def test_the_fingerprint_covers_the_code_that_fits_and_the_studies():
    files = [
        f"{package}/{path.relative_to(folder).as_posix()}"
        for package, folder in module.PACKAGES.items()
        for path in folder.rglob("*.py")
    ]
    assert {"plausiflow/core/training.py", "plausiflow_bench/harness/store.py"} <= set(files)
    for prefix in {*module.FITTING_CODE, *CALIBRATION_CODE}:
        assert any(name.startswith(prefix) for name in files), prefix
    prints = [module.source_fingerprint(parts) for parts in (("",), module.FITTING_CODE, CALIBRATION_CODE)]
    assert len(set(prints)) == 3


def change_version(monkeypatch):
    monkeypatch.setattr(module.metadata, "version", lambda name: "99.0")


def change_code(monkeypatch):
    monkeypatch.setattr(module, "source_fingerprint", lambda parts: "other code")


def change_precision(monkeypatch):
    monkeypatch.setattr(module.torch, "get_default_dtype", lambda: torch.float16)


@pytest.mark.parametrize("change", [change_version, change_code, change_precision])
def test_what_other_code_or_precision_made_is_not_found(change, rows, tmp_path, monkeypatch):
    store = Store(tmp_path)
    store.fit(KDE(), *rows)
    change(monkeypatch)
    assert not store.fit(KDE(), *rows).found


@pytest.mark.parametrize(
    "other",
    [
        lambda x, y: (KDE(bandwidth=0.3), x, y),
        lambda x, y: (GMM(), x, y),
        lambda x, y: (KDE(), x.double(), y),
        lambda x, y: (KDE(), x.flip(0), y),
        lambda x, y: (KDE(), x.reshape(-1, 3)[:, [1, 0, 2]], y),
        lambda x, y: (KDE(), x, y.roll(1)),
    ],
)
def test_other_settings_or_rows_are_another_model(other, rows, tmp_path):
    store = Store(tmp_path)
    store.fit(KDE(), *rows)
    assert not store.fit(*other(*rows)).found


def test_a_threshold_belongs_to_the_density_it_was_taken_under(rows, tmp_path):
    store, (x, y) = Store(tmp_path), rows
    store.fit(Thresholded(density=KDE().fit(x, y)), x, y)
    assert store.fit(Thresholded(density=KDE().fit(x, y)), x, y).found
    assert not store.fit(Thresholded(density=KDE().fit(x[:60], y[:60])), x, y).found


def test_what_cannot_be_stored_is_refused_with_what_to_do(rows, tmp_path):
    with pytest.raises(InvalidInputError, match=r"must be made of .*LinearClassifier.*got a Store"):
        get_settings(Store(tmp_path))
    outside = object.__new__(PublishedMAF)
    with pytest.raises(InvalidInputError, match=r"`Thresholded.density` must be .*PublishedMAF"):
        get_settings(Thresholded(density=outside))
    with pytest.raises(InvalidInputError, match=r"`CrossFitEnsemble.outcome` must be .* without a store"):
        get_settings(CrossFitEnsemble(outcome=lambda x: x))


def empty(data: bytes) -> bytes:
    return b""


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flipped_in_a_tensor(data: bytes) -> bytes:
    return data[:-5] + bytes([data[-5] ^ 1]) + data[-4:]


def flipped_in_the_header(data: bytes) -> bytes:
    return data[:20] + bytes([data[20] ^ 255]) + data[21:]


def longer_than_memory(data: bytes) -> bytes:
    return b"\xff" * 8 + data[8:]


@pytest.mark.parametrize(
    "spoil", [empty, cut, flipped_in_a_tensor, flipped_in_the_header, longer_than_memory]
)
def test_a_spoilt_file_is_fitted_again_with_a_note(spoil, rows, tmp_path):
    store = Store(tmp_path)
    first = store.fit(replace(FLOW), *rows).value
    (path,) = tmp_path.glob("*.safetensors")
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.warns(StoreWarning, match="cannot be read .* fitting again"):
        again = store.fit(replace(FLOW), *rows)
    assert not again.found
    assert torch.equal(again.value.log_prob(*rows), first.log_prob(*rows))
    assert store.fit(replace(FLOW), *rows).found


def test_a_file_is_plain_safetensors(rows, tmp_path):
    Store(tmp_path).fit(LinearClassifier(training=SHORT), *rows)
    (path,) = tmp_path.glob("LinearClassifier-*.safetensors")
    assert {name: tuple(value.shape) for name, value in load_file(path).items()} == {
        "weight": (3, 3),
        "bias": (3,),
    }


def test_a_fit_that_raises_leaves_nothing_behind(tmp_path):
    store = Store(tmp_path)
    with pytest.raises(ZeroDivisionError):
        store.get_or_make("odd", {}, {}, lambda: 1 / 0)
    assert [path.name for path in tmp_path.iterdir()] == ["locks"]
    assert not store.get_or_make("odd", {}, {}, lambda: ({}, {})).found


def test_a_fingerprint_sees_names_types_shapes_and_bytes():
    x = torch.arange(6.0)
    seen = [
        {"x": x},
        {"y": x},
        {"x": x.float()},
        {"x": x.reshape(2, 3)},
        {"x": x.reshape(3, 2)},
        {"x": x + 1},
        {"x": -x},
        {"x": x, "y": x},
        {},
    ]
    assert len({fingerprint(tensors) for tensors in seen}) == len(seen)
    assert fingerprint({"x": x, "y": -x}) == fingerprint({"y": -x, "x": x.reshape(2, 3).T.T.reshape(6)})


def noted(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text + "\n")


def test_of_several_processes_one_fits_and_the_others_wait(tmp_path):
    log = tmp_path / "log"

    def make():
        noted(log, f"fitting {os.getpid()}")
        time.sleep(0.2)
        return {"x": torch.tensor([os.getpid()])}, {}

    def ask():
        noted(log, "here")
        wait_for(lambda: log.read_text().count("here") == 4)  # all want it at the same time
        kept = Store(tmp_path / "store").get_or_make("slow", {}, {}, make)
        noted(log, f"got {int(kept.value['x'])}")

    children = [forked(ask) for _ in range(4)]
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 4
    lines = log.read_text().split("\n")
    fitting = [line for line in lines if line.startswith("fitting")]
    assert len(fitting) == 1
    assert lines.count(fitting[0].replace("fitting", "got")) == 4


def test_a_process_that_is_killed_while_it_fits_leaves_no_lock(tmp_path):
    begun = tmp_path / "begun"
    store = Store(tmp_path / "store")

    def make():
        begun.touch()
        time.sleep(1000)

    pid = forked(lambda: store.get_or_make("slow", {}, {}, make))
    wait_for(begun.exists)
    (lock,) = (tmp_path / "store" / "locks").iterdir()
    assert lock.read_text().startswith(f"process {pid} on ")
    with pytest.raises(LockedError, match=f"process {pid} on"), hold_lock(lock, wait=False):
        pass
    killer = threading.Timer(0.1, os.kill, (pid, signal.SIGKILL))
    killer.start()
    assert not store.get_or_make("slow", {}, {}, lambda: ({"x": torch.ones(1)}, {})).found
    os.waitpid(pid, 0)
    killer.join()
    assert lock.read_text() == ""


def test_a_process_that_is_killed_while_it_writes_leaves_no_half_file(tmp_path, monkeypatch):
    begun = tmp_path / "begun"
    store = Store(tmp_path / "store")

    def die_slowly(number):
        begun.touch()
        time.sleep(1000)

    def write():
        monkeypatch.setattr(os, "fsync", die_slowly)
        store.get_or_make("big", {}, {}, lambda: ({"x": torch.ones(100)}, {}))

    pid = forked(write)
    wait_for(begun.exists)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert [path.suffix for path in store.folder.iterdir() if path.is_file()] == [".tmp"]
    assert not store.get_or_make("big", {}, {}, lambda: ({"x": torch.ones(100)}, {})).found
    assert [path.suffix for path in store.folder.iterdir() if path.is_file()] == [".safetensors"]


def test_a_file_system_without_locks_is_no_obstacle(tmp_path, monkeypatch):
    def refuse(file, how):
        raise OSError(errno.ENOSYS, "no locks here")

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert not Store(tmp_path).get_or_make("odd", {}, {}, lambda: ({}, {})).found
    assert Store(tmp_path).get_or_make("odd", {}, {}, lambda: ({}, {})).found
