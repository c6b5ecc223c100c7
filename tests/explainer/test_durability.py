"""Answers that last: tolerance factors, refits, and what retrained models that nobody has seen decide."""

import copy
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from lasting import NUMBERS, fitted, number_table
from plausiflow import Explainer
from plausiflow.core import DurableCriterion, TargetCriterion, Targets, tolerance_factor
from plausiflow.models import (
    JointModels,
    LinearClassifier,
    RefitPlan,
    draw_refits,
    resolve_model,
    train_students,
)
from plausiflow.models.refits import bootstrap
from plausiflow.search.durability import SHARES
from plausiflow.tables import Encoder, Schema

pytestmark = pytest.mark.filterwarnings("ignore:Counterfactuals may not last")


@pytest.fixture(scope="module")
def table():
    return number_table()


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
    assert "(still decided so by 10 of 10 retrained models)" in result.sentences.iloc[0]
    assert durability.bound(x, result.answers, Targets(torch.full((len(x),), wanted))).min() >= 0


def test_the_report_says_how_many_retrained_models_agree_and_what_that_does_not_cover(lasting, tmp_path):
    lasting[-1].to_html(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "of them still decide so; for " in page
    assert "If the population changes, nothing is promised." in page
    assert "Share of retrained models that still decide so" in page
    assert "still decided so by 10 of 10 retrained models" in page


def test_a_change_that_only_serves_durability_is_named(lasting):
    result = lasting[-1]
    assert set(result.changes["serves"]) >= {"decision", "durability"}
    for i in range(len(result)):
        if {"decision", "durability"} <= set(result[i].changes["serves"]):
            assert "to last when the model is retrained: " in result[i].sentence


def test_an_answer_that_cannot_last_as_asked_is_the_one_that_lasts_as_long_as_possible(lasting):
    _, explainer, rows, _ = lasting
    durability = replace(explainer.engine_.durability, probabilities=(0.0, 0.0))
    own, asker = durability.criterion.factors, copy.copy(explainer)
    found = []
    for share in (1.0, *SHARES[:2]):
        asked = durability.with_factors(tuple(12 * share * factor for factor in own))
        asker.engine_ = replace(explainer.engine_, durability=asked)
        found.append(asker.explain(rows, "granted"))
    less = [result.verdicts["reason"].str.contains("this one lasts longest").to_numpy() for result in found]
    assert less[0].sum() > 5
    assert not less[2].any()
    best = np.where(less[1], found[2].figures["cost"], found[1].figures["cost"])
    assert np.allclose(found[0].figures["cost"], best)
    assert set(found[0].changes["serves"]) >= {"durability"}


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


# ---------------------------------------------------------------- many models at once


def test_refits_do_not_depend_on_how_many_are_trained_at_once(table):
    x, y = table
    model = RandomForestClassifier(5, n_jobs=2, random_state=0).fit(x, y)
    alone, together = (
        draw_refits(model, x, y, (None, None), count=6, seed=0, workers=workers) for workers in (1, 3)
    )
    for one, other in zip(alone, together, strict=True):
        assert np.array_equal(one.predict_proba(x), other.predict_proba(x))
    assert together[0].n_jobs == 1


def test_the_first_refit_tells_how_long_the_others_take_and_is_kept(table):
    x, y = table
    model = LogisticRegression(max_iter=1000).fit(x, y)
    plan = RefitPlan(model, x, y, (None, None), count=5, seed=0)
    assert plan.seconds_left() > 0
    again = draw_refits(model, x, y, (None, None), count=5, seed=0)
    for one, other in zip(plan.draw(), again, strict=True):
        assert np.array_equal(one.coef_, other.coef_)
    assert plan.seconds_left() == 0


def test_an_estimate_counts_the_models_that_are_retrained(table, capsys):
    x, y = table
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y)
    Explainer(model, confidence=None, judges=0, durability=0.8, refits=5).fit(
        x, y, effort="quick", verbose=True
    )
    assert ", and 15 models are retrained; about " in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["linear", "layers", "numbers"])
def test_guides_of_one_shape_are_evaluated_as_one(kind, table):
    x, y = table
    estimator = {
        "linear": LogisticRegression(),
        "layers": MLPClassifier((3,), max_iter=5, random_state=0),
        "numbers": LinearRegression(),
    }[kind]
    outcome = x["income"].astype(float) if kind == "numbers" else y
    rows = x.drop(columns="income")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make_pipeline(StandardScaler(), estimator).fit(rows, outcome)
        refits = draw_refits(model, rows, outcome, (None, None), count=4, seed=0)
    encoder = Encoder(Schema.infer(rows))
    encoded = encoder.encode(rows).x
    how = ("auto", encoder, rows, encoded, outcome)
    models = [resolve_model(refit, *how, "given", 0)[0] for refit in refits]
    joint = JointModels(models)
    assert joint._stacked is not None
    some = encoded[:20].double()
    outputs, pullback = joint.value_and_grad(some)
    parts = [model.value_and_grad(some) for model in models]
    flat = [part if part.ndim == 2 else part[:, None] for part, _ in parts]
    assert torch.allclose(outputs, torch.cat(flat, dim=1), atol=1e-10)
    gradient = torch.randn_like(outputs)
    pieces = gradient.split(flat[0].shape[1], dim=1)
    pulled = [
        pull(piece if part.ndim == 2 else piece[:, 0])
        for (part, pull), piece in zip(parts, pieces, strict=True)
    ]
    assert torch.allclose(pullback(gradient), torch.stack(pulled).sum(dim=0), atol=1e-10)


def test_the_trees_of_all_guides_are_walked_at_once(table):
    x, y = table
    model = HistGradientBoostingClassifier(max_iter=3, random_state=3).fit(x, y)
    refits = draw_refits(model, x, y, (None, None), count=3, seed=0)
    encoder = Encoder(Schema.infer(x))
    encoded = encoder.encode(x).x
    models = [resolve_model(refit, "trees", encoder, x, encoded, y, "given", 0)[0] for refit in refits]
    joint = JointModels(models)
    assert joint.reads_trees
    expected = np.concatenate([np.log(refit.predict_proba(x)) for refit in refits], axis=1)
    assert np.allclose(joint.predict(encoded, None).numpy(), expected, atol=1e-6)


def test_students_know_where_guides_agree(table):
    x, y = table
    model = HistGradientBoostingClassifier(max_iter=3, random_state=3).fit(x, y)
    refits = draw_refits(model, x, y, (None, None), count=6, seed=0)
    encoder = Encoder(Schema.infer(x))
    encoded = encoder.encode(x).x
    how = ("trees", encoder, x, encoded, y, "given", 0)
    joint = JointModels([resolve_model(refit, *how)[0] for refit in refits])
    decided = torch.as_tensor(model.predict(x) == "rejected").long()
    students = train_students(joint, encoded, decided, encoder.layout)
    said = students.at(1e-6)(encoded)
    margins = joint.predict(encoded, None).unflatten(1, (6, 2))
    margins = margins[:, :, 1] - margins[:, :, 0]
    for column, truth in enumerate((margins.mean(dim=1), margins.std(dim=1))):
        assert float(torch.corrcoef(torch.stack([said[:, column], truth]))[0, 1]) > 0.9


def test_what_students_say_is_compared_as_guides_are():
    torch.manual_seed(0)
    criterion = DurableCriterion(n_classes=3, guides=6, factors=(2.0, 1.5, 1.0), variances=(0.5, 1.0, 2.0))
    targets = Targets(torch.arange(12) % 3)
    own, guides = torch.randn(12, 3).double(), torch.randn(12, 6, 3).double()
    columns = [criterion.margins(guides, Targets(torch.full((12,), k))) for k in range(3)]
    summary = torch.stack([*(m.mean(dim=1) for m in columns), *(m.std(dim=1) for m in columns)], dim=1)
    led = criterion.summary.value(torch.cat([own, summary], dim=1), targets)
    assert torch.allclose(led, criterion.value(torch.cat([own, guides.flatten(1)], dim=1), targets))
    assert torch.equal(criterion.summary.value(own, targets), criterion.value(own, targets))


def test_a_row_without_a_lasting_answer_gets_one_that_lasts_longer_than_the_ordinary_one(table, lasting):
    model, explainer, rows, _ = lasting
    durability = explainer.engine_.durability
    strict = copy.copy(explainer)
    asked = replace(durability.with_factors((20.0, 20.0)), probabilities=(0.0, 0.0))
    strict.engine_ = replace(explainer.engine_, durability=asked)
    result = strict.explain(rows, "granted")
    assert result.is_found.all()
    weaker = result.verdicts["reason"].str.contains("lasts longest")
    assert weaker.any()
    x, y = table
    ordinary = fitted(model, x, y).explain(rows, "granted")
    unseen = draw_refits(model, x, y, (None, None), count=10, seed=77)
    shares = [
        np.mean([refit.predict(own.answers) == "granted" for refit in unseen]) for own in (ordinary, result)
    ]
    assert shares[1] > shares[0]


def test_a_minimum_probability_may_take_the_place_of_the_guides(lasting):
    _, explainer, rows, by_guides = lasting
    durability = explainer.engine_.durability
    certain = copy.copy(explainer)
    certain.engine_ = replace(explainer.engine_, durability=replace(durability, probabilities=(0.9, 0.9)))
    result = certain.explain(rows, "granted")
    sure = result.figures["probability"].to_numpy() >= 0.9 - 1e-9
    assert sure.mean() > (by_guides.figures["probability"] >= 0.9 - 1e-9).mean()
    x = explainer.encoder_.encode(result.answers).x
    wanted = Targets(torch.full((len(x),), durability.jurors[0].labels.index("granted")))
    guided = durability.bound(x, result.answers, wanted).numpy() >= 0
    assert (sure | guided).all()  # a row that cannot be so sure asks the guides
    assert not result.verdicts["reason"].str.contains("last").any()
