"""Checks of the trees in stored models: every node must have valid children and a valid column.

scikit-learn, XGBoost and LightGBM follow the node numbers in a file without checking them, so a file that
somebody else wrote could make them read any memory or end the process. Trees are checked before a library
uses them; files of XGBoost and LightGBM must have exactly the form in which they are written here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from plausiflow.errors import InvalidInputError

_ENSEMBLES = ("sklearn.ensemble._forest", "sklearn.ensemble._gb", "sklearn.tree._classes")
_HISTOGRAMS = "sklearn.ensemble._hist_gradient_boosting"
_LEAF, _MAX_OBJECTS = -1, 1_000_000
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
_MAX_CLASSES, _MAX_LEVELS, _NO_PARENT = 10_000, 1 << 24, 2**31 - 1


def check_sklearn_trees(model: object) -> None:
    """Raise unless every tree inside a scikit-learn model has only valid nodes."""
    seen: set[int] = set()
    waiting: list[tuple[Any, float, npt.NDArray[np.bool_]]] = [(model, math.inf, np.zeros(0, dtype=bool))]
    while waiting:
        part, width, categories = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        _require(len(seen) <= _MAX_OBJECTS, "it holds too many objects")
        kind, module = type(part).__name__, type(part).__module__
        if module.startswith("sklearn.tree") and kind == "Tree":
            _check_tree(part, width)
        elif module.startswith(_HISTOGRAMS) and kind == "TreePredictor":
            _check_histogram_tree(part, width, categories)
        if module.startswith((*_ENSEMBLES, _HISTOGRAMS)) and hasattr(part, "n_features_in_"):
            width = min(width, part.n_features_in_)
            mapper = getattr(part, "_bin_mapper", None)
            categories = np.array([] if mapper is None else mapper.is_categorical_, dtype=bool)
        elif module.startswith("sklearn") and kind != "TreePredictor":
            width = math.inf
        waiting.extend((child, width, categories) for child in _children(part, module))


def _children(part: Any, module: str) -> Iterator[Any]:  # noqa: ANN401
    """Yield the objects inside an object that may hold trees."""
    if isinstance(part, Mapping):
        yield from part.values()
    elif isinstance(part, list | tuple):
        yield from part
    elif isinstance(part, np.ndarray) and part.dtype == object:
        yield from part.ravel().tolist()
    elif module.startswith("sklearn") and hasattr(part, "__dict__"):
        yield from vars(part).values()


def _check_tree(tree: Any, width: float) -> None:  # noqa: ANN401
    nodes = tree.__getstate__()["nodes"]
    inner = nodes["left_child"] != _LEAF
    children = np.stack([nodes["left_child"], nodes["right_child"]])[:, inner]
    _require_nodes(children, inner, nodes["feature"][inner], min(width, tree.n_features))
    _require(tree.n_features <= width and len(nodes) > 0, "a tree takes more columns than the model")


def _check_histogram_tree(tree: Any, width: float, categories: npt.NDArray[np.bool_]) -> None:  # noqa: ANN401
    nodes, sets = tree.nodes, tree.raw_left_cat_bitsets
    inner = nodes["is_leaf"] == 0
    children = np.stack([nodes["left"], nodes["right"]])[:, inner].astype(np.int64)
    feature = nodes["feature_idx"][inner].astype(np.int64)
    _require_nodes(children, inner, feature, width)
    by_level = nodes["is_categorical"][inner] != 0
    known = (feature[by_level] < len(categories)).all() and categories[feature[by_level]].all()
    known = known and (nodes["bitset_idx"][inner][by_level] < len(sets)).all()
    _require(known and len(nodes) > 0 and sets.shape == (len(sets), 8), "a tree splits by unknown levels")


def _require_nodes(
    children: npt.NDArray[Any], inner: npt.NDArray[np.bool_], feature: npt.NDArray[Any], width: float
) -> None:
    """Require that children come after their parent and inside the tree, and that columns exist."""
    valid = (children > np.flatnonzero(inner)).all() and (children < len(inner)).all()
    _require(bool(valid and (feature >= 0).all() and (feature < width).all()), "a tree has invalid nodes")


def check_xgboost(content: bytes) -> None:
    """Raise unless a JSON file of XGBoost has the known form, and its trees only valid nodes."""
    try:
        learner = json.loads(content)["learner"]
        booster, sizes = learner["gradient_booster"], learner["learner_model_param"]
        model, n_features = booster["model"], int(sizes["num_feature"])
        classes, parameters = max(1, int(sizes["num_class"])), model["gbtree_model_param"]
        trees, ends = model["trees"], model["iteration_indptr"]
        _require(
            booster["name"] == "gbtree" and int(sizes["num_target"]) == 1, "only plain trees are supported"
        )
        named = all(len(learner[name]) in (0, n_features) for name in ("feature_names", "feature_types"))
        _require(classes <= _MAX_CLASSES and named, "the number of classes or columns is wrong")
        _require(int(parameters["num_trees"]) == len(trees) == len(model["tree_info"]), "trees are missing")
        _require(all(0 <= output < classes for output in model["tree_info"]), "a tree has an invalid output")
        _require(ends[0] == 0 and ends[-1] == len(trees) and ends == sorted(ends), "the rounds are wrong")
        _require(1 <= int(parameters["num_parallel_tree"]) <= max(1, len(trees)), "the rounds are wrong")
        objective = learner["objective"].get("softmax_multiclass_param", {"num_class": classes})
        _require(int(objective["num_class"]) == classes, "the number of classes is wrong")
        for number, tree in enumerate(trees):
            _require(tree["id"] == number, "trees are missing")
            _check_xgboost_tree(tree, n_features)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(f"XGBoost cannot read model.json: {error!r}") from error


def _check_xgboost_tree(tree: Mapping[str, Any], n_features: int) -> None:
    sizes, left, right = tree["tree_param"], tree["left_children"], tree["right_children"]
    n = int(sizes["num_nodes"])
    plain = int(sizes["num_feature"]) == n_features and int(sizes["size_leaf_vector"]) <= 1
    _require(plain, "a tree has other columns or outputs")
    _require(n >= 1 and all(len(tree[name]) == n for name in _XGBOOST_NODES), "nodes are missing")
    pairs = list(zip(left, right, strict=True))
    _require(all((a == -1) == (b == -1) for a, b in pairs), "a node has one child")
    children = [child for pair in pairs for child in pair if child != -1]
    _require(all(type(c) is int and 0 < c < n for c in children), "a node has an invalid child")
    _require(len(set(children)) == len(children), "a node has two parents")
    parents = {child: node for node, pair in enumerate(pairs) for child in pair}
    _require(all(tree["parents"][child] == parents[child] for child in children), "a node has a wrong parent")
    _require(tree["parents"][0] == _NO_PARENT, "the root has a parent")
    columns = tree["split_indices"]
    _require(all(type(c) is int and 0 <= c < max(1, n_features) for c in columns), "a split has no column")
    nodes, sizes, levels = tree["categories_nodes"], tree["categories_sizes"], tree["categories"]
    segments = list(zip(tree["categories_segments"], sizes, strict=True))
    valid = len(nodes) == len(segments) and all(0 <= node < n for node in nodes)
    valid = valid and all(s >= 0 and size > 0 and s + size <= len(levels) for s, size in segments)
    valid = valid and all(type(level) is int and 0 <= level < _MAX_LEVELS for level in levels)
    _require(valid and sum(map(bool, tree["split_type"])) == len(nodes), "the levels are wrong")


def check_lightgbm(text: str) -> None:
    """Raise unless a text file of LightGBM has the known form, and its trees only valid nodes."""
    body, end, rest = text.partition("end of trees\n")
    head, *trees = re.split(r"^(?=Tree=)", body, flags=re.MULTILINE)
    header = dict(line.split("=", 1) for line in head.splitlines() if "=" in line)
    try:
        complete = bool(end) and "\nparameters" not in rest and head.startswith("tree\nversion=v4\n")
        _require(complete, "its form is wrong")
        columns, classes = int(header["max_feature_idx"]) + 1, int(header["num_class"])
        trees_per_round = int(header["num_tree_per_iteration"])
        stated = re.search(r"num_class:(\d+)", header["objective"])
        valid = 1 <= classes <= _MAX_CLASSES and trees_per_round in (1, classes)
        _require(valid and (stated is None or int(stated[1]) == classes), "the number of classes is wrong")
        known = _OBJECTIVE.fullmatch(header["objective"]) is not None
        _require(known and len(trees) % trees_per_round == 0, "the objective is wrong")
        named = all(len(header[name].split(" ")) == columns for name in ("feature_names", "feature_infos"))
        _require(named and header["label_index"] == "0", "the columns are wrong")
        sizes = [len(tree.encode()) for tree in trees]
        _require(_parse_numbers(header["tree_sizes"], int) == sizes, "the sizes are wrong")
        for i, tree in enumerate(trees):
            _check_lightgbm_tree(tree, i, columns)
    except (LookupError, ValueError) as error:
        raise InvalidInputError(f"LightGBM cannot read model.txt: {error}") from error


def _check_lightgbm_tree(tree: str, number: int, columns: int) -> None:
    first, *lines = [line for line in tree.splitlines() if line]
    entries = dict(line.split("=", 1) for line in lines)
    n, n_sets = int(entries["num_leaves"]), int(entries["num_cat"])
    plain = first == f"Tree={number}" and entries["is_linear"] == "0"
    _require(plain and n >= 1 and n_sets >= 0, "a tree has another form")
    _parse_numbers(entries["shrinkage"], float)
    expected = {name: (kind, n - 1) for name, kind in _LIGHTGBM_NODES.items()}
    expected |= {name: (kind, n) for name, kind in _LIGHTGBM_LEAVES.items()}
    if n == 1:
        expected = {"leaf_value": (float, 1)}
    arrays = {name: _parse_numbers(entries[name], kind) for name, (kind, _) in expected.items()}
    _require(all(len(arrays[name]) == size for name, (_, size) in expected.items()), "nodes are missing")
    if n == 1:
        return
    for side in ("left_child", "right_child"):
        valid = all(i < child < n - 1 if child >= 0 else ~child < n for i, child in enumerate(arrays[side]))
        _require(valid, "a node has an invalid child")
    _require(all(0 <= feature < columns for feature in arrays["split_feature"]), "a split has no column")
    if n_sets:
        starts, sets = (_parse_numbers(entries[name], int) for name in ("cat_boundaries", "cat_threshold"))
        valid = len(starts) == n_sets + 1 and starts == sorted(starts) and starts[0] == 0
        _require(valid and starts[-1] == len(sets), "the levels are wrong")
    by_level = [arrays["threshold"][i] for i, kind in enumerate(arrays["decision_type"]) if kind & 1]
    _require(all(0 <= value < n_sets and value == int(value) for value in by_level), "the levels are wrong")


def _parse_numbers(text: str, kind: type[int] | type[float]) -> list[Any]:
    """Return numbers separated by single spaces, in the notation of the library."""
    form = _INTEGER if kind is int else _FLOAT
    words = text.split(" ") if text else []
    _require(all(form.fullmatch(word) for word in words), f"{text[:40]!r} must be numbers")
    return [kind(word) for word in words]


def _require(valid: bool, problem: str) -> None:
    if not valid:
        raise InvalidInputError(f"The model file is invalid: {problem}.")


def strip_lightgbm_parameters(text: str) -> str:
    """Return a LightGBM file without its training parameters, which name files and machines."""
    before, _, rest = text.partition("\nparameters:\n")
    return before + rest.partition("end of parameters\n")[2]
