"""How dense real rows are: percentiles of rows not seen in training, and the curves drawn from them."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import norm

from plausiflow.core.training import Training
from plausiflow.densities import ConditionalFlow, CrossFitEnsemble, OneCycle, levels, mixed
from plausiflow.densities.calibration import PlausibilityWarning
from plausiflow.densities.ensemble import split_by_class
from plausiflow.densities.thresholds import class_percentiles
from plausiflow.report import charts
from plausiflow.search.effort import EFFORTS, Effort
from reporting import PERCENTILES, Page


def test_the_share_of_real_rows_that_are_less_dense_is_the_normal_ones(many, page):
    data = page.data
    assert [curve["label"] for curve in data["curves"]] == ["no", "yes"]
    centre = np.where(many.verdicts["target"].to_numpy()[many.of] == "yes", 1.0, 0.0)
    expected = norm.cdf(many.figures["score"], centre, 2.0)
    np.testing.assert_allclose(data["answers"]["denser"], np.clip(expected, 0, 1), atol=0.01)


def test_the_curve_is_the_density_that_percentiles_come_from():
    points = np.array(charts.density_points(PERCENTILES[1]))
    expected = norm.pdf(points[:, 0], 1.0, 2.0) / norm.pdf(1.0, 1.0, 2.0)
    assert points[:, 1].max() == 1.0
    assert np.abs(points[:, 1] - expected).max() < 0.08
    assert points[0, 0] < norm.ppf(0.04, 1.0, 2.0) < 0 < points[-1, 0]


def test_constant_scores_still_have_a_curve():
    assert np.isfinite(charts.density_points(np.full(101, 0.3))).all()


@pytest.fixture(scope="module")
def brief():
    """Densities that learn for a moment only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixed, "FLOW_TRAINING", Training(epochs=1, learning_rate=1e-2))
        patch.setattr(levels, "LEVELS_TRAINING", Training(epochs=1))
        patch.setitem(EFFORTS, "standard", Effort(OneCycle(epochs=1), 6))
        yield


def test_an_ensemble_keeps_the_percentiles_of_rows_it_has_not_seen():
    x, y = torch.randn(161, 2), torch.arange(161) % 3 % 2
    base = ConditionalFlow(training=Training(epochs=1))
    ensemble = CrossFitEnsemble(members=2, base=base, quantile=0.3).fit(x, y)
    part = split_by_class(y, 2, ensemble.random_state)
    own = ensemble.member_scores(x, y)[part, torch.arange(161)].numpy()
    for k in (0, 1):
        expected = np.quantile(own[y == k], np.linspace(0, 1, 101), method="inverted_cdf")
        np.testing.assert_allclose(ensemble.held_out_[k], expected, atol=1e-9)
    again = CrossFitEnsemble(members=2, base=base).load_state(ensemble.state())
    assert torch.equal(again.held_out_, ensemble.held_out_)
    older = {name: value for name, value in ensemble.state().items() if name != "held_out"}
    assert CrossFitEnsemble(members=2, base=base).load_state(older).held_out_.numel() == 0


def test_rows_count_as_much_as_they_weigh():
    scores, weights = torch.randn(60), torch.rand(60)
    found = class_percentiles(scores, torch.zeros(60, dtype=torch.long), weights, 2)
    expected = np.quantile(scores, np.linspace(0, 1, 101), weights=weights, method="inverted_cdf")
    np.testing.assert_allclose(found[0], expected)
    assert found[1].isnan().all()


@pytest.mark.slow
def test_the_code_of_the_documentation_runs(brief, tmp_path, monkeypatch):
    text = (Path(__file__).parents[2] / "docs" / "report.md").read_text()
    code = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    monkeypatch.chdir(tmp_path)
    space = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlausibilityWarning)  # a density that hardly learned
        exec(compile(code, "report.md", "exec"), space)
    result, page = space["result"], Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert page.all("h1")[0][1] == "Loans of this week"
    needed = [i for i, curve in enumerate(page.data["rows"]["curve"]) if curve >= 0]
    assert len(needed) == len(result) == 20
    held_out = space["explainer"].engine_.plausibility.held_out_
    share = np.interp(result.figures["score"], held_out[0], np.linspace(0, 1, 101))
    np.testing.assert_allclose(page.data["answers"]["denser"], share)
