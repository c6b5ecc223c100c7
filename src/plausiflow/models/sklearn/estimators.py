"""Exact conversion of fitted scikit-learn classifiers and regressors to torch modules over the basis.

The first map of each estimator is linear, and is merged with the columns that lead to it. The modules at the
end of this file turn scores into predictions; log-probabilities are finite wherever the scores are. Unknown
estimators are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import numpy as np
import torch
from sklearn.base import is_regressor
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from plausiflow.models.sklearn.columns import (
    ONE,
    Affine,
    Array,
    Basis,
    Fitted,
    ModelColumn,
    UnsupportedModelError,
    call_model,
    weight_matrix,
)
from plausiflow.models.sklearn.preprocessing import check_column_count, sklearn_class_name, transform_columns

Link = Literal["sigmoid", "softmax", "one_vs_rest", "margin"]


def convert_estimator(model: Fitted, columns: list[ModelColumn], basis: Basis) -> nn.Module:
    """Convert a fitted estimator of these columns to a module over the basis.

    It returns the logits of a classifier, shape ``(n, k)``, or the number of a regressor, shape ``(n, 1)``.
    """
    kind = sklearn_class_name(model)
    if kind == "Pipeline":
        for _, step in model.steps[:-1]:
            columns = transform_columns(step, columns, basis)
        return convert_estimator(model.steps[-1][1], columns, basis)
    if kind in _WRAPPERS:
        return convert_estimator(getattr(model, _WRAPPERS[kind]), columns, basis)
    if kind not in _ESTIMATORS:
        role = "regressor" if is_regressor(model) else "classifier"
        raise UnsupportedModelError(f"{kind} is a {role} that cannot be converted exactly")
    check_column_count(model, columns)
    return _ESTIMATORS[kind](model, columns, basis)


def _merge(columns: list[ModelColumn], weight: Array, bias: Array, basis: Basis) -> Array:
    """Return the affine map ``columns @ weight + bias`` over the basis; it must be finite."""
    with np.errstate(all="ignore"):
        forms = weight_matrix(columns, basis.size) @ np.asarray(weight, dtype=np.float64)
        forms[ONE] += bias
    if not np.isfinite(forms).all():
        raise UnsupportedModelError("its weights are not all finite")
    return forms


def _coefficients(model: Fitted) -> Array:
    """Return the weights of a linear model, one row per score; they may be stored as a sparse matrix."""
    coef = model.coef_
    return np.atleast_2d(coef.toarray() if hasattr(coef, "toarray") else coef)


def _linear(model: Fitted, columns: list[ModelColumn], basis: Basis, link: Link) -> nn.Module:
    coef = _coefficients(model)
    n_classes = len(model.classes_)
    if len(coef) != (1 if n_classes == 2 else n_classes):
        raise UnsupportedModelError(
            f"{type(model).__name__} has {len(coef)} rows of weights for {n_classes} classes"
        )
    return LinkedScores(Affine(_merge(columns, coef.T, model.intercept_, basis)), link)


_margin = partial(_linear, link="margin")


def _logistic(model: Fitted, columns: list[ModelColumn], basis: Basis) -> nn.Module:
    binary = len(model.classes_) == 2
    scheme = getattr(model, "multi_class", "auto")
    if scheme == "multinomial" and binary:
        raise UnsupportedModelError(
            "LogisticRegression uses multi_class='multinomial' for two classes. Leave it out"
        )
    if binary:
        return _linear(model, columns, basis, "sigmoid")
    one_vs_rest = scheme == "ovr" or (scheme != "multinomial" and model.solver == "liblinear")
    return _linear(model, columns, basis, "one_vs_rest" if one_vs_rest else "softmax")


def _discriminant(model: Fitted, columns: list[ModelColumn], basis: Basis) -> nn.Module:
    return _linear(model, columns, basis, "sigmoid" if len(model.classes_) == 2 else "softmax")


def _gradient_descent(model: Fitted, columns: list[ModelColumn], basis: Basis) -> nn.Module:
    if model.loss == "modified_huber":
        raise UnsupportedModelError(
            "SGDClassifier with loss='modified_huber' has no gradient where it is sure"
        )
    if model.loss == "log_loss":
        return _linear(model, columns, basis, "sigmoid" if len(model.classes_) == 2 else "one_vs_rest")
    return _margin(model, columns, basis)


def _quadratic_discriminant(model: Fitted, columns: list[ModelColumn], basis: Basis) -> nn.Module:
    maps = []
    for mean, rotation, scaling in zip(model.means_, model.rotations_, model.scalings_, strict=True):
        weight = rotation * scaling**-0.5
        maps.append(_merge(columns, weight, -mean @ weight, basis))
    logs = np.array([np.log(scaling).sum() for scaling in model.scalings_])
    return _generative(maps, -0.5 * logs, model.priors_)


def _naive_bayes(model: Fitted, columns: list[ModelColumn], basis: Basis) -> nn.Module:
    deviation = np.sqrt(model.var_)
    maps = [
        _merge(columns, np.diag(1 / d), -mean / d, basis)
        for mean, d in zip(model.theta_, deviation, strict=True)
    ]
    return _generative(maps, -np.log(deviation).sum(axis=1), model.class_prior_)


def _generative(maps: Sequence[Array], log_volume: Array, priors: Array) -> nn.Module:
    if np.min(priors) <= 0:
        raise UnsupportedModelError("a class has no prior probability, so that its logit is infinite")
    return LinkedScores(_QuadraticScores(maps, log_volume + np.log(priors)), "softmax")


def _perceptron(model: Fitted, columns: list[ModelColumn], basis: Basis) -> nn.Module:
    link: dict[str, Link] = {"logistic": "sigmoid", "softmax": "softmax"}
    outputs = 1 if len(model.classes_) == 2 else len(model.classes_)
    if model.out_activation_ not in link or model.n_outputs_ != outputs:
        raise UnsupportedModelError(
            f"MLPClassifier has {model.n_outputs_} outputs by {model.out_activation_}"
        )
    return LinkedScores(_layers(model, columns, basis), link[model.out_activation_])


def _layers(model: Fitted, columns: list[ModelColumn], basis: Basis) -> nn.Module:
    """Return the layers of a perceptron, without the activation of its outputs."""
    layers: list[nn.Module] = [Affine(_merge(columns, model.coefs_[0], model.intercepts_[0], basis))]
    for weight, bias in zip(model.coefs_[1:], model.intercepts_[1:], strict=True):
        layers += [_ACTIVATIONS[model.activation](), Affine(weight, bias)]
    return nn.Sequential(*layers)


def _calibrated(model: Fitted, columns: list[ModelColumn], basis: Basis) -> nn.Module:
    members = []
    for part in model.calibrated_classifiers_:
        if part.method != "sigmoid":
            raise UnsupportedModelError(
                f"CalibratedClassifierCV calibrates by {part.method!r}; only 'sigmoid' is smooth"
            )
        inner = part.estimator
        if len(inner.classes_) != len(part.classes):
            raise UnsupportedModelError("CalibratedClassifierCV has a member that has not seen every class")
        slope, offset = (np.array([getattr(c, name) for c in part.calibrators]) for name in ("a_", "b_"))
        scores = convert_estimator(inner, columns, basis)
        members.append(_CalibratedScores(scores, hasattr(inner, "decision_function"), slope, offset))
    return _MeanProbabilities(members, np.ones(len(members)))


def _voting(model: Fitted, columns: list[ModelColumn], basis: Basis) -> nn.Module:
    if model.voting != "soft":
        raise UnsupportedModelError(
            "VotingClassifier counts votes, which have no gradient; voting='soft' has one"
        )
    kept = [not isinstance(member, str) for _, member in model.estimators]
    weights = np.ones(len(kept)) if model.weights is None else np.asarray(model.weights, dtype=np.float64)
    members = [(m, w) for m, w in zip(model.estimators_, weights[kept], strict=True) if w]
    parts = [convert_estimator(member, columns, basis) for member, _ in members]
    return _MeanProbabilities(parts, np.array([weight for _, weight in members]))


def _linear_regression(model: Fitted, columns: list[ModelColumn], basis: Basis) -> nn.Module:
    coef = _coefficients(model)
    _check_single_output(model, len(coef))
    return Affine(_merge(columns, coef.T, model.intercept_, basis))


def _perceptron_regression(model: Fitted, columns: list[ModelColumn], basis: Basis) -> nn.Module:
    _check_single_output(model, model.n_outputs_)
    outputs: dict[str, Callable[[], nn.Module]] = {"identity": nn.Identity, "exp": _Exponential}
    if model.out_activation_ not in outputs:
        raise UnsupportedModelError(f"MLPRegressor predicts by {model.out_activation_}")
    return nn.Sequential(_layers(model, columns, basis), outputs[model.out_activation_]())


def _check_single_output(model: Fitted, n: int) -> None:
    if n != 1:
        raise UnsupportedModelError(f"{type(model).__name__} predicts {n} numbers for each row, not one")


def _transformed_target(model: Fitted, columns: list[ModelColumn], basis: Basis) -> nn.Module:
    """Convert a regressor of a scaled target; the scaler itself maps zero and one back."""
    scaler, regressor = model.transformer_, model.regressor_
    if not is_regressor(regressor):
        raise UnsupportedModelError(
            f"{type(regressor).__name__} is not a regressor, but predicts the transformed target"
        )
    module, kind = convert_estimator(regressor, columns, basis), sklearn_class_name(scaler)
    if kind == "FunctionTransformer" and scaler.func is None and scaler.inverse_func is None:
        return module
    if kind not in ("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler"):
        inverse = repr(scaler.inverse_func) if kind == "FunctionTransformer" else kind
        raise UnsupportedModelError(
            f"{inverse} makes the prediction from the transformed target; only scalers of it are converted"
        )
    zero, one = np.ravel(call_model(scaler, "inverse_transform", np.array([[0.0], [1.0]])))
    return nn.Sequential(module, Affine(np.array([[one - zero]]), np.array([zero])))


class LinkedScores(nn.Module):
    """Logits from scores: a single score for two classes if the link allows it, else one per class."""

    def __init__(self, scores: nn.Module, link: Link) -> None:
        super().__init__()
        self.scores, self.link = scores, link

    def forward(self, basis: Tensor) -> Tensor:
        """Return log-probabilities, or margins, ``(n, size) -> (n, k)``."""
        return self.linked(self.scores(basis))

    def linked(self, scores: Tensor) -> Tensor:
        """Return log-probabilities, or margins, of scores."""
        if self.link == "softmax":
            return scores.log_softmax(dim=1)
        if self.link == "one_vs_rest":
            return logsigmoid(scores).log_softmax(dim=1)
        if scores.shape[1] > 1:
            return scores
        if self.link == "margin":
            return torch.cat([torch.zeros_like(scores), scores], dim=1)
        return torch.cat([logsigmoid(-scores), logsigmoid(scores)], dim=1)

    def decision(self, basis: Tensor) -> Tensor:
        """Return the model's decision function, shape ``(n, 1)`` for two classes, else ``(n, k)``."""
        scores: Tensor = self.scores(basis)
        return scores[:, 1:] - scores[:, :1] if scores.shape[1] == 2 else scores


class _QuadraticScores(nn.Module):
    r"""Scores :math:`c_k - \lVert A_k x - a_k \rVert^2 / 2`, one for each class."""

    constant: Tensor

    def __init__(self, maps: Sequence[Array], constant: Array) -> None:
        super().__init__()
        widest = max(part.shape[1] for part in maps)
        padded = [np.pad(part, ((0, 0), (0, widest - part.shape[1]))) for part in maps]
        self.distances = Affine(np.concatenate(padded, axis=1))
        self.register_buffer("constant", torch.from_numpy(np.array(constant, dtype=np.float64)))

    def forward(self, basis: Tensor) -> Tensor:
        squares: Tensor = self.distances(basis).square().unflatten(1, (len(self.constant), -1)).sum(dim=2)
        return self.constant - squares / 2


class _CalibratedScores(nn.Module):
    """Log-probabilities from a normalised sigmoid of each class's decision or probability."""

    slope: Tensor
    offset: Tensor

    def __init__(self, model: nn.Module, by_decision: bool, slope: Array, offset: Array) -> None:
        super().__init__()
        self.model, self.by_decision = model, by_decision
        self.register_buffer("slope", torch.from_numpy(slope))
        self.register_buffer("offset", torch.from_numpy(offset))

    def forward(self, basis: Tensor) -> Tensor:
        if self.by_decision and isinstance(self.model, LinkedScores):
            response = self.model.decision(basis)
        else:
            response = self.model(basis).exp()
            response = response[:, 1:] if response.shape[1] == 2 else response
        scores = -(self.slope * response + self.offset)
        if scores.shape[1] > 1:
            return logsigmoid(scores).log_softmax(dim=1)
        return torch.cat([logsigmoid(-scores), logsigmoid(scores)], dim=1)


class _MeanProbabilities(nn.Module):
    """Logarithm of a weighted mean of probabilities."""

    log_weights: Tensor

    def __init__(self, members: Sequence[nn.Module], weights: Array) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.register_buffer("log_weights", torch.from_numpy(np.log(weights / weights.sum())))

    def forward(self, basis: Tensor) -> Tensor:
        parts = torch.stack([member(basis) for member in self.members])
        return (parts + self.log_weights[:, None, None]).logsumexp(dim=0)


class _Exponential(nn.Module):
    """The exponential function."""

    def forward(self, scores: Tensor) -> Tensor:
        return scores.exp()


_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "identity": nn.Identity,
    "logistic": nn.Sigmoid,
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
}
_SEARCHES = ("GridSearchCV", "RandomizedSearchCV", "HalvingGridSearchCV", "HalvingRandomSearchCV")
_WRAPPERS = {
    **dict.fromkeys(_SEARCHES, "best_estimator_"),
    "FrozenEstimator": "estimator",
    "FixedThresholdClassifier": "estimator_",  # its cut-off is that of the decision, not of the probabilities
    "TunedThresholdClassifierCV": "estimator_",
}
_LINEAR_REGRESSORS = (
    *("LinearRegression", "Ridge", "RidgeCV", "Lasso", "LassoCV", "ElasticNet", "ElasticNetCV"),
    *("SGDRegressor", "LinearSVR", "HuberRegressor", "BayesianRidge"),
)
_ESTIMATORS: dict[str, Callable[[Fitted, list[ModelColumn], Basis], nn.Module]] = {
    **dict.fromkeys(("LogisticRegression", "LogisticRegressionCV"), _logistic),
    **dict.fromkeys(("LinearSVC", "RidgeClassifier", "RidgeClassifierCV", "Perceptron"), _margin),
    **dict.fromkeys(_LINEAR_REGRESSORS, _linear_regression),
    "SGDClassifier": _gradient_descent,
    "LinearDiscriminantAnalysis": _discriminant,
    "QuadraticDiscriminantAnalysis": _quadratic_discriminant,
    "GaussianNB": _naive_bayes,
    "MLPClassifier": _perceptron,
    "CalibratedClassifierCV": _calibrated,
    "VotingClassifier": _voting,
    "MLPRegressor": _perceptron_regression,
    "TransformedTargetRegressor": _transformed_target,
}
