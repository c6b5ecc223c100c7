"""Classifiers: one contract over our three networks, scikit-learn as reference, modules that users bring."""

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
from torch import nn

from plausiflow.classifiers import (
    NODE,
    LinearClassifier,
    MLPClassifier,
    TorchClassifier,
    predict,
    predict_proba,
)
from plausiflow.errors import InvalidInputError, ModelError, NotFittedError, ShapeError
from plausiflow.protocols import Classifier
from plausiflow.training import Training

SHORT = Training(epochs=40, learning_rate=3e-2, batch_size=64, patience=5)
MAKERS = {
    "linear": lambda seed=0: LinearClassifier(training=SHORT, seed=seed),
    "mlp": lambda seed=0: MLPClassifier(training=SHORT, hidden=(16, 8), seed=seed),
    "node": lambda seed=0: NODE(training=SHORT, n_trees=8, depth=3, n_layers=2, seed=seed),
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
    again, other = make().fit(*rows).state(), make(seed=1).fit(*rows).state()
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
    assert repr(fitted).startswith(f"{type(fitted).__name__}(seed=0")


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


# Modules that users bring


class Returns(nn.Module):
    """A module that returns what a function makes of its input."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def test_a_module_of_logits_is_taken_as_it_is():
    module = nn.Linear(3, 4)
    classifier, x = TorchClassifier(module, n_classes=4), torch.randn(5, 3)
    assert isinstance(classifier, Classifier)
    assert torch.equal(classifier.logits(x), module(x).detach())


@pytest.mark.parametrize("squeeze", [False, True])
def test_a_single_logit_becomes_two_columns(squeeze):
    module = Returns(lambda x: x.sum(dim=1) if squeeze else x.sum(dim=1, keepdim=True))
    x = torch.randn(5, 3)
    logits = TorchClassifier(module, n_classes=2).logits(x)
    torch.testing.assert_close(logits, torch.stack([torch.zeros(5), x.sum(dim=1)], dim=1))


def test_a_single_row_with_a_flat_output_keeps_its_row():
    assert TorchClassifier(Returns(lambda x: x.sum(dim=1)), n_classes=2).logits(torch.ones(1, 3)).shape == (
        1,
        2,
    )


def test_a_single_probability_becomes_two_columns():
    module = Returns(lambda x: x[:, :1].sigmoid())
    x = torch.tensor([[-1.0], [0.0], [2.0]])
    proba = predict_proba(TorchClassifier(module, n_classes=2, output="probabilities"), x)
    torch.testing.assert_close(proba, torch.cat([1 - x.sigmoid(), x.sigmoid()], dim=1))


def test_probabilities_become_their_logarithms_and_stay_finite():
    module = Returns(lambda x: (1e4 * x).softmax(dim=1))
    x = torch.tensor([[1.0, 0.0, -1.0], [0.0, 0.0, 0.0]], requires_grad=True)
    classifier = TorchClassifier(module, n_classes=3, output="probabilities")
    logits = classifier.logits(x)
    assert torch.isfinite(logits).all()
    torch.testing.assert_close(logits.softmax(dim=1), module(x))
    logits.sum().backward()
    assert torch.isfinite(x.grad).all()


def test_infinite_logits_are_cut_to_finite_ones():
    module = Returns(lambda x: torch.stack([x[:, 0], torch.where(x[:, 0] > 0, -torch.inf, x[:, 0])], dim=1))
    classifier = TorchClassifier(module, n_classes=2)
    assert torch.isfinite(classifier.logits(torch.ones(1, 1))).all()
    assert predict(classifier, torch.ones(1, 1)) == 0


def test_a_module_is_copied_and_left_in_its_mode():
    module = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 2)).train()
    classifier, x = TorchClassifier(module, n_classes=2), torch.randn(5, 3)
    before = classifier.logits(x)
    assert torch.equal(before, classifier.logits(x))  # no dropout
    assert module.training
    with torch.no_grad():
        module[0].weight.zero_()
    assert torch.equal(before, classifier.logits(x))


def test_a_single_precision_module_answers_in_double_precision():
    module = nn.Linear(3, 2).float()
    assert (
        TorchClassifier(module, n_classes=2).logits(torch.randn(5, 3, dtype=torch.float64)).dtype
        == torch.float64
    )
    assert module.weight.dtype == torch.float32


def test_repr_names_the_module():
    assert (
        repr(TorchClassifier(nn.Linear(3, 2), n_classes=2))
        == "TorchClassifier(Linear, n_classes=2, output='logits')"
    )


def _raise(x):
    raise ValueError("no such column")


@pytest.mark.parametrize(
    ("function", "output", "message"),
    [
        (lambda x: x[:, :2], "logits", r"shape \(5, 3\) for 5 rows; got \(5, 2\).*n_classes"),
        (lambda x: x[0], "logits", r"got \(3,\)"),
        (lambda x: x[:2], "logits", r"got \(2, 3\)"),
        (lambda x: x / 0 * 0, "logits", "NaN for 5 of 5 rows although their values are finite"),
        (_raise, "logits", "raised ValueError for rows of shape .*no such column"),
        (lambda x: (x, x), "logits", "must return a tensor; got tuple"),
        (lambda x: x.detach(), "logits", "no gradient with respect to its input"),
        (lambda x: 5 * x, "probabilities", 'probabilities, in .*Use `output="logits"`'),
        (lambda x: x.sigmoid(), "probabilities", "summing to one"),
    ],
    ids=[
        "columns",
        "vector",
        "rows",
        "nan",
        "raises",
        "tuple",
        "detached",
        "not probabilities",
        "not normalised",
    ],
)
def test_a_module_that_misbehaves_is_an_error_that_says_what_to_do(function, output, message):
    classifier = TorchClassifier(Returns(function), n_classes=3, output=output)
    with pytest.raises(ModelError, match=message):
        classifier.logits(torch.randn(5, 3).requires_grad_())


def test_rows_that_are_not_numbers_get_logits_that_are_not_numbers():
    x = torch.tensor([[1.0, 2.0], [torch.nan, 1.0]])
    for output, module in {"logits": nn.Identity(), "probabilities": nn.Softmax(dim=1)}.items():
        logits = TorchClassifier(module, n_classes=2, output=output).logits(x)
        assert torch.isfinite(logits[0]).all()
        assert logits[1].isnan().any()


def test_wrong_settings_are_an_error_that_names_all_of_them():
    with pytest.raises(
        InvalidInputError,
        match=r"torch\.nn\.Module; got function.*`n_classes`.*got 1.*`output`.*got 'scores'",
    ):
        TorchClassifier(_raise, n_classes=1, output="scores")


def test_a_module_that_cannot_be_copied_is_an_error():
    module = nn.Linear(2, 2)
    module.cache = module(torch.zeros(1, 2))  # not a leaf: torch refuses to copy it
    with pytest.raises(ModelError, match=r"could not be copied.*detach\(\)"):
        TorchClassifier(module, n_classes=2)
