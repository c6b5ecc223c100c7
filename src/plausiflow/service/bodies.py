"""The body of a request as strict JSON."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, NoReturn

from plausiflow.service.refusals import Refusal, shown

DEEPEST = 32


def parsed(body: bytes) -> Any:  # noqa: ANN401
    """The value of a JSON text.

    Raises:
        Refusal: It is none: not UTF-8, cut off, nested too deep, with a name that stands twice in an object,
            with a number such as NaN, or with half a character.

    Example:
        >>> parsed(b'{"instances": [{"age": 40}]}')
        {'instances': [{'age': 40}]}
    """
    try:
        text = body.decode("utf-8")
        value = json.loads(text, parse_constant=_no_number, object_pairs_hook=_object)
        if _depth_over(value, DEEPEST):
            raise RecursionError
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError:
        raise _unread("some of its bytes are not UTF-8") from None
    except UnicodeEncodeError:
        raise _unread("a \\u escape is half a character") from None
    except json.JSONDecodeError as error:
        raise _unread(f"at line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise _unread(f"it is nested deeper than {DEEPEST} levels") from None
    except ValueError as error:
        raise _unread(str(error)) from None
    return value


def _unread(why: str) -> Refusal:
    return Refusal(400, f"The body must be JSON in UTF-8, and cannot be read: {why}.")


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON; write null where a value is missing")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"{shown(twice)} stands twice in an object")
    return made


def _depth_over(value: object, limit: int) -> bool:
    """Whether lists and objects are nested deeper than so many levels."""
    level = [value]
    for _ in range(limit + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, list | dict)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, list | dict)
        ]
        if not level:
            return False
    return True
