"""DiCE: its objective against NumPy, bounds of linear models, diversity, and undoing of small changes."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import median_abs_deviation
from sklearn.neural_network import MLPClassifier as Network

from plausiflow.core.losses import l1_distance
from plausiflow.core.prediction import predict
from plausiflow.errors import InvalidInputError, NotFittedError, ShapeError
from plausiflow.methods.reference.dice import DiCE
from plausiflow.models import LinearClassifier, MLPClassifier
from plausiflow_bench.published.runs import PublishedRun


def three_blobs(n=120, d=3):
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(n) % 3
    centres = torch.tensor([[0.2, 0.2, 0.5], [0.8, 0.3, 0.4], [0.4, 0.8, 0.6]])[:, :d]
    return centres[y] + 0.08 * torch.randn(n, d, generator=generator), y


@pytest.fixture(scope="module")
def perceptron():
    x, y = three_blobs()
    network = Network((16, 16), solver="lbfgs", alpha=0.01, random_state=0).fit(x.numpy(), y.numpy())
    return MLPClassifier.from_weights([weight.T for weight in network.coefs_], network.intercepts_)


@pytest.fixture(scope="module")
def method(perceptron):
    return DiCE(classifier=perceptron, steps=150).fit(*three_blobs())


def linear_problem(d, n=30):
    rng = np.random.default_rng(d)
    weight, x = 4 * rng.standard_normal((1, d)), rng.random((n, d))
    return LinearClassifier.from_weights(weight, -np.median(x @ weight.T, axis=0)), torch.from_numpy(x)


def found_in(sets):
    """Return which counterfactuals exist: all entries are NaN or none."""
    missing = sets.isnan()
    assert torch.equal(missing.any(dim=2), missing.all(dim=2))
    return ~missing.any(dim=2)


def apart(sets):
    """Return the mean L1 distance between the counterfactuals of a row."""
    return (sets[:, :, None] - sets[:, None]).abs().sum(dim=3).mean()


# ---------------------------------------------------------------- the objective


def numpy_loss(sets, x, logits, y_target, spread, proximity, diversity):
    """Return the objective of one row, one counterfactual at a time."""
    q, d = sets.shape
    hinge = distance = 0.0
    for c, z in zip(sets, logits, strict=True):
        hinge += max(0.0, 1 - (z[y_target] - max(np.delete(z, y_target))))
        distance += sum(abs(c[k] - x[k]) / spread[k] for k in range(d))
    kernel = np.array([[1 / (1 + (np.abs(a - b) / spread).sum()) for b in sets] for a in sets])
    determinant = np.linalg.det(kernel + 1e-4 * np.eye(q))
    return hinge / q + proximity / (q * d) * distance - diversity * determinant


@pytest.mark.parametrize("count", [2, 4, 7])
def test_the_objective_is_that_of_the_formula(perceptron, count):
    x, y = three_blobs()
    method = DiCE(classifier=perceptron, count=count, proximity=0.7, diversity=1.3).fit(x, y)
    sets, y_target = torch.rand(6, count, 3), torch.arange(6) % 3
    loss, odds = method.loss(sets, x[:6], y_target)
    logits = perceptron.logits(sets.view(-1, 3)).view(6, count, 3).numpy()
    spread = median_abs_deviation(x.numpy())
    for i in range(6):
        expected = numpy_loss(sets[i].numpy(), x[i].numpy(), logits[i], int(y_target[i]), spread, 0.7, 1.3)
        assert float(loss[i]) == pytest.approx(expected, abs=1e-10)
    assert torch.equal(odds > 0, (torch.from_numpy(logits).argmax(dim=2) == y_target[:, None]))


def test_with_two_classes_the_log_odds_are_the_logit_of_the_probability():
    classifier, x = linear_problem(4)
    _, odds = DiCE(classifier=classifier).loss(x[:, None], x, torch.ones(30, dtype=torch.long))
    torch.testing.assert_close(odds[:, 0], classifier.logits(x).softmax(dim=1)[:, 1].logit())


def test_the_diversity_of_one_answer_is_a_constant(perceptron):
    x, y = three_blobs()
    sets, y_target = x[:9, None] + 0.1, (y[:9] + 1) % 3
    weights = (0.0, 1.0, 5.0)
    losses = [DiCE(classifier=perceptron, diversity=w).loss(sets, x[:9], y_target)[0] for w in weights]
    answers = [
        DiCE(classifier=perceptron, count=1, diversity=w, steps=80).fit(x, y).explain_many(x[:9], y_target)
        for w in weights
    ]
    assert torch.equal(losses[0], losses[1])
    assert torch.equal(losses[0], losses[2])
    assert torch.equal(answers[0], answers[1])
    assert torch.equal(answers[0], answers[2])


def test_gradients_of_the_objective_are_those_of_finite_differences(method):
    x, y = three_blobs()
    sets = x[:2, None] + 0.3 * torch.rand(2, 3, 3)
    assert torch.autograd.gradcheck(
        lambda s: method.loss(s, x[:2], (y[:2] + 1) % 3)[0], sets.requires_grad_(True)
    )


# ---------------------------------------------------------------- what comes back


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_every_answer_is_decided_as_wanted_in_the_box_and_in_the_precision_of_the_row(method, precision):
    x, y = three_blobs()
    rows, y_target = x[:30].to(precision), (y[:30] + 1) % 3
    sets = method.explain_many(rows, y_target)
    there = found_in(sets)
    assert sets.shape == (30, 4, 3)
    assert sets.dtype == precision
    assert there.double().mean() > 0.95
    assert torch.equal(
        predict(method.classifier, sets[there].double()), y_target[:, None].expand(30, 4)[there]
    )
    assert (sets[there] >= x.amin(dim=0) - 1e-6).all()
    assert (sets[there] <= x.amax(dim=0) + 1e-6).all()


def test_explain_returns_the_closest_of_the_set(method):
    x, y = three_blobs()
    y_target = (y[:20] + 1) % 3
    sets, found = method.explain_many(x[:20], y_target), method.explain(x[:20], y_target)
    distance = ((sets - x[:20, None]).abs() / method.spread_).sum(dim=2).nan_to_num(torch.inf)
    own = ((found.x_cf - x[:20]).abs() / method.spread_).sum(dim=1)
    assert found.valid.all()
    torch.testing.assert_close(own, distance.amin(dim=1))
    assert (found.gradients == 4 * 151).all()


@pytest.mark.parametrize("d", [2, 10, 50])
def test_no_answer_is_closer_than_the_hyperplane(d):
    classifier, x = linear_problem(d)
    found = DiCE(classifier=classifier, count=3, steps=150, lower=-3.0, upper=4.0).explain(x)
    logits = classifier.logits(x)
    bound = (logits[:, 1] - logits[:, 0]).abs() / classifier.weight[1].abs().max()
    ratio = l1_distance(found.x_cf, x) / bound
    assert found.valid.all()
    assert (ratio >= 1).all()


def test_one_answer_under_a_weak_pull_stops_where_its_log_odds_are_one():
    # The hinge is zero from log-odds of one; a distance term weaker than its slope cannot stop it earlier.
    classifier = LinearClassifier.from_weights(torch.tensor([[6.0, 1.0]]), torch.tensor([-4.0]))
    x = torch.tensor([[0.2, 0.5], [0.4, 0.1]])
    found = DiCE(classifier=classifier, count=1, steps=400, lower=0.0, upper=1.0).explain(x)
    logits = classifier.logits(found.x_cf)
    torch.testing.assert_close(logits[:, 1] - logits[:, 0], torch.ones(2), rtol=0, atol=0.02)
    torch.testing.assert_close(
        l1_distance(found.x_cf, x), (5 - x @ torch.tensor([6.0, 1.0])) / 6, rtol=0.02, atol=0
    )


def test_answers_are_farther_apart_where_that_is_asked_for(perceptron):
    x, y = three_blobs()
    alike, diverse = (
        DiCE(classifier=perceptron, diversity=weight, steps=150)
        .fit(x, y)
        .explain_many(x[:15], (y[:15] + 1) % 3)
        for weight in (0.0, 1.0)
    )
    whole = (found_in(alike) & found_in(diverse)).all(dim=1)
    assert whole.double().mean() > 0.8
    assert apart(diverse[whole]) > 3 * apart(alike[whole])


@pytest.mark.slow
def test_the_descent_ends_at_a_lower_loss_than_the_authors_recipe(perceptron):
    # The authors: a constant learning rate, at least 500 steps, until the loss changes by 1e-5 or less once.
    x, y = three_blobs()
    x, y_target = x[:12], (y[:12] + 1) % 3
    method = DiCE(classifier=perceptron, steps=300).fit(*three_blobs())
    ours = method.loss(method._descend(x, y_target), x, y_target)[0]
    lower, upper = (bound[:, None] for bound in method.box(x))
    start = x[:, None] + 0.01 * torch.arange(4)[:, None]
    sets = start.clamp(lower, upper).requires_grad_(True)
    optimizer, before, theirs = torch.optim.Adam([sets], lr=0.05), None, torch.full((12,), torch.nan)
    for step in range(1500):
        loss, odds = method.loss(sets, x, y_target)
        if step > 500:
            done = theirs.isnan() & ((loss - before).abs() <= 1e-5) & (odds > 0).all(dim=1)
            theirs[done] = loss[done].detach()
        optimizer.zero_grad()
        loss.sum().backward()
        optimizer.step()
        with torch.no_grad():
            sets.clamp_(lower, upper)
        before = loss.detach()
    theirs = torch.where(theirs.isnan(), before, theirs)
    assert ours.mean() < theirs.mean()
    assert (ours <= theirs + 0.05).all()


# ---------------------------------------------------------------- small changes are taken back


def test_taking_changes_back_keeps_the_decision_and_shortens_every_change(perceptron):
    x, y = three_blobs()
    rows, y_target = x[:30], (y[:30] + 1) % 3
    models = {"classifier": perceptron, "steps": 120, "diversity": 3.0}
    raw = DiCE(**models, resolution=0.0).fit(x, y).explain_many(rows, y_target)
    simple = DiCE(**models, resolution=0.002).fit(x, y).explain_many(rows, y_target)
    there = found_in(raw)
    before, after = (raw - rows[:, None])[there], (simple - rows[:, None])[there]
    assert torch.equal(found_in(simple), there)
    assert torch.equal(predict(perceptron, simple[there]), y_target[:, None].expand(30, 4)[there])
    assert (after.abs() <= before.abs()).all()
    assert (after * before >= 0).all()
    assert (after == 0).sum() > (before == 0).sum()


def test_only_changes_as_small_as_the_datas_are_taken_back():
    classifier = LinearClassifier.from_weights(torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([0.0]))
    method = DiCE(classifier=classifier)
    method.small_ = torch.tensor([0.05, 0.05, 0.05])
    answer = torch.tensor([[0.035, 0.04, 0.06], [0.03, -0.02, 0.0]])
    x = torch.tensor([[-0.005, 0.0, 0.0], [-0.3, 0.0, 0.0]])
    simple = method._undo_small_changes(answer, x, torch.ones(2, dtype=torch.long))
    # The first feature stops before it reaches the boundary at zero, the second goes all the way; the third
    # feature's change, and the second row's first, are too large.
    torch.testing.assert_close(simple, torch.tensor([[0.005, 0.0, 0.06], [0.03, 0.0, 0.0]]))


def test_what_is_small_is_a_tenth_of_the_datas_deviations_and_not_more_than_their_median():
    x = torch.linspace(0, 1, 101)[:, None] * torch.tensor([1.0, 0.5])
    classifier = LinearClassifier.from_weights(torch.ones(1, 2), torch.zeros(1))
    method = DiCE(classifier=classifier).fit(x, torch.arange(101) % 2)
    torch.testing.assert_close(method.small_, torch.tensor([0.05, 0.025]))


# ---------------------------------------------------------------- rows and data that are odd


def test_rows_that_are_not_numbers_have_no_answers_and_the_others_are_as_before(method):
    x, y = three_blobs()
    rows, y_target = x[:5].clone(), (y[:5] + 1) % 3
    rows[1, 0] = torch.nan
    sets, clean = method.explain_many(rows, y_target), method.explain_many(x[:5], y_target)
    assert sets[1].isnan().all()
    torch.testing.assert_close(sets[[0, 2, 3, 4]], clean[[0, 2, 3, 4]], rtol=0, atol=1e-7, equal_nan=True)


def test_a_row_that_is_as_wanted_is_its_own_answer(method):
    x, _ = three_blobs()
    found = method.explain(x[:6], predict(method.classifier, x[:6]))
    assert torch.equal(found.x_cf, x[:6])


def test_no_rows_have_no_answers(method):
    assert method.explain_many(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long)).shape == (0, 4, 3)


def test_constant_features_copies_ten_classes_and_classes_without_rows_do_no_harm():
    rng = np.random.default_rng(0)
    classifier = LinearClassifier.from_weights(4 * rng.standard_normal((10, 4)), np.zeros(10))
    x = torch.from_numpy(rng.random((20, 4)))
    x[:, 2] = 0.5
    x[10:] = x[0]
    method = DiCE(classifier=classifier, steps=100).fit(x, torch.zeros(20, dtype=torch.long))
    found = method.explain(x, "runner_up")
    assert found.valid.any()
    assert (found.x_cf[found.found, 2] == 0.5).all()
    torch.testing.assert_close(found.x_cf[10:], found.x_cf[:1].expand(10, 4), rtol=0, atol=1e-9)


def test_an_outcome_beyond_the_box_is_not_found():
    classifier = LinearClassifier.from_weights(torch.ones(1, 2), -torch.tensor([5.0]))
    method = DiCE(classifier=classifier, steps=50, lower=0.0, upper=1.0)
    assert not method.explain(torch.rand(4, 2), 1).found.any()
    assert method.explain_many(torch.rand(4, 2), torch.ones(4, dtype=torch.long)).isnan().all()


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"count": 0}, "`count` must be a whole number of at least 1; got 0"),
        ({"proximity": -1.0, "diversity": math.nan}, "`proximity` .*; got -1.0; `diversity` .*; got nan"),
        ({"steps": 2.5}, "`steps` must be a whole number of at least 1; got 2.5"),
        ({"learning_rate": 0.0}, "`learning_rate` must be positive; got 0.0"),
        ({"resolution": -0.1}, "`resolution` must be at least 0; got -0.1"),
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_errors(perceptron, settings, text):
    with pytest.raises(InvalidInputError, match=text):
        DiCE(classifier=perceptron, **settings)


def test_questions_that_make_no_sense_are_errors(perceptron, method):
    x, y = three_blobs()
    with pytest.raises(NotFittedError, match=r"`fit\(x, y\)`.*or give `lower` and `upper`"):
        DiCE(classifier=perceptron).explain_many(x[:2], y[:2])
    with pytest.raises(ShapeError, match=r"shape \(2,\), one class per row; got \(3,\)"):
        method.explain_many(x[:2], y[:3])
    with pytest.raises(InvalidInputError, match="between 0 and 2"):
        method.explain_many(x[:2], torch.tensor([0, 3]))


# ---------------------------------------------------------------- the published models


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lr", "mlp"])
@pytest.mark.parametrize("name", ["moons", "law", "audit", "blobs", "wine"])
def test_the_published_models_are_explained_with_sets_that_differ(name, kind, reference_directory):
    reference = PublishedRun.load(name, reference_directory)
    classifier, x = reference.classifier(kind), reference.x_test[:60]
    logits = classifier.logits(x.double())
    y_target = logits.scatter(1, logits.argmax(dim=1)[:, None], -math.inf).argmax(dim=1)
    sets = DiCE(classifier=classifier).fit(reference.x_train, reference.y_train).explain_many(x, y_target)
    there = found_in(sets)
    assert there.any(dim=1).double().mean() > 0.98
    assert there.double().mean() > 0.9
    assert apart(sets[there.all(dim=1)]) > 0.1
