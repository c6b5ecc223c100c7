"""The page of mathematics agrees with the code: tags, equations and links."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = (ROOT / "src" / "plausiflow", ROOT / "bench" / "src" / "plausiflow_bench")
FILES = [file for source in SOURCES for file in source.rglob("*.py")]
PAGE = ROOT / "docs" / "mathematics.md"
TAG = re.compile(r"\[PPCEF Eq\. (\d+)[a-z]?\b[^\]]*\]")
LINK = re.compile(r"\]\(\.\./((?:src/plausiflow|bench/src/plausiflow_bench)/[\w/]+\.py)(?:#([\w.]+))?\)")
EQUATIONS = range(1, 12)

Place = tuple[str, str]
"""A file of either distribution, and the name of an object in it; no name for the file itself."""


@cache
def objects(file: Path) -> dict[str, str]:
    """Every module, class, function and method of a file by its dotted name, with its docstring."""
    found = {}

    def visit(node, names):
        found[".".join(names)] = ast.get_docstring(node) or ""
        for child in node.body:
            if isinstance(child, ast.ClassDef | ast.FunctionDef):
                visit(child, (*names, child.name))

    visit(ast.parse(file.read_text()), ())
    return found


def tagged() -> list[tuple[int, Place]]:
    """Every tag of the source: the number of the equation, and the object whose docstring has it."""
    return sorted(
        {
            (int(number), (file.relative_to(ROOT).as_posix(), name))
            for file in FILES
            for name, text in objects(file).items()
            for number in TAG.findall(text)
        }
    )


def sections() -> dict[str, str]:
    """The text below each heading of the page."""
    parts = re.split(r"^#+ (.+)$", PAGE.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def of_equation(number: int) -> str:
    """The section of an equation of the paper."""
    found = [text for title, text in sections().items() if title.startswith(f"Eq. {number}:")]
    assert len(found) == 1, f"the page must have one section `### Eq. {number}: ...`"
    return found[0]


@pytest.mark.parametrize("number", EQUATIONS)
def test_every_equation_of_the_paper_is_on_the_page_with_its_code(number):
    text = of_equation(number)
    assert re.search(r"^\$\$\n.+?\n\$\$$", text, re.MULTILINE | re.DOTALL), "a formula"
    assert LINK.search(text), "a link to its code"


@pytest.mark.parametrize(("number", "place"), tagged(), ids=lambda part: str(part))
def test_every_tag_is_on_the_page_with_a_link_to_its_object(number, place):
    assert place in LINK.findall(of_equation(number))


def test_every_tag_stands_in_a_docstring_and_names_an_equation_of_the_paper():
    written = sum(len(TAG.findall(file.read_text())) for file in FILES)
    in_docstrings = sum(len(TAG.findall(text)) for file in FILES for text in objects(file).values())
    assert written == in_docstrings > 0
    assert {number for number, _ in tagged()} <= set(EQUATIONS)


@pytest.mark.parametrize("place", sorted(set(LINK.findall(PAGE.read_text()))), ids="#".join)
def test_every_object_that_the_page_links_to_exists(place):
    file, name = place
    assert (ROOT / file).is_file()
    assert name in objects(ROOT / file)


def test_every_link_into_the_source_has_the_form_that_is_checked():
    text = PAGE.read_text()
    assert text.count("](../src/") + text.count("](../bench/src/") == len(LINK.findall(text))


def test_every_formula_on_the_page_has_its_code():
    """Sections with a formula link to the lines that compute it."""
    bare = [title for title, text in sections().items() if "\n$$\n" in text and not LINK.search(text)]
    assert not bare
