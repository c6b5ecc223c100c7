"""NNCE: brute force in NumPy, and the values of the published folds."""

import numpy as np
import pytest
import torch

from plausiflow.core.losses import l1_distance, l2_distance
from plausiflow.densities import GMM, Thresholded
from plausiflow.errors import InvalidInputError, NotFittedError
from plausiflow.methods.reference.nearest import Nearest, NearestDense
from plausiflow.models import LinearClassifier
from plausiflow_bench.published.maf import PublishedMAF
from plausiflow_bench.published.runs import PublishedRun


@pytest.fixture(scope="module")
def classifier():
    """Return a model of three classes on four features."""
    generator = torch.Generator().manual_seed(1)
    return LinearClassifier.from_weights(
        torch.randn(3, 4, generator=generator, dtype=torch.float64), torch.zeros(3)
    )


@pytest.fixture(scope="module")
def rows():
    """Return training rows of unequal spread; one feature is mostly zero, with no deviation."""
    generator = torch.Generator().manual_seed(2)
    rows = torch.randn(301, 4, generator=generator, dtype=torch.float64) * torch.tensor([1.0, 0.3, 3.0, 1.0])
    rows[:200, 3] = 0.0
    return rows


@pytest.fixture(scope="module")
def queries():
    return torch.randn(40, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def classes(x):
    return torch.arange(len(x)) % 3


def brute_force(classifier, rows, x, y_target, distance):
    """Return all training rows of the target class, sorted by distance; NumPy only."""
    weight = classifier.module_.weight.detach().numpy()
    decided = (rows.numpy() @ weight.T).argmax(axis=1)
    table = rows.numpy()
    for row, wanted in zip(x.numpy(), y_target.tolist(), strict=True):
        candidates = table[decided == wanted]
        change = np.abs(candidates - row)
        if distance == "mad":
            deviations = np.median(np.abs(table - np.median(table, axis=0)), axis=0)
            change = change / np.where(deviations > 0, deviations, 1.0)
        length = np.sqrt((change**2).sum(axis=1)) if distance == "l2" else change.sum(axis=1)
        yield candidates[np.argsort(length, kind="stable")]


@pytest.mark.parametrize("distance", ["l2", "l1", "mad"])
def test_the_nearest_rows_are_those_of_a_brute_force_search(classifier, rows, queries, distance):
    y_target = classes(queries)
    method = Nearest(classifier=classifier, distance=distance).fit(rows, classes(rows))
    found = method.nearest(queries, y_target, count=5)
    assert found.shape == (40, 5, 4)
    expected = [r[:5] for r in brute_force(classifier, rows, queries, y_target, distance)]
    torch.testing.assert_close(found, torch.from_numpy(np.stack(expected)), rtol=0, atol=0)


@pytest.mark.parametrize("distance", ["l2", "l1", "mad"])
def test_a_row_gets_the_first_of_its_nearest_rows_unless_it_is_already_as_wanted(
    classifier, rows, queries, distance
):
    method = Nearest(classifier=classifier, distance=distance).fit(rows, classes(rows))
    y_target = classes(queries)
    found = method.explain(queries, y_target)
    already = found.y == y_target
    assert 0 < int(already.sum()) < 40
    assert torch.equal(found.x_cf[already], queries[already])
    assert torch.equal(found.x_cf[~already], method.nearest(queries, y_target, count=1)[~already, 0])
    assert found.valid.all()
    assert (found.gradients == 0).all()


def test_single_precision_rows_come_back_bit_by_bit(classifier, rows, queries):
    table = rows.float()
    method = Nearest(classifier=classifier).fit(table, classes(table))
    found = method.explain(queries.float(), "runner_up")
    assert found.x_cf.dtype == torch.float32
    assert (found.x_cf[:, None] == table).all(dim=2).any(dim=1).all()


def test_where_there_are_fewer_rows_than_asked_for_the_rest_is_nan(classifier, rows, queries):
    method = Nearest(classifier=classifier).fit(rows[:6], classes(rows[:6]))
    found = method.nearest(queries, torch.zeros(40, dtype=torch.long), count=6)
    there = len(method.bank_.rows[0])
    assert 0 < there < 6
    assert torch.isfinite(found[:, :there]).all()
    assert found[:, there:].isnan().all()


def test_copies_of_a_row_count_once(classifier, rows, queries):
    once = Nearest(classifier=classifier).fit(rows, classes(rows))
    twice = Nearest(classifier=classifier).fit(rows.repeat(2, 1), classes(rows).repeat(2))
    wanted = torch.ones(40, dtype=torch.long)
    assert torch.equal(once.nearest(queries, wanted, 3), twice.nearest(queries, wanted, 3))


def test_a_class_that_no_training_row_gets_is_not_found():
    classifier = LinearClassifier.from_weights(torch.eye(10), torch.zeros(10))
    x = torch.rand(30, 10)
    x[:, 9] = -1.0
    found = Nearest(classifier=classifier).fit(x, torch.arange(30) % 10).explain(x, 9)
    assert not found.found.any()
    assert found.x_cf.isnan().all()


def test_a_row_that_is_not_a_number_has_no_neighbours(classifier, rows, queries):
    x = queries[:3].clone()
    x[1, 2] = torch.nan
    method = Nearest(classifier=classifier).fit(rows, classes(rows))
    found = method.nearest(x, torch.zeros(3, dtype=torch.long), 2)
    assert found[1].isnan().all()
    assert torch.isfinite(found[[0, 2]]).all()


def test_many_rows_in_blocks_are_found_as_alone(classifier, rows):
    x = torch.randn(1100, 4)
    method = Nearest(classifier=classifier).fit(rows, classes(rows))
    together = method.explain(x, "runner_up")
    for row in (0, 600, 1099):
        alone = method.explain(x[row : row + 1], "runner_up")
        assert torch.equal(alone.x_cf[0], together.x_cf[row])


# ---------------------------------------------------------------- only dense rows


def test_the_dense_answer_is_the_nearest_plausible_row_of_a_brute_force_search(classifier, rows, queries):
    plausibility = Thresholded(density=GMM(components=1).fit(rows, classes(rows))).fit(rows, classes(rows))
    method = NearestDense(classifier=classifier, plausibility=plausibility).fit(rows, classes(rows))
    found = method.explain(queries, "runner_up")
    assert found.feasible.all()
    farther = 0
    everything = brute_force(classifier, rows, queries, found.y_target, "l2")
    for i, candidates in enumerate(everything):
        wanted = found.y_target[i].expand(len(candidates))
        dense = plausibility.log_prob(torch.from_numpy(candidates), wanted) >= plausibility.log_delta(wanted)
        assert np.array_equal(found.x_cf[i].numpy(), candidates[dense.numpy()][0])
        farther += not dense[0]
    assert farther > 5


def test_where_no_row_is_dense_enough_nothing_is_found(classifier, rows, queries):
    density = GMM(components=1).fit(rows, classes(rows))
    plausibility = Thresholded.at(density, torch.tensor([-10.0, 1e6, -10.0]), 3)
    method = NearestDense(classifier=classifier, plausibility=plausibility).fit(rows, classes(rows))
    y_target = classes(queries)
    assert torch.equal(method.explain(queries, y_target).found, y_target != 1)


@pytest.mark.parametrize("plausibility", [None, 0.5])
def test_dense_rows_need_a_fitted_plausibility(classifier, plausibility):
    with pytest.raises(InvalidInputError, match=r"fitted plausibility.*got .*Give a fitted `Thresholded`"):
        NearestDense(classifier=classifier, plausibility=plausibility)


def test_labels_are_those_of_the_tables():
    assert (Nearest.label, NearestDense.label) == ("NNCE", "NNCE-dense")


def test_settings_that_make_no_sense_are_errors(classifier, queries):
    with pytest.raises(InvalidInputError, match=r"'l2', 'l1' or 'mad'; got 'cosine'"):
        Nearest(classifier=classifier, distance="cosine")
    with pytest.raises(NotFittedError, match=r"Call `fit\(x, y\)`"):
        Nearest(classifier=classifier).explain(queries, 1)


# ---------------------------------------------------------------- the published folds

# Mean L2 and share of plausible rows, fold 0, LR; to the printed precision.
NEAREST = {"moons": (0.303, 0.17), "law": (0.187, 0.57), "wine": (0.719, 0.61), "blobs": (0.351, 0.00)}
# Mean log-density, L1 and L2 of the nearest dense rows, with half a unit of the last printed digit.
DENSE = {
    "moons": (1.59, 0.452, 0.363),
    "law": (1.92, 0.318, 0.206),
    "blobs": (2.78, 0.646, 0.467),
    "wine": (8.95, 2.219, 0.761),
    "audit": (55.4, 2.141, 1.061),
    "heloc": (31.1, 1.576, 0.475),
    "digits": (42.8, 12.40, 2.539),
}
LAST_DIGIT = {"audit": (0.1, 1e-3, 1e-3), "heloc": (0.1, 1e-3, 1e-3), "digits": (0.1, 1e-2, 1e-3)}


def published(method, name, directory):
    reference = PublishedRun.load(name, directory)
    classifier = reference.classifier("lr")
    flow = PublishedMAF(reference.maf_arrays)
    plausibility = Thresholded.at(flow, reference.log_delta, classifier.n_classes)
    fitted = method(classifier=classifier, plausibility=plausibility).fit(
        reference.x_train, reference.y_train
    )
    found = fitted.explain(reference.x_test, "paper")
    assert found.found.all()
    assert found.valid.all()
    return found


@pytest.mark.paper
@pytest.mark.parametrize("name", NEAREST)
def test_distance_and_plausibility_on_the_published_folds(name, reference_directory):
    found = published(Nearest, name, reference_directory)
    l2, plausible = NEAREST[name]
    assert float(l2_distance(found.x_cf, found.x).mean()) == pytest.approx(l2, abs=5.1e-4)
    assert float(found.plausible.double().mean()) == pytest.approx(plausible, abs=5.1e-3)


@pytest.mark.paper
@pytest.mark.parametrize("name", DENSE)
def test_dense_rows_on_the_published_folds(name, reference_directory):
    found = published(NearestDense, name, reference_directory)
    assert found.plausible.all()
    measured = (
        float(found.log_prob.mean()),
        float(l1_distance(found.x_cf, found.x).mean()),
        float(l2_distance(found.x_cf, found.x).mean()),
    )
    for value, expected, digit in zip(
        measured, DENSE[name], LAST_DIGIT.get(name, (1e-2, 1e-3, 1e-3)), strict=True
    ):
        assert value == pytest.approx(expected, abs=0.51 * digit)
