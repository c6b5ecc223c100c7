"""Changes and verdicts read as people write them."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plausiflow.explanations.formatting import FeatureFormatter, join_words
from results import build, levels, loans, number

PHRASES = {
    "thousands": (number(step=100.0, maximum=9e4), 31000, 38500, "net_income: 31,000 → 38,500"),
    "whole floats": (number(step=1.0, maximum=9e4), 31000.0, 900.0, "net_income: 31,000 → 900"),
    "cents": (number(step=0.01, decimals=2, maximum=9e4), 1200.5, 1300.0, "net_income: 1,200.50 → 1,300.00"),
    "single precision": (number(step=0.1, decimals=1), float(np.float32(0.1)), 0.3, "net_income: 0.1 → 0.3"),
    "half precision": (number(step=0.1, decimals=1), float(np.float16(0.1)), 0.3, "net_income: 0.1 → 0.3"),
    "off the grid": (number(step=1.0, maximum=90), 31.25, 38.0, "net_income: 31.25 → 38"),
    "off the range": (number(step=1.0, maximum=90), 1e6, 38.0, "net_income: 1,000,000 → 38"),
    "negative": (number(step=1.0, minimum=-5e3), -1500, 0, "net_income: -1,500 → 0"),
    "no negative zero": (number(kind="continuous", maximum=90.0), -0.001, 4.0, "net_income: 0.00 → 4.00"),
    "floats": (number(kind="continuous", maximum=1.0), 1 / 3, 0.5, "net_income: 0.333 → 0.500"),
    "large floats": (number(kind="continuous", maximum=5e4), 31000.4, 38500.2, "net_income: 31,000 → 38,500"),
    "nearly equal floats": (number(kind="continuous", maximum=5e4), 7.2, 7.25, "net_income: 7.20 → 7.25"),
    "tiny floats": (number(kind="continuous", maximum=1e-9), 1e-10, 2.5e-10, "net_income: 1e-10 → 2.5e-10"),
    "huge floats": (number(kind="continuous", maximum=1e18), 1e17, 2.5e17, "net_income: 1e+17 → 2.5e+17"),
    "numbers as text": (number(step=1.0, maximum=9e4), "31000", "38500", "net_income: 31,000 → 38,500"),
    "decimals": (number(step=1.0, maximum=9e4), Decimal(31000), Decimal(900), "net_income: 31,000 → 900"),
    "a missing number": (number(step=1.0, maximum=9e4), pd.NA, 900, "net_income: missing → 900"),
    "years": (number(step=1.0, minimum=1950.0, maximum=2024.0), 2015, 2019, "net_income: 2015 → 2019"),
    "counts": (levels("ordered", 0, 1, 2, 3, 4), 4, 3, "open_lines: 4 → 3"),
    "counts as floats": (levels("ordered", 0.0, 1.0, 2.0), 2.0, 1.0, "open_lines: 2 → 1"),
    "halves": (levels("ordered", 0.5, 1.0, 1.5), 0.5, 1.0, "open_lines: 0.5 → 1.0"),
    "a mean among counts": (levels("ordered", 1.0, 1.7210084, 2.0, 3.0), 1.0, 3.0, "open_lines: 1 → 3"),
    "from a mean": (levels("ordered", 1.0, 1.7210084, 2.0, 3.0), 1.7210084, 3.0, "open_lines: 1.721008 → 3"),
    "a missing count": (levels("ordered", 0.0, 1.0), np.nan, 1.0, "open_lines: missing → 1"),
    "ordered text": (levels("ordered", "S", "M", "L"), "S", "L", "open_lines: S → L"),
    "booleans": (levels("boolean", False, True), False, True, "open_lines: no → yes"),
    "NumPy's booleans": (levels("boolean", False, True), np.True_, np.False_, "open_lines: yes → no"),
    "zero and one": (levels("boolean", 0, 1), 0, 1, "open_lines: no → yes"),
    "two words": (levels("boolean", "f", "m"), "f", "m", "open_lines: f → m"),
    "text": (levels("category", "clerk", "none"), " clerk", "none", "open_lines: clerk → none"),
    "empty text": (levels("category", "clerk", ""), "clerk", "", 'open_lines: clerk → ""'),
    "lines of text": (levels("category", "a\n b", "c"), "a\n b", "c", "open_lines: a b → c"),
    "numbers without order": (levels("category", 1, 2.5), 1.0, 2.5, "open_lines: 1 → 2.5"),
    "missing text": (levels("category", "clerk"), None, "clerk", "open_lines: missing → clerk"),
}


@pytest.mark.parametrize("case", PHRASES)
def test_a_change_reads_as_people_write_it(case):
    feature, before, after, words = PHRASES[case]
    assert FeatureFormatter(feature).format_change(before, after) == words


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.floats(1e-6, 1e9))
def test_numbers_that_differ_read_differently(before, after, span):
    if abs(before - after) <= 1e-9 * max(abs(before), abs(after), 1.0):
        return
    texts = FeatureFormatter(number(kind="continuous", maximum=span)).format_pair(before, after)
    assert texts[0] != texts[1]


def test_parts_are_listed_with_commas_and_and():
    assert [join_words(list("abc")[:k]) for k in range(4)] == ["", "a", "a and b", "a, b and c"]


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        ("already", "", "No change needed: loan_type is already granted."),
        ("infeasible", "", "No answer: no allowed row is plausible and has the target outcome."),
        ("infeasible", '`Immutable("age")` blocks.', 'No answer: `Immutable("age")` blocks.'),
        ("not_reached", "", "No answer within the time limit."),
        ("not_reached", "12 s", "No answer within the time limit: 12 s."),
        ("invalid_input", "`age` is missing", "Cannot be explained: `age` is missing."),
    ],
)
def test_a_row_without_an_answer_says_why(status, reason, words):
    parts = loans()
    result = build(
        parts["rows"].iloc[:1],
        parts["answers"].iloc[:0],
        [],
        status=status,
        reason=reason,
        schema=parts["schema"],
        target="granted",
        outcome="loan_type",
    )
    assert result.sentences.tolist() == [words]


def test_a_relaxed_answer_says_what_was_relaxed():
    result = build(**loans(), status=["relaxed", "infeasible", "found"], reason=["without x", "", ""])
    assert result.sentences["Ann"] == "income: 31,000 → 38,500 and open_lines: 4 → 3 (relaxed: without x)"
    assert result.sentences["Cid"] == "rate: 0.125 → 0.100"


def test_a_target_that_is_not_known_is_not_named():
    parts = loans()
    result = build(
        parts["rows"].iloc[:1],
        parts["answers"].iloc[:0],
        [],
        status="already",
        target=None,
        schema=parts["schema"],
    )
    assert result.sentences.tolist() == ["No change needed."]
