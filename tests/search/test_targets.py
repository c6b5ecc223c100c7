"""What users ask for: outcomes, policies and bounds, and what they get wrong."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from plausiflow.core import TargetCriterion
from plausiflow.errors import InvalidInputError, PlausiflowError, ShapeError
from plausiflow.search.targets import (
    bin_outcomes,
    class_labels,
    parse_target,
    predicted_labels,
    targets_as_text,
)

INFINITE = float("inf")
TWO = torch.tensor([[0.7, 0.3], [0.2, 0.8], [0.5, 0.5]]).log()
THREE = (
    torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6], [0.3, 0.4, 0.3], [1.0, 0.0, 0.0]]).clamp_min(1e-300).log()
)
EDGES = (-INFINITE, 1.0, 2.0, 3.0, INFINITE)
NUMBER = TargetCriterion(edges=EDGES)


def classes(target, outputs=TWO, labels=("no", "yes"), least=None):
    (wanted,) = parse_target(target, outputs, TargetCriterion(), labels, least)
    return [labels[k] for k in wanted.y.tolist()]


def bounds(target, values=(0.5, 1.5, 9.0)):
    wanted = parse_target(target, torch.tensor(values), NUMBER, ())[0]
    return wanted


def test_the_opposite_is_the_other_of_two():
    assert classes("opposite") == ["yes", "no", "yes"]


def test_there_is_no_opposite_of_three():
    with pytest.raises(InvalidInputError, match=r"needs two outcomes; this model has 3: 'a', 'b', 'c'"):
        classes("opposite", THREE, ("a", "b", "c"))


def test_the_runner_up_is_the_second_most_probable():
    assert classes("runner_up", THREE, ("a", "b", "c"))[:2] == ["b", "b"]
    assert classes("runner_up", THREE, ("a", "b", "c"))[3] in ("b", "c")
    assert classes("runner_up") == ["yes", "no", "yes"]


def test_other_wishes_for_every_class_but_the_models_own():
    choices = parse_target("other", THREE, TargetCriterion(), ("a", "b", "c"), 0.6)
    assert len(choices) == 2
    for row, own in enumerate(THREE.argmax(dim=1).tolist()):
        assert {int(wish.y[row]) for wish in choices} == {0, 1, 2} - {own}
    # The likelier one comes first, and all have the least probability.
    assert [int(wish.y[0]) for wish in choices] == [1, 2]
    assert all(wish.min_probability.tolist() == [0.6] * 4 for wish in choices)


def test_other_of_two_is_the_opposite():
    (wish,) = parse_target("other", TWO, TargetCriterion(), ("no", "yes"))
    assert wish.y.tolist() == [1, 0, 1]


@pytest.mark.parametrize("name", ["other", "opposite", "runner_up"])
def test_a_label_that_is_called_like_a_policy_is_the_label(name):
    assert classes(name, TWO, ("no", name)) == [name] * 3


@pytest.mark.parametrize(
    ("labels", "target"),
    [
        (("no", "yes"), "yes"),
        ((0, 1), 1),
        ((0, 1), np.int64(1)),
        ((0, 1), 1.0),
        ((0, 1), np.array(1)),
        ((False, True), True),
        ((False, True), np.True_),
        ((0.5, 1.5), 1.5),
    ],
)
def test_a_label_is_for_every_row(labels, target):
    assert classes(target, TWO, labels) == [labels[1]] * 3


@pytest.mark.parametrize(
    "make", [list, tuple, np.array, pd.Series, pd.Index, pd.Categorical, lambda own: np.array(own, object)]
)
def test_labels_may_be_given_for_each_row(make):
    assert classes(make(["yes", "no", "yes"])) == ["yes", "no", "yes"]


@pytest.mark.parametrize(
    ("labels", "target"),
    [
        (("no", "yes"), "maybe"),
        (("no", "yes"), None),
        (("no", "yes"), 1),
        ((0, 1), True),
        ((False, True), 1),
        ((0, 1), 2),
        ((0, 1), "1"),
        (("no", "yes"), float("nan")),
        (("no", "yes"), {"yes": 1}),
        (("no", "yes"), ["yes", "maybe", "no"]),
        (("no", "yes"), ["yes", None, "no"]),
        (("no", "yes"), [["yes"], ["no"], ["no"]]),
        (("no", "yes"), (1.0, 2.0, 3.0)),
        ((0, 1), [True, False, True]),
    ],
)
def test_what_is_no_label_is_named(labels, target):
    with pytest.raises(InvalidInputError, match=r"`target` must .*got "):
        classes(target, TWO, labels)


@pytest.mark.parametrize("target", [["yes"], ["yes"] * 4, [], np.array([]), (1, 2)])
def test_labels_for_each_row_are_as_many_as_the_rows(target):
    with pytest.raises(ShapeError, match=rf"must have 3 outcomes, one for each row; got {len(target)}"):
        classes(target)


def test_a_least_probability_is_for_every_row():
    (wanted,) = parse_target("yes", TWO, TargetCriterion(), ("no", "yes"), 0.75)
    assert wanted.min_probability.tolist() == [0.75] * 3
    assert parse_target("yes", TWO, TargetCriterion(), ("no", "yes"))[0].min_probability is None


@pytest.mark.parametrize(
    ("target", "low", "high"),
    [
        ((1, 2), 1.0, 2.0),
        ([1.0, 2.0], 1.0, 2.0),
        (np.array([1, 2]), 1.0, 2.0),
        ((None, 2), -INFINITE, 2.0),
        ((1, None), 1.0, INFINITE),
        ((1, np.inf), 1.0, INFINITE),
        ((-np.inf, 2), -INFINITE, 2.0),
        ((np.float32(0.5), np.int8(2)), 0.5, 2.0),
    ],
)
def test_a_pair_of_bounds_is_for_every_row(target, low, high):
    wanted = bounds(target)
    assert wanted.low.tolist() == [low] * 3
    assert wanted.high.tolist() == [high] * 3
    assert wanted.low.dtype == wanted.high.dtype == torch.float64
    assert wanted.min_probability is None


PAIRS = [(1, 2), (None, 3.5), (4, None)]


@pytest.mark.parametrize(
    "target",
    [
        PAIRS,
        tuple(PAIRS),
        [list(pair) for pair in PAIRS],
        np.array(PAIRS, dtype=object),
        np.array(PAIRS, dtype=float),
        pd.DataFrame(PAIRS, columns=["from", "to"]),
        pd.DataFrame(PAIRS, columns=["from", "to"], dtype=object, index=[7, 7, 9]),
    ],
)
def test_bounds_may_be_given_for_each_row(target):
    wanted = bounds(target)
    assert wanted.low.tolist() == [1.0, -INFINITE, 4.0]
    assert wanted.high.tolist() == [2.0, 3.5, INFINITE]


def test_two_rows_and_two_numbers_are_one_pair_of_bounds():
    wanted = bounds((1, 2), values=(0.5, 1.5))
    assert (wanted.low.tolist(), wanted.high.tolist()) == ([1.0, 1.0], [2.0, 2.0])
    wanted = bounds([(1, 2), (3, 4)], values=(0.5, 1.5))
    assert (wanted.low.tolist(), wanted.high.tolist()) == ([1.0, 3.0], [2.0, 4.0])


@pytest.mark.parametrize(
    "target",
    [
        (2, 1),
        (1, 1),
        (None, None),
        (np.nan, np.nan),
        (-np.inf, np.inf),
        (np.inf, None),
        [(1, 2), (2, 1), (0, 1)],
        [(1, 2), (None, None), (0, 1)],
        [(1, 2), (1, 2)],
        [(1, 2)] * 4,
        [1, 2, 3],
        [(1, 2, 3)] * 3,
        [(1, 2), (1,), (2, 3)],
        [],
        (),
        np.zeros((3, 2, 2)),
        np.array(1.0),
        pd.DataFrame({"low": [1, 2, 3]}),
        pd.DataFrame({"low": [1.0], "high": [2.0]}),
        "opposite",
        "other",
        "12",
        1.5,
        None,
        True,
        ("low", "high"),
        (1, "high"),
        [("a", "b")] * 3,
        {"low": 1, "high": 2},
        {1, 2},
        (1, 2j),
        (0, 10**400),
        (pd.Timestamp("2020-01-01"), pd.Timestamp("2021-01-01")),
    ],
    ids=repr,
)
def test_bounds_that_are_none_are_refused_with_an_example(target):
    with pytest.raises(PlausiflowError, match=r"`target` must be the smallest and the largest.*\(100, 150\)"):
        bounds(target)


@pytest.mark.parametrize("target", [("100", "150"), [("1", "2")] * 3, (False, True)], ids=repr)
def test_text_and_booleans_are_no_bounds(target):
    with pytest.raises(InvalidInputError, match=r"`target` must be the smallest and the largest"):
        bounds(target)


def test_an_empty_gap_between_outcomes_is_no_bin():
    # The first fifth of the outcomes ends where the value jumps: a quantile between the two cuts nothing off.
    values = torch.tensor([0.0] * 60 + [1.0] * 240)
    edges, bins = bin_outcomes(values)
    assert bins.bincount().tolist() == [60, 240]
    assert len(edges) == 3


@pytest.mark.parametrize(
    ("value", "pair", "own"),
    [
        (0.5, (1.2, 1.8), 1),  # from below it comes to the bin of the smallest
        (0.5, (1.2, 3.8), 1),
        (9.0, (1.2, 1.8), 1),
        (9.0, (1.2, 2.5), 2),  # from above to that of the largest
        (9.0, (None, 2.0), 1),  # an edge belongs to the bin above, but hardly any of it is wanted
        (0.0, (1.0, None), 1),
        (0.5, (4.0, None), 3),
        (9.0, (None, -4.0), 0),
        (1.5, (0.0, 5.0), 1),  # inside already: its own
        (2.0, (0.0, 5.0), 2),
    ],
)
def test_the_bin_is_the_first_that_a_prediction_comes_to(value, pair, own):
    assert bounds(pair, values=(value,)).y.tolist() == [own]


@given(st.lists(st.floats(-1e3, 1e3), min_size=6, max_size=60), st.booleans())
def test_bins_are_cut_at_quantiles(values, rounded):
    values = np.round(values, -2) if rounded else np.array(values)
    edges, bins = bin_outcomes(torch.from_numpy(values))
    assert edges[0] == -INFINITE
    assert edges[-1] == INFINITE
    low, high = (np.quantile(values, [0.2, 0.4, 0.6, 0.8], method=way) for way in ("lower", "higher"))
    for edge in edges[1:-1]:
        assert ((low <= edge) & (edge <= high)).any(), "an edge is no quantile"
    np.testing.assert_array_equal(bins.numpy(), np.digitize(values, edges[1:-1]))
    assert set(bins.tolist()) == set(range(len(edges) - 1)), "a bin has no outcome"
    assert list(edges) == sorted(set(edges))


def test_different_outcomes_fill_five_bins_alike():
    edges, bins = bin_outcomes(torch.arange(100.0))
    assert bins.bincount().tolist() == [20] * 5
    np.testing.assert_allclose(edges[1:-1], np.quantile(np.arange(100.0), [0.2, 0.4, 0.6, 0.8]), atol=1)


@pytest.mark.parametrize(
    ("values", "inner", "counts"),
    [
        ([3.0] * 10, [], [10]),
        ([0.0] * 50 + [1.0] * 50, [1.0], [50, 50]),
        ([0.0] * 95 + [1.0] * 5, [], [100]),  # hardly any above: all in one
        ([0.0] * 5 + [1.0] * 95, [1.0], [5, 95]),
        ([1.0] * 30 + [2.0] * 40 + [3.0] * 30, [2.0, 3.0], [30, 40, 30]),
    ],
)
def test_few_different_outcomes_have_few_bins(values, inner, counts):
    edges, bins = bin_outcomes(torch.tensor(values))
    assert list(edges[1:-1]) == inner
    assert bins.bincount().tolist() == counts


def test_wishes_are_told_in_words():
    usable = np.array([True, True, False])
    wanted = bounds([(1, 2.5), (None, 3), (4, None)])
    assert targets_as_text(wanted, (), usable).tolist() == ["1 to 2.5", "at most 3", None]
    assert targets_as_text(wanted, (), ~usable).tolist() == [None, None, "at least 4"]
    (labelled,) = parse_target("opposite", TWO, TargetCriterion(), ("no", "yes"))
    assert targets_as_text(labelled, ("no", "yes"), usable).tolist() == ["yes", "no", None]


def test_answers_are_labels_or_numbers():
    usable = np.array([True, False, True])
    decided = torch.tensor([1, 0, 0])  # by the model itself, whatever its largest output
    assert predicted_labels(TWO, decided, (False, True), usable).tolist() == [True, None, False]
    numbers = predicted_labels(torch.tensor([1.5, 0.0, -2.0]), None, (), usable)
    np.testing.assert_array_equal(numbers, [1.5, np.nan, -2.0])


def test_labels_keep_their_type():
    found = class_labels((1, 2.5, "three", True), torch.tensor([0, 1, 2, 3]), np.array([True] * 4))
    assert [type(label) for label in found] == [int, float, str, bool]
