"""The report is one well-formed, accessible page without other files."""

import re
from base64 import b64encode
from hashlib import sha256
from itertools import pairwise

import pytest

from plausiflow.explanations import checks
from plausiflow.report import labels
from plausiflow.report.rendering import read_asset
from reporting import page_of


def test_the_page_has_one_heading_a_language_and_ordered_headings(page):
    assert page.raw.startswith("<!DOCTYPE html>\n")
    assert page.all("html")[0][0] == {"lang": "en"}
    assert [text for _, text in page.all("h1")] == ["Loans & homes"] == [t for _, t in page.all("title")][:1]
    depths = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert depths[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(depths))
    assert page.all("meta")[2][0]["name"] == "viewport"


def test_a_page_without_a_title_names_the_outcome(many, tmp_path):
    assert page_of(many, tmp_path).all("h1")[0][1] == "Counterfactuals: home_loan"


def test_the_page_asks_no_network_for_anything(page):
    sources = [
        value
        for _, attributes in page.elements
        for name, value in attributes.items()
        if name in ("src", "href", "action", "srcset", "poster", "data")
    ]
    assert set(sources) == {"#rows", "data:,"}
    assert re.findall(r"(?:https?:)?//[\w.]+\.\w+", page.raw) == ["http://www.w3.org"]  # SVG's own name
    assert not re.search(r"@import|url\(|fetch|XMLHttp|innerHTML|eval\(", page.raw)


def test_the_policy_names_the_style_and_the_script_of_the_page(page):
    policy = page.all("meta")[1][0]["content"]
    assert policy.startswith("default-src 'none';")
    (style,) = [text for _, text in page.all("style")]
    (script,) = [text for attributes, text in page.all("script") if "type" not in attributes]
    for kind, text in (("style", style), ("script", script)):
        digest = b64encode(sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert not [attributes for _, attributes in page.elements if "style" in attributes]
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]


def test_pictures_tables_and_controls_have_names(page):
    assert len(page.all("svg")) > 5
    for attributes, _ in page.all("svg"):
        assert attributes["role"] == "img"
        assert len(attributes["aria-label"]) > 5
    identities = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(identities) == len(set(identities))
    assert {attributes["for"] for attributes, _ in page.all("label")} == {"search", "verdict", "order"}
    assert {"search", "verdict", "order"} <= set(identities)
    assert all(attributes.get("scope") in ("col", "row") for attributes, _ in page.all("th"))
    assert len(page.all("caption")) == len(page.all("table")) > 5
    assert all(text for _, text in page.all("caption"))


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    """As WCAG 2 defines it."""
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1, 2], ids=["light", "dark", "print"])
def test_every_text_has_a_contrast_of_at_least_four_and_a_half(theme):
    block = re.findall(r":root \{(.*?)\}", read_asset("style.css"), re.DOTALL)[theme]
    colours = dict(re.findall(r"--([\w-]+): (#\w{6})", block))
    for ground in ("page", "panel"):
        for text in ("text", "quiet", "accent", "good", "bad"):
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
        assert contrast(colours["bar"], colours[ground]) >= 3
    assert contrast(colours["marked-text"], colours["marked"]) >= 4.5


def test_no_text_is_smaller_than_twelve_pixels():
    sizes = re.findall(r"font(?:-size)?: ([\d.]+)(rem|px|pt)", read_asset("style.css"))
    pixels = {"rem": 16, "px": 1, "pt": 4 / 3}
    assert len(sizes) > 8
    assert min(float(size) * pixels[unit] for size, unit in sizes) >= 12
    assert "font" not in read_asset("script.js")


def test_every_verdict_and_figure_has_a_name():
    assert tuple(labels.VERDICTS) == checks.STATUSES
    assert set(checks.FIGURES) < set(labels.FIGURES)
