"""Letters from Jinja2 templates, ours or a file of the user.

A template sees texts only, and runs in Jinja2's sandbox. In HTML every text is escaped; in plain text line
breaks and control characters of a value are replaced, so that a value cannot look like a line of the letter.
"""

from __future__ import annotations

import re
from dataclasses import fields, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args

from jinja2 import StrictUndefined, Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from plausiflow.errors import InvalidInputError
from plausiflow.letters.content import LetterChange, LetterContent

LetterFormat = Literal["text", "html"]
FORMATS: dict[str, str] = {"text": ".txt", "html": ".html"}
"""Formats, and the suffix of their files."""

MOST_CHARACTERS = 1_000_000
_CONTROLS = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]+"
)


def check_format(format: str) -> None:
    """Raise unless the format of a letter is known."""
    if format not in get_args(LetterFormat):
        raise InvalidInputError(
            f"`format` must be {' or '.join(map(repr, get_args(LetterFormat)))}; got {format!r}."
        )


def render_letter(content: LetterContent, template: str | Path | None, format: LetterFormat) -> str:
    """Return a letter; ``template`` is the path of a Jinja2 template, None for ours."""
    compiled, name = _compiled(template, format)
    cleaned = _cleaned(content)
    values = {field.name: getattr(cleaned, field.name) for field in fields(cleaned)}
    try:
        return compiled.render(values)
    except (TemplateError, TypeError, ValueError, ArithmeticError) as error:
        raise _unusable(name, error) from error


def check_template(template: str | Path | None, format: LetterFormat) -> None:
    """Raise unless the format is known and the template can be read and compiled."""
    check_format(format)
    _compiled(template, format)


def _compiled(template: str | Path | None, format: LetterFormat) -> tuple[Template, str]:
    check_format(format)
    name, text = _read_template(template, format)
    try:
        return _environment(format).from_string(text), name
    except TemplateError as error:
        raise _unusable(name, error) from error


def _unusable(name: str, error: Exception) -> InvalidInputError:
    number = getattr(error, "lineno", None)
    return InvalidInputError(
        f"The template {name}{f', line {number},' if number else ''} cannot be used: "
        f"{str(error).rstrip('.')}. It may use {', '.join(field.name for field in fields(LetterContent))}."
    )


@cache
def _environment(format: LetterFormat) -> ImmutableSandboxedEnvironment:
    return ImmutableSandboxedEnvironment(
        autoescape=format == "html", undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


def _read_template(template: str | Path | None, format: LetterFormat) -> tuple[str, str]:
    if template is None:
        name = f"letter{FORMATS[format]}.j2"
        return name, files("plausiflow.letters").joinpath("templates", name).read_text(encoding="utf-8")
    path = Path(template)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise InvalidInputError(
            f"`template` must be the path of a Jinja2 template in UTF-8; got {str(path)!r}, which cannot be "
            "read. Leave it out for the letter of this library."
        ) from error
    if len(text) > MOST_CHARACTERS:
        raise InvalidInputError(f"The template {path} has more than {MOST_CHARACTERS:,} characters.")
    return str(path), text


def _cleaned(content: LetterContent) -> LetterContent:
    """Return the content with one line for each text, without control characters."""
    parts: dict[str, Any] = {}
    for field in fields(content):
        value = getattr(content, field.name)
        if isinstance(value, str):
            parts[field.name] = _one_line(value)
        else:
            parts[field.name] = tuple(
                _one_line(item) if isinstance(item, str) else _cleaned_change(item) for item in value
            )
    return replace(content, **parts)


def _cleaned_change(change: LetterChange) -> LetterChange:
    return LetterChange(**{field.name: _one_line(getattr(change, field.name)) for field in fields(change)})


def _one_line(text: str) -> str:
    return " ".join(_CONTROLS.sub(" ", text).split(" ")).strip()
