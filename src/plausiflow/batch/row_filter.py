"""A filter of rows, written as a condition: ``income < 2000 and job == "clerk"``.

The condition is parsed to a syntax tree. Only these forms are accepted: ``and``, ``or``, ``not``,
comparisons, ``in`` and ``not in`` a list, ``is None``, names of columns and constants. Nothing else is ever
evaluated.
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

MAX_LENGTH = 10_000
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
class RowFilter:
    """A condition on the columns of a table.

    A comparison with a missing value is false; ``owner is None`` is true for missing values. A text column
    that is compared with a number is read as numbers.

    Attributes:
        text: The condition.

    Raises:
        InvalidInputError: The condition has a form that is not accepted.

    Example:
        >>> frame = pd.DataFrame({"income": [1500, 2500, None], "job": ["clerk", "clerk", "none"]})
        >>> RowFilter('income < 2000 or job == "none"').mask(frame).tolist()
        [True, False, True]
    """

    text: str

    def __post_init__(self) -> None:
        self.columns  # noqa: B018  (raises if the condition cannot be parsed)

    @cached_property
    def _tree(self) -> ast.expr:
        if len(self.text) > MAX_LENGTH:
            raise InvalidInputError(
                f"A condition must have at most {MAX_LENGTH:,} characters; got {len(self.text):,}."
            )
        try:
            tree = ast.parse(self.text.strip(), mode="eval").body
            _check_condition(tree)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            if isinstance(error, InvalidInputError):
                raise
            raise InvalidInputError(
                f"The condition {self.text[:200]!r} cannot be parsed ({error}). Write {_FORMS}."
            ) from error
        return tree

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns that the condition refers to."""
        return tuple(dict.fromkeys(_column_names(self._tree)))

    def mask(self, frame: pd.DataFrame) -> Mask:
        """Return the rows for which the condition is true, shape ``(n,)``.

        Raises:
            InvalidInputError: The values of a column cannot be compared as the condition says.
        """
        return _evaluate(self._tree, frame)


def _check_condition(node: ast.expr) -> None:
    """Raise unless the tree is a condition of an accepted form."""
    if isinstance(node, ast.BoolOp):
        for value in node.values:
            _check_condition(value)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        _check_condition(node.operand)
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
                raise _unsupported(node)
    elif not _is_column(node):
        raise _unsupported(node)


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
    """Return the value of a constant, which may have a minus sign."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str | bool | int | float):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _constant(node.operand)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return -value
    raise _unsupported(node)


def _unsupported(node: ast.expr) -> InvalidInputError:
    return InvalidInputError(f"A condition cannot contain `{ast.unparse(node)[:200]}`. Write {_FORMS}.")


def _column_names(node: ast.expr) -> Iterator[str]:
    """Yield the names of the columns, in the order of the text."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Call):
        yield ast.literal_eval(node.args[0])
    else:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                yield from _column_names(child)


def _evaluate(node: ast.expr, frame: pd.DataFrame) -> Mask:
    if isinstance(node, ast.BoolOp):
        parts = [_evaluate(value, frame) for value in node.values]
        combine = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
        return np.asarray(combine.reduce(parts), dtype=bool)
    if isinstance(node, ast.UnaryOp):
        return ~_evaluate(node.operand, frame)
    if not isinstance(node, ast.Compare):
        column = _operand(node, frame)
        assert isinstance(column, pd.Series)
        if not (is_bool_dtype(column.dtype) or set(column.dropna().unique()) <= {True, False}):
            raise InvalidInputError(
                f"The column {column.name!r} stands alone in the condition, so it must contain booleans; its "
                f"dtype is {column.dtype}. Compare it with a value."
            )
        return column.fillna(False).to_numpy(dtype=bool)
    mask = np.ones(len(frame), dtype=bool)
    left = _operand(node.left, frame)
    for op, other in zip(node.ops, node.comparators, strict=True):
        if isinstance(op, ast.Is | ast.IsNot):
            mask &= _is_missing(left, len(frame)) == isinstance(op, ast.Is)
        elif isinstance(op, ast.In | ast.NotIn):
            assert isinstance(other, ast.List | ast.Tuple | ast.Set)
            among = [_compare(operator.eq, left, _constant(value), len(frame)) for value in other.elts]
            inside = np.logical_or.reduce([np.zeros(len(frame), dtype=bool), *among])
            mask &= (inside == isinstance(op, ast.In)) & ~_is_missing(left, len(frame))
        else:
            right = _operand(other, frame)
            mask &= _compare(_OPERATORS[type(op)], left, right, len(frame))
            left = right
    return mask


def _operand(node: ast.expr, frame: pd.DataFrame) -> _Operand:
    if not _is_column(node):
        return None if _is_none(node) else _constant(node)
    (name,) = _column_names(node)
    column = frame[name]
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.astype(column.dtype.categories.dtype)
    return column


def _is_missing(operand: _Operand, n: int) -> Mask:
    if isinstance(operand, pd.Series):
        return operand.isna().to_numpy(dtype=bool)
    return np.full(n, operand is None)


def _compare(compare: Callable[[Any, Any], Any], left: _Operand, right: _Operand, n: int) -> Mask:
    """Compare two operands; the result is false where one of them is missing."""
    present = ~(_is_missing(left, n) | _is_missing(right, n))
    left, right = _as_number(left, right), _as_number(right, left)
    try:
        result = compare(left, right)
    except (TypeError, ValueError, NotImplementedError) as error:
        sides = " and ".join(
            f"column {side.name!r} ({side.dtype})" if isinstance(side, pd.Series) else repr(side)
            for side in (left, right)
        )
        raise InvalidInputError(f"The condition compares {sides}, which is not possible: {error}.") from error
    if isinstance(result, pd.Series):
        return result.fillna(False).to_numpy(dtype=bool) & present
    return np.full(n, bool(result)) & present


def _as_number(operand: _Operand, other: _Operand) -> _Operand:
    """Return a text column as numbers if the other side is one; text that is not a number is missing."""
    number = isinstance(other, int | float) and not isinstance(other, bool)
    if not number or not isinstance(operand, pd.Series):
        return operand
    if is_object_dtype(operand.dtype) or is_string_dtype(operand.dtype):
        return pd.to_numeric(operand, errors="coerce")
    return operand
