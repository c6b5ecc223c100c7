"""Sections of the report: the picture of directions, the audit, and statistics as an appendix."""

import numpy as np
import pytest

from plausiflow.explanations.audit import NOTE
from plausiflow.explanations.report_content import report_content
from plausiflow.report import ReportTable
from plausiflow.report.directions import MOST_FEATURES, direction_chart
from plausiflow.report.overview import build_overview
from reporting import page_of


def test_the_picture_counts_what_the_changes_table_has(many):
    chart = build_overview(report_content(many, None))["directions"]
    best = many.changes[
        (many.changes["rank"] == 1) & many.changes["row"].isin(many.rows.index[many.is_found])
    ]
    numbers = best[best["feature"] == "net_income"]
    rises = int((numbers["to"] > numbers["from"]).sum())
    falls = int((numbers["to"] < numbers["from"]).sum())
    (line,) = [line for line in chart.lines if line.name == "net_income"]
    assert f"{rises} up, {falls} down" in line.text
    assert line.rise / line.fall == pytest.approx(rises / falls, rel=0.01)
    (job,) = [line for line in chart.lines if line.name == "job"]
    assert job.fall == job.rise == 0
    assert f"{(best['feature'] == 'job').sum()} to another value" in job.text
    assert [line.name for line in chart.lines] == best["feature"].value_counts().index.tolist()


def test_the_picture_has_its_counts_in_words(page):
    labels = [attributes["aria-label"] for attributes, _ in page.all("svg")]
    assert any(
        "Which features change, and in which direction" in label and " up, " in label for label in labels
    )


def test_the_picture_names_at_most_so_many_features_and_counts_the_others(many):
    features = report_content(many, None).features
    wide = features.iloc[[0] * (MOST_FEATURES + 3)].assign(
        feature=[f"a_very_long_name_of_a_feature_{i}" for i in range(MOST_FEATURES + 3)],
        changed=3,
        rises=1,
        falls=2,
    )
    chart = direction_chart(wide, 10)
    assert len(chart.lines) == MOST_FEATURES
    assert "3 features that change less often not shown" in chart.caption
    assert all(len(line.short) <= 26 for line in chart.lines)
    assert direction_chart(wide.assign(changed=0), 10) is None


def test_statistics_come_after_the_rows(page):
    titles = [text for _, text in page.all("h2")]
    assert titles == ["Where this comes from", "Summary", "Rows", "Appendix: statistics"]


def test_an_audit_is_a_section_with_its_caution_and_shares_in_per_cent(many, tmp_path):
    audit = many.audit("owner", min_size=5, permutations=99, samples=50)
    page = page_of(many, tmp_path, audit=audit)
    assert NOTE in [text for _, text in page.all("p")]
    tables = page.tables()
    head, *lines = tables["Groups of rows, means"]
    place = head.index("Share with an answer")
    for line in lines:
        own = audit.groups.loc[line[0]]
        assert line[place] == f"{100 * own['found']:.1f}".removesuffix(".0") + " %"
    (caption,) = [caption for caption in tables if caption.startswith("Differences from all other rows")]
    assert "fewer than 5 rows" in caption
    clear = [line[-1] for line in tables[caption][1:]]
    assert clear == ["yes" if p <= 0.05 else "no" for p in audit.differences["p_adjusted"]]


def test_a_report_without_an_audit_has_no_such_section(page):
    assert not [text for _, text in page.all("h3") if text.startswith("Audit")]


def test_anything_with_tables_is_a_section_about_actions(many, tmp_path):
    class Section:
        def report_tables(self):
            return (ReportTable("Whom each action helps", {"Action": ""}, [["1"]]),)

    page = page_of(many, tmp_path, groups=Section())
    assert page.tables()["Whom each action helps"] == [["Action"], ["1"]]


def test_a_share_is_never_written_as_a_long_fraction(many, tmp_path):
    figures = many.figures.assign(probability=0.04952, judged=np.nan)
    parts = {name: getattr(many, name) for name in ("rows", "answers", "of", "verdicts", "schema", "labels")}
    page = page_of(type(many)(figures=figures, **parts), tmp_path)
    texts = [text for tag in ("td", "p", "dd", "caption") for _, text in page.all(tag)]
    assert not [text for text in texts if "0.0495" in text]
    assert any("5 %" in text for text in texts)
