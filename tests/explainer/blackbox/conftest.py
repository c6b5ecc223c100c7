"""Shared by the tests of black boxes: short training and short searches; each case is made once."""

from functools import partial

import pytest

from blackboxes import CASES, TREES
from plausiflow.core.training import Training
from plausiflow.densities import mixed
from plausiflow.explainer import fitting as explainer_fitting
from plausiflow.models import black_box, surrogate
from plausiflow.search import black_box as verified
from plausiflow.search import fit as fitting
from plausiflow.search import learn
from plausiflow.search.evolution import Evolution


def remembered(learn_plausibility, known):
    """The same densities for the same rows and rules; without a second opinion nothing changes them."""

    def get(rows, *, rules, encoder, settings):
        arrays = rows.x.numpy().tobytes(), rows.classes.numpy().tobytes()
        parts = (*arrays, str(rules.constraints), repr(settings))
        if rows.log_proba is not None:
            return learn_plausibility(rows, rules=rules, encoder=encoder, settings=settings)
        if parts not in known:
            known[parts] = learn_plausibility(rows, rules=rules, encoder=encoder, settings=settings)
        return known[parts]

    return get


@pytest.fixture(scope="session")
def known():
    """Densities that were learned already."""
    return {}


@pytest.fixture(scope="module", autouse=True)
def brief(known):
    """Densities and surrogates that learn for a moment only, once for the same rows; short searches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixed, "FLOW_TRAINING", Training(epochs=1, learning_rate=1e-2))
        patch.setattr(mixed, "LEVELS_TRAINING", Training(epochs=1, learning_rate=1e-2))
        patch.setattr(learn, "MEMBERS", 2)
        patch.setattr(black_box, "MIN_SURROGATE_ROWS", 2000)
        patch.setattr(
            surrogate, "imitate_classifier", partial(surrogate.imitate_classifier, n_trees=TREES, n_leaves=15)
        )
        learned = remembered(explainer_fitting.learn_plausibility, known)
        patch.setattr(explainer_fitting, "learn_plausibility", learned)
        patch.setattr(verified, "ITERATIONS", 8)
        short = partial(verified.BlackBoxSearch, evolution=Evolution(rounds=4))
        patch.setattr(fitting, "BlackBoxSearch", short)
        yield


@pytest.fixture(scope="session")
def cases():
    """Makes each case once, when a test asks for it: what it learns is brief then."""
    made = {}

    def get(name):
        if name not in made:
            made[name] = CASES[name]()
        return made[name]

    return get
