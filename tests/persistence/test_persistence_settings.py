"""Special values, distances, prices and steps survive saving, in the library and behind the service."""

import numpy as np
import pandas as pd
import pytest

from plausiflow import Explainer, LinearClassifier, Price
from saving import assert_same

SPECIAL = {"days": [-1.0], "score": []}
PRICES = {("clerk", "nurse"): 3.0, ("nurse", "clerk"): 0.5}


def draw(n, seed=0):
    """Rows with a special value, and values that look special but are declared not to be."""
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "days": np.where(random.random(n) < 0.3, -1, random.integers(1, 200, n)),
            "score": np.where(random.random(n) < 0.3, -5, random.integers(10, 60, n)),
            "income": random.integers(10, 60, n) * 100,
            "job": random.choice(["clerk", "nurse"], n),
        }
    )
    odds = frame["income"] / 1000 - 3 + (frame["job"] == "nurse") + frame["days"].clip(0) / 100
    return frame, pd.Series(np.where(odds > 0.5, "granted", "rejected"), name="loan")


@pytest.fixture(scope="module")
def explainer():
    settings = {"confidence": None, "judges": 0, "plausibility": 0.1}
    made = Explainer(
        LinearClassifier(),
        constraints=[Price("job", PRICES)],
        distance="l1-mad",
        weights={"income": 2.0},
        special=SPECIAL,
        steps={"income": 500},
        **settings,
    )
    return made.fit(*draw(250))


@pytest.fixture(scope="module")
def again(explainer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("settings") / "credit"
    explainer.save(folder)
    return Explainer.load(folder)


def test_special_values_are_kept(explainer, again):
    schema = again.encoder_.schema
    assert (schema.feature("days").special, schema.feature("score").special) == ((-1.0,), ())
    assert again.special == SPECIAL
    assert again.infer_schema(draw(250)[0]) == schema == explainer.encoder_.schema
    assert (schema.feature("income").step, again.steps) == (500, {"income": 500})


def test_distance_prices_and_weights_are_kept(explainer, again):
    assert (again.distance, again.weights) == ("l1-mad", {"income": 2.0})
    assert list(again.constraints) == [Price("job", PRICES)]
    own, other = explainer.engine_.cost_model, again.engine_.cost_model
    assert other.distance == "l1-mad"
    np.testing.assert_array_equal(own.deviations, other.deviations)
    np.testing.assert_array_equal(own.weights, other.weights)


@pytest.mark.slow
def test_answers_and_their_costs_are_the_same(explainer, again):
    rows, _ = draw(12, 1)
    before, after = explainer.explain(rows, k=2), again.explain(rows, k=2)
    assert_same(before, after)
    assert after.distance == "l1-mad"
    changed = after.answers["days"].to_numpy() != rows["days"].to_numpy()[after.of]
    assert after.answers["days"].isin([-1]).any() or changed.any()
    assert not after.answers["days"].between(-0.5, 0.5).any(), "no number between the state and the others"


def test_a_price_is_what_a_change_of_level_costs_after_loading(again):
    rows = pd.DataFrame(
        {"days": [50, 50], "score": [30, 30], "income": [2500, 2500], "job": ["clerk", "nurse"]}
    )
    layout, encode = again.encoder_.layout, again.encoder_.encode
    x, x_cf = encode(rows).x, encode(rows.assign(job=["nurse", "clerk"])).x
    cost = again.engine_.cost_model((x, layout.codes(x)), (x_cf, layout.codes(x_cf)))
    np.testing.assert_allclose(cost, [3.0, 0.5])


def test_the_service_tells_special_values_and_answers_in_the_distance(explainer, again):
    pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
    from serving import Client

    rows, _ = draw(6, 2)
    instances = rows.to_dict("records")
    direct = explainer.explain(rows, "granted")
    with Client({"credit": again}) as client:
        features = {f["name"]: f for f in client.get("/v1/models/credit").json()["features"]}
        body = {"instances": instances, "target": "granted"}
        answers = client.post("/v1/models/credit:explain", body).json()["explanations"]
        row = client.get("/openapi.json").json()["components"]["schemas"]["credit_row"]
    assert (features["days"]["special"], features["score"]["special"]) == ([-1], [])
    assert "or -1" in row["properties"]["days"]["description"]
    given = [answer for one in answers for answer in one["counterfactuals"]]
    assert {answer["distance"] for answer in given} == {"l1-mad"}
    np.testing.assert_allclose([answer["cost"] for answer in given], direct.figures["cost"])
    assert [answer["values"]["days"] for answer in given] == direct.answers["days"].tolist()
