"""Output of results: strict JSON of every type of value, escaped HTML, and plots."""

import json
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from plausiflow.errors import InvalidInputError
from plausiflow.explanations.changes import Changes, relative_moves
from plausiflow.explanations.json_output import json_value
from results import build, levels, loans, number, strict

UNKNOWN = {"role": "", "serves": "", "adverse": False}


def test_json_has_the_documented_structure(tmp_path):
    result = build(**loans(), target="yes", outcome="loan", reason=["", "too far", ""])
    written = strict(result.to_json())
    assert (written["version"], written["outcome"], len(written["rows"])) == (1, "loan", 3)
    ann = written["rows"][0]
    assert (ann["row"], ann["status"], ann["reason"], ann["target"]) == ("Ann", "found", "", "yes")
    assert ann["factual"] == {
        "income": 31000,
        "open_lines": 4,
        "owns_home": False,
        "job": "clerk",
        "rate": 0.25,
    }
    assert ann["counterfactuals"][0] == {
        "values": {"income": 38500, "open_lines": 3, "owns_home": False, "job": "clerk", "rate": 0.25},
        "changes": [
            {"feature": "income", "from": 31000, "to": 38500, **UNKNOWN},
            {"feature": "open_lines", "from": 4, "to": 3, **UNKNOWN},
        ],
        "distance": "l2",
        "cost": 0.0,
        "probability": 40.0,
        "score": 60.0,
        "judged": 70.0,
        "sentence": "income: 31,000 → 38,500 and open_lines: 4 → 3",
        "advantages": ["least cost", "fewest changes"],
    }
    assert written["rows"][1]["counterfactuals"] == []
    assert written["rows"][1]["sentence"] == "No answer: too far."
    assert written["rows"][2]["factual"]["job"] is None
    assert result.to_json(tmp_path / "result.json") is None
    assert (tmp_path / "result.json").read_text(encoding="utf-8") == result.to_json()


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (np.int8(3), 3),
        (np.uint64(2**64 - 1), 2**64 - 1),
        (np.True_, True),
        (np.float32(0.1), 0.1),
        (np.float16(0.1), 0.1),
        (np.longdouble("0.5"), 0.5),
        (np.nan, None),
        (np.inf, None),
        (np.float32("-inf"), None),
        (None, None),
        (pd.NA, None),
        (pd.NaT, None),
        (np.datetime64("NaT", "ns"), None),
        (np.datetime64("2024-02-29"), "2024-02-29"),
        (pd.Timestamp("2024-02-29 12:00", tz="UTC"), "2024-02-29T12:00:00+00:00"),
        (pd.Timedelta(hours=1), "P0DT1H0M0S"),
        (pd.Period("2024-02"), "2024-02"),
        (pd.Interval(0, 1), "(0, 1]"),
        (Decimal("0.10"), "0.10"),
        (np.array([1, np.nan]), [1.0, None]),
        ((1, "a", None), [1, "a", None]),
        ({1: np.nan}, {"1": None}),
        ("naïve", "naïve"),
    ],
)
def test_json_holds_every_type_of_value(value, written):
    assert json_value(value) == written
    strict(json.dumps(json_value(value), allow_nan=False))


def test_json_of_narrow_floats_is_as_they_are_written():
    rows = pd.DataFrame({"a": np.array([0.1, np.nan, np.inf], dtype=np.float32)})
    answers = pd.DataFrame({"a": np.array([0.3], dtype=np.float32)})
    written = strict(build(rows, answers, [0]).to_json())["rows"]
    assert written[0]["counterfactuals"][0]["changes"] == [
        {"feature": "a", "from": 0.1, "to": 0.3, **UNKNOWN}
    ]
    assert [row["factual"]["a"] for row in written] == [0.1, None, None]


def test_text_that_is_no_utf_8_is_escaped_in_a_file(tmp_path):
    rows = pd.DataFrame({"a": pd.Series(["\udc80", "b"], dtype=object)})
    result = build(rows, rows.iloc[:0], [])
    result.to_json(tmp_path / "result.json")
    assert strict((tmp_path / "result.json").read_text())["rows"][0]["factual"]["a"] == "\udc80"


def test_a_notebook_shows_the_first_rows_escaped():
    evil = "<script>alert('x')</script>"
    n = 14
    rows = pd.DataFrame({"a": [evil] * n}, index=[evil] * n)
    answers = pd.DataFrame({"a": ["<b>"]})
    html = build(rows, answers, [0], target=evil, reason=evil)._repr_html_()
    assert "<script>" not in html
    assert "<b>" not in html
    assert "&lt;b&gt;" in html
    assert html.count("<tr>") == 11
    assert "and 4 more rows" in html


def test_a_plot_labels_what_changes():
    parts = loans()
    parts["answers"].loc[0, "job"] = "$5 or $6"
    axes = build(**parts, outcome="loan", target="granted").plot(0)
    axes.figure.canvas.draw()
    assert axes.get_title() == "loan is 0, would be granted with these changes"
    assert [label.get_text() for label in axes.get_yticklabels()] == ["income", "open_lines", "job"]
    assert [text.get_text() for text in axes.texts][:2] == ["31,000 → 38,500", "4 → 3"]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([0.075, -1 / 9, 0.0])


@pytest.mark.parametrize(
    ("i", "rank", "message"), [(1, 1, "no answer to plot. No answer: too far"), (0, 3, "1 to 2.*got 3")]
)
def test_a_plot_of_an_answer_that_is_not_there_raises(i, rank, message):
    with pytest.raises(InvalidInputError, match=message):
        build(**loans(), reason="too far").plot(i, rank=rank)


@pytest.mark.parametrize(
    ("feature", "before", "after", "expected"),
    [
        (number(step=1.0, minimum=10.0, maximum=60.0), 20, 45, 0.5),
        (number(step=1.0, minimum=3.0, maximum=3.0), 3, 5, 2.0),
        (levels("ordered", "S", "M", "L"), " L", "M", -0.5),
        (levels("category", "a", "b"), "a", "b", np.nan),
        (levels("ordered", "S", "M"), None, "M", np.nan),
        (number(step=1.0, maximum=60.0), None, 45, np.nan),
    ],
)
def test_a_move_is_in_units_of_the_range(feature, before, after, expected):
    cells = [np.array([value], dtype=object) for value in (before, after)]
    changes = Changes(np.array([0]), np.array([0]), *cells)
    assert relative_moves(changes, [feature]) == pytest.approx(expected, nan_ok=True)
