"""Forests read from fitted models of scikit-learn, XGBoost, LightGBM and CatBoost.

The readers only use the fitted object itself, so the boosting libraries are not imported here. They refuse
what a forest cannot represent exactly: categorical splits, linear leaves, and links other than sigmoid and
softmax.
"""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from sklearn.dummy import DummyClassifier, DummyRegressor
from torch import Tensor

from plausiflow.models.sklearn.columns import Fitted, UnsupportedModelError
from plausiflow.models.trees.forest import Forest, Tree
from plausiflow.models.trees.level_sets import THRESHOLD, LevelSets, bitset_levels, refuse_sets
from plausiflow.models.trees.one_hot import OneHotSplits

_XGBOOST_IDENTITY = {"reg:squarederror", "reg:absoluteerror", "reg:pseudohubererror"}
_LIGHTGBM_IDENTITY = {"regression", "regression_l1", "huber", "fair", "quantile", "mape"}
_CATBOOST_IDENTITY = {"RMSE", "MAE", "MAPE", "Quantile", "Huber", "LogCosh", "Lq", "Expectile"}

_LIGHTGBM_ROUNDS = 32
_UNKNOWN_LINK = "predicts through a link that is not known here"


def read_hist_gradient_boosting(model: Fitted, sets: LevelSets | None = None) -> Forest:
    """Read a ``HistGradientBoostingClassifier`` or ``HistGradientBoostingRegressor``."""
    name = type(model).__name__
    if not hasattr(model, "_predictors"):
        raise UnsupportedModelError(f"{name} is not fitted")
    categorical = getattr(model, "is_categorical_", None)
    n_categorical = 0 if categorical is None else int(np.sum(categorical))
    if n_categorical and sets is None:
        raise UnsupportedModelError(f"{name} splits {n_categorical} categorical columns by sets of levels")
    if getattr(model, "loss", "") in ("poisson", "gamma"):
        raise UnsupportedModelError(f"{name} with loss={model.loss!r} predicts through a logarithm")
    base = torch.as_tensor(np.ravel(model._baseline_prediction), dtype=torch.float64)
    shift = int(hasattr(model, "classes_") and len(base) == 1)
    trees = hist_trees(model, shift, sets)
    return Forest.from_trees(trees, _with_first_class(base, shift), model.n_features_in_, inclusive=True)


def hist_trees(model: Fitted, first_output: int, sets: LevelSets | None = None) -> list[Tree]:
    """Return the trees of histogram gradient boosting; each iteration starts at ``first_output``."""
    trees = []
    for iteration in model._predictors:
        for output, predictor in enumerate(iteration, start=first_output):
            nodes, is_leaf = predictor.nodes, predictor.nodes["is_leaf"].astype(bool)
            feature, threshold = nodes["feature_idx"].tolist(), nodes["num_threshold"].tolist()
            by_set = nodes["is_categorical"].astype(bool) & ~is_leaf
            for i in np.flatnonzero(by_set).tolist():
                assert sets is not None
                levels = bitset_levels(predictor.raw_left_cat_bitsets[nodes["bitset_idx"][i]])
                feature[i], threshold[i] = sets.column(feature[i], levels, left=True), THRESHOLD
            trees.append(
                Tree(
                    feature=feature,
                    threshold=threshold,
                    missing_left=nodes["missing_go_to_left"].astype(bool).tolist(),
                    left=np.where(is_leaf, -1, nodes["left"].astype(np.int64)).tolist(),
                    right=nodes["right"].tolist(),
                    value=nodes["value"].tolist(),
                    output=output,
                )
            )
    return trees


def read_gradient_boosting(model: Fitted) -> Forest:
    """Read a ``GradientBoostingClassifier`` or ``GradientBoostingRegressor`` with a constant start."""
    name = type(model).__name__
    if not hasattr(model, "estimators_"):
        raise UnsupportedModelError(f"{name} is not fitted")
    if not isinstance(model.init_, str | DummyClassifier | DummyRegressor):
        raise UnsupportedModelError(f"{name} starts from the answers of {type(model.init_).__name__}")
    n_features, classifier = model.n_features_in_, hasattr(model, "classes_")
    base = np.ravel(model._raw_predict_init(np.zeros((1, n_features), dtype=np.float32)))
    shift = int(classifier and len(base) == 1)
    # The exponential loss predicts half of the log-odds.
    factor = 2.0 if classifier and model.loss == "exponential" else 1.0
    trees = [
        _gradient_boosting_tree(tree.tree_, output, factor * model.learning_rate)
        for stage in model.estimators_
        for output, tree in enumerate(stage, start=shift)
    ]
    outputs = _with_first_class(torch.as_tensor(factor * base, dtype=torch.float64), shift)
    return Forest.from_trees(trees, outputs, n_features, inclusive=True, single=True)


def _gradient_boosting_tree(tree: Fitted, output: int, factor: float) -> Tree:
    return Tree(
        feature=np.maximum(tree.feature, 0).tolist(),
        threshold=tree.threshold.tolist(),
        missing_left=tree.missing_go_to_left.astype(bool).tolist(),
        left=tree.children_left.tolist(),
        right=tree.children_right.tolist(),
        value=(factor * tree.value[:, 0, 0]).tolist(),
        output=output,
    )


def read_xgboost(model: Fitted, sets: LevelSets | None = None) -> Forest:
    """Read an ``XGBClassifier``, ``XGBRegressor`` or ``Booster``.

    After early stopping, an estimator gives only the trees that it predicts with; a ``Booster`` gives all.
    """
    _check_fitted(model)
    is_estimator = hasattr(model, "get_booster")
    if is_estimator and not math.isnan(model.missing):
        raise UnsupportedModelError(
            f"{type(model).__name__} takes {model.missing} for missing. Write NaN instead"
        )
    booster = model.get_booster() if is_estimator else model
    learner = json.loads(bytes(booster.save_raw("json")))["learner"]
    gradient = learner["gradient_booster"]
    if gradient["name"] not in ("gbtree", "dart"):
        raise UnsupportedModelError(f"XGBoost with booster={gradient['name']!r} has no trees")
    stored = (gradient["gbtree"] if gradient["name"] == "dart" else gradient)["model"]
    weights = gradient.get("weight_drop", [1.0] * len(stored["trees"]))
    base, shift = _xgboost_base(learner)
    count, best = len(stored["trees"]), learner["attributes"].get("best_iteration")
    if is_estimator and best is not None:
        groups = 1 if shift else len(base)
        count = (int(best) + 1) * groups * int(stored["gbtree_model_param"].get("num_parallel_tree", 1))
    columns = zip(stored["trees"], stored["tree_info"], weights, strict=True)
    trees = [_xgboost_tree(tree, output + shift, weight, sets) for tree, output, weight in columns]
    n_features = int(learner["learner_model_param"]["num_feature"])
    return Forest.from_trees(trees[:count], base, n_features, inclusive=False, single=True, single_sums=True)


def _xgboost_base(learner: dict[str, Any]) -> tuple[Tensor, int]:
    """Return the outputs before the first tree, and the output of the first tree."""
    objective, parameters = learner["objective"]["name"], learner["learner_model_param"]
    base = torch.as_tensor(np.ravel(json.loads(parameters["base_score"])), dtype=torch.float64)
    if int(parameters.get("num_target", 1)) > 1:
        raise UnsupportedModelError("XGBoost predicts several targets at once")
    if objective == "binary:logistic":
        return _with_first_class(torch.logit(base), 1), 1
    if objective in ("multi:softprob", "multi:softmax"):
        return base.expand(int(parameters["num_class"])).clone(), 0
    if objective in _XGBOOST_IDENTITY:
        return base, 0
    raise UnsupportedModelError(f"XGBoost with objective={objective!r} {_UNKNOWN_LINK}")


def _xgboost_tree(tree: dict[str, Any], output: int, weight: float, sets: LevelSets | None) -> Tree:
    if any(tree["split_type"]) and sets is None:
        raise refuse_sets("XGBoost")
    if int(tree["tree_param"]["size_leaf_vector"]) > 1:
        raise UnsupportedModelError(
            "XGBoost has leaves with several values (multi_strategy='multi_output_tree')"
        )
    conditions = np.asarray(tree["split_conditions"], dtype=np.float32).astype(np.float64)
    feature, threshold = list(tree["split_indices"]), conditions.tolist()
    parts = (tree.get(f"categories_{name}", ()) for name in ("nodes", "segments", "sizes"))
    for node, start, size in zip(*parts, strict=True):
        assert sets is not None
        levels = tree["categories"][start : start + size]  # they go right
        feature[node], threshold[node] = sets.column(feature[node], levels, left=False), THRESHOLD
    return Tree(
        feature=feature,
        threshold=threshold,
        missing_left=tree["default_left"],
        left=tree["left_children"],
        right=tree["right_children"],
        value=(weight * conditions).tolist(),
        output=output,
    )


def read_lightgbm(model: Fitted, sets: LevelSets | None = None) -> Forest:
    """Read an ``LGBMClassifier``, ``LGBMRegressor`` or ``Booster``, up to its best iteration."""
    _check_fitted(model)
    booster = model.booster_ if hasattr(model, "booster_") else model
    rounds = booster.best_iteration if booster.best_iteration > 0 else booster.current_iteration()
    dump = booster.dump_model(num_iteration=1)
    objective, *settings = dump.get("objective", "unknown").split()
    options = dict(setting.partition(":")[::2] for setting in settings)
    identity = objective in _LIGHTGBM_IDENTITY and "sqrt" not in options
    if objective not in ("binary", "multiclass") and not identity:
        raise UnsupportedModelError(f"LightGBM with objective={objective!r} {_UNKNOWN_LINK}")
    groups, shift = int(dump["num_tree_per_iteration"]), int(objective == "binary")
    factor = float(options.get("sigmoid", 1)) if shift else 1.0
    if dump.get("average_output"):
        factor *= groups / max(1, rounds * groups)
    trees = [
        _lightgbm_tree(tree["tree_structure"], number % groups + shift, factor, sets)
        for start in range(0, rounds, _LIGHTGBM_ROUNDS)  # a dump takes a kilobyte for each node
        for number, tree in enumerate(
            booster.dump_model(min(_LIGHTGBM_ROUNDS, rounds - start), start)["tree_info"]
        )
    ]
    base = torch.zeros(groups + shift, dtype=torch.float64)
    return Forest.from_trees(trees, base, dump["max_feature_idx"] + 1, inclusive=True)


def _lightgbm_tree(root: dict[str, Any], output: int, factor: float, sets: LevelSets | None) -> Tree:
    """Flatten the nested nodes of one tree."""
    nodes, left, right = [root], [], []
    for node in nodes:  # the list grows during the loop
        is_leaf = "left_child" not in node
        left.append(-1 if is_leaf else len(nodes))
        right.append(-1 if is_leaf else len(nodes) + 1)
        if not is_leaf:
            nodes += [node["left_child"], node["right_child"]]
        if node.get("leaf_coeff") or "leaf_const" in node:
            raise UnsupportedModelError("LightGBM has linear models in its leaves")
        if node.get("decision_type", "<=") == "==" and sets is not None:
            levels = map(int, str(node["threshold"]).split("||"))
            # A category that is missing or unknown goes right.
            own = {"split_feature": sets.column(node["split_feature"], levels, left=True)}
            node |= own | {"threshold": THRESHOLD, "missing_type": "NaN", "default_left": False}
        elif node.get("decision_type", "<=") != "<=":
            raise refuse_sets("LightGBM")
        if node.get("missing_type") == "Zero":
            raise UnsupportedModelError("LightGBM takes zero for missing (zero_as_missing=True)")
    threshold = [float(node.get("threshold", 0.0)) for node in nodes]
    return Tree(
        feature=[node.get("split_feature", 0) for node in nodes],
        threshold=threshold,
        missing_left=[
            # If no training row misses the value, LightGBM treats a missing value as zero.
            bool(node.get("default_left")) if node.get("missing_type") == "NaN" else limit >= 0.0
            for node, limit in zip(nodes, threshold, strict=True)
        ],
        left=left,
        right=right,
        value=[factor * node.get("leaf_value", 0.0) for node in nodes],
        output=output,
    )


def read_catboost(model: Fitted, sets: LevelSets | None = None) -> Forest:
    """Read a ``CatBoostClassifier`` or ``CatBoostRegressor``, up to its best iteration."""
    if not model.is_fitted():
        raise UnsupportedModelError(f"{type(model).__name__} is not fitted")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        model.save_model(str(path), format="json")
        dump = json.loads(path.read_text())
    loss = dump.get("model_info", {}).get("params", {}).get("loss_function", {}).get("type", "unknown")
    if loss not in {"Logloss", "CrossEntropy", "MultiClass"} | _CATBOOST_IDENTITY:
        raise UnsupportedModelError(f"CatBoost with loss_function={loss!r} {_UNKNOWN_LINK}")
    scale, bias = dump["scale_and_bias"]
    base, shift = torch.as_tensor(bias, dtype=torch.float64), int(loss in ("Logloss", "CrossEntropy"))
    columns = {column["feature_index"]: column for column in dump["features_info"]["float_features"]}
    one_hot = OneHotSplits.of(dump, sets is not None)
    if sets is not None and one_hot.splits:
        sets.numbers = partial(one_hot.numbers, model)
    if "oblivious_trees" in dump:
        nodes = [_oblivious_nodes(tree["splits"], tree["leaf_values"]) for tree in dump["oblivious_trees"]]
    else:
        nodes = [_nested_nodes(root) for root in dump["trees"]]
    trees = [
        _catboost_tree(tree, columns, output, shift, scale, one_hot, sets)
        for tree in nodes
        for output in range(len(base))
    ]
    base = _with_first_class(base, shift)
    return Forest.from_trees(trees, base, model.n_features_in_, inclusive=True, single=True)


def _oblivious_nodes(splits: list[dict[str, Any]], values: list[float]) -> list[dict[str, Any]]:
    """Flatten a tree that has one split per depth, level by level.

    CatBoost numbers a leaf by its path: the first split is the lowest bit, which is one on the right.
    """
    depth, nodes = len(splits), []
    for level, split in enumerate(splits):
        numbers = range((1 << level) - 1, (2 << level) - 1)
        nodes += [{"split": split, "left": 2 * i + 1, "right": 2 * i + 2} for i in numbers]
    outputs = len(values) >> depth
    for path in range(1 << depth):
        leaf = int(f"{path:b}".zfill(depth)[::-1], 2)
        nodes.append({"value": values[leaf * outputs : (leaf + 1) * outputs]})
    return nodes


def _nested_nodes(root: dict[str, Any]) -> list[dict[str, Any]]:
    """Flatten a tree of nested nodes."""
    nodes, flat = [root], []
    for node in nodes:  # the list grows during the loop
        if "split" in node:
            flat.append({"split": node["split"], "left": len(nodes), "right": len(nodes) + 1})
            nodes += [node["left"], node["right"]]
        else:
            flat.append({"value": np.ravel(node["value"]).tolist()})
    return flat


def _catboost_tree(
    nodes: list[dict[str, Any]],
    columns: dict[int, dict[str, Any]],
    output: int,
    shift: int,
    scale: float,
    one_hot: OneHotSplits,
    sets: LevelSets | None,
) -> Tree:
    """Return the part of a tree that adds to one output; a value above the border goes right."""
    splits = [node.get("split") for node in nodes]
    feature, threshold, missing_left = [], [], []
    for split in splits:
        if split is None:
            asked, limit, left = 0, 0.0, True
        elif "cat_feature_index" in split:
            assert sets is not None
            column, number = one_hot.place(split)
            asked, limit, left = sets.column(column, [number], left=False), THRESHOLD, True
        else:
            own = columns[split["float_feature_index"]]
            asked, limit = own["flat_feature_index"], float(np.float32(split["border"]))
            left = own["nan_value_treatment"] != "AsTrue"
        feature.append(asked)
        threshold.append(limit)
        missing_left.append(left)
    return Tree(
        feature=feature,
        threshold=threshold,
        missing_left=missing_left,
        left=[node.get("left", -1) for node in nodes],
        right=[node.get("right", -1) for node in nodes],
        value=[scale * node["value"][output] if "value" in node else 0.0 for node in nodes],
        output=output + shift,
    )


def _check_fitted(model: Fitted) -> None:
    """Refuse an estimator of XGBoost or LightGBM that is not fitted; a booster is always fitted."""
    if hasattr(model, "__sklearn_is_fitted__") and not model.__sklearn_is_fitted__():
        raise UnsupportedModelError(f"{type(model).__name__} is not fitted")


def _with_first_class(base: Tensor, shift: int) -> Tensor:
    """Prepend ``shift`` zeros: the logits of a binary model are zero and its raw score."""
    return torch.cat([base.new_zeros(shift), base])
