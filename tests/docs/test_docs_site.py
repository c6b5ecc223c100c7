"""Links of README and documentation resolve, pages are in plain English, and the site builds."""

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from pages import DOCS, DOCUMENTS, PACKAGE, ROOT, WRITTEN, fences, named, prose


def targets(page: Path) -> list[str]:
    """Return the targets of the links and pictures of a page, except for addresses on the network."""
    text = re.sub(r"`[^`\n]*`", "", prose(page))
    found = re.findall(r"\]\(([^()\s]+)(?: \"[^\"]*\")?\)", text) + re.findall(
        r"(?:src|href)=\"([^\"]+)\"", text
    )
    return [target for target in found if not re.match(r"[a-z][a-z+.-]*:", target)]


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    titles = re.findall(r"^#+ +(.+?) *$", prose(page), re.MULTILINE)
    plain = [re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", title) for title in titles]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in plain}


def has(place: Path, fragment: str) -> bool:
    """Return whether a page has the heading, or a module the name."""
    if place.suffix == ".py":
        last = re.escape(fragment.split(".")[-1])
        return re.search(rf"^ *(def|class) {last}\b|^{last}\b", place.read_text(), re.MULTILINE) is not None
    return place.suffix != ".md" or fragment in anchors(place)


@pytest.mark.parametrize("page", WRITTEN, ids=named)
def test_every_link_of_a_page_resolves(page):
    for target in targets(page):
        name, _, fragment = target.partition("#")
        place = Path(os.path.normpath(page.parent / name)) if name else page
        assert place.exists(), f"{target}: there is no such file (examples are linked as gallery/plot_*.py)"
        assert not fragment or has(place, fragment), target


@pytest.mark.parametrize("page", [page for page in WRITTEN if page.name != "comparison.md"], ids=named)
def test_every_file_that_a_page_names_is_there(page):
    """Except for the page that names files of other projects."""
    places = (ROOT, DOCS, PACKAGE, PACKAGE.parent, ROOT / "bench/src", ROOT / "tests", page.parent)
    for name in re.findall(r"(?<!`)`([\w./-]+\.(?:py|md))`(?!`)", prose(page)):
        ours = name.endswith(".md") or "/" in name or name.startswith("test_")
        if ours and not name.startswith(("out/", "/")):
            assert any((place / name).exists() for place in places), name


def listed(page: Path) -> list[str]:
    """Return the entries in the tables of contents of a page, as paths without suffix."""
    blocks = [body for language, _, body in fences(page) if language.startswith("{toctree}")]
    lines = [line.strip() for body in blocks for line in body.splitlines()]
    return [os.path.relpath(page.parent / line, DOCS) for line in lines if line and not line.startswith(":")]


def test_every_page_is_in_a_table_of_contents_and_every_entry_is_a_page():
    entries = [entry for page in DOCUMENTS for entry in listed(page)]
    pages = {page.relative_to(DOCS).with_suffix("").as_posix() for page in DOCUMENTS} - {"index"}
    assert sorted(entries) == sorted({*pages, "auto_examples/index"})


BUILD = """
import socket
import sys

connect = socket.socket.connect

def near(self, address):
    network = self.family in (socket.AF_INET, socket.AF_INET6)
    if network and address[0] not in ("127.0.0.1", "::1", "localhost"):
        raise AssertionError(f"a network call: {address}")
    return connect(self, address)

socket.socket.connect = near

from sphinx.cmd.build import main

sys.exit(main(sys.argv[1:]))
"""


BANNED = re.compile(
    r"nothing where|\banew\b|\breckon|\bdearer\b|\blikeness\b|the way of a row|the last word|\brooms\b"
    r"|\btaken for\b|\bwished\b|\btold\b|\bso many\b|\bhouse\b|\basked for\b",
    re.IGNORECASE,
)
"""Phrases that are not plain English, or mean something else to most readers."""


@pytest.mark.parametrize(
    "page",
    [*WRITTEN, *sorted((DOCS / "gallery").glob("*.*")), *sorted((DOCS / "figures").glob("*.py"))],
    ids=named,
)
def test_a_page_is_in_plain_english(page):
    assert BANNED.findall(page.read_text()) == []


EXPLAINED = re.compile(r"\bnats?\b|\bjudges\b", re.IGNORECASE)
FOR_EVERYONE = [
    *("README.md", "docs/index.md", "docs/quickstart.md", "docs/report.md", "docs/guide/letters.md"),
    *("docs/guide/loan-officer.md", "docs/guide/auditor.md", "docs/guide/suggest.md"),
]
"""Pages that people read before docs/concepts.md, or without it."""


@pytest.mark.parametrize("name", FOR_EVERYONE)
def test_pages_for_everyone_need_no_terms_of_the_concepts(name):
    assert EXPLAINED.findall(prose(ROOT / name)) == []


@pytest.mark.parametrize("page", [page for page in DOCUMENTS if page.name != "concepts.md"], ids=named)
def test_a_page_that_uses_a_term_links_to_the_concepts(page):
    if EXPLAINED.search(prose(page)) and page.name not in {"benchmark.md", "performance.md", "CHANGELOG.md"}:
        assert "concepts.md" in prose(page)


WIDER = """() => [...document.querySelectorAll("article pre, article p, article li, article td, article th")]
  .filter((part) => part.clientWidth && part.scrollWidth > part.clientWidth + 1)
  .map((part) => `${part.tagName}: ${part.textContent.slice(0, 60)}`)"""
"""The parts of a page with a line that is wider than their box."""
LOOKED_AT = [
    *("index", "quickstart", "report", "comparison", "cli", "rules", "concepts", "guide/letters"),
    *("guide/suggest", "guide/loan-officer", "guide/auditor", "guide/audit", "guide/groups"),
]


def check_widths_and_buttons(html: Path) -> None:
    """No line is wider than its box, on a screen and on a phone, and code has a button that copies it."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        return
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for width in (1280, 390):
            page = browser.new_page(viewport={"width": width, "height": 900})
            for name in LOOKED_AT:
                page.goto((html / f"{name}.html").as_uri())
                assert page.evaluate(WIDER) == [], (name, width)
                assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
                blocks = page.locator("div.highlight pre").count()
                assert page.locator("button.copy").count() == blocks, name
        browser.close()


@pytest.mark.slow
def test_the_documentation_builds_without_a_warning_and_without_the_network(tmp_path):
    for package in ("sphinx", "furo", "myst_parser", "sphinx_gallery", "matplotlib"):
        pytest.importorskip(package, reason="the extra `docs` is not installed")
    options = ["-b", "html", "-W", "--keep-going", "-n", "-q", "-d", tmp_path / "doctrees"]
    command = [sys.executable, "-c", BUILD, *map(str, options), str(DOCS), str(tmp_path / "html")]
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=settings, timeout=1800)
    assert done.returncode == 0, done.stderr[-8000:]
    loads = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=\"(?:https?:)?//[^>]*>")
    remote = {page.name: loads.findall(page.read_text()) for page in (tmp_path / "html").rglob("*.html")}
    assert {name: found for name, found in remote.items() if found} == {}
    check_widths_and_buttons(tmp_path / "html")
