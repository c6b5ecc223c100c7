"""Plots take and return axes, and draw what the result has; a notebook shows only what changes."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import plausiflow as pf
from plausiflow.errors import InvalidInputError
from plausiflow.explanations.decision_plane import decision_plane
from reporting import Page
from results import build, loans

figures = pytest.importorskip("matplotlib.figure")


@pytest.fixture(scope="module")
def explainer():
    train, _ = pf.load_table("loans").split(200, 30)
    made = pf.Explainer(pf.LinearClassifier(), constraints=[pf.Immutable("age")], confidence=None, judges=1)
    return made.fit(train.x, train.y, effort="quick")


@pytest.fixture(scope="module")
def result(explainer):
    _, test = pf.load_table("loans").split(200, 30)
    return explainer.explain(test.x, "granted", k=2)


@pytest.fixture(scope="module")
def row(result) -> int:
    return int(result.is_found.nonzero()[0][0])


@pytest.mark.parametrize(
    "draw",
    [
        lambda result, i, axes: result.plot(i, axes=axes),
        lambda result, i, axes: result.plot_changes(i, axes=axes),
        lambda result, i, axes: result.plot_population(axes=axes),
        lambda result, i, axes: result.plot_tradeoff(axes=axes),
        lambda result, i, axes: result.plot_tradeoff(i, axes=axes),
        lambda result, i, axes: result.plot_map(i, axes=axes),
        lambda result, i, axes: result.plot_groups("sex", axes=axes),
    ],
    ids=["plot", "changes", "population", "tradeoff", "tradeoff of a row", "map", "groups"],
)
def test_every_plot_draws_into_the_axes_that_it_gets_and_returns_them(draw, result, row):
    own = figures.Figure().subplots()
    assert draw(result, row, own) is own
    assert own.has_data()
    assert own.get_title()
    made = draw(result, row, None)
    assert made.figure is not own.figure
    assert made.get_title() == own.get_title()


def dots(axes):
    return [line for line in axes.lines if line.get_marker() == "o"]


def test_the_tradeoff_has_a_dot_for_every_best_answer_hollow_if_not_all_checks_agree(result):
    drawn = dots(result.plot_tradeoff())
    figures_ = result.figures.iloc[result.best[result.best >= 0]]
    assert [dot.get_xdata()[0] for dot in drawn] == figures_["cost"].tolist()
    assert [dot.get_ydata()[0] for dot in drawn] == figures_["score"].tolist()
    hollow = [dot.get_markerfacecolor() == "none" for dot in drawn]
    assert hollow == (figures_["judged"] < 1).tolist()


def test_the_tradeoff_of_a_row_numbers_its_answers(result, row):
    axes = result.plot_tradeoff(row)
    names = [text.get_text() for text in axes.texts if text.get_text().isdigit()]
    assert names == [str(k + 1) for k in range(len(result.answer_range(row)))]


def test_a_tradeoff_without_answers_raises(result):
    already = int((~result.is_needed).nonzero()[0][0])
    with pytest.raises(InvalidInputError, match="no answer with a plausibility score"):
        result.plot_tradeoff(already)


def test_the_map_shows_what_the_model_says_and_where_row_and_answer_are(explainer, result, row):
    axes = result.plot_map(row, "income", "credit_score")
    answer = result.answers.iloc[[result.best[row]]]
    grid = decision_plane(result, row, answer, ("income", "credit_score"))
    k, m = len(grid.y) // 2, len(grid.x) // 3
    cell = answer.assign(income=int(grid.x[m]), credit_score=int(grid.y[k]))
    expected = explainer.predict_proba(cell)["granted"].iloc[0]
    assert grid.shade[k, m] == pytest.approx(expected, abs=1e-9)
    met = np.ravel(explainer.predict(cell))[0] == "granted"
    assert (grid.lead[k, m] >= 0) == met or abs(expected - 0.5) < 0.02
    assert grid.score[k, m] == pytest.approx(float(np.ravel(explainer.score(cell, "granted"))[0]), abs=1e-6)
    now, then = [(dot.get_xdata()[0], dot.get_ydata()[0]) for dot in dots(axes) if len(dot.get_xdata())]
    assert now == (result.rows["income"].iloc[row], result.rows["credit_score"].iloc[row])
    assert then == (answer["income"].iloc[0], answer["credit_score"].iloc[0])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("income", "credit_score")


def test_the_axes_of_a_map_are_the_numbers_that_move_most_unless_they_are_given(result, row):
    axes = result.plot_map(row)
    moved = result.changes[(result.changes["row"] == result.rows.index[row]) & (result.changes["rank"] == 1)]
    numbers = {f.name for f in result.features if f.is_number}
    first = [name for name in moved["feature"] if name in numbers]
    assert axes.get_xlabel() in first
    given = result.plot_map(row, y="age")
    assert given.get_ylabel() == "age" != given.get_xlabel()


def test_a_map_of_what_is_no_number_raises(result, row):
    with pytest.raises(InvalidInputError, match="must be a number of the table"):
        result.plot_map(row, "job", "age")
    with pytest.raises(InvalidInputError, match="two different numbers"):
        result.plot_map(row, "age", "age")
    with pytest.raises(InvalidInputError, match="has no model"):
        replace(result, certifier=None).plot_map(row)


def test_a_row_without_an_answer_has_a_map_of_its_own_values(result):
    already = int((~result.is_needed).nonzero()[0][0])
    assert len(dots(result.plot_map(already, "income", "age"))) == 1


def test_groups_show_the_means_that_pandas_has(result):
    axes = result.plot_groups("sex", measure="cost")
    cost = pd.Series(result.found_figures("cost"), index=result.rows.index)
    expected = cost[result.is_needed].groupby(result.rows["sex"].astype(str)).mean()
    drawn = dict(zip((t.get_text() for t in axes.get_yticklabels()), dots(axes), strict=True))
    for label, dot in drawn.items():
        group = label.removeprefix("sex=").partition(" (")[0]
        assert dot.get_xdata()[0] == pytest.approx(expected[group])
    bars = [line for line in axes.lines if line.get_marker() != "o"]
    for bar, dot in zip(bars, dots(axes), strict=True):
        low, high = bar.get_xdata()
        assert low <= dot.get_xdata()[0] <= high
    assert axes.get_title() == "Cost of the changes, by group"


def test_an_unknown_measure_raises(result):
    with pytest.raises(InvalidInputError, match="`measure` must be one of found, cost"):
        result.plot_groups("sex", measure="price")


def test_a_notebook_shows_a_row_and_its_answers_side_by_side_with_changes_only():
    result = build(**loans(), outcome="loan", target="granted")
    page = Page(result[0]._repr_html_())
    head, *lines = [
        [cell for cell in line.split("|") if cell] for line in
        ["|".join(text.strip() for text in row_texts(page, number)) for number in rows_of(page)]
    ]  # fmt: skip
    assert head == ["feature", "now", "answer 1", "answer 2"]
    assert lines[:2] == [["income", "31,000", "→ 38,500", "·"], ["open_lines", "4", "→ 3", "·"]]
    assert ">rate<" not in page.raw
    assert "1 feature not shown: unchanged." in page.raw
    assert page.all("script") == []


def rows_of(page):
    return [number for number, (tag, _) in enumerate(page.elements) if tag == "tr"]


def row_texts(page, number):
    end = next((n for n in rows_of(page) if n > number), len(page.elements))
    cells = [n for n in range(number + 1, end) if page.elements[n][0] in ("td", "th")]
    return [page.inside[n] for n in cells]


def test_a_notebook_shows_why_a_row_has_no_answer_and_escapes_values():
    evil = "<script>alert(1)</script>"
    rows = pd.DataFrame({"a": ["x"]}, index=[evil])
    result = build(rows, pd.DataFrame({"a": []}, dtype=object), [], reason=evil, target=evil, outcome=evil)
    html = result[0]._repr_html_()
    assert "<script>" not in html
    assert "No answer: &lt;script&gt;" in html
    assert replace(result[0], draw=None)._repr_html_() is None
    assert np.all(result.best < 0)
