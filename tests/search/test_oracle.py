"""A model without gradients as a search asks it: its budget, its corners, and noise that belongs to a row."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from plausiflow.core import TargetCriterion, Targets
from plausiflow.search.row_random import normals, row_keys, signs, uniforms
from plausiflow.search.true_model import TrueModel, corners_of
from plausiflow.tables.encoder import Encoder
from plausiflow.tables.schema import Schema
from searching import ORDERS, applicants

KEYS = row_keys(torch.rand(40, 5, generator=torch.Generator().manual_seed(3)))


# Noise


def test_uniform_numbers_are_uniform():
    drawn = uniforms(KEYS, 500, salt=1).flatten()
    assert drawn.dtype == torch.float64
    assert ((drawn > 0) & (drawn < 1)).all()
    assert kstest(drawn.numpy(), "uniform").pvalue > 0.01


def test_every_place_of_a_row_is_uniform_over_rows():
    keys = row_keys(torch.linspace(0, 1, 3000)[:, None])
    drawn = uniforms(keys, 3, salt=0)
    for place in range(3):
        assert kstest(drawn[:, place].numpy(), "uniform").pvalue > 0.01
    assert torch.corrcoef(drawn.T).fill_diagonal_(0).abs().max() < 0.06


def test_normal_numbers_are_normal_and_finite():
    drawn = normals(KEYS, 500, salt=1).flatten()
    assert torch.isfinite(drawn).all()
    assert kstest(drawn.numpy(), "norm").pvalue > 0.01


def test_signs_are_as_often_plus_as_minus():
    drawn = signs(KEYS, 500, salt=1)
    assert set(drawn.flatten().tolist()) == {-1.0, 1.0}
    assert abs(drawn.mean()) < 0.03


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**20))
def test_any_key_gives_numbers_inside(key, salt):
    keys = torch.tensor([key])
    drawn = uniforms(keys, 8, salt)
    assert ((drawn > 0) & (drawn < 1)).all()
    assert torch.isfinite(normals(keys, 8, salt)).all()


@given(st.integers(1, 60), st.integers(0, 300))
def test_numbers_are_the_rows_own_whatever_the_batch(count, salt):
    rows = torch.tensor([7, 3, 3, 39])
    for draw in (uniforms, normals, signs):
        among = draw(KEYS, count, salt)[rows]
        assert torch.equal(draw(KEYS[rows], count, salt), among)
        assert torch.equal(draw(KEYS[rows], count + 5, salt)[:, :count], among), "more change the first"


def test_every_salt_gives_other_numbers():
    drawn = [uniforms(KEYS, 50, salt).flatten() for salt in range(100)]
    assert len({tuple(own.tolist()) for own in drawn}) == 100
    correlation = torch.corrcoef(torch.stack(drawn)).fill_diagonal_(0)
    assert correlation.abs().max() < 0.12


def test_every_row_has_its_own_key():
    x = torch.rand(2000, 3)
    assert len(row_keys(x).unique()) == 2000
    assert (row_keys(x) != row_keys(x.flip(1))).all()
    assert (row_keys(x) != row_keys(x + 1e-12)).all()
    assert (row_keys(x) == row_keys(x.clone())).all()


def test_minus_zero_is_zero():
    x = torch.tensor([[0.0, 1.0, -0.0]])
    assert torch.equal(row_keys(x), row_keys(x.abs()))


def test_a_row_in_single_precision_has_the_key_of_its_numbers():
    x = torch.rand(9, 3).float()
    assert torch.equal(row_keys(x), row_keys(x.double()))
    wide = torch.rand(9, 6)
    assert torch.equal(row_keys(wide[:, ::2]), row_keys(wide[:, ::2].clone()))


# The model, asked


class Recorder:
    """A model that decides by a rule of the table, and keeps what it was asked."""

    def __init__(self, rule):
        self.rule, self.frames = rule, []

    def __call__(self, frame):
        self.frames.append(frame.copy())
        yes = torch.tensor(self.rule(frame).to_numpy(np.float64, copy=True))
        return torch.stack([1 - yes, yes], dim=1).clamp_min(1e-300).log()

    @property
    def rows(self):
        return sum(map(len, self.frames))


@pytest.fixture(scope="module")
def table():
    frame = applicants(80, missing=True)
    encoder = Encoder(Schema.infer(frame, orders=ORDERS))
    return frame, encoder, encoder.encode(frame).x


def oracle_of(table, rule, budget=100, wanted=1, rows=20):
    frame, encoder, x = table
    model = Recorder(rule)
    true_model = TrueModel(outputs=model, criterion=TargetCriterion(0.02), encoder=encoder, budget=budget)
    return model, true_model.oracle(frame[:rows], x[:rows], Targets(torch.full((rows,), wanted)))


def income(frame):
    return frame["income"] >= 4000


def test_repeated_rows_share_what_is_left_of_their_budget(table):
    model, oracle = oracle_of(table, lambda frame: frame["income"] > 0, budget=10)
    oracle.spent[3] = 4
    rows = torch.tensor([3, 3, 7])
    again = oracle.repeated(rows)
    asked = torch.tensor([0, 1, 2]).repeat_interleave(20)
    again.valid(oracle.x[rows][asked], asked)
    assert (10 - again.true_model.budget + again.spent).tolist() == [10, 10, 10]
    assert model.rows == 3 + 3 + 10


@given(st.lists(st.lists(st.integers(0, 4), max_size=12), max_size=4), st.integers(1, 6))
def test_no_row_is_asked_about_more_often_than_the_budget_allows(table, batches, budget):
    _, _, x = table
    model, oracle = oracle_of(table, income, budget=budget)
    spent = dict.fromkeys(range(20), 0)
    for batch in batches:
        rows = torch.tensor(batch, dtype=torch.long)
        valid = oracle.valid(x[rows], rows)
        for place, row in enumerate(batch):
            affordable = spent[row] < budget
            spent[row] += affordable
            assert bool(valid[place]) == (affordable and bool(income(table[0])[row]))
        assert model.rows == sum(spent.values())
    assert oracle.spent.tolist() == list(spent.values())


def test_nothing_to_ask_is_no_call(table):
    model, oracle = oracle_of(table, income, budget=1)
    nothing = torch.zeros(0, dtype=torch.long)
    assert oracle.valid(table[2][:0], nothing).shape == (0,)
    assert oracle.stability(table[2][:0], nothing, corners=4, reach=0.1, salt=1).shape == (0,)
    oracle.valid(table[2][:1], torch.tensor([0]))
    calls = len(model.frames)
    oracle.valid(table[2][:1], torch.tensor([0]))
    assert len(model.frames) == calls == 1


def test_every_task_has_a_budget_of_its_own(table):
    model, oracle = oracle_of(table, income, budget=1)
    again = oracle.true_model.oracle(oracle.frame, oracle.x, oracle.targets)
    for one in (oracle, again, oracle):
        one.valid(table[2][:1], torch.tensor([0]))
    assert model.rows == 2


def test_the_margin_and_wishes_of_each_row_count(table):
    frame, encoder, x = table

    def answer(asked):
        p = torch.tensor((asked["income"] / 8000).to_numpy(copy=True))
        return torch.stack([1 - p, p], dim=1).log()

    true_model = TrueModel(outputs=answer, criterion=TargetCriterion(0.05), encoder=encoder, budget=9)
    least = torch.where(torch.arange(80) % 2 == 0, 0.7, 0.0)
    wanted = Targets(torch.arange(80) % 4 // 2, min_probability=least.clamp_min(0.01))
    valid = true_model.oracle(frame, x, wanted).valid(x, torch.arange(80))
    own = np.where(wanted.y == 1, frame["income"] / 8000, 1 - frame["income"] / 8000)
    np.testing.assert_array_equal(valid.numpy(), (own >= 0.55) & (own >= least.numpy()))


def test_an_answer_that_is_not_there_is_not_as_wanted(table):
    def answer(frame):
        return torch.full((len(frame), 2), torch.nan)

    frame, encoder, x = table
    oracle = TrueModel(outputs=answer, criterion=TargetCriterion(), encoder=encoder, budget=9).oracle(
        frame, x, Targets(torch.zeros(80).long())
    )
    assert not oracle.valid(x, torch.arange(80)).any()


def test_the_model_is_asked_in_the_units_and_dtypes_of_the_rows(table):
    frame, encoder, x = table
    model, oracle = oracle_of(table, income)
    other = torch.arange(20).flip(0)
    oracle.valid(x[:20], torch.arange(20))
    pd.testing.assert_frame_equal(model.frames[0], frame[:20])
    moved = encoder.layout.with_codes(x[other], encoder.layout.codes(x[other]))
    oracle.valid(moved, torch.arange(20))
    asked = model.frames[1]
    assert asked.dtypes.equals(frame.dtypes)
    expected = frame.iloc[other.numpy()].set_axis(frame.index[:20])
    pd.testing.assert_frame_equal(asked.drop(columns="savings"), expected.drop(columns="savings"))
    np.testing.assert_allclose(asked["savings"], expected["savings"], rtol=1e-9)


def test_decoded_rows_do_not_depend_on_the_batch(table):
    _, _, x = table
    model, oracle = oracle_of(table, income)
    points = corners_of(oracle.true_model.encoder, x[:20], corners=1, reach=0.013, salt=5)
    oracle.valid(points, torch.arange(20))
    some = torch.tensor([17, 4])
    oracle.valid(points[some], some)
    pd.testing.assert_frame_equal(model.frames[1], model.frames[0].iloc[some.numpy()])


# Corners


CORNERS = {"corners": 16, "reach": 0.05, "salt": 2}


def test_steady_is_the_share_of_corners_that_the_model_decides_alike(table):
    _, encoder, x = table
    _, oracle = oracle_of(table, income, budget=1000)
    bound = encoder.layout.block("income").scale
    points = x[:20].clone()
    column = encoder.layout.block("income").number
    points[:, column] = bound.snap(bound.encode(torch.tensor(4000.0)))
    steady = oracle.stability(points, torch.arange(20), **CORNERS)
    corners = encoder.decode(corners_of(encoder, points, **CORNERS))
    expected = income(corners).to_numpy().reshape(20, 16).mean(axis=1)
    np.testing.assert_allclose(steady.numpy(), expected)
    assert 0.2 < steady.mean() < 0.8, "half of the corners of a point at the boundary are beyond it"
    far = points.clone()
    far[:, column] = bound.snap(bound.encode(torch.tensor(6000.0)))
    assert (oracle.stability(far, torch.arange(20), **CORNERS) == 1).all()


@pytest.mark.parametrize("wanted", [0, 1])
def test_a_corner_on_the_boundary_counts_for_the_class_that_the_model_decides_for(table, wanted):
    _, oracle = oracle_of(table, lambda frame: frame["income"] * 0 + 0.5, wanted=wanted)
    points, rows = table[2][:5], torch.arange(5)
    # Of two that are alike a model decides for the first; by a margin it decides for none.
    assert (oracle.stability(points, rows, **CORNERS) == 1 - wanted).all()
    assert not oracle.valid(points, rows).any()


def test_corners_stay_on_the_grid_and_leave_zeros_and_missing_values_alone(table):
    frame, encoder, x = table
    encoded = corners_of(encoder, x, **CORNERS)
    pinned = ~encoder.layout.free(encoder.layout.codes(x)).repeat_interleave(16, dim=0)
    assert torch.equal(encoded[pinned], x.repeat_interleave(16, dim=0)[pinned])
    corners = encoder.decode(encoded)
    own = frame.loc[frame.index.repeat(16)].reset_index(drop=True)
    for name in ("age", "income", "gain"):
        step = 100 if name == "income" else 1
        values = corners[name].dropna()
        np.testing.assert_array_equal(values % step, 0)
        assert (
            (corners[name] - own[name]).abs().dropna() <= 0.05 * np.ptp(frame[name].dropna()) + step
        ).all()
    for name in ("job", "school", "owns"):
        pd.testing.assert_series_equal(corners[name], own[name], check_dtype=False)
    assert (corners["gain"].isna() == own["gain"].isna()).all()
    assert ((corners["gain"] == 0) == (own["gain"] == 0)).all()
    assert (corners["income"] != own["income"]).mean() > 0.9
    np.testing.assert_allclose((corners["savings"] - own["savings"]).abs(), 0.05 * np.ptp(frame["savings"]))


def test_corners_are_the_points_own_whatever_the_batch(table):
    _, encoder, x = table
    every = corners_of(encoder, x, **CORNERS).view(len(x), 16, -1)
    some = torch.tensor([31, 2, 2])
    assert torch.equal(corners_of(encoder, x[some], **CORNERS).view(3, 16, -1), every[some])
    assert not torch.equal(corners_of(encoder, x, **CORNERS | {"salt": 3}).view_as(every), every)


def test_corners_are_paid_for(table):
    model, oracle = oracle_of(table, lambda frame: frame["age"] > 0, budget=20)
    first = oracle.stability(table[2][:3], torch.arange(3), **CORNERS)
    second = oracle.stability(table[2][:3], torch.arange(3), **CORNERS)
    assert (first == 1).all()
    assert torch.allclose(second, torch.full((3,), 4 / 16)), "what is not asked does not count as steady"
    assert model.rows == 3 * 20


def test_a_copy_with_another_budget_asks_the_same_model(table):
    model, oracle = oracle_of(table, income, budget=1)
    more = replace(oracle.true_model, budget=5).oracle(oracle.frame, oracle.x, oracle.targets)
    more.valid(table[2][[0] * 9], torch.zeros(9, dtype=torch.long))
    assert model.rows == 5
