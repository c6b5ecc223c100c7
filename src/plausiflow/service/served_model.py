"""An explainer as the service offers it: its name, its example rows and its description for clients."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_datetime64_any_dtype, is_float_dtype, is_integer_dtype

from plausiflow.constraints import Immutable
from plausiflow.errors import InvalidInputError, NotFittedError
from plausiflow.exact import is_installed
from plausiflow.explainer import Explainer
from plausiflow.explanations import json_column, json_value
from plausiflow.letters import LANGUAGES
from plausiflow.models import TableModel
from plausiflow.service.favourable import Favourable, favourable_outcome
from plausiflow.service.population import Populations
from plausiflow.service.rows import RowReader
from plausiflow.tables import Dtype, Encoder, Feature, Schema

MAX_EXAMPLES = 200
POLICIES = ("opposite", "runner_up", "other")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A fitted explainer that clients may use."""

    name: str  # name in the addresses: letters, digits, `_`, `.` and `-`
    explainer: Explainer
    rows: pd.DataFrame | None = None  # example rows for the what-if page; the first 200 are offered
    target: object = None  # the outcome that the page asks for; None for a guess

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidInputError(
                "The name of a model must have at most 100 letters, digits, `_`, `.` and `-`, and start with "
                f"a letter or a digit; got {self.name!r}. Rename its directory."
            )
        if self.explainer.encoder_ is None:
            raise NotFittedError(
                f"The explainer {self.name!r} is not fitted. Call `fit`, or load a saved explainer."
            )
        absent = [] if self.rows is None else [name for name in self.schema.names if name not in self.rows]
        if absent:
            raise InvalidInputError(
                f"The rows must have all columns of the training table; they lack {', '.join(absent)}."
            )
        _ = self.favourable  # a wrong target is refused at the start

    @property
    def encoder(self) -> Encoder:
        """The encoder of the explainer."""
        assert self.explainer.encoder_ is not None
        return self.explainer.encoder_

    @property
    def model(self) -> TableModel:
        """The model of the explainer."""
        assert self.explainer.model_ is not None
        return self.explainer.model_

    @property
    def schema(self) -> Schema:
        """The schema of the training table."""
        return self.encoder.schema

    @property
    def labels(self) -> tuple[Any, ...]:
        """The labels of the outcomes; empty for a model that predicts a number."""
        return self.model.labels

    @cached_property
    def favourable(self) -> Favourable:
        """The outcome that the what-if page asks for."""
        return favourable_outcome(self.labels, self.target)

    @cached_property
    def reader(self) -> RowReader:
        """The reader of rows in requests."""
        return RowReader(self.schema)

    @cached_property
    def populations(self) -> Populations:
        """What rows with an outcome are like."""
        return Populations(self.explainer)

    @cached_property
    def policies(self) -> tuple[str, ...]:
        """Targets that select an outcome without naming it."""
        if not self.labels:
            return ()
        names = POLICIES if len(self.labels) == 2 else POLICIES[1:]
        return tuple(name for name in names if name not in self.labels)

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """The metadata of KServe's version 2: the features, and what ``:predict`` of version 1 returns."""
        inputs = [
            {"name": f.name, "datatype": _datatype(f.dtype), "shape": [-1]} for f in self.schema.features
        ]
        if self.labels:
            outcome = _datatype(np.asarray(self.labels).dtype)
            outputs = [("outcome", outcome, [-1]), ("probabilities", "FP64", [-1, len(self.labels)])]
        else:
            outputs = [("value", "FP64", [-1])]
        names = ("name", "datatype", "shape")
        return {
            "name": self.name,
            "platform": "plausiflow",
            "inputs": inputs,
            "outputs": [dict(zip(names, output, strict=True)) for output in outputs],
        }

    @cached_property
    def description(self) -> dict[str, Any]:
        """The description for clients, as JSON values."""
        rules, features = self.explainer.constraints, self.schema.features
        immutable = {name for rule in rules if isinstance(rule, Immutable) for name in rule.features}
        return {
            "name": self.name,
            "ready": True,
            "outcome": self.explainer.outcome_,
            "outcomes": [json_value(label) for label in self.labels],
            "favourable": {"outcome": self.favourable.outcome, "source": self.favourable.source},
            "confidence": self.explainer.confidence,
            "proofs": is_installed(),
            "languages": list(LANGUAGES),
            "judges": 0 if self.explainer.judges_ is None else self.explainer.judges_.count,
            "model": self.model.description,
            "rules": [str(rule) for rule in rules],
            "learned_rules": self.explainer.learned_rules.to_frame().to_dict("records"),
            "features": [self._describe(feature, feature.name in immutable) for feature in features],
            "typical": {feature.name: _typical_value(feature) for feature in features},
        }

    def _describe(self, feature: Feature, immutable: bool) -> dict[str, Any]:
        bounds = (feature.minimum, feature.maximum) if feature.is_number else (None, None)
        return {
            "name": feature.name,
            "kind": _kind(feature),
            "levels": [json_value(level) for level in feature.levels],
            "smallest": _to_integer(bounds[0], feature),
            "largest": _to_integer(bounds[1], feature),
            "step": _to_integer(feature.step, feature) if feature.is_number and feature.step else None,
            "special": [_to_integer(value, feature) for value in feature.special],
            "missing": feature.can_miss or self.explainer.missing == "impute",
            "immutable": immutable or not (feature.is_number or feature.has_levels),
        }

    @cached_property
    def examples(self) -> list[dict[str, Any]]:
        """The example rows, as JSON objects."""
        if self.rows is None:
            return []
        rows, names = self.rows.head(MAX_EXAMPLES), self.schema.names
        columns = [json_column(rows[name]) for name in names]
        return [dict(zip(names, cells, strict=True)) for cells in zip(*columns, strict=True)]


def _datatype(dtype: Dtype) -> str:
    """Return the name of a dtype in KServe's version 2; anything but numbers and booleans is bytes."""
    if isinstance(dtype, pd.CategoricalDtype):
        dtype = dtype.categories.dtype
    if is_bool_dtype(dtype):
        return "BOOL"
    if is_integer_dtype(dtype):
        return "INT64"
    return "FP64" if is_float_dtype(dtype) else "BYTES"


def _kind(feature: Feature) -> str:
    """Return the kind of a feature for clients; a number on a grid of tenths is a "number"."""
    if feature.kind == "identifier" and is_datetime64_any_dtype(feature.dtype):
        return "date"
    if feature.is_number:
        return "integer" if feature.step and feature.step == int(feature.step) else "number"
    return feature.kind


def _to_integer(value: float | None, feature: Feature) -> float | int | None:
    """Return a number as an integer if the column holds integers."""
    whole = value is not None and is_integer_dtype(feature.dtype) and value == int(value)
    return int(value) if whole and value is not None else value


def _typical_value(feature: Feature) -> Any:  # noqa: ANN401
    """Return the median of a number or the most common level; None for an identifier."""
    if feature.kind == "constant":
        return json_value(feature.levels[0])
    return json_value(_to_integer(feature.filling, feature) if feature.is_number else feature.filling)  # type: ignore[arg-type]
