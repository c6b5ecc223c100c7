"""Forests read from fitted models of XGBoost, LightGBM and CatBoost.

Only the model's own object is asked, so that none of these libraries is imported here. What a forest cannot
hold exactly is refused: categorical splits, linear leaves, and links other than sigmoid and softmax.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plausiflow.models.sklearn.columns import Fitted, Refused
from plausiflow.models.trees.forest import Forest, Tree, behind_zero

_IDENTITY = {"reg:squarederror", "reg:absoluteerror", "reg:pseudohubererror"}
_LIGHT_IDENTITY = {"regression", "regression_l1", "huber", "fair", "quantile", "mape"}
_CAT_IDENTITY = {"RMSE", "MAE", "MAPE", "Quantile", "Huber", "LogCosh", "Lq", "Expectile"}


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
    return Forest.of(trees[:count], base, n_features, inclusive=False, single=True, single_sums=True)


def _xgboost_base(learner: dict[str, Any]) -> tuple[Tensor, int]:
    """Outputs before any tree, and the output of the first tree."""
    objective, parameters = learner["objective"]["name"], learner["learner_model_param"]
    base = torch.as_tensor(np.ravel(json.loads(parameters["base_score"])), dtype=torch.float64)
    if int(parameters.get("num_target", 1)) > 1:
        raise Refused("XGBoost predicts several targets at once")
    if objective == "binary:logistic":
        return behind_zero(torch.logit(base), 1), 1
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


def _check_fitted(model: Fitted) -> None:
    """Refuse an estimator of XGBoost or LightGBM that is not fitted; a booster always is."""
    if hasattr(model, "__sklearn_is_fitted__") and not model.__sklearn_is_fitted__():
        raise Refused(f"{type(model).__name__} is not fitted")


def read_catboost(model: Fitted) -> Forest:
    """The trees of a ``CatBoostClassifier`` or a ``CatBoostRegressor``, up to its best iteration.

    Raises:
        Refused: It has categorical, text or embedding features, or a loss that is not known here.
    """
    if not model.is_fitted():
        raise Refused(f"{type(model).__name__} is not fitted")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        model.save_model(str(path), format="json")
        dump = json.loads(path.read_text())
    loss = dump.get("model_info", {}).get("params", {}).get("loss_function", {}).get("type", "unknown")
    if loss not in {"Logloss", "CrossEntropy", "MultiClass"} | _CAT_IDENTITY:
        raise Refused(f"CatBoost with loss_function={loss!r} predicts through a link that is not known here")
    scale, bias = dump["scale_and_bias"]
    base, shift = torch.as_tensor(bias, dtype=torch.float64), int(loss in ("Logloss", "CrossEntropy"))
    columns = {column["feature_index"]: column for column in dump["features_info"]["float_features"]}
    if "oblivious_trees" in dump:
        nodes = [_oblivious_nodes(tree["splits"], tree["leaf_values"]) for tree in dump["oblivious_trees"]]
    else:
        nodes = [_nested_nodes(root) for root in dump["trees"]]
    trees = [
        _catboost_tree(tree, columns, output, shift, scale) for tree in nodes for output in range(len(base))
    ]
    return Forest.of(trees, behind_zero(base, shift), model.n_features_in_, inclusive=True, single=True)


def _oblivious_nodes(splits: list[dict[str, Any]], values: list[float]) -> list[dict[str, Any]]:
    """A tree with one split for each depth, as nodes in a row: those of a depth, in order, after another.

    Its leaves are numbered by their way: the first split gives the lowest bit, one where a row goes right.
    """
    depth, nodes = len(splits), []
    for level, split in enumerate(splits):
        nodes += [{"split": split, "left": 2 * i + 1, "right": 2 * i + 2} for i in _of_depth(level)]
    outputs = len(values) >> depth
    for way in range(1 << depth):
        leaf = int(f"{way:b}".zfill(depth)[::-1], 2)
        nodes.append({"value": values[leaf * outputs : (leaf + 1) * outputs]})
    return nodes


def _of_depth(level: int) -> range:
    """Numbers of the nodes of one depth in a complete tree."""
    return range((1 << level) - 1, (2 << level) - 1)


def _nested_nodes(root: dict[str, Any]) -> list[dict[str, Any]]:
    """A tree of nested nodes, as nodes in a row."""
    nodes, flat = [root], []
    for node in nodes:  # grows while it is walked
        if "split" in node:
            flat.append({"split": node["split"], "left": len(nodes), "right": len(nodes) + 1})
            nodes += [node["left"], node["right"]]
        else:
            flat.append({"value": np.ravel(node["value"]).tolist()})
    return flat


def _catboost_tree(
    nodes: list[dict[str, Any]], columns: dict[int, dict[str, Any]], output: int, shift: int, scale: float
) -> Tree:
    """What a tree adds to one output; a cell above the border goes right."""
    splits = [node.get("split") for node in nodes]
    kinds = sorted({split["split_type"] for split in splits if split} - {"FloatFeature"})
    if kinds:
        raise Refused(f"CatBoost splits by features that are not numbers ({', '.join(kinds)})")
    cut = [columns[split["float_feature_index"]] if split else None for split in splits]
    return Tree(
        feature=[column["flat_feature_index"] if column else 0 for column in cut],
        threshold=[float(np.float32(split["border"])) if split else 0.0 for split in splits],
        missing_left=[column["nan_value_treatment"] != "AsTrue" if column else True for column in cut],
        left=[node.get("left", -1) for node in nodes],
        right=[node.get("right", -1) for node in nodes],
        value=[scale * node["value"][output] if "value" in node else 0.0 for node in nodes],
        output=output + shift,
    )
