"""``plausiflow groups``, ``audit`` and ``recheck``: files, output, refusals."""

import json

import pandas as pd
import pytest

from commanding import done, refused


@pytest.fixture(scope="module")
def answers(folder, explainer):
    """Answers that were given out, with a date."""
    out = folder / "given.csv"
    done("explain", explainer, folder / "rows.csv", "--target", "granted", "--out", out)
    pd.read_csv(out).assign(issued="2026-01-31").to_csv(out, index=False)
    return out


def test_groups_writes_actions_members_and_a_report(folder, explainer, tmp_path):
    out, report, document = (tmp_path / name for name in ("who.csv", "report.html", "groups.json"))
    finished = done("groups", explainer, folder / "rows.csv", "--target", "granted", "--groups", "2",
                    "--out", out, "--report", report, "--json", document)  # fmt: skip
    assert "actions help" in finished.stdout or "rows that need one" in finished.stdout
    assert len(pd.read_csv(out)) == 4
    assert len(json.loads(document.read_text())["rows"]) == 4


def test_groups_assigns_the_rows_of_several_files(folder, explainer, tmp_path):
    document = tmp_path / "groups.json"
    rows = folder / "rows.csv"
    done("groups", explainer, rows, rows, "--target", "granted", "--groups", "1", "--json", document)
    assert len(json.loads(document.read_text())["rows"]) == 8


def test_groups_refuses_an_unknown_form(folder, explainer):
    line = refused("groups", explainer, folder / "rows.csv", "--form", "twist")
    assert "--form must be auto, shift, reach, direction" in line


def test_audit_prints_groups_and_writes_json(folder, explainer, tmp_path):
    document = tmp_path / "audit.json"
    finished = done("audit", explainer, folder / "rows.csv", "--by", "education", "--target", "granted",
                    "--json", document)  # fmt: skip
    assert "education=" in finished.stdout
    assert "not its cause" in json.loads(document.read_text())["note"]


def test_audit_refuses_an_unknown_column(folder, explainer):
    assert "no column 'sex'" in refused("audit", explainer, folder / "rows.csv", "--by", "sex")


def test_recheck_of_the_same_explainer_finds_that_all_answers_hold(folder, explainer, answers):
    finished = done("recheck", answers, "--explainer", explainer, "--rows", folder / "rows.csv",
                    "--date", "issued")  # fmt: skip
    assert "0 answers no longer hold." in finished.stdout


def test_recheck_refuses_a_file_without_dates(explainer, answers):
    line = refused("recheck", answers, "--explainer", explainer, "--date", "sent")
    assert "no column 'sent'" in line
