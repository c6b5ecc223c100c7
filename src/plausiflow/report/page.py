"""The page of a report: one HTML file that needs no other, and asks no network for anything.

A content security policy names the style and the script by their hashes, so that nothing else could run even
if some text found its way into the markup.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from importlib.resources import files

from plausiflow.report.cards import card_data, plain_table
from plausiflow.report.content import Content
from plausiflow.report.markup import Html, element, json_for_script, shown
from plausiflow.report.overview import overview
from plausiflow.report.words import VERDICTS

ORDERS = {
    "given": "as they came",
    "cost": "dearest first",
    "score": "least plausible first",
    "n_changes": "most changes first",
}
"""How cards can be ordered; but for the first, by a figure of the best answer."""


def page_parts(content: Content) -> Iterator[str]:
    """The text of the page, piece by piece."""
    style, script = asset("style.css"), asset("script.js")
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_policy(style, script)}">\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield '<meta name="generator" content="plausiflow">\n<link rel="icon" href="data:,">\n'
    yield f"<title>{shown(content.title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
    yield '<a class="skip" href="#rows">Skip to the rows</a>\n'
    yield f"<header>{element('h1', None, content.title)}</header>\n<main>\n"
    yield overview(content)
    yield f'\n<section aria-labelledby="rows"><h2 id="rows" tabindex="-1">Rows</h2>\n{_controls(content)}'
    yield f"\n<noscript>{plain_table(content)}</noscript>\n"
    yield '<div id="cards"></div>\n'
    yield '<nav id="pages" class="controls" aria-label="Pages" hidden></nav>\n</section>\n</main>\n'
    yield f'<script type="application/json" id="data">{json_for_script(card_data(content))}</script>\n'
    yield f"<script>{script}</script>\n</body>\n</html>\n"


@cache
def asset(name: str) -> str:
    """A file of this package."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    hashes = [b64encode(sha256(text.encode()).digest()).decode() for text in (style, script)]
    return (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _controls(content: Content) -> Html:
    """Search, filter and order; shown by the script, which they need."""
    counts = content.rows["status"].value_counts()
    verdicts = [_option("", f"all ({len(content.rows):,})")] + [
        _option(status, f"{sign} {name} ({counts[status]:,})")
        for status, (sign, name, _) in VERDICTS.items()
        if counts.get(status)
    ]
    orders = [_option(name, text) for name, text in ORDERS.items()]
    fields = [
        _field("search", "Search", Html('<input id="search" type="search" autocomplete="off">')),
        _field("verdict", "Verdict", element("select", {"id": "verdict"}, *verdicts)),
        _field("order", "Order", element("select", {"id": "order"}, *orders)),
    ]
    status = element("p", {"id": "shown", "role": "status", "aria-live": "polite"})
    form = element("div", {"class": "fields", "role": "search", "aria-label": "Rows"}, *fields)
    return Html(f'<div id="controls" class="controls" hidden>{form}{status}</div>')


def _option(value: str, text: str) -> Html:
    return element("option", {"value": value}, text)


def _field(identity: str, text: str, control: Html) -> Html:
    return element("p", None, element("label", {"for": identity}, text), control)
