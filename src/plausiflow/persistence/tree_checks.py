"""Checks of the trees in stored models: every node must have valid children and a valid column.

scikit-learn, XGBoost and LightGBM follow the node numbers in a file without checking them, so a file that
somebody else wrote could make them read any memory or end the process. Every number that a library indexes
with is checked before the library reads it; files of XGBoost and LightGBM must have exactly the form in which
they are written here. Files of CatBoost are not read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from plausiflow.errors import InvalidInputError

_ENSEMBLES = ("sklearn.ensemble._forest", "sklearn.ensemble._gb", "sklearn.tree._classes")
_HISTOGRAMS = "sklearn.ensemble._hist_gradient_boosting"
_LEAF, _MAX_OBJECTS = -1, 1_000_000
_INTEGER, _COUNT = re.compile(r"-?[0-9]{1,18}"), re.compile(r"[0-9]{1,9}")
_FLOAT = re.compile(r"-?([0-9]{1,400}+(\.[0-9]{0,400}+)?([eE][-+]?[0-9]{1,4})?|inf|nan)")
_XGBOOST_NODES = (
    "base_weights", "default_left", "left_children", "right_children", "loss_changes", "parents",
    "split_conditions", "split_indices", "split_type", "sum_hessian",
)  # fmt: skip
_LIGHTGBM_NODES = {
    "split_feature": int, "split_gain": float, "threshold": float, "decision_type": int, "left_child": int,
    "right_child": int, "internal_value": float, "internal_weight": float, "internal_count": int,
}  # fmt: skip
_LIGHTGBM_LEAVES = {"leaf_value": float, "leaf_weight": float, "leaf_count": int}
_LIGHTGBM_LINES = {
    *_LIGHTGBM_NODES, *_LIGHTGBM_LEAVES, "num_leaves", "num_cat", "cat_boundaries", "cat_threshold",
    "is_linear", "shrinkage",
}  # fmt: skip
_OBJECTIVE = re.compile(r"[a-z_0-9]+( [a-z_]+(:[0-9.e+-]+)?)*")
_MAX_CLASSES, _MAX_COLUMNS, _MAX_BASE_SCORE = 10_000, 1 << 18, 1 << 20
_MAX_LEVELS, _MAX_LEVEL_BYTES = 1 << 24, 64 << 20
_MAX_TREES, _MAX_LINES = 1_000_000, 64
_MAX_LEAVES = 131_072  # of LightGBM itself
_MAX_DEPTH, _NO_PARENT = 4096, 2**31 - 1


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
    """Require that every node but the root is the child of one earlier node, and that columns exist.

    With two parents for a node, a walk down the tree could take forever.
    """
    valid = bool((children > np.flatnonzero(inner)).all() and (children < len(inner)).all())
    valid = valid and np.array_equal(np.sort(children, axis=None), np.arange(1, len(inner)))
    _require(bool(valid and (feature >= 0).all() and (feature < width).all()), "a tree has invalid nodes")


def _require_depth(children: npt.NDArray[Any], inner: npt.NDArray[np.bool_]) -> None:
    """Require a depth that a recursive function can walk; ``children`` is left and right, ``(2, splits)``."""
    number = np.cumsum(inner) - 1  # of each split among the splits
    nodes, depth = np.flatnonzero(inner)[:1], 0
    while len(nodes):
        depth += 1
        _require(depth <= _MAX_DEPTH, f"a tree is deeper than {_MAX_DEPTH} splits")
        nodes = children[:, number[nodes]].ravel()
        nodes = nodes[inner[nodes]]


def check_xgboost(document: Mapping[str, Any]) -> None:
    """Raise unless every number of an XGBoost document that XGBoost indexes with is valid.

    ``document`` is what :mod:`plausiflow.persistence.xgboost_files` parsed: the arrays of its trees are NumPy
    arrays of the types that XGBoost writes.
    """
    learner = document["learner"]
    model, sizes = learner["gradient_booster"]["model"], learner["learner_model_param"]
    n_features, n_classes = _parse_count(sizes["num_feature"]), _parse_count(sizes["num_class"])
    n_targets, classes = _parse_count(sizes.get("num_target", "1")), max(1, n_classes)
    trees, n_trees = model["trees"], len(model["trees"])
    ends, outputs = model.get("iteration_indptr", [0, n_trees]), model["tree_info"]
    _require(n_targets == 1, "only plain trees are supported")
    named = all(len(learner.get(name, ())) in (0, n_features) for name in ("feature_names", "feature_types"))
    _require(
        n_classes != 1 and classes <= _MAX_CLASSES and named, "the number of classes or columns is wrong"
    )
    _require(1 <= n_features <= _MAX_COLUMNS, "the number of columns is wrong")
    _require(len(sizes["base_score"]) <= _MAX_BASE_SCORE, "the base score is wrong")
    start = np.ravel(json.loads(sizes["base_score"]))
    valid = start.dtype.kind in "if" and len(start) in (1, classes) and bool(np.isfinite(start).all())
    _require(valid, "the base score is wrong")
    parameters = model["gbtree_model_param"]
    _require(_parse_count(parameters["num_trees"]) == n_trees == len(outputs), "trees are missing")
    _require(all(type(k) is int and 0 <= k < classes for k in outputs), "a tree has an invalid output")
    rounds = all(type(end) is int for end in ends) and len(ends) > 0 and ends == sorted(ends)
    _require(rounds and ends[0] == 0 and ends[-1] == n_trees, "the rounds are wrong")
    parallel = _parse_count(parameters.get("num_parallel_tree", "1"))
    _require(1 <= parallel <= max(1, n_trees), "the rounds are wrong")
    stated = learner["objective"].get("softmax_multiclass_param", {"num_class": str(n_classes)})
    _require(_parse_count(stated["num_class"]) == n_classes, "the number of classes is wrong")
    for number, tree in enumerate(trees):
        _require(type(tree["id"]) is int and tree["id"] == number, "trees are missing")
        _check_xgboost_tree(tree, n_features)
    n_levels = sum(len(tree["categories"]) for tree in trees)
    _require(sum(map(_level_bytes, trees)) <= _MAX_LEVEL_BYTES + 4 * n_levels, "the levels are too many")
    _check_xgboost_categories(model.get("cats"), n_features)


def _check_xgboost_tree(tree: Mapping[str, Any], n_features: int) -> None:
    sizes, left, right = tree["tree_param"], tree["left_children"], tree["right_children"]
    n = _parse_count(sizes["num_nodes"])
    plain = _parse_count(sizes["num_feature"]) == n_features and _parse_count(sizes["size_leaf_vector"]) <= 1
    _require(plain, "a tree has other columns or outputs")
    _require(_parse_count(sizes.get("num_deleted", "0")) == 0, "a tree has deleted nodes")
    _require(n >= 1 and all(len(tree[name]) == n for name in _XGBOOST_NODES), "nodes are missing")
    inner = left != _LEAF
    _require(bool((inner == (right != _LEAF)).all()), "a node has one child")
    children = np.stack([left, right])[:, inner]
    _require_nodes(children, inner, tree["split_indices"], n_features)
    parents = np.full(n, _NO_PARENT)
    parents[children] = np.flatnonzero(inner)
    _require(bool((tree["parents"] == parents).all()), "a node has a wrong parent")
    _require_depth(children, inner)
    nodes, starts, counts = (tree[f"categories_{name}"] for name in ("nodes", "segments", "sizes"))
    levels, by_level = tree["categories"], np.flatnonzero(tree["split_type"])
    valid = len(nodes) == len(starts) == len(counts) and bool((tree["split_type"] <= 1).all())
    valid = valid and np.array_equal(nodes, by_level) and bool((counts > 0).all())
    valid = valid and bool((counts <= len(levels)).all()) and int(counts.sum()) == len(levels)
    valid = valid and np.array_equal(starts, np.cumsum(counts) - counts)
    _require(valid and bool((levels >= 0).all() and (levels < _MAX_LEVELS).all()), "the levels are wrong")


def _level_bytes(tree: Mapping[str, Any]) -> int:
    """Return the memory of the sets of levels of a tree: a bit for each level up to the largest of a set."""
    if not len(tree["categories"]):
        return 0
    largest = np.maximum.reduceat(tree["categories"], tree["categories_segments"])
    return int((largest // 8 + 4).sum())


def _check_xgboost_categories(categories: Mapping[str, Any] | None, n_features: int) -> None:
    """Check the categories of the training table: their names, and where those of each column start."""
    if categories is None:
        return
    columns, ends, order = categories["enc"], categories["feature_segments"], categories["sorted_idx"]
    counts = []
    for column in columns:
        offsets = column.get("offsets")
        if offsets is None:
            valid = all(type(value) is int for value in column["values"])
            counts.append(len(column["values"]))
        else:
            valid = len(offsets) > 0 or len(column["values"]) == 0
            valid = valid and bool((np.diff(offsets, prepend=0) >= 0).all() and (offsets[:1] == 0).all())
            valid = valid and bool((offsets[-1:] == len(column["values"])).all())
            counts.append(max(0, len(offsets) - 1))
        _require(valid, "the categories are wrong")
    expected = np.cumsum([0, *counts])
    valid = len(columns) in (0, n_features) and (len(ends) == 0 or np.array_equal(ends, expected))
    _require(valid and (len(ends) > 0 or expected[-1] == 0), "the categories are wrong")
    _require(len(order) in (0, expected[-1]), "the categories are wrong")
    if len(order):
        parts = [np.sort(order[start:end]) for start, end in pairwise(expected)]
        _require(
            all(np.array_equal(part, np.arange(len(part))) for part in parts), "the categories are wrong"
        )


def check_lightgbm(content: bytes) -> None:
    """Raise unless a text file of LightGBM has the known form, and its trees only valid nodes."""
    body, end, rest = content.partition(b"end of trees\n")
    start = body.find(b"\nTree=") + 1 or len(body)
    try:
        _require(body.count(b"\nTree=") <= _MAX_TREES, "the trees are too many")
        _require(body.count(b"\n", 0, start) <= _MAX_LINES, "its form is wrong")
        head, trees = body[:start].decode(), re.split(rb"^(?=Tree=)", body[start:], flags=re.MULTILINE)[1:]
        header = dict(line.split("=", 1) for line in head.split("\n") if "=" in line)
        complete = bool(end) and b"\nparameters" not in rest and head.startswith("tree\nversion=v4\n")
        _require(complete and b"\r" not in content and b"\0" not in content, "its form is wrong")
        columns, classes = _parse_count(header["max_feature_idx"]) + 1, _parse_count(header["num_class"])
        _require(columns <= _MAX_COLUMNS, "the number of columns is wrong")
        stated = re.search(r"num_class:([0-9]+)", header["objective"])
        valid = 1 <= classes <= _MAX_CLASSES and _parse_count(header["num_tree_per_iteration"]) == classes
        _require(valid and (stated is None or int(stated[1]) == classes), "the number of classes is wrong")
        known = _OBJECTIVE.fullmatch(header["objective"]) is not None
        _require(known and len(trees) % classes == 0, "the objective is wrong")
        named = all(len(header[name].split(" ")) == columns for name in ("feature_names", "feature_infos"))
        _require(named and header["label_index"] == "0", "the columns are wrong")
        sizes = [len(tree) for tree in trees]
        _require(
            _parse_numbers(header["tree_sizes"], int, len(trees)).tolist() == sizes, "the sizes are wrong"
        )
        for i, tree in enumerate(trees):
            _check_lightgbm_tree(tree, i, columns)
    except (LookupError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"LightGBM cannot read model.txt: {error}") from error


def _check_lightgbm_tree(content: bytes, number: int, columns: int) -> None:
    _require(content.count(b"\n") <= _MAX_LINES, "a tree has another form")
    tree = content.decode("ascii")
    first, *lines = tree.rstrip("\n").split("\n")
    entries = dict(line.split("=", 1) for line in lines)
    _require(set(entries) <= _LIGHTGBM_LINES, "a tree has another form")
    n, n_sets = _parse_count(entries["num_leaves"]), _parse_count(entries["num_cat"])
    plain = first == f"Tree={number}" and entries["is_linear"] == "0" and len(entries) == len(lines)
    _require(plain and 1 <= n <= _MAX_LEAVES, "a tree has another form")
    _parse_numbers(entries["shrinkage"], float, 1)
    expected = {name: (kind, n - 1) for name, kind in _LIGHTGBM_NODES.items()}
    expected |= {name: (kind, n) for name, kind in _LIGHTGBM_LEAVES.items()}
    if n == 1:
        expected = {"leaf_value": (float, 1)}
    arrays = {name: _parse_numbers(entries[name], *form) for name, form in expected.items()}
    if n == 1:
        return
    children = np.stack([arrays["left_child"], arrays["right_child"]])
    inner = np.concatenate([np.ones(n - 1, dtype=bool), np.zeros(n, dtype=bool)])
    valid = bool((children < n - 1).all() and (children >= -n).all())
    _require(valid, "a node has an invalid child")
    children = np.where(children < 0, n - 1 + ~children, children)  # leaves are numbered after the splits
    _require_nodes(children, inner, arrays["split_feature"], columns)
    _require_depth(children, inner)
    if n_sets:
        starts = _parse_numbers(entries["cat_boundaries"], int, n_sets + 1)
        valid = bool((np.diff(starts) >= 0).all()) and starts[0] == 0 and starts[-1] <= len(tree)
        _require(valid, "the levels are wrong")
        _parse_numbers(entries["cat_threshold"], int, int(starts[-1]))
    by_level = arrays["threshold"][arrays["decision_type"] % 2 == 1]
    valid = bool((by_level >= 0).all() and (by_level < n_sets).all() and (by_level % 1 == 0).all())
    _require(valid, "the levels are wrong")


def _parse_numbers(text: str, kind: type[int] | type[float], count: int) -> npt.NDArray[Any]:
    """Return ``count`` numbers separated by single spaces, in the notation of the library."""
    form = _INTEGER if kind is int else _FLOAT
    _require((text.count(" ") + 1 if text else 0) == count, "nodes are missing")
    words = text.split(" ") if text else []
    _require(all(form.fullmatch(word) for word in words), f"{text[:40]!r} must be numbers")
    return np.array([kind(word) for word in words], dtype=np.int64 if kind is int else np.float64)


def _parse_count(text: Any) -> int:  # noqa: ANN401
    """Return a number that is at least zero, from a text without a sign."""
    _require(isinstance(text, str) and _COUNT.fullmatch(text) is not None, f"{text!r} must be a number")
    return int(text)


def _require(valid: object, problem: str) -> None:
    if not valid:
        raise InvalidInputError(f"The model file is invalid: {problem}.")


def strip_lightgbm_parameters(text: str) -> str:
    """Return a LightGBM file without its training parameters, which name files and machines."""
    before, _, rest = text.partition("\nparameters:\n")
    return before + rest.partition("end of parameters\n")[2]
