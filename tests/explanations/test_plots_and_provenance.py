"""Plots that tell the fact and not its opposite, and what a report says about its origin."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import plausiflow as pf
from plausiflow.errors import InvalidInputError
from plausiflow.explanations.provenance import describe_provenance
from plausiflow.explanations.report_content import report_content
from plausiflow.explanations.rule_words import rule_in_words
from plausiflow.report.overview import build_overview


@pytest.fixture(scope="module")
def loans():
    return pf.load_table("loans").split(200, 30)


@pytest.fixture(scope="module")
def explainer(loans):
    made = pf.Explainer(pf.LinearClassifier(), constraints=[pf.Immutable("age")], confidence=None, judges=0)
    return made.fit(loans[0].x, loans[0].y, effort="quick")


@pytest.fixture(scope="module")
def result(explainer, loans):
    return explainer.explain(loans[1].x, "granted")


@pytest.fixture(scope="module")
def row(result) -> int:
    return int(result.is_found.nonzero()[0][0])


def test_the_title_of_a_plot_says_what_the_row_is_and_what_it_would_be(result, row):
    axes = result.plot(row)
    assert axes.get_title() == f"{result.outcome} is rejected, would be granted with these changes"


def test_the_bars_of_changes_end_at_the_probability_of_the_answer(explainer, result, row):
    pyplot = pytest.importorskip("matplotlib.figure")
    own = pyplot.Figure().subplots()
    axes = result.plot_changes(row, axes=own)
    assert axes is own
    ends = [bar.get_x() + bar.get_width() for bar in axes.patches]
    answer = result.answers.iloc[[result.best[row]]]
    assert axes.patches[0].get_x() == pytest.approx(
        explainer.predict_proba(result.rows.iloc[[row]])["granted"].iloc[0], abs=1e-6
    )
    assert ends[-1] == pytest.approx(explainer.predict_proba(answer)["granted"].iloc[0], abs=1e-6)
    starts = [bar.get_x() for bar in axes.patches]
    assert starts[1:] == pytest.approx(ends[:-1])
    names = [label.get_text().split(":")[0] for label in axes.get_yticklabels()]
    changes = result.changes[result.changes["row"] == result.rows.index[row]]
    assert sorted(names) == sorted(changes["feature"])
    needed = set(changes.loc[changes["role"] == "needed", "feature"])
    assert set(names[: len(needed)]) == needed


def test_a_result_without_a_model_cannot_plot_what_changes_do(result, row):

    with pytest.raises(InvalidInputError, match="has no model"):
        replace(result, certifier=None).plot_changes(row)


def test_the_population_has_one_dot_for_each_change_on_its_side(result):
    axes = result.plot_population()
    best = set(result.best[result.is_found].tolist())
    shown = np.isin(result.changed.answer, list(best))
    dots = [line for line in axes.lines if line.get_marker() == "o"]
    assert len(dots) == shown.sum()
    names = [label.get_text().rpartition(" (")[0] for label in axes.get_yticklabels()]
    assert set(names) == set(result.rows.columns.take(result.changed.column[shown]))
    for place, name in enumerate(names):
        own = result.changes[(result.changes["feature"] == name) & (result.changes["rank"] == 1)]
        start, end = (pd.to_numeric(own[side], errors="coerce") for side in ("from", "to"))
        right = [dot for dot in dots if round(dot.get_ydata()[0]) == place and dot.get_xdata()[0] > 0]
        if end.notna().all():
            assert len(right) == (end > start).sum()


def test_a_population_without_answers_raises(result):

    verdicts = result.verdicts.assign(status="infeasible")
    empty = replace(
        result, verdicts=verdicts, answers=result.answers.iloc[:0], of=result.of[:0],
        figures=result.figures.iloc[:0], roles=None, encoded=None,
    )  # fmt: skip
    with pytest.raises(InvalidInputError, match="no row has the status"):
        empty.plot_population()


def test_a_report_says_where_it_comes_from(result):
    facts = dict(describe_provenance(result))
    assert facts["Rules"] == ("age stays as it is",)
    assert facts["Data"][0].startswith(
        f"{len(result)} rows with {result.rows.shape[1]} columns were explained"
    )
    assert "LinearClassifier" in facts["Model"][0]
    assert facts["Versions"][0].startswith(f"plausiflow {pf.__version__}, torch ")
    assert facts["Seed"] == ("0",)
    assert facts["Date"][0].endswith(" UTC")
    assert dict(describe_provenance(result))["Fingerprint"] == facts["Fingerprint"] != ()


def test_another_table_has_another_fingerprint(explainer, result):
    other = explainer.explain(result.rows.iloc[1:], "granted")
    assert dict(describe_provenance(other))["Fingerprint"] != dict(describe_provenance(result))["Fingerprint"]


def test_a_report_starts_with_three_numbers_and_shows_shares_in_per_cent(result):
    figures = result.figures.assign(judged=[1.0] + [0.5] * (len(result.figures) - 1), probability=0.05)

    overview = build_overview(report_content(replace(result, figures=figures), None))
    assert overview["numbers"] == [
        (str(int(result.is_needed.sum())), "rejected"),
        (str(int(result.is_found.sum())), "with a suggestion"),
        ("1", "confirmed by all checks"),
    ]
    (line,) = [row for row in overview["measures"].rows if row[0] == "Probability of the target outcome"]
    assert set(line[1:]) == {"5 %"}


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (pf.Immutable("age"), "age stays as it is"),
        (pf.Increasing("education"), "education may only rise"),
        (pf.Decreasing("debt"), "debt may only fall"),
        (pf.Range("income", 1000, 50000), "income is 1,000 to 50,000"),
        (pf.Range("income", None, 50000), "income is at most 50,000"),
        (pf.MaxChanges(3), "at most 3 features change"),
        (pf.Linear("a <= b"), "a <= b"),
        (pf.MaxChanges(1), "at most 1 feature changes"),
        (pf.Increasing("years", by=2), "years may only rise, and at least by 2 if it changes"),
        (pf.Allowed("job", ["clerk", "nurse", "cook"]), "job is clerk, nurse or cook"),
        (
            pf.Allowed("job", {"none": ["clerk"], "clerk": []}),
            "job changes only from none to clerk; clerk stays",
        ),
        (pf.Implies("job == 'none'", "income == 0"), "if job == 'none', then income == 0"),
        (pf.Equal("total", "net + tax"), "total is always net + tax"),
        (pf.Computed("bmi", "weight / height ** 2"), "bmi is always weight / height ** 2"),
        (pf.GridStep("rent", 50), "rent changes in steps of 50"),
        (pf.WhenChanged("job", pf.Range("income", 1200)), "if job changes: income is at least 1,200"),
        (pf.Price("job", {("none", "clerk"): 2}), "job: none → clerk costs 2"),
    ],
)
def test_rules_are_said_in_words(rule, words):
    assert rule_in_words(rule) == words
