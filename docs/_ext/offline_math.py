"""Formulas as MathML, made when the pages are built.

Browsers draw MathML themselves: a page needs no script, no font and no network for its formulas. The
translation is docutils' own.
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
"""Commands that docutils knows under another name, and the spaces around functions, which it leaves out."""

logger = logging.getLogger(__name__)


def mathml(node: nodes.math | nodes.math_block, *, block: bool) -> str:
    """The formula of a node; what cannot be translated is a warning, and shown as it was written."""
    tex = node.astext()
    for ours, theirs in REWRITTEN.items():
        tex = re.sub(ours, theirs, tex)
    try:
        return tex2mathml(tex, as_block=block)
    except MathError as error:
        logger.warning("a formula cannot be shown: %s in %r", error, tex, location=node)
        return f"<code>{node.astext()}</code>"


def visit_math(self: HTML5Translator, node: nodes.math) -> None:
    """A formula in a line of text."""
    self.body.append(self.starttag(node, "span", "", CLASS="math notranslate nohighlight"))
    self.body.append(mathml(node, block=False) + "</span>")
    raise nodes.SkipNode


def visit_math_block(self: HTML5Translator, node: nodes.math_block) -> None:
    """A formula on its own."""
    self.body.append(self.starttag(node, "div", CLASS="math notranslate nohighlight"))
    if node["number"]:
        self.body.append(f'<span class="eqno">({get_node_equation_number(self, node)})')
        self.add_permalink_ref(node, "Link to this equation")
        self.body.append("</span>")
    self.body.append(mathml(node, block=True) + "</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> ExtensionMetadata:
    """Offer the renderer; ``html_math_renderer`` chooses it."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
