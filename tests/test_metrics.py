"""Metrics and verdicts: by hand on a few rows, against scikit-learn, and against the published tables."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import LocalOutlierFactor

from plausiflow.benchmark.reference import Reference, published_metrics
from plausiflow.classifiers import LinearClassifier, predict
from plausiflow.densities.published import PublishedMAF
from plausiflow.densities.thresholds import Thresholded
from plausiflow.errors import InvalidInputError, ShapeError
from plausiflow.metrics import METRICS, Context, evaluate, feasible, outlier_factor, target_outlier_factor
from plausiflow.verdicts import judge

NAN = float("nan")
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


class Ramp:
    """A log-density that can be read off a row: ``x_0 + 10 y``, plausible from 9 on."""

    def log_prob(self, x, y):
        return x[:, 0] + 10 * y

    def score(self, x, y):
        return self.log_prob(x, y) - 9


class RampPanel:
    """Two judges with the ramp for a density: one is strict, the other lets everything pass it does."""

    def passes(self, x, y):
        return Ramp().log_prob(x, y)[:, None] >= torch.tensor([10.0, 5.0], device=x.device)


class NoEmptyBatches:
    """A model that refuses a batch without rows, as scikit-learn's do, and one that is not a number."""

    n_classes, differentiable = 2, True

    def logits(self, x):
        assert len(x)
        assert torch.isfinite(x).all()
        return torch.stack([-x[:, 0], x[:, 0]], dim=1)

    def score(self, x, y):
        assert len(x)
        return x[:, 0]


@pytest.fixture
def classifier():
    """Class 1 where the first feature is largest and positive, 2 where the second is, 0 if neither."""
    return LinearClassifier.from_weights(torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), torch.zeros(3))


@pytest.fixture
def context(classifier, device):
    x = torch.randn(90, 2, device=device)
    return Context(
        classifier=classifier,
        plausibility=Ramp(),
        judges=RampPanel(),
        x_train=x,
        y_train=torch.arange(90, device=device) % 3,
    )


@pytest.fixture
def five_rows(classifier, device):
    """Reaches its target; another class; its own class still; nothing; its target, which is not |1 - y|."""
    x = [[-1, -1], [-1, -1], [-1, -1], [-1, -1], [0, 2]]
    x_cf = [[1, -1], [-1, 2], [-1 + 5e-5, -2], [NAN, 0], [-1, -1]]
    return judge(
        classifier=classifier,
        plausibility=Ramp(),
        x=torch.tensor(x, dtype=torch.float64, device=device),
        x_cf=torch.tensor(x_cf, dtype=torch.float64, device=device),
        y_target=torch.tensor([1, 1, 1, 1, 0], device=device),
        seconds=torch.tensor(0.5),
        cpu_seconds=torch.arange(5.0),
    )


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
    cf = judge(
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
    single = judge(
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
    toward_two = judge(
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


def test_a_verdict_is_nan_exactly_where_nothing_was_found(five_rows):
    assert five_rows.found.tolist() == [True, True, True, False, True]
    assert five_rows.x_cf.isnan().all(dim=1).tolist() == five_rows.x_cf.isnan().any(dim=1).tolist()
    assert (~five_rows.found == five_rows.x_cf.isnan().all(dim=1)).all()
    assert five_rows.y.tolist() == [0, 0, 0, 0, 2]
    assert five_rows.y_cf.tolist() == [1, 2, 0, -1, 0]
    assert five_rows.valid.tolist() == [True, False, False, False, True]
    assert five_rows.plausible.tolist() == [True, True, True, False, False]
    assert five_rows.log_prob[[0, 1, 4]].tolist() == [11, 9, -1]
    assert five_rows.log_delta[[0, 1, 4]].tolist() == [9, 9, 9]
    assert five_rows.log_prob[3].isnan()
    assert five_rows.log_delta[3].isnan()
    assert five_rows.gradients.tolist() == [0] * 5
    assert five_rows.seconds.tolist() == [0.5] * 5


def test_a_verdict_asks_no_model_about_rows_that_are_not_there():
    model = NoEmptyBatches()
    for x in (torch.zeros(0, 2), torch.tensor([[NAN, 1.0], [torch.inf, 1.0]])):
        target = torch.ones(len(x), dtype=torch.long)
        cf = judge(
            classifier=model, plausibility=model, x=x, x_cf=torch.full_like(x, torch.inf), y_target=target
        )
        assert len(cf) == len(x)
        assert cf.x_cf.isnan().all()
        assert not (cf.found | cf.valid | cf.plausible).any()
        assert cf.seconds.isnan().all()


def test_a_verdict_is_given_in_double_precision():
    class OnlyDouble(NoEmptyBatches):
        def logits(self, x):
            assert x.dtype == torch.float64
            return super().logits(x)

        def score(self, x, y):
            assert x.dtype == torch.float64
            return super().score(x, y)

    x = torch.tensor([[-1.0, 0.0]], dtype=torch.float32)
    cf = judge(
        classifier=OnlyDouble(),
        plausibility=OnlyDouble(),
        x=x,
        x_cf=-x,
        y_target=torch.ones(1, dtype=torch.long),
    )
    assert cf.x_cf.dtype == torch.float32
    assert cf.feasible.all()


def test_a_verdict_takes_what_is_known_already():
    x, y = torch.ones(2, 2), torch.tensor([7, 8])
    gradients, path = torch.tensor([3, 4]), torch.zeros(5, 2, 2)
    cf = judge(
        classifier=NoEmptyBatches(),
        plausibility=None,
        x=x,
        x_cf=x,
        y_target=y,
        y=y,
        gradients=gradients,
        path=path,
    )
    assert cf.y is y
    assert cf.gradients is gradients
    assert cf.path is path
    assert not cf.plausible.any()
    assert cf.log_prob.isnan().all()


def test_a_verdict_on_wrong_shapes_names_every_problem():
    with pytest.raises(
        ShapeError, match=r"`x_cf` must have the shape of `x`, \(2, 3\); got \(2, 2\); `y_target` .* \(2,\)"
    ):
        judge(
            classifier=NoEmptyBatches(),
            plausibility=None,
            x=torch.zeros(2, 3),
            x_cf=torch.zeros(2, 2),
            y_target=torch.zeros(3, dtype=torch.long),
        )


# The published label of what the reference calls `lr`: logistic regression with two classes, else softmax
# regression.
LINEAR = {
    **dict.fromkeys(("moons", "law", "audit", "heloc"), "LogisticRegression"),
    **dict.fromkeys(("blobs", "digits", "wine"), "MultinomialLogisticRegression"),
}


@pytest.fixture(scope="module")
def published(reference_directory):
    table = published_metrics(reference_directory)
    return table[table["fold"] == 0].set_index(["dataset", "method", "classifier"])


@pytest.fixture(scope="module", params=list(LINEAR))
def run(request, reference_directory):
    """A data set's published fold, flow and threshold; ``context`` and ``counterfactuals`` by classifier."""
    reference = Reference.load(request.param, reference_directory)
    k = int(reference.y_train.max()) + 1
    plausibility = Thresholded.at(PublishedMAF(reference.maf_arrays), reference.log_delta, k)
    classifiers = {kind: reference.classifier(kind) for kind in ("lr", "mlp")}

    def counterfactuals(method, kind):
        y_target = (1 - predict(classifiers[kind], reference.x_test)).abs()
        x_cf = reference.counterfactuals[method, kind]
        return judge(
            classifier=classifiers[kind],
            plausibility=plausibility,
            x=reference.x_test,
            x_cf=x_cf,
            y_target=y_target,
        )

    contexts = {
        kind: Context(
            classifier=classifier,
            plausibility=plausibility,
            x_train=reference.x_train,
            y_train=reference.y_train,
        )
        for kind, classifier in classifiers.items()
    }
    return SimpleNamespace(name=reference.name, context=contexts, counterfactuals=counterfactuals)


# Perceptrons: the published searches but PPCEF's were scored with dropout active, at random.
@pytest.mark.paper
@pytest.mark.parametrize(
    ("method", "kind"),
    [*((m, "lr") for m in ("ppcef", "artelt", "cem", "wach", "cegp", "cbce")), ("ppcef", "mlp")],
)
def test_published_metrics_are_reproduced_from_published_counterfactuals(run, published, method, kind):
    row = published.loc[run.name, method, LINEAR[run.name] if kind == "lr" else "MultilayerPerceptron"]
    values = evaluate(run.counterfactuals(method, kind), run.context[kind], variant="paper")
    for name in ("coverage", "validity", "plausibility", "log_density", "l1", "l2"):
        assert values[name] == pytest.approx(row[name], abs=1e-3, nan_ok=True), name
    assert values["iso_forest"] == pytest.approx(row["iso_forest"], rel=1e-2, nan_ok=True)
    # Larger factors come from more than 20 identical training rows (audit, heloc): whether a distance is zero
    # to the last digit.
    if not row["lof"] >= 10:
        assert values["lof"] == pytest.approx(row["lof"], rel=1e-2, nan_ok=True)


@pytest.mark.paper
def test_the_sound_variant_equals_the_paper_where_every_answer_reaches_its_target(run):
    cf, context = run.counterfactuals("ppcef", "lr"), run.context["lr"]
    cf = cf[cf.valid & (cf.log_prob != cf.log_delta)]
    assert evaluate(cf, context, variant="sound") == pytest.approx(
        evaluate(cf, context, variant="paper"), nan_ok=True
    )


@pytest.mark.paper
def test_plausibility_of_published_training_rows_is_understated_by_the_wrong_class(reference_directory):
    """CBCE answers with two training rows, both plausible in their class; the published table says 0.21."""
    digits = Reference.load("digits", reference_directory)
    classifier, x_cf = digits.classifier("lr"), digits.counterfactuals["cbce", "lr"]
    plausibility = Thresholded.at(PublishedMAF(digits.maf_arrays), digits.log_delta, 10)
    own = predict(classifier, x_cf)
    cf = judge(classifier=classifier, plausibility=plausibility, x=digits.x_test, x_cf=x_cf, y_target=own)
    context = Context(
        classifier=classifier, plausibility=plausibility, x_train=digits.x_train, y_train=digits.y_train
    )
    assert evaluate(cf, context, variant="paper", names=["plausibility"])["plausibility"] == pytest.approx(
        0.2056, abs=1e-3
    )
    assert evaluate(cf, context, names=["plausibility"])["plausibility"] == 1


@pytest.mark.paper
def test_the_median_outlier_factor_is_hardly_moved_by_identical_training_rows(run):
    values = evaluate(run.counterfactuals("ppcef", "lr"), run.context["lr"], names=["lof", "lof_median"])
    if values["lof"] > 10:
        assert values["lof_median"] < 1e-4 * values["lof"]
    else:
        assert values["lof_median"] == pytest.approx(values["lof"], rel=0.1)
