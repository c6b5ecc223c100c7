"""What a user's model returned for rows, as arrays."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from torch import Tensor

from plausiflow.tables import read_any_table, to_python


def as_columns(result: object, n: int, labels: tuple[Any, ...]) -> npt.NDArray[Any] | None:
    """Return a result for n rows as a 2-D array, columns in the order of the labels; None if it cannot be."""
    if isinstance(result, Tensor):
        result = (result.double() if result.is_floating_point() else result).detach().cpu().numpy()
    result = read_any_table(result)
    if isinstance(result, pd.DataFrame):
        names = list(map(to_python, result.columns))
        if set(names) == set(labels) and len(names) == len(labels):
            result = result.iloc[:, [names.index(label) for label in labels]]
        elif len(names) > 1 and names != list(range(len(names))):
            return None
    try:
        columns = np.asarray(result)
    except (TypeError, ValueError):
        return None
    if columns.ndim < 2:
        columns = columns.reshape(1, -1) if n == 1 else columns.reshape(-1, 1)
    return columns if columns.ndim == 2 else None


def label_codes(columns: npt.NDArray[Any], labels: tuple[Any, ...]) -> npt.NDArray[np.int64]:
    """Return the class number of each cell of the first column; -1 for an unknown label."""
    number: dict[Any, int] = {str(label): i for i, label in enumerate(labels)}  # CatBoost writes 'True'
    number |= {label: i for i, label in enumerate(labels)}
    codes = [number.get(cell, -1) if isinstance(cell, Hashable) else -1 for cell in columns[:, 0].tolist()]
    return np.array(codes, dtype=np.int64)
