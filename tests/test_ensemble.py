"""The cross-fitted ensemble: a density like the others, members stacked or one by one, honest thresholds."""

import copy
import io
import math
import pickle
from contextlib import nullcontext
from dataclasses import replace
from functools import cache

import pytest
import torch
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes

from plausiflow.densities import ConditionalFlow, CrossFitEnsemble
from plausiflow.densities import members as members_module
from plausiflow.densities.ensemble import split_by_class
from plausiflow.densities.thresholds import FEW_ROWS, quantile_of
from plausiflow.errors import InvalidInputError, NotFittedError, ShapeError, TrainingError
from plausiflow.protocols import Density, Plausibility
from plausiflow.training import Training

SHORT = Training(epochs=12, batch_size=64, learning_rate=5e-3, noise=0.02)
BASE = ConditionalFlow(transforms=3, hidden=(16, 16), training=SHORT)
BRIEF = replace(BASE, transforms=2, hidden=(8,), training=replace(SHORT, epochs=1))


def rows(d, n=240, classes=3, precision=torch.float64):
    """Classes of different centre and width, about in [0, 1]."""
    generator = torch.Generator().manual_seed(11)
    y = torch.arange(n) % classes
    centre, width = 0.3 + 0.2 * y, 0.06 + 0.03 * y
    x = centre[:, None] + width[:, None] * torch.randn(n, d, generator=generator, dtype=torch.float64)
    return x.to(precision), y


def ensemble_like(architecture="maf", **settings):
    return CrossFitEnsemble(**{"members": 3, "base": replace(BASE, architecture=architecture)} | settings)


@cache
def fitted_on(d, architecture="maf", classes=3):
    training = SHORT if architecture == "maf" else replace(SHORT, epochs=2)
    base = replace(BASE, architecture=architecture, training=training)
    return CrossFitEnsemble(members=3, base=base).fit(*rows(d, classes=classes))


def changed(ensemble, **attributes):
    """A copy with other settings or learned values."""
    other = copy.deepcopy(ensemble)
    for name, value in attributes.items():
        setattr(other, name, value)
    return other


@pytest.fixture
def ensemble():
    return fitted_on(3)


# ---------------------------------------------------------------- the contract of every density


def test_it_is_a_density_and_a_plausibility(ensemble):
    assert isinstance(ensemble, Density)
    assert isinstance(ensemble, Plausibility)


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", ["log_prob", "score"])
def test_each_row_gets_one_value_in_its_own_dtype(ensemble, precision, value):
    x, y = rows(3, precision=precision)
    x.requires_grad_()
    found = getattr(ensemble, value)(x, y)
    (gradient,) = torch.autograd.grad(found.sum(), x)
    assert found.shape == (240,)
    assert found.dtype == gradient.dtype == precision
    assert torch.isfinite(found).all()
    assert torch.isfinite(gradient).all()
    assert ensemble.member_log_probs(x, y).shape == ensemble.member_scores(x, y).shape == (3, 240)


def test_both_precisions_agree(ensemble):
    x, y = rows(3)
    for value in (ensemble.log_prob, ensemble.score):
        torch.testing.assert_close(value(x.float(), y).double(), value(x, y), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_it_fits_rows_of_either_precision(precision):
    x, y = rows(2, n=60, precision=precision)
    fitted = CrossFitEnsemble(members=2, base=BRIEF).fit(x, y)
    assert torch.isfinite(fitted.score(x.double(), y)).all()
    assert fitted.score(x, y).dtype == precision
    assert fitted.thresholds_.dtype == torch.float64


@pytest.mark.parametrize("aggregation", ["mean", "min"])
def test_gradients_equal_finite_differences(ensemble, aggregation):
    x, y = rows(3, n=6)
    ensemble = changed(ensemble, aggregation=aggregation)
    assert torch.autograd.gradcheck(lambda x: ensemble.log_prob(x, y), x.requires_grad_())
    assert torch.autograd.gradcheck(lambda x: ensemble.score(x, y), x)


@pytest.mark.parametrize("aggregation", ["mean", "min"])
def test_the_slope_is_the_score_and_its_gradient(ensemble, aggregation):
    x, y = rows(3, n=8)
    ensemble = changed(ensemble, aggregation=aggregation)
    which = torch.tensor([5, 0, 3])
    point = x[which].requires_grad_()
    score = ensemble.score(point, y[which])
    value, gradient = ensemble.slope(y)(point.detach(), which)
    torch.testing.assert_close(value, score.detach())
    torch.testing.assert_close(gradient, torch.autograd.grad(score.sum(), point)[0])
    torch.testing.assert_close(ensemble.scorer(y)(point.detach(), which), score.detach())


def test_second_derivatives_flow(ensemble):
    x, y = rows(3, n=4)
    assert torch.autograd.gradgradcheck(lambda x: ensemble.score(x, y), x.requires_grad_())


@pytest.mark.parametrize("distance", [0.0, 3.0, 100.0])
def test_values_and_gradients_are_finite_far_away_too(ensemble, distance):
    x, y = rows(3)
    x = (x + distance).requires_grad_()
    log_prob = ensemble.log_prob(x, y)
    (gradient,) = torch.autograd.grad(log_prob.sum(), x)
    assert torch.isfinite(log_prob).all()
    assert torch.isfinite(gradient).all()
    assert gradient.abs().sum(dim=1).min() > 0


def test_fitting_lifts_the_rows_of_a_class_above_those_of_another(ensemble):
    x, y = rows(3)
    assert ensemble.log_prob(x, y).mean() > ensemble.log_prob(x, (y + 1) % 3).mean() + 1


@pytest.mark.parametrize("k", range(3))
@pytest.mark.parametrize("d", [1, 2])
def test_it_integrates_to_one_in_every_class(d, k):
    axis = torch.linspace(-2.0, 3.0, 2001 if d == 1 else 251, dtype=torch.float64)
    grid = torch.cartesian_prod(*[axis] * d).reshape(-1, d)
    with torch.no_grad():
        values = fitted_on(d).log_prob(grid, torch.full((len(grid),), k)).exp()
    integral = values.reshape(*[len(axis)] * d)
    for _ in range(d):
        integral = torch.trapezoid(integral, axis, dim=-1)
    assert integral.item() == pytest.approx(1, abs=1e-2)


def test_a_row_alone_gets_the_value_it_gets_in_a_batch(ensemble):
    x, y = rows(3)
    for value in (ensemble.log_prob, ensemble.score):
        alone = torch.cat([value(x[i : i + 1], y[i : i + 1]) for i in range(20)])
        torch.testing.assert_close(value(x, y)[:20], alone, rtol=0, atol=1e-8)


@pytest.mark.parametrize("d", [1, 3])
def test_no_rows_give_no_values(d):
    x, y = rows(d)
    ensemble = fitted_on(d)
    assert ensemble.log_prob(x[:0], y[:0]).shape == ensemble.score(x[:0], y[:0]).shape == (0,)
    assert ensemble.member_scores(x[:0], y[:0]).shape == (3, 0)
    assert ensemble.score(x[:0].float(), y[:0]).dtype == torch.float32


@pytest.mark.parametrize("d", [1, 3])
def test_the_state_makes_the_round_trip_through_a_file(d):
    x, y = rows(d)
    ensemble = changed(fitted_on(d), margin_=torch.tensor([0.5, 0.25, 0.0], dtype=torch.float64))
    loaded = ensemble_like().load_state(from_bytes(to_bytes(ensemble.state())))
    for value in ("log_prob", "score", "member_log_probs"):
        for x_ in (x, x.float()):
            assert torch.equal(getattr(loaded, value)(x_, y), getattr(ensemble, value)(x_, y))
    for name in ("thresholds_", "errors_", "margin_", "most_margin_"):
        assert torch.equal(getattr(loaded, name), getattr(ensemble, name))


def test_the_state_is_a_copy_and_loading_keeps_no_hold_of_it(ensemble):
    x, y = rows(3)
    before = ensemble.score(x, y)
    state = ensemble.state()
    loaded = ensemble_like().load_state(state)
    for value in state.values():
        value.zero_()
    assert torch.equal(ensemble.score(x, y), before)
    assert torch.equal(loaded.score(x, y), before)


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda ensemble: pickle.loads(pickle.dumps(ensemble))])
def test_copies_give_the_same_values(d, duplicate):
    x, y = rows(d)
    assert torch.equal(duplicate(fitted_on(d)).score(x, y), fitted_on(d).score(x, y))


def test_fitting_again_forgets_the_old_rows_and_the_margin():
    ensemble = CrossFitEnsemble(members=2, base=BRIEF)
    x, y = rows(2, n=60)
    before = ensemble.fit(x, y).log_prob(x, y)
    ensemble.margin_ += 1
    assert not torch.allclose(ensemble.fit(x + 5, y).log_prob(x, y), before)
    assert torch.equal(ensemble.fit(x, y).log_prob(x, y), before)
    assert not ensemble.margin_.any()


def test_the_same_seed_gives_the_same_ensemble_and_another_one_another():
    x, y = rows(2, n=60)
    first, again, other = (CrossFitEnsemble(members=2, base=BRIEF, seed=seed).fit(x, y) for seed in (3, 3, 4))
    assert torch.equal(first.score(x, y), again.score(x, y))
    assert torch.equal(first.most_margin_, again.most_margin_)
    assert not torch.isclose(first.thresholds_, other.thresholds_).any()
    assert [flow.seed for flow in first.flows_] == [3000, 3001]
    assert not torch.isclose(*first.member_log_probs(x, y)).all()


@pytest.mark.parametrize("d", [1, 2])
def test_fitting_and_scoring_leave_the_global_generator_alone(d):
    x, y = rows(d, n=60)
    before = torch.get_rng_state()
    CrossFitEnsemble(members=2, base=BRIEF).fit(x, y).score(x, y)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_base_is_left_as_it_was():
    base = replace(BRIEF)
    CrossFitEnsemble(members=2, base=base).fit(*rows(2, n=60))
    assert repr(base) == repr(BRIEF)
    with pytest.raises(NotFittedError):
        base.state()


def test_repr_shows_the_settings_and_no_tensor(ensemble):
    assert repr(ensemble) == repr(ensemble_like())
    assert repr(ensemble).startswith("CrossFitEnsemble(members=3, base=ConditionalFlow(")
    assert "tensor" not in repr(ensemble)


# ---------------------------------------------------------------- errors


def test_using_it_before_fit_says_what_to_call():
    x, y = rows(2)
    for value in ("log_prob", "score", "member_log_probs", "member_scores"):
        with pytest.raises(NotFittedError, match=r"Call `fit\(x, y\)` first, or `load_state\(state\)`"):
            getattr(CrossFitEnsemble(), value)(x, y)
    with pytest.raises(NotFittedError, match="there is no state to save"):
        CrossFitEnsemble().state()


def test_all_problems_with_the_settings_are_named_at_once():
    with pytest.raises(InvalidInputError) as caught:
        CrossFitEnsemble(members=1, quantile=1.5, aggregation="median")
    for text in (
        "`members` must be at least 2; got 1",
        "`quantile` must be between 0 and 1; got 1.5",
        "`aggregation` must be 'mean' or 'min'; got 'median'",
    ):
        assert text in str(caught.value)


@pytest.mark.parametrize("shape", [(4, 2), (4, 4), (3,), (4, 3, 1)])
def test_rows_of_another_shape_are_an_error_that_names_both_shapes(ensemble, shape):
    with pytest.raises(ShapeError) as caught:
        ensemble.log_prob(torch.rand(shape), torch.zeros(shape[0]).long())
    assert f"`x` must have shape (n, 3), as when this density was fitted; got {shape}" in str(caught.value)


@pytest.mark.parametrize("k", [-1, 3])
def test_a_class_that_was_not_fitted_is_an_error(ensemble, k):
    with pytest.raises(InvalidInputError, match="between 0 and 2"):
        ensemble.score(torch.rand(2, 3), torch.tensor([0, k]))


@pytest.mark.parametrize("shape", [(1,), (2,), (3, 1)], ids=["one for all", "too few", "column"])
def test_another_number_of_classes_than_rows_is_an_error(ensemble, shape):
    with pytest.raises(ShapeError, match=r"`y` must have shape \(3,\)"):
        ensemble.score(torch.rand(3, 3), torch.zeros(shape).long())


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (lambda x, y: (x * torch.nan, y), InvalidInputError, "`x` must be finite"),
        (lambda x, y: (x, y.double()), InvalidInputError, "`y` must be a long tensor of class numbers"),
        (lambda x, y: (x, y - 1), InvalidInputError, "`y` must number classes from 0; got -1"),
        (lambda x, y: (x[:0], y[:0]), ShapeError, r"at least one row and one column; got \(0, 2\)"),
        (lambda x, y: (x, y[:-1]), ShapeError, r"`y` must have shape \(240,\), one class per row"),
    ],
)
def test_rows_that_cannot_be_fitted_are_an_error_that_says_why(change, error, text):
    with pytest.raises(error, match=text):
        CrossFitEnsemble(base=BRIEF).fit(*change(*rows(2)))


# ---------------------------------------------------------------- members


@pytest.mark.parametrize("classes", [1, 2, 4])
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
        ensemble.aggregated(scores, left_out), torch.tensor(expected, dtype=torch.float64)
    )
    whole = scores.amin(dim=0) if aggregation == "min" else scores.mean(dim=0)
    torch.testing.assert_close(ensemble.aggregated(scores), whole)


def test_the_member_left_out_has_no_say_and_gets_no_gradient():
    scores = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    left_out = torch.tensor([0, 1, 2, 2, 1, 0])
    for aggregation in ("mean", "min"):
        total = CrossFitEnsemble(members=3, aggregation=aggregation).aggregated(scores, left_out).sum()
        (gradient,) = torch.autograd.grad(total, scores)
        assert not gradient[left_out, torch.arange(6)].any()
        torch.testing.assert_close(gradient.sum(), torch.tensor(6.0, dtype=torch.float64))


# ---------------------------------------------------------------- splits and thresholds


@pytest.mark.parametrize("counts", [(50, 50), (103, 7, 1), (3, 0, 61), (4,)])
@pytest.mark.parametrize("parts", [2, 5])
def test_parts_are_even_over_all_rows_and_in_every_class(counts, parts):
    y = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    y = y[torch.randperm(len(y))]
    part = split_by_class(y, parts, seed=0)
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


def test_each_member_is_trained_without_its_part(monkeypatch):
    x, y = rows(2, n=90)
    trained = []
    fit = ConditionalFlow.fit

    def noted(self, rows, classes, **settings):
        trained.append((rows, classes, settings))
        return fit(self, rows, classes, **settings)

    monkeypatch.setattr(ConditionalFlow, "fit", noted)
    CrossFitEnsemble(members=3, base=BRIEF, seed=2).fit(x, y)
    part = split_by_class(y, 3, seed=2)
    for m, (seen, classes, settings) in enumerate(trained):
        assert torch.equal(seen, x[part != m])
        assert torch.equal(classes, y[part != m])
        assert settings == {"n_classes": 3}
    assert len(trained) == 3


@pytest.mark.parametrize("quantile", [0.0, 0.3, 0.5, 1.0])
def test_thresholds_are_the_quantile_of_each_members_held_out_rows(quantile):
    x, y = rows(2, n=300, classes=2)
    y = torch.where(torch.arange(300) < 30, 2, y)  # 30 rows of a third class: 10 for each member
    ensemble = CrossFitEnsemble(members=3, base=BRIEF, quantile=quantile, seed=5).fit(x, y)
    part = split_by_class(y, 3, seed=5)
    assert ensemble.thresholds_.shape == ensemble.errors_.shape == (3, 3)
    held_out = torch.cat([ensemble.flows_[m].log_prob(x[part == m], y[part == m]) for m in range(3)])
    classes = torch.cat([y[part == m] for m in range(3)])
    for m, flow in enumerate(ensemble.flows_):
        for k in (0, 1):
            own = (part == m) & (y == k)
            assert own.sum() >= FEW_ROWS
            expected = quantile_of(flow.log_prob(x[own], y[own]), quantile)
            torch.testing.assert_close(ensemble.thresholds_[m, k], expected, rtol=1e-10, atol=1e-10)
        pooled = quantile_of(held_out[classes == 2], quantile)
        torch.testing.assert_close(ensemble.thresholds_[m, 2], pooled, rtol=1e-10, atol=1e-10)
    assert (ensemble.errors_ >= 0).all()


def test_a_class_without_rows_takes_the_held_out_rows_of_all_classes():
    x, y = rows(2, n=120, classes=2)
    ensemble = CrossFitEnsemble(members=2, base=BRIEF).fit(x, 2 * y)
    part = split_by_class(2 * y, 2, seed=0)
    own = ensemble.member_log_probs(x, 2 * y)[part, torch.arange(120)]
    assert ensemble.thresholds_.shape == (2, 3)
    torch.testing.assert_close(ensemble.thresholds_[:, 1], quantile_of(own, 0.5).expand(2))
    assert ensemble.most_margin_[1] == 0


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
        own = ensemble.least_left_out(x[:1000][y[:1000] == k], torch.full((500,), k))
        assert (own >= ensemble.most_margin_[k]).double().mean() == pytest.approx(0.1, abs=0.005)


# ---------------------------------------------------------------- training in processes


def equal_states(one, other):
    assert one.keys() == other.keys()
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(
    params=[
        torch.float32,
        torch.float64,
    ]
)
def default(request):
    before = torch.get_default_dtype()
    torch.set_default_dtype(request.param)
    yield request.param
    torch.set_default_dtype(before)


@pytest.mark.slow
def test_members_trained_in_worker_processes_equal_those_trained_here_bit_for_bit(default):
    x, y = rows(2, n=60, precision=default)
    settings = {"members": 3, "base": BRIEF, "seed": 1}
    here = CrossFitEnsemble(**settings, workers=1).fit(x, y)
    elsewhere = CrossFitEnsemble(**settings, workers=2).fit(x, y)
    assert equal_states(here.state(), elsewhere.state())
    assert torch.equal(here.score(x, y), elsewhere.score(x, y))


class Worker:
    """A process that does at once, in this one, what a worker would do; or fails as told."""

    fails_with: str | None = None
    started, killed = 0, 0

    def __init__(self, command, *, env, stderr, text):
        type(self).started += 1
        self.folder, self.member = command[-2:]
        assert command[1:3] == ["-m", "plausiflow.densities.members"]
        assert env["OMP_NUM_THREADS"] == "1"
        self.returncode = None

    def communicate(self):
        if self.fails_with is not None and self.member == "1":
            self.returncode = 1
            return None, self.fails_with
        threads = torch.get_num_threads()
        members_module.main(members_module.Path(self.folder), int(self.member))
        torch.set_num_threads(threads)
        self.returncode = 0
        return None, ""

    def kill(self):
        type(self).killed += 1

    def wait(self, timeout=None):
        return self.returncode

    def poll(self):
        return self.returncode

    @property
    def stderr(self):
        return io.StringIO("")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


@pytest.fixture
def worker(monkeypatch):
    kind = type("Recorded", (Worker,), {"started": 0, "killed": 0})
    monkeypatch.setattr(members_module.subprocess, "Popen", kind)
    return kind


@pytest.mark.parametrize("architecture", ["maf", "nsf"])
def test_what_a_worker_is_told_and_writes_back_is_all_there_is_to_know(worker, architecture):
    x, y = rows(2, n=60)
    base = replace(BRIEF, architecture=architecture, log_scale_bound=1.5, sd_floor=0.1)
    settings = {"members": 3, "base": base, "seed": 1}
    here = CrossFitEnsemble(**settings, workers=1).fit(x, y)
    assert worker.started == 0
    elsewhere = CrossFitEnsemble(**settings, workers=2).fit(x, y)
    assert worker.started == 3
    assert worker.killed == 0
    assert equal_states(here.state(), elsewhere.state())


def test_a_worker_that_fails_is_an_error_that_says_why_and_ends_the_others(worker):
    worker.fails_with = "Traceback\n  line\nMemoryError: too large\n"
    with pytest.raises(
        TrainingError, match=r"Member 1 of the ensemble could not be trained: MemoryError: too large"
    ):
        CrossFitEnsemble(members=3, base=BRIEF, workers=3).fit(*rows(2, n=60))
    assert worker.killed == 1


@pytest.mark.slow
def test_a_real_worker_that_fails_is_an_error_with_its_last_line(monkeypatch):
    dumps = members_module.json.dumps
    monkeypatch.setattr(
        members_module.json,
        "dumps",
        lambda told: dumps(
            told | {"settings": told["settings"] | {"architecture": "flow"}}
            if told["settings"]["seed"] == 1
            else told
        ),
    )
    with pytest.raises(
        TrainingError, match=r"Member 1 of the ensemble could not be trained: .*`architecture` must be one of"
    ):
        CrossFitEnsemble(members=2, base=BRIEF, workers=2).fit(*rows(2, n=60))


def test_a_worker_that_is_killed_without_a_word_is_the_same_error(worker):
    worker.fails_with = ""
    with pytest.raises(TrainingError, match="Member 1 of the ensemble could not be trained"):
        CrossFitEnsemble(members=2, base=BRIEF, workers=2).fit(*rows(2, n=60))


def test_classes_from_a_slice_reach_the_workers_too(worker):
    x, y = rows(2, n=120)
    CrossFitEnsemble(members=2, base=BRIEF, workers=2).fit(x[::2], y[::2])
    assert worker.started == 2


def test_the_state_of_another_number_of_members_is_an_error(ensemble):
    with pytest.raises(InvalidInputError, match="members"):
        ensemble_like(members=2).load_state(ensemble.state())


def test_small_tables_are_trained_here(worker):
    CrossFitEnsemble(members=2, base=BRIEF).fit(*rows(2, n=60))
    assert worker.started == 0


@pytest.mark.parametrize("cores", [1, 8])
def test_large_tables_are_trained_on_the_cores_that_there_are(worker, monkeypatch, cores):
    monkeypatch.setattr(members_module, "WORTH_A_WORKER", 100)
    monkeypatch.setattr(members_module.os, "sched_getaffinity", lambda _: range(cores), raising=False)
    CrossFitEnsemble(members=2, base=BRIEF).fit(*rows(2, n=60))
    assert worker.started == (0 if cores == 1 else 2)


@pytest.mark.parametrize("fails", [False, True])
def test_members_are_trained_with_one_thread_and_the_number_of_threads_is_put_back(monkeypatch, fails):
    seen = []

    def fit(self, x, y, **settings):
        seen.append(torch.get_num_threads())
        if fails:
            raise TrainingError("no")
        return original(self, x, y, **settings)

    original = ConditionalFlow.fit
    monkeypatch.setattr(ConditionalFlow, "fit", fit)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(TrainingError) if fails else nullcontext():
            CrossFitEnsemble(members=2, base=BRIEF).fit(*rows(2, n=60))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert set(seen) == {1}


def test_few_rows_are_an_ordinary_case():
    x, y = rows(2, n=6, classes=2)
    ensemble = CrossFitEnsemble(members=2, base=BRIEF).fit(x, y)
    assert torch.isfinite(ensemble.score(x, y)).all()
    assert all(math.isfinite(value) for value in ensemble.most_margin_.tolist())
