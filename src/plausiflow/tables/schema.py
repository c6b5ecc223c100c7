"""The schema of a table: what each column is, inferred from training rows or chosen by the user."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from numbers import Real
from typing import Any

import pandas as pd

from plausiflow.errors import InvalidInputError
from plausiflow.tables.families import common_kinds
from plausiflow.tables.features import KINDS, CellValue, Feature, Kind
from plausiflow.tables.grids import MAX_DECIMALS, decimals_of
from plausiflow.tables.inference import describe
from plausiflow.tables.revealed import reveal_special

__all__ = ["Feature", "Kind", "Schema", "SchemaWarning", "frame_problems"]


class SchemaWarning(UserWarning):
    """The inferred kind of a column may be wrong."""


@dataclass(frozen=True)
class Schema:
    """The features of a table, in the order of its columns; ``print`` shows a line for each.

    Attributes:
        features: The features.
        notes: What was inferred and may be wrong: a column that is treated as an identifier or as codes, like
            the other columns of its family, or as multiples of a step in spite of odd values.

    Example:
        >>> frame = pd.DataFrame({"income": [1200, 800, 3100], "job": ["none", "clerk", "clerk"]})
        >>> [(feature.name, feature.kind, feature.step) for feature in Schema.infer(frame).features]
        [('income', 'integer', 100.0), ('job', 'category', 0.0)]
        >>> print(Schema.infer(frame))
        income: integer, 800 to 3,100 in steps of 100
        job: category, 2 levels: 'clerk', 'none'
    """

    features: tuple[Feature, ...]
    notes: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        lines = [f"{feature.name}: {feature.description}" for feature in self.features]
        return "\n".join(lines + [f"Note: {note}" for note in self.notes])

    @classmethod
    def infer(
        cls,
        frame: pd.DataFrame,
        *,
        kinds: Mapping[str, Kind] | None = None,
        orders: Mapping[str, Sequence[CellValue]] | None = None,
        special: Mapping[str, Sequence[float]] | None = None,
        steps: Mapping[str, float] | None = None,
    ) -> Schema:
        """Infer the kind of each column from its dtype and its values.

        :mod:`plausiflow.tables.inference` has the rules.

        Args:
            frame: Training rows, features only.
            kinds: Kinds of columns, to override the inferred ones.
            orders: Levels of ordered categories, lowest first. Levels that no row has are left out.
            special: Special values of numbers, such as ``{"days_since_contact": [-1]}``, each a state of its
                own; ``[]`` for none. Values that no row has are left out. They are found in the data for
                columns that are not named; see :mod:`plausiflow.tables.special`.
            steps: Steps of numbers, such as ``{"amount": 500}``: a number that changes becomes a multiple. By
                default, the largest step that at least 99 % of the rows keep.

        Raises:
            InvalidInputError: The frame, a column or a setting cannot be used; the message lists all.

        Warns:
            SchemaWarning: A column is treated as an identifier or as codes, or like its family; the ``notes``
                of the schema say so, too.
        """
        steps = dict(steps or {})
        kinds, orders, special = dict(kinds or {}), dict(orders or {}), dict(special or {})
        problems = frame_problems(frame)
        if problems:
            raise _unusable(problems)
        sizes = zip(frame.shape, ("rows", "columns"), strict=True)
        problems, features = [f"the frame has no {what}" for n, what in sizes if not n], []
        problems += _setting_problems(frame, kinds, orders, special)
        problems += _step_problems(frame, kinds, orders, steps)
        known = {name: kind for name, kind in kinds.items() if kind in KINDS}
        listed = {name: values for name, values in special.items() if _are_numbers(values)}
        fine = {name: step for name, step in steps.items() if _is_step(step)}
        texts: dict[str, list[str | None]] = {}  # a warning and a note for each column
        for name in frame.columns if len(frame) else ():
            try:
                feature, *texts[name] = describe(
                    frame[name], known.get(name), orders.get(name), listed.get(name), fine.get(name)
                )
            except InvalidInputError as error:
                problems.append(str(error).rstrip("."))
                continue
            features.append(feature)
        if problems:
            raise _unusable(problems)
        settled = {*kinds, *orders, *special, *steps}
        alike, family_warnings = common_kinds(frame, [f for f in features if f.name not in settled])
        for position, feature in enumerate(features):
            if feature.name in alike:
                features[position], *texts[feature.name] = describe(frame[feature.name], alike[feature.name])
        _add_revealed(frame, features, texts, special, fine)
        doubts = [*(warning for warning, _ in texts.values() if warning), *family_warnings]
        for warning in doubts:
            warnings.warn(warning, SchemaWarning, stacklevel=2)
        return cls(tuple(features), (*doubts, *(note for _, note in texts.values() if note)))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(feature.name for feature in self.features)

    def feature(self, name: str) -> Feature:
        """Return the feature of a column."""
        if name not in self.names:
            raise InvalidInputError(f"`name` must be one of {', '.join(self.names)}; got {name!r}.")
        return self.features[self.names.index(name)]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object that keeps the types of levels and the dtypes."""
        return {"features": [feature.to_dict() for feature in self.features], "notes": list(self.notes)}

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> Schema:
        """Return the schema that ``to_dict`` wrote."""
        features = tuple(Feature.from_dict(feature) for feature in entry["features"])
        return cls(features, tuple(entry["notes"]))


def _add_revealed(
    frame: pd.DataFrame,
    features: list[Feature],
    texts: dict[str, list[str | None]],
    special: Mapping[str, Sequence[float]],
    steps: Mapping[str, float],
) -> None:
    """Give features the special values that other columns reveal, unless the user named some."""
    names = [f.name for f in features if f.is_number and f.name not in special]
    more = reveal_special(frame, features, names)
    for position, feature in enumerate(features):
        if feature.name in more:
            step, values = steps.get(feature.name), more[feature.name]
            described = describe(frame[feature.name], feature.kind, step=step, revealed=values)
            features[position], *texts[feature.name] = described


def frame_problems(frame: object) -> list[str]:
    """Return why an object is not a table: its type, or the names of its columns."""
    if not isinstance(frame, pd.DataFrame):
        return [f"expected a pandas DataFrame; got {type(frame).__name__}"]
    unnamed = [name for name in frame.columns if not isinstance(name, str)]
    problems = []
    if unnamed:
        problems.append(
            f"column names must be text; got {', '.join(map(repr, unnamed[:10]))}. "
            "Rename them, for example with frame.columns.map(str)"
        )
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()].unique()
        problems.append(f"column names must be unique; repeated: {', '.join(map(repr, twice))}")
    return problems


def _setting_problems(
    frame: pd.DataFrame,
    kinds: Mapping[str, Kind],
    orders: Mapping[str, Sequence[CellValue]],
    special: Mapping[str, Sequence[float]],
) -> list[str]:
    problems = [
        f"`{setting}` names {name!r}, which is not a column"
        for setting, given in (("kinds", kinds), ("orders", orders), ("special", special))
        for name in given
        if name not in frame.columns
    ]
    problems += [
        f"`kinds` has {kind!r} for {name!r}; expected one of {', '.join(KINDS)}"
        for name, kind in kinds.items()
        if kind not in KINDS
    ]
    for name, order in orders.items():
        listed = isinstance(order, Sequence) and not isinstance(order, str)
        if not listed or len(set(map(repr, order))) < len(order):
            problems.append(f"`orders` for {name!r} must list its levels, each once; got {order!r}")
        if kinds.get(name, "ordered") != "ordered":
            problems.append(f"`orders` has {name!r}, but `kinds` has {kinds[name]!r} for it")
    problems += [
        f"`special` for {name!r} must list finite numbers, or be [] for none; got {values!r}"
        for name, values in special.items()
        if not _are_numbers(values)
    ]
    return problems


def _step_problems(
    frame: pd.DataFrame,
    kinds: Mapping[str, Kind],
    orders: Mapping[str, Sequence[CellValue]],
    steps: Mapping[str, float],
) -> list[str]:
    problems = [
        f"`steps` names {name!r}, which is not a column" for name in steps if name not in frame.columns
    ]
    for name, step in steps.items():
        if not _is_step(step):
            problems.append(
                f"`steps` for {name!r} must be a positive number with at most {MAX_DECIMALS} decimals; "
                f"got {step!r}"
            )
        if name in orders or kinds.get(name, "integer") != "integer":
            problems.append(f"`steps` has {name!r}, but `kinds` or `orders` say that it is not 'integer'")
    return problems


def _is_step(step: object) -> bool:
    """Return whether a setting is a positive number with few decimals."""
    return _are_numbers([step]) and step > 0 and decimals_of(step) is not None  # type: ignore[operator, arg-type]


def _are_numbers(values: object) -> bool:
    """Return whether a setting lists finite numbers."""
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | Mapping):
        return False
    return all(
        isinstance(value, Real) and not isinstance(value, bool) and isfinite(value) for value in values
    )


def _unusable(problems: list[str]) -> InvalidInputError:
    return InvalidInputError("The table cannot be used:\n- " + "\n- ".join(problems))
