"""Whether a file's schema can be one, and its settings ask for no more memory than its tensors fill.

A network is built from its settings before its weights are put in. Settings that were written by somebody
else could ask for a network of any size; but the weights of an honest one are in the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from plausiflow.persistence.states import State
from plausiflow.tables import KINDS, MAX_DECIMALS, Value

_FREE = {"seed", "training", "levels_training"}
"""Settings that no memory depends on."""
_DEEPEST = 24


def check_sizes(settings: Any, state: State) -> None:  # noqa: ANN401  (anything that JSON holds)
    """Raise where settings, such as a number of members or the widths of layers, exceed what tensors hold.

    Raises:
        ValueError: They do.
    """
    numbers = sum(tensor.numel() for tensor in state.values())
    shapes = [tensor for name, tensor in state.items() if name.endswith("shape") and tensor.numel()]
    largest = max([0, *(int(tensor.max()) for tensor in shapes)])
    if largest > numbers:
        raise ValueError(f"a shape of {largest} cannot be: there are {numbers} numbers")
    _check(settings, "", numbers)


def check_schema(written: Any) -> None:  # noqa: ANN401
    """Raise unless every feature has the fields of one, of their types, and no two have a name.

    Raises:
        ValueError: Some have not.
    """
    features = written["features"]
    for feature in features:
        levels, numbers = feature["levels"], [feature[name] for name in ("minimum", "maximum", "step")]
        fine = isinstance(feature["name"], str) and feature["kind"] in KINDS
        fine = fine and all(type(feature[name]) is bool for name in ("log", "zero_state", "can_miss"))
        fine = fine and all(isinstance(n, float | int) and not isinstance(n, bool) for n in numbers)
        fine = fine and isinstance(levels, list) and all(isinstance(level, Value) for level in levels)
        fine = fine and numbers[0] <= numbers[1] and numbers[2] >= 0
        fine = fine and type(feature["decimals"]) is int and 0 <= feature["decimals"] <= MAX_DECIMALS
        fine = fine and isinstance(feature["filling"], Value | None)
        if not fine or (feature["kind"] in ("boolean", "category", "ordered", "constant") and not levels):
            raise ValueError(f"this is no feature: {str(feature)[:200]}")
    if len({feature["name"] for feature in features}) < len(features):
        raise ValueError("two columns have one name")


def _check(value: Any, name: str, numbers: int) -> None:  # noqa: ANN401
    if name in _FREE:
        return
    if isinstance(value, Mapping):
        if "n_trees" in value:
            leaves = value["n_trees"] << min(int(value["depth"]), _DEEPEST)
            _check(value["n_layers"] * leaves, "leaves", numbers)
        if value.get("transforms") is not None and value["transforms"] * max(16, *value["hidden"]) > numbers:
            raise ValueError(f"{value['transforms']} transforms cannot be: there are {numbers} numbers")
        for key, item in value.items():
            _check(item, str(key), numbers)
    elif isinstance(value, list):
        for item in value:
            _check(item, name, numbers)
        if name == "hidden" and any(a * b > numbers for a, b in pairwise(value)):
            raise ValueError(f"layers of {value} cannot be: there are {numbers} numbers")
        pairs = [item for item in value if name == "groups" and isinstance(item, list)]
        if sum(stop - start for start, stop in pairs) ** 2 > numbers:
            raise ValueError(f"the levels cannot be modelled: there are {numbers} numbers")
    elif type(value) is int and abs(value) > max(numbers, 1 << 16):
        raise ValueError(f"`{name}` cannot be {value}: there are {numbers} numbers")
