"""Relations between numbers: closed forms are recovered exactly, and the work is bounded."""

import numpy as np
import pandas as pd
import pytest

from plausiflow.constraints import RowChanges, learn_rules
from plausiflow.constraints.mined_numbers import _correlations, _null_vectors
from plausiflow.constraints.mined_states import MOST_STATES, StateMiner
from plausiflow.tables import Encoder, Evidence, Schema

RNG = np.random.default_rng(0)
A, B, C, D = (RNG.integers(1, 500, 800).astype(float) for _ in range(4))


def learn(frame, **settings):
    encoder = Encoder(Schema.infer(frame, **settings))
    return [str(rule) for rule in learn_rules(frame, encoder.encode(frame).x, encoder)]


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        (2.54 * A, 'Equal("t", "2.54 * a"'),
        (1.8 * A + 32, 'Equal("t", "1.8 * a + 32"'),
        (1000 - A, 'Equal("a", "-t + 1000"'),
        ((0.19 * A).round(2), 'Equal("t", "0.19 * a"'),
        ((0.077 * A).round(1), 'Equal("t", "0.077 * a"'),  # rounded to its own grid
        (A + B, 'Equal("t", "a + b")'),
        (A - B, 'Equal("a", "b + t")'),
        (A + B + C + D, 'Equal("t", "a + b + c + d")'),
        (A + 2 * B - C + 5, 'Equal("a", "-2 * b + c + t - 5")'),
    ],
)
def test_a_computed_column_is_learned_in_its_closed_form(values, rule):
    frame = pd.DataFrame({"a": A, "b": B, "c": C, "d": D, "t": values})
    assert any(text.startswith(rule) for text in learn(frame)), learn(frame)


def test_of_two_directions_the_one_that_leaves_less_room_is_learned():
    net = A + B / 4
    frame = pd.DataFrame({"net": net, "tax": np.floor(19 * net + 0.5) / 100})  # to the cent
    assert not _broken(frame, frame).any()
    assert _broken(frame, frame.assign(tax=frame["tax"] + 0.01)).all()


def test_two_computed_columns_are_both_learned():
    frame = pd.DataFrame({"a": A, "b": B, "c": C, "d": D, "s": A + B + C, "t": B + C + D})
    rules = learn(frame)
    assert sum(text.startswith("Equal") for text in rules) == 2
    before, after = frame, frame.assign(s=frame["s"] + 1)
    assert not _broken(frame, before).any()
    assert _broken(frame, after).all()


def _broken(frame, rows):
    encoder = Encoder(Schema.infer(frame))
    rules = learn_rules(frame, encoder.encode(frame).x, encoder)
    features = {feature.name: feature for feature in encoder.schema.features}
    return np.any([rule.violated(RowChanges(features, rows, rows)) for rule in rules], axis=0)


@pytest.mark.parametrize("noise", [0.02, 1.0])
def test_a_column_that_is_nearly_computed_is_not_learned(noise):
    t = (A + B + noise * RNG.normal(0, 1, len(A))).round(2)
    assert not any("Equal" in text for text in learn(pd.DataFrame({"a": A, "b": B, "c": C, "t": t})))


def test_null_vectors_span_the_relations_of_the_columns():
    rows = np.stack([A, B, C, D, A + 2 * B - C, 3 * D - A], axis=1)[:100]
    vectors = _null_vectors(rows)
    assert vectors.shape == (2, 6)
    centred = rows - rows.mean(axis=0)
    assert np.abs(centred @ vectors.T).max() < 1e-6 * np.abs(centred).max()
    known = np.array([[1, 2, -1, 0, -1, 0], [-1, 0, 0, 3, 0, -1]], dtype=float)
    assert np.linalg.matrix_rank(np.concatenate([vectors, known]), tol=1e-6) == 2
    assert _null_vectors(np.stack([A, B, C], axis=1)).shape == (0, 3)
    assert _null_vectors(np.stack([A, 0 * A, B], axis=1)).shape == (0, 3)  # a constant is left out


def test_sums_are_found_among_more_columns_than_pairs_are_tried_for():
    n, k = 1500, 310
    frame = pd.DataFrame(RNG.normal(0, 1, (n, k)).round(3), columns=[f"x{j}" for j in range(k)])
    frame["total"] = (frame["x3"] + frame["x7"]).round(3)
    assert any(text == 'Equal("total", "x3 + x7")' for text in learn(frame))


def test_a_column_with_more_levels_than_states_are_counted_still_determines_another():
    n = 9000
    city = RNG.integers(0, MOST_STATES + 500, n)
    frame = pd.DataFrame(
        {
            "city": np.char.add("c", city.astype(str)),
            "country": np.char.add("k", (city % 7).astype(str)),
            "member": np.where(RNG.random(n) < 0.5, "yes", "no"),
        }
    )
    frame["fee"] = np.where(frame["member"] == "yes", "low", "high")
    encoder = Encoder(Schema.infer(frame, kinds={"city": "category"}))
    codes = encoder.layout.codes(encoder.encode(frame).x).numpy()
    features = {feature.name: feature for feature in encoder.schema.features}
    miner = StateMiner(encoder.layout, features, codes, Evidence(10**7))
    rules = [str(rule) for rule in miner.run()]
    assert len(miner.counts) == MOST_STATES
    assert 'Determines("city", "country")' in rules
    assert "Implies(\"member == 'no'\", \"fee == 'high'\", both_ways=True)" in rules


def test_a_column_that_repeats_another_where_that_one_is_known_is_learned():
    spent = np.where(RNG.random(800) < 0.2, 0.0, A + 500)
    frame = pd.DataFrame({"spent": spent, "last_year": np.where(spent > 0, spent, np.nan), "other": B})
    assert any(text.startswith('Equal("spent", "last_year"') for text in learn(frame)), learn(frame)


def test_correlations_are_those_of_the_rows_where_both_columns_are_known():
    table = np.stack([A, A + B, B, C], axis=1)
    table[RNG.random(table.shape) < 0.2] = np.nan
    expected = pd.DataFrame(table).corr().to_numpy()
    np.testing.assert_allclose(_correlations(table), expected, atol=1e-9)
    assert (_correlations(np.full((5, 2), np.nan)) == 0).all()
