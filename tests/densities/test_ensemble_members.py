"""Members score as they do one by one, and their thresholds come from rows that they have not seen."""

from dataclasses import replace

import pytest
import torch

from crossfitting import BASE, BRIEF, changed, fitted_on
from estimating import rows
from plausiflow.densities import CrossFitEnsemble
from plausiflow.densities.ensemble import split_by_class
from plausiflow.densities.members import copy_with_seed
from plausiflow.densities.thresholds import held_out_thresholds, lower_quantile


@pytest.fixture
def ensemble():
    return fitted_on(3)


# ---------------------------------------------------------------- members


@pytest.mark.parametrize("classes", [1, pytest.param(2, marks=pytest.mark.slow), 4])
@pytest.mark.parametrize(("d", "architecture"), [(2, "maf"), (5, "maf"), (1, "maf"), (2, "nsf"), (3, "nice")])
def test_all_members_at_once_equal_the_members_one_by_one(d, architecture, classes):
    ensemble = fitted_on(d, architecture, classes)
    x, _ = rows(d, classes=classes)
    x = torch.cat([x, x + 2]).requires_grad_()
    y = torch.arange(len(x)) // 3 % classes
    together = ensemble.member_log_probs(x, y)
    alone = torch.stack([flow.log_prob(x, y) for flow in ensemble.flows_])
    torch.testing.assert_close(together, alone, rtol=1e-10, atol=1e-10)
    weights = torch.randn(together.shape, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((weights * together).sum(), x)
    (expected,) = torch.autograd.grad((weights * alone).sum(), x)
    torch.testing.assert_close(gradient, expected, rtol=1e-8, atol=1e-8)


def test_a_log_scale_bound_of_its_own_is_kept_when_stacked():
    x, y = rows(2, n=80)
    base = replace(BRIEF, log_scale_bound=0.7, sd_floor=0.1)
    ensemble = CrossFitEnsemble(members=2, base=base).fit(x, y)
    alone = torch.stack([flow.log_prob(x, y) for flow in ensemble.flows_])
    torch.testing.assert_close(ensemble.member_log_probs(x, y), alone, rtol=1e-10, atol=1e-10)


def test_log_prob_is_the_log_of_the_mean_density(ensemble):
    x, y = rows(3)
    densities = torch.stack([flow.log_prob(x, y) for flow in ensemble.flows_]).exp()
    torch.testing.assert_close(ensemble.log_prob(x, y), densities.mean(dim=0).log(), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("aggregation", ["mean", "min"])
def test_the_score_aggregates_the_members_distances_to_their_thresholds_minus_the_margin(
    ensemble, aggregation
):
    x, y = rows(3)
    margin = torch.tensor([0.0, 0.3, 2.0], dtype=torch.float64)
    ensemble = changed(ensemble, margin_=margin, aggregation=aggregation)
    expected = []
    for row, k in zip(x, y, strict=True):
        own = [
            float(flow.log_prob(row[None], k[None]) - ensemble.thresholds_[m, k])
            for m, flow in enumerate(ensemble.flows_)
        ]
        expected.append((min(own) if aggregation == "min" else sum(own) / 3) - float(margin[k]))
    expected = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(ensemble.score(x, y), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("aggregation", ["mean", "min"])
def test_a_member_can_be_left_out_row_by_row(aggregation):
    scores = torch.randn(4, 30, dtype=torch.float64)
    left_out = torch.arange(30) % 4
    ensemble = CrossFitEnsemble(members=4, aggregation=aggregation)
    expected = []
    for i in range(30):
        others = [float(scores[m, i]) for m in range(4) if m != left_out[i]]
        expected.append(min(others) if aggregation == "min" else sum(others) / 3)
    torch.testing.assert_close(
        ensemble.aggregate(scores, left_out), torch.tensor(expected, dtype=torch.float64)
    )
    whole = scores.amin(dim=0) if aggregation == "min" else scores.mean(dim=0)
    torch.testing.assert_close(ensemble.aggregate(scores), whole)


def test_the_member_left_out_has_no_say_and_gets_no_gradient():
    scores = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    left_out = torch.tensor([0, 1, 2, 2, 1, 0])
    for aggregation in ("mean", "min"):
        total = CrossFitEnsemble(members=3, aggregation=aggregation).aggregate(scores, left_out).sum()
        (gradient,) = torch.autograd.grad(total, scores)
        assert not gradient[left_out, torch.arange(6)].any()
        torch.testing.assert_close(gradient.sum(), torch.tensor(6.0, dtype=torch.float64))


# ---------------------------------------------------------------- splits and thresholds


@pytest.mark.parametrize("counts", [(50, 50), (103, 7, 1), (3, 0, 61), (4,)])
@pytest.mark.parametrize("parts", [2, 5])
def test_parts_are_even_over_all_rows_and_in_every_class(counts, parts):
    y = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    y = y[torch.randperm(len(y))]
    part = split_by_class(y, parts, random_state=0)
    assert part.shape == y.shape
    sizes = [part.bincount(minlength=parts)]
    sizes += [part[y == k].bincount(minlength=parts) for k in range(len(counts))]
    for size in sizes:
        assert len(size) == parts
        assert size.max() - size.min() <= 1


def test_parts_are_drawn_at_random_by_the_seed():
    y = torch.arange(200) % 2
    first, again, other = (split_by_class(y, 4, seed) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert (first == other).double().mean() < 0.5
    assert not torch.equal(first, first.sort().values)


def test_each_member_is_trained_without_its_part():
    x, y = rows(2, n=90)
    base = replace(BRIEF, training=replace(BRIEF.training, noise=0.0))
    fitted = CrossFitEnsemble(members=3, base=base, random_state=2).fit(x, y)
    part = split_by_class(y, 3, random_state=2)
    for m, flow in enumerate(fitted.flows_):
        own = x[part != m]
        torch.testing.assert_close(flow.frozen(x).mean, own.mean(dim=0))
        changed = torch.where((part == m)[:, None], 100.0, x)  # rows of its part do not matter
        again = CrossFitEnsemble(members=3, base=base, random_state=2).fit(changed, y)
        torch.testing.assert_close(again.flows_[m].log_prob(x, y), flow.log_prob(x, y))


@pytest.mark.parametrize("quantile", [0.0, 0.3, 0.5, 1.0])
def test_thresholds_are_one_quantile_of_the_aligned_held_out_rows_of_a_class(quantile):
    x, y = rows(2, n=300, classes=2)
    y = torch.where(torch.arange(300) < 30, 2, y)  # 30 rows of a third class: 10 for each member
    ensemble = CrossFitEnsemble(members=3, base=BRIEF, quantile=quantile, random_state=5).fit(x, y)
    part = split_by_class(y, 3, random_state=5)
    assert ensemble.thresholds_.shape == ensemble.errors_.shape == (3, 3)
    for k in range(3):
        own, members = x[y == k], part[y == k]
        log_probs = torch.stack([flow.log_prob(own, torch.full_like(members, k)) for flow in ensemble.flows_])
        level = torch.stack([lower_quantile(log_prob, quantile) for log_prob in log_probs])
        held_out = log_probs[members, torch.arange(len(own))] - level[members]
        expected = level + lower_quantile(held_out, quantile)
        torch.testing.assert_close(ensemble.thresholds_[:, k], expected, rtol=1e-10, atol=1e-10)
    assert (ensemble.errors_ >= 0).all()


def test_members_that_differ_by_a_constant_get_thresholds_that_differ_by_it():
    """Half of the rows are almost equal, the others far below: medians of few rows would jump by nats."""
    generator = torch.Generator().manual_seed(0)
    value = 0.1 * torch.rand(101, generator=generator) - 6 * (torch.arange(101) >= 51)
    offsets, part = torch.tensor([0.0, 3.0, -2.0, 7.0, 1.0]), torch.randint(5, (101,), generator=generator)
    thresholds, errors = held_out_thresholds(
        value + offsets[:, None], torch.zeros(101, dtype=torch.long), torch.ones(101), part, 1, 0.5
    )
    torch.testing.assert_close(thresholds[:, 0], value.median() + offsets)
    alone = torch.stack([value[part == m].median() for m in range(5)])
    assert alone.max() - alone.min() > 3
    assert (errors == errors[0]).all()


def test_a_class_without_rows_takes_the_held_out_rows_of_all_classes():
    x, y = rows(2, n=120, classes=2)
    ensemble = CrossFitEnsemble(members=2, base=BRIEF).fit(x, 2 * y)
    part = split_by_class(2 * y, 2, random_state=0)
    log_probs = ensemble.member_log_probs(x, 2 * y)
    level = log_probs.median(dim=1).values
    held_out = log_probs[part, torch.arange(120)] - level[part]
    assert ensemble.thresholds_.shape == (2, 3)
    torch.testing.assert_close(ensemble.thresholds_[:, 1], level + lower_quantile(held_out, 0.5))
    assert ensemble.max_margin_[1] == 0


def test_the_error_of_a_threshold_falls_with_the_rows():
    few, many = (
        CrossFitEnsemble(members=2, base=BRIEF).fit(*rows(2, n=n, classes=1)).errors_ for n in (60, 3000)
    )
    assert (few > 0).all()
    assert many.mean() < 0.5 * few.mean()


def test_about_half_of_fresh_rows_pass_and_a_tenth_of_the_rows_reach_the_largest_margin():
    generator = torch.Generator().manual_seed(3)
    x, y = torch.randn(2000, 2, generator=generator, dtype=torch.float64), torch.arange(2000) % 2
    ensemble = CrossFitEnsemble(members=3, base=BASE).fit(x[:1000], y[:1000])
    assert not ensemble.margin_.any()
    assert (ensemble.score(x[1000:], y[1000:]) >= 0).double().mean() == pytest.approx(0.5, abs=0.07)
    for k in (0, 1):
        own = ensemble.lowest_left_out_score(x[:1000][y[:1000] == k], torch.full((500,), k))
        assert (own >= ensemble.max_margin_[k]).double().mean() == pytest.approx(0.1, abs=0.005)


# ---------------------------------------------------------------- members of other classes


class Outside:
    """A density that is not plausiflow's: normal distributions per class, without a seed."""

    def fit(self, x, y, *, n_classes=None):
        parts = [x[y == k].double() for k in range(n_classes)]
        self.mean, self.sd = (
            torch.stack([f(part, dim=0) for part in parts]) for f in (torch.mean, torch.std)
        )
        return self

    def log_prob(self, x, y):
        return torch.distributions.Normal(self.mean.to(x)[y], self.sd.to(x)[y]).log_prob(x).sum(dim=1)

    def state(self):
        return {"mean": self.mean, "sd": self.sd}

    def load_state(self, state):
        self.mean, self.sd = state["mean"], state["sd"]


def test_a_density_of_another_class_can_be_a_member():
    x, y = rows(2)
    ensemble = CrossFitEnsemble(members=3, base=Outside()).fit(x, y)
    assert ensemble.n_classes == 3
    part = split_by_class(y, 3, 0)
    for m, member in enumerate(ensemble.flows_):
        alone = Outside().fit(x[part != m], y[part != m], n_classes=3)
        assert torch.equal(ensemble.member_log_probs(x, y)[m], alone.log_prob(x, y))
        assert torch.equal(member.mean, alone.mean)
    again = CrossFitEnsemble(members=3, base=Outside()).load_state(ensemble.state())
    assert torch.equal(again.score(x, y), ensemble.score(x, y))


def test_copies_of_a_member_differ_in_their_seed_only():
    assert copy_with_seed(BRIEF, 7) is not BRIEF
    assert copy_with_seed(BRIEF, 7).random_state == 7
    base = Outside()
    base.random_state, base.mean = 0, torch.zeros(2)
    other = copy_with_seed(base, 3)
    assert (base.random_state, other.random_state) == (0, 3)
    assert other.mean is not base.mean
