"""Jinja2 templates of the report and of notebook tables.

Autoescape is on: a template escapes every value, also inside attributes. Only ``|safe`` in a template turns
it off, for this package's own style and script and for :func:`script_json`.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

_NOT_IN_HTML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufdd0-\ufdef\ufffe\uffff]")
_SCRIPT_ESCAPES = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"}


@cache
def environment() -> Environment:
    """Return the environment of this package's templates."""
    return Environment(
        loader=PackageLoader("plausiflow.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_replace_controls,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(template: str, **values: Any) -> str:  # noqa: ANN401
    """Render a template with these values."""
    return environment().get_template(template).render(values)


@cache
def read_asset(name: str) -> str:
    """Return the text of a file next to the templates."""
    return files("plausiflow.report").joinpath("templates", name).read_text(encoding="utf-8")


def script_json(data: object) -> str:
    r"""Return strict JSON for a script element: no text in it can end the element or start a comment.

    Example:
        >>> print(script_json(["</script><!--"]))
        ["\u003c/script\u003e\u003c!--"]
    """
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_SCRIPT_ESCAPES)


def _replace_controls(value: Any) -> Any:  # noqa: ANN401
    """Replace characters that HTML cannot hold by U+FFFD; markup was checked when it was made."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return _NOT_IN_HTML.sub("\ufffd", value)
    return value
