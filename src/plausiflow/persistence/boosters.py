"""Whether files of XGBoost and LightGBM hold trees that lead from node to node.

Both libraries believe their files, and a file that somebody else wrote could end the process. So a file must
have exactly the form that is written here, with arrays of the right lengths and nodes in range.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from plausiflow.errors import InvalidInputError

_INTEGER, _FLOAT = re.compile(r"-?\d{1,18}"), re.compile(r"-?(\d+(\.\d*)?([eE][-+]?\d+)?|inf|nan)")
_XGBOOST_NODES = (
    "base_weights", "default_left", "left_children", "right_children", "loss_changes", "parents",
    "split_conditions", "split_indices", "split_type", "sum_hessian",
)  # fmt: skip
_LIGHTGBM_NODES = {
    "split_feature": int, "split_gain": float, "threshold": float, "decision_type": int, "left_child": int,
    "right_child": int, "internal_value": float, "internal_weight": float, "internal_count": int,
}  # fmt: skip
_LIGHTGBM_LEAVES = {"leaf_value": float, "leaf_weight": float, "leaf_count": int}
_OBJECTIVE = re.compile(r"[a-z_0-9]+( [a-z_]+(:[\d.e+-]+)?)*")
_MOST_CLASSES, _MOST_LEVELS, _NOBODY = 10_000, 1 << 24, 2**31 - 1


def check_xgboost(content: bytes) -> None:
    """Look at the trees of a JSON file of XGBoost.

    Raises:
        InvalidInputError: It has another form, or a node leads nowhere.
    """
    try:
        learner = json.loads(content)["learner"]
        booster, about = learner["gradient_booster"], learner["learner_model_param"]
        model, n_features = booster["model"], int(about["num_feature"])
        classes, parameters = max(1, int(about["num_class"])), model["gbtree_model_param"]
        trees, ends = model["trees"], model["iteration_indptr"]
        _require(booster["name"] == "gbtree" and int(about["num_target"]) == 1, "only plain trees are read")
        _require(
            classes <= _MOST_CLASSES and _named(learner, n_features), "there are too many classes or columns"
        )
        _require(int(parameters["num_trees"]) == len(trees) == len(model["tree_info"]), "trees are missing")
        _require(all(0 <= output < classes for output in model["tree_info"]), "a tree has no output")
        _require(ends[0] == 0 and ends[-1] == len(trees) and ends == sorted(ends), "rounds do not fit")
        _require(1 <= int(parameters["num_parallel_tree"]) <= max(1, len(trees)), "rounds do not fit")
        objective = learner["objective"].get("softmax_multiclass_param", {"num_class": classes})
        _require(int(objective["num_class"]) == classes, "the classes do not fit")
        for number, tree in enumerate(trees):
            _require(tree["id"] == number, "trees are missing")
            _check_xgboost_tree(tree, n_features)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(f"XGBoost cannot read model.json: {error!r}") from error


def _named(learner: Mapping[str, Any], n_features: int) -> bool:
    """Whether columns have names and types, all or none."""
    return all(len(learner[name]) in (0, n_features) for name in ("feature_names", "feature_types"))


def _check_xgboost_tree(tree: Mapping[str, Any], n_features: int) -> None:
    about, left, right = tree["tree_param"], tree["left_children"], tree["right_children"]
    n = int(about["num_nodes"])
    _require(int(about["num_feature"]) == n_features and int(about["size_leaf_vector"]) <= 1, "a tree is odd")
    _require(n >= 1 and all(len(tree[name]) == n for name in _XGBOOST_NODES), "nodes are missing")
    pairs = list(zip(left, right, strict=True))
    _require(all((a == -1) == (b == -1) for a, b in pairs), "a node has one child")
    children = [child for pair in pairs for child in pair if child != -1]
    _require(all(type(c) is int and 0 < c < n for c in children), "a node leads nowhere")
    _require(len(set(children)) == len(children), "a node has two parents")
    parents = {child: own for own, pair in enumerate(pairs) for child in pair}
    _require(all(tree["parents"][child] == parents[child] for child in children), "a node has another parent")
    _require(tree["parents"][0] == _NOBODY, "the root has a parent")
    _require(all(type(f) is int and 0 <= f < max(1, n_features) for f in tree["split_indices"]), "no column")
    nodes, sizes, levels = tree["categories_nodes"], tree["categories_sizes"], tree["categories"]
    segments = list(zip(tree["categories_segments"], sizes, strict=True))
    _require(len(nodes) == len(segments) and all(0 <= node < n for node in nodes), "levels do not fit")
    _require(
        all(s >= 0 and size > 0 and s + size <= len(levels) for s, size in segments), "levels do not fit"
    )
    _require(all(type(level) is int and 0 <= level < _MOST_LEVELS for level in levels), "levels do not fit")
    _require(sum(map(bool, tree["split_type"])) == len(nodes), "levels do not fit")


def check_lightgbm(text: str) -> None:
    """Look at the trees of a text file of LightGBM.

    Raises:
        InvalidInputError: It has another form, or a node leads nowhere.
    """
    body, end, rest = text.partition("end of trees\n")
    head, *trees = re.split(r"^(?=Tree=)", body, flags=re.MULTILINE)
    about = dict(line.split("=", 1) for line in head.splitlines() if "=" in line)
    try:
        _require(
            bool(end) and "\nparameters" not in rest and head.startswith("tree\nversion=v4\n"), "its form"
        )
        columns, classes = int(about["max_feature_idx"]) + 1, int(about["num_class"])
        each = int(about["num_tree_per_iteration"])
        _require(1 <= classes <= _MOST_CLASSES and each in (1, classes), "its classes")
        _require(
            len(trees) % each == 0 and _OBJECTIVE.fullmatch(about["objective"]) is not None, "its objective"
        )
        stated = re.search(r"num_class:(\d+)", about["objective"])
        _require(stated is None or int(stated[1]) == classes, "its classes")
        _require(len(about["feature_names"].split(" ")) == columns, "its columns")
        _require(len(about["feature_infos"].split(" ")) == columns, "its columns")
        _require(about["label_index"] == "0", "its columns")
        sizes = [len(tree.encode()) for tree in trees]
        _require(_numbers(about["tree_sizes"], int) == sizes, "its sizes")
        for i, tree in enumerate(trees):
            _check_lightgbm_tree(tree, i, columns)
    except (LookupError, ValueError) as error:
        raise InvalidInputError(f"LightGBM cannot read model.txt: {error}") from error


def _check_lightgbm_tree(tree: str, number: int, columns: int) -> None:
    first, *lines = [line for line in tree.splitlines() if line]
    part = dict(line.split("=", 1) for line in lines)
    n, levels = int(part["num_leaves"]), int(part["num_cat"])
    _require(
        first == f"Tree={number}" and part["is_linear"] == "0" and n >= 1 and levels >= 0, "a tree is odd"
    )
    _numbers(part["shrinkage"], float)
    expected = {name: (kind, n - 1) for name, kind in _LIGHTGBM_NODES.items()}
    expected |= {name: (kind, n) for name, kind in _LIGHTGBM_LEAVES.items()}
    if n == 1:
        expected = {"leaf_value": (float, 1)}
    made = {name: _numbers(part[name], kind) for name, (kind, _) in expected.items()}
    _require(all(len(made[name]) == size for name, (_, size) in expected.items()), "nodes are missing")
    if n == 1:
        return
    for side in ("left_child", "right_child"):
        fine = all(own < child < n - 1 if child >= 0 else ~child < n for own, child in enumerate(made[side]))
        _require(fine, "a node leads nowhere")
    _require(all(0 <= feature < columns for feature in made["split_feature"]), "a node splits no column")
    if levels:
        starts, sets = _numbers(part["cat_boundaries"], int), _numbers(part["cat_threshold"], int)
        _require(len(starts) == levels + 1 and starts == sorted(starts) and starts[0] == 0, "its levels")
        _require(starts[-1] == len(sets), "its levels")
    by_level = [made["threshold"][i] for i, kind in enumerate(made["decision_type"]) if kind & 1]
    _require(all(0 <= value < levels and value == int(value) for value in by_level), "its levels")


def _numbers(text: str, kind: type[int] | type[float]) -> list[Any]:
    """Numbers with a space between, written as the library writes them."""
    form = _INTEGER if kind is int else _FLOAT
    words = text.split(" ") if text else []
    _require(all(form.fullmatch(word) for word in words), f"{text[:40]!r} is not numbers")
    return [kind(word) for word in words]


def _require(fine: bool, what: str) -> None:
    if not fine:
        raise InvalidInputError(f"the model file does not fit: {what}")


def without_parameters(text: str) -> str:
    """A file of LightGBM without how it was trained, which names files and machines."""
    before, _, rest = text.partition("\nparameters:\n")
    return before + rest.partition("end of parameters\n")[2]
