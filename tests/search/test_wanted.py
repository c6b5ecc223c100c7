"""What is wanted of rows: closed forms of classes, probabilities and bounds."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from plausiflow.core import TargetCriterion, Targets, ValidityConstraint

NUMBERS = st.floats(-30, 30, allow_subnormal=False)
INFINITE = float("inf")


def of(*classes):
    return torch.tensor(classes)


def probabilities(logits):
    shifted = np.exp(np.array(logits) - np.max(logits))
    return shifted / shifted.sum()


def close(a, b):
    return abs(a - b) < 1e-9


@given(NUMBERS, NUMBERS, st.sampled_from([0.0, 0.02, 0.1, 0.3, 0.49]), st.integers(0, 1))
def test_one_of_two_classes_must_have_a_half_and_the_margin(a, b, margin, y):
    own = probabilities([a, b])[y]
    value = TargetCriterion(margin).value(torch.tensor([[a, b]]), Targets(of(y)))
    assert value.shape == (1,)
    assert close(own, 0.5 + margin) or (value.item() >= 0) == (own >= 0.5 + margin)


@given(
    st.lists(NUMBERS, min_size=3, max_size=5), st.sampled_from([0.0, 0.02, 0.3]), st.integers(0, 2), st.data()
)
def test_one_of_many_classes_must_beat_every_other_by_the_margin(logits, margin, y, data):
    proba = probabilities(logits)
    rival = np.delete(proba, y).max()
    shift = data.draw(NUMBERS)
    value = TargetCriterion(margin).value(torch.tensor([logits]) + shift, Targets(of(y)))
    assert close(proba[y], rival + margin) or (value.item() >= 0) == (proba[y] >= rival + margin)


@given(st.lists(NUMBERS, min_size=2, max_size=4), st.floats(0.01, 0.99), st.integers(0, 1))
def test_a_least_probability_comes_on_top_of_winning(logits, least, y):
    proba = probabilities(logits)
    rival = np.delete(proba, y).max()
    value = TargetCriterion().value(
        torch.tensor([logits]), Targets(of(y), min_probability=torch.tensor([least]))
    )
    wanted = proba[y] >= least and proba[y] >= rival
    assert close(proba[y], least) or close(proba[y], rival) or (value.item() >= 0) == wanted


@pytest.mark.parametrize("share", [0.51, 0.6, 0.66, 0.75, 0.8, 0.9, 0.95, 0.99])
def test_a_probability_that_is_the_least_one_exactly_is_enough(share):
    wanted = Targets(of(1), min_probability=torch.tensor([share]))
    for others in ([1 - share], [(1 - share) / 2, (1 - share) / 2]):
        logits = torch.tensor([[others[0], share, *others[1:]]]).log()
        assert TargetCriterion().value(logits, wanted).item() >= 0
        assert TargetCriterion().met(logits, wanted).all()
        less = Targets(of(1), min_probability=torch.tensor([share + 1e-7]))
        assert TargetCriterion().value(logits, less).item() < 0


def test_a_model_that_is_certain_has_any_least_probability():
    logits = torch.tensor([[0.0, 1.0]]).clamp_min(1e-300).log().requires_grad_()
    value = TargetCriterion(0.02).value(logits, Targets(of(1), min_probability=torch.tensor([0.999999])))
    assert torch.isfinite(value).all()
    assert value.item() > 0
    (slope,) = torch.autograd.grad(value.sum(), logits)
    assert torch.isfinite(slope).all()


def test_the_value_of_a_least_probability_is_a_difference_of_log_odds():
    proba = torch.tensor([[0.2, 0.7, 0.1], [0.05, 0.9, 0.05]])
    value = TargetCriterion().value(proba.log(), Targets(of(1, 1), min_probability=torch.tensor([0.8, 0.8])))
    expected = np.log([0.7 / 0.3, 0.9 / 0.1]) - np.log(0.8 / 0.2)
    np.testing.assert_allclose(value.numpy(), expected, atol=1e-8)


EDGES = (-INFINITE, -1.0, 0.5, 2.0, INFINITE)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=9))
def test_bins_are_those_of_numpy(values):
    bins = TargetCriterion(edges=EDGES).classes(torch.tensor(values))
    np.testing.assert_array_equal(bins.numpy(), np.digitize(values, EDGES[1:-1]))


def test_a_number_on_an_edge_is_in_the_bin_above_it():
    assert TargetCriterion(edges=EDGES).classes(torch.tensor([-1.0, 0.5, 2.0])).tolist() == [1, 2, 3]


@given(st.floats(-9, 9), st.floats(-3, 2), st.floats(0.01, 3), st.sampled_from([0.1, 1.0, 25.0]))
def test_a_number_must_lie_between_its_bounds_ends_included(value, low, width, unit):
    high = low + width
    wanted = Targets(of(0), low=torch.tensor([low]), high=torch.tensor([high]))
    found = TargetCriterion(edges=EDGES, unit=unit).value(torch.tensor([value]), wanted)
    assert (found.item() >= 0) == (low <= value <= high)
    assert found.item() == pytest.approx(min(value - low, high - value) / unit, abs=1e-12)
    for end in (low, high):
        assert TargetCriterion(edges=EDGES, unit=unit).met(torch.tensor([end]), wanted).all()


@given(st.floats(-1e12, 1e12), st.floats(-9, 9), st.booleans())
def test_a_bound_that_is_not_there_asks_for_nothing(value, bound, lowest):
    ends = (bound, INFINITE) if lowest else (-INFINITE, bound)
    wanted = Targets(of(0), low=torch.tensor(ends[:1]), high=torch.tensor(ends[1:]))
    values = torch.tensor([value], requires_grad=True)
    found = TargetCriterion(edges=EDGES, unit=2.0).value(values, wanted)
    assert (found.item() >= 0) == (value >= bound if lowest else value <= bound)
    assert np.isfinite(found.item())
    (slope,) = torch.autograd.grad(found.sum(), values)
    assert torch.isfinite(slope).all()


def test_numbers_keep_their_precision_against_bounds_in_double():
    wanted = Targets(of(0), low=torch.tensor([0.1]), high=torch.tensor([0.2]))
    found = TargetCriterion(edges=EDGES).value(torch.tensor([0.15], dtype=torch.float32), wanted)
    assert found.dtype == torch.float32


def test_firmer_asks_for_so_much_more():
    logits, y = torch.tensor([[0.0, 1.0], [0.0, 3.0]]), of(1, 1)
    firm = Targets(y).with_extra_margin(torch.tensor([0.5, 2.0]))
    plain = TargetCriterion(0.02).value(logits, Targets(y))
    torch.testing.assert_close(TargetCriterion(0.02).value(logits, firm), plain - torch.tensor([0.5, 2.0]))


def test_firmer_between_bounds_leaves_half_of_the_room():
    low, high = torch.tensor([0.0, 0.0, 0.0]), torch.tensor([1.0, INFINITE, 100.0])
    wanted = Targets(of(0, 0, 0), low=low, high=high).with_extra_margin(torch.full((3,), 3.0))
    criterion, inside = TargetCriterion(edges=EDGES, unit=0.5), torch.tensor([0.5, 7.0, 7.0])
    # 1 in the middle of [0, 1] in units of a half, of which half is asked for; the others have room enough.
    torch.testing.assert_close(criterion.value(inside, wanted), torch.tensor([0.5, 11.0, 11.0]))


def test_whatever_firmer_asks_the_middle_between_bounds_will_do():
    middle = torch.tensor([5.0])
    for width in (1e-6, 1e-2, 3.0):
        wanted = Targets(of(0), low=middle - width, high=middle + width).with_extra_margin(
            torch.tensor([50.0])
        )
        assert TargetCriterion(edges=EDGES, unit=0.3).value(middle, wanted).item() >= 0


def test_rows_that_win_narrowly_are_already_as_wanted():
    logits = torch.tensor([[0.499, 0.501], [0.501, 0.499], [0.5, 0.5]]).log()
    criterion = TargetCriterion(0.1)
    assert criterion.met(logits, Targets(of(1, 1, 1))).tolist() == [True, False, False]
    assert (criterion.value(logits, Targets(of(1, 1, 1))) < 0).all()
    # Of two that are alike a model decides for the first.
    assert criterion.met(logits, Targets(of(0, 0, 0))).tolist() == [False, True, True]


def test_rows_below_the_least_probability_are_not_as_wanted_yet():
    logits = torch.tensor([[0.3, 0.7], [0.05, 0.95]]).log()
    wanted = Targets(of(1, 1), min_probability=torch.tensor([0.9, 0.9]))
    assert TargetCriterion(0.02).met(logits, wanted).tolist() == [False, True]


def test_what_is_not_known_is_not_as_wanted():
    nothing = torch.full((2, 2), torch.nan)
    assert not TargetCriterion().met(nothing, Targets(of(0, 1))).any()
    bounds = Targets(of(0, 1), low=torch.tensor([0.0, -INFINITE]), high=torch.tensor([INFINITE, 1.0]))
    assert not TargetCriterion(edges=EDGES).met(nothing[:, 0], bounds).any()


def test_classes_alone_are_any_answer_of_the_class():
    logits = torch.tensor([[0.0, 2.0], [0.0, -1.0]])
    y = of(1, 1)
    torch.testing.assert_close(
        TargetCriterion(0.1).value(logits, y), TargetCriterion(0.1).value(logits, Targets(y))
    )
    criterion = TargetCriterion(edges=EDGES)
    values = torch.tensor([-2.0, -1.0, 0.4999, 0.5, 9.0])
    assert (criterion.value(values, criterion.classes(values)) >= 0).all()
    # But for the edges, which belong to both, a number is in no other bin.
    inside = torch.tensor([-2.0, 0.0, 1.0, 9.0])
    for shift in (1, 2, 3):
        assert (criterion.value(inside, (criterion.classes(inside) + shift) % 4) < 0).all()


PARTS = {
    "classes": Targets(of(0, 1, 2, 1)),
    "least": Targets(of(0, 1, 2, 1), min_probability=torch.tensor([0.5, 0.6, 0.7, 0.8])),
    "bounds": Targets(of(0, 1, 2, 1), low=torch.arange(4.0), high=torch.arange(4.0) + 1),
    "extra_margin": Targets(of(0, 1, 2, 1)).with_extra_margin(torch.arange(4.0)),
}


@pytest.mark.parametrize("kind", PARTS)
def test_parts_are_chosen_and_joined_row_by_row(kind):
    wanted = PARTS[kind]
    order = of(3, 1, 1, 0)
    chosen = wanted[order]
    assert len(wanted) == len(chosen) == 4
    joined = Targets.concat([wanted[:2], wanted[2:]])
    for name in ("y", "min_probability", "low", "high", "extra_margin"):
        before = getattr(wanted, name)
        if before is None:
            assert getattr(chosen, name) is None
            assert getattr(joined, name) is None
        else:
            assert getattr(chosen, name).tolist() == [before[i].item() for i in order]
            assert getattr(joined, name).tolist() == before.tolist()


@pytest.mark.parametrize("kind", PARTS)
def test_a_mask_chooses_rows_too(kind):
    assert PARTS[kind][torch.tensor([True, False, False, True])].y.tolist() == [0, 1]


def test_decides_holds_a_models_outputs_against_what_is_wanted():
    weight = torch.tensor([[1.0, -2.0], [0.5, 3.0]])
    decides = ValidityConstraint(lambda x: x @ weight, TargetCriterion(0.05))
    x = torch.tensor([[1.0, 2.0], [-1.0, 0.5]], requires_grad=True)
    expected = TargetCriterion(0.05).value((x @ weight).detach(), Targets(of(0, 1)))
    torch.testing.assert_close(decides(x, Targets(of(0, 1))).detach(), expected)
    (slope,) = torch.autograd.grad(decides(x, of(0, 1)).sum(), x)
    assert (slope != 0).any()
