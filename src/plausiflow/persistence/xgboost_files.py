"""Files of XGBoost, JSON or UBJSON: read without XGBoost, checked, and written again for it.

XGBoost parses a file more loosely than it writes one, and indexes with what it finds. A file is therefore
parsed here, every field gets the type that XGBoost writes, the trees are checked
(:func:`~plausiflow.persistence.tree_checks.check_xgboost`), and XGBoost reads the result as UBJSON. So there
is only one reading of a file, and XGBoost needs little memory for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from plausiflow.errors import InvalidInputError
from plausiflow.persistence.limits import SLACK, check_json
from plausiflow.persistence.tree_checks import check_xgboost
from plausiflow.persistence.ubjson import decode, encode

_TREE_FIELDS = {
    "base_weights": "f4", "categories": "i4", "categories_nodes": "i4", "categories_segments": "i8",
    "categories_sizes": "i8", "default_left": "u1", "left_children": "i4", "loss_changes": "f4",
    "parents": "i4", "right_children": "i4", "split_conditions": "f4", "split_indices": "i4",
    "split_type": "u1", "sum_hessian": "f4",
}  # fmt: skip
"""Arrays of a tree, and the types that XGBoost writes."""
_MODEL_FIELDS = {"cats", "gbtree_model_param", "iteration_indptr", "tree_info", "trees"}
_CATEGORY_FIELDS = {"feature_segments", "sorted_idx"}
_TOKENS = re.compile(rb'"(?>[^"\\]+|\\.)*+"|\[[\s\d.eE+,NaIinfty-]*+\]|NaN|Infinity', re.DOTALL)
"""Texts, arrays of numbers, and numbers that are none."""
_MAX_ARRAY_BYTES, _ARRAY_BYTES = 16 << 20, 160  # the longest text of an array; the memory of an empty one
_ERRORS = (LookupError, TypeError, ValueError, AttributeError, RecursionError, OverflowError)


def read_xgboost(content: bytes, name: str = "model.json") -> dict[str, Any]:
    """Return the document of an XGBoost model after all checks; arrays in trees are NumPy arrays.

    Raises an :class:`InvalidInputError` that starts with ``name`` if the file is not valid.
    """
    document = _parse(content, name)
    try:
        learner = document["learner"]
        booster = learner["gradient_booster"]
        if booster["name"] != "gbtree":
            raise InvalidInputError(f"only plain trees are supported; it has {str(booster['name'])[:40]!r}.")
        model = booster["model"]
        trees, categories = [_typed_tree(tree) for tree in model["trees"]], model.get("cats")
        document = dict(_plain({**document, "learner": {**learner, "gradient_booster": None}}))
        model = _plain({key: value for key, value in model.items() if key not in ("trees", "cats")})
        model["trees"] = trees
        if categories is not None:
            model["cats"] = _typed_categories(categories)
        if not set(model) <= _MODEL_FIELDS:
            raise InvalidInputError(f"its fields {sorted(set(model) - _MODEL_FIELDS)[:5]} are not known.")
        document["learner"]["gradient_booster"] = {"name": "gbtree", "model": model}
        check_xgboost(document)
    except _ERRORS as error:
        raise _invalid(name, error) from error
    return document


def xgboost_objective(content: bytes, name: str = "model.json") -> str:
    """Return the objective of an XGBoost model; the rest of the file is not checked."""
    document = _parse(content, name)
    try:
        return str(document["learner"]["objective"]["name"])
    except _ERRORS as error:
        raise _invalid(name, error) from error


def to_xgboost(document: dict[str, Any]) -> bytes:
    """Return a document that :func:`read_xgboost` returned as bytes that XGBoost reads."""
    return encode(document)


def _parse(content: bytes, name: str) -> dict[str, Any]:
    is_binary = content[:1] == b"{" and content[1:2] in (b"L", b"l", b"I", b"U", b"i")
    try:
        return dict(decode(content) if is_binary else _parse_json(content, name))
    except _ERRORS as error:
        raise _invalid(name, error) from error


def _invalid(name: str, error: Exception) -> InvalidInputError:
    reason = str(error) if isinstance(error, InvalidInputError) else f"{type(error).__name__}: {error}"
    return InvalidInputError(f"XGBoost cannot read {name}: {reason[:300]}")


def _parse_json(content: bytes, name: str) -> dict[str, Any]:
    """Parse JSON; arrays of numbers are parsed one by one and become NumPy arrays at once.

    As a list, a number takes 40 bytes, and a file has little more than two for it.
    """
    arrays: list[npt.NDArray[Any]] = []

    def replaced(match: re.Match[bytes]) -> bytes:
        token = match[0]
        if token[:1] == b'"':
            return token
        if token[:1] != b"[":
            raise InvalidInputError(f"it contains {token.decode()} outside an array.")
        arrays.append(_parse_array(token))
        return b"NaN"

    if _ARRAY_BYTES * content.count(b"[") > 3 * len(content) + SLACK:
        raise InvalidInputError("it has too many arrays.")
    skeleton = _TOKENS.sub(replaced, content)
    check_json(skeleton, name)
    numbers: Iterator[npt.NDArray[Any]] = iter(arrays)
    document = json.loads(skeleton, parse_constant=lambda _: next(numbers), object_pairs_hook=_unique_names)
    return document if isinstance(document, dict) else {}


def _parse_array(text: bytes) -> npt.NDArray[Any]:
    if len(text) > _MAX_ARRAY_BYTES:
        raise InvalidInputError(f"an array has more than {_MAX_ARRAY_BYTES >> 20} MiB.")
    values = np.array(json.loads(text))
    if values.size and values.dtype.kind not in "if":
        raise InvalidInputError(f"{text[:40].decode()} must be numbers.")
    if values.dtype.kind == "i" and (values == values.astype("i4")).all():
        return values.astype("i4")
    with np.errstate(over="ignore"):
        return values if values.dtype.kind == "i" else values.astype("f4")


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise InvalidInputError("an object has the same name twice.")
    return values


def _typed_tree(tree: dict[str, Any]) -> dict[str, Any]:
    unknown = set(tree) - set(_TREE_FIELDS) - {"id", "tree_param"}
    if unknown:
        raise InvalidInputError(f"a tree has fields that are not known: {sorted(unknown)[:5]}.")
    arrays = {name: _typed(tree[name], dtype, name) for name, dtype in _TREE_FIELDS.items()}
    return {"id": tree["id"], "tree_param": dict(tree["tree_param"]), **arrays}


def _typed_categories(categories: dict[str, Any]) -> dict[str, Any]:
    """Return the categories that a model was trained on: names as bytes with their offsets, or numbers."""
    typed = {name: _typed(categories[name], "i4", name) for name in _CATEGORY_FIELDS}
    columns: list[dict[str, Any]] = []
    for column in categories["enc"]:
        if "offsets" in column:
            named = {"offsets": _typed(column["offsets"], "i4", "offsets")}
            columns.append(named | {"values": _typed(column["values"], "i1", "values")})
        else:
            columns.append({"type": int(column["type"]), "values": _plain(column["values"])})
    flags: dict[str, Any] = {
        name: bool(categories[name]) for name in ("is_ref", "sorted") if name in categories
    }
    return {**typed, **flags, "enc": columns}


def _typed(values: Any, dtype: str, name: str) -> npt.NDArray[Any]:  # noqa: ANN401
    """Return an array with the type that XGBoost writes, if it can hold the values."""
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "biuf"):
        raise InvalidInputError(f"`{name}` must be a list of numbers.")
    with np.errstate(over="ignore", invalid="ignore"):
        typed = array.astype(dtype)
    if (
        np.dtype(dtype).kind != "f"
        and not (array.dtype.kind != "f" and (typed == array).all())
        and array.size
    ):
        raise InvalidInputError(f"`{name}` must be whole numbers that XGBoost can store.")
    return typed


def _plain(value: Any) -> Any:  # noqa: ANN401  (any JSON value)
    """Return a value with lists instead of NumPy arrays."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value
