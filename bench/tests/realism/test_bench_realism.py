"""The study of realism on small tables: controls, planted truths, grids, and the command."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

from benchmarking import invoke, read_json
from plausiflow.datasets import contacts_table, orders_table
from plausiflow.densities import KDE
from plausiflow.errors import InvalidInputError
from plausiflow.explainer import Explainer
from plausiflow.models import LinearClassifier
from plausiflow_bench.realism import measures, study
from plausiflow_bench.tables import cases
from plausiflow_bench.tables.cases import table_rules


@pytest.fixture(scope="module")
def case():
    """Orders with a linear model and a kernel density."""
    train, test = orders_table(n=900).split(700, 200)
    explainer = Explainer(
        LinearClassifier(), constraints=table_rules(train), density=KDE(), confidence=None, judges=0
    )
    return measures.RealismCase(train=train, test=test, explainer=explainer.fit(train.x, train.y))


@pytest.mark.slow
def test_real_rows_are_a_control(case):
    row = measures.judge(case, case.test.x, case.classes(case.test.y))
    assert row["auc"] == pytest.approx(0.5, abs=0.08)
    assert row["outliers"] <= 0.12
    assert row["auc_spread"] < 0.06


def test_matched_rows_are_plausible_real_rows_as_narrowly_decided(case):
    outcomes = np.repeat([0, 1], 30)
    narrow = measures.judge_matched_rows(case, np.full(60, 0.5), outcomes)
    assert narrow["compared"] == 60
    assert 0.5 < narrow["auc"] <= 1
    # Only rows that are certain enough are left, and each is used once.
    certain = measures.judge_matched_rows(case, np.full(60, 1.0), outcomes)
    assert certain["compared"] < 60


def test_outliers_of_immutable_values_are_those_of_real_rows_that_get_them(case):
    rows, outcomes = case.test.x.iloc[:20], case.classes(case.test.y)[:20]
    share = measures.outliers_of_immutable(case, rows, outcomes)
    one_by_one = []
    for i, outcome in enumerate(outcomes):
        real = case.train.x[case.classes(case.train.y) == outcome]
        moved = real.assign(**{name: rows.iloc[i][name] for name in case.train.immutable})
        one_by_one.append(case.judge.outliers(moved, np.full(len(moved), outcome)).mean())
    assert share == pytest.approx(np.mean(one_by_one), abs=0.05)


def test_rows_that_break_a_truth_or_a_grid_are_counted(case):
    before = case.test.x.iloc[:50]
    after = before.assign(total=before["total"] + 1.0)
    assert measures.truths_broken(case.train.truths, before, after).all()
    assert not measures.truths_broken(case.train.truths, before, before).any()
    after = before.assign(credit_limit=before["credit_limit"] + 7)
    assert measures.off_grid(case.train.x, before, after).all()
    assert not measures.off_grid(case.train.x, before, before.assign(credit_limit=2500)).any()


@pytest.mark.parametrize(
    ("values", "step"),
    [([0, 5, 10, 15], 5), ([0.5, 1.0, 2.5], 0.5), ([1, 2, 3, 4], 1), ([0.123456, 0.9871234], 0)],
)
def test_the_usual_step_is_the_largest_that_nearly_all_values_keep(values, step):
    assert measures.usual_step(np.array(values * 100, dtype=float)) == pytest.approx(step)


def test_what_is_learned_is_scored_by_rows_that_break_it(case):
    assert 0 <= measures.recovered_truths(case) <= 1
    plain = contacts_table(n=300).split(200, 50)[0]
    assert any(truth.kind == "equivalence" for truth in plain.truths)


def test_shuffled_columns_have_hardly_any_rule(case):
    assert measures.rules_on_noise(case) <= 1


def test_the_given_rules_are_not_learned_ones(case):
    before = case.test.x.iloc[:20]
    after = before.assign(customer_years=before["customer_years"] + 0.5)
    given, learned = case.violations(before, after)
    assert given.all()
    assert not learned.any()


def test_unknown_models_are_refused():
    with pytest.raises(InvalidInputError, match="`models` must be among mlp, hgb; got 'svm'"):
        study.RealismSelection(models=("svm",))


@pytest.fixture
def small(monkeypatch):
    table = contacts_table(n=400)
    small = partial(Explainer, density=KDE(), confidence=None)
    for module in (cases, study):
        monkeypatch.setattr(module, "load_table", lambda name: pd_replace(table))
        monkeypatch.setattr(module, "Explainer", small)
    monkeypatch.setattr(cases, "fit_case", cases.fit_case.__wrapped__)
    monkeypatch.setattr(study, "fit_case", cases.fit_case)
    monkeypatch.setattr(study, "_case", study._case.__wrapped__)


def pd_replace(table):
    from dataclasses import replace

    return replace(table, study=(300, 40))


@pytest.mark.slow
def test_the_command_prints_and_writes_rows_and_continues(small, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"# Realism\n{study.MARK}\n<!-- end -->\n")
    arguments = (
        "benchmark", "realism", "--datasets", "contacts", "--models", "mlp", "--no-peers", "--rows", 20,
        "--folder", tmp_path / "run", "--json", tmp_path / "rows.json", "--page", page,
    )  # fmt: skip
    done = invoke(*arguments)
    assert done.exit_code == 0, done.output
    rows = pd.DataFrame(read_json(tmp_path / "rows.json")).set_index("method")
    assert list(rows.index) == ["real", "real_matched", "plausiflow"]
    assert rows.loc["plausiflow", "rules_broken"] == 0
    assert 0 <= rows.loc["plausiflow", "auc"] <= 1
    assert "| contacts | mlp | plausiflow |" in page.read_text()
    assert "3 finished earlier" in invoke(*arguments).output
