"""Layouts: scales against closed forms, grids, levels and pins against brute force."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from plausiflow.errors import InvalidInputError
from plausiflow.tables.layout import Block, Layout, Scale

# A plain number on a grid, a category, and a number that is positive, zero or missing.
LAYOUT = Layout(
    (
        Block(name="age", number=0, scale=Scale(minimum=18.0, maximum=90.0, step=1.0)),
        Block(name="job", levels=range(1, 4), closed=(False, False, True)),
        Block(
            name="gain",
            number=4,
            scale=Scale(minimum=0.0, maximum=1000.0, step=10.0, log=True),
            levels=range(5, 8),
            pinned=(None, 0.0, 0.25),
            closed=(False, False, True),
        ),
    )
)


def rows(n):
    """Random rows of the layout: numbers in [0, 1], one-hot levels, numbers at their pins."""
    codes = torch.randint(0, 3, (n, 2))
    return LAYOUT.with_codes(torch.rand(n, LAYOUT.width), codes), codes


@st.composite
def scales(draw):
    step = draw(st.sampled_from([0.0, 1.0, 0.5, 0.01, 100.0, 0.07]))
    low, length = draw(st.integers(-1000, 1000)), draw(st.integers(1, 100_000))
    unit = step or 0.37
    log = low >= 0 and draw(st.booleans())
    return Scale(minimum=low * unit, maximum=(low + length) * unit, step=step, log=log)


@given(scales(), st.lists(st.floats(-0.5, 1.5), min_size=1, max_size=20))
def test_decoding_undoes_encoding(scale, shares):
    values = scale.minimum + torch.tensor(shares) * (scale.maximum - scale.minimum)
    torch.testing.assert_close(scale.decode(scale.encode(values)), values, rtol=1e-11, atol=1e-9)


@given(scales())
def test_the_range_is_scaled_to_exactly_zero_and_one(scale):
    assert scale.encode(torch.tensor([scale.minimum, scale.maximum])).tolist() == [0.0, 1.0]


@given(scales(), st.lists(st.floats(-0.5, 1.5), min_size=1, max_size=20), st.integers(-3, 3))
def test_snapping_is_idempotent_and_lands_on_multiples_of_the_step(scale, encoded, shift):
    snapped = scale.snap(torch.tensor(encoded), shift)
    assert torch.equal(scale.snap(snapped), snapped)
    if scale.step:
        steps = scale.decode(snapped) / scale.step
        torch.testing.assert_close(steps, steps.round(), rtol=1e-11, atol=1e-5)


@given(scales().filter(lambda scale: scale.step), st.floats(0, 1))
def test_no_grid_point_is_closer_than_the_snapped_one(scale, encoded):
    x = torch.tensor([encoded])
    distances = [(scale.decode(scale.snap(x, shift)) - scale.decode(x)).abs() for shift in (-1, 0, 1)]
    assert distances[1] <= min(distances) + 1e-9 * max(abs(scale.minimum), abs(scale.maximum))


def test_a_heavy_tail_is_scaled_by_log1p():
    scale = Scale(minimum=20.0, maximum=5000.0, log=True)
    values = [20.0, 50.0, 700.0, 5000.0, 9000.0, 3.0]
    low, high = math.log1p(20.0), math.log1p(5000.0)
    expected = [(math.log1p(value) - low) / (high - low) for value in values]
    torch.testing.assert_close(scale.encode(torch.tensor(values)), torch.tensor(expected))


def test_below_zero_a_logarithmic_scale_goes_on_as_an_odd_function():
    scale = Scale(minimum=0.0, maximum=10.0, log=True)
    values = torch.tensor([0.1, 3.0, 200.0])
    torch.testing.assert_close(scale.encode(-values), -scale.encode(values), rtol=0, atol=0)


def test_a_logarithmic_scale_has_a_gradient_at_zero():
    scale = Scale(minimum=0.0, maximum=99.0, log=True)
    value, encoded = torch.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)
    scale.encode(value).sum().backward()
    scale.decode(encoded).sum().backward()
    assert value.grad.item() == pytest.approx(1 / math.log(100))
    assert encoded.grad.item() == pytest.approx(math.log(100))


def test_scales_of_one_value_do_not_divide_by_zero():
    scale = Scale(minimum=7.0, maximum=7.0, step=1.0)
    assert scale.encode(torch.tensor([7.0, 9.0])).tolist() == [0.0, 2.0]


def test_the_step_of_a_grid_is_told_where_it_is_the_same_everywhere():
    assert Scale(minimum=10.0, maximum=30.0, step=5.0).encoded_step == 0.25
    assert Scale(minimum=10.0, maximum=30.0).encoded_step == 0
    assert Scale(minimum=10.0, maximum=30.0, step=5.0, log=True).encoded_step == 0


def test_scales_keep_the_dtype():
    scale = Scale(minimum=1.0, maximum=50.0, step=0.5, log=True)
    x = torch.rand(5, dtype=torch.float32)
    assert scale.encode(x).dtype == scale.decode(x).dtype == scale.snap(x).dtype == torch.float32


def test_columns_are_counted_and_found():
    assert LAYOUT.width == 8
    assert LAYOUT.numbers == [0, 4]
    assert [block.name for block in LAYOUT.with_levels] == ["job", "gain"]
    assert LAYOUT.block("gain").columns == [4, 5, 6, 7]
    assert [block.nominal for block in LAYOUT.blocks] == [False, True, False]


def test_an_unknown_feature_is_named_in_the_error():
    with pytest.raises(InvalidInputError, match="'age', 'job', 'gain'; got 'income'"):
        LAYOUT.block("income")


def test_rows_put_at_levels_are_at_these_levels():
    x, codes = rows(200)
    assert torch.equal(LAYOUT.codes(x), codes)
    assert torch.equal(LAYOUT.with_codes(x, codes), x)
    for block in LAYOUT.with_levels:
        assert (x[:, block.levels.start : block.levels.stop].sum(1) == 1).all()


def test_numbers_are_pinned_at_some_levels_and_free_at_the_others():
    before = torch.rand(300, LAYOUT.width)
    codes = torch.randint(0, 3, (300, 2))
    x, free = LAYOUT.with_codes(before, codes), LAYOUT.free(codes)
    for row in range(300):
        gain = {0: before[row, 4], 1: torch.tensor(0.0), 2: torch.tensor(0.25)}[int(codes[row, 1])]
        assert x[row, 4] == gain
        assert free[row].tolist() == [True, False, False, False, codes[row, 1] == 0, False, False, False]
    assert torch.equal(x[:, 0], before[:, 0])


def test_snapping_moves_numbers_only():
    x, _ = rows(50)
    snapped = LAYOUT.snap(x)
    assert torch.equal(snapped[:, [1, 2, 3, 5, 6, 7]], x[:, [1, 2, 3, 5, 6, 7]])
    ages = snapped[:, 0] * 72 + 18
    torch.testing.assert_close(ages, (x[:, 0] * 72 + 18).round())


def test_changes_are_told_by_feature():
    x, _ = rows(1)
    x = x.repeat(4, 1)
    x_cf = x.clone()
    x_cf[1, 0] += 0.1
    x_cf[2, 1:4] = x_cf[2, 1:4].roll(1)
    x_cf[3, 7] += 1
    expected = [[False] * 3, [True, False, False], [False, True, False], [False, False, True]]
    assert LAYOUT.changed(x_cf, x).tolist() == expected


def test_a_layout_without_blocks_has_rows_of_no_columns():
    layout, x = Layout(()), torch.zeros(3, 0)
    assert layout.width == 0
    assert layout.codes(x).shape == layout.free(layout.codes(x)).shape == layout.changed(x, x).shape == (3, 0)
    assert layout.snap(x).shape == layout.with_codes(x, layout.codes(x)).shape == (3, 0)


@pytest.mark.parametrize("n", [1, 3, 2000])  # few rows take one operation, many one for each size of features
def test_codes_are_the_places_of_the_ones(n):
    layout = Layout(
        tuple(
            Block(name=str(j), levels=range(start, start + size))
            for j, (start, size) in enumerate(((0, 2), (2, 9), (11, 3)))
        )
    )
    codes = torch.stack([torch.randint(0, size, (n,)) for size in (2, 9, 3)], dim=1)
    assert torch.equal(layout.codes(layout.with_codes(torch.zeros(n, 14), codes)), codes)


@pytest.mark.parametrize("shift", [-1, 0, 1])
def test_snapping_a_row_is_that_of_each_scale(shift):
    x, codes = rows(200)
    snapped = LAYOUT.snap(x, shift)
    age, gain = LAYOUT.blocks[0].scale, LAYOUT.blocks[2].scale
    assert torch.equal(snapped[:, 0], age.snap(x[:, 0], shift))
    free = codes[:, 1] == 0
    assert torch.equal(snapped[free, 4], gain.snap(x[free, 4], shift))
    assert torch.equal(snapped[~free, 4], x[~free, 4])
    assert torch.equal(LAYOUT.grid_neighbours(x)[(0, -1, 1).index(shift)], snapped)


def test_a_switched_level_pins_its_number_or_leaves_it_typical():
    x, _ = rows(6)
    switched = LAYOUT.index(x.device).switched(x, torch.arange(6), {4: 0.7})
    assert torch.equal(switched[:, 0], x[:, 0])
    for place, (feature, level) in enumerate([(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]):
        expected = LAYOUT.codes(x[place : place + 1])[0]
        expected[feature] = level
        assert LAYOUT.codes(switched[place : place + 1])[0].tolist() == expected.tolist()
        number = x[place, 4] if feature == 0 else torch.tensor([0.7, 0.0, 0.25])[level]
        assert switched[place, 4] == number
