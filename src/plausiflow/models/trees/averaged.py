"""Forests that average: random forests, extremely randomised trees and single trees of scikit-learn.

Their outputs are the mean of the leaves that a row reaches: probabilities of the classes, or a number. So a
leaf holds one value for each output, and the outputs need no link function.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from plausiflow.models.sklearn.columns import Fitted, UnsupportedModelError
from plausiflow.models.trees.forest import Forest, Tree

AVERAGED = ("RandomForest", "ExtraTrees", "DecisionTree", "ExtraTree")


def is_averaged(model: Fitted) -> bool:
    """Return whether a model of scikit-learn averages the leaves of its trees."""
    kind = type(model).__name__.removesuffix("Classifier").removesuffix("Regressor")
    return type(model).__module__.partition(".")[0] == "sklearn" and kind in AVERAGED


def read_averaged(model: Fitted) -> tuple[Forest, npt.NDArray[np.float64]]:
    """Return the trees of a fitted model, and the values of its leaves, shape ``(leaves, outputs)``.

    The leaves of the forest hold their own position among the leaves; a row reaches one of each tree, and the
    model's output is the sum of the values of these.
    """
    name = type(model).__name__
    if not (hasattr(model, "estimators_") or hasattr(model, "tree_")):
        raise UnsupportedModelError(f"{name} is not fitted")
    if getattr(model, "n_outputs_", 1) != 1:
        raise UnsupportedModelError(f"{name} predicts several outcomes at once")
    estimators = getattr(model, "estimators_", [model])
    trees: list[Tree] = []
    values: list[npt.NDArray[np.float64]] = []
    for estimator in estimators:
        tree = estimator.tree_
        own = tree.value[:, 0, :]
        if hasattr(model, "classes_"):
            own = own / own.sum(axis=1, keepdims=True)
        start = sum(len(part) for part in values)
        trees.append(_tree(tree, start))
        values.append(own / len(estimators))
    outputs = values[0].shape[1]
    forest = Forest.from_trees(
        trees, torch.zeros(outputs), estimators[0].n_features_in_, inclusive=True, single=True
    )
    return forest, np.concatenate(values)[forest.leaf.long().numpy()]


def _tree(tree: Fitted, start: int) -> Tree:
    """Return the structure of a tree; the value of a node is its position among all nodes."""
    return Tree(
        feature=np.maximum(tree.feature, 0).tolist(),
        threshold=tree.threshold.tolist(),
        missing_left=tree.missing_go_to_left.astype(bool).tolist(),
        left=tree.children_left.tolist(),
        right=tree.children_right.tolist(),
        value=np.arange(start, start + tree.node_count, dtype=np.float64).tolist(),
        output=0,
    )
