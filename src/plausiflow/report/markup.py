"""Text from anywhere, made safe for HTML, for attributes and for JSON inside a page.

Plain text is always escaped on its way into markup; only :class:`Html`, which these functions make, is not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape

Attributes = Mapping[str, str | int | float | None]

_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufdd0-\ufdef\ufffe\uffff]")
_IN_SCRIPTS = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"}


class Html(str):
    """Markup that is finished; everything in it is escaped."""

    __slots__ = ()


def shown(text: str) -> Html:
    """As markup, also inside quotes; characters that a page cannot hold become U+FFFD.

    Example:
        >>> shown('<b class="x">'), shown(Html("<b>"))
        ('&lt;b class=&quot;x&quot;&gt;', '<b>')
    """
    return text if isinstance(text, Html) else Html(escape(_CONTROLS.sub("\ufffd", text)))


def joined(parts: Iterable[str]) -> Html:
    """One after the other."""
    return Html("".join(map(shown, parts)))


def element(tag: str, attributes: Attributes | None = None, *inside: str) -> Html:
    """An element; attributes that are nothing are left out.

    Example:
        >>> element("th", {"scope": "col", "class": None}, "a < b")
        '<th scope="col">a &lt; b</th>'
    """
    given = (attributes or {}).items()
    written = "".join(f' {name}="{shown(str(value))}"' for name, value in given if value is not None)
    return Html(f"<{tag}{written}>{joined(inside)}</{tag}>")


def table(
    caption: str,
    head: Sequence[str],
    lines: Iterable[Sequence[str]],
    *,
    numbers: Sequence[int] = (),
    words: Sequence[int] = (),
) -> Html:
    """A table whose first column names the lines.

    Args:
        caption: Says what it is.
        head: Names of the columns.
        lines: Cells of each line.
        numbers: Columns that are set to the right.
        words: Columns of long texts, which stay wide where there is little room.
    """
    kinds = [
        "number" if place in numbers else "words" if place in words else None for place in range(len(head))
    ]
    names = [
        element("th", {"scope": "col", "class": kind}, text) for text, kind in zip(head, kinds, strict=True)
    ]
    inside = element(
        "table",
        None,
        element("caption", None, caption),
        element("thead", None, element("tr", None, *names)),
        element("tbody", None, *(_line(cells, kinds) for cells in lines)),
    )
    return element("div", {"class": "wide", "role": "region", "aria-label": caption, "tabindex": 0}, inside)


def _line(cells: Sequence[str], kinds: Sequence[str | None]) -> Html:
    rest = zip(cells[1:], kinds[1:], strict=True)
    return element(
        "tr",
        None,
        element("th", {"scope": "row", "class": kinds[0]}, cells[0]),
        *(element("td", {"class": kind}, cell) for cell, kind in rest),
    )


def json_for_script(data: object) -> Html:
    r"""Strict JSON that no text in it can end: nothing in it looks like a tag or a comment.

    Example:
        >>> print(json_for_script(["</script><!--"]))
        ["\u003c/script\u003e\u003c!--"]
    """
    written = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Html(written.translate(_IN_SCRIPTS))
