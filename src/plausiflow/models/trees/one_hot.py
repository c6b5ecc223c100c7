"""Splits of CatBoost that ask whether a category is at one level.

An exported model names a level by a hash of its text. The library itself tells which level is which: in a
tree that has one split per depth, a bit of the number of a row's leaf is the side of each split.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from plausiflow.models.sklearn.columns import Fitted, UnsupportedModelError

Array = npt.NDArray[np.float64]

_NUMBERS, _ONE_LEVEL = "FloatFeature", "OneHotFeature"


@dataclass(frozen=True)
class OneHotSplits:
    """The splits of a model by single levels.

    Attributes:
        columns: The column of the model of each category, by the number of the category.
        splits: Tree, depth, category and hash of the level of each split.
    """

    columns: dict[int, int]
    splits: tuple[tuple[int, int, int, int], ...]

    @classmethod
    def of(cls, dump: dict[str, Any], allowed: bool) -> OneHotSplits:
        """Find the splits of an exported model.

        Raises:
            UnsupportedModelError: It has splits of categories, and these are not ``allowed`` or not by level.
        """
        found, kinds = [], set()
        for tree, own in enumerate(dump.get("oblivious_trees", ())):
            for depth, split in enumerate(own["splits"]):
                kinds.add(split["split_type"])
                if split["split_type"] == _ONE_LEVEL:
                    found.append((tree, depth, split["cat_feature_index"], split["value"]))
        kinds |= _nested_kinds(dump.get("trees", ()))
        others = sorted(kinds - {_NUMBERS, _ONE_LEVEL})
        if others:
            raise UnsupportedModelError(
                f"CatBoost splits by features that are not numbers ({', '.join(others)}): by statistics of "
                "categories, which depend on hashes. Train it with a larger `one_hot_max_size`"
            )
        if _ONE_LEVEL in kinds and not (allowed and found):
            raise UnsupportedModelError(
                f"CatBoost splits by features that are not numbers ({_ONE_LEVEL})"
                + (", in trees that do not have one split per depth" if allowed else "")
            )
        categories = dump["features_info"].get("categorical_features", ())
        columns = {own["feature_index"]: own["flat_feature_index"] for own in categories}
        return cls(columns, tuple(found))

    def place(self, split: dict[str, Any]) -> tuple[int, int]:
        """Return the column of a split, and the number of its level."""
        category, value = split["cat_feature_index"], split["value"]
        return self.columns[category], self._levels(category).index(value)

    def _levels(self, category: int) -> list[int]:
        """Return the hashes of the levels of a category that a split asks about, in order."""
        return sorted({value for _, _, own, value in self.splits if own == category})

    def numbers(self, model: Fitted, rows: pd.DataFrame | Array) -> Array:
        """Return the columns of the model as numbers: of a category that of its level, -1 for any other."""
        frame = pd.DataFrame(rows)
        categories = {column: category for category, column in self.columns.items()}
        cells = np.full(frame.shape, -1.0)
        for column in range(frame.shape[1]):
            if column not in categories:
                cells[:, column] = frame.iloc[:, column].to_numpy(dtype=np.float64, na_value=np.nan)
        leaves = np.asarray(model.calc_leaf_indexes(rows)) if len(frame) else np.zeros((0, 0), dtype=np.int64)
        for tree, depth, category, value in self.splits if len(frame) else ():
            here = (leaves[:, tree].astype(np.int64) >> depth & 1).astype(bool)
            cells[here, self.columns[category]] = self._levels(category).index(value)
        return cells


def _nested_kinds(trees: Any) -> set[str]:  # noqa: ANN401
    """Return the kinds of splits of trees of nested nodes."""
    kinds, nodes = set(), list(trees)
    for node in nodes:  # the list grows during the loop
        if "split" in node:
            kinds.add(node["split"]["split_type"])
            nodes += [node["left"], node["right"]]
    return kinds
