"""A user's torch module of the table's columns, in original units, as a model of encoded rows.

Encoded rows are mapped back to the numbers of the table, with gradients, and the module is called on those.
What a module must do, and what is said where it does not, is the business of :class:`TorchClassifier`: it
makes the frozen copies, and it is the one place where the module is called.
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
from plausiflow.models.sklearn.columns import Affine, Basis, Column, matrix, table_columns
from plausiflow.models.sklearn.conversion import check_encoded
from plausiflow.models.torch_classifier import TorchClassifier
from plausiflow.models.torch_outputs import check_gradient, found_output
from plausiflow.tables import Encoder

_ROWS = 4096

Output = Literal["logits", "probabilities", "numbers"]


class OriginalUnits(nn.Module):
    """The table's columns at encoded rows, ``(n, width) -> (n, number of columns)``; NaN where missing."""

    def __init__(self, columns: Sequence[Column], basis: Basis) -> None:
        super().__init__()
        self.basis = basis
        self.cells = Affine(matrix([_filled(column) for column in columns], basis.size))
        self.missing = Affine(matrix([_absence(column) for column in columns], basis.size))

    def forward(self, x: Tensor) -> Tensor:
        """Keeps the graph; a missing cell has no gradient."""
        basis = self.basis(x)
        cells: Tensor = self.cells(basis)
        return cells.masked_fill(self.missing(basis) > 0.5, torch.nan)


def _filled(column: Column) -> Column:
    """The column with zero where it is missing."""
    return column.mapped(lambda cell: np.nan_to_num(column.as_number(cell)))


def _absence(column: Column) -> Column:
    """One where the column is missing, else zero."""
    return replace(column.mapped(lambda cell: float(pd.isna(cell))), number=None)


class _OneNumber(nn.Module):
    """A module that must give one number for each row, as a column."""

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
    """A torch module of the table as a model of encoded rows.

    Attributes:
        kind: The module's class.
        n_features: Width of an encoded row.
        output: What the module gives.
        rows: From encoded rows to the table's columns in original units.
        model: The module, and what is checked of it.
    """

    kind: str
    n_features: int
    output: Output
    rows: Frozen[OriginalUnits]
    model: TorchClassifier

    differentiable = True

    @property
    def description(self) -> str:
        """What it is, in words."""
        return f"a torch module that gives {self.output}"

    def _answers(self, x: Tensor) -> Tensor:
        check_encoded(x, self.n_features)
        return self.model.logits(self.rows(x)(x))


@dataclass(eq=False, repr=False, kw_only=True)
class TableClassifier(TableModule):
    """A module that decides; made by :func:`torch_classifier`."""

    n_classes: int

    def logits(self, x: Tensor) -> Tensor:
        """Unnormalised log-probabilities, ``(n, width) -> (n, k)``; in x's dtype, keeps the graph."""
        return self._answers(x)

    def __repr__(self) -> str:
        return f"TableModule({self.kind}, {self.n_classes} classes; {self.output})"


@dataclass(eq=False, repr=False, kw_only=True)
class TableRegressor(TableModule):
    """A module that predicts a number; made by :func:`torch_regressor`."""

    def values(self, x: Tensor) -> Tensor:
        """Predictions, ``(n, width) -> (n,)``; in x's dtype, keeps the graph."""
        return self._answers(x)[:, 1]  # a single number is the logit of class 1, beside a zero

    def __repr__(self) -> str:
        return f"TableModule({self.kind}; {self.output})"


def torch_classifier(
    module: nn.Module,
    encoder: Encoder,
    frame: pd.DataFrame,
    n_classes: int,
    output: Literal["auto", "logits", "probabilities"] = "auto",
) -> TableClassifier:
    """A torch module that decides about rows of a table, as a classifier of encoded rows.

    The module takes all columns of the table in the table's order, as floats ``(n, number of columns)`` in
    original units: numbers as they are, booleans as zero and one, NaN where a cell is missing. It is copied
    and left alone; the copy runs in evaluation mode, in the precision and on the device of the encoded rows.

    Args:
        module: Returns ``(n, k)``; with two classes also ``(n, 1)`` or ``(n,)``, for class 1.
        encoder: Of the table.
        frame: Training rows, to try the module on.
        n_classes: Number of classes.
        output: What the module returns. ``"auto"`` finds out: these are probabilities where all of them are
            in [0, 1], and sum to one where there is more than one column; and where that is still so for rows
            ten and a million times as far from the mean as the training rows, on both sides; and where a
            single column is not made by a linear map. Otherwise they are logits.

    Raises:
        InvalidInputError: Some column is not a number in encoded rows, or a setting is not allowed.
        ModelError: The module fails on the training rows: it raises, or what it returns has another shape,
            is NaN in a row that misses nothing, is no probability where it should be, or has no gradient.

    Example:
        >>> from plausiflow.tables.schema import Schema
        >>> frame = pd.DataFrame({"age": [31, 54, 47, 25], "owns": [True, False, True, False]})
        >>> encoder = Encoder(Schema.infer(frame))
        >>> torch_classifier(nn.Linear(2, 3), encoder, frame, n_classes=3)
        TableModule(Linear, 3 classes; logits)
    """
    model = TorchClassifier(module, n_classes=n_classes, output="logits" if output == "auto" else output)
    rows, x = _original_units(
        encoder,
        frame,
        "a function `DataFrame -> probabilities`, or a module of encoded rows in `TorchClassifier`",
    )
    with torch.enable_grad(), _told_of(encoder):
        if output == "auto":
            model.output = found_output(model, rows(x))
        made = TableClassifier(
            kind=type(module).__name__,
            n_features=encoder.layout.width,
            output=model.output,
            rows=Frozen(rows),
            model=model,
            n_classes=n_classes,
        )
        check_gradient(made.logits(x.requires_grad_()), x)
    return made


def torch_regressor(module: nn.Module, encoder: Encoder, frame: pd.DataFrame) -> TableRegressor:
    """A torch module that predicts a number for rows of a table, as a regressor of encoded rows.

    Args:
        module: Takes rows as in :func:`torch_classifier`, and returns ``(n,)`` or ``(n, 1)``.
        encoder: Of the table.
        frame: Training rows, to try the module on.

    Raises:
        InvalidInputError: Some column is not a number in encoded rows, or there is no module.
        ModelError: The module fails on the training rows, as in :func:`torch_classifier`.

    Example:
        >>> from plausiflow.tables.schema import Schema
        >>> frame = pd.DataFrame({"age": [31, 54, 47, 25], "owns": [True, False, True, False]})
        >>> torch_regressor(nn.Linear(2, 1), Encoder(Schema.infer(frame)), frame)
        TableModule(Linear; numbers)
    """
    if not isinstance(module, nn.Module):
        raise InvalidInputError(f"`module` must be a torch.nn.Module; got {type(module).__name__}.")
    rows, x = _original_units(
        encoder, frame, "a function `DataFrame -> numbers`, or an object with `values(x)` of encoded rows"
    )
    made = TableRegressor(
        kind=type(module).__name__,
        n_features=encoder.layout.width,
        output="numbers",
        rows=Frozen(rows),
        model=TorchClassifier(_OneNumber(module), n_classes=2),
    )
    with torch.enable_grad(), _told_of(encoder):
        check_gradient(made.values(x.requires_grad_()), x)
    return made


def _original_units(encoder: Encoder, frame: pd.DataFrame, instead: str) -> tuple[OriginalUnits, Tensor]:
    """The map to original units, and encoded training rows, spread over the table."""
    encoded, basis = encoder.encode(frame), Basis(encoder.layout)
    columns = table_columns(encoder, frame, encoder.schema.names, None, basis)
    text = [c.name for c in columns if any(isinstance(cell, str) for cell in c.states.values())]
    problems = [
        f"`{column.name}` is {column.unknown}. Drop the column and train the module without it, or declare "
        "what it is with `kinds`"
        for column in columns
        if column.unknown is not None
    ]
    if text:
        problems.append(
            f"{', '.join(f'`{name}`' for name in text)}: text. Drop what the module does not take; where it "
            f"takes text, give {instead} instead"
        )
    usable = np.flatnonzero(encoded.usable)
    if not len(usable):
        problems.append("no training row can be encoded, to try the module on. Give rows of the table")
    if problems:
        raise InvalidInputError("A torch module must be given numbers only:\n- " + "\n- ".join(problems))
    spread = usable[np.linspace(0, len(usable) - 1, min(len(usable), _ROWS)).astype(np.int64)]
    return OriginalUnits(columns, basis), encoded.x[spread]


@contextmanager
def _told_of(encoder: Encoder) -> Iterator[None]:
    """Say in an error of the module what it is given."""
    try:
        yield
    except ModelError as error:
        names = encoder.schema.names
        listed = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        raise ModelError(
            f"{error} It is given the {len(names)} columns of the table, in original units and in this "
            f"order: {listed}."
        ) from error
