"""The columns of the output: their names and types, the same in every file.

Types follow from the explainer and from the types of the input, never from the cells of a file: a column that
is missing in all rows of one file has the same type there as in the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from plausiflow.batch.input_rows import FIXED_KINDS, InputRows, stored_columns, take_rows
from plausiflow.batch.plan import BatchPlan
from plausiflow.batch.request import RowSelection
from plausiflow.explanations import ROW, Explanations, answer_table
from plausiflow.tables import Feature, read_level_codes, read_numbers

FILE = "file"
FIGURES = (
    "cost", "l1", "l2", "n_changes", "probability", "log_density", "score", "judged", "steady", "prediction",
    "lasting", "tolerant",
)  # fmt: skip
_PREFIX = "plausiflow_"


@dataclass(frozen=True, kw_only=True, eq=False)
class OutputColumns:
    """Converts explanations to tables with the columns of the output.

    If a column of the input has the name of one of plausiflow's, the latter gets a prefix:
    ``plausiflow_status``.
    """

    schema: pa.Schema  # Names and types of the columns, in order.
    names: Mapping[str, str]  # Names of plausiflow's own columns in the output.
    levels: Mapping[str, Sequence[Any]]  # Of the columns that have some; they decide how cells are read.
    stored: Sequence[str]  # Columns that are copied from the input.

    def to_table(self, result: Explanations, rows: InputRows, file: str) -> pa.Table:
        """Return a line for each answer of the readable rows of a file, in the order of the result."""
        others = [name for name in self.stored if name not in result.rows.columns]
        # Only the names of these columns count: their cells come from `rows.stored`.
        extra = pd.DataFrame(None, index=result.rows.index, columns=others)
        flat = answer_table(result, extra, figures=FIGURES)
        positions = np.searchsorted(rows.numbers, flat[self.names[ROW]].to_numpy())
        return self._convert(flat, take_rows(rows.stored, positions), file)

    def unreadable_table(self, rows: InputRows, file: str) -> pa.Table:
        """Return a line for each row that cannot be read."""
        own = {ROW: rows.numbers, "status": "invalid_input", "reason": list(rows.problems.values())}
        flat = pd.DataFrame({self.names[name]: cells for name, cells in own.items()})
        return self._convert(flat, rows.stored, file)

    def _convert(self, flat: pd.DataFrame, stored: pa.Table, file: str) -> pa.Table:
        arrays = []
        for field in self.schema:
            if field.name == self.names[FILE]:
                array = pa.repeat(pa.scalar(file, pa.string()), len(flat))
            elif field.name in self.stored:
                column = stored.column(field.name)
                array = column.cast(_plain_type(column.type)).cast(field.type)
            elif field.name in flat:
                array = _to_array(flat[field.name], field, self.levels.get(field.name, ()))
            else:
                array = pa.nulls(len(flat), field.type)
            arrays.append(array)
        return pa.table(arrays, schema=self.schema)


def output_columns(empty: Explanations, selection: RowSelection, plan: BatchPlan) -> OutputColumns:
    """Return the output columns of a run, given explanations of zero rows, which have all columns."""
    schema, stored = empty.schema, stored_columns(empty.schema, selection)
    others = [name for name in stored if name not in schema.names]
    flat = answer_table(empty, pd.DataFrame(columns=others, index=empty.rows.index), figures=FIGURES)
    figures = [name for name in FIGURES if name in empty.figures]
    own = [ROW, "rank", "status", "reason", "predicted", "target", *figures]
    names = {name: f"{_PREFIX}{name}" if f"{_PREFIX}{name}" in flat else name for name in own}
    names[FILE] = f"{_PREFIX}{FILE}" if FILE in {*schema.names, *others} else FILE
    types = _own_types(empty, names) | {
        feature.name: _answer_type(feature, plan) for feature in schema.features
    }
    types |= {name: _common_type(name, plan) for name in stored}
    first = [*([selection.key] if selection.key else []), names[FILE]]
    order = [*first, *(name for name in flat.columns if name not in first)]
    return OutputColumns(
        schema=pa.schema([(name, types[name]) for name in order]),
        names=names,
        levels={feature.name: feature.levels for feature in schema.features if feature.has_levels}
        | dict.fromkeys((names["predicted"], names["target"]), empty.labels),
        stored=stored,
    )


def _own_types(empty: Explanations, names: Mapping[str, str]) -> dict[str, pa.DataType]:
    types = dict.fromkeys(names, pa.float64())
    types |= dict.fromkeys((ROW, "rank", "n_changes"), pa.int64())
    types |= dict.fromkeys((FILE, "status", "reason", "target"), pa.string())
    if empty.labels:
        types |= dict.fromkeys(("predicted", "target"), _level_type(empty.labels))
    return {names[name]: kind for name, kind in types.items() if name in names}


def _answer_type(feature: Feature, plan: BatchPlan) -> pa.DataType:
    """Return the type of a feature in the answers."""
    if feature.kind in FIXED_KINDS:
        return _common_type(feature.name, plan)
    if feature.has_levels:
        return _level_type(feature.levels)
    whole = feature.step > 0 and float(feature.step).is_integer()
    integers = all(map(pa.types.is_integer, plan.column_types(feature.name)))
    return pa.int64() if whole and integers and plan.schemas else pa.float64()


def _level_type(levels: Sequence[Any]) -> pa.DataType:
    if all(isinstance(level, bool) for level in levels):
        return pa.bool_()
    if any(isinstance(level, str | bool) for level in levels):
        return pa.string()
    return pa.int64() if all(isinstance(level, int) for level in levels) else pa.float64()


def _common_type(name: str, plan: BatchPlan) -> pa.DataType:
    """Return the type that fits a stored column of all files; text if they do not agree."""
    fields = [pa.schema([(name, _plain_type(kind))]) for kind in plan.column_types(name)]
    if not fields:
        return pa.string()
    try:
        kind = pa.unify_schemas(fields, promote_options="permissive").field(name).type
    except pa.ArrowException:
        return pa.string()
    return pa.string() if pa.types.is_null(kind) else kind


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values of a dictionary-encoded column."""
    return _plain_type(kind.value_type) if pa.types.is_dictionary(kind) else kind


def _to_array(column: pd.Series, field: pa.Field, levels: Sequence[Any]) -> pa.Array:
    """Convert cells of answers to the type of their column."""
    if pa.types.is_string(field.type):
        cells = column.astype(object).map(str, na_action="ignore")
        return pa.array(cells.to_numpy(object), pa.string(), from_pandas=True)
    if levels:
        codes = read_level_codes(column, levels)
        values = np.array([*levels, None], dtype=object)[np.where(codes < 0, len(levels), codes)]
        return pa.array(values, field.type, from_pandas=True)
    if pa.types.is_integer(field.type):
        return pa.array(column.astype("Int64"), field.type, from_pandas=True)
    numbers, _ = read_numbers(column)
    return pa.array(numbers, field.type, from_pandas=True)
