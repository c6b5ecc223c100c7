"""What a margin is worth, and answers that are moved to real rows where no margin is enough."""

import math
import warnings
from types import SimpleNamespace

import pytest
import torch

from calibrating import line, table
from plausiflow.core import RowScores
from plausiflow.core.frozen import Frozen
from plausiflow.densities import CrossFitEnsemble, calibration
from plausiflow.densities.calibration import PlausibilityWarning, calibrate
from plausiflow.methods import PPCEF

SPOT = torch.tensor([0.8, 0.5])


class Plateau(torch.nn.Module):
    """Members that agree at one spot only, where half of the rows are; each accepts a valley of its own."""

    def forward(self, x, y):
        spot = torch.tensor([[0.2, 0.5], [0.8, 0.5]]).to(x)[y]
        squared = ((x - spot) ** 2).sum(dim=1)
        angles = torch.arange(3).to(x)[:, None] * 2 * math.pi / 3
        tilt = angles.cos() * (x - spot)[:, 0] + angles.sin() * (x - spot)[:, 1]
        return 0.01 - 20 * squared + 8 * tilt


def near_discrete():
    """Two classes: most rows of each are equal, the others are spread."""
    x, y = table(120)
    x = x.double()
    spot = torch.stack([0.2 + 0.6 * y.double(), torch.full((120,), 0.5, dtype=torch.float64)], dim=1)
    return torch.where((torch.arange(120) % 10 < 8)[:, None], spot, x), y


def plateau():
    ensemble = CrossFitEnsemble(members=3)
    ensemble.flows_ = [SimpleNamespace(n_features_=2, n_classes_=2)] * 3
    ensemble._stacked = Frozen(Plateau())
    ensemble.thresholds_, ensemble.errors_ = torch.zeros(2, 3, 2, dtype=torch.float64)
    ensemble.margin_ = torch.zeros(2, dtype=torch.float64)
    ensemble.max_margin_ = torch.full((2,), 0.005, dtype=torch.float64)
    return ensemble


def fitted(**settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlausibilityWarning)
        return PPCEF(classifier=line(), density=plateau(), **settings).fit(*near_discrete())


def test_answers_that_no_margin_makes_certain_are_moved_to_the_rows_that_everyone_accepts():
    method = fitted()
    assert (method.part_ > 0).all()
    x, y = near_discrete()
    rows = x[torch.arange(120) % 10 >= 8]
    found = method.explain(rows)
    assert found.feasible.all()
    each = method.plausibility_.member_scores(found.x_cf.double(), found.y_target)
    assert (each >= 0).double().mean() >= 0.95
    unmoved = PPCEF(classifier=line(), plausibility=method.plausibility_).fit(x, y).explain(rows)
    alone = method.plausibility_.member_scores(unmoved.x_cf.double(), unmoved.y_target)
    assert (alone >= 0).double().mean() < 0.95


def test_a_moved_row_gets_the_same_answer_alone_and_keeps_what_it_may_not_change():
    method = fitted()
    x = near_discrete()[0][8:20]
    together = method.explain(x).x_cf
    alone = torch.cat([method.explain(row[None]).x_cf for row in x])
    torch.testing.assert_close(alone, together, rtol=0, atol=1e-8)
    frozen = fitted(immutable=(1,)).explain(x)
    assert frozen.found.any()
    assert torch.equal(frozen.x_cf[frozen.found, 1], x[frozen.found, 1])


def test_nothing_is_moved_where_a_margin_is_enough_and_nothing_without_a_way_to_move():
    assert not fitted(confidence=0.05).part_.any()
    assert fitted(confidence=None).part_ is None
    method = PPCEF(classifier=line(), plausibility=plateau())
    x, _ = near_discrete()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlausibilityWarning)
        found = calibrate(
            plateau(),
            x,
            (x[:, 0] > 0.5).long(),
            validity=method._validity,
            search=method._search_with,
            confidence=0.95,
        )
    assert not found.part.any()


class Straight:
    """One feature; members whose scores are x, and a search that goes exactly to the margin."""

    members = 2

    def __init__(self, most=1.0, error=0.25):
        self.margin_, self.max_margin_ = torch.zeros(2, dtype=torch.float64), torch.full((2,), most).double()
        self.errors_ = torch.full((2, 2), error, dtype=torch.float64)

    def for_rows(self, x, y_target, *, with_margin=True, margin=None, left_out=None) -> RowScores:
        return margin[y_target]

    def member_scores(self, x, y):
        return x[:, 0].expand(2, -1)

    def context_threshold(self, x, y):
        return torch.zeros_like(x[:, 0])

    def lowest_left_out_score(self, x, y):
        return x[:, 0]


def straight(confidence, start=-1.0, **settings):
    ensemble = Straight(**settings)
    x = torch.full((80, 1), start, dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlausibilityWarning)
        return calibrate(
            ensemble,
            x,
            torch.arange(80) % 2,
            validity=lambda x, y: torch.ones_like(x[:, 0]),
            search=lambda x, y, scores, bank: scores[:, None].clone(),
            confidence=confidence,
        )


@pytest.mark.parametrize("confidence", [0.6, 0.8, 0.9, 0.95])
def test_the_margin_is_the_normal_quantile_of_the_error_of_a_threshold(confidence):
    """A density whose threshold has a normal error accepts margin m with the probability Phi(m / error)."""
    exact = 0.25 * float(torch.special.ndtri(torch.tensor(confidence, dtype=torch.float64)))
    found = straight(confidence)
    assert (found.margin >= exact - 1e-12).all()
    assert (found.margin <= exact + 1 / 16 + 1e-12).all()  # the last of the steps
    torch.testing.assert_close(found.passed, torch.special.ndtr(found.margin / 0.25))


def test_a_margin_that_costs_too_much_distance_is_not_taken(monkeypatch):
    """From -1 a margin of m goes to the distance 1 + m: m more, relative to 1, for Phi(m / error) - 1/2."""
    monkeypatch.setattr(calibration, "EXCHANGE", 2.0)
    far, near = straight(0.999, error=2.0), straight(0.999, start=-10.0, error=2.0)
    assert not far.margin.any()  # Phi rises by less than a half of the distance
    assert (near.margin == 0.875).all()  # the largest that halving three times reaches


def test_a_smaller_margin_is_taken_where_the_one_that_is_enough_costs_too_much(monkeypatch):
    """From -1, Phi(m / 0.5) - 1/2 is worth more than m / 2 for small margins only."""
    monkeypatch.setattr(calibration, "EXCHANGE", 2.0)
    found = straight(0.999, most=2.0, error=0.5)
    share = torch.special.ndtr(found.margin / 0.5)
    assert (found.margin > 0.25).all()
    assert (share - 0.5 > found.margin / 2).all()  # worth its distance
    assert (share < 0.999).all()
