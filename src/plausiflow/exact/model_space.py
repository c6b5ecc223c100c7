"""The models of users over the features of a table, read once for each model and grid."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from plausiflow.exact.layer_space import LayerSpace
from plausiflow.exact.spaces import ModelSpace
from plausiflow.exact.tree_space import tree_space
from plausiflow.models import BlackBox, TableModel, read_exact_trees, read_layers
from plausiflow.tables import Layout

_SPACES: WeakKeyDictionary[TableModel, dict[Layout, ModelSpace]] = WeakKeyDictionary()


def model_space(model: TableModel | None, layout: Layout) -> ModelSpace:
    """Return a model over the features of a table.

    Raises:
        UnsupportedModelError: The model has no trees, and no affine maps with ReLU, that can be read exactly.
    """
    if model is None:
        return LayerSpace(read_layers(model), layout)  # raises
    known = _SPACES.setdefault(model, {})
    if layout not in known:
        if isinstance(model, BlackBox):
            known[layout] = tree_space(read_exact_trees(model), layout)
        else:
            known[layout] = LayerSpace(read_layers(model), layout)
    return known[layout]
