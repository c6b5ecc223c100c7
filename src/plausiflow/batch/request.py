"""The inputs of a batch run: the request, the selection of rows, and the location of the explainer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from plausiflow.batch.row_filter import RowFilter
from plausiflow.constraints import Rule
from plausiflow.errors import InvalidInputError
from plausiflow.explainer import Explainer
from plausiflow.persistence import DOCUMENT
from plausiflow.search import Target


@dataclass(frozen=True, kw_only=True)
class BatchRequest:
    """Arguments of :meth:`~plausiflow.explainer.Explainer.explain`, the same for every row.

    There is no time limit, because answers would depend on the speed of the machine. The device must be
    named, because sums are rounded differently on another device and all parts of a run must be made alike.
    """

    target: Target = "opposite"
    min_probability: float | None = None
    k: int = 1
    locked: tuple[str, ...] = ()
    relaxed: bool = False
    constraints: tuple[Rule, ...] = ()
    second_opinion: bool = True
    diagnose: bool = True
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.device == "auto":
            raise InvalidInputError("`device` must be 'cpu' or 'cuda' in a batch run; got 'auto'.")

    def to_dict(self) -> dict[str, Any]:
        """Return the request as JSON values."""
        return self.arguments() | {"constraints": [rule.to_dict() for rule in self.constraints]}

    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of ``explain``."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return values | {"locked": list(self.locked) or None}


@dataclass(frozen=True, kw_only=True)
class RowSelection:
    """The rows to explain, the columns to copy to the output, and how files are read.

    Attributes:
        where: Explain only rows for which this filter is true.
        limit: Read only this many rows, the first ones; ``where`` selects among them.
        key: Column that identifies the rows.
        columns: More columns to copy to the output. Features that answers may change are not allowed.
        rows_per_unit: Maximum number of rows in a unit, and so in an output file.
        separator: Separator of CSV files, one ASCII character.
        encoding: Encoding of CSV files, one that extends ASCII.
    """

    where: RowFilter | None = None
    limit: int | None = None
    key: str | None = None
    columns: tuple[str, ...] = ()
    rows_per_unit: int = 10_000
    separator: str = ","
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        for name, least in (("limit", 0), ("rows_per_unit", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise InvalidInputError(f"`{name}` must be a whole number of {least} or more; got {value}.")
        if len(self.separator) != 1 or not self.separator.isascii() or self.separator in '"\r\n':
            raise InvalidInputError(
                f"`separator` must be one ASCII character, such as ',' or ';'; got {self.separator!r}."
            )
        try:
            extends_ascii = '",\n'.encode(self.encoding) == b'",\n'
        except LookupError:
            extends_ascii = False
        if not extends_ascii:
            raise InvalidInputError(
                "`encoding` must be one that extends ASCII, such as utf-8 or latin-1, because files are read "
                f"in pieces; got {self.encoding!r}. Convert the files to UTF-8."
            )

    @property
    def copied_columns(self) -> tuple[str, ...]:
        """The key and the other columns to copy, each once."""
        return tuple(dict.fromkeys((*([self.key] if self.key else []), *self.columns)))

    def to_dict(self) -> dict[str, Any]:
        """Return the selection as JSON values."""
        return asdict(self) | {"where": None if self.where is None else self.where.text}


@dataclass(frozen=True, kw_only=True)
class ExplainerLocation:
    """The place from which each worker loads the explainer.

    Attributes:
        folder: Directory written by :meth:`~plausiflow.explainer.Explainer.save`, on a file system that
            every node of a cluster sees.
        model: Returns the model if it is not stored in the directory; a function of a module, or a
            ``partial`` of one.
        model_id: Identifies this model, such as a hash of its file.
    """

    folder: Path
    model: Callable[[], Any] | None = field(default=None, compare=False)
    model_id: str = ""

    def load(self) -> Explainer:
        """Load the explainer."""
        return Explainer.load(self.folder, model=None if self.model is None else self.model())

    def fingerprint(self) -> str:
        """Return a hash of the saved explainer; its document contains the hash of every other file."""
        try:
            content = (self.folder / DOCUMENT).read_bytes()
        except OSError as error:
            raise InvalidInputError(
                f"{self.folder} is not the directory of a saved explainer ({error.strerror}). Save one "
                "first, with `explainer.save(folder)` or `plausiflow fit`."
            ) from error
        return sha256(content + self.model_id.encode()).hexdigest()
