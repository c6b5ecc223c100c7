"""Round trips: random tables in every dtype and the real tables come back as they were."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal, assert_series_equal

from encoded_tables import SCHEMA, TABLE, infer_quietly, strip
from plausiflow.tables.encoder import Encoder

INTEGERS = [
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "Int8",
    "Int64",
    "UInt16",
]


FLOATS = ["float16", "float32", "float64", "Float32", "Float64"]
TEXTS = ["str", "string", "object", "category"]
WORDS = ["red", "green", " red", "blue ", "", "1", "missing", "zero", "Grün"]
HOLD_NO_MISSING = [name for name in INTEGERS if name[0] in "iu"] + ["bool"]


def cells(dtype):
    """A strategy for the values of a column of this dtype."""
    if dtype in ("bool", "boolean"):
        return st.booleans()
    if dtype in INTEGERS:
        info = np.iinfo(dtype.lower())
        small = st.integers(max(info.min, -3), 3)
        wide = st.integers(int(info.min), int(info.max))
        return st.sampled_from([small, small.map(lambda v: 20 * abs(v)), wide]).flatmap(lambda chosen: chosen)
    if dtype in FLOATS:
        width = int(dtype[-2:])
        grid = st.integers(-300, 300).map(lambda k: k / 10)
        return st.one_of(grid, st.floats(-1e3, 1e3, width=width), st.just(0.0))
    return st.sampled_from(WORDS)


@st.composite
def columns(draw, n):
    dtype = draw(
        st.sampled_from([*INTEGERS, *FLOATS, *TEXTS, "bool", "boolean", "ordered", "mixed", "money"])
    )
    if dtype == "money":
        cents = draw(st.lists(st.integers(0, 10**6), min_size=n, max_size=n))
        return pd.Series([0 if i % 2 else value / 100 for i, value in enumerate(cents)], dtype="float64")
    if dtype == "mixed":
        pool = st.sampled_from(["a", " a", 1, 2.5, True, None])
        values = draw(st.lists(pool, min_size=n, max_size=n))
        return pd.Series([*values[:-1], "a"], dtype=object)
    pool = draw(st.lists(cells(dtype), min_size=1, max_size=8)) if draw(st.booleans()) else None
    values = draw(st.lists(st.sampled_from(pool) if pool else cells(dtype), min_size=n, max_size=n))
    if dtype not in HOLD_NO_MISSING and draw(st.booleans()):
        values = [None if draw(st.booleans()) else value for value in values[:-1]] + values[-1:]
    if dtype == "ordered":
        return pd.Series(pd.Categorical(values, categories=WORDS[::-1], ordered=True))
    if dtype in FLOATS and dtype[0] == "f":
        values = [np.nan if value is None else value for value in values]
    return pd.Series(values, dtype=dtype)


@st.composite
def frames(draw, min_rows=1):
    n, width = draw(st.one_of(st.integers(min_rows, 12), st.just(25))), draw(st.integers(1, 6))
    repeats = draw(st.sampled_from([1, 1, 6]))
    made = {f"c{j}": draw(columns(n)) for j in range(width)}
    frame = pd.concat([pd.DataFrame(made)] * repeats)
    if draw(st.booleans()):
        frame.index = pd.Index([f"row {i % 3}" for i in range(len(frame))], name="odd")
    return frame


@settings(max_examples=40)
@given(frames(), st.sampled_from(["keep", "impute"]), st.randoms(use_true_random=False))
def test_decoding_what_was_encoded_gives_the_same_table(frame, missing, random):
    encoder = Encoder(infer_quietly(frame), missing)
    names = random.sample(list(frame.columns), len(frame.columns))
    rows = frame[names].iloc[random.sample(range(len(frame)), len(frame))]
    if missing == "impute":
        rows = rows.dropna()
    encoded = encoder.encode(rows)
    assert encoded.usable.all()
    assert torch.isfinite(encoded.x).all()
    assert_frame_equal(encoder.decode(encoded.x, like=rows), rows, check_exact=True)


@settings(max_examples=40)
@given(frames())
def test_levels_and_grids_are_decoded_without_the_rows_they_came_from(frame):
    schema = infer_quietly(frame)
    encoder = Encoder(schema)
    decoded = encoder.decode(encoder.encode(frame).x)
    assert list(decoded.columns) == list(frame.columns)
    assert decoded.index.equals(pd.RangeIndex(len(frame)))
    for feature in schema.features:
        old, new = frame[feature.name].reset_index(drop=True), decoded[feature.name]
        if feature.has_levels:
            assert new.dtype == old.dtype
            assert strip(new) == strip(old)
        elif feature.kind == "integer":
            assert_series_equal(new, old, check_exact=True)
        elif feature.kind == "continuous":
            span = feature.maximum - feature.minimum
            close = 1e-9 if old.dtype in ("float64", "Float64") else 2e-3
            assert_series_equal(new, old, rtol=0, atol=close * max(span, 1e-3))


@settings(max_examples=40)
@given(frames(), st.randoms(use_true_random=False))
def test_encoding_depends_neither_on_the_order_of_columns_nor_on_other_rows(frame, random):
    encoder = Encoder(infer_quietly(frame))
    x = encoder.encode(frame).x
    names = random.sample(list(frame.columns), len(frame.columns))
    assert torch.equal(encoder.encode(frame[names]).x, x)
    row = random.randrange(len(frame))
    assert torch.equal(encoder.encode(frame.iloc[[row]]).x, x[[row]])


@settings(max_examples=40)
@given(frames())
def test_encoded_rows_are_one_hot_on_their_grid_and_at_their_pins(frame):
    encoder = Encoder(infer_quietly(frame))
    layout, x = encoder.layout, encoder.encode(frame).x
    assert x.shape == (len(frame), layout.width)
    for block in layout.with_levels:
        levels = x[:, block.levels.start : block.levels.stop]
        assert (levels.sum(1) == 1).all()
        assert ((levels == 0) | (levels == 1)).all()
        assert len(block.closed) == len(block.levels) == len(encoder.level_names(block.name))
    assert torch.equal(layout.snap(x), x)
    assert torch.equal(layout.with_codes(x, layout.codes(x)), x)
    numbers = x[:, layout.numbers]
    assert ((numbers >= 0) & (numbers <= 1)).all()


@settings(max_examples=40)
@given(frames(min_rows=2), st.integers(0, 2**32))
def test_a_changed_row_is_encoded_to_what_it_was_decoded_from(frame, seed):
    schema = infer_quietly(frame)
    encoder = Encoder(schema)
    layout, generator = encoder.layout, torch.Generator().manual_seed(seed)
    counts = [len(block.levels) for block in layout.with_levels]
    codes = [torch.randint(0, n, (len(frame), 1), generator=generator) for n in counts]
    codes = torch.cat(codes, dim=1) if codes else torch.zeros(len(frame), 0, dtype=torch.long)
    x = layout.with_codes(torch.rand(len(frame), layout.width, generator=generator) * 0.8 + 0.2, codes)
    x = layout.snap(x)
    decoded = encoder.decode(x, like=frame)
    assert_series_equal(decoded.dtypes, frame.dtypes)
    again = encoder.encode(decoded)
    assert again.usable.all()
    for block in layout.blocks:
        feature = schema.feature(block.name)
        columns = block.columns
        if feature.kind != "continuous":
            assert torch.equal(again.x[:, columns], x[:, columns])
        else:
            close = 1e-9 if feature.dtype in ("float64", "Float64") else 2e-3
            offset = max(1.0, abs(feature.minimum / ((feature.maximum - feature.minimum) or 1.0)))
            torch.testing.assert_close(again.x[:, columns], x[:, columns], rtol=0, atol=close * offset)


@pytest.mark.parametrize("name", ["german_credit", "adult", "heloc", "law", "audit"])
def test_real_tables_go_through_unchanged(name, data_directory):
    path = data_directory / f"{name}.csv"
    if not path.is_file():
        pytest.skip(f"no file {path}")
    frame = pd.read_csv(path)
    schema = infer_quietly(frame)
    encoder = Encoder(schema)
    encoded = encoder.encode(frame)
    assert encoded.usable.all()
    odd = encoder.layout.snap(encoded.x) != encoded.x
    assert odd.double().mean(dim=0).max() <= 0.01
    assert_frame_equal(encoder.decode(encoded.x, like=frame), frame, check_exact=True)
    decoded = encoder.decode(encoded.x)
    for feature in schema.features:
        old, new = frame[feature.name], decoded[feature.name]
        if feature.kind == "integer":
            kept = ~odd[:, encoder.layout.block(feature.name).number].numpy()
            assert_series_equal(new[kept], old[kept], check_exact=True)
        elif feature.kind == "continuous":
            atol = 1e-9 * (feature.maximum - feature.minimum)
            assert_series_equal(new, old, rtol=0, atol=atol)
        elif feature.has_levels and old.dtype in ("str", object):
            assert new.fillna("").str.strip().equals(old.fillna("").str.strip())
        elif feature.has_levels:
            assert_series_equal(new, old, check_exact=True)


@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_swapping_encoded_rows_swaps_what_they_hold(seed):
    rng = np.random.default_rng(seed)
    frame = TABLE.iloc[rng.integers(0, 6, 30)].reset_index(drop=True)
    encoder = Encoder(SCHEMA)
    order = rng.permutation(30)
    swapped = encoder.decode(encoder.encode(frame).x[order], like=frame)
    expected = frame.iloc[order].reset_index(drop=True).assign(id=frame["id"], country=frame["country"])
    columns = ["sex", "job"]
    assert_frame_equal(swapped.drop(columns=columns), expected.drop(columns=columns), check_exact=True)
    assert strip(swapped["sex"]) == strip(expected["sex"])
    assert strip(swapped["job"]) == strip(expected["job"])
