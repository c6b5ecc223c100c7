"""Convert links that work on GitHub to links of the documentation.

On GitHub, a page links to files of the repository. In the documentation these links are converted:

- ``../src/plausiflow/core/losses.py#validity_hinge``, a file and optionally a name in it, to that line of the
  listing of ``sphinx.ext.viewcode`` (GitHub opens the file and ignores the name);
- ``gallery/plot_digits.py`` to the example with its output;
- other files outside of ``docs``, such as ``../CITATION.cff``, to a copy.

Names in docstrings that the reference does not list link to the listings, too.

A fence ```` ```{plot} figures/some.py ````, which the Markdown parser cannot pass to matplotlib's directive,
becomes that directive.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.pycode import ModuleAnalyzer
from sphinx.util import logging
from sphinx.util.nodes import make_refnode
from sphinx.util.typing import ExtensionMetadata

DOCS = Path(__file__).resolve().parents[1]
PACKAGES, PACKAGE = DOCS.parent / "src", "plausiflow"
SCHEME = "source:"
LINK = re.compile(r"\]\((?P<target>[^()\s]+)\)")
FENCE = re.compile(r"^\s*(?P<ticks>`{3,}|~{3,})(?P<rest>.*)$")

logger = logging.getLogger(__name__)


def read_page(app: Sphinx, docname: str, source: list[str]) -> None:
    """Rewrite the text of a page before it is parsed."""
    path = Path(str(app.env.doc2path(docname)))
    if path.suffix == ".md":
        source[0] = rewritten(source[0], path.parent)


def rewritten(text: str, folder: Path) -> str:
    """Return the text of a page with converted links and figures."""
    written: list[str] = []
    block: list[str] = []
    closing = ""
    for line in text.splitlines():
        fence = FENCE.match(line)
        if closing:
            block.append(line)
            if fence and fence["ticks"].startswith(closing) and not fence["rest"].strip():
                written += drawn(block) if "{plot}" in block[0] else block
                block, closing = [], ""
        elif fence:
            block, closing = [line], fence["ticks"]
        else:
            written.append(LINK.sub(lambda link: f"]({documented(link['target'], folder)})", line))
    return "\n".join([*written, *block]) + "\n"


def documented(target: str, folder: Path) -> str:
    """Return the converted target of a link."""
    name, _, fragment = target.partition("#")
    if not name or re.match(r"[a-z][a-z+.-]*:", target):
        return target
    place = Path(os.path.normpath(folder / name))
    if place.is_relative_to(PACKAGES) and (place.suffix == ".py" or (place / "__init__.py").exists()):
        parts = place.relative_to(PACKAGES).with_suffix("").parts
        module = ".".join(part for part in parts if part != "__init__")
        return f"{SCHEME}{module}#{fragment}" if fragment else f"{SCHEME}{module}"
    if place.is_relative_to(DOCS / "gallery"):
        page = place.stem if place.name.startswith("plot_") else "index"
        return os.path.relpath(DOCS / "auto_examples" / f"{page}.rst", folder)
    if not place.is_relative_to(DOCS) and place.is_file():
        return f"path:{name}"
    return target


def drawn(block: list[str]) -> list[str]:
    """Return a fence of the plot directive as reStructuredText."""
    script = block[0].split("{plot}", 1)[1].strip()
    inside = block[1:-1]
    options = [line.strip() for line in inside if re.match(r"\s*:[\w-]+:", line)]
    caption = [re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", line) for line in inside[len(options) :]]
    lines = [
        f".. plot:: {script}",
        *(f"   {option}" for option in options),
        "",
        *(f"   {c}" for c in caption),
    ]
    return ["```{eval-rst}", *lines, "```"]


def link_sources(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Resolve links to source files, and add links back."""
    for link in doctree.findall(nodes.reference):
        if link.get("refuri", "").startswith(SCHEME):
            module, _, name = link["refuri"].removeprefix(SCHEME).partition("#")
            if not point(app, link, docname, module, name):
                logger.warning("%s does not exist in %s", name or "code", module, location=link)


def find_inner(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, text: nodes.TextElement
) -> nodes.Element | None:
    """Resolve names of plausiflow that the reference does not list.

    A name that the reference has under another path links there, others to the listing of their module.
    """
    target = node.get("reftarget", "")
    if node.get("refdomain") != "py":
        return None
    if not target.startswith(f"{PACKAGE}."):
        return find_bare(app, env, node, text)
    parts = target.split(".")
    depth = next(n for n in range(len(parts), 0, -1) if file_of(".".join(parts[:n])))
    module = ".".join(parts[:depth])
    thing = importlib.import_module(module)
    for part in parts[depth:]:
        thing = getattr(thing, part, None)
    if thing is None:
        return None
    return shown(app, env, node, text, thing) or linked(app, node, text, module)


def find_bare(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, text: nodes.TextElement
) -> nodes.Element | None:
    """Resolve a name without its module, from signatures that could not be evaluated.

    A name of another package, or one that is ambiguous, stays text.
    """
    meant = []
    for module in [m for name, m in sys.modules.items() if name.split(".")[0] == PACKAGE]:
        thing: object = module
        for part in node["reftarget"].split("."):
            thing = getattr(thing, part, None)
        if thing is not None and not any(thing is other for other in meant):
            meant.append(thing)
    if not meant:
        return None
    return (shown(app, env, node, text, meant[0]) if len(meant) == 1 else None) or text


def shown(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, text: nodes.TextElement, thing: object
) -> nodes.reference | None:
    """Return a link to an object in the reference, or else in a listing."""
    module, name = getattr(thing, "__module__", None) or "", getattr(thing, "__qualname__", "")
    known = env.domains.python_domain.objects.get(f"{module}.{name}")
    if known is not None:
        return make_refnode(app.builder, node["refdoc"], known.docname, known.node_id, text)
    return linked(app, node, text, module, name) if name and file_of(module) else None


def linked(
    app: Sphinx, node: addnodes.pending_xref, text: nodes.TextElement, module: str, name: str = ""
) -> nodes.reference | None:
    """Return a link to the listing of a module, or None."""
    link = nodes.reference("", "", text, internal=True)
    return link if point(app, link, node["refdoc"], module, name) else None


def point(app: Sphinx, link: nodes.reference, docname: str, module: str, name: str) -> bool:
    """Set the target of a link to a name in a listing; return whether it exists."""
    anchor = listed(app.env, module, name, docname)
    if anchor is None:
        return False
    page = app.builder.get_relative_uri(docname, f"_modules/{module.replace('.', '/')}")
    link["refuri"] = f"{page}#{name}" if name else page
    if anchor:
        link["ids"].append(anchor)
    return True


def file_of(module: str) -> Path | None:
    """Return the file of a module of plausiflow, or None."""
    place = PACKAGES.joinpath(*module.split("."))
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return file if file.is_file() else None


def listed(env: BuildEnvironment, module: str, name: str, docname: str) -> str | None:
    """Add a listing of the module, with a mark at the name.

    Returns:
        The anchor on the page that the mark links back to, empty if another page has it; None if there is no
        such name.
    """
    listings = env.__dict__.setdefault("_viewcode_modules", {})
    if not listings.get(module):
        file = file_of(module)
        if file is None:
            return None
        analyzer = ModuleAnalyzer.for_file(file, module)
        analyzer.find_tags()
        listings[module] = (analyzer.code, analyzer.tags, {}, module)
    _, tags, used, known_as = listings[module]
    if not name or name in used:
        return ""
    if name not in tags:
        return None
    used[name] = docname
    return f"{known_as}.{name}"


def setup(app: Sphinx) -> ExtensionMetadata:
    """Connect to the events."""
    app.setup_extension("sphinx.ext.viewcode")
    app.connect("source-read", read_page)
    app.connect("doctree-resolved", link_sources)
    app.connect("missing-reference", find_inner)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": False}
