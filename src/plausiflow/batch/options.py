"""What a batch run is asked: the question, the rows, and where its explainer is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from plausiflow.batch.where import Where
from plausiflow.constraints import Rule
from plausiflow.errors import InvalidInputError
from plausiflow.explainer import Explainer
from plausiflow.persistence import DOCUMENT
from plausiflow.search import Target

ROWS_PER_UNIT = 10_000


@dataclass(frozen=True, kw_only=True)
class BatchRequest:
    """What is asked about every row; the arguments of :meth:`~plausiflow.explainer.Explainer.explain`.

    There is no time limit: answers would depend on how fast a machine is. Nor does a device choose itself:
    sums are rounded otherwise on another one, and all parts of a run are made alike.
    """

    target: Target = "opposite"
    min_probability: float | None = None
    k: int = 1
    locked: tuple[str, ...] = ()
    relaxed: bool = False
    constraints: tuple[Rule, ...] = ()
    second_opinion: bool = True
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.device == "auto":
            raise InvalidInputError("`device` must be 'cpu' or 'cuda' in a batch run; got 'auto'. Name one.")

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return self.arguments() | {"constraints": [rule.to_dict() for rule in self.constraints]}

    def arguments(self) -> dict[str, Any]:
        """As ``explain`` takes them."""
        named = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return named | {"locked": list(self.locked) or None}


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """Which rows are explained, and what is carried along.

    Attributes:
        where: Only rows for which this holds.
        limit: Only so many rows, the first ones; ``where`` chooses among them.
        key: The column that names rows.
        columns: More columns that go with the answers; no features that answers may change.
        rows_per_unit: Most rows of a unit, and so of an output file.
        separator: Of CSV files, one ASCII character.
        encoding: Of CSV files; one that extends ASCII.
    """

    where: Where | None = None
    limit: int | None = None
    key: str | None = None
    columns: tuple[str, ...] = ()
    rows_per_unit: int = ROWS_PER_UNIT
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
            extends = '",\n'.encode(self.encoding) == b'",\n'
        except LookupError:
            extends = False
        if not extends:
            raise InvalidInputError(
                f"`encoding` must be one that extends ASCII, such as utf-8 or latin-1, for files are read in "
                f"pieces; got {self.encoding!r}. Write the files anew in UTF-8."
            )

    @property
    def carried(self) -> tuple[str, ...]:
        """The key and the other columns, each once."""
        return tuple(dict.fromkeys((*([self.key] if self.key else []), *self.columns)))

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self) | {"where": None if self.where is None else self.where.text}


@dataclass(frozen=True, kw_only=True)
class Saved:
    """Where each worker loads the explainer from.

    Attributes:
        folder: What :meth:`~plausiflow.explainer.Explainer.save` wrote; on a cluster, every node sees it.
        model: Gives the model, where it is not stored there; a function of a module, or a ``partial`` of one.
        model_is: What tells this model from others, such as a hash of its file.
    """

    folder: Path
    model: Callable[[], Any] | None = field(default=None, compare=False)
    model_is: str = ""

    def load(self) -> Explainer:
        """The explainer."""
        return Explainer.load(self.folder, model=None if self.model is None else self.model())

    def fingerprint(self) -> str:
        """Of all that is stored: the document has the hash of every other file."""
        try:
            content = (self.folder / DOCUMENT).read_bytes()
        except OSError as error:
            raise InvalidInputError(
                f"{self.folder} is no directory of a saved explainer ({error.strerror}). Save one first: "
                "`explainer.save(folder)`, or `plausiflow fit`."
            ) from error
        return sha256(content + self.model_is.encode()).hexdigest()
