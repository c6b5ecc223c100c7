"""The answers of the engine are those that were recorded."""

import json
from pathlib import Path

import pytest
import torch
from recording import CASES, differences

RECORDED = json.loads((Path(__file__).parent / "answers.json").read_text())
TOLERANCE = 1e-6
"""Costs may differ by this share on another processor; on the one of the record all hashes are equal."""


@pytest.fixture(autouse=True)
def single_precision():
    """Torch's own default, with which the answers were recorded."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    yield
    torch.set_default_dtype(before)


def compare(name: str) -> None:
    answers = CASES[name]()
    assert answers.keys() == RECORDED[name].keys()
    for part, own in answers.items():
        differs = differences(RECORDED[name][part], own)
        if not differs["identical"]:
            assert differs["same_status"] == differs["rows"], (part, differs)
            assert differs["worst_cost_ratio"] <= 1 + TOLERANCE, (part, differs)


@pytest.mark.paper
def test_ppcef_on_a_published_model_answers_as_recorded(reference_directory, monkeypatch):
    monkeypatch.setenv("PLAUSIFLOW_REFERENCE", str(reference_directory))
    compare("ppcef_moons_lr")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in CASES if name != "ppcef_moons_lr"])
def test_answers_are_as_recorded(name, reference_directory, data_directory, monkeypatch):
    monkeypatch.setenv("PLAUSIFLOW_REFERENCE", str(reference_directory))
    monkeypatch.setenv("PLAUSIFLOW_DATA", str(data_directory))
    compare(name)
