"""Answers that last: tolerance factors, refits, and what retrained models that nobody has seen decide."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from plausiflow import Explainer
from plausiflow.core import DurableCriterion, TargetCriterion, Targets, tolerance_factor
from plausiflow.datasets import loans_table
from plausiflow.densities import PlausibilityWarning
from plausiflow.errors import InvalidInputError
from plausiflow.models import LinearClassifier, draw_refits
from plausiflow.models.refits import bootstrap

pytestmark = pytest.mark.filterwarnings("ignore:Counterfactuals may not last")
NUMBERS = ["income", "debt_ratio", "loan_amount", "credit_score"]


@pytest.fixture(scope="module")
def table():
    made = loans_table(400)
    return made.x[NUMBERS], made.y


def fitted(model, x, y, **settings):
    return Explainer(model, confidence=None, judges=0, **settings).fit(x, y, effort="quick", verbose=False)


# ---------------------------------------------------------------- factors and criterion


@pytest.mark.parametrize(
    ("guides", "share", "confidence", "published"),
    [(10, 0.9, 0.95, 2.355), (20, 0.9, 0.95, 1.926), (30, 0.9, 0.95, 1.778), (15, 0.95, 0.95, 2.566)],
)
def test_without_a_prior_factors_are_the_published_ones(guides, share, confidence, published):
    assert tolerance_factor(guides, share, confidence, prior=0) == pytest.approx(published, abs=2e-3)


def test_a_factor_keeps_its_promise_for_normal_margins():
    generator = np.random.default_rng(0)
    factor = tolerance_factor(15, 0.9, 0.95, prior=0)
    margins = generator.normal(size=(20_000, 15))
    low = margins.mean(axis=1) - factor * margins.std(axis=1, ddof=1)
    assert (stats.norm.sf(low) >= 0.9).mean() == pytest.approx(0.95, abs=0.006)


def test_the_bound_is_the_mean_margin_less_shrunk_deviations():
    torch.manual_seed(0)
    criterion = DurableCriterion(n_classes=3, guides=6, factors=(2.0, 1.5, 1.0), variances=(0.5, 1.0, 2.0))
    outputs = torch.randn(20, 21, dtype=torch.float64)
    targets = Targets(torch.arange(20) % 3)
    own, guides = criterion.split(outputs)
    for i in range(20):
        y = int(targets.y[i])
        margins = [float(g[y] - max(g[k] for k in range(3) if k != y)) for g in guides[i]]
        variance = (15 * criterion.variances[y] + 5 * np.var(margins, ddof=1)) / 20
        expected = np.mean(margins) - criterion.factors[y] * np.sqrt(variance + 1e-8)
        assert float(criterion.bound(guides, targets)[i]) == pytest.approx(expected)
    plain = TargetCriterion()
    value = criterion.value(outputs, targets)
    assert torch.equal(value, torch.minimum(plain.value(own, targets), criterion.bound(guides, targets)))
    assert torch.equal(criterion.value(own, targets), plain.value(own, targets))
    assert torch.equal(criterion.classes(outputs), plain.classes(own))
    given = outputs.clone().requires_grad_()
    (expected,) = torch.autograd.grad(criterion.value(given, targets).sum(), given)
    assert torch.allclose(criterion.value_and_grad(outputs, targets)[1], expected)


# ---------------------------------------------------------------- refits


def halves(rows):
    """Return probabilities by income, as a function that cannot be trained again."""
    chance = (rows["income"].to_numpy() > 40_000) * 0.8 + 0.1
    return np.stack([chance, 1 - chance], axis=1)


def test_a_bootstrap_has_as_many_rows_of_each_outcome_and_every_level():
    generator = np.random.default_rng(0)
    frame = pd.DataFrame({"job": ["rare", *["clerk"] * 99], "a": range(100)})
    y = pd.Series(["yes"] * 30 + ["no"] * 70)
    for _ in range(5):
        rows = bootstrap(frame, y, generator)
        assert "rare" in set(frame["job"].iloc[rows])
        assert (y.iloc[rows[:100]] == "yes").sum() == 30
        assert 100 <= len(rows) <= 101
        assert len(set(rows)) < 90


def test_refits_are_clones_with_seeds_and_samples_of_their_own(table):
    x, y = table
    model = HistGradientBoostingClassifier(max_iter=5, random_state=3).fit(x, y)
    refits = draw_refits(model, x, y, (None, None), count=3, seed=0)
    assert len({refit.random_state for refit in refits} | {3}) == 4
    assert all(not np.array_equal(r.predict_proba(x), model.predict_proba(x)) for r in refits)
    again = draw_refits(model, x, y, (None, None), count=3, seed=0)
    assert all(
        np.array_equal(a.predict_proba(x), b.predict_proba(x)) for a, b in zip(refits, again, strict=True)
    )


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        (
            halves,
            {},
            "cannot be trained again here. Pass `retrain`",
        ),
        ("frozen", {}, "predicts exactly as the model itself"),
        ("logistic", {"retrain": [None] * 4}, "must hold at least 8 models"),
        ("logistic", {"refits": 3}, "`refits` must be a whole number, 5 or more"),
        ("logistic", {"durability": 1.0}, "`durability` must be a share between 0.5 and 1"),
    ],
)
def test_what_cannot_be_retrained_is_an_error_with_a_way_out(table, model, settings, message):
    x, y = table
    if model == "logistic":
        model = LogisticRegression(max_iter=1000).fit(x, y)
    elif model == "frozen":
        model = FrozenEstimator(LogisticRegression(max_iter=1000).fit(x, y))
    with pytest.raises(InvalidInputError, match=message):
        fitted(model, x, y, **({"durability": 0.9} | settings))


# ---------------------------------------------------------------- answers


@pytest.fixture(scope="module")
def lasting(table):
    x, y = table
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y)
    explainer = fitted(model, x, y, durability=0.9)
    rows = x[model.predict(x) == "rejected"].iloc[:20]
    return model, explainer, rows, explainer.explain(rows, "granted")


def test_retrained_models_that_nobody_has_seen_decide_as_wanted(table, lasting):
    model, _, rows, result = lasting
    x, y = table
    ordinary = fitted(model, x, y).explain(rows, "granted")
    unseen = draw_refits(model, x, y, (None, None), count=30, seed=4321)
    shares = [
        np.mean([refit.predict(own.answers) == "granted" for refit in unseen], axis=0)
        for own in (ordinary, result)
    ]
    assert shares[0].mean() < 0.85
    assert shares[1].mean() > 0.95
    assert (shares[1] >= 0.9).mean() >= 0.9
    assert result.is_found.all()
    assert (result.figures["cost"].mean()) <= 1.8 * ordinary.figures["cost"].mean()


def test_lasting_is_the_share_of_jurors_and_never_of_guides(lasting):
    _, explainer, _, result = lasting
    durability = explainer.engine_.durability
    assert len(durability.guides) == 15
    assert len(durability.jurors) == 10
    assert not set(map(id, durability.guides)) & set(map(id, durability.jurors))
    x = explainer.encoder_.encode(result.answers).x
    votes = [juror.predict_outputs(x, result.answers).argmax(dim=1) for juror in durability.jurors]
    wanted = durability.jurors[0].labels.index("granted")
    expected = (torch.stack(votes) == wanted).double().mean(dim=0)
    assert np.allclose(result.figures["lasting"], expected)
    assert "of retrained models decide so)" in result.sentences.iloc[0]
    assert durability.bound(x, result.answers, Targets(torch.full((len(x),), wanted))).min() >= 0


def test_a_change_that_only_serves_durability_is_named(lasting):
    result = lasting[-1]
    assert set(result.changes["serves"]) >= {"decision", "durability"}
    for i in range(len(result)):
        if {"decision", "durability"} <= set(result[i].changes["serves"]):
            assert "to last when the model is retrained: " in result[i].sentence


def test_models_at_hand_guide_and_judge(table):
    x, y = table
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y)
    given = draw_refits(model, x, y, (None, None), count=9, seed=5)
    explainer = fitted(model, x, y, durability=0.9, retrain=given)
    assert (len(explainer.engine_.durability.guides), len(explainer.engine_.durability.jurors)) == (6, 3)


def test_a_function_trains_models_with_a_seed(table):
    x, y = table
    seeds = []

    def retrain(rows, outcomes, seed):
        seeds.append(seed)
        return make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, outcomes)

    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y)
    fitted(model, x, y, durability=0.8, refits=5, retrain=retrain)
    assert len(set(seeds)) == 15


@pytest.mark.slow
def test_our_networks_boosted_trees_and_numbers_can_last(table):
    x, y = table
    for model in (LinearClassifier(), HistGradientBoostingClassifier(max_iter=20, random_state=0).fit(x, y)):
        result = fitted(model, x, y, durability=0.8, refits=5).explain(x.iloc[:6])
        assert result.figures["lasting"].mean() > 0.8
    income = x["income"].astype(float)
    regressor = LinearRegression().fit(x[NUMBERS[1:]], income)
    explainer = fitted(regressor, x[NUMBERS[1:]], income, durability=0.8, refits=5)
    result = explainer.explain(x[NUMBERS[1:]].iloc[:6], (45_000, 60_000))
    assert result.figures["lasting"].mean() > 0.7


def test_saving_says_that_retrained_models_are_not_saved(lasting, tmp_path):
    model, explainer, rows, _ = lasting
    with pytest.warns(PlausibilityWarning, match="Retrained models are not saved"):
        explainer.save(tmp_path / "saved")
    loaded = Explainer.load(tmp_path / "saved", model=model)
    assert loaded.durability is None
    assert "lasting" not in loaded.explain(rows.iloc[:2], "granted").figures
