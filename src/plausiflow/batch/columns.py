"""The columns of the output: their names and types, the same in every file, whatever its rows hold.

Types follow from the explainer and from the types of the input, never from the cells of a file: a column that
is missing in all rows of one file has the type that it has in the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from plausiflow.batch.options import Chosen
from plausiflow.batch.rows import NEVER_CHANGED, Rows, stored_columns, taken
from plausiflow.batch.units import Plan
from plausiflow.explanations import ROW, Explanations, answer_table
from plausiflow.tables import Feature, read_codes, read_numbers

FILE = "file"
FIGURES = (
    "cost", "l1", "l2", "n_changes", "probability", "log_density", "score", "judged", "steady", "prediction",
)  # fmt: skip
_PREFIX = "plausiflow_"


@dataclass(frozen=True, kw_only=True, eq=False)
class Output:
    """How answers are written.

    Attributes:
        fields: Names and types of the columns, in their order.
        ours: Our columns, by the names that they have here; where a column of the input has the same name,
            ours is called ``plausiflow_status``.
        levels: Of features that have some, which say how cells are read.
        stored: Columns that are taken over from the input.
    """

    fields: pa.Schema
    ours: Mapping[str, str]
    levels: Mapping[str, Sequence[Any]]
    stored: Sequence[str]

    def table(self, result: Explanations, rows: Rows, file: str) -> pa.Table:
        """The answers of the rows of a file that could be read, a line each, as they are written.

        Args:
            result: Of explaining them.
            rows: The rows, in the order of the result.
            file: Where they come from.
        """
        beside = [name for name in self.stored if name not in result.rows.columns]
        # Only their names count: what is written is taken from what is stored.
        extra = pd.DataFrame(None, index=result.rows.index, columns=beside)
        flat = answer_table(result, extra, figures=FIGURES)
        of = np.searchsorted(rows.numbers, flat[self.ours[ROW]].to_numpy())
        return self._table(flat, taken(rows.stored, of), file)

    def unread(self, rows: Rows, file: str) -> pa.Table:
        """A line for each row that cannot be read."""
        own = {ROW: rows.numbers, "status": "invalid_input", "reason": list(rows.problems.values())}
        flat = pd.DataFrame({self.ours[name]: cells for name, cells in own.items()})
        return self._table(flat, rows.stored, file)

    def _table(self, flat: pd.DataFrame, stored: pa.Table, file: str) -> pa.Table:
        arrays = []
        for field in self.fields:
            if field.name == self.ours[FILE]:
                array = pa.repeat(pa.scalar(file, pa.string()), len(flat))
            elif field.name in self.stored:
                array = _as_stored(stored.column(field.name), field)
            elif field.name in flat:
                array = _as_array(flat[field.name], field, self.levels.get(field.name, ()))
            else:
                array = pa.nulls(len(flat), field.type)
            arrays.append(array)
        return pa.table(arrays, schema=self.fields)


def output_of(empty: Explanations, chosen: Chosen, plan: Plan) -> Output:
    """The columns of a run.

    Args:
        empty: What the explainer says of no rows at all: it has all columns.
        chosen: What is carried along.
        plan: The types of the input.
    """
    schema, stored = empty.schema, stored_columns(empty.schema, chosen)
    beside = [name for name in stored if name not in schema.names]
    flat = answer_table(empty, pd.DataFrame(columns=beside, index=empty.rows.index), figures=FIGURES)
    ours = {name: f"{_PREFIX}{name}" if f"{_PREFIX}{name}" in flat else name for name in _named(empty)}
    theirs = {*schema.names, *beside}
    ours[FILE] = f"{_PREFIX}{FILE}" if FILE in theirs else FILE
    types = _our_types(empty, ours) | {feature.name: _type_of(feature, plan) for feature in schema.features}
    types |= {name: _unified(name, plan) for name in stored}
    first = [*([chosen.key] if chosen.key else []), ours[FILE]]
    order = [*first, *(name for name in flat.columns if name not in first)]
    return Output(
        fields=pa.schema([(name, types[name]) for name in order]),
        ours=ours,
        levels={feature.name: feature.levels for feature in schema.features if feature.has_levels}
        | dict.fromkeys((ours["predicted"], ours["target"]), empty.labels),
        stored=stored,
    )


def _named(empty: Explanations) -> list[str]:
    figures = [name for name in FIGURES if name in empty.figures]
    return [ROW, "rank", "status", "reason", "predicted", "target", *figures]


def _our_types(empty: Explanations, ours: Mapping[str, str]) -> dict[str, pa.DataType]:
    types = dict.fromkeys(ours, pa.float64())
    types |= dict.fromkeys((ROW, "rank", "n_changes"), pa.int64())
    types |= dict.fromkeys((FILE, "status", "reason", "target"), pa.string())
    if empty.labels:
        types |= dict.fromkeys(("predicted", "target"), _type_of_levels(empty.labels))
    return {ours[name]: kind for name, kind in types.items() if name in ours}


def _type_of(feature: Feature, plan: Plan) -> pa.DataType:
    """Of the answers of a feature that may change."""
    if feature.kind in NEVER_CHANGED:
        return _unified(feature.name, plan)
    if feature.has_levels:
        return _type_of_levels(feature.levels)
    whole = feature.step > 0 and float(feature.step).is_integer()
    integers = all(map(pa.types.is_integer, plan.types_of(feature.name)))
    return pa.int64() if whole and integers and plan.schemas else pa.float64()


def _type_of_levels(levels: Sequence[Any]) -> pa.DataType:
    if all(isinstance(level, bool) for level in levels):
        return pa.bool_()
    if any(isinstance(level, str | bool) for level in levels):
        return pa.string()
    return pa.int64() if all(isinstance(level, int) for level in levels) else pa.float64()


def _unified(name: str, plan: Plan) -> pa.DataType:
    """The type that holds a stored column of all files; text, where they do not agree."""
    fields = [pa.schema([(name, _decoded(kind))]) for kind in plan.types_of(name)]
    try:
        kind = (
            pa.unify_schemas(fields, promote_options="permissive").field(name).type if fields else pa.null()
        )
    except pa.ArrowException:
        return pa.string()
    return pa.string() if pa.types.is_null(kind) else kind


def _decoded(kind: pa.DataType) -> pa.DataType:
    return _decoded(kind.value_type) if pa.types.is_dictionary(kind) else kind


def _as_stored(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        column = column.cast(_decoded(column.type))
    return column.cast(field.type)


def _as_array(column: pd.Series, field: pa.Field, levels: Sequence[Any]) -> pa.Array:
    """Cells of ours, or of an answer, in the type of their column."""
    if pa.types.is_string(field.type):
        cells = column.astype(object).map(str, na_action="ignore")
        return pa.array(cells.to_numpy(object), pa.string(), from_pandas=True)
    if levels:
        codes = read_codes(column, levels)
        held = np.array([*levels, None], dtype=object)[np.where(codes < 0, len(levels), codes)]
        return pa.array(held, field.type, from_pandas=True)
    if pa.types.is_integer(field.type):
        return pa.array(column.astype("Int64"), field.type, from_pandas=True)
    numbers, _ = read_numbers(column)
    return pa.array(numbers, field.type, from_pandas=True)
