"""A user's torch module of the table's columns, in original units, as a model of encoded rows.

Encoded rows are mapped back to the numbers of the table, differentiably, and the module is called on these.
:class:`TorchClassifier` makes the frozen copies of the module, calls it and checks its output.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from plausiflow.core import Frozen
from plausiflow.errors import InvalidInputError, ModelError
from plausiflow.models.sklearn.columns import Affine, Basis, ModelColumn, table_columns, weight_matrix
from plausiflow.models.sklearn.conversion import check_encoded
from plausiflow.models.torch_classifier import TorchClassifier, check_gradient, detect_output
from plausiflow.tables import Encoder

_MAX_ROWS = 4096

Output = Literal["logits", "probabilities", "numbers"]


class OriginalUnits(nn.Module):
    """Map from encoded rows to the table's columns, ``(n, width) -> (n, columns)``; NaN where missing."""

    def __init__(self, columns: Sequence[ModelColumn], basis: Basis) -> None:
        super().__init__()
        self.basis = basis
        self.cells = Affine(weight_matrix([_fill_missing(column) for column in columns], basis.size))
        self.missing = Affine(weight_matrix([_missing_indicator(column) for column in columns], basis.size))

    def forward(self, x: Tensor) -> Tensor:
        """Return the columns; differentiable. A missing cell has no gradient."""
        basis = self.basis(x)
        cells: Tensor = self.cells(basis)
        return cells.masked_fill(self.missing(basis) > 0.5, torch.nan)


def _fill_missing(column: ModelColumn) -> ModelColumn:
    """Return the column with zero where it is missing."""
    return column.map_states(lambda cell: np.nan_to_num(column.to_number(cell)))


def _missing_indicator(column: ModelColumn) -> ModelColumn:
    """Return one where the column is missing, else zero."""
    return replace(column.map_states(lambda cell: float(pd.isna(cell))), number=None)


class _OneNumber(nn.Module):
    """A module whose output must be one number per row, as a column."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, rows: Tensor) -> Tensor:
        output = self.module(rows)
        shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        if shape not in ((len(rows),), (len(rows), 1)):
            raise ValueError(f"one number for each row is expected, shape ({len(rows)}, 1); got {shape}")
        column: Tensor = output.reshape(-1, 1)
        return column


@dataclass(eq=False, repr=False, kw_only=True)
class TableModule:
    """A torch module of the table as a model of encoded rows."""

    kind: str  # Name of the module's class.
    n_features: int  # Width of an encoded row.
    output: Output
    original_units: Frozen[OriginalUnits]  # From encoded rows to the table's columns.
    model: TorchClassifier

    differentiable = True

    @property
    def description(self) -> str:
        """What it is, in words."""
        return f"a torch module that returns {self.output}"

    def _outputs(self, x: Tensor) -> Tensor:
        check_encoded(x, self.n_features)
        return self.model.logits(self.original_units(x)(x))


@dataclass(eq=False, repr=False, kw_only=True)
class TableClassifier(TableModule):
    """A classifier made by :func:`torch_classifier`."""

    n_classes: int

    def logits(self, x: Tensor) -> Tensor:
        """Return unnormalised log-probabilities, ``(n, width) -> (n, k)``, in x's dtype; differentiable."""
        return self._outputs(x)

    def __repr__(self) -> str:
        return f"TableModule({self.kind}, {self.n_classes} classes; {self.output})"


@dataclass(eq=False, repr=False, kw_only=True)
class TableRegressor(TableModule):
    """A regressor made by :func:`torch_regressor`."""

    def values(self, x: Tensor) -> Tensor:
        """Return predictions, ``(n, width) -> (n,)``, in x's dtype; differentiable."""
        return self._outputs(x)[:, 1]  # a single output is the logit of class 1, after zeros

    def __repr__(self) -> str:
        return f"TableModule({self.kind}; {self.output})"


def torch_classifier(
    module: nn.Module,
    encoder: Encoder,
    frame: pd.DataFrame,
    n_classes: int,
    output: Literal["auto", "logits", "probabilities"] = "auto",
) -> TableClassifier:
    """Return a torch module of the table's columns as a classifier of encoded rows.

    The module takes all columns of the table in the table's order, as floats ``(n, columns)`` in original
    units: numbers unchanged, booleans as zero and one, NaN where a cell is missing. It returns ``(n, k)``;
    with two classes also ``(n, 1)`` or ``(n,)``, for class 1. It is copied and not changed. The copy runs in
    evaluation mode, in the precision and on the device of the encoded rows.

    Raises an :class:`InvalidInputError` if a column is not a number in encoded rows, and a
    :class:`ModelError` if the module fails on the training rows ``frame`` or has no gradient there.

    Example:
        >>> from plausiflow.tables.schema import Schema
        >>> frame = pd.DataFrame({"age": [31, 54, 47, 25], "owns": [True, False, True, False]})
        >>> encoder = Encoder(Schema.infer(frame))
        >>> torch_classifier(nn.Linear(2, 3), encoder, frame, n_classes=3)
        TableModule(Linear, 3 classes; logits)
    """
    model = TorchClassifier(module, n_classes=n_classes, output="logits" if output == "auto" else output)
    original_units, x = _make_original_units(
        encoder,
        frame,
        "a function `DataFrame -> probabilities`, or a module of encoded rows in `TorchClassifier`",
    )
    with torch.enable_grad(), _naming_columns(encoder):
        if output == "auto":
            model.output = detect_output(model, original_units(x))
        classifier = TableClassifier(
            kind=type(module).__name__,
            n_features=encoder.layout.width,
            output=model.output,
            original_units=Frozen(original_units),
            model=model,
            n_classes=n_classes,
        )
        check_gradient(classifier.logits(x.requires_grad_()), x)
    return classifier


def torch_regressor(module: nn.Module, encoder: Encoder, frame: pd.DataFrame) -> TableRegressor:
    """Return a torch module of the table's columns as a regressor of encoded rows.

    It takes rows as in :func:`torch_classifier`, returns ``(n,)`` or ``(n, 1)``, and raises the same errors.

    Example:
        >>> from plausiflow.tables.schema import Schema
        >>> frame = pd.DataFrame({"age": [31, 54, 47, 25], "owns": [True, False, True, False]})
        >>> torch_regressor(nn.Linear(2, 1), Encoder(Schema.infer(frame)), frame)
        TableModule(Linear; numbers)
    """
    if not isinstance(module, nn.Module):
        raise InvalidInputError(f"`module` must be a torch.nn.Module; got {type(module).__name__}.")
    original_units, x = _make_original_units(
        encoder, frame, "a function `DataFrame -> numbers`, or an object with `values(x)` of encoded rows"
    )
    regressor = TableRegressor(
        kind=type(module).__name__,
        n_features=encoder.layout.width,
        output="numbers",
        original_units=Frozen(original_units),
        model=TorchClassifier(_OneNumber(module), n_classes=2),
    )
    with torch.enable_grad(), _naming_columns(encoder):
        check_gradient(regressor.values(x.requires_grad_()), x)
    return regressor


def _make_original_units(encoder: Encoder, frame: pd.DataFrame, instead: str) -> tuple[OriginalUnits, Tensor]:
    """Return the map to original units, and encoded training rows from all over the table."""
    encoded, basis = encoder.encode(frame), Basis(encoder.layout)
    columns = table_columns(encoder, frame, encoder.schema.names, None, basis)
    text = [c.name for c in columns if any(isinstance(cell, str) for cell in c.states.values())]
    problems = [
        f"`{column.name}` is {column.unknown}. Drop the column and train the module without it, or declare "
        "its kind with `kinds`"
        for column in columns
        if column.unknown is not None
    ]
    if text:
        problems.append(
            f"{', '.join(f'`{name}`' for name in text)}: text. Drop columns that the module does not take; "
            f"if it takes text, use {instead} instead"
        )
    usable = np.flatnonzero(encoded.usable)
    if not len(usable):
        problems.append("no training row can be encoded to check the module on. Pass rows of the table")
    if problems:
        raise InvalidInputError("A torch module takes only numbers:\n- " + "\n- ".join(problems))
    spread = usable[np.linspace(0, len(usable) - 1, min(len(usable), _MAX_ROWS)).astype(np.int64)]
    return OriginalUnits(columns, basis), encoded.x[spread]


@contextmanager
def _naming_columns(encoder: Encoder) -> Iterator[None]:
    """Add the columns that the module takes to its errors."""
    try:
        yield
    except ModelError as error:
        names = encoder.schema.names
        listed = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        raise ModelError(
            f"{error} It takes the {len(names)} columns of the table, in original units and in this order: "
            f"{listed}."
        ) from error
