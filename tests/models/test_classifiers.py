"""Classifiers: one contract over our three networks, scikit-learn as reference."""

import copy
import itertools
import pickle

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, make_blobs
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from plausiflow.core.prediction import predict, predict_proba
from plausiflow.core.protocols import Classifier
from plausiflow.core.training import Training
from plausiflow.errors import InvalidInputError, NotFittedError, ShapeError
from plausiflow.models import NODE, LinearClassifier, MLPClassifier

SHORT = Training(epochs=40, learning_rate=3e-2, batch_size=64, patience=5)
MAKERS = {
    "linear": lambda random_state=0: LinearClassifier(training=SHORT, random_state=random_state),
    "mlp": lambda random_state=0: MLPClassifier(training=SHORT, hidden=(16, 8), random_state=random_state),
    "node": lambda random_state=0: NODE(
        training=SHORT, n_trees=8, depth=3, n_layers=2, random_state=random_state
    ),
}


@pytest.fixture(scope="module")
def rows():
    """Three well separated classes in four dimensions, in [0, 1]."""
    x, y = make_blobs(300, n_features=4, centers=3, cluster_std=1.0, random_state=1)
    x = (x - x.min(axis=0)) / (x.max(axis=0) - x.min(axis=0))
    return torch.as_tensor(x).to(torch.get_default_dtype()), torch.as_tensor(y).long()


@pytest.fixture(scope="module", params=list(MAKERS))
def make(request):
    return MAKERS[request.param]


@pytest.fixture(scope="module")
def fitted(make, rows):
    return make().fit(*rows)


# The contract of every network


def test_a_network_is_a_classifier(fitted):
    assert isinstance(fitted, Classifier)
    assert fitted.differentiable is True
    assert (fitted.n_features, fitted.n_classes) == (4, 3)


def test_a_network_learns_separated_classes(fitted, rows):
    x, y = rows
    assert (predict(fitted, x) == y).double().mean() > 0.98


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_logits_have_one_column_per_class_and_follow_the_dtype(fitted, rows, precision):
    logits = fitted.logits(rows[0].to(precision))
    assert logits.shape == (300, 3)
    assert logits.dtype == precision


def test_both_precisions_agree(fitted, rows):
    single, double = fitted.logits(rows[0].float()), fitted.logits(rows[0].double())
    torch.testing.assert_close(single.double(), double, rtol=1e-4, atol=1e-4)


def test_gradients_flow_to_the_rows(fitted):
    x = torch.rand(5, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(fitted.logits, x)


def test_weights_are_frozen(fitted, rows):
    x = rows[0][:3].clone().requires_grad_()
    fitted.logits(x).sum().backward()
    assert x.grad is not None
    assert all(parameter.grad is None for parameter in fitted.module_.parameters())


def test_a_row_alone_gets_the_logits_it_gets_in_a_batch(fitted, rows):
    x = rows[0].double()
    alone = torch.cat([fitted.logits(row[None]) for row in x[:20]])
    torch.testing.assert_close(fitted.logits(x)[:20], alone, rtol=0, atol=1e-8)


def test_no_rows_give_no_logits(fitted, rows):
    assert fitted.logits(rows[0][:0]).shape == (0, 3)


def test_the_same_seed_gives_the_same_weights(make, fitted, rows):
    again, other = make().fit(*rows).state(), make(random_state=1).fit(*rows).state()
    for name, value in fitted.state().items():
        assert torch.equal(value, again[name])
    assert any(not torch.equal(value, other[name]) for name, value in fitted.state().items())


def test_fit_leaves_the_global_generator_alone(make, rows):
    before = torch.get_rng_state()
    make().fit(*rows)
    assert torch.equal(before, torch.get_rng_state())


def test_state_makes_the_round_trip(make, fitted, rows):
    loaded = make().load_state(fitted.state())
    assert torch.equal(loaded.logits(rows[0]), fitted.logits(rows[0]))
    assert (loaded.n_features, loaded.n_classes) == (4, 3)


def test_state_is_a_copy(fitted, rows):
    before = fitted.logits(rows[0])
    for value in fitted.state().values():
        value.zero_()
    assert torch.equal(before, fitted.logits(rows[0]))


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda classifier: pickle.loads(pickle.dumps(classifier))]
)
def test_copies_give_the_same_logits(fitted, rows, duplicate):
    assert torch.equal(duplicate(fitted).logits(rows[0]), fitted.logits(rows[0]))


def test_logits_are_in_evaluation_mode_whatever_mode_the_module_is_in(rows):
    classifier = MLPClassifier(training=SHORT, hidden=(16,), dropout=0.5).fit(*rows)
    before = classifier.logits(rows[0])
    classifier.module_.train()
    assert not torch.equal(classifier.module_(rows[0]), before)  # dropout is on
    assert torch.equal(copy.deepcopy(classifier).logits(rows[0]), before)


def test_fitting_again_forgets_the_old_weights(make, rows):
    x, y = rows
    classifier = make().fit(x, y)
    classifier.logits(x)
    classifier.fit(x, 2 - y)
    assert (predict(classifier, x) == 2 - y).double().mean() > 0.98


def test_classes_missing_at_the_end_can_be_announced(make, rows):
    assert make().fit(*rows, n_classes=5).logits(rows[0]).shape == (300, 5)


def test_repr_shows_settings_and_size(make, fitted):
    assert repr(make()).endswith("; not fitted)")
    assert repr(fitted).endswith("; 4 features, 3 classes)")
    assert repr(fitted).startswith(f"{type(fitted).__name__}(random_state=0")


def test_use_before_fit_is_an_error_that_says_what_to_do(make, rows):
    with pytest.raises(NotFittedError, match=r"no weights yet.*fit\(x, y\)"):
        make().logits(rows[0])
    with pytest.raises(NotFittedError, match="from_weights"):
        make().state()


@pytest.mark.parametrize("shape", [(2, 3), (4,), (2, 4, 1)])
def test_wrong_columns_are_an_error_that_shows_both_shapes(fitted, shape):
    with pytest.raises(ShapeError, match=r"must have shape \(n, 4\).*got \(" + str(shape[0])):
        fitted.logits(torch.zeros(shape))


def test_integer_rows_are_an_error(fitted):
    with pytest.raises(InvalidInputError, match=r"float tensor; got torch\.int64"):
        fitted.logits(torch.zeros(2, 4, dtype=torch.long))


def test_one_class_only_is_an_error(make, rows):
    with pytest.raises(InvalidInputError, match=r"at least two classes.*all 300 rows are of class 2"):
        make().fit(rows[0], torch.full((300,), 2))


def test_missing_values_are_an_error(make, rows):
    x = rows[0].clone()
    x[7, 2] = torch.nan
    with pytest.raises(InvalidInputError, match="row 7, column 2"):
        make().fit(x, rows[1])


def test_foreign_weights_are_an_error_that_names_every_problem(make, fitted):
    with pytest.raises(InvalidInputError, match="not the weights of"):
        make().load_state({"something": torch.zeros(3)})
    state = fitted.state()
    name = list(state)[-1]
    state[name] = torch.zeros(7, 7)
    state["extra"] = torch.zeros(1)
    with pytest.raises(InvalidInputError, match=r"`extra` is not known.*must have shape .*got \(7, 7\)"):
        make().load_state(state)


# Logistic regression and the perceptron


def test_linear_logits_are_the_affine_map():
    weight, bias, x = torch.randn(3, 4).double(), torch.randn(3).double(), torch.randn(6, 4).double()
    logits = LinearClassifier.from_weights(weight, bias).logits(x)
    np.testing.assert_allclose(logits.numpy(), x.numpy() @ weight.numpy().T + bias.numpy(), rtol=1e-12)


def test_one_row_of_weights_is_a_sigmoid_model():
    weight, bias, x = (
        np.array([[1.5, -2.0]], dtype=np.float32),
        np.array([0.5], dtype=np.float32),
        torch.randn(6, 2),
    )
    classifier = LinearClassifier.from_weights(weight, bias)
    score = x.numpy() @ weight[0] + bias[0]
    np.testing.assert_allclose(
        predict_proba(classifier, x)[:, 1].numpy(), 1 / (1 + np.exp(-score)), rtol=1e-6
    )
    assert classifier.weight.dtype == torch.float32


def test_linear_weights_are_readable():
    classifier = LinearClassifier.from_weights(torch.eye(2), torch.ones(2))
    assert torch.equal(classifier.weight, torch.eye(2))
    assert torch.equal(classifier.bias, torch.ones(2))


def test_linear_weights_of_wrong_shape_are_an_error():
    with pytest.raises(ShapeError, match=r"got \(2, 3\) and \(3,\)"):
        LinearClassifier.from_weights(torch.zeros(2, 3), torch.zeros(3))


def test_scikit_learn_weights_give_scikit_learn_probabilities(rows):
    x, y = rows[0].double().numpy(), rows[1].numpy()
    model = LogisticRegression().fit(x, y)
    ours = LinearClassifier.from_weights(model.coef_, model.intercept_)
    np.testing.assert_allclose(
        predict_proba(ours, rows[0].double()).numpy(), model.predict_proba(x), atol=1e-9
    )


def test_a_fitted_linear_classifier_is_as_accurate_as_scikit_learn():
    data, target = load_breast_cancer(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(data, target, random_state=0, stratify=target)
    scaler = StandardScaler().fit(x_train)
    x_train, x_test = scaler.transform(x_train), scaler.transform(x_test)
    theirs = LogisticRegression(C=np.inf, max_iter=5000).fit(x_train, y_train).score(x_test, y_test)
    ours = LinearClassifier().fit(torch.as_tensor(x_train), torch.as_tensor(y_train).long())
    accuracy = float((predict(ours, torch.as_tensor(x_test)).numpy() == y_test).mean())
    assert accuracy > theirs - 0.02
    assert accuracy > 0.93


def test_perceptron_logits_are_affine_maps_with_relu_between():
    sizes = (4, 6, 5, 3)
    weights = [torch.randn(b, a).double() for a, b in itertools.pairwise(sizes)]
    biases = [torch.randn(b).double() for b in sizes[1:]]
    classifier = MLPClassifier.from_weights(weights, biases)
    assert classifier.hidden == (6, 5)
    x = torch.randn(7, 4).double()
    h = x.numpy()
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        h = h @ weight.numpy().T + bias.numpy()
        h = np.maximum(h, 0) if i < 2 else h
    np.testing.assert_allclose(classifier.logits(x).numpy(), h, rtol=1e-10, atol=1e-12)


def test_perceptron_weights_without_biases_are_an_error():
    with pytest.raises(ShapeError, match="1 weights and 0 biases"):
        MLPClassifier.from_weights([torch.zeros(2, 2)], [])


def test_the_default_perceptron_has_three_hidden_layers_of_256():
    shapes = [tuple(p.shape) for p in MLPClassifier()._build(5, 2).parameters() if p.ndim == 2]
    assert shapes == [(256, 5), (256, 256), (256, 256), (2, 256)]


# Predictions


def test_probabilities_sum_to_one_and_predictions_are_their_largest(fitted, rows):
    proba = predict_proba(fitted, rows[0])
    torch.testing.assert_close(proba.sum(dim=1), torch.ones(300).to(proba))
    assert torch.equal(predict(fitted, rows[0]), proba.argmax(dim=1))


def test_probabilities_keep_the_graph(fitted, rows):
    assert predict_proba(fitted, rows[0].clone().requires_grad_()).requires_grad
