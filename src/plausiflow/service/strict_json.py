"""Strict JSON: what Python's parser accepts beyond the standard is an error here.

The parser of pydantic does not detect a name that occurs twice in an object, so that one of two values would
be ignored. The parser of Python does, with a hook.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, NoReturn

from plausiflow.service.errors import RequestError, format_value

MAX_DEPTH = 32


def parse_json(body: bytes) -> Any:  # noqa: ANN401
    """Return the value of a JSON text, or raise a RequestError that says what is wrong with it.

    Example:
        >>> parse_json(b'{"instances": [{"age": 40}]}')
        {'instances': [{'age': 40}]}
    """
    try:
        text = body.decode("utf-8")
        value = json.loads(text, parse_constant=_reject_constant, object_pairs_hook=_make_object)
        if _depth(value) > MAX_DEPTH:
            raise RecursionError
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        return value
    except UnicodeDecodeError:
        reason = "some of its bytes are not UTF-8"
    except UnicodeEncodeError:
        reason = "a \\u escape is half of a surrogate pair"
    except json.JSONDecodeError as error:
        reason = f"at line {error.lineno}, column {error.colno}: {error.msg}"
    except RecursionError:
        reason = f"it is nested more than {MAX_DEPTH} levels deep"
    except ValueError as error:
        reason = str(error)
    raise RequestError(400, f"The body must be JSON in UTF-8, but it cannot be read: {reason}.")


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number; send null for a missing value")


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        name, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"an object has the name {format_value(name)} twice")
    return made


def _depth(value: object) -> int:
    """Return how deep lists and objects are nested."""
    inner = list(value.values()) if isinstance(value, dict) else value
    return 1 + max(map(_depth, inner), default=0) if isinstance(inner, list) else 0
