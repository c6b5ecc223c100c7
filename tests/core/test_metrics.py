"""Metrics: by hand on a few rows, and against scikit-learn."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import LocalOutlierFactor

from measuring import NAN, Ramp
from plausiflow.core.metrics import (
    METRICS,
    Context,
    evaluate,
    feasible,
    outlier_factor,
    target_outlier_factor,
)
from plausiflow.core.verification import verify_counterfactuals
from plausiflow.errors import InvalidInputError, ShapeError
from plausiflow.models import LinearClassifier

NAMES = [
    *(
        "coverage",
        "validity",
        "target_validity",
        "plausibility",
        "feasible",
        "judged",
        "judged_worst",
        "log_density",
        "lof",
        "lof_median",
        "lof_target",
    ),
    *("iso_forest", "l1", "l2", "sparsity", "seconds", "cpu_seconds"),
]


def test_the_sound_variant_is_over_found_rows_and_their_wanted_class(five_rows, context):
    values = evaluate(
        five_rows, context, names=[name for name in NAMES if name not in ("lof", "lof_median", "iso_forest")]
    )
    expected = {
        "coverage": 4 / 5,
        "validity": 2 / 4,
        "target_validity": 2 / 4,
        "plausibility": 3 / 4,
        "feasible": 1 / 5,
        "judged": (1 + 0.5 + 0.5 + 0) / 4,
        "judged_worst": 1 / 4,
        "log_density": (11 + 9 + 9 + 5e-5 - 1) / 4,
        "l1": (2 + 3 + 1 + 5e-5 + 4) / 4,
        "l2": (2 + 3 + math.hypot(5e-5, 1) + math.sqrt(10)) / 4,
        "sparsity": (0.5 + 0.5 + 0.5 + 1) / 4,
        "seconds": 2.5,
        "cpu_seconds": 10,
    }
    assert {name: values[name] for name in expected} == pytest.approx(expected, rel=1e-12)


def test_the_paper_variant_is_over_changed_rows_and_class_one_minus_predicted(five_rows, context):
    values = evaluate(five_rows, context, variant="paper")
    expected = {
        "coverage": 4 / 5,
        "validity": 3 / 4,
        "target_validity": 2 / 4,
        "plausibility": 1 / 3,
        "judged": (1 + 0.5 + 0.5 + 0) / 4,
        "judged_worst": 1 / 4,
        "log_density": (11 + 9 + 9) / 3,
        "l1": (2 + 3 + 4) / 3,
        "l2": (2 + 3 + math.sqrt(10)) / 3,
        "seconds": 2.5,
    }
    assert {name: values[name] for name in expected} == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("variant", ["sound", "paper"])
def test_every_metric_is_there_in_both_variants_in_order(five_rows, context, variant):
    assert list(evaluate(five_rows, context, variant=variant)) == NAMES
    assert list(evaluate(five_rows, context, variant=variant, names=["l2", "coverage"])) == ["l2", "coverage"]


@pytest.mark.parametrize("variant", ["sound", "paper"])
@pytest.mark.parametrize("name", NAMES)
def test_a_metric_has_one_value_per_row_and_none_where_nothing_was_found(five_rows, context, variant, name):
    metric = METRICS[variant][name]
    values = metric.per_row(five_rows, context)
    assert values.shape == (5,)
    assert values.dtype == torch.float64
    assert values.device == five_rows.x.device
    assert values.isnan().tolist() == [False, False, False, metric.over != "all", False]
    alone = torch.cat([metric.per_row(five_rows[i : i + 1], context) for i in range(5)])
    torch.testing.assert_close(alone, values, equal_nan=True)


@pytest.mark.parametrize("variant", ["sound", "paper"])
def test_no_counterfactual_at_all_gives_coverage_zero_and_nan(five_rows, context, variant):
    nothing = torch.full_like(five_rows.x, NAN)
    cf = verify_counterfactuals(
        classifier=context.classifier,
        plausibility=Ramp(),
        x=five_rows.x,
        x_cf=nothing,
        y_target=five_rows.y_target,
    )
    values = evaluate(cf, context, variant=variant)
    assert values.pop("coverage") == values.pop("feasible") == 0
    assert all(math.isnan(value) for value in values.values())


@pytest.mark.parametrize("variant", ["sound", "paper"])
def test_no_rows_at_all_give_nan(five_rows, context, variant):
    values = evaluate(five_rows[:0], context, variant=variant)
    assert set(values) == set(NAMES)
    assert all(math.isnan(value) for value in values.values())


@pytest.mark.parametrize("variant", ["sound", "paper"])
def test_without_a_plausibility_what_needs_it_is_nan(five_rows, classifier, context, variant):
    context = Context(
        classifier=classifier, judges=context.judges, x_train=context.x_train, y_train=context.y_train
    )
    values = evaluate(five_rows, context, variant=variant)
    assert {name for name, value in values.items() if math.isnan(value)} == {
        "plausibility",
        "feasible",
        "log_density",
    }


@pytest.mark.parametrize("variant", ["sound", "paper"])
def test_without_a_log_density_plausibility_is_still_known(five_rows, classifier, context, variant):
    scored = SimpleNamespace(score=Ramp().score)
    other = Context(
        classifier=classifier,
        plausibility=scored,
        judges=context.judges,
        x_train=context.x_train,
        y_train=context.y_train,
    )
    values = evaluate(five_rows, other, variant=variant)
    assert {name for name, value in values.items() if math.isnan(value)} == {"log_density"}
    assert values["plausibility"] == evaluate(five_rows, context, variant=variant)["plausibility"]


def test_single_precision_is_measured_in_double_precision(five_rows, context):
    single = verify_counterfactuals(
        classifier=context.classifier,
        plausibility=Ramp(),
        x=five_rows.x.float(),
        x_cf=five_rows.x_cf.float(),
        y_target=five_rows.y_target,
    )
    names = ["validity", "plausibility", "log_density", "lof", "l1", "l2", "sparsity"]
    expected = evaluate(five_rows, context, names=names)
    assert evaluate(single, context, names=names) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("variant", ["sound", "paper"])
def test_outlier_metrics_equal_scikit_learn(five_rows, context, variant):
    x_train, y_train = context.x_train.cpu().double().numpy(), context.y_train.cpu().numpy()
    found = five_rows[five_rows.found]
    x_cf, y_target = found.x_cf.cpu().numpy(), found.y_target.cpu().numpy()
    lof = -LocalOutlierFactor(n_neighbors=20, novelty=True).fit(x_train).score_samples(x_cf)
    own = [
        -LocalOutlierFactor(n_neighbors=20, novelty=True)
        .fit(x_train[y_train == k])
        .score_samples(row[None])[0]
        for row, k in zip(x_cf, y_target, strict=True)
    ]
    forest = IsolationForest(n_estimators=100, random_state=42).fit(x_train).decision_function(x_cf)
    expected = {
        "lof": lof.mean(),
        "lof_median": np.median(lof),
        "lof_target": np.mean(own),
        "iso_forest": forest.mean(),
    }
    assert evaluate(five_rows, context, variant=variant, names=expected) == pytest.approx(expected, rel=1e-12)


def test_outlier_detectors_are_fitted_once(five_rows, context, monkeypatch):
    first = evaluate(five_rows, context)
    for detector in (LocalOutlierFactor, IsolationForest):
        monkeypatch.setattr(detector, "fit", lambda *_: pytest.fail("fitted again"))
    assert evaluate(five_rows, context) == first


def test_a_wanted_class_with_few_training_rows_uses_the_neighbours_it_has(five_rows, context):
    y_train = torch.tensor([0] * 80 + [1] * 9 + [2], device=five_rows.x.device)
    small = Context(classifier=context.classifier, x_train=context.x_train, y_train=y_train)
    detector = LocalOutlierFactor(n_neighbors=8, novelty=True).fit(
        context.x_train[80:89].cpu().double().numpy()
    )
    expected = -detector.score_samples(five_rows.x_cf[:1].cpu().numpy())
    assert float(target_outlier_factor(five_rows, small)[0]) == pytest.approx(float(expected[0]))
    toward_two = verify_counterfactuals(
        classifier=context.classifier,
        plausibility=None,
        x=five_rows.x,
        x_cf=five_rows.x_cf,
        y_target=torch.full_like(five_rows.y_target, 2),
    )
    assert target_outlier_factor(toward_two, small).isnan().all()
    assert outlier_factor(toward_two, small)[0] > 0


def test_another_judge_may_disagree_with_the_model_that_was_searched_with(five_rows, context):
    contrary = LinearClassifier.from_weights(torch.zeros(3, 2), torch.tensor([1.0, 0.0, 0.0]))
    other = Context(
        classifier=contrary, plausibility=Ramp(), x_train=context.x_train, y_train=context.y_train
    )
    assert evaluate(five_rows, other, names=["validity"]) == {"validity": 1 / 4}
    assert feasible(five_rows, other).sum() == 0


def test_labels_and_directions_are_known_for_tables():
    assert METRICS["sound"]["lof"].label == "LOF"
    assert {name for name, metric in METRICS["paper"].items() if metric.better == "higher"} == {
        *("coverage", "validity", "target_validity", "plausibility", "feasible"),
        *("judged", "judged_worst", "log_density", "iso_forest"),
    }


def test_unknown_names_and_variants_are_errors(five_rows, context):
    with pytest.raises(InvalidInputError, match=r"among coverage, .*cpu_seconds; got 'l3', 'time'"):
        evaluate(five_rows, context, names=["l3", "l1", "time"])
    with pytest.raises(InvalidInputError, match=r"'sound' or 'paper'; got 'fair'"):
        evaluate(five_rows, context, variant="fair")


def test_a_context_checks_its_training_rows(classifier):
    with pytest.raises(ShapeError, match="one class per row"):
        Context(classifier=classifier, x_train=torch.zeros(3, 2), y_train=torch.zeros(2, dtype=torch.long))
