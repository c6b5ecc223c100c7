"""What a column means, as far as its name tells it, in several languages.

The words are in ``meanings.toml``. A name is split into words without accents.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

Proposal = Literal["immutable", "increasing"]


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """Something that columns are about: what to propose for it, and why.

    Attributes:
        proposal: What to propose.
        reason: Why.
        words: Words that a name has one of.
        beside: If not empty, words that the name must have one of as well.
        without: Words that the name must not have.
        numbers: Whether only numbers and ordered categories can mean this.
    """

    proposal: Proposal
    reason: str
    words: tuple[str, ...]
    beside: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    numbers: bool = False

    def fits(self, words: frozenset[str]) -> bool:
        """Return whether the words of a name have this meaning."""
        return (
            _any_of(self.words, words)
            and (not self.beside or _any_of(self.beside, words))
            and not _any_of(self.without, words)
        )


_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_LETTERS = str.maketrans({"ß": "ss", "ł": "l", "Ł": "L", "ø": "o", "æ": "ae", "œ": "oe"})


@cache
def read_meanings() -> tuple[tuple[Meaning, ...], tuple[str, ...]]:
    """Return the meanings, the first that fits counts, and the words of identifiers."""
    text = files("plausiflow.suggestions").joinpath("meanings.toml").read_text(encoding="utf-8")
    entries = tomllib.loads(text)
    meanings = tuple(
        Meaning(
            proposal=entry["proposal"],
            reason=entry["reason"],
            words=tuple(entry["words"].split()),
            beside=tuple(entry.get("beside", "").split()),
            without=tuple(entry.get("without", "").split()),
            numbers=entry.get("numbers", False),
        )
        for entry in entries["meaning"]
    )
    return meanings, tuple(entries["identifiers"].split())


def find_meaning(name: str) -> Meaning | None:
    """Return the first meaning that fits the name of a column; None if there is none.

    Example:
        >>> find_meaning("Anzahl Kinder").reason
        'nobody should be advised to have more or fewer dependents'
        >>> find_meaning("MSinceOldestTradeOpen").proposal, find_meaning("page")
        ('increasing', None)
    """
    words = words_of(name)
    return next((meaning for meaning in read_meanings()[0] if meaning.fits(words)), None)


def is_identifier(name: str) -> bool:
    """Return whether a name says that the column identifies rows."""
    return _any_of(read_meanings()[1], words_of(name))


def words_of(name: str) -> frozenset[str]:
    """Return the words of a name, in lower case and without accents.

    Example:
        >>> sorted(words_of("Betriebszugehörigkeit_inJahren"))
        ['betriebszugehorigkeit', 'in', 'jahren']
    """
    plain = unicodedata.normalize("NFKD", str(name).translate(_LETTERS))
    letters = "".join(mark for mark in plain if not unicodedata.combining(mark))
    return frozenset(part.lower() for part in _PARTS.findall(letters))


def _any_of(listed: tuple[str, ...], words: frozenset[str]) -> bool:
    """Return whether one of the words is in a list of words."""
    return any(
        any(word.startswith(one[:-1]) for word in words) if one.endswith("*") else one in words
        for one in listed
    )
