"""Propose rules for a table: what never changes, what only rises, steps, and special values.

Names tell protected attributes, families, education and time that passes; values tell steps and states; the
model tells which columns it ignores. Every proposal has its reason, because a person must confirm it.
"""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd

from plausiflow.errors import InvalidInputError
from plausiflow.suggestions.ignored import follows_from_others, ignored_columns
from plausiflow.suggestions.meanings import find_meaning, is_identifier
from plausiflow.suggestions.suggested import SuggestedRules, Suggestion
from plausiflow.tables import Feature, FloatArray, Mask, Schema, SchemaWarning, read_any_table, read_numbers

NEARLY_ALL, FEWEST, FEWEST_VALUES = 0.9, 30, 11
NICE = tuple(digit * 10.0**power for power in range(7) for digit in (1, 2.5, 5))
DISTINCT = 0.5
"""A column that a name calls an identifier is one if this share of its values is distinct."""


def suggest_rules(table: pd.DataFrame, model: object = None, *, random_state: int = 0) -> SuggestedRules:
    """Propose rules for a table, each with its reason; a person must confirm them.

    Args:
        table: Training rows, features only.
        model: The model that will be explained; columns that it ignores should not change. A network of
            plausiflow is not asked, because it works on encoded rows.
        random_state: Seed of the rows that the model is asked about.

    Example:
        >>> table = pd.DataFrame({"Alter": range(20, 60), "Kinder": [0, 1] * 20, "Lohn": range(0, 8000, 200)})
        >>> print(suggest_rules(table))
        Alter never changes (age is a protected attribute, and time passes by itself: nobody can change it)
        Kinder never changes (nobody should be advised to have more or fewer dependents)
        Lohn changes in steps of 200 (all of the values are multiples of 200)
        Note: No model was given, so columns that it ignores were not looked for.
    """
    table = read_any_table(table)
    if not isinstance(table, pd.DataFrame) or not len(table):
        raise InvalidInputError(
            f"`table` must be a DataFrame of training rows; got {type(table).__name__}"
            f"{' without rows' if isinstance(table, pd.DataFrame) else ''}."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SchemaWarning)
        schema = Schema.infer(table)
    changing = [feature for feature in schema.features if feature.kind not in ("identifier", "constant")]
    ignored, note = ignored_columns(table, [f.name for f in changing], model, random_state)
    suggestions = list[Suggestion]()
    for feature in changing:
        by_name = _from_name(feature, table[feature.name])
        suggestions += by_name
        if feature.name in ignored and not any(one.kind == "immutable" for one in by_name):
            suggestions.append(_ignored(feature.name, table, schema, random_state))
        if feature.is_number and not any(one.kind == "immutable" for one in by_name):
            suggestions += _from_values(feature, table[feature.name])
    notes = [note] if note else []
    fixed = [feature.name for feature in schema.features if feature not in changing]
    if fixed:
        notes.append(f"Identifiers and constants never change without a rule: {', '.join(fixed)}.")
    return SuggestedRules(suggestions=tuple(suggestions), notes=tuple(notes))


def _from_name(feature: Feature, column: pd.Series) -> list[Suggestion]:
    """Return what the name of a column proposes, if its values agree."""
    if is_identifier(feature.name) and column.nunique() >= DISTINCT * len(column):
        reason = "the name and the values identify rows"
        return [Suggestion(feature=feature.name, kind="immutable", reason=reason)]
    meaning = find_meaning(feature.name)
    if meaning is None:
        return []
    ordered = (
        feature.is_number or feature.kind == "ordered" or (feature.kind == "boolean" and feature.is_numeric)
    )
    if meaning.numbers and not ordered:
        reason = f"{meaning.reason}; needs an order: list its levels in [orders], lowest first"
        return [Suggestion(feature=feature.name, kind="increasing", reason=reason, active=False)]
    if meaning.numbers and feature.is_number and feature.minimum < 0:
        reason = f"{meaning.reason}; but some values are negative"
        return [Suggestion(feature=feature.name, kind=meaning.proposal, reason=reason, active=False)]
    return [Suggestion(feature=feature.name, kind=meaning.proposal, reason=meaning.reason)]


def _ignored(name: str, table: pd.DataFrame, schema: Schema, random_state: int) -> Suggestion:
    reason = "the model ignores it: its output is the same whatever the value"
    follows = follows_from_others(table, name, schema, random_state)
    if follows:
        reason += "; but it goes along with other columns, so fewer rows may have an answer"
    return Suggestion(feature=name, kind="immutable", reason=reason, active=not follows)


def _from_values(feature: Feature, column: pd.Series) -> list[Suggestion]:
    """Return the step and the special values of a number."""
    found = list[Suggestion]()
    values = read_numbers(column)[0]
    values = values[np.isfinite(values) & ~np.isin(values, feature.special)]
    step = _coarser_step(values[values != 0], feature.step) or (0.0 if feature.step == 1 else feature.step)
    if step:
        reason = f"{_share(_on_grid(values, step).mean())} of the values are multiples of {step:,.12g}"
        active = step != feature.step or _describe(column, step) == feature
        reason += "" if active else "; fit finds that by itself"
        found.append(
            Suggestion(feature=feature.name, kind="step", value=(step,), reason=reason, active=active)
        )
    if feature.special:
        shares = [f"{value:,.12g} in {_share((column == value).mean())}" for value in feature.special]
        reason = f"far more common than its neighbours, so a state and not an amount: {', '.join(shares)}"
        found.append(Suggestion(feature=feature.name, kind="special", value=feature.special, reason=reason))
    return found


def _describe(column: pd.Series, step: float) -> Feature:
    """Return a column with this step as a setting; it may lose what only a step that was found has."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SchemaWarning)
        return Schema.infer(column.to_frame(), steps={str(column.name): step}).features[0]


def _share(share: float) -> str:
    return "all" if share == 1 else f"{100 * share:.1f} %"


def _on_grid(values: FloatArray, step: float) -> Mask:
    """Return which values are multiples of a step, up to rounding."""
    multiples = values / step
    rounding = np.minimum(1e-6 * np.maximum(1, np.abs(multiples)), 1e-3)
    return np.asarray(np.abs(multiples - np.rint(multiples)) <= rounding)


def _coarser_step(values: FloatArray, step: float) -> float:
    """Return the largest round step that nearly all values keep, if it is larger than the known one; or 0."""
    if len(values) < FEWEST:
        return 0.0
    for coarse in sorted(NICE, reverse=True):
        if coarse <= max(step, 1.0) or (step and coarse % step != 0):
            continue
        kept = _on_grid(values, coarse) & (np.abs(values) >= coarse / 2)
        if kept.mean() >= NEARLY_ALL and len(np.unique(values[kept])) >= FEWEST_VALUES:
            return float(coarse)
    return 0.0
