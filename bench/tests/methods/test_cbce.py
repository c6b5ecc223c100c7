"""CBCE: small tables, a loop over all pairs in NumPy, and the published counterfactuals."""

import numpy as np
import pytest
import torch

from plausiflow.core.prediction import predict
from plausiflow.errors import InvalidInputError, NotFittedError
from plausiflow.methods.reference.nearest import Nearest
from plausiflow.models import LinearClassifier
from plausiflow_bench.harness.selection import PAPER_DATASETS
from plausiflow_bench.methods import cbce
from plausiflow_bench.methods.cbce import CBCE
from plausiflow_bench.published.runs import PublishedRun


def threshold(weight, bias):
    """Return a model of class 1 where ``weight @ x + bias`` is positive."""
    return LinearClassifier.from_weights(torch.tensor([weight]), torch.tensor([bias]))


# Class 1 where the first feature exceeds a half.
FIRST = threshold([10.0, 0.0], -5.0)


def exact(table):
    return torch.tensor(table, dtype=torch.float64)


def explained(method, table, x, target="opposite"):
    rows = exact(table)
    method.fit(rows, predict(method.classifier, rows))
    return method.explain(exact(x), target)


def test_what_differs_comes_from_the_pair_and_what_matches_from_the_row():
    table = [[0.2, 0.7], [0.8, 0.72], [0.9, 0.1]]
    found = explained(CBCE(classifier=FIRST, max_differences=1), table, [[0.1, 0.6], [0.85, 0.5]])
    # The pair (0, 1) matches in the second feature; (0, 2) differs in both and does not count.
    assert found.x_cf.tolist() == [[0.8, 0.6], [0.2, 0.5]]
    assert found.valid.all()


def test_within_the_tolerance_features_match():
    table = [[0.2, 0.7], [0.8, 0.6]]
    for tolerance, second in ((0.2, 0.5), (0.05, 0.6), (torch.tensor([0.05, 0.2]), 0.5), (None, 0.6)):
        found = explained(CBCE(classifier=FIRST, tolerance=tolerance), table, [[0.1, 0.5]])
        assert found.x_cf.tolist() == [[0.8, second]]


def test_the_case_whose_first_part_is_nearest_is_used():
    table = [[0.2, 0.1], [0.7, 0.1], [0.2, 0.9], [0.9, 0.9]]
    found = explained(CBCE(classifier=FIRST, max_differences=1), table, [[0.1, 0.2], [0.1, 0.8]])
    assert found.x_cf.tolist() == [[0.7, 0.2], [0.9, 0.8]]


def test_of_several_partners_the_nearest_is_used():
    table = [[0.2, 0.1], [0.9, 0.1], [0.6, 0.1], [0.8, 0.1]]
    found = explained(CBCE(classifier=FIRST, max_differences=1), table, [[0.1, 0.2]])
    assert found.x_cf.tolist() == [[0.6, 0.2]]


def test_where_no_pair_differs_in_so_few_features_the_least_number_is_allowed():
    classifier = threshold([10.0, 10.0, 0.0], -10.0)
    table = [[0.2, 0.2, 0.5], [0.9, 0.8, 0.5], [0.6, 0.6, 0.9]]
    method = CBCE(classifier=classifier, max_differences=1)
    found = explained(method, table, [[0.1, 0.3, 0.4]])
    assert found.x_cf.tolist() == [[0.9, 0.8, 0.4]]
    assert {pair: cases.differences for pair, cases in method.cases_.items()} == {(0, 1): 2, (1, 0): 2}


def test_where_the_pair_does_not_convince_the_model_its_neighbours_are_tried_in_order():
    # Class 1 above a line that falls: the row is too far below for the pair's first feature.
    classifier = threshold([10.0, 10.0], -10.0)
    table = [[0.4, 0.5], [0.55, 0.5], [0.8, 0.45], [0.95, 0.3]]
    found = explained(CBCE(classifier=classifier, max_differences=1), table, [[0.3, 0.22]])
    # 0.55 + 0.22 and, from the next neighbour of (0.55, 0.22), 0.8 + 0.22 > 1.
    assert found.x_cf.tolist() == [[0.8, 0.22]]


def test_where_no_case_helps_the_nearest_unlike_row_is_taken_or_nothing():
    classifier = threshold([10.0, 10.0], -10.0)
    table = [[0.4, 0.5], [0.55, 0.5], [0.8, 0.45], [0.95, 0.3]]
    x = [[0.0, 0.0]]
    assert explained(CBCE(classifier=classifier, max_differences=1), table, x).x_cf.tolist() == [[0.55, 0.5]]
    alone = explained(CBCE(classifier=classifier, max_differences=1, fallback=False), table, x)
    assert not alone.found.any()


def test_without_adaptations_a_pair_that_does_not_convince_is_given_up():
    classifier = threshold([10.0, 10.0], -10.0)
    table = [[0.4, 0.5], [0.55, 0.5], [0.8, 0.45], [0.95, 0.3]]
    settings = {"classifier": classifier, "max_differences": 1, "fallback": False}
    assert not explained(CBCE(**settings, adaptations=0), table, [[0.3, 0.22]]).found.any()
    # The first of the neighbours is the pair's own second part.
    assert not explained(CBCE(**settings, adaptations=1), table, [[0.3, 0.22]]).found.any()
    assert explained(CBCE(**settings, adaptations=2), table, [[0.3, 0.22]]).found.all()


def test_of_several_cases_the_valid_one_with_fewest_changes_wins_and_then_the_nearest():
    # The nearest case changes both features, the others one; the last of those changes it less.
    table = [[0.2, 0.2], [0.6, 0.4], [0.3, 0.8], [0.9, 0.8], [0.35, 0.9], [0.8, 0.9]]
    for neighbours, expected in ((1, [0.6, 0.4]), (10, [0.8, 0.2])):
        method = CBCE(classifier=FIRST, neighbours=neighbours)
        found = explained(method, table, [[0.15, 0.2]])
        assert found.x_cf.tolist() == [expected], neighbours


def test_with_true_labels_pairs_are_formed_by_them():
    rows, y = exact([[0.2, 0.1], [0.4, 0.1], [0.8, 0.1]]), torch.tensor([0, 1, 1])
    settings = {"classifier": FIRST, "max_differences": 1, "fallback": False, "adaptations": 0}
    x = exact([[0.1, 0.2]])
    by_model = CBCE(**settings).fit(rows, y).explain(x)
    by_truth = CBCE(**settings, labels="true").fit(rows, y).explain(x)
    # The true partner, 0.4, is predicted as class 0.
    assert by_model.x_cf.tolist() == [[0.8, 0.2]]
    assert not by_truth.found.any()


def test_the_partner_is_of_the_wanted_class():
    classifier = LinearClassifier.from_weights(10 * torch.eye(3), torch.zeros(3))
    table = [[0.9, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.7]]
    for wanted in (1, 2):
        found = explained(CBCE(classifier=classifier), table, [[0.9, 0.15, 0.12]], wanted)
        assert found.valid.all()
        assert found.x_cf[0, wanted] == table[wanted][wanted]


# ---------------------------------------------------------------- a plain loop


def plain(rows, decided, classifier, q, o, t, *, tolerance, allowed, k, pairs, adaptations):
    """Return the counterfactual of one row by loops in NumPy; None if no case helps."""

    def wanted(x):
        return int(predict(classifier, torch.from_numpy(x)[None])[0]) == t

    def length(a, b):
        return np.sqrt(((a - b) ** 2).sum())

    like, unlike = rows[decided == o], rows[decided == t]
    counts = (np.abs(like[:, None] - unlike) > tolerance).sum(axis=2)
    allowed = max(allowed, counts.min())
    cases = []
    for i, a in enumerate(like):
        own = sorted((length(a, b), j) for j, b in enumerate(unlike) if counts[i, j] <= allowed)
        cases += [(length(q, a), d, a, unlike[j]) for d, j in own[:pairs]]
    cases = sorted(cases, key=lambda case: case[:2])[:k]
    masks = [np.abs(a - b) > tolerance for _, _, a, b in cases]
    candidates = [np.where(mask, case[3], q) for mask, case in zip(masks, cases, strict=True)]
    valid = [((c != q).sum(), length(c, q), tuple(c)) for c in candidates if wanted(c)]
    if valid:
        return np.array(min(valid)[2])
    for mask, candidate in zip(masks, candidates, strict=True):
        for b in sorted(unlike, key=lambda b: length(b, candidate))[:adaptations]:
            adapted = np.where(mask, b, q)
            if wanted(adapted):
                return adapted
    return None


@pytest.mark.parametrize(
    ("k", "allowed", "tolerance", "pairs"),
    [(1, 1, 0.2, 50), (1, 2, 0.05, 50), (4, 1, 0.2, 2), (6, 2, 0.1, 3)],
)
def test_the_answers_are_those_of_a_plain_loop_over_all_pairs(k, allowed, tolerance, pairs, monkeypatch):
    monkeypatch.setattr(cbce, "_PAIRS_AT_ONCE", 40)
    generator = np.random.default_rng(0)
    rows, x = generator.random((36, 4)), generator.random((24, 4))
    weight = torch.from_numpy(generator.normal(size=(3, 4)))
    classifier = LinearClassifier.from_weights(8 * weight, -4 * weight.sum(dim=1))
    decided = predict(classifier, torch.from_numpy(rows))
    assert len(decided.unique()) == 3
    settings = {"max_differences": allowed, "tolerance": tolerance, "neighbours": k, "pairs": pairs}
    method = CBCE(classifier=classifier, **settings, adaptations=5, fallback=False)
    found = method.fit(torch.from_numpy(rows), decided).explain(torch.from_numpy(x), "runner_up")
    expected = []
    for q, o, t in zip(x, found.y.tolist(), found.y_target.tolist(), strict=True):
        answer = plain(
            rows, decided.numpy(), classifier, q, o, t,
            tolerance=tolerance, allowed=allowed, k=k, pairs=pairs, adaptations=5,
        )  # fmt: skip
        expected.append(np.full(4, np.nan) if answer is None else answer)
    np.testing.assert_array_equal(found.x_cf.numpy(), np.stack(expected))
    assert found.found.double().mean() > 0.2

    again = CBCE(classifier=classifier, **settings, adaptations=5)
    again.fit(torch.from_numpy(rows), decided)
    filled = again.explain(torch.from_numpy(x), "runner_up")
    nearest = Nearest(classifier=classifier).fit(torch.from_numpy(rows), decided)
    instead = nearest.explain(torch.from_numpy(x), "runner_up").x_cf
    assert torch.equal(filled.x_cf, torch.where(found.found[:, None], found.x_cf, instead))
    assert filled.valid.all()


# ---------------------------------------------------------------- tables that are hard


def test_a_class_without_training_rows_is_not_found():
    classifier = LinearClassifier.from_weights(torch.eye(10), torch.zeros(10))
    x = torch.rand(40, 10)
    x[:, 9] = -1.0
    found = CBCE(classifier=classifier).fit(x, torch.arange(40) % 10).explain(x, 9)
    assert not found.found.any()


def test_a_row_of_a_class_without_training_rows_gets_the_nearest_row():
    table = [[0.6, 0.1], [0.9, 0.1]]
    assert explained(CBCE(classifier=FIRST), table, [[0.1, 0.2]]).x_cf.tolist() == [[0.6, 0.1]]


def test_constant_features_and_copies_do_no_harm():
    rows = exact([[0.2, 0.5], [0.2, 0.5], [0.8, 0.5], [0.8, 0.5]])
    for tolerance in (0.05, None):
        method = CBCE(classifier=FIRST, tolerance=tolerance, neighbours=3)
        found = method.fit(rows, torch.tensor([0, 0, 1, 1])).explain(exact([[0.1, 0.5]]))
        assert found.x_cf.tolist() == [[0.8, 0.5]]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"max_differences": 0}, r"`max_differences` must be at least 1; got 0"),
        (
            {"neighbours": 0, "pairs": 0},
            r"`neighbours` must be at least 1; got 0; `pairs` must be at least 1",
        ),
        ({"tolerance": -0.1}, r"`tolerance` must be at least 0; got -0.1"),
        ({"labels": "both"}, r"`labels` must be 'model' or 'true'; got 'both'"),
    ],
)
def test_settings_that_make_no_sense_are_errors(settings, text):
    with pytest.raises(InvalidInputError, match=text):
        CBCE(classifier=FIRST, **settings)


@pytest.mark.parametrize("make", [CBCE, CBCE.paper])
def test_before_fit_there_are_no_cases(make):
    with pytest.raises(NotFittedError, match=r"Call `fit\(x, y\)`"):
        make(classifier=FIRST).explain(torch.rand(2, 2))


# ---------------------------------------------------------------- the published runs


def test_the_published_answer_is_the_first_training_row_decided_otherwise():
    table = [[0.3, 0.1], [0.2, 0.9], [0.9, 0.5], [0.6, 0.1]]
    found = explained(CBCE.paper(classifier=FIRST), table, [[0.4, 0.1], [0.1, 0.2], [0.7, 0.7]])
    assert found.x_cf.tolist() == [[0.9, 0.5], [0.9, 0.5], [0.3, 0.1]]
    one_class = explained(CBCE.paper(classifier=FIRST), table[:2], [[0.4, 0.1], [0.7, 0.7]])
    assert one_class.found.tolist() == [False, True]


# The published MLP runs left dropout switched on, so training rows changed their class at random. These are
# the shares of test rows with the result of the model without dropout.
WITHOUT_DROPOUT = {
    "moons": 1.0,
    "law": 0.93,
    "audit": 0.44,
    "heloc": 0.93,
    "blobs": 1.0,
    "digits": 1.0,
    "wine": 0.66,
}


@pytest.mark.paper
@pytest.mark.parametrize("name", PAPER_DATASETS)
def test_the_published_counterfactuals_are_repeated(name, reference_directory):
    reference = PublishedRun.load(name, reference_directory)
    same = {}
    for kind in ("lr", "mlp"):
        method = CBCE.paper(classifier=reference.classifier(kind))
        found = method.fit(reference.x_train, reference.y_train).explain(reference.x_test, "paper")
        same[kind] = (found.x_cf - reference.counterfactuals["cbce", kind]).abs().amax(dim=1) <= 1e-6
    assert same["lr"].all()
    assert float(same["mlp"].double().mean()) >= WITHOUT_DROPOUT[name]


@pytest.mark.paper
def test_real_cases_change_fewer_features_than_the_nearest_row(reference_directory):
    reference = PublishedRun.load("law", reference_directory)
    models = {"classifier": reference.classifier("lr")}
    changed = {}
    for label, method in (("CBCE", CBCE(**models, neighbours=10)), ("NNCE", Nearest(**models))):
        found = method.fit(reference.x_train, reference.y_train).explain(reference.x_test)
        assert found.valid.all()
        changed[label] = float((found.x_cf != found.x).sum(dim=1).double().mean())
    assert changed["CBCE"] < 2 < changed["NNCE"]
