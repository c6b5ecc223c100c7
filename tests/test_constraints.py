"""Rules: what people write, what it means for an encoded row, and what is checked on the final row."""

import ast
import json
import math
import operator

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from plausiflow.constraints import (
    Allowed,
    Decreasing,
    Immutable,
    Increasing,
    Linear,
    MaxChanges,
    Range,
    Rules,
    locked_mask,
    parse,
    rule_from_dict,
    rules_from_dicts,
)
from plausiflow.data.encoding import Encoder
from plausiflow.data.schema import Feature, Schema
from plausiflow.errors import InvalidInputError, ShapeError

# ---------------------------------------------------------------- relations

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


def evaluate(text, row):
    """Python's own reading of an expression."""
    return eval(compile(ast.parse(text, mode="eval"), "relation", "eval"), {}, row)


@given(sums(), sums(), st.sampled_from(sorted(COMPARE)), st.tuples(*[st.integers(-50, 50)] * 3))
def test_a_relation_means_what_python_reads(left, right, sign, values):
    row = dict(zip("abc", values, strict=True))
    relation = parse(f"{left} {sign} {right}")
    total = relation.constant + sum(a * row[name] for name, a in relation.coefficients.items())
    gap = evaluate(right, row) - evaluate(left, row)
    assert total == pytest.approx(gap if sign[0] == "<" else -gap, abs=1e-6)
    if abs(gap) > 1e-6:
        assert (total >= 0) == COMPARE[sign](evaluate(left, row), evaluate(right, row))


def test_names_may_have_spaces_and_dashes_between_backticks():
    relation = parse("`capital-gain` - `hours per week`/4 >= größe + a.b")
    assert relation.coefficients == {"capital-gain": 1, "hours per week": -0.25, "größe": -1, "a.b": -1}


def test_a_feature_that_cancels_out_is_left_out():
    assert parse("a + b <= a + 3").coefficients == {"b": -1}


def test_an_equality_is_told_from_an_inequality():
    assert parse("a == b").equal
    assert not parse("a >= b").equal


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
        ("a != b", 3, "no such sign"),
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
        ("capital-gain' <= 3", 13, "no such sign"),
        ("a <= 1e999", 6, "too large"),
        ("1e308 * 10 * a <= 1", 16, "too large"),
        ("a <= 1_000", 7, "write a product with *"),
        ("a <= 1.2.3", 9, "expected +, -, *, /"),
        ("__import__('os') <= 1", 12, "no such sign"),
        ("(" * 31 + "a" + ")" * 31 + " <= 1", 31, "at most 30 parentheses"),
        ("a <= 1; b", 7, "no such sign"),
        ("a\n<= 1 $", 8, "no such sign"),
    ],
)
def test_an_unreadable_relation_is_pointed_at(text, position, problem):
    with pytest.raises(InvalidInputError) as error:
        parse(text)
    first, shown, caret = str(error.value).split("\n")
    assert f"at position {position}, " in first
    assert problem in first
    assert caret.index("^") - 4 == position - 1
    assert shown[4:] == text.replace("\n", " ")


def test_a_relation_of_more_than_1000_characters_is_refused():
    with pytest.raises(InvalidInputError, match="at most 1000 characters; got 1001"):
        parse("a" * 1001)


def test_a_relation_of_1000_characters_is_read_without_deep_recursion():
    assert parse("-" * 992 + "a <= 1").coefficients == {"a": -1}
    assert parse("a+" * 490 + "a <= 1").coefficients == {"a": -491}
    assert parse("a" + "/1" * 490 + " <= 1").coefficients == {"a": -1}
    assert parse("(a)+" * 240 + "a <= 1").coefficients == {"a": -241}


@given(st.text(alphabet="ab1.0e+-*/()<>=` \t\nß²٣", max_size=40))
@settings(max_examples=300)
def test_any_text_is_read_or_refused_with_the_one_error(text):
    try:
        relation = parse(text)
    except InvalidInputError:
        return
    assert all(math.isfinite(value) and value for value in relation.coefficients.values())


# ---------------------------------------------------------------- what people write

RULES = [
    (Immutable("age", "sex"), 'Immutable("age", "sex")'),
    (Increasing("education_years"), 'Increasing("education_years")'),
    (Decreasing("debt"), 'Decreasing("debt")'),
    (Range("income", 0, None), 'Range("income", 0, None)'),
    (Range("rate", hi=np.float64(0.5)), 'Range("rate", None, 0.5)'),
    (Allowed("job", ["a", 'the "b"']), 'Allowed("job", ["a", "the \\"b\\""])'),
    (Allowed("job", {"HS": ["Bachelors"], "MSc": []}), 'Allowed("job", {"HS": ["Bachelors"], "MSc": []})'),
    (Allowed("children", {0: [1, 2], np.int64(1): [2]}), 'Allowed("children", {0: [1, 2], 1: [2]})'),
    (Linear("rent <= 0.4 * `net income`"), 'Linear("rent <= 0.4 * `net income`")'),
    (MaxChanges(3), "MaxChanges(3)"),
]


@pytest.mark.parametrize(("rule", "text"), RULES, ids=[text for _, text in RULES])
def test_a_rule_reads_as_it_is_written(rule, text):
    assert str(rule) == text
    assert eval(text) == rule
    assert hash(eval(text)) == hash(rule)


@pytest.mark.parametrize(("rule", "text"), RULES, ids=[text for _, text in RULES])
def test_a_rule_survives_json(rule, text):
    again = rule_from_dict(json.loads(json.dumps(rule.to_dict())))
    assert again == rule
    assert str(again) == text


@pytest.mark.parametrize(("rule", "text"), RULES, ids=[text for _, text in RULES])
def test_a_rule_cannot_be_changed(rule, text):
    with pytest.raises(AttributeError):
        setattr(rule, next(iter(vars(rule))), "other")


def test_transitions_in_a_file_may_be_an_object():
    entry = {"rule": "Allowed", "feature": "job", "transitions": {"a": ["b"]}}
    assert rule_from_dict(entry) == Allowed("job", {"a": ["b"]})


@pytest.mark.parametrize(
    ("write", "problem"),
    [
        (lambda: Immutable(), "needs the name of a feature"),
        (lambda: Immutable(["age", "sex"]), "takes the name of a feature"),
        (lambda: Increasing(3), "takes the name of a feature"),
        (lambda: Range("a", "0", None), "`lo` of Range"),
        (lambda: Range("a", 0, math.nan), "`hi` of Range"),
        (lambda: Range("a"), "has no bound"),
        (lambda: Range("a", True, None), "finite number"),
        (lambda: Allowed("job", "nurse"), "takes a list of levels"),
        (lambda: Allowed("job", 3), "takes a list of levels"),
        (lambda: Allowed("job", {"a": "b"}), "takes a list of levels"),
        (lambda: Allowed("job", [None]), "texts, numbers and booleans"),
        (lambda: Linear(3), "takes a text"),
        (lambda: MaxChanges(2.5), "whole number"),
        (lambda: MaxChanges("3"), "finite number"),
    ],
)
def test_a_rule_of_the_wrong_shape_is_refused_where_it_is_written(write, problem):
    with pytest.raises(InvalidInputError, match=problem):
        write()


def test_everything_wrong_with_a_rules_file_is_named_at_once():
    entries = [
        {"rule": "Rnage", "feature": "a"},
        {"rule": "Range", "lo": 0, "high": 3},
        {"rule": "Linear", "text": "a <="},
        {"rule": "MaxChanges", "limit": 3},
        {"rule": "Allowed", "feature": "job"},
        {"rule": "Allowed", "feature": "job", "transitions": ["ab"]},
        {"rule": "Allowed", "feature": "job", "values": {"a": ["b"]}},
        {"rule": "Immutable", "features": "age"},
        "MaxChanges(3)",
    ]
    with pytest.raises(InvalidInputError) as error:
        rules_from_dicts(entries)
    text = str(error.value)
    for number in (1, 2, 3, 5, 6, 7, 8, 9):
        assert f"- rule {number}: " in text
    assert "- rule 4: " not in text
    assert "Did you mean Range?" in text
    assert "feature is missing, high is not known" in text
    with pytest.raises(InvalidInputError, match="list of objects"):
        rules_from_dicts({"rule": "MaxChanges", "limit": 3})


# ---------------------------------------------------------------- a table with a column of every kind

JOBS, DEGREES = ["clerk", "nurse", "pilot"], ["HS", "BSc", "MSc"]


def people(n, seed, *, beyond=False):
    """Random rows; ``beyond``: some numbers are off the training grid or out of the training range."""
    rng = np.random.default_rng(seed)
    gain = np.where(rng.random(n) < 0.5, 0, rng.integers(1, 500, n))
    return pd.DataFrame(
        {
            "id": [f"p{i}" for i in range(n)],
            "age": rng.integers(17, 80, n) + (rng.random(n) < 0.2) * (beyond * 70),
            "income": np.round(rng.lognormal(7, 1, n), 2),
            "rent": np.where(rng.random(n) < 0.15, np.nan, rng.random(n) * 500 * (1 + beyond)),
            "score": rng.normal(size=n).astype(np.float32),
            "tail": rng.lognormal(2, 2, n),
            "gain": gain + 0.5 * beyond * ((rng.random(n) < 0.2) & (gain > 0)),
            "job": pd.Series(rng.choice([*JOBS, None], n), dtype="str"),
            "degree": pd.Categorical(rng.choice(DEGREES, n), categories=DEGREES, ordered=True),
            "children": rng.integers(0, 4, n),
            "owns": rng.random(n) < 0.5,
            "year": 2024,
        }
    )


ENCODER = Encoder(Schema.infer(people(200, 0), kinds={"id": "identifier"}))
NAMES = ENCODER.schema.names


def rules_for(*constraints, encoder=ENCODER):
    return Rules(constraints, encoder.schema, encoder.layout)


# ---------------------------------------------------------------- any rules, any points

TRAINING = people(200, 0)
NUMBERS = ["age", "income", "rent", "score", "tail", "gain"]
ORDERS = {"degree": DEGREES, "children": [0, 1, 2, 3], "owns": [False, True]}
LEVELS = ORDERS | {"job": JOBS}
# Relations, and by how much the equalities among them may be missed.
RELATIONS = {
    "rent <= 0.4 * income": 0,
    "age >= 20 + 2 * children": 0,
    "children + owns < 4": 0,
    "(year - 2000) / 2 + score >= tail - 60": 0,
    "gain + rent > 100": 0,
    "age == 30 + 10 * children": 0.5,
    "gain == 3.5 * age": 0.5,
}


def rank(name, value):
    """Where a value stands in the order of its feature; NaN where it is missing."""
    if pd.isna(value):
        return math.nan
    return ORDERS[name].index(value) if name in ORDERS else value


def same(old, new):
    return (pd.isna(old) and pd.isna(new)) or old == new


def outside(value, lo, hi):
    return not pd.isna(value) and not lo <= value <= hi


def breaks(rule, old, new):
    """Whether a row breaks a rule, in plain Python, cell by cell."""
    changed = [name for name in NAMES if not same(old[name], new[name])]
    if isinstance(rule, Immutable):
        return any(name in changed for name in rule.features)
    if isinstance(rule, MaxChanges):
        return len(changed) > rule.limit
    if isinstance(rule, Linear):
        sign = next(s for s in ("<=", ">=", "==", "<", ">") if s in rule.text)
        left, right = (evaluate(side.strip(), new) for side in rule.text.split(sign))
        if sign == "==":
            return abs(left - right) > RELATIONS[rule.text] + 1e-7
        return left > right + 1e-7 if "<" in sign else left < right - 1e-7
    was, now = old[rule.feature], new[rule.feature]
    if isinstance(rule, Increasing):
        return rank(rule.feature, now) < rank(rule.feature, was)
    if isinstance(rule, Decreasing):
        return rank(rule.feature, now) > rank(rule.feature, was)
    if isinstance(rule, Range):
        lo, hi = -math.inf if rule.lo is None else rule.lo, math.inf if rule.hi is None else rule.hi
        # In single precision pandas, too, compares with the rounded bound.
        return outside(now, *np.array([lo, hi], dtype=np.float32 if rule.feature == "score" else float))
    listed = rule.values if rule.transitions is None else dict(rule.transitions).get(was, ())
    return rule.feature in changed and now not in listed


def breaks_implicitly(old, new):
    """The rules that hold for every table, in plain Python."""
    names = set()
    for name in NAMES:
        was, now = old[name], new[name]
        if same(was, now):
            continue
        if name in ("id", "year"):
            names.add("constants and identifiers")
        elif pd.isna(was) or pd.isna(now):
            names.add("missing values")
        if name in NUMBERS:
            known = [TRAINING[name].min(), TRAINING[name].max(), *([] if pd.isna(was) else [was])]
            if outside(now, min(known) - 1e-7, max(known) + 1e-7):
                names.add("training range")
        elif name in LEVELS and not pd.isna(now) and now not in LEVELS[name]:
            names.add("known levels")
    return names


@st.composite
def rule_sets(draw):
    numbers, ordered = st.sampled_from(NUMBERS), st.sampled_from([*NUMBERS, *ORDERS])
    bounds = st.tuples(st.floats(-0.1, 0.5), st.floats(0.5, 1.1), st.sampled_from(["both", "lo", "hi"]))

    def ranged(name, shares):
        low, high, sides = shares
        values = TRAINING[name].dropna().astype(float)
        lo, hi = (float(values.min() + share * (values.max() - values.min())) for share in (low, high))
        return Range(name, None if sides == "hi" else lo, None if sides == "lo" else hi)

    def listed(name, data):
        own, to, transitions = data
        own, to = ([LEVELS[name][i % len(LEVELS[name])] for i in codes] for codes in (own, to))
        return Allowed(name, dict.fromkeys(own, to) if transitions else to)

    codes = st.lists(st.integers(0, 3), max_size=3)
    kinds = st.one_of(
        st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map(lambda names: Immutable(*names)),
        ordered.map(Increasing),
        ordered.map(Decreasing),
        st.builds(ranged, numbers | st.just("children"), bounds),
        st.builds(listed, st.sampled_from(sorted(LEVELS)), st.tuples(codes, codes, st.booleans())),
        st.sampled_from(sorted(RELATIONS)).map(Linear),
        st.integers(1, 8).map(MaxChanges),
    )
    return draw(st.lists(kinds, max_size=6))


def points(rules, x, allowance, rng):
    """Random points: some numbers and levels as they were, some as allowed, some anywhere."""
    layout = rules.layout
    how = rng.random((len(x), len(layout.blocks)))
    x_cf, codes = x.clone(), layout.codes(x)
    keep, anywhere = how < rng.random(), how > 0.7 + 0.3 * rng.random()
    for j, block in enumerate(layout.blocks):
        stay, loose = torch.from_numpy(keep[:, j]), torch.from_numpy(anywhere[:, j])
        if len(block.levels):
            allowed = allowance.levels[:, block.levels.start : block.levels.stop].double()
            allowed = torch.where(loose[:, None], torch.ones_like(allowed), allowed)
            chosen = (allowed * torch.from_numpy(rng.random(allowed.shape))).argmax(dim=1)
            k = layout.with_levels.index(block)
            codes[:, k] = torch.where(stay, codes[:, k], chosen)
        if block.number is not None:
            share = torch.from_numpy(rng.integers(0, 17, len(x)) / 16)
            low, high = allowance.lower[:, block.number], allowance.upper[:, block.number]
            number = torch.where(loose, 1.4 * share - 0.2, low + share * (high - low))
            own = x[:, block.number]
            x_cf[:, block.number] = torch.where(stay | (number == own), own, block.scale.snap(number))
    x_cf = layout.with_codes(x_cf, codes)
    return _at_zero(layout, x_cf)


def _at_zero(layout, x):
    """A number at zero is in the state "zero", not "positive"."""
    block = layout.block("gain")
    codes = layout.codes(x)
    zero = (block.scale.decode(x[:, block.number]).abs() < 1e-9) & (x[:, block.levels[0]] == 1)
    codes[zero, layout.with_levels.index(block)] = 1
    return layout.with_codes(x, codes)


def scenario(constraints, seed):
    """Rules, rows and what they may and may not become."""
    try:
        rules = rules_for(*constraints)
    except InvalidInputError:
        assume(False)
    rng = np.random.default_rng(seed)
    before = people(24, seed + 1, beyond=bool(seed % 2))
    x = ENCODER.encode(before).x
    locked = rng.random((len(x), len(NAMES))) < 0.1 * (seed % 3)
    allowance = rules.for_rows(x, before if seed % 5 else None, locked)
    x_cf = points(rules, x, allowance, rng)
    return rules, before, ENCODER.decode(x_cf, like=before), locked, allowance.contains(x_cf)


@given(rule_sets(), st.integers(0, 1000))
@settings(max_examples=60)
def test_a_point_is_allowed_exactly_where_its_row_breaks_no_rule(constraints, seed):
    rules, before, after, locked, allowed = scenario(constraints, seed)
    clean = ~rules.violations(before, after, locked).any(axis=1)
    assert allowed.tolist() == clean.tolist()


@given(rule_sets(), st.integers(0, 1000))
@settings(max_examples=30)
def test_a_broken_rule_is_told_by_its_name_as_plain_python_finds_it(constraints, seed):
    rules, before, after, locked, _ = scenario(constraints, seed)
    broken = rules.violations(before, after, locked)
    rows = zip(before.to_dict("records"), after.to_dict("records"), strict=True)
    for i, (old, new) in enumerate(rows):
        expected = {str(rule) for rule in rules.constraints if breaks(rule, old, new)}
        expected |= breaks_implicitly(old, new)
        if any(not same(old[name], new[name]) for name in np.array(NAMES)[locked[i]]):
            expected.add("locked")
        assert set(broken.columns[broken.iloc[i]]) == expected


@given(
    ends=st.tuples(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6)),
    bound=st.floats(0.05, 0.95),
    share=st.floats(0, 1),
    tail=st.booleans(),
)
def test_a_range_holds_to_the_last_bit_however_odd_its_bounds(ends, bound, share, tail):
    low, high = ends[0], ends[0] + ends[1]
    assume(high > low)
    if tail:
        low, high = 0.001, ends[1] * 1e3
    values = np.linspace(low, high, 60)
    values = np.where(np.arange(60) < 55, low + (values - low) / 1e3, values) if tail else values
    encoder = Encoder(Schema.infer(pd.DataFrame({"a": values + 1e-7 / 3}), kinds={"a": "continuous"}))
    edge = low + bound * (high - low)
    like = pd.DataFrame({"a": [low, high, edge]})
    x = encoder.encode(like).x
    rules = (
        rules_for(Range("a", edge, None), encoder=encoder),
        rules_for(Range("a", None, edge), encoder=encoder),
    )
    above, below = (each.for_rows(x, like) for each in rules)
    up = encoder.decode(above.lower + share * (above.upper - above.lower), like)["a"]
    down = encoder.decode(below.upper - share * (below.upper - below.lower), like)["a"]
    # The last row starts at the bound: a change of its last bits is too small to be written.
    assert (up[:2] >= edge).all()
    assert (down[:2] <= edge).all()
    assert above.contains(x).tolist() == [False, True, True]
    assert below.contains(x).tolist() == [True, False, True]


# ---------------------------------------------------------------- what is left to a row


def row(**cells):
    """One row, and some of its cells as given."""
    base = {
        "id": "p", "age": 40, "income": 1000.0, "rent": 200.0, "score": np.float32(0.5), "tail": 5.0,
        "gain": 0.0, "job": "clerk", "degree": "BSc", "children": 1, "owns": False, "year": 2024,
    }  # fmt: skip
    frame = pd.DataFrame([base | cells])
    return frame.astype({"degree": pd.CategoricalDtype(DEGREES, ordered=True), "job": "str"})


def left(*constraints, locked=None, without=None, **cells):
    """What rules leave to one row."""
    frame = row(**cells)
    mask = locked_mask(locked, NAMES, 1)
    return rules_for(*constraints).for_rows(ENCODER.encode(frame).x, frame, mask, without)


def numbers_of(allowance, name):
    block = ENCODER.layout.block(name)
    ends = [allowance.lower[0, block.number], allowance.upper[0, block.number]]
    return [pytest.approx(float(block.scale.decode(end)), abs=1e-6) for end in ends]


def levels_of(allowance, name):
    columns = ENCODER.layout.block(name).levels
    return {
        level
        for level, column in zip(ENCODER.level_names(name), columns, strict=True)
        if allowance.levels[0, column]
    }


def test_without_rules_a_row_has_the_training_range_and_every_level_but_missing():
    allowance = left()
    assert numbers_of(allowance, "age") == [17, 79]
    assert numbers_of(allowance, "rent") == [TRAINING["rent"].min(), TRAINING["rent"].max()]
    assert levels_of(allowance, "job") == set(JOBS)
    assert levels_of(allowance, "rent") == {"present"}
    assert levels_of(allowance, "gain") == {"positive", "zero"}
    assert allowance.max_changes is None
    assert allowance.linear_values(allowance.x).shape == (1, 0)


@pytest.mark.parametrize(("age", "ends"), [(95, [17, 95]), (12, [12, 79])])
def test_the_training_range_is_widened_by_the_rows_own_number(age, ends):
    assert numbers_of(left(age=age), "age") == ends


@pytest.mark.parametrize(
    ("rules", "age", "ends"),
    [
        ([Immutable("age")], 40, [40, 40]),
        ([Immutable("age")], 95, [95, 95]),
        ([Increasing("age")], 40, [40, 79]),
        ([Decreasing("age")], 40, [17, 40]),
        ([Range("age", 30, None)], 40, [30, 79]),
        ([Range("age", 30.2, 50.9)], 40, [31, 50]),
        ([Range("age", 50, None)], 40, [50, 79]),
        ([Range("age", None, 90)], 95, [17, 90]),
        ([Range("age", 30, None), Range("age", None, 60), Increasing("age")], 40, [40, 60]),
        ([Range("age", 85, None)], 95, [85, 95]),
    ],
)
def test_rules_cut_the_range_of_a_number(rules, age, ends):
    allowance = left(*rules, age=age)
    assert allowance.possible.all()
    assert numbers_of(allowance, "age") == ends


@pytest.mark.parametrize(
    ("rules", "cells", "name", "levels"),
    [
        ([Immutable("job")], {}, "job", {"clerk"}),
        ([Allowed("job", ["nurse"])], {}, "job", {"clerk", "nurse"}),
        ([Allowed("job", {"clerk": ["pilot"]})], {}, "job", {"clerk", "pilot"}),
        ([Allowed("job", {"nurse": ["pilot"]})], {}, "job", {"clerk"}),
        ([Allowed("job", [])], {}, "job", {"clerk"}),
        ([Allowed("job", ["nurse", "pilot"]), Allowed("job", ["pilot"])], {}, "job", {"clerk", "pilot"}),
        ([Increasing("degree")], {}, "degree", {"BSc", "MSc"}),
        ([Decreasing("degree")], {}, "degree", {"HS", "BSc"}),
        ([Increasing("children")], {"children": 2}, "children", {2, 3}),
        ([Range("children", 2, None)], {}, "children", {2, 3}),
        ([Range("children", 0.5, 2.5)], {}, "children", {1, 2}),
        ([Increasing("owns")], {"owns": True}, "owns", {True}),
        ([Increasing("gain")], {"gain": 100.0}, "gain", {"positive"}),
        ([Decreasing("gain")], {"gain": 100.0}, "gain", {"positive", "zero"}),
        ([Decreasing("gain")], {"gain": 0.0}, "gain", {"zero"}),
        ([Range("gain", 1, None)], {"gain": 0.0}, "gain", {"positive"}),
        ([Range("gain", 0, None)], {"gain": 7.0}, "gain", {"positive", "zero"}),
        ([Immutable("gain")], {"gain": 0.0}, "gain", {"zero"}),
        ([], {"job": None}, "job", {"missing"}),
        ([Range("rent", 0, 100)], {"rent": np.nan}, "rent", {"missing"}),
    ],
)
def test_rules_leave_levels(rules, cells, name, levels):
    allowance = left(*rules, **cells)
    assert allowance.possible.all()
    assert levels_of(allowance, name) == levels


@pytest.mark.parametrize(
    ("rules", "cells", "locked", "blocked_by"),
    [
        ([Immutable("age"), Range("age", 50, None)], {}, None, [0, 1]),
        ([Range("age", 50, None)], {}, ["age"], [0]),
        ([Range("age", 90, None)], {}, None, [0]),
        ([Range("children", 2, None), Decreasing("children")], {}, None, [0, 1]),
        ([Range("year", None, 2020)], {}, None, [0]),
        ([MaxChanges(1), Range("age", 50, None), Range("children", 3, None)], {}, None, [0, 1, 2]),
        ([Linear("rent >= income"), Immutable("income")], {}, None, [0, 1]),
        ([Linear("children >= 2"), Decreasing("children")], {}, None, [0, 1]),
    ],
)
def test_a_row_to_which_nothing_is_left_is_marked_and_leaving_a_rule_out_frees_it(
    rules, cells, locked, blocked_by
):
    allowance = left(*rules, locked=locked, **cells)
    assert not allowance.possible.any()
    assert not allowance.contains(allowance.x).any()
    assert (allowance.lower <= allowance.upper).all()
    free = [i for i in range(len(rules)) if left(*rules, locked=locked, without=i, **cells).possible.all()]
    assert free == blocked_by


def test_a_missing_level_stays_whatever_its_range():
    grades = pd.DataFrame({"grade": pd.array([1, 2, 3, None] * 10, dtype="Int64")})
    encoder = Encoder(Schema.infer(grades))
    x = encoder.encode(grades[:4]).x
    allowance = rules_for(Range("grade", 2, None), encoder=encoder).for_rows(x)
    assert allowance.levels.tolist() == [[False, True, True, False]] * 3 + [[False, False, False, True]]
    assert allowance.contains(x).tolist() == [False, True, True, True]


def test_a_missing_number_that_was_filled_is_under_the_rules():
    encoder = Encoder(ENCODER.schema, missing="impute")
    frame = row(rent=np.nan)
    x = encoder.encode(frame).x
    filled = encoder.decode(x, like=frame)
    assert filled["rent"].notna().all()
    for rule, inside in (
        (Range("rent", None, 1.0), False),
        (Range("rent", None, 499.0), True),
        (Linear("rent <= 10"), False),
    ):
        rules = rules_for(rule, encoder=encoder)
        assert rules.for_rows(x, frame).contains(x).item() is inside
        assert rules.violations(filled, filled).any(axis=None) != inside


def test_a_number_in_the_state_zero_is_zero_whatever_the_rounding_of_its_scale():
    for low in np.linspace(-0.9, -0.1, 40):
        number = Feature(
            name="a",
            kind="continuous",
            dtype=np.dtype(float),
            minimum=low,
            maximum=0.9,
            zero_state=True,
            filling=0.0,
        )
        encoder = Encoder(Schema((number,)))
        frame = pd.DataFrame({"a": [0.0, 0.5]})
        x = encoder.encode(frame).x
        for rule in (Range("a", 0, None), Range("a", None, 0)):
            allowance = rules_for(rule, encoder=encoder).for_rows(x)
            assert allowance.contains(x[:1], torch.tensor([0])).all()
            assert allowance.contains(x[:1], torch.tensor([1])).all()


def test_a_small_bound_of_a_heavy_tail_is_kept():
    tail = pd.DataFrame({"a": np.geomspace(1e-3, 1e9, 50) * (1 + 1e-9 / 3)})
    encoder = Encoder(Schema.infer(tail, kinds={"a": "continuous"}))
    allowance = rules_for(Range("a", 0.05, None), encoder=encoder).for_rows(encoder.encode(tail).x)
    assert encoder.decode(allowance.lower)["a"].min() == pytest.approx(0.05, rel=1e-9)


def test_a_frozen_feature_has_equal_bounds_at_what_it_is():
    allowance = left(Immutable("age", "job", "gain"), locked=["degree", "rent"])
    for name in ("age", "job", "gain", "degree", "rent"):
        columns = ENCODER.layout.block(name).columns
        assert torch.equal(allowance.lower[:, columns], allowance.upper[:, columns])
        assert torch.equal(allowance.lower[:, columns], allowance.x[:, columns])


def test_of_several_limits_on_changes_the_smallest_counts():
    assert left(MaxChanges(5), MaxChanges(2)).max_changes == 2


def test_bounds_follow_the_precision_of_the_rows():
    frame = people(20, 3)
    x = ENCODER.encode(frame).x.float()
    allowance = rules_for(Range("rent", 100, 300), Linear("rent <= income")).for_rows(x)
    assert allowance.lower.dtype == allowance.linear_values(x).dtype == torch.float32


def test_rows_are_independent_and_can_be_taken_apart():
    frame = people(12, 5)
    x = ENCODER.encode(frame).x
    rules = rules_for(
        Increasing("age"), Linear("rent <= 0.4 * income"), Range("gain", None, 300), MaxChanges(4)
    )
    whole = rules.for_rows(x, frame)
    picked = torch.tensor([7, 2, 7])
    alone = rules.for_rows(x[picked], frame.iloc[picked.tolist()])
    part = whole.at(picked)
    for field in ("lower", "upper", "levels", "possible", "offsets", "binding"):
        assert torch.equal(getattr(part, field), getattr(alone, field))
    points_there = (x[picked] + 0.1).clamp(0, 1)
    assert torch.equal(whole.linear_values(points_there, picked), alone.linear_values(points_there))
    assert torch.equal(whole.contains(points_there, picked), alone.contains(points_there))


# ---------------------------------------------------------------- linear relations


@pytest.mark.parametrize("text", sorted(text for text in RELATIONS if "==" not in text))
def test_a_relation_is_worth_the_difference_of_its_sides_in_units_of_its_reach(text):
    frame = people(30, 11).dropna()
    x = ENCODER.encode(frame).x
    sign = next(s for s in ("<=", ">=", "<", ">") if s in text)
    small, large = text.split(sign) if "<" in sign else reversed(text.split(sign))
    gaps = [evaluate(large.strip(), r) - evaluate(small.strip(), r) for r in frame.to_dict("records")]
    ends = TRAINING[[*NUMBERS, "children", "owns"]].astype(float)
    reach = sum(abs(a) * np.ptp(ends[n].dropna()) for n, a in parse(text).coefficients.items() if n in ends)
    values = rules_for(Linear(text)).for_rows(x, frame).linear_values(x)
    assert values[:, 0].tolist() == pytest.approx((np.array(gaps) / reach).tolist(), abs=1e-6)


def test_a_relation_has_the_right_gradients():
    x = ENCODER.encode(people(6, 2).dropna()).x.requires_grad_()
    rules = rules_for(*map(Linear, RELATIONS))
    allowance = rules.for_rows(x.detach())
    assert allowance.linear_values(x).shape[1] == len(RELATIONS) + 2
    assert torch.autograd.gradcheck(allowance.linear_values, x)


def test_a_relation_does_not_bind_where_a_value_is_missing():
    allowance = left(Linear("rent <= 10"), rent=np.nan)
    values = allowance.linear_values(allowance.x.requires_grad_())
    assert values.tolist() == [[1.0]]
    assert allowance.contains(allowance.x).all()


def test_a_constant_in_a_relation_is_the_rows_own():
    relation = Linear("year <= 2023 + children")
    assert [left(relation, year=year).possible.item() for year in (2024, 2026, 2027)] == [True, True, False]


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


# ---------------------------------------------------------------- the last word


def told(rules, before, after, locked=None):
    broken = rules.violations(before, after, locked)
    return set(broken.columns[broken.iloc[0]])


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"year": 2025}, {"constants and identifiers"}),
        ({"id": "q"}, {"constants and identifiers"}),
        ({"age": 80}, {"training range"}),
        ({"age": "old"}, {"training range"}),
        ({"job": "baker"}, {"known levels"}),
        ({"rent": np.nan}, {"missing values"}),
        ({"job": None, "age": 81}, {"missing values", "training range"}),
        ({"age": 41}, set()),
    ],
)
def test_rules_that_nobody_wrote_hold_too(change, names):
    assert told(rules_for(), row(), row(**change)) == names


def test_a_frozen_cell_must_be_the_same_to_the_bit():
    rules = rules_for(Immutable("rent", "job"))
    nudged = row(rent=np.nextafter(200.0, 201.0))
    assert told(rules, row(), nudged) == {'Immutable("rent", "job")'}
    assert told(rules, row(rent=np.nan, job=None), row(rent=np.nan, job=None)) == set()
    locked = locked_mask(["rent"], NAMES, 1)
    assert told(rules_for(), row(), nudged, locked) == {"locked"}


def test_a_relation_may_be_missed_by_rounding_only():
    def holds(text, **cells):
        frame = row(**cells).astype({"score": np.float32})
        return not rules_for(Linear(text)).violations(frame, frame).any(axis=None)

    assert holds("3 * gain <= 0.3 * income", gain=1e8, income=1e9 * (1 - 1e-15))
    assert not holds("3 * gain <= 0.3 * income", gain=1e8, income=1e9 * (1 - 1e-10))
    assert holds("tail >= score", tail=2.7, score=2.7 * (1 + 1e-7))
    assert not holds("tail >= score", tail=2.7, score=2.7 * (1 + 1e-6))


def test_no_row_may_leave_a_level_whose_place_in_the_order_is_not_known():
    rules = rules_for(Increasing("children"))
    assert told(rules, row(children=7), row(children=3)) == {'Increasing("children")'}
    assert told(rules, row(children=7), row(children=7)) == set()


def test_a_wider_dtype_of_the_same_values_is_no_change():
    wider = row().astype({"age": "Float64", "children": object, "degree": object, "owns": "boolean"})
    assert told(rules_for(MaxChanges(1), Immutable(*NAMES)), row(), wider) == set()


def test_violations_keep_the_index_and_come_in_the_order_of_the_rules():
    before = people(3, 1).set_index(pd.Index(["x", "y", "z"]))
    broken = rules_for(MaxChanges(2), Immutable("age")).violations(before, before)
    assert broken.index.tolist() == ["x", "y", "z"]
    assert broken.columns.tolist()[:3] == ["MaxChanges(2)", 'Immutable("age")', "locked"]
    assert not broken.to_numpy().any()


def test_tables_that_do_not_fit_are_refused():
    rules, frame = rules_for(), people(3, 1)
    x = ENCODER.encode(frame).x
    with pytest.raises(InvalidInputError, match="not there: 'age', 'job'"):
        rules.violations(frame, frame.drop(columns=["age", "job"]))
    with pytest.raises(ShapeError, match="`before` must have 2 rows"):
        rules.violations(frame, frame[:2])
    with pytest.raises(ShapeError, match="`x` must have shape"):
        rules.for_rows(x[:, 1:])
    with pytest.raises(ShapeError, match="`frame` must have 3 rows"):
        rules.for_rows(x, frame[:2])
    with pytest.raises(ShapeError, match="`locked` must hold booleans of shape"):
        rules.for_rows(x, locked=np.zeros((3, 2), dtype=bool))
    with pytest.raises(InvalidInputError, match="`without` must be the number of a rule"):
        rules.for_rows(x, without=0)


# ---------------------------------------------------------------- what is wrong with rules


def test_everything_wrong_with_rules_is_named_at_once():
    constraints = [
        Immutable("aeg", "sex"),
        Increasing("job"),
        Range("job", 0, 1),
        Range("degree", 0, 1),
        Range("age", 60, 30),
        Range("rent", 0, 100),
        Range("rent", 200, None),
        Range("income", 0.001, 0.002),
        Increasing("score"),
        Decreasing("score"),
        Allowed("job", ["nruse", "pilot"]),
        Allowed("job", {"king": ["nurse"]}),
        Allowed("age", [30]),
        Allowed("id", ["p1"]),
        Linear("age <= job + rents"),
        Linear("age <= 3 * degree"),
        Linear("3 <= 2"),
        Linear("age >= 1000"),
        Linear("children == 7"),
        MaxChanges(0),
        "age",
    ]
    with pytest.raises(InvalidInputError) as error:
        rules_for(*constraints)
    lines = str(error.value).split("\n- ")
    expected = [
        "there is no feature 'aeg'; did you mean 'age'?",
        "there is no feature 'sex'; there are 'id', 'age'",
        'Increasing("job"): `job` is a category without an order',
        'Range("job", 0, 1): `job` is a category, not a number; list its levels with Allowed',
        'Range("degree", 0, 1): `degree` is an ordered category',
        'Range("age", 60, 30): the lower bound 60 is above the upper bound 30',
        'Range("rent", 0, 100) and Range("rent", 200, None): no number lies in all of these',
        'Range("income", 0.001, 0.002): no multiple of 0.01',
        'Increasing("score") and Decreasing("score") together keep it as it is; write Immutable("score")',
        "there is no level 'nruse'; did you mean 'nurse'?",
        "there is no level 'king'; there are 'clerk', 'nurse', 'pilot'",
        'Allowed("age", [30]): `age` is a number without levels; use Range',
        "`id` is an identifier and never changes",
        "there is no feature 'rents'; did you mean 'rent'?",
        'Linear("age <= job + rents"): `job` is a category, not a number',
        'Linear("age <= 3 * degree"): `degree` is an ordered category, not a number',
        'Linear("3 <= 2"): it compares no features',
        'Linear("age >= 1000"): no values within the ranges',
        'Linear("children == 7"): no values within the ranges',
        "MaxChanges(0): without a change there is no counterfactual",
        "'age' is no rule",
    ]
    assert lines[0] == "The constraints cannot be used:"
    for text in expected:
        assert sum(text in line for line in lines) == 1, text
    assert len(lines) == 1 + len(expected)


@pytest.mark.parametrize(
    "constraints",
    [
        [Range("age", 200, 300)],
        [Immutable("age"), Increasing("age"), Range("age", 0, None)],
        [Range("year", 2000, None), Increasing("year"), Immutable("id", "year")],
        [Linear("age + year >= 2000"), Linear("owns + children <= 3")],
        [Allowed("children", [0, 1.0]), Allowed("owns", [True]), Allowed("job", [" nurse "])],
        [Range("children", 1, 2), Range("owns", 0, 1)],
        [Range("age", 50, None), Linear("age >= 50")],
    ],
)
def test_rules_that_only_look_odd_are_fine(constraints):
    assert rules_for(*constraints).constraints == tuple(constraints)


def test_a_relation_that_holds_nowhere_within_the_ranges_of_the_rules_is_refused():
    with pytest.raises(InvalidInputError, match=r'Linear\("age >= 50"\): no values within the ranges'):
        rules_for(Range("age", None, 49), Linear("age >= 50"))


def test_a_rule_given_twice_counts_once():
    rules = rules_for(Immutable("age"), MaxChanges(3), Immutable("age"))
    assert rules.names == ('Immutable("age")', "MaxChanges(3)")
    assert repr(rules) == 'Rules(Immutable("age"), MaxChanges(3))'


def test_immutable_and_monotone_features_come_in_the_order_of_the_table():
    rules = rules_for(Immutable("job", "age"), Immutable("id"), Decreasing("rent"), Increasing("age"))
    assert rules.immutable == ("id", "age", "job")
    assert rules.monotone == ("age", "rent")


# ---------------------------------------------------------------- locks


def test_locks_are_names_for_all_rows_or_for_each_or_a_table():
    names = ["a", "b", "c"]
    expected = [[True, False, True], [True, False, True]]
    assert locked_mask(["c", "a"], names, 2).tolist() == expected
    assert locked_mask([("a", "c"), {"a", "c"}], names, 2).tolist() == expected
    assert locked_mask(pd.DataFrame({"c": [True, True], "a": [True, True]}), names, 2).tolist() == expected
    assert not locked_mask(None, names, 2).any()
    assert not locked_mask([], names, 2).any()
    assert locked_mask([[], ["b"]], names, 2).tolist() == [[False] * 3, [False, True, False]]


@pytest.mark.parametrize(
    ("locked", "problems"),
    [
        ("age", ["must be a list of feature names"]),
        (3, ["must be a list of feature names"]),
        (["agee", "x"], ["'agee'; did you mean 'age'?", "no feature 'x'"]),
        ([["age"]], ["for each of the 2 rows; got 1"]),
        ([["agee"], ["job", "y"]], ["row 0: there is no feature 'agee'", "row 1: there is no feature 'y'"]),
        ([["age"], "age"], ["row 1: expected a list of names; got 'age'"]),
        ([["age"], None], ["row 1: expected a list of names; got None"]),
        (
            pd.DataFrame({"age": [1, 0, 1], "z": [True, None, False]}),
            ["no feature 'z'", "for each of the 2 rows; got 3", "other values in 'age', 'z'"],
        ),
    ],
)
def test_locks_that_do_not_fit_are_refused_with_every_reason(locked, problems):
    with pytest.raises(InvalidInputError) as error:
        locked_mask(locked, ["age", "job"], 2)
    for problem in problems:
        assert problem in str(error.value)
