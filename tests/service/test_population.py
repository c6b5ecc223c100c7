"""Histograms of rows with an outcome: shares are those of the training rows, and few rows stay hidden."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

from explaining import stand_in
from plausiflow.constraints import Immutable
from plausiflow.explainer import Explainer
from serving import AT, NAME, Client, instances, people

N = 400


@pytest.fixture(scope="module")
def crowd():
    """Return a table whose rows with a positive score are "yes", and its explainer."""
    rng = np.random.default_rng(0)
    score = np.concatenate([rng.permutation(np.linspace(-1, 1, N - 3)), [0.5, 0.6, 0.7]]).round(4)
    rooms = rng.integers(0, 12, N)
    job = np.array(["cook", "nurse", "clerk"], dtype=object)[rng.integers(0, 3, N)]
    job[-3:] = "astronaut"  # too few to be shown
    table = pd.DataFrame({"score": score, "rooms": rooms, "job": job})
    return stand_in(table, [Immutable("rooms")], push={"score": 5.0}), table


def population(explainer, target, name=NAME):
    with Client({name: explainer}) as client:
        return client.post(f"{AT}:population", {"target": target})


def test_shares_are_those_of_the_rows_that_the_model_decides_so(crowd):
    explainer, table = crowd
    chosen = table[explainer.predict(table) == "yes"]
    found = population(explainer, "yes").json()
    assert found["outcome"] is None
    score = found["features"]["score"]
    assert len(score["edges"]) == len(score["shares"]) + 1 <= 13
    assert (score["edges"][0], score["edges"][-1]) == (-1, 1)
    counts = np.histogram(chosen["score"], score["edges"])[0]
    for count, share in zip(counts, score["shares"], strict=True):
        assert share == (pytest.approx(count / len(chosen), abs=0.005) if count >= 10 else None)
    assert [share for share in score["shares"][:5] if share] == []  # "no" is below the middle
    rooms = found["features"]["rooms"]
    assert rooms["edges"] == [room - 0.5 for room in range(13)]
    counts = chosen["rooms"].value_counts().reindex(range(12), fill_value=0)
    expected = [round(count / len(chosen), 2) if count >= 10 else None for count in counts]
    assert rooms["shares"] == expected


def test_a_level_of_few_rows_and_a_table_of_few_rows_have_no_shares(crowd):
    job = population(crowd[0], "yes").json()["features"]["job"]
    shares = dict(zip(job["levels"], job["shares"], strict=True))
    assert shares.pop("astronaut") is None
    assert sum(shares.values()) == pytest.approx(1, abs=0.03)
    few = stand_in(crowd[1][:40], push={"score": 5.0})
    assert population(few, "yes").json()["features"] == {}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::plausiflow.densities.PlausibilityWarning")  # few rows
def test_intervals_that_differ_a_little_have_the_same_population():
    rng = np.random.default_rng(3)
    table = pd.DataFrame(rng.normal(size=(400, 2)).round(3), columns=["area", "age"])
    price = 3 * table["area"] - table["age"]
    explainer = Explainer(LinearRegression().fit(table, price), confidence=None, judges=0)
    explainer.fit(table, price, effort="quick")
    edges = explainer.criterion_.edges
    middle = (edges[2] + edges[3]) / 2
    answers = [population(explainer, [middle + shift, None]).json() for shift in (-0.02, 0.0, 0.02)]
    assert answers[0] == answers[1] == answers[2]
    assert answers[0]["outcome"] == [pytest.approx(edges[2]), None]
    chosen = table[explainer.predict(table) >= edges[2]]
    area = answers[0]["features"]["area"]
    counts = np.histogram(chosen["area"], area["edges"])[0]
    shares = [None if count < 10 else count / len(chosen) for count in counts]
    assert area["shares"] == [None if one is None else pytest.approx(one, abs=0.011) for one in shares]


@pytest.mark.parametrize("target", ["perhaps", "opposite", None, [0, 1]])
def test_only_an_outcome_of_the_model_has_a_population(crowd, target):
    answer = population(crowd[0], target)
    assert answer.status_code == 422
    assert "must be one of the outcomes 'no', 'yes'" in answer.json()["error"] or "one target" in answer.text


def test_directions_are_rules_of_the_request():
    explainer, frame = people()
    rows = instances(frame[(explainer.predict(frame) == "no") & frame["income"].notna()])[:6]
    with Client() as client:
        free = client.explain(rows, "yes")
        kept = client.explain(rows, "yes", decreasing=["income"], increasing=["school", "savings"])
        wrong = {"instances": rows, "parameters": {"increasing": ["job"]}}
        answer = client.post(f"{AT}:explain", wrong)

    def rises(explanations):
        pairs = [(one["factual"], own["values"]) for one in explanations for own in one["counterfactuals"]]
        return [after["income"] > before["income"] for before, after in pairs]

    assert any(rises(free))
    assert rises(kept) != []
    assert not any(rises(kept))
    assert answer.status_code == 422
    assert "`parameters.increasing[0]`" in answer.json()["error"]
