"""An explainer as the service offers it: its name, its rows, and what clients are told about it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd
from pandas.api.types import is_datetime64_any_dtype, is_integer_dtype

from plausiflow.constraints import Immutable
from plausiflow.errors import InvalidInputError, NotFittedError
from plausiflow.explainer import Explainer
from plausiflow.explanations import json_column, json_value
from plausiflow.models import BlackBox, EncodedModel
from plausiflow.service.instances import Reader
from plausiflow.tables import Encoder, Feature, Schema

MOST_ROWS = 200
POLICIES = ("opposite", "runner_up", "other")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, eq=False)
class Served:
    """An explainer that clients may ask.

    Attributes:
        name: In the addresses: letters, digits, ``_``, ``.`` and ``-``.
        explainer: Fitted.
        rows: Rows that people may start from; the first 200 are shown.

    Raises:
        InvalidInputError: The name cannot stand in an address, or the rows are no rows of the table.
        NotFittedError: The explainer is not fitted.
    """

    name: str
    explainer: Explainer
    rows: pd.DataFrame | None = field(default=None)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidInputError(
                "The name of a model must be letters, digits, `_`, `.` and `-`, at most 100, and start with "
                f"a letter or a digit; got {self.name!r}. Rename its directory."
            )
        if self.explainer.encoder_ is None:
            raise NotFittedError(
                f"The explainer {self.name!r} is not fitted. Call `fit`, or load a saved one."
            )
        absent = [] if self.rows is None else [name for name in self.schema.names if name not in self.rows]
        if absent:
            raise InvalidInputError(
                f"The rows to start from must have all columns of the training table; {', '.join(absent)} "
                "are not there."
            )

    @property
    def encoder(self) -> Encoder:
        """Of the explainer."""
        assert self.explainer.encoder_ is not None
        return self.explainer.encoder_

    @property
    def model(self) -> EncodedModel | BlackBox:
        """What decides."""
        assert self.explainer.model_ is not None
        return self.explainer.model_

    @property
    def schema(self) -> Schema:
        """Of the table."""
        return self.encoder.schema

    @property
    def labels(self) -> tuple[Any, ...]:
        """Of the outcomes; none where a number is predicted."""
        return self.model.labels

    @cached_property
    def reader(self) -> Reader:
        """Of the rows that clients send."""
        return Reader(self.schema)

    @cached_property
    def policies(self) -> tuple[str, ...]:
        """Words that ask for an outcome without naming it."""
        if not self.labels:
            return ()
        words = POLICIES if len(self.labels) == 2 else POLICIES[1:]
        return tuple(word for word in words if word not in self.labels)

    @cached_property
    def described(self) -> dict[str, Any]:
        """What clients are told."""
        fixed = {
            name
            for rule in self.explainer.constraints
            if isinstance(rule, Immutable)
            for name in rule.features
        }
        return {
            "name": self.name,
            "ready": True,
            "outcome": self.explainer.outcome_,
            "outcomes": [json_value(label) for label in self.labels],
            "confidence": self.explainer.confidence,
            "model": self.model.description,
            "rules": [str(rule) for rule in self.explainer.constraints],
            "features": [self._feature(feature, fixed) for feature in self.schema.features],
            "typical": {feature.name: _typical(feature) for feature in self.schema.features},
        }

    def _feature(self, feature: Feature, fixed: set[str]) -> dict[str, Any]:
        bounds = (feature.minimum, feature.maximum) if feature.is_number else (None, None)
        free = feature.is_number or feature.has_levels
        return {
            "name": feature.name,
            "kind": _kind(feature),
            "levels": [json_value(level) for level in feature.levels],
            "smallest": _number(bounds[0], feature),
            "largest": _number(bounds[1], feature),
            "step": _number(feature.step, feature) if feature.is_number and feature.step else None,
            "missing": feature.can_miss or self.explainer.missing == "impute",
            "immutable": feature.name in fixed or not free,
        }

    @cached_property
    def offered(self) -> list[dict[str, Any]]:
        """The rows that people may start from."""
        if self.rows is None:
            return []
        rows, names = self.rows.head(MOST_ROWS), self.schema.names
        columns = [json_column(rows[name]) for name in names]
        return [dict(zip(names, cells, strict=True)) for cells in zip(*columns, strict=True)]


def _kind(feature: Feature) -> str:
    """What the feature is, as clients need to know it: a number on a grid of tenths is a number."""
    if feature.kind == "identifier" and is_datetime64_any_dtype(feature.dtype):
        return "date"
    if feature.is_number:
        return "integer" if feature.step and feature.step == int(feature.step) else "number"
    return feature.kind


def _number(value: float | None, feature: Feature) -> float | int | None:
    """A number as its column holds it."""
    whole = value is not None and is_integer_dtype(feature.dtype) and value == int(value)
    return int(value) if whole and value is not None else value


def _typical(feature: Feature) -> Any:  # noqa: ANN401
    """The median of a number, the most common level; nothing for an identifier."""
    if feature.kind == "constant":
        return json_value(feature.levels[0])
    return json_value(_number(feature.filling, feature) if feature.is_number else feature.filling)  # type: ignore[arg-type]
