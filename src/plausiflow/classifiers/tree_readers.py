"""Forests read from fitted models of scikit-learn, XGBoost and LightGBM, and a student of any other model.

Only the model's own object is asked, so that neither XGBoost nor LightGBM is imported here. What a forest
cannot hold exactly is refused: categorical splits, linear leaves, and links other than sigmoid and softmax.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from torch import Tensor

from plausiflow.classifiers.columns import Fitted, Refused
from plausiflow.classifiers.trees import Forest, Tree
from plausiflow.errors import InvalidInputError, ShapeError

_IDENTITY = {"reg:squarederror", "reg:absoluteerror", "reg:pseudohubererror"}
_LIGHT_IDENTITY = {"regression", "regression_l1", "huber", "fair", "quantile", "mape"}
_RARE = 1e-3


def read_hist_gradient_boosting(model: Fitted) -> Forest:
    """The trees of a ``HistGradientBoostingClassifier`` or ``HistGradientBoostingRegressor``.

    Raises:
        Refused: It has categorical columns, predicts through a logarithm, or is not fitted.
    """
    if not hasattr(model, "_predictors"):
        raise Refused(f"{type(model).__name__} is not fitted")
    categorical = getattr(model, "is_categorical_", None)
    if categorical is not None and np.any(categorical):
        count = int(np.sum(categorical))
        raise Refused(f"{type(model).__name__} splits {count} categorical columns by sets of levels")
    if getattr(model, "loss", "") in ("poisson", "gamma"):
        raise Refused(f"{type(model).__name__} with loss={model.loss!r} predicts through a logarithm")
    base = torch.as_tensor(np.ravel(model._baseline_prediction), dtype=torch.float64)
    shift = int(hasattr(model, "classes_") and len(base) == 1)
    return Forest.of(
        _hist_trees(model, shift), _behind_zero(base, shift), model.n_features_in_, inclusive=True
    )


def _hist_trees(model: Fitted, first: int) -> list[Tree]:
    """The trees of a model, the first of each iteration for output ``first``."""
    trees = []
    for iteration in model._predictors:
        for output, predictor in enumerate(iteration, start=first):
            nodes, is_leaf = predictor.nodes, predictor.nodes["is_leaf"].astype(bool)
            trees.append(
                Tree(
                    feature=nodes["feature_idx"].tolist(),
                    threshold=nodes["num_threshold"].tolist(),
                    missing_left=nodes["missing_go_to_left"].astype(bool).tolist(),
                    left=np.where(is_leaf, -1, nodes["left"].astype(np.int64)).tolist(),
                    right=nodes["right"].tolist(),
                    value=nodes["value"].tolist(),
                    output=output,
                )
            )
    return trees


def read_xgboost(model: Fitted) -> Forest:
    """The trees of an ``XGBClassifier``, an ``XGBRegressor``, or a ``Booster``.

    Of a model that was stopped early only the trees that it predicts with; of a ``Booster`` all.

    Raises:
        Refused: It has categorical splits or linear models, or an objective that is not known here.
    """
    _check_fitted(model)
    estimator = hasattr(model, "get_booster")
    if estimator and not math.isnan(model.missing):
        raise Refused(f"{type(model).__name__} takes {model.missing} for missing. Write NaN instead")
    booster = model.get_booster() if estimator else model
    learner = json.loads(bytes(booster.save_raw("json")))["learner"]
    gradient = learner["gradient_booster"]
    if gradient["name"] not in ("gbtree", "dart"):
        raise Refused(f"XGBoost with booster={gradient['name']!r} has no trees")
    stored = (gradient["gbtree"] if gradient["name"] == "dart" else gradient)["model"]
    weights = gradient.get("weight_drop", [1.0] * len(stored["trees"]))
    base, shift = _xgboost_base(learner)
    count, best = len(stored["trees"]), learner["attributes"].get("best_iteration")
    if estimator and best is not None:
        groups = 1 if shift else len(base)
        count = (int(best) + 1) * groups * int(stored["gbtree_model_param"].get("num_parallel_tree", 1))
    columns = zip(stored["trees"], stored["tree_info"], weights, strict=True)
    trees = [_xgboost_tree(tree, output + shift, weight) for tree, output, weight in columns]
    n_features = int(learner["learner_model_param"]["num_feature"])
    return Forest.of(trees[:count], base, n_features, inclusive=False, single=True)


def _xgboost_base(learner: dict[str, Any]) -> tuple[Tensor, int]:
    """Outputs before any tree, and the output of the first tree."""
    objective, parameters = learner["objective"]["name"], learner["learner_model_param"]
    base = torch.as_tensor(np.ravel(json.loads(parameters["base_score"])), dtype=torch.float64)
    if int(parameters.get("num_target", 1)) > 1:
        raise Refused("XGBoost predicts several targets at once")
    if objective == "binary:logistic":
        return _behind_zero(torch.logit(base), 1), 1
    if objective in ("multi:softprob", "multi:softmax"):
        return base.expand(int(parameters["num_class"])).clone(), 0
    if objective in _IDENTITY:
        return base, 0
    raise Refused(f"XGBoost with objective={objective!r} predicts through a link that is not known here")


def _xgboost_tree(tree: dict[str, Any], output: int, weight: float) -> Tree:
    if any(tree["split_type"]):
        raise Refused("XGBoost splits categorical columns by sets of levels")
    if int(tree["tree_param"]["size_leaf_vector"]) > 1:
        raise Refused("XGBoost has leaves with several values (multi_strategy='multi_output_tree')")
    single = np.asarray(tree["split_conditions"], dtype=np.float32).astype(np.float64)
    return Tree(
        feature=tree["split_indices"],
        threshold=single.tolist(),
        missing_left=tree["default_left"],
        left=tree["left_children"],
        right=tree["right_children"],
        value=(weight * single).tolist(),
        output=output,
    )


def read_lightgbm(model: Fitted) -> Forest:
    """The trees of an ``LGBMClassifier``, an ``LGBMRegressor``, or a ``Booster``, up to its best iteration.

    Raises:
        Refused: It has categorical splits or linear leaves, takes zero for missing, or has an objective that
            is not known here.
    """
    _check_fitted(model)
    dump = (model.booster_ if hasattr(model, "booster_") else model).dump_model()
    objective, *settings = dump.get("objective", "unknown").split()
    options = dict(setting.partition(":")[::2] for setting in settings)
    groups, factor = int(dump["num_tree_per_iteration"]), 1.0
    known = objective in ("binary", "multiclass") or (objective in _LIGHT_IDENTITY and "sqrt" not in options)
    if not known:
        raise Refused(f"LightGBM with objective={objective!r} predicts through a link that is not known here")
    if objective == "binary":
        factor = float(options.get("sigmoid", 1))
    if dump.get("average_output"):
        factor *= groups / max(1, len(dump["tree_info"]))
    shift = int(objective == "binary")
    trees = [
        _lightgbm_tree(tree["tree_structure"], number % groups + shift, factor)
        for number, tree in enumerate(dump["tree_info"])
    ]
    base = torch.zeros(groups + shift, dtype=torch.float64)
    return Forest.of(trees, base, dump["max_feature_idx"] + 1, inclusive=True)


def _lightgbm_tree(root: dict[str, Any], output: int, factor: float) -> Tree:
    """One tree, its nested nodes in a row."""
    nodes, left, right = [root], [], []
    for node in nodes:  # grows while it is walked
        is_leaf = "left_child" not in node
        left.append(-1 if is_leaf else len(nodes))
        right.append(-1 if is_leaf else len(nodes) + 1)
        if not is_leaf:
            nodes += [node["left_child"], node["right_child"]]
        if node.get("leaf_coeff") or "leaf_const" in node:
            raise Refused("LightGBM has linear models in its leaves")
        if node.get("decision_type", "<=") != "<=":
            raise Refused("LightGBM splits categorical columns by sets of levels")
        if node.get("missing_type") == "Zero":
            raise Refused("LightGBM takes zero for missing (zero_as_missing=True)")
    threshold = [float(node.get("threshold", 0.0)) for node in nodes]
    return Tree(
        feature=[node.get("split_feature", 0) for node in nodes],
        threshold=threshold,
        missing_left=[
            # Where training rows missed nothing, LightGBM reads a missing cell as zero.
            bool(node.get("default_left")) if node.get("missing_type") == "NaN" else limit >= 0.0
            for node, limit in zip(nodes, threshold, strict=True)
        ],
        left=left,
        right=right,
        value=[factor * node.get("leaf_value", 0.0) for node in nodes],
        output=output,
    )


def student(
    x: Tensor, logits: Tensor, *, n_trees: int = 100, n_leaves: int = 31, clip: float = 3.5, seed: int = 0
) -> Forest:
    """A forest that imitates any classifier, most closely where that is undecided.

    Two classes take one regression, of the difference of their logits; more take one each, of centred
    log-probabilities. Beyond ``clip`` there is nothing to learn: the class is clear.

    Args:
        x: Rows as the model takes them, NaN where a cell is missing, shape ``(n, d)``.
        logits: Its answers, shape ``(n, k)``; minus infinity is allowed.
        n_trees: Of each regression.
        n_leaves: The most leaves of a tree.
        clip: Largest logit that is learned.
        seed: Of the bins, where there are many rows.

    Returns:
        A forest with k outputs, whose softmax is close to the model's probabilities.
    """
    if x.ndim != 2 or logits.ndim != 2 or len(x) != len(logits) or logits.shape[1] < 2:
        raise ShapeError(
            "`x` must have shape (n, d) and `logits` (n, k), with a column for each of at least two classes; "
            f"got {tuple(x.shape)} and {tuple(logits.shape)}."
        )
    if bool(logits.isnan().any()) or not 0 < clip < float("inf"):
        raise InvalidInputError(f"`logits` must not be NaN, and `clip` positive and finite; got {clip}.")
    log_proba = logits.detach().double().cpu().log_softmax(dim=1)
    sure = log_proba.exp().amax(dim=1)
    weight = 4 * sure * (1 - sure) + 0.1
    trees, base = [], torch.zeros(logits.shape[1], dtype=torch.float64)
    for output, goal in _goals(log_proba).items():
        regressor = HistGradientBoostingRegressor(
            max_iter=n_trees,
            max_leaf_nodes=n_leaves,
            min_samples_leaf=10,
            learning_rate=0.15,
            early_stopping=False,
            random_state=seed,
        )
        goal = goal.clamp(-clip, clip)
        regressor.fit(x.detach().double().cpu().numpy(), goal.numpy(), sample_weight=weight.numpy())
        trees += _hist_trees(regressor, output)
        base[output] = float(np.ravel(regressor._baseline_prediction)[0])
    return Forest.of(trees, base, x.shape[1], inclusive=True)


def _goals(log_proba: Tensor) -> dict[int, Tensor]:
    """What each output learns."""
    if log_proba.shape[1] == 2:
        return {1: log_proba[:, 1] - log_proba[:, 0]}
    # A class that is out of the question would pull the centre to minus infinity.
    bounded = log_proba.clamp_min(math.log(_RARE)).log_softmax(dim=1)
    return dict(enumerate((bounded - bounded.mean(dim=1, keepdim=True)).unbind(dim=1)))


def _check_fitted(model: Fitted) -> None:
    """Refuse an estimator of XGBoost or LightGBM that is not fitted; a booster always is."""
    if hasattr(model, "__sklearn_is_fitted__") and not model.__sklearn_is_fitted__():
        raise Refused(f"{type(model).__name__} is not fitted")


def _behind_zero(base: Tensor, shift: int) -> Tensor:
    """Outputs behind ``shift`` that are zero: the logits of a binary model are zero and its raw score."""
    return torch.cat([base.new_zeros(shift), base])
