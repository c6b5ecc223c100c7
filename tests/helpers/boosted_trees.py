"""Rows, classes, boosted models and a tree with one split, for the tests of trees."""

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingClassifier

from plausiflow.models.trees.forest import Forest, Tree

SCALES = torch.tensor([4.0, 10.0, 1.0, 1000.0], dtype=torch.float64)
QUIET = {"iterations": 10, "depth": 4, "verbose": 0, "allow_writing_files": False, "thread_count": 1}


def rows(n=400, seed=0, missing=0.0) -> np.ndarray:
    """Return a normal column, whole numbers, three decimals, and large numbers."""
    rng = np.random.default_rng(seed)
    x = np.column_stack(
        [rng.normal(size=n), rng.integers(0, 11, n), rng.random(n).round(3), rng.random(n) * 1000 + 5e4]
    )
    x[rng.random(x.shape) < missing] = np.nan
    return x


def classes(x: np.ndarray, k: int, seed=1) -> np.ndarray:
    score = np.nan_to_num(x, nan=0.3) @ np.array([1.0, 0.3, 2.0, 1e-3])
    score = score + np.random.default_rng(seed).normal(size=len(x)) * 0.5
    return np.digitize(score, np.quantile(score, np.arange(1, k) / k))


def boosted(k=2, missing=0.0, n_trees=12):
    x = rows(missing=missing)
    model = HistGradientBoostingClassifier(max_iter=n_trees, max_leaf_nodes=8, random_state=0)
    return model.fit(x, classes(x, k))


def at_thresholds(forest: Forest, x: np.ndarray) -> np.ndarray:
    """Return the rows, and copies with one cell at a threshold, or next to it in either precision."""
    copies = [x]
    for feature, threshold in zip(forest.feature.tolist(), forest.threshold.tolist(), strict=True):
        if not 1e-30 < abs(threshold) < 1e30:  # separates zero, or missing cells, from the others
            continue
        near = x[:5].copy()
        single = np.float32(threshold)
        near[:, feature] = [
            threshold,
            np.nextafter(threshold, -np.inf),
            np.nextafter(threshold, np.inf),
            np.nextafter(single, np.float32(-np.inf)),
            np.nextafter(single, np.float32(np.inf)),
        ]
        copies.append(near)
    return np.concatenate(copies)


def tie_tree(*, inclusive: bool, single=False, threshold=3.0) -> Forest:
    """Return one split of one column: -1 on the left, 1 on the right."""
    tree = Tree([0, 0, 0], [threshold, 0, 0], [True] * 3, [1, -1, -1], [2, -1, -1], [0, -1, 1], 0)
    return Forest.from_trees([tree], torch.zeros(1), 1, inclusive=inclusive, single=single)
