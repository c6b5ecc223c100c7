"""Saved explainers that were made to exhaust memory are refused, and take little memory until then."""

import sys

import pytest
import torch

from hostile import HOSTILE, peak_of, size_of
from plausiflow import Explainer
from plausiflow.errors import PlausiflowError
from plausiflow.persistence import ArtefactError, files

for library in ("lightgbm", "xgboost", "skops.io"):
    pytest.importorskip(library)

SLACK = 300 << 20


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs the peak memory of Linux")
@pytest.mark.parametrize("change", HOSTILE, ids=lambda change: change.__name__.replace("_", " "))
def test_a_hostile_directory_is_refused_and_takes_little_memory(change, copied):
    folder = copied(HOSTILE[change])
    change(folder)

    def load():
        torch.set_num_threads(1)
        with pytest.raises(PlausiflowError):
            Explainer.load(folder)

    assert peak_of(load) <= 4 * size_of(folder) + SLACK


@pytest.mark.parametrize("error", [MemoryError, RecursionError, OverflowError])
def test_an_error_of_the_interpreter_becomes_ours(error, saved, monkeypatch):
    def parse(*_):
        raise error("too much")

    monkeypatch.setattr(files, "parse_tensors", parse)
    with pytest.raises(ArtefactError, match=r"needs more memory than there is|its parts do not fit"):
        Explainer.load(saved("network"))


def test_a_file_is_hashed_in_parts_before_it_is_held(copied, monkeypatch):
    folder, reads = copied(), []
    content = bytearray((folder / "bank.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "bank.safetensors").write_bytes(content)
    monkeypatch.setattr(files, "_CHUNK_BYTES", 1000)
    monkeypatch.setattr(files, "parse_tensors", lambda content, name: reads.append(name))
    with pytest.raises(ArtefactError, match=r"bank\.safetensors has changed"):
        Explainer.load(folder)
    assert "bank.safetensors" not in reads
