"""Distances, weights and prices: closed forms, linear programs and brute force."""

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.stats import median_abs_deviation

from plausiflow.constraints import CompiledRules, Price, rule_from_dict
from plausiflow.errors import InvalidInputError
from plausiflow.search.costs import CostModel, absolute_deviations
from plausiflow.search.mixed import MixedSearch
from plausiflow.tables.encoder import Encoder
from plausiflow.tables.layout import Block, Layout, Scale
from plausiflow.tables.schema import Schema
from searching import UNIT, applicants, linear_validity, setup, task_of

NUMBERS = Layout(tuple(Block(name=f"n{j}", number=j, scale=UNIT) for j in range(6)))


def cost_of(frame, after, **settings):
    """The cost of changing the first row of a table into another."""
    encoder = Encoder(Schema.infer(frame))
    rows = [encoder.encode(part).x for part in (frame.iloc[:1], after)]
    layout = encoder.layout
    deviations = absolute_deviations(layout, encoder.encode(frame).x)
    names, given = [block.name for block in layout.blocks], settings.pop("weights", {})
    weights = torch.tensor([given.get(name, 1.0) for name in names])
    model = CostModel(layout=layout, weights=weights, deviations=deviations, **settings)
    return float(model(*((x, layout.codes(x)) for x in rows)))


# ---------------------------------------------------------------- formulas


@pytest.mark.parametrize("distance", ["l2", "l1", "l1-mad"])
@pytest.mark.parametrize("feature", ["age", "savings", "job", "school", "owns", "gain"])
def test_the_weight_of_a_feature_multiplies_the_cost_of_its_change(distance, feature):
    made = setup(applicants(120))
    layout, x = made.encoder.layout, made.x
    place = [block.name for block in layout.blocks].index(feature)
    columns = layout.blocks[place].columns
    x_cf = x[:1].expand(len(x), -1).clone()
    x_cf[:, columns] = x[:, columns]  # one feature changes
    weights = torch.ones(len(layout.blocks), dtype=torch.float64)
    deviations = absolute_deviations(layout, x)
    sides = [(rows, layout.codes(rows)) for rows in (x[:1].expand(len(x), -1), x_cf)]
    plain = CostModel(layout=layout, weights=weights, distance=distance, deviations=deviations)
    weights = weights.clone()
    weights[place] = 4.0
    torch.testing.assert_close(replace(plain, weights=weights)(*sides), 4 * plain(*sides))
    assert (plain(*sides) > 0).any()


def test_deviations_are_those_of_scipy_in_the_units_of_the_table():
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"a": draw.normal(50, 9, 400), "b": np.round(np.exp(draw.normal(9, 2, 400)), 2)})
    encoder = Encoder(Schema.infer(frame))
    found = absolute_deviations(encoder.layout, encoder.encode(frame).x)
    expected = [median_abs_deviation(frame[name]) for name in frame]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)


def test_a_number_with_mostly_equal_values_is_divided_by_its_mean_deviation():
    layout = Layout((Block(name="n", number=0, scale=Scale(minimum=0.0, maximum=10.0)),))
    x = torch.cat([torch.full((8, 1), 0.5), torch.ones(2, 1)])
    assert absolute_deviations(layout, x).tolist() == pytest.approx([1.0])  # |10 - 5| for two of ten rows
    assert absolute_deviations(layout, x[:8]).tolist() == [1.0]


def test_the_cost_in_l1_mad_is_that_of_a_hand_calculation():
    draw = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "age": draw.normal(40, 10, 300),
            "wealth": np.exp(draw.normal(9, 2, 300)),
            "job": draw.choice(["clerk", "nurse", "chef"], 300),
        }
    )
    frame.loc[0, "job"] = "clerk"
    after = frame.iloc[:1].assign(age=frame["age"][0] - 3, wealth=frame["wealth"].median(), job="chef")
    moved = abs(after[["age", "wealth"]].iloc[0] - frame[["age", "wealth"]].iloc[0]).to_numpy(float)
    expected = (moved / median_abs_deviation(frame[["age", "wealth"]], axis=0)).sum() + 1
    assert cost_of(frame, after, distance="l1-mad") == pytest.approx(expected, rel=1e-9)
    weighted = cost_of(frame, after, distance="l1-mad", weights={"job": 3.0})
    assert weighted == pytest.approx(expected + 2, rel=1e-9)


@given(st.integers(0, 10**6), st.sampled_from(["l2", "l1", "l1-mad"]))
def test_pairwise_costs_are_the_costs_of_the_pairs(seed, distance):
    made = setup(applicants(40), seed=seed % 7)
    layout, x = made.encoder.layout, made.x
    draw = torch.Generator().manual_seed(seed)
    weights = 0.2 + torch.rand(len(layout.blocks), generator=draw, dtype=torch.float64)
    first = next(block for block in layout.blocks if block.nominal)
    size = len(first.levels)
    model = CostModel(
        layout=layout,
        weights=weights,
        distance=distance,
        deviations=absolute_deviations(layout, x),
        prices={first.name: torch.rand(size, size, generator=draw, dtype=torch.float64) + 0.1},
    )
    rows, others = x[:7], x[7:]
    found = model.pairwise((rows, layout.codes(rows)), (others, layout.codes(others)), layout.blocks)
    i, j = torch.cartesian_prod(torch.arange(7), torch.arange(len(others))).T
    codes = layout.codes(x)
    expected = model((rows[i], codes[:7][i]), (others[j], codes[7:][j]))
    torch.testing.assert_close(found.flatten(), expected, rtol=1e-9, atol=1e-9)
    alone = model.by_feature((rows[i], codes[:7][i]), (others[j], codes[7:][j]))
    assert ((alone.sum(dim=1) >= expected - 1e-9) | (distance != "l2")).all()
    if distance != "l2":
        torch.testing.assert_close(alone.sum(dim=1), expected)


# ---------------------------------------------------------------- the optimum


def cheapest(x, normal, bias, units, free=None, steps=None):
    """The smallest L1 cost of a valid point between zero and one, by a mixed-integer program.

    Numbers with a step change by multiples of it; numbers that are not free stay.
    """
    step = np.zeros(len(x)) if steps is None else steps
    scale = np.where(step > 0, step, 1.0)
    most = np.concatenate([1 - x, x]) / np.tile(scale, 2)
    most = most * np.tile(np.ones(len(x)) if free is None else free, 2) + 1e-9
    sides = np.concatenate([normal * scale, -normal * scale])
    found = milp(
        np.tile(units * scale, 2),
        constraints=LinearConstraint(sides[None], lb=-(x @ normal + bias)),
        bounds=Bounds(0, most),
        integrality=np.tile(step > 0, 2),
    )
    return np.inf if found.fun is None else found.fun


@pytest.mark.parametrize("seed", range(6))
def test_the_l1_optimum_of_a_linear_model_is_that_of_the_linear_program(seed):
    draw = torch.Generator().manual_seed(seed)
    x = torch.rand(24, 6, generator=draw)
    normal, units = torch.randn(6, generator=draw), 0.3 + 2 * torch.rand(6, generator=draw)
    bias = 0.1 * normal.abs().sum() - normal.clamp_min(0).sum()  # few points are valid
    validity = linear_validity(normal, bias)
    task = task_of(NUMBERS, x, units.tolist(), validity=validity, costs={"distance": "l1"})
    found = task.solve(task.candidates(torch.arange(24), x))
    best = [cheapest(row, normal.numpy(), float(bias), units.numpy()) for row in x.numpy()]
    ratio = found.cost.numpy() / np.array(best)
    assert (ratio > 1 - 1e-6).all()
    assert ratio.mean() < 1.02
    assert ratio.max() < 1.1


@pytest.mark.parametrize("size", [1, 2, 7])
def test_in_l1_a_row_gets_the_same_numbers_in_a_batch_of_any_size(size):
    draw = torch.Generator().manual_seed(3)
    x = torch.rand(28, 6, generator=draw)
    normal, units = torch.randn(6, generator=draw), 0.3 + 2 * torch.rand(6, generator=draw)

    def validity(x_cf, _):
        return x_cf @ normal + 0.6 * torch.sin(5 * x_cf).sum(dim=1) - 2.0

    task = task_of(NUMBERS, x, units.tolist(), validity=validity, costs={"distance": "l1"})
    together = task.solve(task.candidates(torch.arange(28), x))
    assert int(torch.isfinite(together.cost).sum()) > 20
    for rows in torch.arange(28).split(size):
        some = task.solve(task.candidates(rows, x[rows]))
        assert torch.equal(some.x, together.x[rows])
        assert torch.equal(some.cost, together.cost[rows])


def test_where_one_feature_is_enough_the_l1_optimum_changes_only_that_one():
    x = torch.full((1, 6), 0.2)
    normal = torch.tensor([1.0, 0.9, 0.8, 0.5, 0.3, 0.1])
    task = task_of(NUMBERS, x, [1.0] * 6, validity=linear_validity(normal, -(x @ normal) - 0.4))
    l1 = replace(task, cost_model=replace(task.cost_model, distance="l1"))
    squared, found = (each.solve(each.candidates(torch.tensor([0]), x)) for each in (task, l1))
    assert int(((squared.x - x).abs() > 1e-6).sum()) == 6
    assert torch.nonzero((found.x - x)[0].abs() > 1e-6).flatten().tolist() == [0]
    assert float(found.cost) == pytest.approx(0.4, abs=2e-3)


@pytest.mark.parametrize("distance", ["l1", pytest.param("l1-mad", marks=pytest.mark.slow)])
def test_with_categories_no_combination_of_levels_is_much_cheaper(distance):
    """Every combination of levels, each with its mixed-integer program on the grids of the columns."""
    frame = applicants(160)
    noise = np.random.default_rng(5).uniform(0, 0.9, 160)
    frame = frame.assign(age=frame["age"] + noise, income=frame["income"] + noise)  # only "gain" has a grid
    made = setup(frame, bar=1e6, worth=0.0)
    layout = made.encoder.layout
    model = replace(made.engine.cost_model, distance=distance, deviations=absolute_deviations(layout, made.x))
    made = replace(made, engine=replace(made.engine, cost_model=model))
    x = made.x[:6]
    task = made.task(x)
    found = MixedSearch(max_extra_cost=0.0).run(task, made.engine.bank)
    weight, bias = made.classifier.weight[1], made.classifier.bias[1]
    units = model.number_units(layout.numbers).numpy()
    steps = np.array([b.scale.encoded_step for b in layout.blocks if b.number is not None])
    ratios = []
    for i, cost in zip(found.rows.tolist(), found.cost.tolist(), strict=True):
        sign = 1.0 if int(task.y_target[i]) else -1.0
        best = np.inf
        for codes in product(*(range(len(block.levels)) for block in layout.with_levels)):
            point = layout.with_codes(x[i : i + 1], torch.tensor([codes]))
            own = float(task.costs(point, torch.tensor([i])))
            free = layout.free(torch.tensor([codes]))[0, layout.numbers]
            new = free & ~layout.free(task.codes[i : i + 1])[0, layout.numbers]  # costs nothing
            numbers = point[0, layout.numbers].numpy()
            normal = sign * weight[layout.numbers].numpy()
            rest = float(sign * (point[0] @ weight + bias)) - float(numbers @ normal)
            units_now = np.where(new.numpy(), 0.0, units)
            best = min(best, own + cheapest(numbers, normal, rest, units_now, free.double().numpy(), steps))
        ratios.append(cost / best)
    assert len(ratios) == 6
    assert min(ratios) > 1 - 1e-6
    assert np.mean(ratios) < 1.05


# ---------------------------------------------------------------- prices

JOBS = pd.DataFrame({"job": ["clerk", "manager", "chef"] * 20, "pay": np.arange(60.0)})


def test_a_price_replaces_the_cost_of_one_move_in_one_direction():
    price = Price("job", {("clerk", "manager"): 2.5})
    schema = Schema.infer(JOBS)
    rules = CompiledRules([price], schema, Encoder(schema).layout)
    for distance in ("l2", "l1", "l1-mad"):
        costs = {
            to: cost_of(JOBS, JOBS.iloc[:1].assign(job=to), distance=distance, prices=rules.prices)
            for to in ("clerk", "manager", "chef")
        }
        assert costs == {"clerk": 0.0, "manager": 2.5, "chef": 1.0}
    back = cost_of(JOBS[1:], JOBS.iloc[1:2].assign(job="clerk"), prices=rules.prices)
    assert back == 1.0
    weighted = cost_of(JOBS, JOBS.iloc[:1].assign(job="manager"), prices=rules.prices, weights={"job": 2.0})
    assert weighted == 5.0


def test_prices_from_a_table_and_from_pairs_are_the_same_rule():
    table = pd.DataFrame(
        [[np.nan, 2.0, 1.5], [0.5, 0, np.nan]],
        index=["clerk", "manager"],
        columns=["clerk", "manager", "chef"],
    )
    pairs = {("clerk", "manager"): 2.0, ("clerk", "chef"): 1.5, ("manager", "clerk"): 0.5}
    assert Price("job", table) == Price("job", pairs)
    assert rule_from_dict(Price("job", pairs).to_dict()) == Price("job", pairs)


@pytest.mark.parametrize(
    ("prices", "message"),
    [
        ({}, "takes a mapping"),
        (3, "takes a mapping"),
        ({"clerk": 2.0}, "pairs of levels"),
        ({("clerk", "manager"): 0}, "positive numbers"),
        ({("clerk", "manager"): -1.0}, "positive numbers"),
        ({("clerk", "manager"): "2"}, "positive numbers"),
        ({("clerk", "clerk"): 1.0}, "another level"),
    ],
)
def test_a_wrong_price_is_refused(prices, message):
    with pytest.raises(InvalidInputError, match=message):
        Price("job", prices)


def test_a_price_of_a_number_or_an_unknown_level_does_not_fit_the_table():
    schema = Schema.infer(JOBS)
    with pytest.raises(InvalidInputError, match="use `weights`"):
        CompiledRules([Price("pay", {(1.0, 2.0): 3.0})], schema, Encoder(schema).layout)
    with pytest.raises(InvalidInputError, match="did you mean 'manager'"):
        CompiledRules([Price("job", {("clerk", "manger"): 3.0})], schema, Encoder(schema).layout)
