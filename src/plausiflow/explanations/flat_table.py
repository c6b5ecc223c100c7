"""A result as one flat table: a line for each answer, and a line for each row without an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from plausiflow.explanations.certificates import BOUNDS
from plausiflow.tables import CellValue, Feature

if TYPE_CHECKING:
    from plausiflow.explanations.result import Explanations

ROW = "row"
_VERDICTS = ["status", "reason", "predicted", "target"]
FIGURES = ("cost", "probability", "score", "judged", "prediction")
_PREFIX = "plausiflow_"
_MAX_EXACT = 2**53  # a float holds every integer below it exactly


def answer_table(
    result: Explanations, extra: pd.DataFrame, key: str | None = None, *, figures: Sequence[str] = FIGURES
) -> pd.DataFrame:
    """Return all answers of all rows, in the order of the rows.

    Columns: the row's label; rank of the answer, status, reason, predicted and target outcome; the features
    of the answer, in the dtypes of the rows; its figures; and the ``extra`` columns. Without an answer,
    features and figures are missing, except for identifiers. A column that has the name of a feature or an
    extra column gets the prefix ``plausiflow_``. ``key`` is the column that the labels of the rows come from;
    None if the rows are numbered.
    """
    without_answer = np.flatnonzero(result.best < 0)
    of = np.concatenate([result.of, without_answer])
    order = np.argsort(of, kind="stable")
    of = of[order]
    lines = np.concatenate([np.arange(len(result.of)), np.full(len(without_answer), -1)])[order]
    dtypes = result.counterfactuals.dtypes.to_dict()  # nullable if answers are missing
    features = result.answers.astype(dtypes).reset_index(drop=True).reindex(lines).reset_index(drop=True)
    for feature in result.features:
        if feature.kind == "identifier":
            features[feature.name] = result.rows[feature.name].take(of).array
    names = [*_VERDICTS, *(name for name in BOUNDS if name in result.verdicts)]
    verdicts = result.verdicts[names].take(of).reset_index(drop=True).infer_objects()
    verdicts.insert(0, "rank", pd.Series(result.rank, dtype="Int64").reindex(lines).array)
    measures = result.figures[[name for name in figures if name in result.figures]]
    others = [features, extra.take(of).reset_index(drop=True)]
    taken = {name for part in others for name in part.columns}
    features, extra = (part.drop(columns=key, errors="ignore") if key else part for part in others)
    labels = result.rows.index.take(of)
    label_column = pd.DataFrame({key or ROW: labels if labels.nlevels == 1 else labels.map(str)})
    return pd.concat(
        [
            label_column if key else _add_prefix(label_column, taken),
            _add_prefix(verdicts, taken),
            features,
            _add_prefix(measures.reset_index(drop=True).reindex(lines).reset_index(drop=True), taken),
            extra,
        ],
        axis=1,
    )


def whole_floats_to_integers(table: pd.DataFrame, features: Sequence[Feature]) -> pd.DataFrame:
    """Convert floats that are whole, here and in the training table, so that CSV files have no ``.0``."""
    converted = {}
    for feature in features:
        whole = bool(feature.step) if feature.is_number else all(map(_is_whole, feature.levels))
        column = table.get(feature.name)
        if column is None or not whole or feature.decimals or not pd.api.types.is_float_dtype(column.dtype):
            continue
        values = column.dropna()
        if bool(((values % 1 == 0) & (values.abs() < _MAX_EXACT)).all()):
            converted[feature.name] = column.astype("Int64")
    return table.assign(**converted)


def _is_whole(level: CellValue) -> bool:
    return not isinstance(level, str | bool) and level == int(level)


def _add_prefix(part: pd.DataFrame, taken: set[str]) -> pd.DataFrame:
    return part.rename(columns={name: f"{_PREFIX}{name}" for name in part.columns if name in taken})


def nullable_dtype(dtype: Any) -> Any:  # noqa: ANN401
    """Return the dtype with the same values and a missing value."""
    if not isinstance(dtype, np.dtype) or dtype.kind not in "biu":
        return dtype
    if dtype.kind == "b":
        return pd.BooleanDtype()
    return f"{'U' * (dtype.kind == 'u')}Int{8 * dtype.itemsize}"
