"""Tables: their schema, and the encoding of their rows."""

from plausiflow.tables.cells import (
    MISSING,
    UNKNOWN,
    IntArray,
    Mask,
    ObjectArray,
    column_from_values,
    is_missing,
    level_key,
    read_level_codes,
    read_numbers,
    replace_cells,
    special_codes,
)
from plausiflow.tables.encoder import Encoded, Encoder
from plausiflow.tables.evidence import (
    EXCEPTIONS,
    FAMILY_ERROR,
    FEWEST_ROWS,
    SELDOM,
    Evidence,
    least_expected,
)
from plausiflow.tables.features import (
    KINDS,
    CellValue,
    Dtype,
    Feature,
    Kind,
    dtype_from_json,
    dtype_to_json,
    to_python,
)
from plausiflow.tables.grids import MAX_DECIMALS, FloatArray, float_dtype, round_to_grid
from plausiflow.tables.layout import Block, Layout, Scale, decode_log
from plausiflow.tables.level_index import LevelIndex
from plausiflow.tables.revealed import rows_to_read
from plausiflow.tables.schema import Schema, SchemaWarning, frame_problems
from plausiflow.tables.text import parse_column, parse_column_as, text_column

__all__ = [
    "EXCEPTIONS",
    "FAMILY_ERROR",
    "FEWEST_ROWS",
    "KINDS",
    "MAX_DECIMALS",
    "MISSING",
    "SELDOM",
    "UNKNOWN",
    "Block",
    "CellValue",
    "Dtype",
    "Encoded",
    "Encoder",
    "Evidence",
    "Feature",
    "FloatArray",
    "IntArray",
    "Kind",
    "Layout",
    "LevelIndex",
    "Mask",
    "ObjectArray",
    "Scale",
    "Schema",
    "SchemaWarning",
    "column_from_values",
    "decode_log",
    "dtype_from_json",
    "dtype_to_json",
    "float_dtype",
    "frame_problems",
    "is_missing",
    "least_expected",
    "level_key",
    "parse_column",
    "parse_column_as",
    "read_level_codes",
    "read_numbers",
    "replace_cells",
    "round_to_grid",
    "rows_to_read",
    "special_codes",
    "text_column",
    "to_python",
]  # fmt: skip
