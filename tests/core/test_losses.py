"""The paper's equations: hand values, gradients, and the property each is meant to have."""

import inspect
import re

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial import distance
from scipy.special import log_softmax, softmax
from sklearn.metrics import log_loss

from plausiflow.core import losses
from plausiflow.core.losses import (
    cross_entropy,
    interval_value,
    l1_distance,
    l2_distance,
    multiclass_validity_hinge,
    negative_log_likelihood,
    penalised,
    plausibility_hinge,
    plausibility_value,
    probability_value,
    published_logit_hinge,
    validity_hinge,
    validity_value,
)

N = 6
CLASSES = [2, 3, 10]


def table(columns):
    return torch.randn(N, columns, dtype=torch.float64)


def probabilities(classes):
    return table(classes).softmax(dim=1)


def targets(classes):
    return torch.arange(N) % classes


# Every function and arguments for it, one row per entry: differentiable ones (rows of numbers), then whatever
# stays fixed.
CASES = {
    "l2_distance": lambda: (l2_distance, [table(3), table(3)], []),
    "l2_distance, weighted": lambda: (
        lambda x_cf, x: l2_distance(x_cf, x, WEIGHTS.to(x)),
        [table(3), table(3)],
        [],
    ),
    "l1_distance": lambda: (l1_distance, [table(3), table(3)], []),
    "l1_distance, weighted": lambda: (
        lambda x_cf, x: l1_distance(x_cf, x, WEIGHTS.to(x)),
        [table(3), table(3)],
        [],
    ),
    "penalised": lambda: (
        lambda cost, losses: penalised(cost, losses, 100.0),
        [table(1)[:, 0].abs(), table(2).abs()],
        [],
    ),
    "validity_hinge": lambda: (lambda p, y: validity_hinge(p, y, 0.02), [probabilities(2)], [targets(2)]),
    "multiclass_validity_hinge": lambda: (
        lambda p, y: multiclass_validity_hinge(p, y, 0.02),
        [probabilities(4)],
        [targets(4)],
    ),
    "published_logit_hinge": lambda: (
        lambda z, y: published_logit_hinge(z, y, 0.02),
        [table(4)],
        [targets(4)],
    ),
    "cross_entropy": lambda: (cross_entropy, [table(4)], [targets(4)]),
    "plausibility_hinge": lambda: (plausibility_hinge, [table(1)[:, 0], table(1)[:, 0]], []),
    "validity_value, two classes": lambda: (
        lambda z, y: validity_value(z, y, 0.02),
        [table(2)],
        [targets(2)],
    ),
    "validity_value, four classes": lambda: (
        lambda z, y: validity_value(z, y, 0.02),
        [table(4)],
        [targets(4)],
    ),
    "validity_value, no margin": lambda: (lambda z, y: validity_value(z, y, 0.0), [table(4)], [targets(4)]),
    "probability_value": lambda: (
        lambda z, y, least: probability_value(z, y, least),
        [table(4)],
        [targets(4), torch.linspace(0.1, 0.9, N, dtype=torch.float64)],
    ),
    "interval_value": lambda: (
        lambda values, low, high: interval_value(values, low, high, 0.1),
        [table(1)[:, 0]],
        [
            torch.tensor([-1.0, -torch.inf, 0.3, -1.0, 0.0, 2.0]),
            torch.tensor([1.0, 0.2, torch.inf, 0.5, 0.1, 3.0]),
        ],
    ),
    "plausibility_value": lambda: (plausibility_value, [table(1)[:, 0], table(1)[:, 0]], []),
    "negative_log_likelihood": lambda: (negative_log_likelihood, [table(1)[:, 0]], []),
}
WEIGHTS = torch.tensor([0.5, 1.0, 4.0], dtype=torch.float64)
PUBLIC = {
    name: function
    for name, function in inspect.getmembers(losses, inspect.isfunction)
    if function.__module__ == losses.__name__ and not name.startswith("_")
    if not name.endswith("value_and_grad")  # tested in test_value_and_grad.py
}


@pytest.fixture(params=list(CASES))
def case(request, clean_state):
    return CASES[request.param]()


# The contract of every equation


def test_every_equation_is_under_contract():
    assert {name.split(",")[0] for name in CASES} == set(PUBLIC)


def test_gradients_equal_finite_differences(case):
    function, moving, fixed = case
    assert torch.autograd.gradcheck(
        lambda *inputs: function(*inputs, *fixed), [value.requires_grad_() for value in moving]
    )


def test_each_row_gets_one_value_which_does_not_depend_on_the_others(case):
    function, moving, fixed = case
    together = function(*moving, *fixed)
    assert together.shape == (N,)
    alone = torch.cat([function(*(value[i : i + 1] for value in [*moving, *fixed])) for i in range(N)])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_values_follow_the_dtype(case, precision):
    function, moving, fixed = case
    value = function(*(value.to(precision) for value in moving), *fixed)
    assert value.dtype == precision
    torch.testing.assert_close(value.double(), function(*moving, *fixed), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("number", [3, 6, 7, 8, 9, 11])
def test_equations_of_the_paper_are_named_in_the_docstrings(number):
    documentation = "\n".join([losses.__doc__, *(function.__doc__ for function in PUBLIC.values())])
    assert re.search(rf"\[PPCEF Eq\. {number}[a-c]?\]", documentation)


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("l2_distance", "3a"),
        ("plausibility_value", "3c"),
        ("penalised", "6"),
        ("validity_hinge", "7"),
        ("multiclass_validity_hinge", "8"),
        ("plausibility_hinge", "9"),
        ("negative_log_likelihood", "11"),
    ],
)
def test_each_equation_carries_its_own_number(name, tag):
    assert f"[PPCEF Eq. {tag}]" in PUBLIC[name].__doc__


# Distances


def test_distances_of_a_right_triangle():
    x_cf, x = torch.tensor([[3.0, -4.0]]), torch.zeros(1, 2)
    assert l2_distance(x_cf, x).item() == 5
    assert l1_distance(x_cf, x).item() == 7


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(l2_distance, distance.euclidean), (l1_distance, distance.cityblock)],
    ids=["l2", "l1"],
)
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["plain", "weighted"])
def test_distances_equal_those_of_scipy(ours, theirs, weights):
    x_cf, x = table(3), table(3)
    expected = [
        theirs(a, b, None if weights is None else weights.numpy())
        for a, b in zip(x_cf.numpy(), x.numpy(), strict=True)
    ]
    np.testing.assert_allclose(ours(x_cf, x, weights).numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("cost", [l2_distance, l1_distance])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["plain", "weighted"])
@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_the_gradient_at_the_factual_is_zero(cost, weights, precision):
    x = table(3).to(precision)
    x_cf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(cost(x_cf, x, None if weights is None else weights.to(x)).sum(), x_cf)
    assert torch.equal(gradient, torch.zeros_like(x))


# Penalties


def test_penalised_adds_the_weighted_sum_of_the_losses():
    value = penalised(torch.tensor([1.0, 2.0]), torch.tensor([[0.5, 0.25], [0.0, 0.0]]), weight=100.0)
    assert value.tolist() == [76.0, 2.0]


def test_validity_hinge_by_hand():
    proba = torch.tensor([[0.75, 0.25], [0.75, 0.25], [0.5, 0.5]])
    assert validity_hinge(proba, torch.tensor([1, 0, 0]), margin=0.25).tolist() == [0.5, 0.0, 0.25]


def test_multiclass_validity_hinge_by_hand():
    proba = torch.tensor([[0.125, 0.25, 0.625], [0.125, 0.25, 0.625], [0.125, 0.25, 0.625]])
    value = multiclass_validity_hinge(proba, torch.tensor([0, 1, 2]), margin=0.125)
    assert value.tolist() == [0.625, 0.5, 0.0]


def test_plausibility_hinge_by_hand():
    assert plausibility_hinge(torch.tensor([-3.0, 2.0, 1.0]), torch.ones(3)).tolist() == [4.0, 0.0, 0.0]


def test_the_hinges_of_two_and_of_many_classes_agree_on_two():
    proba, y_target = probabilities(2), targets(2)
    two, many = validity_hinge(proba, y_target, 0.02), multiclass_validity_hinge(proba, y_target, 0.04)
    torch.testing.assert_close(2 * two, many)


@pytest.mark.parametrize("classes", CLASSES)
def test_the_published_loss_counts_the_targets_own_logit_as_zero(classes):
    logits, y_target = 2 * table(classes), targets(classes)
    expected = []
    for z, t in zip(logits.numpy(), y_target.numpy(), strict=True):
        masked = z.copy()
        masked[t] = 0
        expected.append(max(masked.max() + 0.02 - z[t], 0))
    np.testing.assert_allclose(published_logit_hinge(logits, y_target, 0.02).numpy(), expected, rtol=1e-12)


def test_the_published_loss_wants_a_positive_target_logit_even_of_a_winner():
    value = published_logit_hinge(torch.tensor([[-1.0, -9.0]]), torch.tensor([0]), margin=0.5)
    assert value.tolist() == [1.5]


@pytest.mark.parametrize("classes", CLASSES)
def test_cross_entropy_equals_the_log_loss_of_scikit_learn(classes):
    logits, y_target = table(classes), targets(classes)
    proba = logits.softmax(dim=1).numpy()
    expected = [
        log_loss([t], p[None], labels=range(classes)) for t, p in zip(y_target.tolist(), proba, strict=True)
    ]
    np.testing.assert_allclose(cross_entropy(logits, y_target).numpy(), expected, rtol=1e-8)


def test_negative_log_likelihood_is_the_negative_log_density():
    assert negative_log_likelihood(torch.tensor([1.5, -2.0])).tolist() == [-1.5, 2.0]


def test_plausibility_value_is_the_distance_to_the_threshold_in_nats():
    assert plausibility_value(torch.tensor([1.0, -2.0]), torch.tensor([0.5, 0.5])).tolist() == [0.5, -2.5]


def number(bound):
    return st.floats(-bound, bound, allow_subnormal=False)


@st.composite
def decisions(draw):
    """Logits of one row, around the decision or saturated, its target and a margin."""
    classes, bound = draw(st.sampled_from(CLASSES)), draw(st.sampled_from([1.0, 60.0]))
    logits = draw(arrays(np.float64, classes, elements=number(bound)))
    return logits, draw(st.integers(0, classes - 1)), draw(st.sampled_from([0.0, 1e-6, 0.02, 0.1, 0.3]))


@given(decisions())
def test_a_validity_loss_is_zero_exactly_where_the_target_wins_by_the_margin(decision):
    logits, t, margin = decision
    proba = softmax(logits)
    rows, y_target = torch.from_numpy(proba)[None], torch.tensor([t])
    loss = multiclass_validity_hinge(rows, y_target, margin).item()
    assert loss >= 0
    assert (loss == 0) == (proba[t] >= np.delete(proba, t).max() + margin)
    if len(logits) == 2:
        loss = validity_hinge(rows, y_target, margin).item()
        assert loss >= 0
        assert (loss == 0) == (proba[t] >= 0.5 + margin)


@given(number(1e6), number(1e6))
def test_the_plausibility_loss_is_zero_exactly_where_the_density_passes(log_prob, log_delta):
    log_prob_row, log_delta_row = torch.tensor([[log_prob], [log_delta]], dtype=torch.float64)
    loss = plausibility_hinge(log_prob_row, log_delta_row).item()
    assert loss >= 0
    assert (loss == 0) == (log_prob >= log_delta)
    assert (plausibility_value(log_prob_row, log_delta_row).item() >= 0) == (log_prob >= log_delta)


@given(decisions())
def test_the_published_loss_is_zero_exactly_where_its_own_rule_holds(decision):
    logits, t, margin = decision
    loss = published_logit_hinge(torch.from_numpy(logits)[None], torch.tensor([t]), margin).item()
    assert loss >= 0
    assert (loss == 0) == (logits[t] >= max(0.0, np.delete(logits, t).max()) + margin)


# Validity as a constraint


def test_validity_value_by_hand():
    logits = torch.tensor([[0.2, 0.8], [0.6, 0.4], [0.52, 0.48]], dtype=torch.float64).log()
    value = validity_value(logits, torch.tensor([0, 0, 0]), margin=0.02)
    expected = np.log(
        [0.2 / (0.8 + 0.04), 0.6 / (0.4 + 0.04), 1.0]
    )  # the target's probability over what it must reach
    np.testing.assert_allclose(value.numpy(), expected, atol=1e-12)


@given(decisions())
def test_validity_value_is_not_negative_exactly_where_the_target_wins_by_the_margin(decision):
    logits, t, margin = decision
    value = validity_value(torch.from_numpy(logits)[None], torch.tensor([t]), margin).item()
    assert np.isfinite(value)
    proba = softmax(logits)
    if len(logits) == 2:
        surplus = proba[t] - (0.5 + margin)
    elif margin == 0:
        surplus = (
            logits[t] - np.delete(logits, t).max()
        )  # of logits, since the two best probabilities may both be tiny
    else:
        surplus = proba[t] - (np.delete(proba, t).max() + margin)
    assume(abs(surplus) > 1e-7)  # closer than this, rounding decides
    assert (value >= 0) == (surplus >= 0)


@pytest.mark.parametrize("classes", CLASSES)
def test_validity_value_does_not_depend_on_the_level_of_the_logits(classes):
    logits, y_target = table(classes), targets(classes)
    moved = validity_value(logits + 300.0, y_target, 0.02)
    torch.testing.assert_close(moved, validity_value(logits, y_target, 0.02), rtol=0, atol=1e-10)
    normalised = validity_value(torch.from_numpy(log_softmax(logits.numpy(), axis=1)), y_target, 0.02)
    torch.testing.assert_close(normalised, validity_value(logits, y_target, 0.02), rtol=0, atol=1e-10)


@pytest.mark.parametrize("margin", [0.0, 0.02, 0.3])
@pytest.mark.parametrize("classes", CLASSES)
def test_the_gradient_of_validity_value_has_its_closed_form(classes, margin):
    logits, y_target = (3 * table(classes)).requires_grad_(), targets(classes)
    (gradient,) = torch.autograd.grad(validity_value(logits, y_target, margin).sum(), logits)
    enlarged = 2 * margin if classes == 2 else margin
    for z, t, found in zip(logits.detach().numpy(), y_target.tolist(), gradient.numpy(), strict=True):
        o = max((k for k in range(classes) if k != t), key=z.__getitem__)
        p, unit = softmax(z), np.eye(classes)
        expected = unit[t] - unit[o] + enlarged / (p[o] + enlarged) * (unit[o] - p)
        np.testing.assert_allclose(found, expected, atol=1e-8)


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
@pytest.mark.parametrize("classes", CLASSES)
def test_only_validity_value_keeps_its_gradient_on_a_saturated_classifier(classes, precision):
    x = torch.ones(1, 1, dtype=precision, requires_grad=True)
    directions = torch.full((1, classes), -40.0, dtype=precision)
    directions[0, 0] = 40.0
    logits, y_target = x @ directions, torch.tensor([1])
    hinge = validity_hinge if classes == 2 else multiclass_validity_hinge
    loss = hinge(logits.softmax(dim=1), y_target, 0.02)
    value = validity_value(logits, y_target, 0.02)
    assert loss.item() > 0.5
    assert value.item() == pytest.approx(-80, abs=0.1)
    (flat,) = torch.autograd.grad(loss, x, retain_graph=True)
    (steep,) = torch.autograd.grad(value, x)
    assert flat.abs().item() < 1e-30
    assert steep.item() == pytest.approx(-80, abs=5)
