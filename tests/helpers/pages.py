"""Pages of the documentation, and what is in them."""

import re
import shlex
import textwrap
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS, PACKAGE = ROOT / "docs", ROOT / "src" / "plausiflow"
BUILT = {"_build", "auto_examples", "api"}


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


DOCUMENTS = sorted(page for page in DOCS.rglob("*.md") if page.relative_to(DOCS).parts[0] not in BUILT)
PAGES = [ROOT / "README.md", *DOCUMENTS]
WRITTEN = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
of_pages = pytest.mark.parametrize("page", PAGES, ids=named)


@cache
def fences(page: Path) -> list[tuple[str, int, str]]:
    """Every block of code of a page: its language, the line where it begins, and its text."""
    pattern = re.compile(
        r"^(?P<indent> *)(?P<ticks>`{3,})(?P<info>[^`\n]*)\n(?P<body>.*?)^ *(?P=ticks) *$", re.M | re.S
    )
    text = page.read_text()
    return [
        (found["info"].strip(), text.count("\n", 0, found.start()) + 2, textwrap.dedent(found["body"]))
        for found in pattern.finditer(text)
    ]


@cache
def prose(page: Path) -> str:
    """The text of a page without its blocks of code."""
    return re.sub(r"^ *(`{3,})[^`\n]*\n.*?^ *\1 *$", "", page.read_text(), flags=re.M | re.S)


def command_lines(page: Path) -> list[str]:
    """The commands of ours that a page shows."""
    shells = ("", "sh", "bash", "shell", "console", "text")
    texts = [body.replace("\\\n", " ") for language, _, body in fences(page) if language in shells]
    lines = [line.removeprefix("$ ") for text in texts for line in text.splitlines()]
    return [line for line in lines if re.match(r"(\S+=\S+ )*(\S*/)?plausiflow ", line)]


def of_command_line(line: str) -> list[str]:
    """The words after `plausiflow`, up to what a shell would read as the end of the command."""
    words = shlex.split(line, comments=True)
    start = next(i for i, word in enumerate(words) if Path(word).name == "plausiflow") + 1
    ends = [i for i, word in enumerate(words) if i >= start and word in {"|", "&&", ";", ">", "&"}]
    return words[start : ends[0] if ends else None]
