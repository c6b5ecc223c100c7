"""The trees of users' models over the features of a table, read once for each model and grid."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from plausiflow.exact.tree_space import TreeSpace, tree_space
from plausiflow.models import BlackBox, TableModel, UnsupportedModelError, read_exact_trees
from plausiflow.tables import Layout

_SPACES: WeakKeyDictionary[BlackBox, dict[Layout, TreeSpace]] = WeakKeyDictionary()


def model_space(model: TableModel | None, layout: Layout) -> TreeSpace:
    """Return the trees of a model over the features of a table.

    Raises:
        UnsupportedModelError: The model has no trees that can be read exactly.
    """
    if not isinstance(model, BlackBox):
        raise UnsupportedModelError("proofs need a model of trees")
    known = _SPACES.setdefault(model, {})
    if layout not in known:
        known[layout] = tree_space(read_exact_trees(model), layout)
    return known[layout]
