"""Trained surrogates decide as their models; the rows they are trained on can be decoded and stay close."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.pipeline import make_pipeline

from plausiflow.errors import InvalidInputError, ShapeError
from plausiflow.models.surrogate import train_surrogate
from plausiflow.models.surrogate_rows import sample_surrogate_rows
from plausiflow.tables.encoder import Encoder
from plausiflow.tables.schema import Schema
from surrogates import COLDEST, answers, answers_at, outcomes, preprocessing, scaled, scores, table

# Surrogates


def trained(model, frame, encoder, size=6000):
    """A surrogate of a model that takes the whole table through a pipeline."""
    x = encoder.encode(frame).x
    own = answers(model, frame)
    classes = own.argmax(axis=1) if own.shape[1] > 1 else (own[:, 0] > np.median(own)).astype(int)
    rows = sample_surrogate_rows(x, torch.from_numpy(classes), encoder.layout, size=size)
    outputs = torch.from_numpy(answers(model, encoder.decode(rows)))
    return train_surrogate(rows, outputs if own.shape[1] > 1 else outputs[:, 0], encoder.layout)


@pytest.mark.parametrize("task", ["two classes", pytest.param("three classes", marks=pytest.mark.slow)])
def test_a_surrogate_decides_as_a_random_forest_on_fresh_rows(task):
    frame = table(n=1500)
    forest = RandomForestClassifier(60, min_samples_leaf=3, random_state=0)
    model = make_pipeline(preprocessing(scaled()), forest).fit(frame, outcomes(frame, task))
    encoder = Encoder(Schema.infer(frame))
    surrogate = trained(model, frame, encoder)
    fresh = table(seed=7, n=1000)
    x, own = encoder.encode(fresh).x, answers(model, fresh)
    clear = np.diff(np.sort(own, axis=1)[:, -2:], axis=1)[:, 0] > 0.1
    for temperature in (COLDEST, 0.01, 0.03):
        agrees = answers_at(surrogate, x, temperature).argmax(axis=1) == own.argmax(axis=1)
        assert agrees.mean() > (0.93 if task == "two classes" else 0.88)
        assert agrees[clear].mean() > 0.95
    assert surrogate.description == f"a surrogate of {300 if task == 'three classes' else 100} trees"


def test_a_surrogate_learns_from_labels_alone():
    frame = table(n=1000)
    encoder = Encoder(Schema.infer(frame))
    rows = sample_surrogate_rows(
        encoder.encode(frame).x, torch.from_numpy(scores(frame) > 9).long(), encoder.layout, size=4000
    )
    labels = torch.from_numpy(scores(encoder.decode(rows)) > 9).long()
    surrogate = train_surrogate(rows, torch.nn.functional.one_hot(labels).double(), encoder.layout)
    fresh = table(seed=7, n=1000)
    decided = answers_at(surrogate, encoder.encode(fresh).x, 0.01).argmax(axis=1)
    assert (decided == (scores(fresh) > 9)).mean() > 0.9


def test_a_surrogate_of_a_regressor_is_close_in_its_units():
    frame = table(n=1500)
    forest = RandomForestRegressor(40, min_samples_leaf=3, random_state=0)
    model = make_pipeline(preprocessing(scaled()), forest).fit(frame, outcomes(frame, "regression"))
    encoder = Encoder(Schema.infer(frame))
    surrogate = trained(model, frame, encoder)
    fresh = table(seed=7, n=1000)
    own = answers(model, fresh)
    error = answers_at(surrogate, encoder.encode(fresh).x, 0.01) - own
    assert surrogate.n_outputs == 1
    assert (error**2).mean() < 0.04 * own.var()


def test_a_surrogate_on_a_grid_is_as_sure_at_each_value_as_with_hard_splits():
    frame = pd.DataFrame({"count": np.arange(2000) % 9})
    encoder = Encoder(Schema.infer(frame, kinds={"count": "integer"}))
    x = encoder.encode(frame).x
    proba = torch.where(x > 0.5, torch.tensor([0.1, 0.9]), torch.tensor([0.8, 0.2]))
    surrogate = train_surrogate(x, proba, encoder.layout)
    np.testing.assert_allclose(answers_at(surrogate, x, 0.005), proba.numpy(), atol=0.01)


def test_wrong_outputs_are_named():
    frame = table(n=50)
    encoder = Encoder(Schema.infer(frame))
    x = encoder.encode(frame).x
    with pytest.raises(ShapeError, match=r"\(n, k\) or \(n,\); got"):
        train_surrogate(x, torch.ones(49, 2), encoder.layout)
    with pytest.raises(InvalidInputError, match="probabilities"):
        train_surrogate(x, -torch.ones(50, 2), encoder.layout)
    with pytest.raises(ShapeError, match="one for each row"):
        sample_surrogate_rows(x, torch.ones(49), encoder.layout, size=10)
    with pytest.raises(InvalidInputError, match="0 rows"):
        sample_surrogate_rows(x[:0], torch.ones(0), encoder.layout, size=10)


# The rows they are trained on


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 400), n=st.integers(1, 150))
def test_sampled_rows_can_be_decoded_and_come_back_the_same(seed, size, n):
    frame = table(seed=seed, n=200)
    encoder = Encoder(Schema.infer(frame))
    x = encoder.encode(frame.iloc[:n]).x
    classes = torch.from_numpy(scores(frame) > 9)[:n].long()
    rows = sample_surrogate_rows(x, classes, encoder.layout, size=size, random_state=seed)
    assert rows.shape == (size, x.shape[1])
    again = encoder.encode(encoder.decode(rows))
    assert again.usable.all()
    torch.testing.assert_close(again.x, rows, rtol=0, atol=1e-9)
    assert torch.equal(encoder.layout.codes(again.x), encoder.layout.codes(rows))
    assert torch.equal(rows, sample_surrogate_rows(x, classes, encoder.layout, size=size, random_state=seed))
    assert rows[:, encoder.layout.numbers].min() >= 0
    assert rows[:, encoder.layout.numbers].max() <= 1


def test_sampled_rows_depend_on_the_seed_and_hold_the_rows():
    frame = table()
    encoder = Encoder(Schema.infer(frame))
    x = encoder.encode(frame).x
    classes = torch.from_numpy(scores(frame) > 9).long()
    first, second = (
        sample_surrogate_rows(x, classes, encoder.layout, size=2000, random_state=seed) for seed in (0, 1)
    )
    assert not torch.equal(first, second)
    assert torch.equal(first[:400], x)
    few = sample_surrogate_rows(x, classes, encoder.layout, size=300)
    assert len(few[:100].unique(dim=0)) == 100


def test_sampled_rows_never_enter_or_leave_a_missing_cell():
    frame = table(missing=0.5)
    encoder = Encoder(Schema.infer(frame))
    missing = frame["rate"].isna() & frame["job"].isna()
    present = frame["rate"].notna() & frame["job"].notna()
    classes = torch.from_numpy(scores(frame) > 9).long()
    for chosen, expected in ((missing, True), (present, False)):
        x = encoder.encode(frame[chosen]).x
        rows = encoder.decode(sample_surrogate_rows(x, classes[: len(x)], encoder.layout, size=500))
        assert (rows[["rate", "job"]].isna() == expected).all(axis=None)
    mixed = encoder.decode(sample_surrogate_rows(encoder.encode(frame).x, classes, encoder.layout, size=500))
    assert 0.3 < mixed["rate"].isna().mean() < 0.7


def test_noise_has_three_sizes_and_leaves_rows_outside_where_they_are():
    frame = pd.DataFrame({"a": np.linspace(0, 1, 300) ** 1.1, "b": np.linspace(5, 7, 300) ** 1.3})
    encoder = Encoder(Schema.infer(frame))
    x = torch.full((1, 2), 0.5)
    rows = sample_surrogate_rows(x, torch.zeros(1), encoder.layout, size=9001)
    moved = rows[1:] - 0.5
    for i, size in enumerate((0.01, 0.03, 0.08)):
        assert moved[i::3].std().item() == pytest.approx(size, rel=0.05)
    outside = sample_surrogate_rows(torch.tensor([[1.7, 0.5]]), torch.zeros(1), encoder.layout, size=500)
    assert outside[:, 0].max() <= 1.7
    assert (outside[:, 0] == 1.7).float().mean() > 0.4


def test_other_points_lie_on_segments_to_one_of_the_ten_nearest_of_another_class():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"])
    encoder = Encoder(Schema.infer(frame))
    x, classes = encoder.encode(frame).x, torch.from_numpy(rng.integers(0, 3, 60))
    between = sample_surrogate_rows(x, classes, encoder.layout, size=360)[60 + 150 :]
    assert len(between) == 150
    distance = torch.cdist(x, x)
    for point in between:
        ends = x - point  # two rows on either side of the point, in one line with it
        cross = (ends[:, None, 0] * ends[None, :, 1] - ends[:, None, 1] * ends[None, :, 0]).abs()
        opposite = (ends[:, None] * ends[None]).sum(dim=-1) <= 0
        candidates = ((cross < 1e-12) & opposite & (classes[:, None] != classes)).nonzero()
        near = [
            (distance[i][classes != classes[i]] < distance[i, j]).sum() < 10 for i, j in candidates.tolist()
        ]
        assert any(near)


def test_rows_of_one_class_only_get_noise():
    frame = table(n=60)
    encoder = Encoder(Schema.infer(frame))
    x = encoder.encode(frame).x
    rows = sample_surrogate_rows(x, torch.zeros(60), encoder.layout, size=240)
    assert rows.shape == (240, x.shape[1])
