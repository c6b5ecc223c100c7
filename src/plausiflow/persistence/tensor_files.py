"""Files of tensors: their header is checked before the tensors are read.

A safetensors file starts with a JSON header that names the tensors, their types, shapes and places. Every
byte of the file must belong to one tensor, so a file cannot claim tensors that it does not hold.
"""

from __future__ import annotations

import json
import math
from typing import Any, BinaryIO

from safetensors import SafetensorError
from safetensors.torch import load

from plausiflow.errors import InvalidInputError
from plausiflow.persistence.limits import check_json
from plausiflow.persistence.states import TensorDict

_MAX_HEADER_BYTES, _MAX_TENSORS, _MAX_DIMENSION = 8 << 20, 50_000, 1 << 40
_ITEM_BYTES = {"BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4, "U32": 4,
               "F32": 4, "I64": 8, "U64": 8, "F64": 8, "C64": 8}  # fmt: skip


def check_header(file: BinaryIO, size: int, name: str) -> None:
    """Raise unless the header of a safetensors file of ``size`` bytes describes exactly these bytes."""
    length = int.from_bytes(file.read(8), "little")
    if length > min(_MAX_HEADER_BYTES, size - 8):
        raise InvalidInputError(f"the header of {name} is too long")
    content = file.read(length)
    check_json(content, f"the header of {name}")
    try:
        header = json.loads(content)
        header.pop("__metadata__", None)
        end = 0
        for entry in sorted(header.values(), key=lambda entry: entry["data_offsets"]):
            end = _end_of(entry, end)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidInputError(f"{name} is not a safetensors file ({error})") from error
    if end != size - 8 - length or len(header) > _MAX_TENSORS:
        raise InvalidInputError(f"the header of {name} does not describe its content")


def _end_of(entry: dict[str, Any], start: int) -> int:
    """Return where a tensor ends that must start at ``start``."""
    shape, (first, last) = entry["shape"], entry["data_offsets"]
    numbers = [first, last, *shape]
    if not all(type(number) is int and 0 <= number <= _MAX_DIMENSION for number in numbers):
        raise ValueError("a tensor has an invalid shape or place")
    if first != start or last - first != math.prod(shape) * _ITEM_BYTES[entry["dtype"]]:
        raise ValueError("a tensor has another size than its shape")
    return int(last)


def parse_tensors(content: bytes, name: str) -> TensorDict:
    """Return the tensors of a safetensors file whose header was checked."""
    try:
        loaded, tensors = load(content), {}
    except (SafetensorError, ValueError, KeyError, RuntimeError, OverflowError) as error:
        raise InvalidInputError(f"{name} is not a safetensors file ({error})") from error
    for key in list(loaded):
        tensors[key] = loaded.pop(key).clone()  # a clone is aligned
    return tensors
