"""The study of scarce labels on a small table."""

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from plausiflow import Explainer
from plausiflow.datasets import loans_table
from plausiflow.densities import Judges
from plausiflow.densities import mixed as density
from plausiflow.errors import InvalidInputError
from plausiflow.search import learn as fitting
from plausiflow_bench.tables import labels as study
from scarce import BRIEF

PAGE = Path(__file__).resolve().parents[3] / "docs" / "labels.md"


@pytest.fixture
def brief(monkeypatch):
    """Two densities with a very short training."""
    monkeypatch.setattr(fitting, "MEMBERS", 2)
    monkeypatch.setattr(density, "FLOW_TRAINING", BRIEF)
    monkeypatch.setattr(density, "LEVELS_TRAINING", BRIEF)


@pytest.fixture
def quick(brief, monkeypatch):
    small = replace(loans_table(n=300), study=(220, 80))
    monkeypatch.setattr(study, "load_table", lambda name: small)
    monkeypatch.setattr(study, "Explainer", partial(Explainer, confidence=None))
    monkeypatch.setattr(study, "Judges", partial(Judges, count=1))
    return study.LabelSelection(tables=("loans",), rows=5, labelled=60)


@pytest.mark.slow
def test_the_study_explains_one_model_with_four_densities(quick, tmp_path):
    rows = list(study.run(quick))
    assert [row["method"] for row in rows] == ["given_all", "given_scarce", "model", "bayes"]
    assert [row["labelled"] for row in rows] == [220, 60, 60, 60]
    assert len({row["accuracy"] for row in rows}) == 1
    assert all(row["plausible"] == 1.0 and 0 <= row["judged"] <= 1 for row in rows if row["found"] > 0)
    assert all(math.isfinite(row["log_density"]) and row["fit_cpu_seconds"] > 0 for row in rows)
    assert all(0 <= row["true_plausible"] <= 1 for row in rows if row["found"] > 0)
    page = tmp_path / "labels.md"
    page.write_text(PAGE.read_text())
    study.write_page(rows, page)
    assert page.read_text().count("| loans |") == 4
    assert f"commit {rows[0]['commit']}" in page.read_text()


def test_too_few_labels_are_refused():
    with pytest.raises(InvalidInputError, match="`labelled` must be at least 2; got 1"):
        study.LabelSelection(labelled=1)
