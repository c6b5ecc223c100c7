"""Random rules and random points: the allowance, the violations and plain Python agree."""

import math

import numpy as np
import pandas as pd
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from plausiflow.constraints import Allowed, Decreasing, Immutable, Increasing, Linear, MaxChanges, Range
from plausiflow.errors import InvalidInputError
from plausiflow.tables.encoder import Encoder
from plausiflow.tables.schema import Schema
from rule_table import (
    DEGREES,
    ENCODER,
    JOBS,
    NAMES,
    NUMBERS,
    RELATIONS,
    TRAINING,
    evaluate,
    people,
    rules_for,
)

ORDERS = {"degree": DEGREES, "children": [0, 1, 2, 3], "owns": [False, True]}
LEVELS = ORDERS | {"job": JOBS}


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
    """A number at zero is in the state of this special value."""
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
def test_violations_name_the_rules_that_plain_python_finds_broken(constraints, seed):
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
