"""Explanations as one flat table: a line for each answer, and one for each row that has none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from plausiflow.explanations.result import Explanations
from plausiflow.tables import Codes, Feature, Value

ROW = "row"
_VERDICTS = ["status", "reason", "predicted", "target"]
FIGURES = ("cost", "probability", "score", "judged", "prediction")
_PREFIX = "plausiflow_"
_EXACT = 2**53
"""Floats hold all whole numbers below it."""


def answer_table(
    result: Explanations,
    extra: pd.DataFrame,
    key: str | None = None,
    *,
    figures: Sequence[str] = FIGURES,
) -> pd.DataFrame:
    """All answers of all rows, in the order of the rows.

    Columns: the row's label; rank of the answer, status, reason, what the model predicts and what is wanted;
    the features of the answer, in the dtypes of the rows; its figures; and columns of the rows' file that are
    no features. Where there is no answer, features and figures are missing, but for identifiers. A column of
    ours that is called like one of theirs is written with ``plausiflow_`` before its name.

    Args:
        result: Of ``explain``.
        extra: Columns to carry along, one row for each row of the result.
        key: The column that the labels of the rows come from; nothing where they are numbered.
        figures: Which of them; those that the result has not are left out.
    """
    lines, of = _lines(result)
    dtypes = result.counterfactuals.dtypes.to_dict()  # those that can be missing, where some are
    features = result.answers.astype(dtypes).reset_index(drop=True).reindex(lines).reset_index(drop=True)
    for feature in result.features:
        if feature.kind == "identifier":
            features[feature.name] = result.rows[feature.name].take(of).array
    verdicts = result.verdicts[_VERDICTS].take(of).reset_index(drop=True).infer_objects()
    verdicts.insert(0, "rank", pd.Series(result.rank, dtype="Int64").reindex(lines).array)
    measured = result.figures[[name for name in figures if name in result.figures]]
    others = [features, extra.take(of).reset_index(drop=True)]
    theirs = {name for part in others for name in part.columns}
    features, carried = (part.drop(columns=key, errors="ignore") if key else part for part in others)
    labels = result.rows.index.take(of)
    named = pd.DataFrame({key or ROW: labels if labels.nlevels == 1 else labels.map(str)})
    return pd.concat(
        [
            named if key else _renamed(named, theirs),
            _renamed(verdicts, theirs),
            features,
            _renamed(measured.reset_index(drop=True).reindex(lines).reset_index(drop=True), theirs),
            carried,
        ],
        axis=1,
    )


def whole_numbers(table: pd.DataFrame, features: Sequence[Feature]) -> pd.DataFrame:
    """Floats as integers, where they are whole here and in the training table; CSV then has no ``.0``."""
    made = {}
    for feature in features:
        whole = bool(feature.step) if feature.is_number else all(map(_is_whole, feature.levels))
        column = table.get(feature.name)
        if column is None or not whole or feature.decimals or not pd.api.types.is_float_dtype(column.dtype):
            continue
        values = column.dropna()
        if bool(((values % 1 == 0) & (values.abs() < _EXACT)).all()):
            made[feature.name] = column.astype("Int64")
    return table.assign(**made)


def _is_whole(level: Value) -> bool:
    return not isinstance(level, str | bool) and level == int(level)


def _lines(result: Explanations) -> tuple[Codes, Codes]:
    """For each line the position of its answer, -1 where there is none, and of its row."""
    without = np.flatnonzero(result.best < 0)
    lines = np.concatenate([np.arange(len(result.of)), np.full(len(without), -1)])
    of = np.concatenate([result.of, without])
    order = np.argsort(of, kind="stable")
    return lines[order].astype(np.int64), of[order].astype(np.int64)


def _renamed(part: pd.DataFrame, theirs: set[str]) -> pd.DataFrame:
    return part.rename(columns={name: f"{_PREFIX}{name}" for name in part.columns if name in theirs})
