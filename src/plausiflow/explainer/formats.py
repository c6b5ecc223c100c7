"""Tables of other libraries around an explainer: rows come in, results go out in the library of the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import pandas as pd

from plausiflow.explanations import Explanation, Explanations
from plausiflow.groups import GroupExplanations
from plausiflow.models import with_training_dtypes
from plausiflow.tables import TableFormat, read_table

if TYPE_CHECKING:
    from plausiflow.explainer.explainer import Explainer

Result = TypeVar("Result")
Table: TypeAlias = Any
"""A DataFrame of pandas or Polars, a PyArrow table, a NumPy array, or any table that narwhals knows."""

ROWS = frozenset({"rows", "answers", "counterfactuals", "best_answers", "alternatives", "misses"})
"""Tables with the columns of the rows; they keep the dtypes."""
OTHERS = frozenset({"status", "verdicts", "changes", "figures", "actions", "members", "uncovered"})
"""Other tables, which become text where a column has values of several types."""
RESULTS = (Explanations, GroupExplanations, Explanation)
CALLS = frozenset({"certify", "to_frame"})
"""Methods that return such tables or results."""


def read_rows_for(
    explainer: Explainer, rows: Table, what: str = "`rows`"
) -> tuple[pd.DataFrame, TableFormat]:
    """Return rows as a DataFrame of pandas, and the format of results. A Series is one row.

    An array needs ``feature_names``.
    """
    encoder = explainer._fitted()[0]
    names = encoder.schema.names
    if isinstance(rows, pd.Series) and set(rows.index) == set(names):
        frame, table_format = read_table(rows, what=what)
        return with_training_dtypes(encoder, frame.astype(object)), table_format
    return read_table(rows, explainer.feature_names, what=what)


def in_format(result: Result, table_format: TableFormat) -> Result:
    """Return a result whose tables are in the format of the rows; for pandas, the result itself."""
    return result if table_format.is_pandas else cast(Result, FormattedResult(result, table_format))


class FormattedResult:
    """A result for rows of another library than pandas; it has the attributes and methods of that result.

    Tables are in the library of the rows; for arrays, those with the columns of the rows are arrays. Labels
    of rows, which are their numbers, are in a column ``row``. In ``changes``, values are text. All else is as
    in :attr:`pandas`.

    Attributes:
        pandas: The same result, with tables of pandas.
    """

    def __init__(self, result: Any, table_format: TableFormat) -> None:  # noqa: ANN401
        self.pandas = result
        self._format = table_format

    def __repr__(self) -> str:
        return repr(self.pandas)

    def __len__(self) -> int:
        return len(self.pandas)

    def __iter__(self) -> Iterator[Any]:
        return (in_format(each, self._format) for each in self.pandas)

    def __getitem__(self, i: int) -> Any:  # noqa: ANN401
        return in_format(self.pandas[i], self._format)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *dir(self.pandas)})

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        value = getattr(self.pandas, name)
        if name in CALLS:
            return self._convert_return(value)
        return self._convert(name, value)

    def _convert_return(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def called(*args: Any, **settings: Any) -> Any:  # noqa: ANN401
            return self._convert("to_frame", call(*args, **settings))

        return called

    def _convert(self, name: str, value: Any) -> Any:  # noqa: ANN401
        """Return a value in the format of the rows."""
        if isinstance(value, RESULTS):
            return in_format(value, self._format)
        if isinstance(self.pandas, Explanation) and name in ("factual", "counterfactuals"):
            one = isinstance(value, pd.Series)
            rows = [self._row(each) for each in ([value] if one else value)]
            return rows[0] if one else rows
        if name in ROWS and isinstance(value, pd.DataFrame):
            return self._rows(value)
        if isinstance(value, pd.DataFrame) and name in OTHERS | {"to_frame"}:
            return self._other(name, value)
        if name == "sentences":
            return self._format.write_values(value)
        return value

    def _row(self, row: pd.Series) -> Any:  # noqa: ANN401
        return self._format.write(row.to_frame().T.infer_objects())

    def _rows(self, frame: pd.DataFrame) -> Any:  # noqa: ANN401
        if self._format.library == "numpy":
            return self._format.write(frame)
        return self._format.write(_with_index(frame) if frame.index.nlevels > 1 else frame)

    def _other(self, name: str, frame: pd.DataFrame) -> Any:  # noqa: ANN401
        if self._format.library == "numpy":
            return frame
        if name == "changes":
            texts = {side: frame[side].map(str).where(frame[side].notna()) for side in ("from", "to")}
            frame = frame.assign(**texts)
        labelled = frame.index.name is not None or name in ("members", "uncovered")
        known = self._format if name == "to_frame" else TableFormat(self._format.library)
        return known.write(_with_index(frame) if labelled else frame)


def _with_index(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table with its index in columns, the first of them ``row`` if it has no name."""
    names = [str(name or "row") for name in frame.index.names]
    names = [f"plausiflow_{name}" if name in frame.columns else name for name in names]
    return frame.rename_axis(index=names).reset_index()
