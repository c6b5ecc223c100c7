"""Index tensors of levels, against loops over the features."""

import pandas as pd
import pytest
import torch
from torch import Tensor

from plausiflow.tables import Encoder, Layout, Schema


@pytest.fixture
def encoded() -> tuple[Layout, Tensor]:
    """Rows with numbers, special values, missing values, and categories of several sizes."""
    n = 120
    frame = pd.DataFrame(
        {
            "plain": [float(i % 17) for i in range(n)],
            "days": [-1.0 if i % 4 == 0 else 30.0 + i % 23 for i in range(n)],
            "gap": [None if i % 5 == 0 else 0.25 * (i % 31) for i in range(n)],
            "two": ["a" if i % 2 else "b" for i in range(n)],
            "many": [f"level {i % 9}" for i in range(n)],
        }
    )
    encoder = Encoder(Schema.infer(frame, special={"days": [-1]}))
    return encoder.layout, encoder.encode(frame).x


def test_codes_are_the_largest_level_of_each_feature(encoded: tuple[Layout, Tensor]) -> None:
    layout, x = encoded
    expected = torch.stack([x[:, block.level_slice].argmax(dim=1) for block in layout.with_levels], dim=1)
    assert len(layout.with_levels) >= 4
    assert torch.equal(layout.codes(x), expected)


def test_free_numbers_are_those_without_a_pin(encoded: tuple[Layout, Tensor]) -> None:
    layout, x = encoded
    codes, free = layout.codes(x), layout.free(layout.codes(x))
    for j, block in enumerate(layout.with_levels):
        if block.number is not None:
            expected = [block.pinned[code] is None for code in codes[:, j].tolist()]
            assert free[:, block.number].tolist() == expected
    assert not free[:, [c for block in layout.with_levels for c in block.levels]].any()


def test_rows_at_the_levels_of_others_have_their_pins(encoded: tuple[Layout, Tensor]) -> None:
    layout, x = encoded
    codes = layout.codes(x).roll(7, dims=0)
    moved = layout.with_codes(x, codes)
    assert torch.equal(layout.codes(moved), codes)
    for j, block in enumerate(layout.with_levels):
        assert torch.equal(moved[:, block.level_slice].sum(dim=1), torch.ones(len(x)))
        if block.number is not None:
            for row, code in enumerate(codes[:, j].tolist()):
                pin = block.pinned[code]
                assert moved[row, block.number] == (x[row, block.number] if pin is None else pin)


def test_changed_features_are_those_with_another_column(encoded: tuple[Layout, Tensor]) -> None:
    layout, x = encoded
    other = x.roll(3, dims=0)
    expected = torch.stack([(x != other)[:, block.columns].any(dim=1) for block in layout.blocks], dim=1)
    assert torch.equal(layout.changed(other, x), expected)


def test_numbers_leave_their_scale_where_a_level_outside_it_is_entered_or_left(
    encoded: tuple[Layout, Tensor],
) -> None:
    layout, x = encoded
    before, after = layout.codes(x), layout.codes(x).roll(5, dims=0)
    found, states = layout.index(x.device).leaves_scale(before, after), 0
    for j, block in enumerate(layout.with_levels):
        if block.number is not None:
            pairs = zip(before[:, j].tolist(), after[:, j].tolist(), strict=True)
            expected = [a != b and (block.apart[a] or block.apart[b]) for a, b in pairs]
            assert found[:, states].tolist() == expected
            states += 1
    assert states == 2
