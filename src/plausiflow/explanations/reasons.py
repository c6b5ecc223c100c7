"""Principal reasons of a decision: the features in which it needs the row to be another, ranked.

A reason is a feature that the decision needs to differ in nearly all references of a row: the nearest
training rows that the model decides as wanted, with every difference undone that the decision does not need.
Its weight is the mean share of what the needed differences add to the decision. References depend on the
model and the training rows alone, so that another seed of the density gives the same reasons.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from plausiflow.errors import InvalidInputError
from plausiflow.explanations.change_roles import NEEDED
from plausiflow.search import NeededDifferences
from plausiflow.tables import to_python
from plausiflow.validation import is_whole

if TYPE_CHECKING:
    from plausiflow.explanations.explanation import Explanation

NEAR_OPTIMAL = 0.3
"""How much more than the best counterfactual others that count may cost, as a share."""
NEARLY_ALL = 0.8
"""Share of the references, or of these counterfactuals, that must need a feature for a principal reason; and,
if there is no such feature, share of the weight that principal reasons have together."""
DECIDED = ("already", "invalid_input")
"""Verdicts of rows that have no reasons: they are decided as wanted, or cannot be read."""


@dataclass(frozen=True, kw_only=True)
class Reason:
    """A principal reason.

    Attributes:
        feature: Name of the feature.
        before: Value of the row.
        after: Value in the best counterfactual that moves it the same way, else a typical one of references.
        share: Share of the references in which the decision needs the difference.
        weight: Mean share of what it adds to the decision, among all needed differences, from 0 to 1.
        code: Code of the institution, empty without a mapping.
        text: Text of the institution, or a plain sentence.
    """

    feature: str
    before: Any
    after: Any
    share: float
    weight: float
    code: str = ""
    text: str = ""


def read_reason_codes(path: str | Path) -> dict[str, dict[str, str]]:
    """Read a TOML file of reason codes: ``[feature]`` tables with ``code`` and ``text``.

    A feature may have ``[feature.up]`` and ``[feature.down]`` for numbers that must rise or fall.
    ``{feature}``, ``{before}`` and ``{after}`` in a text are replaced.

    Raises:
        InvalidInputError: The file cannot be read, or an entry is not a table with texts.
    """
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInputError(
            f"A file of reason codes must be readable; {path} is not: {error.strerror}. Check its path."
        ) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInputError(
            f"A file of reason codes must be TOML in UTF-8; {path} is not: {error}. "
            'Write one table per feature: [income] code = "R1" text = "Income too low".'
        ) from error
    return _checked_entries(document, str(path))


def _checked_entries(document: Mapping[str, Any], source: str) -> dict[str, dict[str, str]]:
    """Return entries by feature, or by feature and way; a table that is none raises."""
    entries: dict[str, dict[str, str]] = {}
    for feature, table in document.items():
        if not isinstance(table, Mapping):
            raise _wrong_entry(source, feature, table)
        nested = {way: table[way] for way in ("up", "down") if way in table}
        parts = {f"{feature}.{way}": own for way, own in nested.items()}
        if set(table) - {"up", "down"}:
            parts[feature] = {name: value for name, value in table.items() if name not in nested}
        for name, own in parts.items():
            if not isinstance(own, Mapping) or not all(
                key in ("code", "text") and isinstance(value, str) for key, value in own.items()
            ):
                raise _wrong_entry(source, name, own)
            entries[name] = dict(own)
    return entries


def _check_names(entries: Mapping[str, object], features: Sequence[str]) -> None:
    """Raise if an entry is of no feature, such as one with a typing error."""
    known = {name for feature in features for name in (feature, f"{feature}.up", f"{feature}.down")}
    unknown = [name for name in entries if name not in known]
    if unknown:
        name = unknown[0].removesuffix(".up").removesuffix(".down")
        close = difflib.get_close_matches(name, features, n=1, cutoff=0.5)
        raise InvalidInputError(
            f"Reason codes must be of features of the table; there is no feature {name!r}"
            f"{f' (did you mean {close[0]!r}?)' if close else ''}. Its features are {', '.join(features)}."
        )


def _wrong_entry(source: str, name: str, entry: object) -> InvalidInputError:
    return InvalidInputError(
        f"An entry of {source} must be a table with the texts `code` and `text`; [{name}] is {entry!r}. "
        'Write: [income] code = "R1" text = "Income too low".'
    )


def principal_reasons(
    explanation: Explanation,
    max: int = 4,
    *,
    codes: str | Path | Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Reason]:
    """Return the features that the decision depends on most, most important first.

    They come from the row's references: the nearest training rows that the model decides as wanted. An
    explanation that was made from tables has none; its counterfactuals take their place.

    Args:
        explanation: The explanation of a row.
        max: The largest number of reasons.
        codes: A TOML file, or a mapping, from features to the institution's ``code`` and ``text``.
    """
    if not is_whole(max) or max < 1:
        raise InvalidInputError(
            f"`max` must be a whole number, 1 or more; got {max!r}. Four is a common number."
        )
    if isinstance(codes, Mapping):
        entries = _checked_entries(codes, "`codes`")
    else:
        entries = {} if codes is None else read_reason_codes(codes)
    _check_names(entries, [str(name) for name in explanation.factual.index])
    if explanation.status in DECIDED:
        return []
    answers, found = _of_counterfactuals(explanation), None
    if explanation.find_references is not None:
        found = explanation.find_references()
    table = answers if found is None else _of_references(found, explanation.factual)
    table = _principal(table.sort_values(["weight", "share"], ascending=False, kind="stable")).iloc[:max]
    return [_reason(str(name), line, answers, entries) for name, line in table.iterrows()]


def _principal(table: pd.DataFrame) -> pd.DataFrame:
    """Return the features that nearly all need; if there is none, the first that weigh nearly all."""
    needed_by_all = table[table["share"] >= NEARLY_ALL]
    if len(needed_by_all):
        return needed_by_all
    before = table["weight"].cumsum() - table["weight"]
    return table[before < NEARLY_ALL * table["weight"].sum()]


def _of_references(found: NeededDifferences, factual: pd.Series) -> pd.DataFrame:
    """Return one line for each feature that references need to differ in."""
    before = factual[list(found.feature)].to_numpy(object)
    parts = {"before": before, "after": found.after, "way": found.way}
    return pd.DataFrame(
        {"share": found.share, "weight": found.weight, **parts}, index=pd.Index(found.feature)
    )


def _of_counterfactuals(explanation: Explanation) -> pd.DataFrame:
    """Return one line for each feature that near-optimal counterfactuals need to change."""
    cost = explanation.figures["cost"]
    if len(cost) == 0:
        return pd.DataFrame(columns=["share", "weight", "before", "after", "way"])
    near = cost.index[cost <= (1 + NEAR_OPTIMAL) * cost.iloc[0]]
    moved = float("nan") if explanation.moves is None else explanation.moves
    changes = explanation.changes.assign(move=moved)
    needed = changes[changes["rank"].isin(near)]
    if (needed["role"] == NEEDED).any():
        needed = needed[needed["role"] == NEEDED]
    moves = needed["move"].abs().fillna(1.0)
    weight = moves / moves.groupby(needed["rank"]).transform("sum")
    first = needed.drop_duplicates("feature").set_index("feature")
    return pd.DataFrame(
        {
            "share": needed.groupby("feature")["rank"].nunique() / len(near),
            "weight": weight.groupby(needed["feature"]).sum() / len(near),
            "before": first["from"].astype(object),
            "after": first["to"].astype(object),
            "way": np.sign(first["move"].to_numpy(float, na_value=0.0)).astype(int),
        }
    )


def _reason(
    name: str, line: pd.Series, answers: pd.DataFrame, entries: Mapping[str, Mapping[str, str]]
) -> Reason:
    """Return a reason; its value comes from the best counterfactual that moves the feature the same way."""
    before, after = line["before"], line["after"]
    if name in answers.index and answers.loc[name, "way"] == line["way"]:
        after = answers.loc[name, "after"]
    entry = entries.get(f"{name}.{'up' if line['way'] > 0 else 'down'}", entries.get(name, {}))
    text = entry.get("text", "{feature}: {before} → {after}")
    for key, value in (("{feature}", name), ("{before}", before), ("{after}", after)):
        text = text.replace(key, str(value))
    return Reason(
        feature=name,
        before=to_python(before),
        after=to_python(after),
        share=float(line["share"]),
        weight=float(line["weight"]),
        code=entry.get("code", ""),
        text=text,
    )
