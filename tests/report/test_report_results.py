"""Every result has a page of limited size; notebooks show tables of results and explainers."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from plausiflow import Decreasing, Explainer, Immutable, LinearClassifier
from plausiflow.models import EncodedModel
from plausiflow.tables.encoder import Encoder
from plausiflow.tables.features import Feature
from plausiflow.tables.schema import Schema
from reporting import FIGURES, RESULTS, Page, build, intervals, page_of


@pytest.mark.parametrize("name", RESULTS)
def test_any_result_has_a_page_and_a_table_for_notebooks(name, tmp_path):
    result = RESULTS[name]()
    page = page_of(result, tmp_path)
    data, n = page.data, len(result)
    assert {len(data["rows"][field]) for field in ("label", "status", "sentence", "curve")} == {n}
    assert len(data["rows"]["first"]) == n + 1
    plain = page.tables()["Every row and its best answer"][1:]
    assert [line[4] for line in plain] == result.sentences.tolist()
    small = Page(result._repr_html_())
    assert not small.all("script")
    assert len(small.all("tr")) == 1 + min(n, 10)
    assert repr(result) in small.all("p")[0][1]


def test_labels_are_written_as_people_read_them(tmp_path):
    assert page_of(RESULTS["two levels"](), tmp_path).data["rows"]["label"] == ["x, 1", "x, 1"]
    assert page_of(RESULTS["bool labels"](), tmp_path).data["rows"]["target"] == ["yes"]
    assert page_of(RESULTS["int labels"](), tmp_path).data["rows"]["target"] == ["1"]
    assert page_of(RESULTS["nothing predicted"](), tmp_path).data["rows"]["target"] == ["", ""]
    data = page_of(RESULTS["missing values"](), tmp_path).data
    assert data["columns"][0]["texts"] == ["missing", "1"]
    assert data["rows"]["probability"] == [None] * 3


def test_a_number_that_is_predicted_has_intervals_and_curves(tmp_path):
    page = page_of(intervals(), tmp_path)
    data = page.data
    assert data["rows"]["target"] == ["5 to 6.5", "at least 2", ""]
    assert data["rows"]["predicted"] == ["1.25", "3", ""]
    assert data["rows"]["curve"] == [0, 1, -1]
    assert data["answers"]["prediction"] == [5.5, 2.25]
    assert "probability" not in data["answers"]
    assert "Features that change, in rows with the verdict found" in page.tables()


def test_two_thousand_rows_stay_under_ten_megabytes(tmp_path):
    draw, n, d, k = np.random.default_rng(0), 2000, 23, 3
    names = [f"feature_number_{j}" for j in range(d)]
    some = pd.DataFrame(draw.random((40, d)) * 1000, columns=names)
    rows = pd.concat([some] * (n // 40), ignore_index=True)
    answers = rows.loc[np.repeat(np.arange(n), k)].reset_index(drop=True)
    answers[names[:5]] += draw.random((n * k, 5))
    features = [Feature(name=name, kind="continuous", dtype=np.dtype(float), maximum=1e3) for name in names]
    figures = pd.DataFrame(np.sort(draw.random((n * k, 8)), axis=0), columns=FIGURES)
    result = build(rows, answers, np.repeat(np.arange(n), k), schema=Schema(tuple(features)), figures=figures)
    result.to_html(tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size < 10e6


# What notebooks show


def test_a_notebook_shows_counts_and_new_values_in_bold(many):
    page = Page(many._repr_html_())
    counts = many.verdicts["status"].value_counts()
    assert f"{counts['found']} found" in page.all("p")[0][1]
    assert f"and {len(many) - 10} more rows" in page.all("p")[1][1]
    best = many.changes[(many.changes["rank"] == 1) & many.changes["row"].isin(many.rows.index[:10])]
    assert len(page.all("strong")) == len(best)
    assert not [a for a in page.elements if a[0] in ("script", "style")]


def test_an_explainer_that_is_not_fitted_says_so():
    explainer = Explainer(LinearClassifier(), constraints=[Immutable("<b>")], confidence=None)
    page = Page(explainer._repr_html_())
    facts = dict(zip([t for _, t in page.all("th")], [t for _, t in page.all("td")], strict=True))
    assert facts["fitted"].startswith("no")
    assert facts["model"] == "LinearClassifier"
    assert facts["rules"] == 'Immutable("<b>")'
    assert "resolved as" not in facts


def test_an_explainer_shows_what_it_knows():
    frame = pd.DataFrame({f"c{j}": np.arange(20.0) * (j + 1) for j in range(9)}).assign(job=["a", "b"] * 10)
    explainer, encoder = (
        Explainer(LinearClassifier(), constraints=[Decreasing("c1")]),
        Encoder(Schema.infer(frame)),
    )
    explainer.encoder_ = encoder
    model = LinearClassifier.from_weights(torch.ones(1, encoder.layout.width), torch.zeros(1))
    explainer.model_ = EncodedModel(model, ("<no>", "<yes>"))
    page = Page(explainer._repr_html_())
    facts = dict(zip([t for _, t in page.all("th")], [t for _, t in page.all("td")], strict=True))
    assert facts["fitted"] == "yes"
    assert facts["outcome"] == "<no>, <yes>"
    assert facts["data"].startswith("10 features (9 integer, 1 category): c0, c1,")
    assert facts["data"].endswith("and 2 more")
    assert facts["resolved as"] == explainer.model_.description
    assert "notes" not in facts
    explainer.encoder_ = Encoder(replace(encoder.schema, notes=("`c1` has <odd> values.",)))
    assert "`c1` has &lt;odd&gt; values." in explainer._repr_html_()
    assert not page.all("script")
