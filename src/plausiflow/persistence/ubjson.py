"""UBJSON, the binary form of XGBoost's JSON, as Python values and NumPy arrays.

XGBoost reads this form without checking what it indexes with, so a file is decoded here, checked, and encoded
again: XGBoost only reads bytes that were written here. Arrays of one type of number are NumPy arrays; any
other array is a list. Numbers have the most significant byte first.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from plausiflow.errors import InvalidInputError

_MAX_DEPTH, _MAX_VALUES = 32, 2_000_000
_DTYPES = {b"i": "i1", b"U": "u1", b"I": "i2", b"u": "u2", b"l": "i4", b"m": "u4", b"L": "i8", b"M": "u8",
           b"d": "f4", b"D": "f8"}  # fmt: skip
_MARKS = {dtype: mark for mark, dtype in _DTYPES.items()}
_LENGTHS = (b"i", b"U", b"I", b"l", b"L")
_CONSTANTS = {b"Z": None, b"T": True, b"F": False}


class _Reader:
    """Reads one value after the other; counts them, because each takes far more memory than its bytes."""

    def __init__(self, content: bytes) -> None:
        self.content, self.at, self.n_values = memoryview(content), 0, 0

    def take(self, size: int) -> memoryview:
        if not 0 <= size <= len(self.content) - self.at:
            raise InvalidInputError("The UBJSON ends too early.")
        self.at += size
        return self.content[self.at - size : self.at]

    def mark(self) -> bytes:
        return bytes(self.take(1))

    def next_is(self, mark: bytes) -> bool:
        """Return whether the next byte is the given one, and skip it if so."""
        found = bytes(self.content[self.at : self.at + 1]) == mark
        self.at += found
        return found

    def number(self, mark: bytes) -> Any:  # noqa: ANN401  (int or float)
        dtype = np.dtype(_DTYPES[mark]).newbyteorder(">")
        return np.frombuffer(self.take(dtype.itemsize), dtype)[0].item()

    def length(self) -> int:
        mark = self.mark()
        if mark not in _LENGTHS:
            raise InvalidInputError(f"The UBJSON has an invalid length {mark!r}.")
        return int(self.number(mark))

    def text(self) -> str:
        return bytes(self.take(self.length())).decode()

    def value(self, mark: bytes, depth: int = 0) -> Any:  # noqa: ANN401  (any JSON value)
        self.n_values += 1
        if self.n_values > _MAX_VALUES or depth > _MAX_DEPTH:
            raise InvalidInputError(
                f"The UBJSON has more than {_MAX_VALUES} values, or is nested too deeply."
            )
        if mark in _CONSTANTS:
            return _CONSTANTS[mark]
        if mark in _DTYPES:
            return self.number(mark)
        readers: dict[bytes, Callable[[], Any]] = {
            b"S": self.text,
            b"C": lambda: bytes(self.take(1)).decode(),
            b"[": lambda: self.array(depth),
            b"{": lambda: self.object(depth),
        }
        if mark not in readers:
            raise InvalidInputError(f"The UBJSON has an unknown type {mark!r}.")
        return readers[mark]()

    def array(self, depth: int) -> Any:  # noqa: ANN401  (a list or a NumPy array)
        if self.next_is(b"$"):
            dtype = np.dtype(_DTYPES.get(self.mark(), "V0")).newbyteorder(">")
            if not self.next_is(b"#") or not dtype.itemsize:
                raise InvalidInputError("The UBJSON has an array of an unknown type.")
            return np.frombuffer(self.take(self.length() * dtype.itemsize), dtype)
        if self.next_is(b"#"):
            return [self.value(self.mark(), depth + 1) for _ in range(self.length())]
        values = []
        while not self.next_is(b"]"):
            values.append(self.value(self.mark(), depth + 1))
        return values

    def object(self, depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while not self.next_is(b"}"):
            name = self.text()
            if name in values:
                raise InvalidInputError(f"The UBJSON has the name {name[:40]!r} twice.")
            values[name] = self.value(self.mark(), depth + 1)
        return values


def decode(content: bytes) -> Any:  # noqa: ANN401  (any JSON value)
    """Return the value of UBJSON; raise an :class:`InvalidInputError` if it has another form.

    Example:
        >>> decode(encode({"name": "a", "left": np.array([1, -1], dtype="i4")}))
        {'name': 'a', 'left': array([ 1, -1], dtype='>i4')}
    """
    reader = _Reader(content)
    value = reader.value(reader.mark())
    if reader.at != len(content):
        raise InvalidInputError("The UBJSON has bytes after its end.")
    return value


def encode(value: Any) -> bytes:  # noqa: ANN401  (any JSON value)
    """Return a value as UBJSON; NumPy arrays keep their type of number."""
    parts: list[bytes] = []
    _write(value, parts)
    return b"".join(parts)


def _write(value: Any, parts: list[bytes]) -> None:  # noqa: ANN401
    if value is None or isinstance(value, bool):
        parts.append({None: b"Z", True: b"T", False: b"F"}[value])
    elif isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 63:
            raise InvalidInputError(f"UBJSON cannot store {str(value)[:40]}.")
        parts.append(b"L" + struct.pack(">q", value))
    elif isinstance(value, float):
        parts.append(b"D" + struct.pack(">d", value))
    elif isinstance(value, str):
        parts.append(b"S" + _text(value))
    elif isinstance(value, np.ndarray):
        mark = _MARKS[value.dtype.str[1:]]
        parts += [b"[$", mark, b"#L", struct.pack(">q", len(value))]
        parts.append(value.astype(value.dtype.newbyteorder(">"), copy=False).tobytes())
    elif isinstance(value, Mapping):
        parts.append(b"{")
        for name, item in value.items():
            parts.append(_text(name))
            _write(item, parts)
        parts.append(b"}")
    else:
        parts += [b"[#L", struct.pack(">q", len(value))]
        for item in value:
            _write(item, parts)


def _text(value: str) -> bytes:
    content = value.encode()
    return b"L" + struct.pack(">q", len(content)) + content
