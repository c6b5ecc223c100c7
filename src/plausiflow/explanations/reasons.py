"""Principal reasons of a decision: the features whose change it needs, ranked.

A reason is a feature that the decision needs in nearly all of the counterfactuals of a row that cost little
more than the best. Its weight is the mean, over these counterfactuals, of the share of its move in the moves
of all needed features. Ranking by weight makes reasons depend little on which of several equally good
counterfactuals was found.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from plausiflow.errors import InvalidInputError
from plausiflow.explanations.change_roles import NEEDED
from plausiflow.validation import is_whole

if TYPE_CHECKING:
    from plausiflow.explanations.explanation import Explanation

NEAR_OPTIMAL = 0.3
"""How much more than the best counterfactual others that count may cost, as a share."""
NEARLY_ALL = 0.8
"""Share of these counterfactuals that must need a feature for it to be a principal reason."""


@dataclass(frozen=True, kw_only=True)
class Reason:
    """A principal reason.

    Attributes:
        feature: Name of the feature.
        before: Value of the row.
        after: Value in the best counterfactual that changes it.
        share: Share of the near-optimal counterfactuals that need the change.
        weight: Mean share of its move in all needed moves, from 0 to 1.
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
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInputError(
            f"A file of reason codes must be TOML in UTF-8; {path} is not: {error}. "
            'Write one table per feature: [income] code = "R1" text = "Income too low".'
        ) from error
    entries: dict[str, dict[str, str]] = {}
    for feature, table in document.items():
        if not isinstance(table, Mapping):
            raise _wrong_entry(path, feature, table)
        nested = {way: table[way] for way in ("up", "down") if way in table}
        parts = {f"{feature}.{way}": own for way, own in nested.items()}
        if set(table) - {"up", "down"}:
            parts[feature] = {name: value for name, value in table.items() if name not in nested}
        for name, own in parts.items():
            if not isinstance(own, Mapping) or not all(
                key in ("code", "text") and isinstance(value, str) for key, value in own.items()
            ):
                raise _wrong_entry(path, name, own)
            entries[name] = dict(own)
    return entries


def _wrong_entry(path: str | Path, name: str, entry: object) -> InvalidInputError:
    return InvalidInputError(
        f"An entry of {path} must be a table with the texts `code` and `text`; [{name}] is {entry!r}. "
        'Write: [income] code = "R1" text = "Income too low".'
    )


def principal_reasons(
    explanation: Explanation,
    max: int = 4,
    *,
    codes: str | Path | Mapping[str, Mapping[str, str]] | None = None,
) -> list[Reason]:
    """Return the features that the decision depends on most, most important first.

    Ask for several counterfactuals (``k=5``): with one, its needed changes are the reasons.

    Args:
        explanation: The explanation of a row.
        max: The largest number of reasons.
        codes: A TOML file, or a mapping, from features to the institution's ``code`` and ``text``.
    """
    if not is_whole(max) or max < 1:
        raise InvalidInputError(
            f"`max` must be a whole number, 1 or more; got {max!r}. Four is a common number."
        )
    entries = codes if isinstance(codes, Mapping) else {} if codes is None else read_reason_codes(codes)
    cost = explanation.figures["cost"]
    if len(cost) == 0:
        return []
    near = cost.index[cost <= (1 + NEAR_OPTIMAL) * cost.iloc[0]]
    moved = float("nan") if explanation.moves is None else explanation.moves
    changes = explanation.changes.assign(move=moved)
    needed = changes[changes["rank"].isin(near)]
    if (needed["role"] == NEEDED).any():
        needed = needed[needed["role"] == NEEDED]
    moves = needed["move"].abs().fillna(1.0)
    weight = (moves / moves.groupby(needed["rank"]).transform("sum")).groupby(needed["feature"]).sum() / len(
        near
    )
    share = needed.groupby("feature")["rank"].nunique() / len(near)
    table = pd.DataFrame({"share": share, "weight": weight})
    principal = table[table["share"] >= NEARLY_ALL]
    table = principal if len(principal) else table
    order = table.sort_values(["weight", "share"], ascending=False, kind="stable").index[:max]
    first = needed.drop_duplicates("feature").set_index("feature")
    return [
        _reason(str(name), first.loc[name], float(share[name]), float(weight[name]), entries)
        for name in order
    ]


def _reason(
    name: str, change: pd.Series, share: float, weight: float, entries: Mapping[str, Mapping[str, str]]
) -> Reason:
    before, after = change["from"], change["to"]
    way = "up" if change["move"] > 0 else "down"
    entry = entries.get(f"{name}.{way}", entries.get(name, {}))
    text = entry.get("text", "{feature}: {before} → {after}")
    for key, value in (("{feature}", name), ("{before}", before), ("{after}", after)):
        text = text.replace(key, str(value))
    return Reason(
        feature=name,
        before=before,
        after=after,
        share=share,
        weight=weight,
        code=entry.get("code", ""),
        text=text,
    )
