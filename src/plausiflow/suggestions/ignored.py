"""Columns that a model ignores: exchanging their values among rows never changes its output."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from torch import Tensor

from plausiflow.errors import PlausiflowError
from plausiflow.models import NetworkClassifier, Predictor, make_predictor
from plausiflow.tables import FloatArray, Schema

ROWS, FEWEST_ROWS, EXCHANGES = 500, 30, 3
SAME = 1e-9
"""Outputs that differ by less are the same up to rounding."""
FOLLOWS = 0.1
"""From this score on held-out rows, above that of a constant, a column follows from others in part."""
LEAF, DEPTH = 10, 6
MOST_LEVELS = 20


def ignored_columns(
    table: pd.DataFrame, names: Sequence[str], model: object, random_state: int
) -> tuple[list[str], str]:
    """Return which of these columns the model ignores, and a note if that could not be found out."""
    if model is None:
        return [], "No model was given, so columns that it ignores were not looked for."
    if isinstance(model, NetworkClassifier):
        return [], "The model works on encoded rows, so columns that it ignores were not looked for."
    if len(table) < FEWEST_ROWS:
        few = f"The table has fewer than {FEWEST_ROWS} rows"
        return [], f"{few}, so columns that the model ignores were not looked for."
    rows = table.sample(min(ROWS, len(table)), random_state=random_state).reset_index(drop=True)
    try:
        predictor = _predictor(model, rows)
        before = predictor.outputs(rows)
    except PlausiflowError as error:
        reason = str(error).split(". ")[0].rstrip(".")
        return [], f"The model could not be called, so columns that it ignores were not looked for: {reason}."
    rng = np.random.default_rng(random_state)
    ignored = [name for name in names if _is_ignored(predictor, rows, name, before, rng)]
    return ignored, ""


def _predictor(model: object, rows: pd.DataFrame) -> Predictor:
    """Return the model as a predictor; a function that returns no values returns probabilities of two."""
    try:
        return make_predictor(model, rows, None)
    except PlausiflowError:
        return make_predictor(model, rows, (0, 1))


def _is_ignored(
    predictor: Predictor, rows: pd.DataFrame, name: str, before: Tensor, rng: np.random.Generator
) -> bool:
    for _ in range(EXCHANGES):
        order = rng.permutation(len(rows))
        after = predictor.outputs(rows.assign(**{name: rows[name].to_numpy()[order]}).astype(rows.dtypes))
        same = (before - after).abs() <= SAME
        if not bool((same | (before.isnan() & after.isnan())).all()):
            return False
    return bool(torch.isfinite(before).any())


def follows_from_others(table: pd.DataFrame, name: str, schema: Schema, random_state: int) -> bool:
    """Return whether other columns tell something about a column, on rows that were held out."""
    rows = table.sample(min(4 * ROWS, len(table)), random_state=random_state)
    used = [f.name for f in schema.features if f.kind not in ("identifier", "constant") and f.name != name]
    x = np.column_stack([_numbers(rows[other]) for other in used]) if used else np.zeros((len(rows), 1))
    half, feature = len(rows) // 2, schema.feature(name)
    settings = {"max_depth": DEPTH, "min_samples_leaf": LEAF, "random_state": random_state}
    if feature.is_number or len(feature.levels) > MOST_LEVELS:
        y = _numbers(rows[name])
        return bool(
            DecisionTreeRegressor(**settings).fit(x[:half], y[:half]).score(x[half:], y[half:]) >= FOLLOWS
        )
    levels = pd.factorize(rows[name].astype(object), use_na_sentinel=False)[0]
    tree = DecisionTreeClassifier(**settings).fit(x[:half], levels[:half])
    accuracy = tree.score(x[half:], levels[half:])
    common = float(np.bincount(levels[half:]).max() / max(1, len(levels) - half))
    return bool(accuracy - common >= FOLLOWS * (1 - common) and accuracy > common)


def _numbers(column: pd.Series) -> FloatArray:
    """Return a column as numbers: its own, or codes of its levels; missing ones are their own number."""
    if pd.api.types.is_numeric_dtype(column.dtype) or pd.api.types.is_bool_dtype(column.dtype):
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        known = values[np.isfinite(values)]
        return np.where(np.isfinite(values), values, known.min() - 1 if len(known) else 0.0)
    return pd.factorize(column.astype(object), use_na_sentinel=False)[0].astype(np.float64)
