"""Certificates of an explainer: columns, words, and the fewest rules to relax."""

import json
import math

import numpy as np
import pytest

import plausiflow as pf
from plausiflow.errors import InvalidInputError
from plausiflow.exact import Certificate
from proving import estimator, pipeline, scores, small_table

pytest.importorskip("ortools")


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(11)
    frame = small_table(rng, 120)
    score = scores(rng, frame)
    return frame, np.where(score > np.median(score), "granted", "rejected")


@pytest.fixture(scope="module")
def model(table):
    return pipeline(estimator("hist", 0)).fit(*table)


@pytest.fixture(scope="module")
def explainer(table, model):
    options = {"plausibility": 0.0, "confidence": None, "judges": 0, "learn_rules": False}
    return pf.Explainer(model, constraints=[pf.Immutable("owner")], **options).fit(*table, effort="quick")


@pytest.fixture(scope="module")
def rejected(table, model):
    return table[0][model.predict(table[0]) == "rejected"].iloc[:4]


@pytest.fixture(scope="module")
def result(explainer, rejected):
    return explainer.explain(rejected, target="granted", certify=20.0)


def test_no_answer_costs_less_than_its_bound(result):
    cost, bound = result.found_figures("cost"), result.status["bound"].to_numpy()
    found = result.is_found
    assert (bound[found] <= cost[found] + 1e-9).all()
    assert set(result.status["bound_status"]) == {"optimal"}


def test_the_words_say_how_far_an_answer_is_from_the_cheapest(result):
    for text in result.sentences[result.is_found]:
        assert "Proven cheapest" in text or "of the cheapest possible (proven)" in text
    row = json.loads(result.to_json())["rows"][0]
    assert row["bound_status"] == "optimal"
    assert row["bound"] > 0


def test_one_explanation_can_be_certified(explainer, rejected):
    plain = explainer.explain(rejected.iloc[:1], target="granted")[0]
    proven = plain.certify(seconds=20)
    assert math.isnan(plain.bound)
    assert proven.bound_status == "optimal"
    assert proven.sentence.startswith(plain.sentence.rstrip("."))


def test_without_recourse_the_fewest_rules_to_relax_are_named(table, explainer, rejected):
    names = list(table[0].columns)
    result = explainer.explain(rejected.iloc[:1], target="granted", locked=names, certify=20.0)
    (row,) = result
    assert row.bound_status == "no_recourse"
    assert math.isinf(row.bound)
    assert len(row.relax) >= 1
    assert "no change of the allowed features leads to granted" in row.sentence
    assert row.reason.startswith("proven: no allowed row is decided as wanted by the model; ")
    relaxed = [text.removeprefix("the lock on ") for text in row.relax if text.startswith("the lock on ")]
    assert len(relaxed) == len(row.relax)
    free = [name for name in names if name not in relaxed]
    again = explainer.explain(rejected.iloc[:1], target="granted", locked=free, certify=20.0)
    assert again.status["bound_status"].iloc[0] == "optimal"


def test_a_model_that_cannot_be_read_says_why_nothing_is_proven(table, model, rejected):
    options = {"plausibility": 0.0, "confidence": None, "judges": 0, "learn_rules": False}
    explainer = pf.Explainer(lambda rows: model.predict_proba(rows), **options)
    explainer.fit(table[0], table[1], effort="quick")
    result = explainer.explain(rejected.iloc[:1], target="granted", certify=1.0)
    open_ = result.status["status"] != "already"
    assert open_.any()
    assert (result.status["bound_status"][open_] == "not_possible").all()


@pytest.mark.parametrize("kind", ["linear", "network"])
def test_a_linear_model_and_a_small_network_are_proven(table, kind):
    network = pf.MLPClassifier(hidden=(4,)) if kind == "network" else pipeline(estimator(kind, 0)).fit(*table)
    options = {"plausibility": 0.0, "confidence": None, "judges": 0, "learn_rules": False}
    explainer = pf.Explainer(network, **options).fit(*table, effort="quick")
    result = explainer.explain(table[0].iloc[:4], target="granted", certify=20.0)
    open_ = (result.status["status"] == "found").to_numpy()
    assert open_.any()
    assert set(result.status["bound_status"][open_]) == {"optimal"}
    assert (result.status["bound"][open_] <= result.found_figures("cost")[open_] + 1e-9).all()


@pytest.mark.parametrize("seconds", [0, -1, "ten", math.inf])
def test_a_time_that_is_not_positive_is_refused(explainer, rejected, seconds):
    with pytest.raises(InvalidInputError, match="`certify` must be the seconds"):
        explainer.explain(rejected, certify=seconds)


def test_the_gap_is_the_price_of_plausibility_if_answers_must_be_plausible():
    certificate = Certificate(status="optimal", bound=0.2)
    assert "price of plausibility, 0.3" in certificate.sentence(0.5, "granted", density=True)
    assert certificate.sentence(0.2014, "granted", density=False) == (
        "Within 0.7% of the cheapest possible (proven)"
    )
    assert certificate.sentence(0.2, "granted", density=True) == "Proven cheapest"


def test_a_proof_without_recourse_names_the_feature_to_allow():
    certificate = Certificate(
        status="no_recourse",
        bound=math.inf,
        relax=('Immutable("savings")',),
        relaxed_features=("savings",),
    )
    assert certificate.sentence(math.nan, "granted", density=True) == (
        "Proven: no change of the allowed features leads to granted; "
        "allow `savings` to change and there is one"
    )
