"""Forests read from fitted models of scikit-learn, and students that imitate any other model.

What a forest cannot hold exactly is refused: categorical splits, and links other than sigmoid and softmax.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import HistGradientBoostingRegressor
from torch import Tensor

from plausiflow.errors import InvalidInputError, ShapeError
from plausiflow.models.sklearn.columns import Fitted, Refused
from plausiflow.models.trees.forest import Forest, Tree, behind_zero

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
        _hist_trees(model, shift), behind_zero(base, shift), model.n_features_in_, inclusive=True
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


def read_gradient_boosting(model: Fitted) -> Forest:
    """The trees of a ``GradientBoostingClassifier`` or ``GradientBoostingRegressor``.

    Raises:
        Refused: It starts from another model than a constant, or is not fitted.
    """
    kind = type(model).__name__
    if not hasattr(model, "estimators_"):
        raise Refused(f"{kind} is not fitted")
    start = model.init_
    if not isinstance(start, str | DummyClassifier | DummyRegressor):
        raise Refused(f"{kind} starts from the answers of {type(start).__name__}")
    n_features, classifier = model.n_features_in_, hasattr(model, "classes_")
    base = np.ravel(model._raw_predict_init(np.zeros((1, n_features), dtype=np.float32)))
    shift = int(classifier and len(base) == 1)
    # The exponential loss reads half a log-odds.
    factor = 2.0 if classifier and model.loss == "exponential" else 1.0
    trees = [
        _sklearn_tree(tree.tree_, output, factor * model.learning_rate)
        for stage in model.estimators_
        for output, tree in enumerate(stage, start=shift)
    ]
    start_at = behind_zero(torch.as_tensor(factor * base, dtype=torch.float64), shift)
    return Forest.of(trees, start_at, n_features, inclusive=True, single=True)


def _sklearn_tree(tree: Fitted, output: int, factor: float) -> Tree:
    return Tree(
        feature=np.maximum(tree.feature, 0).tolist(),
        threshold=tree.threshold.tolist(),
        missing_left=tree.missing_go_to_left.astype(bool).tolist(),
        left=tree.children_left.tolist(),
        right=tree.children_right.tolist(),
        value=(factor * tree.value[:, 0, 0]).tolist(),
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
        regressor = _regressor(n_trees, n_leaves, seed)
        regressor.fit(_array(x), goal.clamp(-clip, clip).numpy(), sample_weight=weight.numpy())
        trees += _hist_trees(regressor, output)
        base[output] = float(np.ravel(regressor._baseline_prediction)[0])
    return Forest.of(trees, base, x.shape[1], inclusive=True)


def student_of_values(
    x: Tensor, values: Tensor, *, n_trees: int = 100, n_leaves: int = 31, seed: int = 0
) -> Forest:
    """A forest that imitates any regressor.

    Args:
        x: Rows as the model takes them, NaN where a cell is missing, shape ``(n, d)``.
        values: Its answers, shape ``(n,)``.
        n_trees: Of the regression.
        n_leaves: The most leaves of a tree.
        seed: Of the bins, where there are many rows.

    Returns:
        A forest with one output, in the units of the values.
    """
    if x.ndim != 2 or values.shape != (len(x),):
        raise ShapeError(
            "`x` must have shape (n, d) and `values` (n,), one for each row; "
            f"got {tuple(x.shape)} and {tuple(values.shape)}."
        )
    if not bool(values.isfinite().all()):
        raise InvalidInputError(f"`values` must be finite; {int((~values.isfinite()).sum())} are not.")
    goal = values.detach().double().cpu()
    centre, size = goal.mean(), goal.std(correction=0)
    size = size if size > 0 else torch.ones_like(size)
    regressor = _regressor(n_trees, n_leaves, seed).fit(_array(x), ((goal - centre) / size).numpy())
    forest = Forest.of(_hist_trees(regressor, 0), torch.zeros(1), x.shape[1], inclusive=True)
    base = centre + size * float(np.ravel(regressor._baseline_prediction)[0])
    return replace(forest, leaf=forest.leaf * size, base=base[None])


def _regressor(n_trees: int, n_leaves: int, seed: int) -> Fitted:
    return HistGradientBoostingRegressor(
        max_iter=n_trees,
        max_leaf_nodes=n_leaves,
        min_samples_leaf=10,
        learning_rate=0.15,
        early_stopping=False,
        random_state=seed,
    )


def _array(x: Tensor) -> npt.NDArray[np.float64]:
    array: npt.NDArray[np.float64] = x.detach().double().cpu().numpy()
    return array


def _goals(log_proba: Tensor) -> dict[int, Tensor]:
    """What each output learns."""
    if log_proba.shape[1] == 2:
        return {1: log_proba[:, 1] - log_proba[:, 0]}
    # A class that is out of the question would pull the centre to minus infinity.
    bounded = log_proba.clamp_min(math.log(_RARE)).log_softmax(dim=1)
    return dict(enumerate((bounded - bounded.mean(dim=1, keepdim=True)).unbind(dim=1)))
