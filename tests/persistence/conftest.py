"""Explainers that are fitted and saved once for all tests of saved explainers."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from plausiflow import Explainer, Training
from plausiflow.datasets.tables import loans_table
from plausiflow.densities import mixed
from plausiflow.models import black_box, students, surrogate
from plausiflow.search import black_box as verified
from plausiflow.search import fit as fitting
from plausiflow.search import learn
from plausiflow.search.evolution import Evolution
from saving import LEVELS, MODELS, NUMBERS, RULES, SETTINGS, outcomes


@pytest.fixture(scope="session")
def table():
    loans = loans_table(n=300)
    return loans.x[[*NUMBERS, *LEVELS]], loans.y


@pytest.fixture(scope="module", autouse=True)
def brief():
    """Densities and surrogates that learn for a moment only; short searches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixed, "FLOW_TRAINING", Training(epochs=1, learning_rate=1e-2))
        patch.setattr(mixed, "LEVELS_TRAINING", Training(epochs=1, learning_rate=1e-2))
        patch.setattr(learn, "MEMBERS", 2)
        patch.setattr(black_box, "MIN_SURROGATE_ROWS", 1000)
        patch.setattr(
            surrogate, "imitate_classifier", partial(surrogate.imitate_classifier, n_trees=10, n_leaves=8)
        )
        patch.setattr(students, "MIN_ROWS", 1000)
        patch.setattr(
            students, "imitate_regressor", partial(students.imitate_regressor, n_trees=10, n_leaves=8)
        )
        patch.setattr(verified, "ITERATIONS", 4)
        short = partial(verified.BlackBoxSearch, evolution=Evolution(rounds=1))
        patch.setattr(fitting, "BlackBoxSearch", short)
        yield


@pytest.fixture(scope="session")
def fitted(table):
    """Explainers by the name of their model, each fitted once."""
    known = {}

    def get(name):
        if name not in known:
            y = outcomes(name, table)
            model = MODELS[name](table[0], y)
            known[name] = Explainer(model, constraints=RULES, **SETTINGS).fit(table[0], y)
        return known[name]

    return get


@pytest.fixture(scope="session")
def saved(fitted, tmp_path_factory) -> Callable[[str], Path]:
    """Directories by the name of the model; a test that changes one copies it first."""
    root = tmp_path_factory.mktemp("saved")

    def get(name):
        if not (root / name).exists():
            fitted(name).save(root / name)
        return root / name

    return get


@pytest.fixture
def copied(saved, tmp_path):
    def get(name="network"):
        return Path(shutil.copytree(saved(name), tmp_path / "copy"))

    return get
