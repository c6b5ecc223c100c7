"""The page of a report: one HTML file without other files and without network access.

A content security policy names the style and the script by their hashes, so that nothing else can run even if
a text found its way into the markup.
"""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256

from plausiflow.report.cards import card_data
from plausiflow.report.content import ReportContent
from plausiflow.report.labels import VERDICTS
from plausiflow.report.overview import build_overview, every_row
from plausiflow.report.rendering import read_asset, render, script_json


def render_report(content: ReportContent) -> str:
    """Return the page as HTML."""
    style, script = read_asset("style.css"), read_asset("script.js")
    return render(
        "report.html.j2",
        content=content,
        overview=build_overview(content),
        every_row=every_row(content),
        verdicts=VERDICTS,
        counts=content.rows["status"].value_counts().to_dict(),
        card_data=script_json(card_data(content)),
        style=style,
        script=script,
        style_hash=_csp_hash(style),
        script_hash=_csp_hash(script),
    )


def _csp_hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
