"""Which rows are meant: ``income < 2000 and job == "clerk"``.

A condition is read into a tree of which only these parts are known: ``and``, ``or``, ``not``, comparisons,
``in`` and ``not in`` a list, ``is None``, names of columns and plain values. Nothing else is ever evaluated.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_object_dtype, is_string_dtype

from plausiflow.errors import InvalidInputError
from plausiflow.tables import Mask

LONGEST = 10_000
"""Characters."""
_OPERATORS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FORMS = (
    'conditions such as income < 2000 and job == "clerk", region in ["north", "east"], not retired, '
    'owner is None, or col("net income") >= 100'
)
_Operand = pd.Series | str | bool | int | float | None


@dataclass(frozen=True)
class Where:
    """A condition on the columns of a table.

    A comparison with a missing value is false, whichever it is; ``owner is None`` asks for missing ones. A
    column of text that is compared with a number is read as numbers.

    Attributes:
        text: The condition.

    Raises:
        InvalidInputError: It is none that is known here.

    Example:
        >>> frame = pd.DataFrame({"income": [1500, 2500, None], "job": ["clerk", "clerk", "none"]})
        >>> Where('income < 2000 or job == "none"').mask(frame).tolist()
        [True, False, True]
    """

    text: str

    def __post_init__(self) -> None:
        list(self.names)

    @cached_property
    def _tree(self) -> ast.expr:
        if len(self.text) > LONGEST:
            raise InvalidInputError(f"A condition must have at most {LONGEST:,} characters.")
        try:
            tree = ast.parse(self.text.strip(), mode="eval").body
            _check_truth(tree)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            if isinstance(error, InvalidInputError):
                raise
            raise InvalidInputError(
                f"The condition {self.text[:200]!r} cannot be read ({error}). Expected are {_FORMS}."
            ) from error
        return tree

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Of the columns that it asks about."""
        return tuple(dict.fromkeys(_names(self._tree)))

    def mask(self, frame: pd.DataFrame) -> Mask:
        """For which rows it holds, shape ``(n,)``.

        Raises:
            InvalidInputError: A column holds what cannot be compared so.
        """
        return _truth(self._tree, frame)


def _check_truth(node: ast.expr) -> None:
    """Raise unless this is a condition of the known kinds."""
    if isinstance(node, ast.BoolOp):
        for value in node.values:
            _check_truth(value)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        _check_truth(node.operand)
    elif isinstance(node, ast.Compare):
        _check_operand(node.left)
        for op, other in zip(node.ops, node.comparators, strict=True):
            if isinstance(op, ast.In | ast.NotIn) and isinstance(other, ast.List | ast.Tuple | ast.Set):
                for value in other.elts:
                    _constant(value)
            elif isinstance(op, ast.Is | ast.IsNot) and _is_none(other):
                continue
            elif type(op) in _OPERATORS and not _is_none(other):
                _check_operand(other)
            else:
                raise _unknown(node)
    elif not _is_column(node):
        raise _unknown(node)


def _check_operand(node: ast.expr) -> None:
    if not _is_column(node):
        _constant(node)


def _is_column(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) or (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "col"
        and not node.keywords
        and len(node.args) == 1
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
    )


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _constant(node: ast.expr) -> str | bool | int | float:
    """A plain value, perhaps with a minus before it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str | bool | int | float):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _constant(node.operand)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return -value
    raise _unknown(node)


def _unknown(node: ast.expr) -> InvalidInputError:
    return InvalidInputError(
        f"`{ast.unparse(node)[:200]}` is nothing that a condition can hold. Expected are {_FORMS}."
    )


def _names(node: ast.expr) -> Iterator[str]:
    """Of the columns, in the order in which they stand there."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Call):
        yield ast.literal_eval(node.args[0])
    else:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                yield from _names(child)


def _truth(node: ast.expr, frame: pd.DataFrame) -> Mask:
    if isinstance(node, ast.BoolOp):
        parts = [_truth(value, frame) for value in node.values]
        together = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
        return np.asarray(together.reduce(parts), dtype=bool)
    if isinstance(node, ast.UnaryOp):
        return ~_truth(node.operand, frame)
    if not isinstance(node, ast.Compare):
        column = _operand(node, frame)
        assert isinstance(column, pd.Series)
        if not (is_bool_dtype(column.dtype) or set(column.dropna().unique()) <= {True, False}):
            raise InvalidInputError(
                f"The column {column.name!r} stands alone in the condition, so it must hold truth values; "
                f"its dtype is {column.dtype}. Compare it with something."
            )
        return column.fillna(False).to_numpy(dtype=bool)
    held = np.ones(len(frame), dtype=bool)
    left = _operand(node.left, frame)
    for op, other in zip(node.ops, node.comparators, strict=True):
        if isinstance(op, ast.Is | ast.IsNot):
            held &= _absent(left, len(frame)) == isinstance(op, ast.Is)
        elif isinstance(op, ast.In | ast.NotIn):
            assert isinstance(other, ast.List | ast.Tuple | ast.Set)
            among = [_compared(operator.eq, left, _constant(value), len(frame)) for value in other.elts]
            inside = np.logical_or.reduce([np.zeros(len(frame), dtype=bool), *among])
            held &= (inside == isinstance(op, ast.In)) & ~_absent(left, len(frame))
        else:
            right = _operand(other, frame)
            held &= _compared(_OPERATORS[type(op)], left, right, len(frame))
            left = right
    return held


def _operand(node: ast.expr, frame: pd.DataFrame) -> _Operand:
    if not _is_column(node):
        return None if _is_none(node) else _constant(node)
    (name,) = _names(node)
    column = frame[name]
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.astype(column.dtype.categories.dtype)
    return column


def _absent(operand: _Operand, n: int) -> Mask:
    if isinstance(operand, pd.Series):
        return operand.isna().to_numpy(dtype=bool)
    return np.full(n, operand is None)


def _compared(compare: Callable[[Any, Any], Any], left: _Operand, right: _Operand, n: int) -> Mask:
    """Where a comparison holds; nowhere where a side is missing."""
    present = ~(_absent(left, n) | _absent(right, n))
    left, right = _as_number(left, right), _as_number(right, left)
    try:
        found = compare(left, right)
    except (TypeError, ValueError, NotImplementedError) as error:
        named = " and ".join(
            f"column {side.name!r} ({side.dtype})" if isinstance(side, pd.Series) else repr(side)
            for side in (left, right)
        )
        raise InvalidInputError(f"The condition compares {named}, which cannot be: {error}.") from error
    if isinstance(found, pd.Series):
        return found.fillna(False).to_numpy(dtype=bool) & present
    return np.full(n, bool(found)) & present


def _as_number(operand: _Operand, other: _Operand) -> _Operand:
    """A column of text as numbers, where the other side is one; what is no number is missing."""
    number = isinstance(other, int | float) and not isinstance(other, bool)
    if not number or not isinstance(operand, pd.Series):
        return operand
    if is_object_dtype(operand.dtype) or is_string_dtype(operand.dtype):
        return pd.to_numeric(operand, errors="coerce")
    return operand
