"""Checks of a document before objects are built from it.

A network is built from its settings before its weights are loaded, so settings in a file that somebody else
wrote could ask for a network of any size. The weights of an honest network are in the file: settings may not
ask for more memory than the tensors fill, nor for more columns than the schema has. Weights must be finite:
a density with NaN weights would call every row implausible.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import isfinite
from typing import Any

from plausiflow.persistence.limits import SLACK
from plausiflow.persistence.states import TensorDict, has_user_class
from plausiflow.tables import KINDS, MAX_DECIMALS, CellValue

_NOT_SIZES = {"random_state", "training", "levels_training"}
_MAX_DEPTH, _MAX_CLASSES, _MAX_MASK = 24, 10_000, 64 << 20
_MAY_BE_NAN = {"held_out", "margin", "max_margin", "errors", "scales"}  # statistics of classes without rows
_MAY_BE_INFINITE = {"thresholds", "log_delta", "threshold"}
_WITH_LEVELS = ("boolean", "category", "ordered", "constant")


def check_sizes(settings: Any, state: TensorDict, width: int) -> None:  # noqa: ANN401  (any JSON value)
    """Raise if sizes in settings, such as the widths of layers, exceed what the tensors hold.

    ``width`` is the number of columns of encoded rows.
    """
    n_numbers = sum(tensor.numel() for tensor in state.values())
    shapes = [tensor for name, tensor in state.items() if name.endswith("shape") and tensor.numel()]
    largest = max([0, *(int(tensor.max()) for tensor in shapes)])
    if has_user_class(settings):
        largest = 0
    n_bytes = sum(tensor.nbytes for tensor in state.values())
    if largest > min(n_numbers, max(width, _MAX_CLASSES)) or largest**2 > _MAX_MASK + 4 * n_bytes:
        raise ValueError(f"a shape of {largest} is too large: the file has {n_numbers} numbers")
    _check(settings, "", n_numbers, largest)


def check_width(width: int, tensors: Mapping[str, TensorDict]) -> None:
    """Raise if a surrogate of encoded rows with ``width`` columns would take far more than all tensors."""
    n_bytes = sum(tensor.nbytes for state in tensors.values() for tensor in state.values())
    if "surrogate" in tensors and 8 * width**2 > SLACK + 4 * n_bytes:  # a matrix from columns to columns
        raise ValueError(f"{width} encoded columns are too many: the tensors have {n_bytes} bytes")


def check_finite(name: str, state: TensorDict) -> None:
    """Raise if weights are NaN or infinite, or thresholds NaN; ``name`` is what they belong to."""
    for key, tensor in state.items():
        last = key.rpartition(".")[2]
        if not tensor.is_floating_point() or last in _MAY_BE_NAN:
            continue
        wrong = tensor.isnan() if last in _MAY_BE_INFINITE else ~tensor.isfinite()
        if bool(wrong.any()):
            raise ValueError(f"{int(wrong.sum())} of the weights `{key}` of the {name} are NaN or infinite")


def check_schema(schema: Any) -> None:  # noqa: ANN401
    """Raise unless features have the right fields and types, names are unique and notes are texts."""
    features = schema["features"]
    for feature in features:
        levels, special = feature["levels"], feature["special"]
        numbers = [feature[name] for name in ("minimum", "maximum", "step", "spacing", "offset")]
        valid = isinstance(feature["name"], str) and feature["kind"] in KINDS
        valid = valid and all(type(feature[name]) is bool for name in ("log", "can_miss"))
        valid = valid and all(isinstance(n, float | int) and not isinstance(n, bool) for n in numbers)
        valid = valid and isinstance(levels, list) and all(isinstance(level, CellValue) for level in levels)
        valid = valid and numbers[0] <= numbers[1] and numbers[2] >= 0
        valid = valid and (numbers[3:] == [0, 0] or 0 < numbers[4] < numbers[3])
        valid = valid and type(feature["decimals"]) is int and 0 <= feature["decimals"] <= MAX_DECIMALS
        valid = valid and isinstance(feature["filling"], CellValue | None)
        valid = valid and isinstance(special, list) and all(type(n) is float and isfinite(n) for n in special)
        valid = valid and special == sorted(set(special))
        if not valid or (feature["kind"] in _WITH_LEVELS and not levels):
            raise ValueError(f"this is not a valid feature: {str(feature)[:200]}")
    notes = schema["notes"]
    if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
        raise ValueError(f"`notes` of the schema must be a list of texts: {str(notes)[:200]}")
    if len({feature["name"] for feature in features}) < len(features):
        raise ValueError("two columns have the same name")


def _check(value: Any, name: str, n_numbers: int, n_features: int) -> None:  # noqa: ANN401
    if name in _NOT_SIZES:
        return
    if isinstance(value, Mapping):
        if "n_trees" in value:
            leaves = value["n_trees"] << min(int(value["depth"]), _MAX_DEPTH)
            _check(value["n_layers"] * leaves, "leaves", n_numbers, n_features)
        transforms = value.get("transforms")
        if transforms is not None and transforms * max(16, *value["hidden"]) > n_numbers:
            raise ValueError(f"{transforms} transforms are too many: the file has {n_numbers} numbers")
        if transforms is not None:
            ends = [*value["hidden"][:1], *value["hidden"][-1:]]  # the layers that all columns lead to
            _check(transforms * n_features * min(ends, default=1) // 4, "hidden", n_numbers, n_features)
        for key, item in value.items():
            _check(item, str(key), n_numbers, n_features)
    elif isinstance(value, list):
        for item in value:
            _check(item, name, n_numbers, n_features)
        if name == "hidden" and any(a * b > n_numbers for a, b in pairwise(value)):
            raise ValueError(f"layers of {value} are too large: the file has {n_numbers} numbers")
        pairs = [item for item in value if name == "groups" and isinstance(item, list)]
        if sum(stop - start for start, stop in pairs) ** 2 > n_numbers:
            raise ValueError(f"there are too many levels: the file has {n_numbers} numbers")
    elif type(value) is int and abs(value) > max(n_numbers, 1 << 16):
        raise ValueError(f"`{name}` of {value} is too large: the file has {n_numbers} numbers")
