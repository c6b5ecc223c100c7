"""Who takes which action, and where the rows without one are: shallow decision trees over the rows, in words.

A tree is a summary for people. It does not assign anybody: a row gets an action because the action was
verified for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.tree import DecisionTreeClassifier
from torch import Tensor

from plausiflow.explanations import FeatureFormatter, format_value
from plausiflow.tables import Block, Encoder, FloatArray, IntArray

MOST_DEPTH = 3
SMALLEST_SHARE = 0.01
"""Share of the rows that a leaf must have."""
EVERYBODY, ORDINARY = "everybody", "a number"


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
    tree = _fitted_tree(x, action, seed)
    leaves = _leaves(tree, encoder, lambda one, other: bool(one.argmax() == other.argmax()))
    return MembershipTree(
        leaves=tuple((text, int(tree.classes_[counts.argmax()])) for text, counts in leaves),
        accuracy=float(tree.score(x.numpy(), action)),
    )


def map_uncovered(encoder: Encoder, x: Tensor, action: IntArray, seed: int = 0) -> list[tuple[str, int, int]]:
    """Return where rows without an action are: conditions, how many rows meet them, how many lack an action.

    The arguments are those of :func:`describe_membership`. Conditions with the largest share come first.
    """
    lacks = (action < 0).astype(np.int64)
    if not lacks.any():
        return []
    leaves = _leaves(_fitted_tree(x, lacks, seed), encoder, lambda one, other: not one[-1] and not other[-1])
    parts = [
        (text, round(counts.sum()), round(counts[-1])) for text, counts in leaves if round(counts[-1]) > 0
    ]
    return sorted(parts, key=lambda part: -part[2] / part[1])


def _fitted_tree(x: Tensor, labels: IntArray, seed: int) -> DecisionTreeClassifier:
    tree = DecisionTreeClassifier(
        max_depth=MOST_DEPTH, min_samples_leaf=max(1, int(SMALLEST_SHARE * len(x))), random_state=seed
    )
    return tree.fit(x.numpy(), labels)


def _leaves(
    tree: DecisionTreeClassifier, encoder: Encoder, alike: Callable[[FloatArray, FloatArray], bool]
) -> list[tuple[str, FloatArray]]:
    """Return the conditions of each leaf in words, and how many rows of each class it has.

    Two leaves of one node are one if they are ``alike``.
    """
    names, nodes = _Conditions(encoder), tree.tree_

    def walk(node: int, conditions: Mapping[tuple[str, str], str]) -> list[tuple[str, FloatArray]]:
        counts = nodes.value[node][0] * nodes.n_node_samples[node]
        text = " and ".join(conditions.values()) or EVERYBODY
        if nodes.children_left[node] < 0:
            return [(text, counts)]
        yes, no = names.of(int(nodes.feature[node]), float(nodes.threshold[node]))
        left = walk(int(nodes.children_left[node]), _with(conditions, *yes))
        right = walk(int(nodes.children_right[node]), _with(conditions, *no))
        if len(left) == len(right) == 1 and alike(left[0][1], right[0][1]):
            return [(text, counts)]
        return [*left, *right]

    return walk(0, {})


def _with(
    conditions: Mapping[tuple[str, str], str], name: str, kind: str, text: str
) -> dict[tuple[str, str], str]:
    """Return conditions with one more, which takes the place of those that it implies."""
    implied = {(name, kind)}
    if kind == "is":
        implied |= {key for key in conditions if key[0] == name and key[1].startswith("is not")}
    return {key: value for key, value in conditions.items() if key not in implied} | {(name, kind): text}


class _Conditions:
    """Splits of encoded columns, in words."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.block_of = {column: block for block in encoder.layout.blocks for column in block.columns}

    def of(self, column: int, threshold: float) -> tuple[tuple[str, str, str], tuple[str, str, str]]:
        """Return the feature, the kind and the text of the conditions of both sides of a split."""
        block = self.block_of[column]
        name = block.name
        if column == block.number:
            text = self._number(block, threshold)
            return (name, "≤", f"{name} ≤ {text}"), (name, ">", f"{name} > {text}")
        states = self.encoder.level_names(name)
        level = format_value(states[column - block.levels.start])
        if block.number is not None and column == block.levels.start:
            # The first state of a number is that it has an ordinary value.
            other = format_value(states[1]) if len(states) == 2 else f"not {ORDINARY}"
            return (name, f"is {other}", f"{name} is {other}"), (name, "is", f"{name} is {ORDINARY}")
        return (name, f"is not {level}", f"{name} is not {level}"), (name, "is", f"{name} is {level}")

    def _number(self, block: Block, threshold: float) -> str:
        """Return the threshold of a number; of a number with steps, the last one below it."""
        assert block.scale is not None
        feature = self.encoder.schema.feature(block.name)
        value = float(block.scale.decode(torch.tensor(threshold, dtype=torch.float64)))
        if feature.step:
            steps = math.floor((value - feature.minimum) / feature.step + 1e-6)
            value = feature.minimum + steps * feature.step
        return FeatureFormatter(feature).format_number(value)
