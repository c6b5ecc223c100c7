"""An interval is met by any bin inside it: a wider interval never finds fewer rows."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression

from plausiflow import Explainer
from plausiflow.core import TargetCriterion
from plausiflow.densities import KDE
from plausiflow.search import parse_target

CRITERION = TargetCriterion(edges=(-np.inf, 1.0, 2.0, 3.0, 4.0, np.inf))
ROWS = 4


def bins_of(target, value):
    choices = parse_target(target, torch.tensor([value], dtype=torch.float64), CRITERION, ())
    return [int(own.y) for own in choices]


@pytest.mark.parametrize(
    ("target", "value", "bins"),
    [
        ((2.2, 2.4), 0.0, [2]),  # narrower than a bin
        ((1.9, 2.1), 0.0, [1, 2]),  # across an edge
        ((1.0, 4.0), 0.0, [1, 2, 3]),  # the upper bin is only touched
        ((1.0, 4.0), 9.0, [3, 2, 1]),  # from above
        ((1.5, None), 0.0, [1, 2, 3, 4]),
        ((None, 2.5), 9.0, [2, 1, 0]),
        ((None, 4.5), 2.5, [2, 1, 3, 0, 4]),  # inside already
    ],
)
def test_every_bin_that_an_interval_meets_is_searched_the_nearest_first(target, value, bins):
    assert bins_of(target, value) == bins


def test_rows_with_fewer_bins_repeat_their_last_one():
    values = torch.tensor([0.0, 0.0], dtype=torch.float64)
    choices = parse_target([(1.5, 3.5), (2.2, 2.4)], values, CRITERION, ())
    assert [own.y.tolist() for own in choices] == [[1, 2], [2, 2], [3, 2]]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_the_bins_of_a_wider_interval_include_those_of_a_narrower_one(data):
    number = st.floats(-1, 6, allow_nan=False).map(lambda value: round(value, 2))
    low, high = sorted(data.draw(st.tuples(number, number).filter(lambda pair: pair[0] != pair[1])))
    below, above = data.draw(st.floats(0, 3)), data.draw(st.floats(0, 3))
    value = data.draw(number)
    wider = (data.draw(st.sampled_from([None, low - below])), high + above)
    assert set(bins_of((low, high), value)) <= set(bins_of(wider, value))


@pytest.fixture(scope="module")
def case():
    """Two clouds with a gap: the density of the middle outcomes accepts few rows."""
    rng = np.random.default_rng(0)
    x = pd.DataFrame(rng.normal(size=(200, 2)).round(2), columns=["a", "b"])
    x["b"] += np.where(np.arange(200) % 2, 3.0, -1.0)
    y = 2 * x["a"] + x["b"] + 0.3 * rng.normal(size=200)
    model = LinearRegression().fit(x, y)
    exact = Explainer(model, density=KDE(), plausibility=0.7, confidence=None, judges=0)
    return x, model, exact.fit(x, y), y


def outcome(explainer, rows, target):
    result = explainer.explain(rows, target=target)
    assert len(result.answers) == len(result.of)
    return result, result.status["status"].isin(["found", "already"]).to_numpy()


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(st.data())
def test_a_wider_interval_never_finds_fewer_rows(case, data):
    x, model, explainer, y = case
    low, high = float(y.min()), float(y.max())
    ends = st.floats(low, high).map(lambda value: round(value, 1))
    first, second = sorted(data.draw(st.tuples(ends, ends).filter(lambda pair: pair[0] + 0.2 < pair[1])))
    wider_low = data.draw(st.sampled_from([None, first, round(first - 1.0, 1)]))
    wider_high = data.draw(
        st.sampled_from([second, round(second + 2.5, 1)] + [None] * (wider_low is not None))
    )
    rows = x[:ROWS]
    _, narrow = outcome(explainer, rows, (first, second))
    result, wide = outcome(explainer, rows, (wider_low, wider_high))
    assert (wide >= narrow).all()
    if not wide.any():
        return
    predicted = model.predict(pd.concat([result.answers, rows[result.status["status"] == "already"]]))
    assert (predicted >= (-np.inf if wider_low is None else wider_low)).all()
    assert (predicted <= (np.inf if wider_high is None else wider_high)).all()


def test_an_answer_is_inside_the_interval_and_plausible_for_one_of_its_bins(case):
    x, model, explainer, y = case
    target = (float(y.quantile(0.45)), float(y.quantile(0.95)))
    rows = x[:20]
    result, met = outcome(explainer, rows, target)
    assert met.all()
    assert (explainer.score(result.answers, target) >= 0).all()
    assert ((model.predict(result.answers) >= target[0]) & (model.predict(result.answers) <= target[1])).all()
    np.testing.assert_array_equal(explainer.predict(rows), model.predict(rows))


def test_rows_of_several_bins_alone_and_together(case):
    x, _, explainer, y = case
    target = (None, float(y.quantile(0.5)))
    rows = x[:6]
    together = explainer.explain(rows, target=target)
    for row in range(6):
        alone = explainer.explain(rows[row : row + 1], target=target)
        pd.testing.assert_frame_equal(alone.counterfactuals, together.counterfactuals[row : row + 1])


def test_a_row_without_an_answer_keeps_its_reason(case):
    x, _, explainer, y = case
    result = explainer.explain(x[:3], target=(float(y.max()) + 50, None))
    assert (result.status["status"] == "infeasible").all()
    assert result.status["reason"].str.len().gt(0).all()
