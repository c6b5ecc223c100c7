"""Formulas as MathML, generated when the pages are built.

Browsers render MathML, so formulas need no script, no font and no network. docutils does the conversion.
"""

from __future__ import annotations

import re

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number
from sphinx.util.typing import ExtensionMetadata
from sphinx.writers.html5 import HTML5Translator

REWRITTEN = {
    r"\\dots\b": r"\\ldots",
    r"\\iff\b": r"\\Longleftrightarrow",
    r"(\d)\s*\\log\b": r"\1\\,\\log",
    r"\\(log|det|exp)\b(?!\s*(?:\(|\\[bB]igl|\\left|\\,|[_^]))": r"\\\1\\,",
}
"""Replacements for commands that docutils does not know, and spaces around functions that it omits."""

logger = logging.getLogger(__name__)


def mathml(node: nodes.math | nodes.math_block, *, block: bool) -> str:
    """Return the formula of a node; if it cannot be converted, warn and show its source."""
    tex = node.astext()
    for ours, theirs in REWRITTEN.items():
        tex = re.sub(ours, theirs, tex)
    try:
        return tex2mathml(tex, as_block=block)
    except MathError as error:
        logger.warning("a formula cannot be converted: %s in %r", error, tex, location=node)
        return f"<code>{node.astext()}</code>"


def visit_math(self: HTML5Translator, node: nodes.math) -> None:
    """Write an inline formula."""
    self.body.append(self.starttag(node, "span", "", CLASS="math notranslate nohighlight"))
    self.body.append(mathml(node, block=False) + "</span>")
    raise nodes.SkipNode


def visit_math_block(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write a display formula."""
    self.body.append(self.starttag(node, "div", CLASS="math notranslate nohighlight"))
    if node["number"]:
        self.body.append(f'<span class="eqno">({get_node_equation_number(self, node)})')
        self.add_permalink_ref(node, "Link to this equation")
        self.body.append("</span>")
    self.body.append(mathml(node, block=True) + "</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the renderer; ``html_math_renderer`` selects it."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
