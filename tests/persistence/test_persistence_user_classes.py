"""Densities and plausibilities of users' own classes are saved as tensors and passed to ``load`` again."""

import json
from dataclasses import replace

import pytest
import torch

from plausiflow import Explainer, LinearClassifier, Training, persistence
from plausiflow.densities import CrossFitEnsemble, Judges, Thresholded
from plausiflow.errors import InvalidInputError
from saving import NUMBERS, assert_same, changed_document, document_of


class Gaussian:
    """A user's density: independent normal distributions per class."""

    def __init__(self, floor=0.1):
        self.floor = floor

    def fit(self, x, y, *, n_classes=None):
        rows = [x[y == k].double() for k in range(n_classes or int(y.max()) + 1)]
        self.mean = torch.stack([part.mean(dim=0) for part in rows])
        self.sd = torch.stack([part.std(dim=0) for part in rows])
        return self

    def log_prob(self, x, y):
        scale = (self.sd + self.floor).to(x)[y]
        return torch.distributions.Normal(self.mean.to(x)[y], scale).log_prob(x).sum(dim=1)

    def state(self):
        return {"mean": self.mean, "sd": self.sd, "shape": torch.tensor([1 << 40])}

    def load_state(self, state):
        self.mean, self.sd = state["mean"], state["sd"]


class NearTheMean(Gaussian):
    """A user's plausibility: it has a score, and no density needs to be known."""

    def score(self, x, y):
        return 2 - (x - self.mean.to(x)[y]).norm(dim=1)


class Reloading(Gaussian):
    def load_state(self, state):
        raise KeyError("sd")


@pytest.fixture
def parts(saved):
    return persistence.load(saved("network"), None, None, None)


@pytest.fixture
def rows(fitted, table):
    explainer = fitted("network")
    return explainer.encoder_.encode(table[0]).x, torch.arange(len(table[0])) % 2


PLAUSIBILITIES = {
    "density": lambda x, y: Thresholded(density=Gaussian().fit(x, y)).fit(x, y),
    "plausibility": lambda x, y: NearTheMean().fit(x, y),
    "members": lambda x, y: CrossFitEnsemble(members=2, base=Gaussian()).fit(x, y),
}
OBJECTS = {"density": Gaussian, "plausibility": NearTheMean, "members": Gaussian}


@pytest.fixture
def save(parts, rows, tmp_path):
    def get(name, **changes):
        changes.setdefault("plausibility", PLAUSIBILITIES[name](*rows))
        made = replace(parts, judges=None, **changes)
        persistence.save(tmp_path / "own", made)
        return tmp_path / "own", made

    return get


@pytest.mark.parametrize("name", PLAUSIBILITIES)
def test_what_a_user_brings_comes_back_with_the_same_scores(name, save, rows):
    folder, before = save(name)
    given = OBJECTS[name]()
    after = persistence.load(folder, None, given, None)
    assert type(after.plausibility) is type(before.plausibility)
    assert torch.equal(after.plausibility.score(*rows), before.plausibility.score(*rows))
    if name == "density":
        assert after.plausibility.density is given


@pytest.mark.parametrize("setting", ["density", "plausibility"])
def test_an_explainer_with_what_a_user_brings_gives_the_same_answers(setting, table, tmp_path):
    x, y = table[0][NUMBERS], table[1]
    model = LinearClassifier(training=Training(epochs=20))
    own = Gaussian()
    if setting == "plausibility":
        encoded = Explainer(model, confidence=None, judges=0).fit(x, y).encoder_.encode(x).x
        own = NearTheMean().fit(encoded, torch.tensor((y == y.max()).tolist()).long())
    explainer = Explainer(model, confidence=None, judges=0, **{setting: own}).fit(x, y)
    explainer.save(tmp_path / "own")
    after = Explainer.load(tmp_path / "own", density=type(own)())
    assert_same(explainer.explain(x.iloc[:5]), after.explain(x.iloc[:5]))


def test_judges_may_be_of_a_users_class_too(save, rows, parts, tmp_path):
    judges = Judges(count=2, base=Gaussian()).fit(*rows)
    persistence.save(tmp_path / "judged", replace(parts, judges=judges))
    after = persistence.load(tmp_path / "judged", None, Gaussian(), None)
    assert torch.equal(after.judges.passes(*rows), judges.passes(*rows))


def test_the_class_is_stored_as_its_name_only(save):
    folder, _ = save("density")
    stored = document_of(folder)["plausibility"]["density"]
    assert stored == {"kind": "user", "class": f"{__name__}.Gaussian"}
    changed_document(folder, lambda d: d["plausibility"]["density"].update({"class": "os.system"}))
    with pytest.raises(InvalidInputError, match=r"an object of the class `os\.system`"):
        persistence.load(folder, None, Gaussian(), None)


def test_a_missing_density_is_an_error_that_says_what_to_pass(save):
    folder, _ = save("density")
    with pytest.raises(
        InvalidInputError, match=r"`[\w.]+\.Gaussian`.*none was given.*density=Gaussian\(\.\.\.\)"
    ):
        persistence.load(folder, None, None, None)


def test_a_density_of_another_class_is_an_error_that_names_both(save):
    folder, _ = save("density")
    with pytest.raises(InvalidInputError, match=r"class `[\w.]+\.Gaussian`.*got a `[\w.]+\.NearTheMean`"):
        persistence.load(folder, None, NearTheMean(), None)


def test_a_density_with_other_settings_is_an_error(save):
    folder, _ = save("density")
    with pytest.raises(InvalidInputError, match=r"scores of synthetic rows differ.*same settings"):
        persistence.load(folder, None, Gaussian(floor=0.5), None)


def test_a_density_that_cannot_load_its_state_is_named(save, rows):
    folder, _ = save("density", plausibility=Thresholded(density=Reloading().fit(*rows)).fit(*rows))
    with pytest.raises(
        InvalidInputError, match=r"`density\.load_state` raised KeyError: 'sd'.*a Reloading with"
    ):
        persistence.load(folder, None, Reloading(), None)


def test_a_density_is_refused_if_the_explainer_has_none_of_a_users_class(saved):
    with pytest.raises(InvalidInputError, match="`density` must be None"):
        persistence.load(saved("network"), None, Gaussian(), None)


def test_what_cannot_be_saved_is_refused_with_what_to_do(save, rows):
    class WithoutState:
        def score(self, x, y):
            return x.sum(dim=1)

    with pytest.raises(
        InvalidInputError, match=r"got a WithoutState.*Add `state\(\)` and `load_state\(state\)`"
    ):
        save("plausibility", plausibility=WithoutState())

    class Listed(Gaussian):
        def state(self):
            return {"mean": self.mean.tolist()}

    with pytest.raises(InvalidInputError, match=r"dictionary of tensors; got .*'density.mean': 'list'"):
        save("density", plausibility=Thresholded(density=Listed().fit(*rows)).fit(*rows))


def test_a_document_of_a_users_class_is_checked_as_any_other(save):
    folder, _ = save("members")
    changed_document(folder, lambda d: d["plausibility"].update(members=10**9))
    with pytest.raises(persistence.ArtefactError, match="too large"):
        persistence.load(folder, None, Gaussian(), None)
    assert json.dumps(document_of(folder)["plausibility"]).count("Gaussian") == 1
