"""Maps of the what-if page: cells against the model and a closed-form density, planes against geometry."""

import json
import math

import numpy as np
import pandas as pd
import pytest
import torch

from explaining import stand_in
from plausiflow.constraints import Immutable
from plausiflow.core import TargetCriterion
from plausiflow.errors import InvalidInputError
from plausiflow.models import EncodedModel, LinearClassifier
from plausiflow.service.decision_map import draw_map
from plausiflow.service.schemas import MapRequest
from plausiflow.service.served_model import ServedModel

RADIUS = 0.8
PUSH = {"income": 4.0, "debt": -2.0, "age": 1.0, "job": 1.0}


@pytest.fixture
def table():
    """Two grids, a number without one, and a category that may be missing."""
    random = np.random.default_rng(0)
    n = 200
    frame = pd.DataFrame(
        {
            "age": random.integers(18, 91, n),
            "income": random.uniform(10.0, 60.0, n),
            "debt": random.integers(0, 20, n),
            "job": random.choice(["clerk", "driver", "nurse"], n),
        }
    )
    frame.loc[:5, "job"] = None
    frame.loc[0, ["age", "income", "debt"]] = [18, 10.0, 0]
    frame.loc[1, ["age", "income", "debt"]] = [90, 60.0, 19]
    return frame


@pytest.fixture
def explainer(table):
    return stand_in(table, [Immutable("age")], push=PUSH, radius=RADIUS)


ROW = {"age": 30, "income": 20.0, "debt": 5, "job": "clerk"}
ANSWER = {"age": 30, "income": 40.0, "debt": 3, "job": "clerk"}
OTHER = {"age": 30, "income": 35.0, "debt": 1, "job": "clerk"}


def scaled(row):
    """Income and debt as shares of their training ranges."""
    return np.array([(row["income"] - 10) / 50, row["debt"] / 19])


def draw(explainer, points=(), across="income", up="debt", size=12, row=ROW, target="yes"):
    axes = {"horizontal": across, "vertical": up, "size": size}
    request = MapRequest(instance=row, target=target, points=[*points], **axes)
    return draw_map(ServedModel("model", explainer), request, target)


def cells(drawn, row):
    """The rows of all cells, line by line, and their figures."""
    across, up = drawn["horizontal"], drawn["vertical"]
    rows = [{**row, across["name"]: x, up["name"]: y} for y in up["values"] for x in across["values"]]
    return pd.DataFrame(rows), {name: np.ravel(drawn[name]) for name in ("probability", "lead", "score")}


def test_a_cell_holds_what_the_model_says_of_the_row_with_its_two_values(explainer):
    rows, figures = cells(draw(explainer), ROW)
    proba = explainer.predict_proba(rows)
    np.testing.assert_allclose(figures["probability"], proba["yes"], rtol=1e-4)
    np.testing.assert_allclose(figures["lead"], proba["yes"] - proba["no"], atol=1e-4)


def test_a_cell_holds_its_score_under_the_density(explainer):
    rows, figures = cells(draw(explainer), ROW)
    centre = explainer.engine_.plausibility.centre
    numbers = np.column_stack([(rows["age"] - 18) / 72, (rows["income"] - 10) / 50, rows["debt"] / 19])
    job = np.tile([1.0, 0.0, 0.0, 0.0], (len(rows), 1))  # clerk, of three jobs and missing
    far = ((np.column_stack([numbers, job]) - centre.numpy()) ** 2).sum(axis=1)
    np.testing.assert_allclose(figures["score"], RADIUS**2 - far, atol=1e-4)


def test_points_lie_at_their_values_and_the_row_is_the_first(explainer):
    drawn = draw(explainer, [ANSWER], up="age")
    across = drawn["horizontal"]
    places = [(row["income"] - across["from"]) / (across["to"] - across["from"]) for row in (ROW, ANSWER)]
    assert [place[0] for place in drawn["points"]] == pytest.approx(places)
    assert drawn["points"][0][1] == pytest.approx((30 - 18) / 72)


def test_a_number_with_few_values_has_a_cell_for_each_and_points_lie_in_its_middle(explainer):
    drawn = draw(explainer, size=24)
    assert drawn["vertical"]["values"] == list(range(20))
    assert (drawn["vertical"]["from"], drawn["vertical"]["to"]) == (-0.5, 19.5)
    assert drawn["points"][0][1] == pytest.approx(5.5 / 20)
    assert np.shape(drawn["score"]) == (20, 24)


def test_an_axis_reaches_a_row_beyond_the_training_range(explainer):
    drawn = draw(explainer, row={**ROW, "income": 100.0})
    assert drawn["horizontal"]["to"] == pytest.approx(100.0)
    assert drawn["points"][0][0] == pytest.approx(1.0)


def test_levels_are_bands_and_missing_is_one_of_them(explainer):
    drawn = draw(explainer, [{**ROW, "job": None}], across="job", up="income")
    assert drawn["horizontal"]["values"] == ["clerk", "driver", "nurse", None]
    assert [place[0] for place in drawn["points"]] == [0.125, 0.875]
    rows, figures = cells(drawn, ROW)
    np.testing.assert_allclose(figures["probability"], explainer.predict_proba(rows)["yes"], rtol=1e-4)


def test_a_point_without_a_number_has_no_place_on_its_axis():
    frame = pd.DataFrame(np.random.default_rng(0).uniform(2, 3, (60, 2)), columns=["a", "b"])
    frame.loc[:2, "a"] = [1.0, 5.0, np.nan]
    explainer = stand_in(frame, push={"a": 1.0})
    drawn = draw(explainer, [{"a": 2.5, "b": 2.5}], "a", "b", 5, {"a": None, "b": 2.5})
    assert drawn["points"][0][0] is None
    assert drawn["points"][1][0] == pytest.approx((2.5 - 1) / 4)


def test_an_axis_of_a_heavy_tail_has_even_steps_of_its_logarithm():
    wealth = np.exp(np.random.default_rng(0).normal(6, 2, 200)).round(2)
    explainer = stand_in(pd.DataFrame({"wealth": wealth, "b": wealth % 7}), push={"b": 1.0})
    drawn = draw(explainer, [], "wealth", "b", 8, {"wealth": 100.0, "b": 2.0})
    assert drawn["horizontal"]["scale"] == "log"
    steps = np.diff(np.log1p(drawn["horizontal"]["values"]))
    np.testing.assert_allclose(steps, steps[0], rtol=2e-3)  # values are rounded to cents


def test_an_answer_that_changes_only_the_axes_has_its_own_figures_in_its_cell(table):
    explainer = stand_in(table, push={"debt": -4.0, "job": 1.0}, radius=RADIUS)
    row = pd.DataFrame([{"age": 54, "income": 35.0, "debt": 15, "job": "clerk"}])
    result = explainer.explain(row, "yes", locked=["age", "income"])
    answer = json.loads(result.to_json())["rows"][0]["counterfactuals"][0]
    drawn = draw(explainer, [answer["values"]], "job", "debt", size=20, row=row.iloc[0].to_dict())
    across, up = drawn["points"][1]
    column, line = int(across * 4), int(up * 20)
    assert drawn["score"][line][column] == pytest.approx(answer["score"], rel=1e-4)
    assert drawn["probability"][line][column] == pytest.approx(answer["probability"], rel=1e-4)


def test_distances_on_the_plane_are_those_of_the_scaled_numbers(explainer):
    drawn = draw(explainer, [ANSWER, OTHER], None, None)
    side = drawn["horizontal"]["to"] - drawn["horizontal"]["from"]
    assert drawn["vertical"]["to"] - drawn["vertical"]["from"] == pytest.approx(side)
    places = side * np.array(drawn["points"])
    known = np.array([scaled(row) for row in (ROW, ANSWER, OTHER)])
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert math.dist(places[i], places[j]) == pytest.approx(math.dist(known[i], known[j]))


def test_the_plane_leads_to_the_first_answer_along_its_horizontal_axis(explainer):
    drawn = draw(explainer, [ANSWER, OTHER], None, None)
    own, answer, _ = drawn["points"]
    assert answer[0] > own[0]
    assert answer[1] == pytest.approx(own[1])
    assert [axis["name"] for axis in (drawn["horizontal"], drawn["vertical"])] == [
        "towards answer 1",
        "towards answer 2",
    ]


def test_a_linear_model_is_linear_on_the_plane(explainer):
    drawn = draw(explainer, [ANSWER], None, None, size=9)
    proba = np.array(drawn["probability"], dtype=float)
    odds = np.log(proba / (1 - proba))
    for axis in range(2):
        bent = np.diff(odds, n=2, axis=axis)
        assert np.nanmax(np.abs(bent)) < 2e-3


def test_a_single_answer_leaves_the_second_axis_to_the_spread_of_plausible_rows():
    random = np.random.default_rng(1)
    long, short = random.uniform(0, 1, 300), random.uniform(0, 0.05, 300)
    frame = pd.DataFrame({"a": random.uniform(0, 1, 300), "b": long, "c": 0.5 + short})
    frame.loc[0, "c"], frame.loc[1, "c"] = 0.0, 1.0  # its range is wide, but few rows use it
    explainer = stand_in(frame, push={"a": 1.0})
    row = {"a": 0.1, "b": 0.5, "c": 0.5}
    drawn = draw(explainer, [{**row, "a": 0.9}], None, None, 5, row)
    assert drawn["vertical"]["name"] == "along the spread of plausible rows"
    assert drawn["vertical"]["parts"][0]["feature"] == "b"
    assert drawn["vertical"]["parts"][0]["share"] == pytest.approx(1.0, abs=0.01)


def test_the_plane_moves_no_immutable_number(explainer):
    drawn = draw(explainer, [ANSWER], None, None)
    for axis in (drawn["horizontal"], drawn["vertical"]):
        assert {part["feature"] for part in axis["parts"]} == {"income", "debt"}


def test_the_plane_has_the_categories_of_the_nearest_row(explainer):
    driver = {**ANSWER, "job": "driver"}
    drawn = draw(explainer, [driver], None, None, size=40)
    rows = pd.DataFrame([ROW, driver])
    for place, expected in zip(drawn["points"], explainer.predict_proba(rows)["yes"], strict=True):
        column, line = (int(share * 40) for share in place)
        assert drawn["probability"][line][column] == pytest.approx(expected, abs=0.04)


def test_the_plane_is_blank_where_a_number_leaves_the_training_range(explainer):
    drawn = draw(explainer, [{**ROW, "income": 60.0}], None, None, size=20)
    (own, answer), side = drawn["points"], drawn["horizontal"]["to"] - drawn["horizontal"]["from"]
    assert answer[0] - own[0] == pytest.approx((60 - 20) / 50 / side)
    line = drawn["score"][int(own[1] * 20)]
    incomes = 20 + 50 * side * ((np.arange(20) + 0.5) / 20 - own[0])
    assert [score is not None for score in line] == ((incomes >= 10) & (incomes <= 60)).tolist()


def test_without_any_answer_there_is_still_a_plane(explainer):
    drawn = draw(explainer, [], None, None)
    assert drawn["points"] == [pytest.approx([0.5, 0.5])]


def test_a_model_that_predicts_numbers_has_predictions_and_a_lead_over_the_interval(explainer):
    class Sum:
        def values(self, x):
            return 10 * x[:, 1] + x[:, 2]

    explainer.model_ = EncodedModel(Sum(), ())
    explainer.criterion_ = TargetCriterion(edges=(-math.inf, 5.0, math.inf), unit=2.0)
    drawn = draw(explainer, target=[4.0, 6.0])
    assert "probability" not in drawn
    across, up = np.array(drawn["horizontal"]["values"]), np.array(drawn["vertical"]["values"])
    expected = 10 * (across[None] - 10) / 50 + up[:, None] / 19
    np.testing.assert_allclose(drawn["prediction"], expected, rtol=1e-4)
    lead = np.minimum(expected - 4, 6 - expected) / 2
    np.testing.assert_allclose(drawn["lead"], lead, atol=1e-4)


def test_the_lead_of_one_class_among_three_is_over_the_best_other_one(explainer, table):
    weight = torch.randn(3, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model = LinearClassifier.from_weights(weight, torch.zeros(3, dtype=torch.float64))
    explainer.model_ = EncodedModel(model, ("low", "middle", "high"))
    rows, figures = cells(draw(explainer, target="middle"), ROW)
    proba = explainer.predict_proba(rows)
    np.testing.assert_allclose(
        figures["lead"], proba["middle"] - proba[["low", "high"]].max(axis=1), atol=1e-4
    )


@pytest.mark.parametrize("axes", [("income", "debt"), ("job", "age"), (None, None)])
def test_a_map_is_strict_json(explainer, axes):
    drawn = draw(explainer, [ANSWER, OTHER], *axes)
    assert json.loads(json.dumps(drawn, allow_nan=False)) == drawn


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"target": "maybe"}, "`target` must be 'opposite'"),
        ({"row": {**ROW, "income": "much"}}, "`instance`: `income` is 'much', which is not a number"),
        ({"points": [{**ROW, "job": "king"}]}, "point 1: `job` is 'king', a level that no training row has"),
    ],
)
def test_an_unreadable_row_or_target_is_an_error_with_the_reason(explainer, changed, expected):
    with pytest.raises(InvalidInputError, match=expected.replace("(", r"\(")):
        draw(explainer, **changed)


def test_a_plane_needs_two_numbers_that_can_change(table):
    explainer = stand_in(table, [Immutable("age", "income")], push=PUSH)
    with pytest.raises(InvalidInputError, match="this table has 1"):
        draw(explainer, [ANSWER], None, None)
