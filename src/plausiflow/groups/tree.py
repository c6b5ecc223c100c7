"""Who takes which action: a shallow decision tree over the rows, in words.

The tree is a summary for people. It does not assign anybody: a row gets an action because the action was
verified for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from sklearn.tree import DecisionTreeClassifier
from torch import Tensor

from plausiflow.explanations import FeatureFormatter, format_value
from plausiflow.tables import Encoder, IntArray

MOST_DEPTH = 3
SMALLEST_SHARE = 0.01
"""Share of the rows that a leaf must have."""
EVERYBODY = "everybody"


@dataclass(frozen=True, kw_only=True)
class MembershipTree:
    """Who takes which action.

    Attributes:
        leaves: Conditions in words and the action that most rows with them take, -1 for none.
        accuracy: Share of the rows whose action the conditions tell.
    """

    leaves: tuple[tuple[str, int], ...]
    accuracy: float

    def who(self, action: int) -> str:
        """Return who takes an action; empty if no condition leads to it."""
        return "; or ".join(text for text, own in self.leaves if own == action)


def describe_membership(encoder: Encoder, x: Tensor, action: IntArray, seed: int = 0) -> MembershipTree:
    """Fit a tree of depth three at most to the actions of rows.

    Args:
        encoder: Encoder of the table.
        x: Encoded rows, shape ``(n, width)``.
        action: The action of each row, -1 for none, shape ``(n,)``.
        seed: Seed of the tree, for splits that are equally good.
    """
    if len(x) == 0:
        return MembershipTree(leaves=(), accuracy=float("nan"))
    tree = DecisionTreeClassifier(
        max_depth=MOST_DEPTH, min_samples_leaf=max(1, int(SMALLEST_SHARE * len(x))), random_state=seed
    )
    tree.fit(x.numpy(), action)
    leaves: list[tuple[str, int]] = []
    names = _Conditions(encoder)

    def walk(node: int, conditions: list[str]) -> None:
        left, right = int(tree.tree_.children_left[node]), int(tree.tree_.children_right[node])
        if left < 0:
            own = int(tree.classes_[int(np.argmax(tree.tree_.value[node][0]))])
            leaves.append((" and ".join(conditions) or EVERYBODY, own))
            return
        yes, no = names.of(int(tree.tree_.feature[node]), float(tree.tree_.threshold[node]))
        walk(left, [*conditions, yes])
        walk(right, [*conditions, no])

    walk(0, [])
    return MembershipTree(leaves=tuple(leaves), accuracy=float(tree.score(x.numpy(), action)))


class _Conditions:
    """Splits of encoded columns, in words."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.block_of = {column: block for block in encoder.layout.blocks for column in block.columns}

    def of(self, column: int, threshold: float) -> tuple[str, str]:
        """Return the conditions of both sides of a split."""
        block = self.block_of[column]
        if column == block.number:
            assert block.scale is not None
            value = float(block.scale.decode(torch.tensor(threshold, dtype=torch.float64)))
            text = FeatureFormatter(self.encoder.schema.feature(block.name)).format_number(value)
            return f"{block.name} ≤ {text}", f"{block.name} > {text}"
        level = format_value(self.encoder.level_names(block.name)[column - block.levels.start])
        return f"{block.name} is not {level}", f"{block.name} is {level}"
