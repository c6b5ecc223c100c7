"""What each changed cell is for, in words: needed for the decision, or along with it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from plausiflow.explanations.changes import Changes
from plausiflow.explanations.formatting import join_words
from plausiflow.search import CERTAINTY, DECISION, DURABILITY, PLAUSIBILITY, TOLERANCE, ChangeRoles

NEEDED, ACCOMPANYING = "needed", "accompanying"
PURPOSES = {
    DECISION: "for the decision",
    PLAUSIBILITY: "to stay plausible",
    CERTAINTY: "for a clear decision",
    DURABILITY: "to last when the model is retrained",
    TOLERANCE: "to leave room for what is missed",
}
UNFAVOURABLE = "unfavourable by itself"
MOST_NAMED = 6
"""A sentence names so many changes, and counts the others."""


def role_table(changed: Changes, names: pd.Index, roles: ChangeRoles | None) -> pd.DataFrame:
    """Return ``role``, ``serves`` and ``adverse`` of changed cells; no role and no adverse one if unknown."""
    count = len(changed)
    table = {"role": np.full(count, "", dtype=object), "serves": np.full(count, "", dtype=object)}
    adverse = np.zeros(count, dtype=bool)
    if roles is not None:
        known = zip(roles.answer.tolist(), roles.feature, strict=True)
        places = {cell: place for place, cell in enumerate(known)}
        features = names.take(changed.column).tolist()
        for i, key in enumerate(zip(changed.answer.tolist(), features, strict=True)):
            place = places.get(key)
            if place is not None:
                serves = roles.serves[place]
                table["role"][i] = NEEDED if serves == DECISION else ACCOMPANYING
                table["serves"][i], adverse[i] = serves, roles.adverse[place]
    return pd.DataFrame({**table, "adverse": adverse})


def purpose(serves: str) -> str:
    """Return what a change is for, such as "to stay plausible" or "to keep Linear(...)"."""
    return PURPOSES.get(serves, f"to keep {serves}" if serves else "")


def combine_phrases(phrases: list[str], roles: pd.DataFrame) -> str:
    """Return the changes of one answer as a sentence: the needed ones, then those along with them.

    If the decision needs no change alone, all are listed alike. A sentence names at most six changes, those
    that the decision needs first, and counts the others.

    Example:
        >>> roles = pd.DataFrame({"serves": ["decision", "plausibility"], "adverse": [False, True]})
        >>> combine_phrases(["income: 3,100 → 3,800", "debt: 5 → 6"], roles)
        'income: 3,100 → 3,800; along with that, to stay plausible: debt: 5 → 6 (unfavourable by itself)'
    """
    marked = [
        f"{phrase} ({UNFAVOURABLE})" if bad else phrase
        for phrase, bad in zip(phrases, roles["adverse"], strict=True)
    ]
    serves = roles["serves"].tolist()
    if DECISION not in serves:
        return _join_few(marked, MOST_NAMED)
    needed = [text for text, own in zip(marked, serves, strict=True) if own == DECISION]
    parts, left = [_join_few(needed, MOST_NAMED)], MOST_NAMED - len(needed)
    others = [own for own in serves if own != DECISION]
    for purposes in dict.fromkeys(others):
        texts = [text for text, own in zip(marked, serves, strict=True) if own == purposes]
        if left <= 0 and len(others) > 1:
            start = "along with that:" if len(parts) == 1 else "and"
            parts.append(f"{start} {len(others)} other changes")
            break
        begin = ["along with that"] if len(parts) == 1 else []
        why = ", ".join([*begin, *filter(None, [purpose(purposes)])])
        words = _join_few(texts, max(1, left))
        parts.append(f"{why}: {words}" if why else words)
        left -= len(texts)
        others = others[len(texts) :]
    return "; ".join(parts)


def _join_few(texts: list[str], most: int) -> str:
    """Return texts as a list; of more than one too many, only their number.

    Example:
        >>> _join_few(["a", "b", "c", "d"], 2)
        'a, b and 2 more'
    """
    if len(texts) <= most + 1:
        return join_words(texts)
    return f"{', '.join(texts[:most])} and {len(texts) - most} more"
