"""Few labels or none: the class-conditional density from all rows and a classifier, by Bayes' rule."""

import math
from dataclasses import replace

import pytest
import torch
from torch.distributions import Normal

from plausiflow.densities import ConditionalFlow, CrossFitEnsemble
from plausiflow.densities.bayes import BayesRule
from plausiflow.densities.context import ContextThreshold
from plausiflow.errors import InvalidInputError, NotFittedError, ShapeError
from scarce import BASE, BRIEF, MEANS, TRAINING, WIDTH, exact_classifier, gaussians, outcome, truth

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
        CrossFitEnsemble(members=3, base=BASE, random_state=1).fit(rows[:n], classes[:n]) for n in (900, 60)
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
        (lambda x: outcome(x)[:, :1], "at least two classes; got"),
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
