"""The solvers against closed forms and SciPy, and settings that make no sense."""

import math

import pytest
import torch
from scipy.optimize import LinearConstraint, minimize

from plausiflow.core.losses import l2_distance
from plausiflow.errors import InvalidInputError
from plausiflow.methods import PPCEF
from plausiflow.models import LinearClassifier
from plausiflow.solvers import PenaltyAdam


class Flat:
    """Everything is equally plausible, and exactly so."""

    def score(self, x, y):
        return torch.zeros(len(x), dtype=x.dtype)


class Gaussian:
    """A standard normal around a centre, held against the density at a given radius."""

    def __init__(self, centre, radius):
        self.centre, self.radius = centre, radius

    def score(self, x, y):
        return 0.5 * (self.radius**2 - ((x - self.centre.to(x)) ** 2).sum(dim=1))


def linear_classifier(d, scale=1.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    weight = scale * torch.randn(1, d, generator=generator)
    return LinearClassifier.from_weights(weight, torch.tensor([0.3]))


def decision(classifier, x):
    logits = classifier.logits(x)
    return logits[:, 1] - logits[:, 0]


def norm_of(classifier):
    return (classifier.weight[1] - classifier.weight[0]).norm()


# ---------------------------------------------------------------- closed forms


@pytest.mark.parametrize("d", [2, 10, 50])
def test_with_a_flat_density_the_distance_is_that_to_the_hyperplane(d):
    classifier = linear_classifier(d)
    x = torch.randn(40, d)
    found = PPCEF(classifier=classifier, plausibility=Flat(), margin=0.0).explain(x)
    optimum = decision(classifier, x).abs() / norm_of(classifier)
    assert found.feasible.all()
    torch.testing.assert_close(l2_distance(found.x_cf, x), optimum.to(x), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("margin", [0.02, 0.2])
def test_the_margin_moves_the_hyperplane_by_its_log_odds(margin):
    classifier = linear_classifier(5)
    x = torch.randn(40, 5)
    found = PPCEF(classifier=classifier, plausibility=Flat(), margin=margin).explain(x)
    logit = math.log((0.5 + margin) / (0.5 - margin))
    optimum = (decision(classifier, x).abs() + logit) / norm_of(classifier)
    torch.testing.assert_close(l2_distance(found.x_cf, x), optimum.to(x), rtol=1e-3, atol=1e-3)


def test_feature_weights_give_the_weighted_projection():
    classifier = linear_classifier(6)
    weights = torch.tensor([1.0, 4.0, 0.25, 1.0, 9.0, 1.0])
    x = torch.randn(30, 6)
    found = PPCEF(classifier=classifier, plausibility=Flat(), margin=0.0, weights=weights).explain(x)
    direction = (classifier.weight[1] - classifier.weight[0]).to(x)
    optimum = decision(classifier, x).abs() / (direction**2 / weights).sum().sqrt()
    torch.testing.assert_close(l2_distance(found.x_cf, x, weights), optimum.to(x), rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("d", [2, 8])
def test_gaussian_density_and_linear_classifier_reach_the_optimum_of_slsqp(d):
    classifier = linear_classifier(d, scale=2.0)
    direction = classifier.weight[1] - classifier.weight[0]
    centre = 2.5 * direction / direction.norm() + 0.3 * torch.randn(d)
    plausibility = Gaussian(centre, radius=2.0)
    x = torch.randn(12, d) - 1.5 * direction / direction.norm()
    found = PPCEF(classifier=classifier, plausibility=plausibility, margin=0.02).explain(x, 1)
    logit = math.log(0.52 / 0.48)
    offset = float(classifier.bias[1] - classifier.bias[0])
    for row, x_cf in zip(x.double().numpy(), found.x_cf.double(), strict=True):
        best = minimize(
            lambda z, row=row: ((z - row) ** 2).sum(),
            centre.double().numpy(),
            jac=lambda z, row=row: 2 * (z - row),
            constraints=[
                {"type": "ineq", "fun": lambda z: z @ direction.double().numpy() + offset - logit},
                {"type": "ineq", "fun": lambda z: 0.5 * (4.0 - ((z - centre.double().numpy()) ** 2).sum())},
            ],
            method="SLSQP",
            options={"maxiter": 500, "ftol": 1e-8},
        )
        assert best.success
        own = float(((x_cf - torch.as_tensor(row)) ** 2).sum().sqrt())
        assert own == pytest.approx(math.sqrt(best.fun), rel=1e-2, abs=1e-3)


def test_a_saturated_classifier_is_still_solved_in_single_precision():
    classifier = linear_classifier(4, scale=60.0)
    x = torch.randn(64, 4, dtype=torch.float32)
    proba = classifier.logits(x).softmax(dim=1).amin(dim=1)
    x = x[proba < 1e-9]
    assert len(x) > 10
    found = PPCEF(classifier=classifier, plausibility=Flat()).explain(x)
    assert found.x_cf.dtype == torch.float32
    assert found.feasible.all()
    optimum = decision(classifier, x.double()).abs() / norm_of(classifier)
    torch.testing.assert_close(l2_distance(found.x_cf.double(), x.double()), optimum, rtol=1e-2, atol=1e-3)


def test_fixed_weight_descent_stalls_on_the_same_saturated_classifier():
    classifier = linear_classifier(4, scale=60.0)
    x = torch.randn(64, 4, dtype=torch.float32)
    x = x[classifier.logits(x).softmax(dim=1).amin(dim=1) < 1e-30]
    adam = PPCEF(classifier=classifier, plausibility=Flat(), solver=PenaltyAdam(steps=200)).explain(x)
    assert not adam.valid.any()


def test_bounded_distance_equals_slsqp_on_a_linear_classifier():
    classifier = linear_classifier(6, seed=3)
    direction = (classifier.weight[1] - classifier.weight[0]).double()
    offset = float(classifier.bias[1] - classifier.bias[0])
    x = torch.rand(25, 6)
    method = PPCEF(classifier=classifier, plausibility=Flat(), margin=0.0, lower=0.0, upper=1.0)
    found = method.explain(x)
    for i in range(len(x)):
        sign = 1 if found.y_target[i] == 1 else -1
        row = x[i].double().numpy()
        limit = LinearConstraint(sign * direction.numpy(), lb=-sign * offset)
        best = minimize(
            lambda z, row=row: ((z - row) ** 2).sum(),
            row,
            bounds=[(0, 1)] * 6,
            constraints=[limit],
            method="SLSQP",
            tol=1e-14,
        )
        if not best.success:
            assert not found.found[i]
            continue
        own = float(l2_distance(found.x_cf[i : i + 1].double(), x[i : i + 1].double()))
        assert own == pytest.approx(math.sqrt(best.fun), rel=1e-2, abs=2e-3)


def test_the_papers_adam_takes_the_steps_of_a_hand_written_adam():
    classifier, x = linear_classifier(3), torch.randn(4, 3)
    method = PPCEF(
        classifier=classifier, plausibility=Flat(), solver=PenaltyAdam(steps=25, patience=25, keep="last")
    )
    found = method.explain(x)
    weight, bias = classifier.weight[1].to(x), classifier.bias[1].to(x)
    z, m, v = x.clone(), torch.zeros_like(x), torch.zeros_like(x)
    sign = (2 * found.y_target - 1).to(x)
    for t in range(1, 26):
        p = torch.sigmoid(sign * (z @ weight + bias))
        active = (p < 0.52).to(x)
        change = z - x
        distance = change.norm(dim=1, keepdim=True)
        pull = torch.where(distance > 0, change / distance.clamp_min(1e-300), torch.zeros_like(change))
        g = (pull - 100 * (active * p * (1 - p) * sign)[:, None] * weight) / len(x)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        z = z - 0.005 * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
    torch.testing.assert_close(found.x_cf, z, rtol=1e-5, atol=1e-6)


# ---------------------------------------------------------------- what goes wrong


def test_a_density_that_answers_with_nan_is_a_row_not_found():
    class Broken:
        def score(self, x, y):
            return torch.full((len(x),), math.nan, dtype=x.dtype) + x.sum() * 0

    found = PPCEF(classifier=linear_classifier(2), plausibility=Broken()).explain(torch.randn(5, 2))
    assert not found.found.any()


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"margin": 0.5}, "margin"),
        ({"increasing": (0,), "decreasing": (0,)}, "increasing and decreasing"),
        ({"weights": torch.tensor([1.0, 0.0])}, "positive"),
        ({"plausibility": None}, "plausibility"),
    ],
)
def test_settings_that_make_no_sense_are_errors_when_they_are_made(wrong, text):
    with pytest.raises(InvalidInputError, match=text):
        PPCEF(**({"classifier": linear_classifier(2), "plausibility": Flat()} | wrong))


def test_every_problem_is_named_at_once():
    with pytest.raises(InvalidInputError, match=r"margin.*increasing and decreasing"):
        PPCEF(
            classifier=linear_classifier(2), plausibility=Flat(), margin=2.0, increasing=(1,), decreasing=(1,)
        )


def test_a_column_that_does_not_exist_is_an_error():
    method = PPCEF(classifier=linear_classifier(2), plausibility=Flat(), immutable=(7,))
    with pytest.raises(InvalidInputError, match=r"\[7\] do not exist"):
        method.explain(torch.randn(2, 2))
