"""The published runs' files: what is read, and that the published classifiers decide as they should."""

import numpy as np
import pytest
import torch

from plausiflow.core.prediction import predict
from plausiflow.errors import DataNotFoundError, InvalidInputError
from plausiflow.models import LinearClassifier, MLPClassifier
from plausiflow_bench.published.runs import PublishedRun, published_metrics

# Rows, features and classes of each data set, and the accuracy that a published classifier must exceed on the
# test fold.
DATA = {
    "moons": (1024, 2, 2, 0.85),
    "law": (2220, 3, 2, 0.74),
    "audit": (610, 23, 2, 0.90),
    "heloc": (10459, 23, 2, 0.69),
    "blobs": (1499, 2, 3, 0.99),
    "digits": (1797, 64, 10, 0.93),
    "wine": (178, 13, 3, 0.97),
}


@pytest.fixture(scope="module", params=list(DATA))
def reference(request, reference_directory):
    return PublishedRun.load(request.param, reference_directory)


def test_folds_have_the_shapes_of_the_data_sets(reference):
    n, d, k, _ = DATA[reference.name]
    assert len(reference.x_train) + len(reference.x_test) == n
    assert reference.x_train.shape[1] == reference.x_test.shape[1] == d
    assert reference.x_train.dtype == reference.x_test.dtype == torch.float32
    assert reference.y_train.dtype == reference.y_test.dtype == torch.long
    assert reference.y_train.unique().tolist() == list(range(k))


def test_training_rows_are_scaled_to_the_unit_interval(reference):
    assert float(reference.x_train.min()) == pytest.approx(0, abs=1e-5)
    assert float(reference.x_train.max()) == pytest.approx(1, abs=1e-5)


def test_the_threshold_is_the_median_of_the_training_log_density(reference):
    assert reference.log_delta == pytest.approx(float(np.median(reference.maf_log_prob_train)), abs=1e-4)


def test_every_published_method_has_counterfactuals(reference):
    both = {
        (method, classifier)
        for method in ("ppcef", "wach", "cem", "cegp", "cbce")
        for classifier in ("lr", "mlp")
    }
    assert set(reference.counterfactuals) == both | {("artelt", "lr")}
    assert all(x_cf.shape == reference.x_test.shape for x_cf in reference.counterfactuals.values())


@pytest.mark.parametrize("kind", ["lr", "mlp", "node"])
def test_published_classifiers_are_accurate_on_the_test_fold(reference, kind):
    _, d, k, accuracy = DATA[reference.name]
    classifier = reference.classifier(kind)
    assert (classifier.n_features, classifier.n_classes) == (d, k)
    assert (predict(classifier, reference.x_test) == reference.y_test).double().mean() > accuracy


def test_published_linear_counterfactuals_change_the_published_decision(reference):
    classifier, x_cf = reference.classifier("lr"), reference.counterfactuals["ppcef", "lr"]
    changed = predict(classifier, x_cf) != predict(classifier, reference.x_test)
    assert changed.double().mean() > 0.95


def test_repr_is_short(reference):
    assert repr(reference).startswith(f"PublishedRun('{reference.name}': ")
    assert len(repr(reference)) < 150


def test_published_linear_logits_are_the_affine_map(reference_directory):
    reference = PublishedRun.load("digits", reference_directory)
    weight, bias = reference.classifier_arrays["lr_weight"], reference.classifier_arrays["lr_bias"]
    expected = reference.x_test.double().numpy() @ weight.astype(float).T + bias
    np.testing.assert_allclose(
        reference.classifier("lr").logits(reference.x_test.double()).numpy(), expected, rtol=1e-9
    )


def test_flow_weights_are_read_by_name(reference_directory):
    arrays = PublishedRun.load("moons", reference_directory).maf_arrays
    assert arrays["maf.1.autoregressive_net.initial_layer.weight"].shape == (4, 2)


def test_published_metrics_have_plain_names(reference_directory):
    table = published_metrics(reference_directory)
    names = {
        "coverage",
        "validity",
        "plausibility",
        "log_density",
        "l1",
        "l2",
        "lof",
        "iso_forest",
        "seconds",
    }
    assert names | {"dataset", "method", "classifier", "fold"} <= set(table.columns)
    assert set(table["dataset"]) == set(DATA)
    assert table["coverage"].between(0, 1).all()


def test_the_environment_variable_names_the_folder(reference_directory, monkeypatch):
    monkeypatch.setenv("PLAUSIFLOW_REFERENCE", str(reference_directory))
    assert PublishedRun.load("wine").name == "wine"


def test_no_folder_is_an_error_that_names_the_variable(monkeypatch):
    monkeypatch.delenv("PLAUSIFLOW_REFERENCE", raising=False)
    with pytest.raises(DataNotFoundError, match=r"PLAUSIFLOW_REFERENCE is not set.*moons\.npz"):
        PublishedRun.load("moons")


def test_a_missing_file_is_an_error_that_names_file_folder_and_what_is_there(tmp_path):
    with pytest.raises(DataNotFoundError, match=r"`moons\.npz` was looked for in .*no such folder"):
        PublishedRun.load("moons", tmp_path / "nowhere")
    np.savez(tmp_path / "law.npz", a=np.zeros(1))
    with pytest.raises(DataNotFoundError, match=r"it holds law\.npz.*Pass `directory`"):
        PublishedRun.load("moons", tmp_path)
    with pytest.raises(DataNotFoundError, match=r"published_metrics\.csv"):
        published_metrics(tmp_path)


def test_pickled_arrays_are_never_loaded(tmp_path):
    for kind in ("", "_maf", "_node"):
        np.savez(tmp_path / f"moons{kind}.npz", X_train=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        PublishedRun.load("moons", tmp_path)


def test_an_unknown_classifier_is_an_error(reference_directory):
    with pytest.raises(InvalidInputError, match=r"no published classifier 'svm'"):
        PublishedRun.load("wine", reference_directory).classifier("svm")


def test_published_classifiers_are_ours(reference_directory):
    reference = PublishedRun.load("wine", reference_directory)
    assert isinstance(reference.classifier("lr"), LinearClassifier)
    assert isinstance(reference.classifier("mlp"), MLPClassifier)
    assert reference.classifier("mlp").hidden == (256, 256, 256)
