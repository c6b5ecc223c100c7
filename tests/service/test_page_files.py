"""The files of the what-if page: enough contrast, no address of another machine, no script in the markup."""

import re

import pytest

from plausiflow.service.app import STATIC

FILES = sorted(STATIC.iterdir())


def rgb(colour: str) -> list[float]:
    return [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]


def luminance(colour: str) -> float:
    """Return the luminance as the Web Content Accessibility Guidelines define it."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("text", "ground"),
    [
        *((text, ground) for text in ("text", "quiet") for ground in ("page", "panel", "sunken")),
        ("text", "soft"),
        ("accent", "panel"),
        ("accent", "soft"),
        ("on-accent", "accent"),
        ("wrong", "panel"),
        ("wrong", "page"),
    ],
)
def test_text_has_enough_contrast(text, ground, scheme):
    found = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", (STATIC / "style.css").read_text())
    colours = {name: pair[scheme] for name, *pair in found}
    high, low = sorted((luminance(colours[text]), luminance(colours[ground])), reverse=True)
    assert (high + 0.05) / (low + 0.05) >= 4.5


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_of_the_page_names_no_other_machine_and_writes_no_markup(path):
    text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    assert re.findall(r"(?:https?:)?//[\w-]+\.\w+", text) == []
    assert re.findall(r"(?:inner|outer)HTML|insertAdjacentHTML|document\.write|\beval\(", text) == []


def test_the_page_has_no_script_or_style_in_its_markup():
    text = (STATIC / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<style|\sstyle=|\son\w+=|<script(?![^>]*src=)", text) == []


def test_every_imported_module_exists():
    names = {path.name for path in FILES}
    for path in FILES:
        assert set(re.findall(r'from "\./([\w.]+)"', path.read_text(encoding="utf-8"))) <= names


def test_all_modules_are_fetched_at_once():
    text = (STATIC / "index.html").read_text(encoding="utf-8")
    listed = re.findall(r'rel="modulepreload" href="static/([\w.]+)"', text)
    assert listed == [path.name for path in FILES if path.suffix == ".js" and path.name != "main.js"]
