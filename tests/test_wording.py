"""Replaced identifiers and phrases stay away: the glossary of the design, and plain English."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = [*sorted((ROOT / "src").rglob("*.py")), *sorted((ROOT / "bench" / "src").rglob("*.py"))]
PAGES = [
    *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "guide").glob("*.md"),
    *(ROOT / "docs" / "gallery").glob("*.py"), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
]  # fmt: skip

IDENTIFIERS = (
    "Asked", "Taken", "taken_for", "Itself", "Aim", "Decides", "Wanted", "wishes", "Means", "StandIn",
    "likeness", "sloped", "shortfalls", "RealRows", "given_bar", "Finder", "Question", "finder_for",
    "wanted_of", r"\w+_again",
)  # fmt: skip
PHRASES = (
    "nothing where", "anew", "reckon", "dearer", "likeness", "the way of a row", "speak the last word",
    "rooms",
)  # fmt: skip


def found(paths, patterns, flags=0) -> list[str]:
    rx = re.compile(r"\b(" + "|".join(patterns) + r")\b", flags)
    return [
        f"{path.relative_to(ROOT)}:{number}: {match.group()}"
        for path in paths
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for match in rx.finditer(line)
    ]


def test_no_replaced_identifier_is_left_in_the_source():
    assert found([path for path in SOURCE if "bench" not in path.parts], IDENTIFIERS) == []


def test_no_phrase_of_the_old_prose_is_left_in_source_and_pages():
    patterns = [phrase.replace(" ", r"\s+") + r"\w*" for phrase in PHRASES]
    assert found([*SOURCE, *PAGES], patterns, re.IGNORECASE) == []


@pytest.mark.parametrize(
    "line", ["class Asked:", "x = finder_again(y)", "self.sloped(x)", "taken_for='auto'"]
)
def test_the_check_finds_replaced_identifiers(line, tmp_path, monkeypatch):
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    (tmp_path / "module.py").write_text(line)
    assert len(found([tmp_path / "module.py"], IDENTIFIERS)) == 1
