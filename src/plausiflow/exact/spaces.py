"""What a proof needs to know about a model, whatever it is made of."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd
from torch import Tensor

from plausiflow.exact.tree_space import BlockSplits
from plausiflow.tables import Layout

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


class OutputForm(Protocol):
    """What the outputs of a model are, and how exactly they are computed."""

    @property
    def n_outputs(self) -> int:
        """Number of outputs."""
        ...

    @property
    def averaged(self) -> bool:
        """Whether the outputs are the probabilities themselves; else they are logits."""
        ...

    @property
    def probability_error(self) -> float:
        """What rounding may add to a probability that is computed from the outputs."""
        ...

    def rounding(self, weights: Array) -> float:
        """Return the largest error of a weighted sum of the outputs."""
        ...


class ModelSpace(OutputForm, Protocol):
    """A model over the features of a table; trees and layers are."""

    @property
    def layout(self) -> Layout:
        """Layout of encoded rows, with the grids that numbers may move on."""
        ...

    @property
    def splits(self) -> tuple[BlockSplits, ...]:
        """The splits of each feature, in the order of the layout's blocks."""
        ...

    def own_left(self, row: pd.DataFrame) -> Mask:
        """Return at which splits one row of the table goes left, shape ``(splits,)``."""
        ...

    def outputs_of(self, x_cf: Tensor, row: pd.DataFrame, x: Tensor) -> Array:
        """Return the outputs for a changed row ``(1, width)`` of a row of the table and its encoding."""
        ...
