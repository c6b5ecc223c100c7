"""The study of retrained models on a small table."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from plausiflow import Explainer
from plausiflow.datasets import loans_table
from plausiflow.densities import mixed as density
from plausiflow.errors import InvalidInputError
from plausiflow.search import learn as fitting
from plausiflow_bench.tables import durable as study
from plausiflow_bench.tables import durable_page as page
from scarce import BRIEF

PAGE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "durable.md"
NAMES = ("survive", "rows_90", "other_settings", "fewer_rows", "cost", "changes", "judged")


@pytest.fixture
def small(monkeypatch):
    """Few loans, two densities with a very short training, few retrained models."""
    monkeypatch.setattr(fitting, "MEMBERS", 2)
    monkeypatch.setattr(density, "FLOW_TRAINING", BRIEF)
    monkeypatch.setattr(density, "LEVELS_TRAINING", BRIEF)
    table = replace(loans_table(n=260), study=(220, 40))
    monkeypatch.setattr(study, "study_table", lambda name: table)
    monkeypatch.setattr(study, "Explainer", partial(Explainer, judges=1, refits=5))
    for name, value in (("LADDER", (0.8,)), ("CHECKS", 22), ("OTHERS", 2), ("CALIBRATED_ROWS", 4)):
        monkeypatch.setattr(study, name, value)
    return study.DurableSelection(
        tables=("loans",), models=("lr",), rows=3, train=200, unseen=4, draws=1, confidence=0.5
    )


def row(method, **values):
    return {
        "dataset": "loans",
        "model": "lr",
        "confidence": 0.95,
        "method": method,
        "draw": 0,
        "found": 1.0,
        **values,
    }


ROWS = [
    row("default", survive=0.6, cost=1.0),
    row("durability", survive=0.97, cost=1.2),
    row("Beta check") | {"found": 0.0, "cost": float("nan")},
]


@pytest.mark.slow
def test_four_methods_answer_the_same_rows(small):
    rows = list(study.run(small))
    names = [str(row["method"]).partition("=")[0] for row in rows]
    assert names == ["default", "durability", "min_probability", "Beta check"]
    assert rows[0]["cost"] == 1.0
    assert all(0 <= own[name] <= 1 for own in rows[:2] for name in NAMES[:4])
    assert "lasting" in rows[1]
    assert all(0 <= rows[1][name] <= 1 for name in ("as_asked", "asked_survive", "asked_rows_90"))


def test_a_figure_shows_survival_against_cost(tmp_path):
    pytest.importorskip("matplotlib")
    page.draw_figure(ROWS, tmp_path / "durable.png")
    assert (tmp_path / "durable.png").stat().st_size > 1000


def test_tables_of_scikit_learn_are_known_and_others_are_not():
    assert study.DurableSelection(tables=("breast_cancer",)).tables == ("breast_cancer",)
    with pytest.raises(InvalidInputError, match="Unknown table 'moon'"):
        study.DurableSelection(tables=("moon",))


def test_the_rows_of_parts_are_weighted_by_their_answers():
    parts = [(3, dict.fromkeys(NAMES, 1.0)), (1, dict.fromkeys(NAMES, 0.0))]
    both = study._combined(parts, 8, None)
    assert both["survive"] == 0.75
    assert both["found"] == 0.5


def test_the_page_has_the_table_and_each_measurement_once(tmp_path):
    written = tmp_path / "durable.md"
    written.write_text(PAGE.read_text())
    known = {"training_rows": 200, "seed": 0, "commit": "abc"}
    other = row("default", survive=0.6, cost=1.0, dataset="law")
    page.write_page([own | known for own in [*ROWS[:2], other, *ROWS[:2]]], written)
    lines = [line for line in written.read_text().splitlines() if line.startswith("| l")]
    assert lines[1].startswith("| loans | lr | 0.95 | durability | 0 | 1.00 | 0.97 |")
    assert len(lines) == 3


def test_costs_are_compared_over_the_rows_that_both_answer():
    one, other = study._Answered({}, {0: 2.0, 1: 3.0, 2: 9.0}), study._Answered({}, {0: 1.0, 1: 3.0})
    assert one.cost_over(other) == 5 / 4
    assert np.isnan(one.cost_over(study._Answered({}, {})))


def test_unknown_models_and_methods_are_errors():
    with pytest.raises(InvalidInputError, match="Unknown models: tree"):
        study.DurableSelection(models=("tree",))
    with pytest.raises(InvalidInputError, match="Unknown methods: dice"):
        study.DurableSelection(methods=("dice",))


def test_networks_of_the_study_train_as_long_as_their_retrainings():
    assert not study.study_model("mlp", 0)[-1].early_stopping
    assert study.study_model("mlp_early", 0)[-1].early_stopping
    assert set(study.OTHER_SETTINGS) == {*study.MODELS, study.EARLY}
