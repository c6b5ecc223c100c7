"""Linear relations: read as Python reads them, or pointed at; worth the difference of their sides."""

import math
import operator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from plausiflow.constraints import Linear, Range
from plausiflow.constraints.grammar import parse_relation
from plausiflow.errors import InvalidInputError
from rule_table import ENCODER, NUMBERS, RELATIONS, TRAINING, allowance_for, evaluate, people, row, rules_for

# ---------------------------------------------------------------- what is read


COMPARE = {"<=": operator.le, "<": operator.le, ">=": operator.ge, ">": operator.ge}


@st.composite
def sums(draw, depth=3):
    """A random linear expression, as Python would read it too."""
    number = st.integers(-9, 9).map(str) | st.sampled_from(["0.5", "2.25", ".5", "1e1", "3."])
    if depth == 0:
        return draw(number | st.sampled_from("abc"))
    inner = sums(depth=depth - 1)
    shapes = ["{0}", "{0} + {1}", "{0}-{1}", "{2} * ({0})", "({0})*{2}", "({0}) / 4", "-({0})"]
    shape = draw(st.sampled_from(shapes))
    return shape.format(draw(inner), draw(inner), draw(number))


@given(sums(), sums(), st.sampled_from(sorted(COMPARE)), st.tuples(*[st.integers(-50, 50)] * 3))
def test_a_relation_means_what_python_reads(left, right, sign, values):
    row = dict(zip("abc", values, strict=True))
    relation = parse_relation(f"{left} {sign} {right}")
    total = relation.constant + sum(a * row[name] for name, a in relation.coefficients.items())
    gap = evaluate(right, row) - evaluate(left, row)
    assert total == pytest.approx(gap if sign[0] == "<" else -gap, abs=1e-6)
    if abs(gap) > 1e-6:
        assert (total >= 0) == COMPARE[sign](evaluate(left, row), evaluate(right, row))


def test_names_may_have_spaces_and_dashes_between_backticks():
    relation = parse_relation("`capital-gain` - `hours per week`/4 >= größe + a.b")
    assert relation.coefficients == {"capital-gain": 1, "hours per week": -0.25, "größe": -1, "a.b": -1}


def test_a_feature_that_cancels_out_is_left_out():
    assert parse_relation("a + b <= a + 3").coefficients == {"b": -1}


def test_an_equality_is_told_from_an_inequality():
    assert parse_relation("a == b").equal
    assert not parse_relation("a >= b").equal


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        ("", 1, "expected a number, a feature or ("),
        ("a", 2, "expected one of <=, >=, =="),
        ("a <=", 5, "expected a number"),
        ("a <= 2 *", 9, "expected a number"),
        ("a <= * 2", 6, "expected a number"),
        ("a <= b <= c", 8, "only one comparison"),
        ("a = b", 3, "write == for equality"),
        ("a != b", 3, "is not allowed"),
        ("a <= 2b", 7, "write a product with *"),
        ("a <= 2 b", 8, "expected +, -, *, /"),
        ("a b <= 2", 3, "expected one of <="),
        ("a * b <= 2", 3, "product of two features is not linear"),
        ("(a + 1) * (2 - b) <= 2", 9, "product of two features is not linear"),
        ("1 / a <= 2", 5, "dividing by a feature"),
        ("a / 0 <= 2", 5, "division by zero"),
        ("a / (1 - 1) <= 2", 5, "division by zero"),
        ("(a + 2 <= 3", 8, "expected ) for the ( at position 1"),
        ("a) <= 3", 2, "expected one of <="),
        ("a ** 2 <= 3", 4, "expected a number"),
        ("a // 2 <= 3", 4, "expected a number"),
        ("`a <= 3", 1, "closing backtick"),
        ("`` <= 3", 1, "closing backtick"),
        ("capital-gain' <= 3", 13, "is not allowed"),
        ("a <= 1e999", 6, "too large"),
        ("1e308 * 10 * a <= 1", 16, "too large"),
        ("a <= 1_000", 7, "write a product with *"),
        ("a <= 1.2.3", 9, "expected +, -, *, /"),
        ("__import__('os') <= 1", 12, "is not allowed"),
        ("(" * 31 + "a" + ")" * 31 + " <= 1", 31, "at most 30 parentheses"),
        ("a <= 1; b", 7, "is not allowed"),
        ("a\n<= 1 $", 8, "is not allowed"),
    ],
)
def test_an_unreadable_relation_is_pointed_at(text, position, problem):
    with pytest.raises(InvalidInputError) as error:
        parse_relation(text)
    first, shown, caret = str(error.value).split("\n")
    assert f"at position {position}, " in first
    assert problem in first
    assert caret.index("^") - 4 == position - 1
    assert shown[4:] == text.replace("\n", " ")


def test_a_relation_of_more_than_1000_characters_is_refused():
    with pytest.raises(InvalidInputError, match="at most 1000 characters; got 1001"):
        parse_relation("a" * 1001)


def test_a_relation_of_1000_characters_is_read_without_deep_recursion():
    assert parse_relation("-" * 992 + "a <= 1").coefficients == {"a": -1}
    assert parse_relation("a+" * 490 + "a <= 1").coefficients == {"a": -491}
    assert parse_relation("a" + "/1" * 490 + " <= 1").coefficients == {"a": -1}
    assert parse_relation("(a)+" * 240 + "a <= 1").coefficients == {"a": -241}


@given(st.text(alphabet="ab1.0e+-*/()<>=` \t\nß²٣", max_size=40))
@settings(max_examples=300)
def test_any_text_is_read_or_refused_with_the_one_error(text):
    try:
        relation = parse_relation(text)
    except InvalidInputError:
        return
    assert all(math.isfinite(value) and value for value in relation.coefficients.values())


# ---------------------------------------------------------------- what it means for an encoded row


@pytest.mark.parametrize("text", sorted(text for text in RELATIONS if "==" not in text))
def test_a_relation_is_worth_the_difference_of_its_sides_in_units_of_its_reach(text):
    frame = people(30, 11).dropna()
    x = ENCODER.encode(frame).x
    sign = next(s for s in ("<=", ">=", "<", ">") if s in text)
    small, large = text.split(sign) if "<" in sign else reversed(text.split(sign))
    gaps = [evaluate(large.strip(), r) - evaluate(small.strip(), r) for r in frame.to_dict("records")]
    ends = TRAINING[[*NUMBERS, "children", "owns"]].astype(float)
    ends["gain"] = ends["gain"].where(ends["gain"] != 0)  # a special value is not part of the range
    reach = sum(
        abs(a) * np.ptp(ends[n].dropna()) for n, a in parse_relation(text).coefficients.items() if n in ends
    )
    values = rules_for(Linear(text)).for_rows(x, frame).clause_values(x)
    assert values[:, 0].tolist() == pytest.approx((np.array(gaps) / reach).tolist(), abs=1e-6)


def test_a_relation_has_the_right_gradients():
    x = ENCODER.encode(people(6, 2).dropna()).x.requires_grad_()
    rules = rules_for(*map(Linear, RELATIONS))
    allowance = rules.for_rows(x.detach())
    assert allowance.clause_values(x).shape[1] == len(RELATIONS) + 2
    assert torch.autograd.gradcheck(allowance.clause_values, x)


def test_a_relation_does_not_bind_where_a_value_is_missing():
    allowance = allowance_for(Linear("2 * rent <= 20"), rent=np.nan)
    values = allowance.clause_values(allowance.x.requires_grad_())
    assert values.tolist() == [[1.0]]
    assert allowance.contains(allowance.x).all()


@pytest.mark.parametrize(
    ("text", "lo", "hi"), [("rent <= 10", None, 10.0), ("12 <= rent", 12.0, None), ("rent >= -3", -3.0, None)]
)
def test_a_relation_of_one_number_allows_what_a_range_allows(text, lo, hi):
    for rent in (5.0, 11.0, np.nan):
        ours, other = (allowance_for(rule, rent=rent) for rule in (Linear(text), Range("rent", lo, hi)))
        assert len(ours.clauses) == 0
        for name in ("lower", "upper", "levels", "possible"):
            assert torch.equal(getattr(ours, name), getattr(other, name)), name


def test_a_relation_whose_bound_may_be_rounded_stays_a_relation():
    assert len(allowance_for(Linear("3 * rent <= 10"), rent=1.0).clauses) == 1


def test_a_constant_in_a_relation_is_the_rows_own():
    relation = Linear("year <= 2023 + children")
    assert [allowance_for(relation, year=year).possible.item() for year in (2024, 2026, 2027)] == [
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("text", "age", "gain", "holds"),
    [
        ("gain == 2 * age", 40, 80.0, True),
        ("gain == 2 * age", 40, 81.0, False),
        ("gain == 2.4 * age", 41, 98.0, True),
        ("gain == 2.4 * age", 41, 99.0, False),
    ],
)
def test_an_equality_of_whole_numbers_holds_as_closely_as_they_can_meet_it(text, age, gain, holds):
    frame = row(age=age, gain=gain)
    rules = rules_for(Linear(text))
    assert rules.for_rows(ENCODER.encode(frame).x).contains(ENCODER.encode(frame).x).item() == holds
    assert rules.violations(frame, frame)[f'Linear("{text}")'].item() != holds
