"""The trees of a user's model, with everything that a proof about them needs.

A proof must know on which side of a split each value of the table falls. A copy of the preprocessing may
round differently, so the fitted preprocessing itself is asked about rows of the table.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from plausiflow.models.black_box import BlackBox
from plausiflow.models.model_rows import with_training_dtypes
from plausiflow.models.sklearn.columns import (
    Basis,
    Fitted,
    InputFormat,
    ModelColumn,
    UnsupportedModelError,
    table_columns,
)
from plausiflow.models.sklearn.preprocessing import transform_columns
from plausiflow.models.surrogate import _find_columns, _read_trees, _unwrap
from plausiflow.models.trees.averaged import is_averaged, read_averaged
from plausiflow.models.trees.forest import Forest
from plausiflow.models.trees.level_sets import LevelSets, column_order
from plausiflow.tables import Encoder

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_TOLERANCE, _SINGLE_TOLERANCE = 1e-6, 1e-4


@dataclass(frozen=True, eq=False, kw_only=True)
class ExactTrees:
    """The trees of a model.

    Attributes:
        forest: Their splits.
        values: What each leaf adds to each output, shape ``(leaves, outputs)``.
        averaged: Whether the outputs are the probabilities themselves; else they are logits.
        owners: For each column of the trees, the features of the table that it depends on, and by how much
            it rises with a number: its factor and shift, or None.
        encoder: Encoder of the table.
        sample: A training row.
        steps: Fitted preprocessing, one step after the other.
        input_format: Columns of the table that the model takes.
        sets: Splits of categories by sets of levels.
        estimator: The model behind the preprocessing.
    """

    forest: Forest
    values: Array
    averaged: bool
    owners: tuple[tuple[frozenset[str], tuple[float, float] | None], ...]
    encoder: Encoder
    sample: pd.DataFrame
    steps: Sequence[Fitted]
    input_format: InputFormat
    sets: LevelSets
    estimator: Fitted

    def inputs(self, frame: pd.DataFrame) -> Array:
        """Return what the trees receive for rows of the table, shape ``(n, columns)``; NaN for missing.

        Behind the columns of the model are those of its sets of levels.
        """
        rows = self.input_format.select(with_training_dtypes(self.encoder, frame))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for step in self.steps:
                if step is not None and not isinstance(step, str):
                    rows = step.transform(rows)
        rows = rows.toarray() if hasattr(rows, "toarray") else rows
        cells = self.sets.cells(self.estimator, rows)
        return cells.astype(np.float32).astype(np.float64) if self.forest.single else cells

    def goes_left(self, cells: Array, splits: npt.NDArray[np.int64]) -> Mask:
        """Return at which splits rows of inputs ``(n, columns)`` go left, shape ``(n, splits)``."""
        forest = self.forest
        own, threshold = cells[:, self.feature[splits]], forest.threshold.numpy()[splits]
        left = own <= threshold if forest.inclusive else own < threshold
        return np.where(np.isnan(own), forest.missing_left.numpy()[splits], left)

    @cached_property
    def feature(self) -> npt.NDArray[np.int64]:
        """The column of each split; a copy, because sending a tensor to another process moves its memory."""
        return self.forest.feature.numpy().copy()

    def outputs(self, frame: pd.DataFrame) -> Array:
        """Return the outputs for rows of the table, shape ``(n, outputs)``, in double precision."""
        return np.asarray(self.base + self.values[self._leaves(frame)].sum(axis=1))

    @property
    def base(self) -> Array:
        """The outputs before the first tree."""
        return self.forest.base.numpy()

    def _leaves(self, frame: pd.DataFrame) -> npt.NDArray[np.int64]:
        """Return the leaf of each tree that rows reach, shape ``(n, trees)``."""
        forest, splits = self.forest, len(self.feature)
        left = self.goes_left(self.inputs(frame), np.arange(splits))
        nodes = np.tile(forest.root.numpy(), (len(frame), 1))
        rows = np.arange(len(frame))[:, None]
        for _ in forest.levels if splits else ():
            at = np.minimum(nodes, splits - 1)
            child = np.where(left[rows, at], forest.left.numpy()[at], forest.right.numpy()[at])
            nodes = np.where(nodes < splits, child, nodes)
        return nodes - splits


def read_exact_trees(model: BlackBox) -> ExactTrees:
    """Read the trees of a user's model.

    Raises:
        UnsupportedModelError: They cannot be read exactly; the message gives the reason.
    """
    raw = getattr(model.predictor.function, "__self__", None)
    if raw is None:
        raise UnsupportedModelError("a function of a table has no trees that can be read")
    if model.labels and model.predictor.output_kind != "probabilities":
        raise UnsupportedModelError("its `predict` does not follow its probabilities")
    steps, estimator = _unwrap(raw)
    sets = LevelSets(getattr(estimator, "n_features_in_", 0))
    if is_averaged(estimator):
        forest, values = read_averaged(estimator)
    else:
        forest = _read_trees(estimator, sets)
        values = _leaf_values(forest)
    encoder, sample = model.encoder, with_training_dtypes(model.encoder, model.sample)
    input_format, basis = _find_columns(raw, encoder.schema.names), Basis(encoder.layout)
    dtype = input_format.select(sample).dtype if input_format.as_array else None
    size = basis.size
    columns = table_columns(encoder, sample, input_format.names, dtype, basis)
    for step in steps:
        columns = transform_columns(step, columns, basis)
    if forest.n_features != len(columns):
        raise UnsupportedModelError(f"its trees take {forest.n_features} columns instead of {len(columns)}")
    order = column_order(estimator)
    columns = columns if order is None else [columns[i] for i in order]
    columns += [columns[i] for i in sets.owners]
    used = set(forest.feature.tolist())
    owners = tuple(
        _owner(column, encoder, basis, size) if j in used else (frozenset[str](), None)
        for j, column in enumerate(columns)
    )
    _check_sets(owners[len(owners) - len(sets.owners) :], encoder)
    trees = ExactTrees(
        forest=forest,
        values=values,
        averaged=is_averaged(estimator),
        owners=owners,
        encoder=encoder,
        sample=sample,
        steps=steps,
        input_format=input_format,
        sets=sets,
        estimator=estimator,
    )
    _check(trees, model)
    return trees


def _leaf_values(forest: Forest) -> Array:
    """Return what each leaf of boosted trees adds to each output."""
    values = np.zeros((len(forest.leaf), len(forest.base)))
    splits, outputs = len(forest.feature), np.full(len(forest.feature) + len(forest.leaf), -1)
    outputs[forest.root.numpy()] = forest.output.numpy()
    for i in range(splits):  # children come after their split
        outputs[forest.left[i]] = outputs[forest.right[i]] = outputs[i]
    values[np.arange(len(values)), outputs[splits:]] = forest.leaf.numpy()
    return values


def _owner(
    column: ModelColumn, encoder: Encoder, basis: Basis, size: int
) -> tuple[frozenset[str], tuple[float, float] | None]:
    """Return the features that a column depends on, and its factor and shift if it follows one number."""
    column.require_known()
    by_element = {1 + at: b.name for b in encoder.layout.blocks for at in b.columns}
    by_element |= {element: name for name, element in basis.elements.items()}
    elements = {*column.states, *(column.number or {}), column.gate} - {0}
    if any(element >= size for element in elements):
        raise UnsupportedModelError(f"its preprocessing of `{column.name}` is not linear in one feature")
    names = frozenset(by_element[element] for element in elements)
    if len(names) > 1:
        raise UnsupportedModelError(f"a column of its trees depends on {', '.join(sorted(names))} together")
    weights = column.number or {}
    own = [element for element in weights if element in basis.elements.values()]
    if len(own) != 1 or weights[own[0]] == 0:
        return names, None
    return names, (weights[own[0]], weights.get(column.gate, 0.0))


def _check_sets(
    owners: Sequence[tuple[frozenset[str], tuple[float, float] | None]], encoder: Encoder
) -> None:
    """Raise if a set of levels is asked of a column that is a number in the table."""
    for name in frozenset().union(*(names for names, _ in owners)):
        if encoder.layout.block(name).number is not None:
            raise UnsupportedModelError(f"it splits `{name}`, a number of the table, by sets of levels")


def _compared_rows(trees: ExactTrees) -> pd.DataFrame:
    """Return the sample; if the model has sets of levels, at each level of each category."""
    layout, x = trees.encoder.layout, trees.encoder.encode(trees.sample).x[:1]
    blocks = [block for block in layout.blocks if block.number is None] if trees.sets.sets else []
    points = [x]
    for block in blocks:
        own = x.repeat(len(block.levels), 1)
        own[:, block.level_slice] = torch.eye(len(block.levels), dtype=x.dtype)
        points.append(own)
    together = torch.cat(points)
    like = trees.sample.iloc[np.zeros(len(together), dtype=np.int64)].reset_index(drop=True)
    decoded = trees.encoder.decode(together, like=like, encoded=torch.full_like(together, torch.nan))
    return with_training_dtypes(trees.encoder, pd.concat([trees.sample, decoded[trees.sample.columns]]))


@torch.no_grad()
def _check(trees: ExactTrees, model: BlackBox) -> None:
    """Raise unless the trees predict the sample as the model does."""
    rows = _compared_rows(trees)
    outputs = trees.outputs(rows)
    if model.labels and not trees.averaged:
        shifted = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        outputs = shifted / shifted.sum(axis=1, keepdims=True)
    expected = model.predictor.outputs(rows).numpy().reshape(outputs.shape)
    difference = np.abs(outputs - expected) / np.maximum(1.0, np.abs(expected))
    if not difference.max() <= (_SINGLE_TOLERANCE if trees.forest.single_sums else _TOLERANCE):
        raise UnsupportedModelError(f"its trees predict otherwise, by up to {difference.max():.1e}")
