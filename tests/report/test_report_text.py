"""Text that would act on a page or in a notebook stays text."""

import re

import numpy as np
import pandas as pd
import pytest

from plausiflow.report.overview import ReportTable
from plausiflow.report.rendering import environment, render, script_json
from reporting import Page, build, page_of

EVIL = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    '" onload="alert(1)',
    "' autofocus onfocus='alert(1)",
    "&lt;b&gt; &amp; <b>",
    "]]>\u2028\u2029",
    "</noscript><img src=x onerror=alert(1)>",
    "</style>${alert(1)}`",
]


def made_of(texts):
    """A result with these texts wherever people can have texts."""
    rows = pd.DataFrame({name: [value, "a"] for name, value in zip(texts, texts[::-1], strict=True)})
    rows.index = pd.Index(texts[:2], name=texts[2])
    answers = rows.iloc[[0]].reset_index(drop=True).assign(**dict.fromkeys(texts[:3], texts[4]))
    misses = {"misses": rows.iloc[[1]].assign(**{texts[0]: texts[1]}), "misses_of": np.array([1])}
    said = {
        name: np.array([texts[place], texts[place + 3]], dtype=object)
        for place, name in enumerate(("reason", "predicted", "target"))
    }
    return build(rows, answers, [0], outcome=texts[0], misses_why=[texts[6]], **misses, **said)


def test_hostile_text_stays_text(tmp_path):
    tame = page_of(made_of(list("abcdefgh")), tmp_path, title="a")
    wild = page_of(made_of(EVIL), tmp_path, title=EVIL[0])
    assert [tag for tag, _ in wild.elements] == [tag for tag, _ in tame.elements]
    assert [sorted(a) for _, a in wild.elements] == [sorted(a) for _, a in tame.elements]
    assert wild.all("h1")[0][1] == EVIL[0]
    assert "\u2028" not in script_json(EVIL)
    ((start, stop),) = [m.span(1) for m in re.finditer(r'id="data">(.*?)</script>', wild.raw)]
    assert not set("<>&\u2028\u2029") & set(wild.raw[start:stop])
    data = wild.data
    assert data["rows"]["label"] == EVIL[:2]
    assert data["rows"]["reason"] == [EVIL[0], EVIL[3]]
    assert [column["name"] for column in data["columns"]] == EVIL
    assert data["changes"]["to"] == [EVIL[4]] * 3
    assert data["misses"]["why"] == [EVIL[6]]


def test_hostile_text_stays_text_in_notebooks():
    page = Page(made_of(EVIL)._repr_html_())
    assert {tag for tag, _ in page.elements} <= {
        *("div", "p", "table", "thead", "tbody", "tr", "th", "td", "strong", "br")
    }
    assert page.all("th")[-2][1] == EVIL[0]


@pytest.mark.parametrize("text", ["\x00", "a\x1bb", "\ufffe", "\x85"])
def test_characters_that_a_page_cannot_hold_are_replaced(text):
    shown = render("explainer.html.j2", facts={text: [text]})
    assert shown.count("\ufffd") == 2
    assert text not in shown


def test_text_that_is_no_utf_8_can_be_written(tmp_path):
    rows = pd.DataFrame({"a": pd.Series(["\udc80", "b"], dtype=object)})
    page = page_of(build(rows, rows.iloc[:0], []), tmp_path)
    assert page.data["columns"][0]["texts"] == ["\udc80", "b"]


def test_every_template_escapes_by_default():
    names = environment().list_templates(extensions=["j2"])
    assert len(names) == 8
    assert environment().autoescape is True
    sources = {name: environment().loader.get_source(environment(), name)[0] for name in names}
    assert {name: re.findall(r"\w+(?=\|safe)", text) for name, text in sources.items() if "safe" in text} == {
        "report.html.j2": ["style", "card_data", "script"]
    }
    assert not [name for name, text in sources.items() if "autoescape" in text]


def test_cells_of_a_table_are_escaped():
    tables = environment().get_template("tables.html.j2").module
    page = Page(tables.table(ReportTable("<i>", {"<b>": ""}, [["<u>"]])))
    assert [text for _, text in page.all("caption") + page.all("th")] == ["<i>", "<b>", "<u>"]
