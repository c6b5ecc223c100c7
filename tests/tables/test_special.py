"""Special values: found against planted ones, encoded and decoded exactly, and kept apart from numbers."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from plausiflow.constraints import CompiledRules, Decreasing, Increasing, Linear, Range
from plausiflow.errors import InvalidInputError
from plausiflow.search.costs import CostModel
from plausiflow.tables import Encoder, Schema
from plausiflow.tables.special import find_special

RNG = np.random.default_rng(0)
DAYS = RNG.integers(0, 31, 300)


def special_of(values, **settings):
    return Schema.infer(pd.DataFrame({"a": values}), **settings).feature("a").special


def planted(ordinary, *atoms):
    """Ordinary values, and each atom as often as told."""
    return np.concatenate([ordinary, *(np.full(count, float(value)) for value, count in atoms)])


# ---------------------------------------------------------------- found


@pytest.mark.parametrize(
    ("values", "special"),
    [
        (planted(DAYS, (999, 10)), (999.0,)),
        (planted(DAYS, (-1, 60)), (-1.0,)),
        (planted(DAYS, (-9, 20), (-8, 30), (-7, 90)), (-9.0, -8.0, -7.0)),
        (planted(RNG.lognormal(6, 1, 300), (0, 30)), (0.0,)),
        (planted(RNG.normal(0, 1, 300), (0, 30)), (0.0,)),
        (planted(RNG.normal(0, 1, 300), (0, 30), (-99, 5), (99, 5)), (-99.0, 0.0, 99.0)),
    ],
)
def test_planted_sentinels_are_found(values, special):
    assert special_of(RNG.permutation(values)) == special


@pytest.mark.parametrize(
    "values",
    [
        RNG.integers(18, 80, 2000),
        RNG.normal(0, 1, 2000).round(1),
        RNG.poisson(8, 2000),
        RNG.geometric(0.15, 3000) - 1,
        RNG.lognormal(8, 1, 2000).round(-2),
        np.append(RNG.lognormal(8, 2, 500), 1e9),  # one extreme is no atom
        np.where(RNG.random(2000) < 0.4, RNG.integers(1, 40, 2000) * 500, RNG.integers(500, 20000, 2000)),
    ],
    ids=["ages", "scores", "counts", "waiting", "amounts", "extreme", "round"],
)
def test_smooth_and_round_values_are_not_special(values):
    assert special_of(values) == ()


@given(st.integers(0, 2**32 - 1))
def test_a_sample_of_a_smooth_distribution_has_no_special_value(seed):
    rng = np.random.default_rng(seed)
    for values in (rng.normal(50, 15, 400).round(), rng.integers(0, 60, 400), rng.gamma(2, 20, 400).round(1)):
        assert find_special(*np.unique(values.astype(float), return_counts=True)) == ()


def test_special_values_are_declared_or_switched_off():
    values = RNG.permutation(planted(DAYS, (-1, 60)))
    assert special_of(values, special={"a": [-1, 5, 1234]}) == (-1.0, 5.0)
    assert special_of(values, special={"a": []}) == ()
    for wrong in ({"a": [None]}, {"a": "x"}, {"a": [float("nan")]}, {"b": [1]}):
        with pytest.raises(InvalidInputError, match="special"):
            special_of(values, special=wrong)
    with pytest.raises(InvalidInputError, match="level of its own"):
        special_of(np.tile([1, 2, 3], 20), special={"a": [1]})
    with pytest.raises(InvalidInputError, match="only special values"):
        special_of(np.arange(12), special={"a": list(range(12))}, kinds={"a": "integer"})


def test_range_scale_and_filling_are_those_of_the_other_values():
    feature = Schema.infer(pd.DataFrame({"a": RNG.permutation(planted(DAYS, (999, 100)))})).feature("a")
    assert (feature.minimum, feature.maximum, feature.step, feature.log) == (0.0, 30.0, 1.0, False)
    assert 10 <= feature.filling <= 20
    mostly = Schema.infer(pd.DataFrame({"a": planted(DAYS, (999, 400))})).feature("a")
    assert mostly.filling == 999.0


def test_a_schema_with_special_values_is_restored_from_json():
    schema = Schema.infer(pd.DataFrame({"a": planted(DAYS, (999, 100))}))
    assert Schema.from_dict(schema.to_dict()) == schema


# ---------------------------------------------------------------- encoded


@st.composite
def tables(draw):
    special = draw(st.lists(st.sampled_from([-9.0, -1.0, 0.0, 7.5, 40.0, 999.0]), max_size=3, unique=True))
    step = draw(st.sampled_from([0.0, 1.0, 0.5]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    numbers = rng.normal(20, 10, 60)
    numbers = np.round(numbers / step) * step if step else numbers
    values = np.where(rng.random(60) < 0.3, rng.choice(special, 60), numbers) if special else numbers
    if draw(st.booleans()):
        values[rng.random(60) < 0.2] = np.nan
    values[:5] = numbers[:5]
    return pd.DataFrame({"a": values.astype(draw(st.sampled_from(["float64", "float32"])))}), special


@given(tables())
def test_every_value_comes_back_bit_for_bit_and_pins_are_on_the_scale(table):
    frame, special = table
    encoder = Encoder(Schema.infer(frame, special={"a": special}))
    encoded = encoder.encode(frame)
    assert encoded.usable.all()
    block = encoder.layout.block("a")
    assert_frame_equal(encoder.decode(encoded.x, like=frame), frame, check_exact=True)
    assert all(pin is None or 0 <= pin <= 1 for pin in block.pinned)
    codes = encoder.layout.codes(encoded.x)[:, 0].numpy() if len(block.levels) else np.zeros(60)
    known = [value for value in sorted(special) if (frame["a"] == value).any()]
    for value, own in zip(frame["a"], codes, strict=True):
        expected = len(known) + 1 if np.isnan(value) else known.index(value) + 1 if value in known else 0
        assert own == expected
    fresh = encoder.decode(encoded.x)["a"].to_numpy(dtype=float)
    for code, value in enumerate(known, start=1):
        assert (fresh[codes == code] == value).all()


def test_a_number_that_reaches_a_special_value_takes_its_state():
    frame = pd.DataFrame({"a": planted(RNG.integers(20, 60, 200), (40, 150))})
    encoder = Encoder(Schema.infer(frame))
    x = encoder.encode(pd.DataFrame({"a": [39.0, 40.0, 41.0]})).x
    moved = x.clone()
    moved[:, 0] = x[1, 0]
    settled = encoder.layout.settle(moved)
    assert torch.equal(settled, x[[1, 1, 1]])


# ---------------------------------------------------------------- rules and costs

FRAME = pd.DataFrame({"days": RNG.permutation(planted(DAYS, (-1, 60), (999, 40))), "b": RNG.random(400)})
ENCODER = Encoder(Schema.infer(FRAME))


def states(rule, days):
    rows = pd.DataFrame({"days": [days], "b": [0.5]})
    rules = CompiledRules([rule], ENCODER.schema, ENCODER.layout)
    allowance = rules.for_rows(ENCODER.encode(rows).x, rows)
    assert bool(allowance.possible)
    block = ENCODER.layout.block("days")
    names = ENCODER.level_names("days")
    allowed = allowance.levels[0, block.level_slice].tolist()
    found = {name for name, fine in zip(names, allowed, strict=True) if fine}
    for after in [-1.0, 999.0, *range(31)]:  # against the check of the decoded row
        other = rows.assign(days=float(after))
        broken = bool(rules.violations(rows, other).any(axis=None))
        assert bool(allowance.contains(ENCODER.encode(other).x)) is not broken, after
    return found


@pytest.mark.parametrize(
    ("rule", "days", "expected"),
    [
        (Increasing("days"), -1.0, {"number", -1, 999}),
        (Increasing("days"), 5.0, {"number", 999}),
        (Increasing("days"), 999.0, {999}),
        (Decreasing("days"), -1.0, {-1}),
        (Decreasing("days"), 5.0, {"number", -1}),
        (Range("days", 0, None), -1.0, {"number", 999}),
        (Range("days", 3, 30), 5.0, {"number"}),
        (Range("days", -5, -1), 5.0, {-1}),
    ],
)
def test_rules_compare_special_values_as_numbers(rule, days, expected):
    assert states(rule, days) == expected


def test_linear_rules_see_the_special_value_and_not_its_pin():
    rows = pd.DataFrame({"days": [-1.0, 999.0, 7.0], "b": [0.5, 0.5, 0.5]})
    rules = CompiledRules([Linear("days <= 500 * b")], ENCODER.schema, ENCODER.layout)
    x = ENCODER.encode(rows).x
    assert rules.for_rows(x, rows).contains(x).tolist() == [True, False, True]


def test_between_a_special_value_and_the_range_is_outside():
    rules = CompiledRules([], ENCODER.schema, ENCODER.layout)
    before = pd.DataFrame({"days": [999.0, 999.0, -1.0, 5.0], "b": 0.5})
    after = before.assign(days=[500.0, 30.0, 999.0, -0.5])
    assert rules.violations(before, after)["training range"].tolist() == [True, False, False, True]


def test_entering_a_special_value_costs_one_category_and_numbers_their_distance():
    rows = pd.DataFrame({"days": [-1.0, -1.0, 5.0, 5.0, 999.0], "b": 0.5})
    others = rows.assign(days=[5.0, 999.0, 20.0, 999.0, 0.0])
    x, x_cf = ENCODER.encode(rows).x, ENCODER.encode(others).x
    codes = [ENCODER.layout.codes(part) for part in (x, x_cf)]
    weights = torch.tensor([2.0, 1.0], dtype=torch.float64)
    costs = CostModel(layout=ENCODER.layout, weights=weights)((x, codes[0]), (x_cf, codes[1]))
    assert costs.tolist() == pytest.approx([2, 2, 2 * 15 / 30, 2, 2])


# ---------------------------------------------------------------- atoms that continue the numbers


def counts_with(*atoms):
    return RNG.permutation(planted(RNG.integers(1, 20, 400), *atoms))


@pytest.mark.parametrize(
    ("values", "special", "ends"),
    [
        (counts_with((0, 300)), (0.0,), (0, 19)),  # no event, one event, …
        (counts_with((20, 300)), (20.0,), (1, 20)),
        (counts_with((-1, 300)), (-1.0,), (1, 19)),  # two steps away
        (counts_with((40, 300)), (40.0,), (1, 19)),
        (RNG.permutation(planted(DAYS, (-1, 300))), (-1.0,), (0, 30)),  # a negative sentinel is no count
        (RNG.permutation(planted(500 * RNG.integers(1, 20, 400), (0, 300))), (0.0,), (0, 9500)),
        (RNG.permutation(planted(np.delete(np.arange(1, 60), 1), (0, 300))), (0.0,), (1, 59)),  # single rows
    ],
)
def test_the_range_includes_an_atom_one_step_from_common_numbers(values, special, ends):
    feature = Schema.infer(pd.DataFrame({"a": values})).feature("a")
    assert feature.special == special
    assert (feature.minimum, feature.maximum) == ends


def test_a_declared_special_value_does_not_continue_the_numbers():
    feature = Schema.infer(pd.DataFrame({"a": counts_with((20, 300))}), special={"a": [20]}).feature("a")
    assert (feature.special, feature.maximum) == ((20.0,), 19.0)


@pytest.mark.parametrize("atom", [0, 10])
def test_an_atom_among_the_numbers_costs_its_distance_and_one_apart_a_category(atom):
    frame = pd.DataFrame({"a": counts_with((atom, 300), (-9, 60)), "b": RNG.random(760)})
    encoder = Encoder(Schema.infer(frame))
    assert encoder.schema.feature("a").special == (-9.0, float(atom))
    rows, others = (pd.DataFrame({"a": a, "b": 0.5}) for a in ([atom, 3.0, atom], [3.0, atom, -9.0]))
    x, x_cf = encoder.encode(rows).x, encoder.encode(others).x
    codes = [encoder.layout.codes(part) for part in (x, x_cf)]
    costs = CostModel(layout=encoder.layout, weights=torch.ones(2, dtype=torch.float64))(
        (x, codes[0]), (x_cf, codes[1])
    )
    span = 19 - min(atom, 1)
    assert costs.tolist() == pytest.approx([abs(atom - 3) / span, abs(atom - 3) / span, 1.0])
