"""What the worker does for clients: predictions and explanations of many rows at once, and maps.

Requests whose work has the same ``key`` are answered together. Rows share a table only with rows that widen
the same columns of it, see :mod:`plausiflow.service.instances`, and only with rows that are asked about with
the same options; what is wanted and what is locked may differ from row to row.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pandas as pd

from plausiflow.constraints import Range
from plausiflow.explanations import json_parts, json_value
from plausiflow.service import maps
from plausiflow.service.instances import Instance
from plausiflow.service.models import Served


@dataclass(frozen=True)
class Answer:
    """What became of one piece of work.

    Attributes:
        texts: JSON of each row, or of the whole.
        statuses: The verdict of each row that was explained.
        together: How many rows were answered at once, those of other clients included.
    """

    texts: list[str]
    statuses: list[str]
    together: int


class Work(ABC):
    """Some rows of one request, which may be answered together with others of the same key.

    Attributes:
        positions: Of the rows in their request.
    """

    positions: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.positions)

    @property
    @abstractmethod
    def key(self) -> Hashable:
        """Work of the same key is done together."""

    @classmethod
    @abstractmethod
    def answered(cls, works: Sequence[Self], seconds: float) -> list[Answer]:
        """One answer for each of some works of the same key, in about so many seconds."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Rows(Work):
    """Rows that fit into one table.

    Attributes:
        served: Whom they are for.
        instances: The rows.
    """

    served: Served
    instances: tuple[Instance, ...]
    positions: tuple[int, ...]

    @property
    def key(self) -> Hashable:
        """The kind of work, the model, and the columns that are widened."""
        return type(self), self.served.name, self.instances[0].wider

    @staticmethod
    def table(works: Sequence[_Rows]) -> pd.DataFrame:
        """The rows of some works, each labelled with its position in its request."""
        rows = [instance for work in works for instance in work.instances]
        positions = [position for work in works for position in work.positions]
        return works[0].served.reader.frame(rows, positions)

    @staticmethod
    def shared(works: Sequence[_Rows], texts: list[str], statuses: list[str]) -> list[Answer]:
        """Each work's own share of what was found for all."""
        shares, start = [], 0
        for work in works:
            own = slice(start, start + work.size)
            shares.append(Answer(texts[own], statuses[own], len(texts)))
            start += work.size
        return shares


@dataclass(frozen=True, kw_only=True, eq=False)
class Predicting(_Rows):
    """Rows that the model is asked about."""

    @classmethod
    def answered(cls, works: Sequence[Self], seconds: float) -> list[Answer]:
        """Outcomes and probabilities, or numbers; null for a row that cannot be read, with its problem."""
        served, frame = works[0].served, cls.table(works)
        problems = served.encoder.encode(frame).problems.tolist()
        if served.labels:
            table = served.explainer.predict_proba(frame).to_numpy()
            found = [
                _decided(row, served.labels, problem) for row, problem in zip(table, problems, strict=True)
            ]
        else:
            values = served.explainer.predict(frame).tolist()
            found = [_predicted(value, problem) for value, problem in zip(values, problems, strict=True)]
        return cls.shared(works, [json.dumps(entry, allow_nan=False) for entry in found], [])


def _decided(row: Any, labels: tuple[Any, ...], problem: str | None) -> dict[str, Any]:  # noqa: ANN401
    unknown = bool(pd.isna(row).any())
    return {
        "outcome": None if unknown else json_value(labels[int(row.argmax())]),
        "probabilities": None
        if unknown
        else {str(json_value(label)): float(value) for label, value in zip(labels, row, strict=True)},
        "problem": problem or ("the model gives no probabilities for it" if unknown else None),
    }


def _predicted(value: float, problem: str | None) -> dict[str, Any]:
    unknown = bool(pd.isna(value))
    return {
        "value": json_value(value),
        "problem": problem or ("the model gives no prediction for it" if unknown else None),
    }


@dataclass(frozen=True, kw_only=True)
class Options:
    """How rows are explained; the same for all that are explained together.

    Attributes:
        policy: ``"opposite"``, ``"runner_up"`` or ``"other"``; nothing where each row has its own target.
        k: Number of counterfactuals for each row.
        min_probability: Of the wanted outcome; nothing where it must only win.
        relaxed: Whether the nearest miss is given where there is no answer.
        second_opinion: Whether answers keep the margin of the explainer's confidence.
        ranges: Names of numbers, and their smallest and largest allowed values.
    """

    policy: str | None = None
    k: int = 1
    min_probability: float | None = None
    relaxed: bool = False
    second_opinion: bool = True
    ranges: tuple[tuple[str, float | None, float | None], ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Explaining(_Rows):
    """Rows that are explained.

    Attributes:
        options: How.
        targets: What is wanted of each row, unless a policy says it.
        locked: Features that these rows keep.
    """

    options: Options
    targets: tuple[Any, ...] = ()
    locked: tuple[str, ...] = ()

    @property
    def key(self) -> Hashable:
        """Also the options."""
        return super().key, self.options

    @classmethod
    def answered(cls, works: Sequence[Self], seconds: float) -> list[Answer]:
        """What the library gives for the rows, each as in its JSON."""
        served, options = works[0].served, works[0].options
        locked = [list(work.locked) for work in works for _ in work.instances]
        result = served.explainer.explain(
            cls.table(works),
            options.policy or [target for work in works for target in work.targets],
            min_probability=options.min_probability,
            k=options.k,
            locked=locked if any(locked) else None,
            time_limit=seconds,
            relaxed=options.relaxed,
            constraints=[Range(*bounds) for bounds in options.ranges],
            second_opinion=options.second_opinion,
        )
        _, *rows, _ = json_parts(result)
        texts = [row.removeprefix(", ") for row in rows]
        return cls.shared(works, texts, result.verdicts["status"].tolist())


@dataclass(frozen=True, kw_only=True, eq=False)
class Drawing(Work):
    """A map around one row.

    Attributes:
        served: Whom it is for.
        instance: The row.
        target: The outcome whose probability and density are shown.
        points: Further rows that are placed on it.
        horizontal: The feature across; nothing for a projection.
        vertical: The feature upwards; likewise.
        cells: Along each side.
    """

    served: Served
    instance: dict[str, Any]
    target: Any
    points: list[dict[str, Any]]
    horizontal: str | None
    vertical: str | None
    cells: int
    positions: tuple[int, ...] = (0,)

    @property
    def key(self) -> Hashable:
        """Of this map alone."""
        return id(self)

    @classmethod
    def answered(cls, works: Sequence[Self], seconds: float) -> list[Answer]:
        """The map, as JSON."""
        (work,) = works
        drawn = maps.map_of(
            work.served.explainer,
            work.instance,
            work.target,
            work.points,
            work.horizontal,
            work.vertical,
            work.cells,
        )
        return [Answer([json.dumps(json_value(drawn), allow_nan=False)], [], 1)]
