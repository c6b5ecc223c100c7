"""Whether the trees inside a model of scikit-learn lead from node to node, and to columns that there are.

scikit-learn follows the numbers of nodes without checking them: those of a file that somebody else wrote
could lead it anywhere in memory. So every tree of a model that is read is looked at first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from plausiflow.errors import InvalidInputError

_ENSEMBLES = ("sklearn.ensemble._forest", "sklearn.ensemble._gb", "sklearn.tree._classes")
_HISTOGRAMS = "sklearn.ensemble._hist_gradient_boosting"
_LEAF, _MOST_OBJECTS = -1, 1_000_000


def check_trees(model: object) -> None:
    """Look at every tree in a model.

    Raises:
        InvalidInputError: Some node leads nowhere.
    """
    seen: set[int] = set()
    waiting: list[tuple[Any, float, npt.NDArray[np.bool_]]] = [(model, math.inf, np.zeros(0, dtype=bool))]
    while waiting:
        one, width, categories = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if len(seen) > _MOST_OBJECTS:
            raise InvalidInputError("the model holds too many objects")
        kind, module = type(one).__name__, type(one).__module__
        if module.startswith("sklearn.tree") and kind == "Tree":
            _check_tree(one, width)
        elif module.startswith(_HISTOGRAMS) and kind == "TreePredictor":
            _check_histogram_tree(one, width, categories)
        if module.startswith((*_ENSEMBLES, _HISTOGRAMS)) and hasattr(one, "n_features_in_"):
            width = min(width, one.n_features_in_)
            mapper = getattr(one, "_bin_mapper", None)
            categories = np.array([] if mapper is None else mapper.is_categorical_, dtype=bool)
        elif module.startswith("sklearn") and kind != "TreePredictor":
            width = math.inf
        waiting.extend((part, width, categories) for part in _parts(one, module))


def _parts(one: Any, module: str) -> Iterator[Any]:  # noqa: ANN401
    """What an object is made of, where that may hold trees."""
    if isinstance(one, Mapping):
        yield from one.values()
    elif isinstance(one, list | tuple):
        yield from one
    elif isinstance(one, np.ndarray) and one.dtype == object:
        yield from one.ravel().tolist()
    elif module.startswith("sklearn") and hasattr(one, "__dict__"):
        yield from vars(one).values()


def _check_tree(tree: Any, width: float) -> None:  # noqa: ANN401
    nodes = tree.__getstate__()["nodes"]
    inner = nodes["left_child"] != _LEAF
    children = np.stack([nodes["left_child"], nodes["right_child"]])[:, inner]
    _require(
        children, np.flatnonzero(inner), len(nodes), nodes["feature"][inner], min(width, tree.n_features)
    )
    if tree.n_features > width or not len(nodes):
        raise InvalidInputError("a tree of the model takes more columns than the model")


def _check_histogram_tree(tree: Any, width: float, categories: npt.NDArray[np.bool_]) -> None:  # noqa: ANN401
    nodes, sets = tree.nodes, tree.raw_left_cat_bitsets
    inner = nodes["is_leaf"] == 0
    children = np.stack([nodes["left"], nodes["right"]])[:, inner].astype(np.int64)
    feature = nodes["feature_idx"][inner].astype(np.int64)
    _require(children, np.flatnonzero(inner), len(nodes), feature, width)
    by_level = nodes["is_categorical"][inner] != 0
    known = feature[by_level] < len(categories)
    fine = known.all() and categories[feature[by_level]].all()
    fine = fine and (nodes["bitset_idx"][inner][by_level] < len(sets)).all()
    if not fine or not len(nodes) or sets.shape != (len(sets), 8):
        raise InvalidInputError("a tree of the model splits by levels that there are not")


def _require(
    children: npt.NDArray[Any],
    own: npt.NDArray[Any],
    n: int,
    feature: npt.NDArray[Any],
    width: float,
) -> None:
    """Raise unless children come after their node, before the end, and columns are some of the model's."""
    fine = (
        (children > own).all() and (children < n).all() and (feature >= 0).all() and (feature < width).all()
    )
    if not fine:
        raise InvalidInputError("a tree of the model has nodes that lead nowhere")
