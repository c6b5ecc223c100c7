"""Numbers in the report are those of the result, and sums are those of pandas."""

import numpy as np
import pandas as pd
import pytest

from plausiflow.explanations import Explanations
from plausiflow.report import charts
from plausiflow.report.rendering import environment
from reporting import FIGURES, Page, page_of


def test_changes_in_the_page_are_those_of_the_result(many, page):
    data = page.data
    changes, rows, answers = data["changes"], data["rows"], data["answers"]
    found = []
    for i in range(len(many)):
        for rank, a in enumerate(range(*rows["first"][i : i + 2]), start=1):
            for c in range(*answers["first"][a : a + 2]):
                name = many.rows.columns[changes["column"][c]]
                found.append((int(rows["label"][i]), rank, name, changes["from"][c], changes["to"][c]))
    assert found == list(many.changes.iloc[:, :5].itertuples(index=False, name=None))


def test_figures_in_the_page_are_those_of_the_result(many, page):
    for name in FIGURES:
        assert page.data["answers"][name] == many.figures[name].tolist()
    assert page.data["rows"]["probability"] == many.verdicts["probability"].tolist()
    assert page.data["rows"]["status"] == many.verdicts["status"].tolist()
    assert page.data["rows"]["sentence"] == many.sentences.tolist()


def test_every_value_of_every_row_is_written(many, page):
    columns = {column["name"]: column for column in page.data["columns"]}
    assert list(columns) == ["net_income", "rate", "job", "size", "owner"]
    written = {name: [column["texts"][code] for code in column["codes"]] for name, column in columns.items()}
    assert written["net_income"] == [f"{value:,}" for value in many.rows["net_income"]]
    assert written["rate"] == [f"{value:.3f}" for value in many.rows["rate"]]
    assert written["job"] == many.rows["job"].tolist()
    assert written["owner"] == many.rows["owner"].map({True: "yes", False: "no"}).tolist()
    assert len(columns["job"]["texts"]) == 3


def test_moves_are_in_ranges_of_the_feature(page):
    changes = page.data["changes"]
    ranks = {"S": 0, "M": 1, "L": 2}
    for j, before, after, move in zip(
        changes["column"], changes["from"], changes["to"], changes["move"], strict=True
    ):
        if j in (2, 4):
            assert move is None
        else:
            size = {0: lambda v: v / 1e5, 1: lambda v: v / 2, 3: lambda v: ranks[v] / 2}[j]
            assert move == pytest.approx(size(after) - size(before))


def test_nearest_misses_are_in_the_page(many, page):
    data = page.data
    for miss, i in enumerate(many.misses_of.tolist()):
        assert data["rows"]["misses"][i : i + 2] == [miss, miss + 1]
        assert data["misses"]["why"][miss] == f"miss {i}"
        cells = range(*data["misses"]["first"][miss : miss + 2])
        assert [data["missChanges"]["to"][c] for c in cells] == ["driver"]


def test_misses_in_any_order_go_to_their_rows(many, tmp_path):
    order = np.arange(len(many.misses_of))[::-1]
    parts = {name: getattr(many, name) for name in ("figures", "verdicts", "schema", "labels")}
    turned = Explanations(
        rows=many.rows,
        answers=many.answers,
        of=many.of,
        misses=many.misses.iloc[order].reset_index(drop=True),
        misses_of=many.misses_of[order],
        misses_why=[many.misses_why[k] for k in order],
        **parts,
    )
    data = page_of(turned, tmp_path).data
    assert data["misses"]["why"] == [f"miss {i}" for i in many.misses_of]


def test_the_summary_counts_what_pandas_counts(many, page):
    tables, status = page.tables(), many.verdicts["status"]
    lines = tables["How many rows have each verdict"][1:]
    counts = {line[0].split("\u00a0")[1]: int(line[1]) for line in lines}
    assert counts == status.value_counts().to_dict()
    needed = (status != "already").sum()
    share = f"{(status == 'found').sum()} of the {needed} that need an answer"
    assert share in page.all("p")[0][1]
    lines = tables["home_loan: predicted and target outcomes"][1:]
    crossed = pd.crosstab(many.verdicts["predicted"], many.verdicts["target"])
    assert {(line[0], line[1]): int(line[2]) for line in lines} == {
        ("no", "yes"): crossed.loc["no", "yes"],
        ("yes", "no"): crossed.loc["yes", "no"],
    }


@pytest.mark.parametrize("target", ["no", "yes"])
def test_the_summary_says_how_often_and_how_far_features_change(many, page, target):
    lines = page.tables()[f"Features that change towards {target}, in rows with the verdict found"][1:]
    named = {line[0]: line for line in lines}
    chosen = (many.verdicts["status"] == "found").to_numpy() & (many.verdicts["target"] == target).to_numpy()
    before, after = many.rows[chosen], many.counterfactuals[chosen]
    moved = after["net_income"].to_numpy(float) - before["net_income"].to_numpy(float)
    line = named["net_income"]
    assert int(line[1]) == (moved != 0).sum()
    assert line[2].startswith(f"{(moved != 0).mean():.1%}"[:-1].removesuffix(".0"))
    assert line[3].startswith(f"{(moved > 0).sum()} time")
    assert f"median {np.median(-moved[moved < 0]):g}" in line[4]
    assert int(named["job"][1]) == (after["job"] != before["job"]).sum()
    assert "owner" not in named


def test_reasons_that_differ_in_a_distance_only_are_counted_together(many, page):
    lines = page.tables()["Reasons for verdicts"][1:]
    count = (many.verdicts["reason"] != "").sum()
    assert lines == [["the nearest row is below the plausibility threshold", "infeasible", str(count)]]


def test_measures_are_those_of_the_best_answers(many, page):
    lines = {line[0]: line[1:] for line in page.tables()["Measures of the best answers"][1:]}
    best = many.figures["cost"][np.unique(many.of, return_index=True)[1]]
    expected = [best.mean(), *best.quantile([0.1, 0.5, 0.9])]
    assert lines["Cost of the changes (distance l2)"] == [f"{value:.4g}" for value in expected]


def draw(chart):
    return environment().get_template("charts.html.j2").module.histogram(chart)


def test_a_histogram_has_bars_as_numpy_counts_them():
    values = np.random.default_rng(0).normal(0.5, 1.0, 400)
    picture = Page(draw(charts.histogram(values, title="Score", threshold=True)))
    bars = [attributes for attributes, _ in picture.all("rect")]
    heights = np.array([float(attributes["height"]) for attributes in bars])
    low, high = min(values.min(), 0.0), max(values.max(), 0.0)
    step = (high - low) / charts.BINS
    counts, _ = np.histogram(values, step * np.arange(np.floor(low / step), np.ceil(high / step) + 1))
    np.testing.assert_allclose(heights / heights.max(), counts / counts.max(), atol=1e-3)
    below = [float(a["height"]) for a in bars if a.get("class") == "below"]
    assert sum(below) / heights.sum() == pytest.approx((values < 0).mean(), abs=0.005)
    assert picture.all("svg")[0][0]["aria-label"].startswith("Score: 400 values from ")


@pytest.mark.parametrize("values", [[2.0], [0.0, 0.0], [1e-300, 2e-300], [3.0, 1e6], [-1e9, 1e9]])
@pytest.mark.parametrize("settings", [{}, {"integers": True}, {"threshold": True}])
def test_a_histogram_of_anything_stays_in_its_frame(values, settings):
    page = Page(draw(charts.histogram(np.array(values), title="x", **settings)))
    for attributes, _ in page.all("rect"):
        assert -0.01 <= float(attributes["x"]) <= charts.WIDTH
        assert 0 <= float(attributes["width"]) <= charts.WIDTH
        assert float(attributes["y"]) + float(attributes["height"]) == pytest.approx(charts.BASE, abs=0.2)
    assert charts.histogram(np.array([np.nan]), title="x", **settings) is None
