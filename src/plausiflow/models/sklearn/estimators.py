"""Fitted classifiers and regressors of scikit-learn, exactly, as torch modules over the basis.

The first map of each is linear, and merged with the columns that lead to it. Nothing is guessed: an estimator
that is not known is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from sklearn.base import is_regressor
from torch import nn

from plausiflow.models.sklearn.columns import ONE, Affine, Array, Basis, Column, Fitted, Refused, ask, matrix
from plausiflow.models.sklearn.heads import Average, Calibrated, Exponential, Link, Quadratic, Scored
from plausiflow.models.sklearn.preprocessing import kind_of, transform


def estimator(model: Fitted, columns: list[Column], basis: Basis) -> nn.Module:
    """What a fitted estimator that takes these columns answers, a module over the basis.

    Logits of a classifier, shape ``(n, k)``; the number that a regressor predicts, shape ``(n, 1)``.

    Raises:
        Refused: It cannot be converted exactly.
    """
    kind = kind_of(model)
    if kind == "Pipeline":
        for _, step in model.steps[:-1]:
            columns = transform(step, columns, basis)
        return estimator(model.steps[-1][1], columns, basis)
    if kind in _WRAPPERS:
        return estimator(getattr(model, _WRAPPERS[kind]), columns, basis)
    if kind not in _ESTIMATORS:
        role = "regressor" if is_regressor(model) else "classifier"
        raise Refused(f"{kind} is a {role} that cannot be converted exactly")
    expected = getattr(model, "n_features_in_", len(columns))
    if expected != len(columns):
        raise Refused(f"{kind} takes {expected} columns, and {len(columns)} lead to it")
    return _ESTIMATORS[kind](model, columns, basis)


def _merged(columns: list[Column], weight: Array, bias: Array, basis: Basis) -> Array:
    """The affine map ``columns @ weight + bias``, over the basis; it must be finite."""
    with np.errstate(all="ignore"):
        forms = matrix(columns, basis.size) @ np.asarray(weight, dtype=np.float64)
        forms[ONE] += bias
    if not np.isfinite(forms).all():
        raise Refused("its weights are not all finite")
    return forms


def _weights(model: Fitted) -> Array:
    """Of a linear model, one row for each of its scores; they may have been made sparse."""
    coef = model.coef_
    return np.atleast_2d(coef.toarray() if hasattr(coef, "toarray") else coef)


def _linear(model: Fitted, columns: list[Column], basis: Basis, link: Link) -> nn.Module:
    coef = _weights(model)
    n_classes = len(model.classes_)
    if len(coef) != (1 if n_classes == 2 else n_classes):
        raise Refused(f"{type(model).__name__} has {len(coef)} rows of weights for {n_classes} classes")
    return Scored(Affine(_merged(columns, coef.T, model.intercept_, basis)), link)


def _logistic(model: Fitted, columns: list[Column], basis: Basis) -> nn.Module:
    binary = len(model.classes_) == 2
    scheme = getattr(model, "multi_class", "auto")
    if scheme == "multinomial" and binary:
        raise Refused("LogisticRegression uses multi_class='multinomial' for two classes. Leave it out")
    if binary:
        return _linear(model, columns, basis, "sigmoid")
    one_vs_rest = scheme == "ovr" or (scheme != "multinomial" and model.solver == "liblinear")
    return _linear(model, columns, basis, "one_vs_rest" if one_vs_rest else "softmax")


def _discriminant(model: Fitted, columns: list[Column], basis: Basis) -> nn.Module:
    return _linear(model, columns, basis, "sigmoid" if len(model.classes_) == 2 else "softmax")


def _margin(model: Fitted, columns: list[Column], basis: Basis) -> nn.Module:
    return _linear(model, columns, basis, "margin")


def _descent(model: Fitted, columns: list[Column], basis: Basis) -> nn.Module:
    if model.loss == "modified_huber":
        raise Refused("SGDClassifier with loss='modified_huber' has no gradient where it is sure")
    if model.loss == "log_loss":
        return _linear(model, columns, basis, "sigmoid" if len(model.classes_) == 2 else "one_vs_rest")
    return _margin(model, columns, basis)


def _quadratic_discriminant(model: Fitted, columns: list[Column], basis: Basis) -> nn.Module:
    maps = []
    for mean, rotation, scaling in zip(model.means_, model.rotations_, model.scalings_, strict=True):
        weight = rotation * scaling**-0.5
        maps.append(_merged(columns, weight, -mean @ weight, basis))
    logs = np.array([np.log(scaling).sum() for scaling in model.scalings_])
    return _generative(maps, -0.5 * logs, model.priors_)


def _naive_bayes(model: Fitted, columns: list[Column], basis: Basis) -> nn.Module:
    deviation = np.sqrt(model.var_)
    maps = [
        _merged(columns, np.diag(1 / d), -mean / d, basis)
        for mean, d in zip(model.theta_, deviation, strict=True)
    ]
    return _generative(maps, -np.log(deviation).sum(axis=1), model.class_prior_)


def _generative(maps: Sequence[Array], log_volume: Array, priors: Array) -> nn.Module:
    if np.min(priors) <= 0:
        raise Refused("a class has no prior probability, so that its logit is infinite")
    return Scored(Quadratic(maps, log_volume + np.log(priors)), "softmax")


def _perceptron(model: Fitted, columns: list[Column], basis: Basis) -> nn.Module:
    link: dict[str, Link] = {"logistic": "sigmoid", "softmax": "softmax"}
    outputs = 1 if len(model.classes_) == 2 else len(model.classes_)
    if model.out_activation_ not in link or model.n_outputs_ != outputs:
        raise Refused(f"MLPClassifier has {model.n_outputs_} outputs by {model.out_activation_}")
    return Scored(_layers(model, columns, basis), link[model.out_activation_])


def _layers(model: Fitted, columns: list[Column], basis: Basis) -> nn.Module:
    """A perceptron up to the activation of its outputs."""
    layers: list[nn.Module] = [Affine(_merged(columns, model.coefs_[0], model.intercepts_[0], basis))]
    for weight, bias in zip(model.coefs_[1:], model.intercepts_[1:], strict=True):
        layers += [_ACTIVATIONS[model.activation](), Affine(weight, bias)]
    return nn.Sequential(*layers)


def _calibrated(model: Fitted, columns: list[Column], basis: Basis) -> nn.Module:
    members = []
    for part in model.calibrated_classifiers_:
        if part.method != "sigmoid":
            raise Refused(f"CalibratedClassifierCV calibrates by {part.method!r}; only 'sigmoid' is smooth")
        inner = part.estimator
        if len(inner.classes_) != len(part.classes):
            raise Refused("CalibratedClassifierCV has a member that has not seen every class")
        slope, offset = (np.array([getattr(c, name) for c in part.calibrators]) for name in ("a_", "b_"))
        by_decision = hasattr(inner, "decision_function")
        members.append(Calibrated(estimator(inner, columns, basis), by_decision, slope, offset))
    return Average(members, np.ones(len(members)))


def _voting(model: Fitted, columns: list[Column], basis: Basis) -> nn.Module:
    if model.voting != "soft":
        raise Refused("VotingClassifier counts votes, which have no gradient; voting='soft' has one")
    kept = [not isinstance(member, str) for _, member in model.estimators]
    weights = np.ones(len(kept)) if model.weights is None else np.asarray(model.weights, dtype=np.float64)
    members = [(m, w) for m, w in zip(model.estimators_, weights[kept], strict=True) if w]
    parts = [estimator(member, columns, basis) for member, _ in members]
    return Average(parts, np.array([weight for _, weight in members]))


def _linear_regression(model: Fitted, columns: list[Column], basis: Basis) -> nn.Module:
    coef = _weights(model)
    _check_single(model, len(coef))
    return Affine(_merged(columns, coef.T, model.intercept_, basis))


def _perceptron_regression(model: Fitted, columns: list[Column], basis: Basis) -> nn.Module:
    _check_single(model, model.n_outputs_)
    outputs: dict[str, Callable[[], nn.Module]] = {"identity": nn.Identity, "exp": Exponential}
    if model.out_activation_ not in outputs:
        raise Refused(f"MLPRegressor predicts by {model.out_activation_}")
    return nn.Sequential(_layers(model, columns, basis), outputs[model.out_activation_]())


def _check_single(model: Fitted, n: int) -> None:
    if n != 1:
        raise Refused(f"{type(model).__name__} predicts {n} numbers for each row, not one")


def _transformed_target(model: Fitted, columns: list[Column], basis: Basis) -> nn.Module:
    """A regressor of a scaled target; the scaler is asked what zero and one stand for."""
    scaler, regressor = model.transformer_, model.regressor_
    if not is_regressor(regressor):
        raise Refused(f"{type(regressor).__name__} is not a regressor, but predicts the transformed target")
    module, kind = estimator(regressor, columns, basis), kind_of(scaler)
    if kind == "FunctionTransformer" and scaler.func is None and scaler.inverse_func is None:
        return module
    if kind not in _TARGET_SCALERS:
        how = f"{scaler.inverse_func!r} makes" if kind == "FunctionTransformer" else f"{kind} makes"
        raise Refused(f"{how} the prediction from the transformed target; only scalers of it are converted")
    zero, one = np.ravel(ask(scaler, "inverse_transform", np.array([[0.0], [1.0]])))
    return nn.Sequential(module, Affine(np.array([[one - zero]]), np.array([zero])))


_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "identity": nn.Identity,
    "logistic": nn.Sigmoid,
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
}
_WRAPPERS = {
    "GridSearchCV": "best_estimator_",
    "RandomizedSearchCV": "best_estimator_",
    "HalvingGridSearchCV": "best_estimator_",
    "HalvingRandomSearchCV": "best_estimator_",
    "FrozenEstimator": "estimator",
}
_TARGET_SCALERS = ("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler")
_ESTIMATORS: dict[str, Callable[[Fitted, list[Column], Basis], nn.Module]] = {
    "LogisticRegression": _logistic,
    "LogisticRegressionCV": _logistic,
    "SGDClassifier": _descent,
    "LinearSVC": _margin,
    "RidgeClassifier": _margin,
    "RidgeClassifierCV": _margin,
    "Perceptron": _margin,
    "LinearDiscriminantAnalysis": _discriminant,
    "QuadraticDiscriminantAnalysis": _quadratic_discriminant,
    "GaussianNB": _naive_bayes,
    "MLPClassifier": _perceptron,
    "CalibratedClassifierCV": _calibrated,
    "VotingClassifier": _voting,
    "LinearRegression": _linear_regression,
    "Ridge": _linear_regression,
    "RidgeCV": _linear_regression,
    "Lasso": _linear_regression,
    "LassoCV": _linear_regression,
    "ElasticNet": _linear_regression,
    "ElasticNetCV": _linear_regression,
    "SGDRegressor": _linear_regression,
    "LinearSVR": _linear_regression,
    "HuberRegressor": _linear_regression,
    "BayesianRidge": _linear_regression,
    "MLPRegressor": _perceptron_regression,
    "TransformedTargetRegressor": _transformed_target,
}
