"""Catalogues of messages: the texts of a letter in one language, how it writes numbers, and names.

A catalogue is a TOML file. English and German are ours; a user's own file names the one that it is based on
and may translate every message, and the names of features, their values and outcomes.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from plausiflow.errors import InvalidInputError

LANGUAGES = ("en", "de")
BASE = "en"
SECTIONS = ("format", "messages", "features", "values", "outcomes")
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_NUMBER = re.compile(r"-?[\d,]*\.?\d+(e[+-]?\d+)?")


@dataclass(frozen=True, kw_only=True, eq=False)
class Catalogue:
    """The texts of one language.

    Attributes:
        language: Code of the language, such as ``en``.
        format: How numbers, shares and dates are written.
        messages: Texts by name, with placeholders between braces.
        features: Names of features, by column.
        values: Names of values, by column and value.
        outcomes: Names of outcomes, and of what the model predicts.
    """

    language: str
    format: Mapping[str, Any]
    messages: Mapping[str, str]
    features: Mapping[str, str]
    values: Mapping[str, Mapping[str, str]]
    outcomes: Mapping[str, str]

    def message(self, name: str, **values: str) -> str:
        """Return a message with its placeholders replaced."""
        return fill(self.messages[name], values)

    def number(self, text: str) -> str:
        """Return a number, given as English text, in the way of the language; other texts are unchanged.

        Example:
            >>> read_catalogue("de").number("31,000.5"), read_catalogue("de").number("a.b")
            ('31.000,5', 'a.b')
        """
        if not _NUMBER.fullmatch(text):
            return text
        return text.translate({ord(","): self.format["thousands"], ord("."): self.format["decimal"]})

    def percent(self, share: float) -> str:
        """Return a share in per cent, without decimals where they would not be read."""
        digits = 0 if 0.01 <= share <= 0.99 or share in (0.0, 1.0) else 1
        text = f"{100 * share:.{digits}f}"
        text = "99.9" if share < 1 and text == "100.0" else "0.1" if share > 0 and text == "0.0" else text
        return fill(self.format["percent"], {"number": self.number(text)})

    def date(self, day: date) -> str:
        """Return a day."""
        months = self.format["months"]
        parts = {"day": str(day.day), "month": months[day.month - 1], "year": str(day.year)}
        return fill(self.format["date"], parts)

    def feature(self, name: str) -> str:
        """Return the name of a feature."""
        return self.features.get(name, name)

    def value(self, feature: str, text: str) -> str:
        """Return a value of a feature that is not a number, such as ``yes``."""
        own = self.values.get(feature, {}).get(text)
        return own if own is not None else self.messages.get(text, text) if text in _WORDS else text

    def outcome(self, text: str) -> str:
        """Return an outcome, or the name of what the model predicts."""
        return self.outcomes.get(text, self.messages[text] if text in ("yes", "no") else self.number(text))


_WORDS = ("yes", "no", "missing")


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace ``{name}`` by its value; nothing else between braces has a meaning.

    Example:
        >>> fill("{a} and {b}", {"a": "{b}", "b": "2"})
        '{b} and 2'
    """
    return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), text)


def read_catalogue(language: str | Path) -> Catalogue:
    """Return a catalogue: ``en``, ``de``, or the path of a TOML file."""
    if isinstance(language, str) and language in LANGUAGES:
        return _built_in(language)
    path = Path(language)
    if path.suffix != ".toml":
        raise InvalidInputError(
            f"`language` must be {', '.join(LANGUAGES)}, or the path of a catalogue that ends in .toml; got "
            f"{str(language)!r}."
        )
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidInputError(f"The catalogue {path} cannot be read as TOML: {error}.") from error
    base = entries.pop("base", BASE)
    if base not in LANGUAGES:
        raise InvalidInputError(f"`base` of {path} must be one of {', '.join(LANGUAGES)}; got {base!r}.")
    return _merged(_built_in(base), entries, str(path))


@cache
def _built_in(language: str) -> Catalogue:
    text = files("plausiflow.letters").joinpath("catalogues", f"{language}.toml").read_text(encoding="utf-8")
    entries = tomllib.loads(text)
    return Catalogue(
        language=entries["language"],
        format=entries["format"],
        messages=entries["messages"],
        features={},
        values={},
        outcomes={},
    )


def _merged(base: Catalogue, entries: dict[str, Any], source: str) -> Catalogue:
    """Return a catalogue whose entries take the place of those of ``base``; an error lists all problems."""
    problems = list(_problems(entries))
    if problems:
        raise InvalidInputError(
            f"The catalogue {source} has {len(problems)} problem{'s'[: len(problems) > 1]}:\n- "
            + "\n- ".join(problems)
        )
    return Catalogue(
        language=entries.get("language", base.language),
        format={**base.format, **entries.get("format", {})},
        messages={**base.messages, **entries.get("messages", {})},
        features=entries.get("features", {}),
        values=entries.get("values", {}),
        outcomes=entries.get("outcomes", {}),
    )


def _problems(entries: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the entries of a catalogue."""
    english = _built_in(BASE)
    problems = [
        _unknown("section", name, SECTIONS) for name in entries if name not in (*SECTIONS, "language")
    ]
    problems += [
        f"[{name}] must be a table" for name in SECTIONS if not isinstance(entries.get(name, {}), dict)
    ]
    if not isinstance(entries.get("language", ""), str):
        problems.append("`language` must be a text, such as pl")
    if problems:
        return problems
    for section, own in (("messages", english.messages), ("format", english.format)):
        for name, text in entries.get(section, {}).items():
            problems += _entry_problems(section, name, text, own)
    for section in ("features", "outcomes"):
        problems += [
            f"[{section}] {name} must be a text"
            for name, text in entries.get(section, {}).items()
            if not isinstance(text, str)
        ]
    problems += [
        f"[values.{name}] must be a table of texts"
        for name, texts in entries.get("values", {}).items()
        if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values())
    ]
    return problems


def _entry_problems(section: str, name: str, text: object, known: Mapping[str, Any]) -> list[str]:
    if name not in known:
        return [_unknown(section.removesuffix("s"), name, list(known))]
    if name == "months":
        fine = isinstance(text, list) and len(text) == 12 and all(isinstance(month, str) for month in text)
        return [] if fine else ["[format] months must be 12 texts"]
    if not isinstance(text, str):
        return [f"[{section}] {name} must be a text; got {text!r}"]
    unknown = set(_PLACEHOLDER.findall(text)) - set(_PLACEHOLDER.findall(known[name]))
    return [f"[{section}] {name} has no placeholder {{{one}}}" for one in sorted(unknown)]


def _unknown(what: str, name: str, known: Any) -> str:  # noqa: ANN401
    close = difflib.get_close_matches(name, known, n=1)
    return f"there is no {what} {name!r}" + (f"; did you mean {close[0]!r}?" if close else "")
