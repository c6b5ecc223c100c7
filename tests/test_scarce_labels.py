"""Few labels or none: the class-conditional density from all rows and a classifier, by Bayes' rule."""

import copy
import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from torch.distributions import MultivariateNormal, Normal

from plausiflow import Explainer, Immutable, LinearClassifier
from plausiflow.benchmark import labels as study
from plausiflow.data.layout import Block, Layout
from plausiflow.data.tables import loans_table
from plausiflow.densities import ConditionalFlow, CrossFitEnsemble
from plausiflow.densities import mixed as density
from plausiflow.densities.bayes import BayesRule
from plausiflow.densities.context import ContextThreshold
from plausiflow.densities.ensemble import split_by_class
from plausiflow.densities.mixed import MixedDensity
from plausiflow.densities.thresholds import effective_rows, quantile_of, weighted_quantile
from plausiflow.errors import InvalidInputError, NotFittedError, ShapeError
from plausiflow.search import fitting
from plausiflow.search.calibration import calibrate
from plausiflow.search.guide import Guide, assembled, columns_index
from plausiflow.search.judges import Judges
from plausiflow.training import Training
from searching import UNIT

PAGE = Path(__file__).resolve().parents[1] / "docs" / "labels.md"
TRAINING = Training(epochs=40, batch_size=128, learning_rate=5e-3, noise=0.01)
BASE = ConditionalFlow(transforms=2, hidden=(16,), training=TRAINING)
BRIEF = Training(epochs=3, batch_size=64, learning_rate=1e-2)
MEANS, WIDTH = torch.tensor([[0.4, 0.56], [0.6, 0.46]], dtype=torch.float64), 0.12


def gaussians(n, seed=0):
    """Rows of two Gaussians of equal width, equally many of each."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 2
    return MEANS[y] + WIDTH * torch.randn(n, 2, generator=generator), y


def truth(x, y):
    """The true log-density of the class."""
    return MultivariateNormal(MEANS[y], WIDTH**2 * torch.eye(2)).log_prob(x)


def exact_classifier():
    """The posterior of the two Gaussians, a logistic regression."""
    weight = (MEANS[1] - MEANS[0]) / WIDTH**2
    bias = (MEANS[0].square().sum() - MEANS[1].square().sum()) / (2 * WIDTH**2)
    return LinearClassifier.from_weights(weight[None], bias[None])


def outcome(x):
    return exact_classifier().logits(x).log_softmax(dim=1)


@pytest.fixture(scope="module")
def by_bayes(default_dtype):
    """Fitted without any label."""
    x, y = gaussians(900)
    return CrossFitEnsemble(members=3, base=BASE, outcome=outcome, seed=1).fit(x, torch.zeros_like(y))


# ---------------------------------------------------------------- the density


def test_the_classifier_is_the_true_posterior():
    x, _ = gaussians(50)
    both = torch.stack([truth(x, torch.full((50,), k)) for k in range(2)], dim=1)
    torch.testing.assert_close(outcome(x), both.log_softmax(dim=1))


def test_without_a_label_the_density_is_nearly_as_close_to_the_truth_as_with_all_of_them(by_bayes):
    x, y = gaussians(2000, seed=9)

    def error(made):
        with torch.no_grad():
            return float((made.log_prob(x, y) - truth(x, y)).abs().mean())

    rows, classes = gaussians(900)
    all_labels, some = (
        CrossFitEnsemble(members=3, base=BASE, seed=1).fit(rows[:n], classes[:n]) for n in (900, 60)
    )
    assert error(by_bayes) < 0.15
    assert error(by_bayes) < 2 * error(all_labels)
    assert error(by_bayes) < error(some) / 2


def test_it_integrates_to_one_in_every_class(by_bayes):
    axis = torch.linspace(-0.6, 1.6, 221)
    grid = torch.cartesian_prod(axis, axis)
    for k in range(2):
        with torch.no_grad():
            values = by_bayes.log_prob(grid, torch.full((len(grid),), k)).exp().reshape(221, 221)
        assert float(torch.trapezoid(torch.trapezoid(values, axis), axis)) == pytest.approx(1, abs=0.03)


def test_the_members_know_one_class_and_the_ensemble_all(by_bayes):
    assert [flow.n_classes_ for flow in by_bayes.flows_] == [1, 1, 1]
    assert by_bayes.thresholds_.shape == (3, 2)


def test_gradients_equal_finite_differences_and_the_graph_is_kept(by_bayes):
    x, y = gaussians(6, seed=4)
    x.requires_grad_()
    assert by_bayes.log_prob(x, y).requires_grad
    assert torch.autograd.gradcheck(lambda x: by_bayes.log_prob(x, y), x)
    assert torch.autograd.gradcheck(lambda x: by_bayes.score(x, 1 - y), x)
    assert torch.autograd.gradgradcheck(lambda x: by_bayes.score(x, y), x)


def test_a_row_alone_gets_the_value_it_gets_in_a_batch(by_bayes):
    x, y = gaussians(20, seed=5)
    alone = torch.cat([by_bayes.score(x[i : i + 1], y[i : i + 1]) for i in range(20)])
    torch.testing.assert_close(by_bayes.score(x, y), alone, rtol=0, atol=1e-10)
    assert by_bayes.member_scores(x[:0], y[:0]).shape == (3, 0)


def test_a_class_that_the_classifier_does_not_know_is_refused(by_bayes):
    x, y = gaussians(4)
    with pytest.raises(InvalidInputError, match="between 0 and 1"):
        by_bayes.score(x, y + 1)
    with pytest.raises(ShapeError, match=r"\(n, 2\)"):
        by_bayes.score(x[:, :1], y)


def test_a_classifier_that_is_certain_gives_finite_scores():
    x, y = gaussians(200)

    def certain(x):
        return torch.where(x[:, :1] > 0.5, torch.tensor([-math.inf, 0.0]), torch.tensor([0.0, -math.inf]))

    base = replace(BASE, training=BRIEF)
    context = ContextThreshold(numbers=(1,))
    made = CrossFitEnsemble(members=2, base=base, outcome=certain, context=context).fit(x, y)
    assert torch.isfinite(made.score(x, y)).all()
    assert torch.isfinite(made.thresholds_).all()
    assert (made.score(x, (x[:, 0] < 0.5).long()) < -100).all()


# ---------------------------------------------------------------- what a row is given


def test_the_density_given_a_column_integrates_to_one_and_its_prior_is_the_true_one():
    x, _ = gaussians(1500)
    base = ConditionalFlow(transforms=2, hidden=(16,), given=(0,), training=TRAINING)
    made = CrossFitEnsemble(members=2, base=base, outcome=outcome).fit(x, torch.zeros(1500).long())
    axis = torch.linspace(-0.6, 1.6, 441)
    for known in (0.44, 0.5, 0.56):
        rows = torch.stack([torch.full_like(axis, known), axis], dim=1)
        marginals = Normal(MEANS[:, 0], WIDTH).log_prob(torch.tensor(known)).log_softmax(dim=0)
        for k in range(2):
            y = torch.full((441,), k)
            with torch.no_grad():
                integral = torch.trapezoid(made.log_prob(rows, y).exp(), axis)
                prior = outcome(rows)[:, k] - made.rule_(rows, y)
            assert float(integral) == pytest.approx(1, abs=0.12)
            assert float(prior[0].exp()) == pytest.approx(float(marginals[k].exp()), abs=0.05)


def test_with_nothing_given_the_prior_is_the_mean_probability():
    x, y = gaussians(300)
    x = x[(y == 1) | (torch.arange(300) % 4 == 0)]
    rule = BayesRule(outcome=outcome).fit(x)
    expected = outcome(x) - outcome(x).exp().mean(dim=0).log()
    for k in range(2):
        torch.testing.assert_close(rule(x, torch.full((len(x),), k)), expected[:, k])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda x: outcome(x)[:, 0], r"shape \(300, k\)"),
        (lambda x: outcome(x)[:, :1], "two classes or more"),
        (lambda x: exact_classifier().logits(x), "sum to one"),
        (lambda x: outcome(x) * math.nan, "300 of 300 rows"),
    ],
)
def test_an_outcome_that_is_no_log_probability_is_refused(wrong, message):
    with pytest.raises(InvalidInputError, match=message):
        BayesRule(outcome=wrong).fit(gaussians(300)[0])


def test_a_rule_that_is_not_fitted_says_so():
    with pytest.raises(NotFittedError, match=r"fit\(x\)"):
        BayesRule(outcome=outcome)(*gaussians(3))


# ---------------------------------------------------------------- thresholds of rows by their probability

values = st.lists(st.floats(-5, 5), min_size=1, max_size=30)


@given(values, st.data(), st.floats(0, 1))
def test_a_weighted_quantile_is_that_of_rows_repeated(own, data, q):
    counts = data.draw(st.lists(st.integers(1, 4), min_size=len(own), max_size=len(own)))
    found = weighted_quantile(torch.tensor(own), torch.tensor(counts).double(), q)
    assert float(found) == np.quantile(np.repeat(own, counts), q, method="lower")


@given(values, st.floats(0, 1), st.sampled_from([1.0, 0.5, 2.0**-20]))
def test_equal_weights_of_any_size_give_the_plain_quantile(own, q, weight):
    rows = torch.tensor(own)
    assert weighted_quantile(rows, torch.full_like(rows, weight), q) == quantile_of(rows, q)


def test_rows_that_count_nothing_are_not_seen():
    rows, weights = torch.tensor([9.0, 1.0, 2.0, -9.0, 3.0]), torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0])
    assert [float(weighted_quantile(rows, weights, q)) for q in (0.0, 0.5, 1.0)] == [1.0, 2.0, 3.0]
    assert effective_rows(weights) == 3.0
    assert effective_rows(torch.tensor([0.2, 0.2])) == pytest.approx(2.0)


def test_thresholds_are_what_labels_would_have_given(by_bayes):
    x, y = gaussians(900)
    part = split_by_class(torch.zeros_like(y), 3, seed=1)
    with torch.no_grad():
        own = by_bayes.member_log_probs(x, y)[part, torch.arange(900)]
    for m in range(3):
        for k in range(2):
            expected = np.median(own[(part == m) & (y == k)].numpy())
            found, error = float(by_bayes.thresholds_[m, k]), float(by_bayes.errors_[m, k])
            assert abs(found - expected) < 3 * error
            assert 0 < error < 0.3


def test_about_half_of_new_rows_of_a_class_are_plausible(by_bayes):
    x, y = gaussians(2000, seed=7)
    passes = (by_bayes.score(x, y) >= 0).double()
    for k in range(2):
        assert float(passes[y == k].mean()) == pytest.approx(0.5, abs=0.06)
    beyond = (by_bayes.score(x, y) >= by_bayes.most_margin_[y]).double()
    assert float(beyond.mean()) == pytest.approx(0.1, abs=0.05)


def test_whole_weights_of_a_context_threshold_are_rows_repeated():
    x, y = torch.rand(200, 2), torch.arange(200) % 2
    scores, counts = torch.randn(200) + x[:, 0], torch.randint(3, (200,))
    weighted = ContextThreshold(numbers=(0,)).fit(x, y, scores, counts.double())
    again = torch.repeat_interleave(torch.arange(200), counts)
    repeated = ContextThreshold(numbers=(0,)).fit(x[again], y[again], scores[again])
    torch.testing.assert_close(weighted.state(), repeated.state(), rtol=1e-4, atol=1e-4)


# ---------------------------------------------------------------- searches, margins, files

LAYOUT = Layout(
    (
        Block(name="income", number=0, scale=UNIT),
        Block(name="job", levels=range(1, 4)),
        Block(name="age", number=4, scale=UNIT),
    )
)


def table(n, seed):
    generator = torch.Generator().manual_seed(seed)
    job = torch.nn.functional.one_hot(torch.randint(3, (n,), generator=generator), 3).double()
    numbers = torch.rand(n, 2, generator=generator)
    return torch.cat([numbers[:, :1], job, numbers[:, 1:]], dim=1)


def of_table(x):
    return torch.stack([2 * x[:, 0] + x[:, 1], 1 - x[:, 4] + x[:, 3]], dim=1).log_softmax(dim=1)


@pytest.mark.parametrize("columns", [[0], [0, 4]])
def test_the_score_of_numbers_alone_is_the_score_of_the_whole_candidate(columns):
    base = replace(MixedDensity.of(LAYOUT, ["age"]), transforms=2, hidden=(8,), training=BRIEF)
    base = replace(base, levels_training=BRIEF)
    context = ContextThreshold.of(LAYOUT, immutable=["age"])
    x = table(160, 3)
    made = CrossFitEnsemble(members=2, base=base, context=context, outcome=of_table)
    made.fit(x, torch.zeros(160).long())
    assert made.rule_.given == base.given == (4,)
    guide = Guide(made, x[:30], torch.arange(30) % 2, left_out=torch.arange(30) % 2)
    rows, x_cf, which = torch.randint(30, (50,)), table(50, 5), torch.randint(50, (20,))
    numbers = torch.rand(20, len(columns), requires_grad=True)
    score, slope = guide.of_numbers(x_cf, rows, columns)
    assert slope is None  # the rule has a graph of its own
    quick = score(numbers, which)
    plain = guide.score(assembled(x_cf[which], columns_index(columns, x), numbers), rows[which])
    torch.testing.assert_close(quick, plain, rtol=1e-10, atol=1e-10)
    found, expected = (torch.autograd.grad(part.sum(), numbers)[0] for part in (quick, plain))
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


def test_margins_are_calibrated_by_members_left_out(by_bayes):
    made, (x, _) = copy.deepcopy(by_bayes), gaussians(300)

    def validity(x, y):
        return outcome(x).gather(1, y[:, None])[:, 0] - math.log(0.5)

    def search(x, y_target, guide, bank):  # any real row of the class that is plausible without the member
        return torch.stack([bank[int(k)][i % len(bank[int(k)])] for i, k in enumerate(y_target)])

    found = calibrate(
        made, x, outcome(x).argmax(dim=1), validity=validity, search=search, confidence=0.9, n_rows=80
    )
    assert found.margin.shape == (2,)
    assert (found.passed >= 0.9).all()
    assert torch.equal(made.margin_, found.margin)


def test_what_was_learned_comes_back_from_a_file(by_bayes):
    x, y = gaussians(30, seed=6)
    again = CrossFitEnsemble(members=3, base=BASE, outcome=outcome, seed=1)
    again.load_state(from_bytes(to_bytes(by_bayes.state())))
    assert torch.equal(again.score(x, y), by_bayes.score(x, y))
    assert torch.equal(again.log_prob(x, y), by_bayes.log_prob(x, y))
    with pytest.raises(InvalidInputError, match="`outcome`"):
        CrossFitEnsemble(members=3, base=BASE, seed=1).load_state(by_bayes.state())


# ---------------------------------------------------------------- the explainer


@pytest.fixture
def brief(monkeypatch):
    """Two densities that are trained for a moment only."""
    monkeypatch.setattr(fitting, "MEMBERS", 2)
    monkeypatch.setattr(density, "FLOW_TRAINING", BRIEF)
    monkeypatch.setattr(density, "LEVELS_TRAINING", BRIEF)


def numbers_table(n=160):
    """Two numbers that decide, one that cannot change, and an outcome."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(draw.normal(size=(n, 3)).round(3), columns=["income", "debt", "age"])
    y = pd.Series(np.where(frame["income"] - frame["debt"] + 0.3 * draw.normal(size=n) > 0, "yes", "no"))
    return frame, y


def explained(model, y, frame, **settings):
    settings = {"constraints": [Immutable("age")], "confidence": None, "judges": 0} | settings
    explainer = Explainer(model, labels="bayes", **settings).fit(frame, y)
    return explainer, explainer.explain(frame.iloc[:12])


def test_no_outcome_is_needed_where_the_model_is_fitted_already(brief):
    frame, y = numbers_table()
    model = LogisticRegression().fit(frame, y)
    explainer, result = explained(model, None, frame, confidence=0.5, judges=1)
    assert result.is_found.mean() > 0.8
    wanted = np.where(model.predict(frame.iloc[:12]) == "yes", "no", "yes")
    assert (model.predict(result.answers) == wanted[result.of]).all()
    assert result.answers["age"].tolist() == frame["age"].iloc[result.of].tolist()
    assert result.metrics()[["judged", "log_density", "plausibility"]].notna().all()
    ensemble = explainer.finder_.plausibility
    assert ensemble.rule_ is not None
    x = explainer.encoder_.encode(frame).x
    theirs = model.predict_proba(frame)
    np.testing.assert_allclose(ensemble.rule_.weights(x).numpy(), theirs, atol=1e-6)


def test_outcomes_of_some_rows_train_the_model_and_the_density_learns_from_all(brief):
    frame, y = numbers_table()
    some = y.where(y.index < 80)
    explainer, result = explained(LinearClassifier(), some, frame)
    assert result.is_found.mean() > 0.8
    alone = LinearClassifier().fit(
        explainer.encoder_.encode(frame).x[:80].float(), torch.tensor((y[:80] == "yes").to_numpy()).long()
    )
    torch.testing.assert_close(explainer.model_.model.weight, alone.weight)


def test_a_model_without_gradients_is_represented_by_its_likeness(brief):
    frame, y = numbers_table()
    model = HistGradientBoostingClassifier(max_iter=10, max_leaf_nodes=4).fit(frame, y)
    _, result = explained(model, None, frame)
    assert result.is_found.mean() > 0.5
    wanted = np.where(model.predict(frame.iloc[:12]) == "yes", "no", "yes")
    assert (model.predict(result.answers) == wanted[result.of]).all()


@pytest.mark.parametrize("labels", ["model", "bayes"])
def test_an_outcome_that_the_model_never_decides_is_answered_with_a_verdict(brief, labels):
    frame, _ = numbers_table()
    weight = torch.tensor([[8.0, 0, 0], [-8.0, 0, 0], [0, 0, 0]])
    model = LinearClassifier.from_weights(weight, torch.tensor([-4.0, 4.0, -20.0]))
    settings = {"constraints": [Immutable("age")], "confidence": None, "judges": 1}
    explainer = Explainer(model, labels=labels, **settings).fit(frame)
    assert explainer.explain(frame.iloc[:3], 2).status["status"].tolist() == ["infeasible"] * 3
    assert explainer.judges_.log_delta_.shape == (1, 3)
    assert len(explainer.finder_.plausibility.margin_) == 3


def test_a_predicted_number_has_no_probabilities(brief):
    frame, _ = numbers_table(60)
    model = LinearRegression().fit(frame[["income", "debt", "age"]], frame["income"] + frame["debt"])
    with pytest.raises(InvalidInputError, match=r'"given" or "model" where the model predicts a number'):
        Explainer(model, labels="bayes").fit(frame)


def test_all_three_ways_are_named_where_another_is_asked_for():
    with pytest.raises(InvalidInputError, match="`labels` must be 'given', 'model' or 'bayes'; got 'truth'"):
        Explainer(LinearClassifier(), labels="truth")


# ---------------------------------------------------------------- the study


@pytest.fixture
def quick(brief, monkeypatch):
    small = replace(loans_table(n=300), study=(220, 80))
    monkeypatch.setattr(study, "load_table", lambda name: small)
    monkeypatch.setattr(study, "_Explainer", partial(study._Explainer, confidence=None))
    monkeypatch.setattr(study, "Judges", partial(Judges, count=1))
    return study.ScarceSelection(tables=("loans",), rows=5, labelled=60)


def test_the_study_explains_one_model_with_four_densities(quick, tmp_path):
    rows = list(study.run(quick))
    assert [row["method"] for row in rows] == ["given_all", "given_scarce", "model", "bayes"]
    assert [row["labelled"] for row in rows] == [220, 60, 60, 60]
    assert len({row["accuracy"] for row in rows}) == 1
    assert all(row["plausible"] == 1.0 and 0 <= row["judged"] <= 1 for row in rows if row["found"] > 0)
    assert all(math.isfinite(row["log_density"]) and row["fit_cpu_seconds"] > 0 for row in rows)
    assert all(0 <= row["true_plausible"] <= 1 for row in rows if row["found"] > 0)
    page = tmp_path / "labels.md"
    page.write_text(PAGE.read_text())
    study.write_page(rows, page)
    assert page.read_text().count("| loans |") == 4
    assert f"commit {rows[0]['commit']}" in page.read_text()


def test_too_few_labels_are_refused():
    with pytest.raises(InvalidInputError, match="`labelled` must be at least 2; got 1"):
        study.ScarceSelection(labelled=1)
