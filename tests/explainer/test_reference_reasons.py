"""Reasons from references: what the model needs, whatever the seed of the density is."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from plausiflow import GMM, Explainer, Immutable, Linear
from plausiflow.search.references import REFERENCES

NAMES = ["a", "b", "c", "d"]


def table(n=400, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(rng.uniform(0, 10, size=(n, 4)), columns=NAMES)


def linear(weights, frame):
    """A linear model with given weights that declines half of the rows."""
    x = frame.to_numpy()
    model = LogisticRegression(max_iter=1000).fit(
        frame, np.where(x @ weights > np.median(x @ weights), "yes", "no")
    )
    model.coef_[:], model.intercept_[:] = weights, -np.median(x @ weights)
    return model


def fitted(model, frame, constraints=(), seed=0):
    explainer = Explainer(
        model, density=GMM(random_state=seed), confidence=None, judges=0, learn_rules=False,
        constraints=constraints, random_state=seed,
    )  # fmt: skip
    return explainer.fit(frame, model.predict(frame), verbose=False)


@pytest.fixture(scope="module")
def frame():
    return table()


@pytest.fixture(scope="module")
def model(frame):
    return linear(np.array([1.0, 0.5, 0.2, 0.0]), frame)


@pytest.fixture(scope="module")
def explainer(model, frame):
    return fitted(model, frame)


@pytest.fixture(scope="module")
def declined(model):
    rows = table(60, seed=1)
    return rows[model.predict(rows) == "no"].reset_index(drop=True)


@pytest.fixture(scope="module")
def result(explainer, declined):
    return explainer.explain(declined, "yes", diagnose=False, verbose=False)


def features(result):
    return [[reason.feature for reason in one.reasons()] for one in result]


def test_the_only_feature_that_the_model_reads_is_the_only_reason(frame):
    model = linear(np.array([0.0, 0.0, 1.0, 0.0]), frame)
    rows = frame[model.predict(frame) == "no"].iloc[:8]
    result = fitted(model, frame).explain(rows, "yes", diagnose=False, verbose=False)
    assert features(result) == [["c"]] * 8
    for one in result:
        (reason,) = one.reasons()
        assert (reason.share, reason.weight) == (1.0, 1.0)
        assert reason.before == one.factual["c"] < reason.after


def test_a_feature_that_the_model_does_not_read_is_never_a_reason(result):
    assert all(0 < len(names) <= 4 and "d" not in names for names in features(result))


def test_needed_differences_are_as_few_as_brute_force_finds(explainer, result, model):
    references = result.certifier.references
    for row in range(5):
        x, targets, frame, locked = references.request.part(torch.tensor([row]))
        task = explainer.engine_.task(x, targets, frame=frame, locked=locked)
        _, near = explainer.engine_.reference_bank.moved(task, torch.tensor([0]), 12)
        changed = task.layout.changed(near, x.expand_as(near))
        needed = references._fewest(task, near, changed, references._gains(task, near, changed))
        before = result.rows.iloc[[row]].to_numpy()
        after = explainer.encoder_.decode(near).to_numpy()
        for own, kept in zip(after, needed, strict=True):
            assert int(kept.sum()) == fewest(model, before[0], own)


def fewest(model, before, after):
    """The size of the smallest set of differences that changes the decision, of all sets."""
    for count in range(1, len(NAMES) + 1):
        for some in combinations(range(len(NAMES)), count):
            row = before.copy()
            row[list(some)] = after[list(some)]
            if model.predict(pd.DataFrame([row], columns=NAMES))[0] == "yes":
                return count
    raise AssertionError("a reference is decided as wanted")


def test_shares_and_weights_are_shares(result):
    for one in result:
        found = one.find_references()
        assert ((found.share > 0) & (found.share <= 1)).all()
        assert found.weight.sum() == pytest.approx(1)
        assert (found.way == 1).all()  # every weight of the model is positive


@pytest.mark.slow
def test_another_seed_gives_the_same_reasons(model, frame, declined, result):
    other = fitted(model, frame, seed=7).explain(declined, "yes", diagnose=False, verbose=False)
    assert features(other) == features(result)


def test_a_row_alone_has_the_same_reasons_as_among_others(explainer, declined, result):
    alone = explainer.explain(declined.iloc[[5]], "yes", diagnose=False, verbose=False)
    assert alone[0].reasons() == result[5].reasons()


@pytest.mark.slow
def test_a_saved_explainer_gives_the_same_reasons(explainer, declined, result, tmp_path):
    explainer.save(tmp_path / "saved")
    loaded = Explainer.load(tmp_path / "saved").explain(declined, "yes", diagnose=False, verbose=False)
    assert [one.reasons() for one in loaded] == [one.reasons() for one in result]


def test_a_row_that_is_decided_as_wanted_has_no_reasons(explainer, model):
    rows = table(20, seed=2)
    granted = rows[model.predict(rows) == "yes"]
    assert features(explainer.explain(granted, "yes", verbose=False)) == [[]] * len(granted)


def test_a_row_without_a_counterfactual_has_reasons(model, frame, declined, result):
    strict = fitted(model, frame, [Linear("a + b <= 0.3")])
    refused = strict.explain(declined.iloc[:3], "yes", diagnose=False, verbose=False)
    assert {one.status for one in refused} == {"infeasible"}
    assert features(refused) == features(result)[:3]


def test_an_immutable_feature_is_no_reason(model, frame, declined):
    result = fitted(model, frame, [Immutable("a")]).explain(declined, "yes", diagnose=False, verbose=False)
    assert all("a" not in names for names in features(result))


@pytest.mark.slow
def test_the_model_itself_is_asked_if_it_has_no_gradients(frame):
    labels = np.where((frame["b"] > 5) & (frame["c"] > 3), "yes", "no")
    model = DecisionTreeClassifier(max_depth=3, random_state=0).fit(frame, labels)
    rows = frame[(frame["b"] < 4) & (frame["c"] > 4)].iloc[:4]
    result = fitted(model, frame).explain(rows, "yes", diagnose=False, verbose=False)
    assert features(result) == [["b"]] * 4


def test_references_are_the_nearest_rows_of_the_wanted_outcome(explainer, result, model, frame):
    granted = frame[model.predict(frame) == "yes"]
    assert len(granted) > REFERENCES
    one, found = result[0], result[0].find_references()
    span = frame.max() - frame.min()
    distance = (((granted - one.factual.astype(float)) / span) ** 2).sum(axis=1)
    near = granted.loc[distance.nsmallest(REFERENCES).index]
    after = dict(zip(found.feature, found.after, strict=True))
    assert all(near[name].min() <= value <= near[name].max() for name, value in after.items())
