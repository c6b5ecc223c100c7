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

    If the decision needs no change alone, all are listed alike.

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
        return join_words(marked)
    parts = [join_words([text for text, own in zip(marked, serves, strict=True) if own == DECISION])]
    for purposes in dict.fromkeys(own for own in serves if own != DECISION):
        texts = [text for text, own in zip(marked, serves, strict=True) if own == purposes]
        begin = ["along with that"] if len(parts) == 1 else []
        why = ", ".join([*begin, *filter(None, [purpose(purposes)])])
        parts.append(f"{why}: {join_words(texts)}" if why else join_words(texts))
    return "; ".join(parts)
