"""Tables: what each column is, and encoded rows."""

from plausiflow.tables.cells import (
    UNKNOWN,
    Codes,
    Mask,
    Objects,
    build,
    is_missing,
    key,
    read_codes,
    read_numbers,
    write,
)
from plausiflow.tables.encoder import Encoded, Encoder
from plausiflow.tables.features import KINDS, Dtype, Feature, Kind, Value, plain
from plausiflow.tables.grids import MAX_DECIMALS, Numbers, precision, to_grid
from plausiflow.tables.layout import Block, Layout, Scale
from plausiflow.tables.schema import Schema, SchemaWarning, frame_problems
from plausiflow.tables.text import as_text, column_like, column_of

__all__ = [
    "KINDS",
    "MAX_DECIMALS",
    "UNKNOWN",
    "Block",
    "Codes",
    "Dtype",
    "Encoded",
    "Encoder",
    "Feature",
    "Kind",
    "Layout",
    "Mask",
    "Numbers",
    "Objects",
    "Scale",
    "Schema",
    "SchemaWarning",
    "Value",
    "as_text",
    "build",
    "column_like",
    "column_of",
    "frame_problems",
    "is_missing",
    "key",
    "plain",
    "precision",
    "read_codes",
    "read_numbers",
    "to_grid",
    "write",
]
