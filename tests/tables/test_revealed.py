"""Special values that other columns reveal, and the rows that relations are learned from."""

import numpy as np
import pandas as pd
import pytest

from plausiflow.tables import Schema
from plausiflow.tables.revealed import rows_to_read

N = 2000


def specials(frame, **settings):
    return {f.name: f.special for f in Schema.infer(frame, **settings).features if f.special}


def cards(seed=0):
    """Limits of 500, 1,000 … and 0 without a card; 0 is about as common as 500."""
    rng = np.random.default_rng(seed)
    card = rng.random(N) < 0.85
    limit = np.where(card, 500 * rng.geometric(0.15, N).clip(max=30), 0)
    return pd.DataFrame({"card": np.where(card, "yes", "no"), "limit": limit, "age": rng.integers(18, 80, N)})


def test_a_state_that_fixes_a_value_reveals_it():
    frame = cards()
    assert specials(frame) == {"limit": (0.0,)}
    assert specials(frame.drop(columns="card")) == {}  # on its own, 0 does not stand out
    assert specials(frame, special={"limit": []}) == {}
    assert specials(frame, special={"limit": [500]}) == {"limit": (500.0,)}


@pytest.mark.parametrize(("n_wrong", "found"), [(0, True), (1, False)])
def test_one_exception_among_three_hundred_rows_is_too_many(n_wrong, found):
    frame = cards()
    frame.loc[frame.index[frame["card"] == "no"][:n_wrong], "limit"] = 1500
    assert ("limit" in specials(frame)) is found


def test_two_numbers_reveal_a_value_that_is_always_in_the_same_rows():
    rng = np.random.default_rng(0)
    visits = rng.geometric(0.15, N) - 1
    frame = pd.DataFrame({"visits": visits, "months": np.where(visits > 0, rng.integers(1, 61, N), 0)})
    assert specials(frame) == {"months": (0.0,), "visits": (0.0,)}
    later = frame.assign(months=rng.permutation(frame["months"]))
    assert "visits" not in specials(later)


@pytest.mark.parametrize("copy", [lambda x: x, lambda x: 2 * x, lambda x: np.minimum(x, 5)])
def test_a_copy_reveals_nothing(copy):
    x = np.random.default_rng(1).geometric(0.15, N) - 1
    assert specials(pd.DataFrame({"x": x, "y": copy(x)})) == {}


@pytest.mark.parametrize("seed", range(20))
def test_independent_columns_reveal_nothing(seed):
    frame, rng = cards(seed), np.random.default_rng(seed)
    assert specials(frame.assign(limit=rng.permutation(frame["limit"]))) == {}


def test_the_rows_that_are_read_are_bounded():
    assert rows_to_read(500, 300).tolist() == list(range(500))
    for columns in (2, 60, 300, 5000):
        rows = rows_to_read(10**6, columns)
        assert len(rows) <= 50_000
        assert len(rows) * columns**2 <= 2**30
        assert (np.diff(rows) > 0).all()
