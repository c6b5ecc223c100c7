"""Group methods of other papers on planted truths, the comparison of costs, and the commands."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from benchmarking import invoke, read_json
from plausiflow import GMM, Explainer
from plausiflow_bench.groups import burden, methods, stability, study
from plausiflow_bench.groups.methods import _medoids, globe_ce, group_optimisation, k_medoids
from plausiflow_bench.harness.selection import ignore_plausibility_warnings

NAMES = ["a", "b", "c"]


@pytest.fixture(scope="module")
def case():
    """Three numbers, of which the decision reads the first: it must exceed the half."""
    rng = np.random.default_rng(0)
    x = pd.DataFrame(rng.uniform(size=(300, 3)), columns=NAMES)
    x.iloc[0], x.iloc[1] = 0.0, 1.0
    y = np.where(x["a"] > 0.5, "yes", "no")
    model = LogisticRegression().fit(x, y)
    model.coef_[:], model.intercept_[:] = [[20.0, 0.0, 0.0]], -10.0
    explainer = Explainer(
        model, density=GMM(components=1), plausibility=0.05, confidence=None, judges=0, learn_rules=False,
        margin=0.0, kinds=dict.fromkeys(NAMES, "continuous"), special={name: [] for name in NAMES},
    )  # fmt: skip
    with ignore_plausibility_warnings():
        explainer.fit(x, y, verbose=False)
    return explainer, x[x["a"] < 0.45].iloc[:20].reset_index(drop=True)


@pytest.fixture(autouse=True)
def brief(monkeypatch):
    """Few directions and steps."""
    monkeypatch.setattr(methods, "SAMPLED", 60)
    monkeypatch.setattr(methods, "STEPS", 200)


@pytest.fixture(scope="module")
def task(case):
    return study.task_of(*case)[1]


def test_globe_ce_finds_a_planted_direction(task):
    x_cf, group = globe_ce(task, 1, seed=0)
    assert (group == 0).all()
    moves = x_cf - task.x
    unit = moves / moves.norm(dim=1, keepdim=True)
    assert float((unit - unit[0]).abs().max()) < 1e-6  # one direction for all
    assert float(unit[0, 0]) > 0.9  # along the only feature that the decision reads
    assert (task.model_value(x_cf, torch.arange(len(x_cf))) >= 0).all()


def test_globe_ce_scales_each_row_as_little_as_its_steps_allow(task):
    x_cf, _ = globe_ce(task, 1, seed=0)
    moves = (x_cf - task.x)[:, 0]
    needed = 0.5 - task.x[:, 0]
    assert (moves >= needed - 1e-6).all()
    assert (moves <= needed + 0.07).all()  # a step of the sizes


def test_globe_ce_never_leaves_the_box(task):
    x_cf, group = globe_ce(task, 3, seed=1)
    assert ((x_cf[group >= 0] >= 0) & (x_cf[group >= 0] <= 1)).all()


def test_medoids_of_separate_clusters_are_one_of_each():
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    points = torch.from_numpy(np.repeat(centres, 20, axis=0) + 0.1 * rng.normal(size=(60, 2)))
    best = min(
        (_medoids(points, 3, np.random.default_rng(seed)) for seed in range(10)),
        key=lambda chosen: float(torch.cdist(points, points[chosen]).amin(dim=1).sum()),
    )
    assert sorted((best // 20).tolist()) == [0, 1, 2]


def test_a_row_takes_the_cheapest_medoid_that_helps_it(task):
    changes = torch.tensor([[0.6, 0.0, 0.0], [0.2, 0.0, 0.0]]).double()
    x_cf, group = k_medoids(task, changes, torch.ones(2, dtype=torch.long), 2, seed=0)
    moves = x_cf - task.x
    small = (task.x[:, 0] + 0.2 > 0.5) & (task.x[:, 0] + 0.6 > 0.5)
    assert small.any()
    torch.testing.assert_close(moves[small, 0], torch.full((int(small.sum()),), 0.2).double())
    large = ~small & (task.x[:, 0] + 0.6 <= 1)
    torch.testing.assert_close(moves[large, 0], torch.full((int(large.sum()),), 0.6).double())
    assert len(group.unique()) == 2


def test_group_optimisation_moves_all_rows_along_its_shared_vector(task):
    x_cf, group = group_optimisation(task, 1, seed=0)
    assert (group == 0).all()
    moves = x_cf - task.x
    inside = ((x_cf > 1e-6) & (x_cf < 1 - 1e-6)).all(dim=1)
    unit = moves[inside] / moves[inside].norm(dim=1, keepdim=True)
    assert float((unit - unit[0]).abs().max()) < 1e-4
    valid = task.model_value(x_cf, torch.arange(len(x_cf))) >= -1e-3
    assert float(valid.double().mean()) > 0.7


def test_covered_rows_of_other_methods_are_counted_by_the_model_itself(case):
    explainer, rows = case
    figures, cost = study._other(explainer, rows, 2, "globe_ce", 0)
    assert np.isfinite(cost).mean() == pytest.approx(figures["covered"])
    assert figures["covered"] <= figures["valid"] <= 1
    assert cost[np.isfinite(cost)].mean() == pytest.approx(figures["cost"])


def test_costs_are_compared_on_the_rows_that_both_help():
    inf = np.inf
    ours, other = np.array([1.0, 2.0, 6.0, inf]), np.array([2.0, inf, 2.0, 2.0])
    figures = study.compared_costs(ours, other)
    assert figures == {"ours_at_cost": 0.75, "ours_cost": 3.0, "ours_on_rows": 3.5}
    nobody = study.compared_costs(ours, np.full(4, inf))
    assert np.isnan(nobody["ours_at_cost"])


def test_our_actions_keep_the_mean_cost_of_the_other_method(case):
    explainer, rows = case
    needing = int((explainer.predict(rows) == "no").sum())
    other = np.full(needing, np.inf)
    other[:3] = 0.2
    figures = study._within_cost(explainer, rows, 2, other)
    assert 0 < figures["ours_cost"] <= 0.2 + 1e-9
    # The decision needs 0.5 - a; the cheapest rows with that mean can be helped, but for the size of steps.
    needed = np.sort(0.5 - rows["a"].to_numpy())
    possible = int((np.cumsum(needed) / np.arange(1, needing + 1) <= 0.2).sum())
    assert possible - 3 <= round(figures["ours_at_cost"] * needing) <= possible


def test_reasons_agree_where_all_explainers_name_the_same_set():
    found = [[["a", "b"], ["a"], [], ["c"]], [["b", "a"], ["b"], [], ["c"]]]
    figures = stability.agreement(found)
    assert figures["rows"] == 3
    assert figures["same"] == pytest.approx(2 / 3)
    assert figures["same_first"] == pytest.approx(1 / 3)


def test_planted_tables_cost_the_group_more_and_null_tables_do_not():
    train, test = burden.load_table("loans").split(300, 60)
    model = LogisticRegression(max_iter=1000).fit(train.x[["income", "credit_score"]], train.y)
    explainer = Explainer(model, density=GMM(), confidence=None, judges=0, learn_rules=False)
    with ignore_plausibility_warnings():
        explainer.fit(train.x[["income", "credit_score"]], train.y, verbose=False)
    pool = explainer.explain(test.x[["income", "credit_score"]], "granted", diagnose=False, verbose=False)
    null, planted = (burden._table(pool, 400, extra, seed=3) for extra in (0.0, 0.2))
    before, after = (audit.differences.loc[("group=a", "cost"), "mean"] for audit in (null, planted))
    assert after == pytest.approx(1.2 * before)
    same = [audit.differences.loc[("group=b", "cost"), "mean"] for audit in (null, planted)]
    assert same[0] == pytest.approx(same[1])


@pytest.mark.slow
def test_the_audit_finds_a_planted_burden_and_is_silent_on_null_tables():
    null, planted = burden.run(tables=200, rows=1000)
    assert null["alarms"] <= 0.05
    assert planted["found"] >= 0.9


@pytest.mark.slow
def test_few_actions_cover_law_as_the_page_says():
    selection = study.GroupSelection(
        numbers=("law:lr",), defaults=(), tables=(), methods=("plausiflow",), actions=(20, 34), rows=444
    )
    few, more = study.run(selection)
    assert few["covered"] >= 0.90
    assert more["covered"] >= 0.98
    assert more["l2"] <= 0.29
    assert few["rules_broken"] == more["rules_broken"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lr", "mlp"])
def test_ten_actions_of_each_direction_help_most_rows_of_heloc(kind):
    selection = study.GroupSelection(
        numbers=(f"heloc:{kind}",), defaults=(), tables=(), methods=("plausiflow",), actions=(20,), rows=300
    )
    (row,) = study.run(selection)
    assert row["covered"] >= 0.80
    assert row["needed_shared"] == 1.0
    assert row["rules_broken"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["german_credit", "adult"])
def test_ten_actions_help_more_people_than_other_methods_at_no_higher_cost(name):
    selection = study.GroupSelection(
        numbers=(), defaults=(), tables=(f"{name}:boosted",), methods=("globe_ce", "k_medoids"),
        actions=(10,), rows=100, train=2000,
    )  # fmt: skip
    for row in study.run(selection):
        assert row["ours_at_cost"] > row["covered"]
        assert row["ours_cost"] <= row["cost"] + 1e-9


@pytest.mark.slow
def test_the_commands_write_rows_and_a_page(tmp_path):
    page, json = tmp_path / "page.md", tmp_path / "rows.json"
    page.write_text(f"{stability.MARK}\n<!-- end -->\n")
    done = invoke("benchmark", "reasons", "--cases", "loans:lr", "--rows", 12, "--seeds", 2,
                  "--json", json, "--page", page)  # fmt: skip
    assert done.exit_code == 0, done.output
    rows = read_json(json)
    assert [row["part"] for row in rows] == ["seed", "rows"]
    assert rows[0]["same"] >= 0.95
    assert "| seed | loans | lr |" in page.read_text()


def test_a_row_that_cannot_be_read_is_left_out_of_all_comparisons(case):
    explainer, rows = case
    broken = rows.astype(object)
    broken.iloc[2, 0] = "many"
    _, ours = study._ours(explainer, broken, 2, "auto")
    _, other = study._other(explainer, broken, 2, "globe_ce", 0)
    assert len(ours) == len(other) == len(rows) - 1
