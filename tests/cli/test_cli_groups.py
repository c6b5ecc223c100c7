"""``plausiflow groups``, ``audit`` and ``recheck``: files, output, refusals."""

import json
import re

import pandas as pd
import pytest

from commanding import done, refused


@pytest.fixture(scope="module")
def answers(folder, explainer):
    """Answers that were given out, with a date."""
    out = folder / "given.csv"
    done("explain", explainer, folder / "rows.csv", "--target", "granted", "--out", out)
    pd.read_csv(out, dtype={"customer": str}).assign(issued="2026-01-31").to_csv(out, index=False)
    return out


def test_groups_writes_actions_members_and_a_report(folder, explainer, tmp_path):
    out, report, document = (tmp_path / name for name in ("who.csv", "report.html", "groups.json"))
    finished = done("groups", explainer, folder / "rows.csv", "--target", "granted", "--groups", "2",
                    "--out", out, "--report", report, "--json", document)  # fmt: skip
    assert re.search(r"actions? helps? \d of \d rows that need one", finished.stdout)
    table = pd.read_csv(out, dtype={"customer": str})
    assert table["row"].tolist() == [1, 2, 3, 4]
    assert table["customer"].tolist() == ["000", "001", "002", "003"]
    assert len(json.loads(document.read_text())["rows"]) == 4


def test_groups_assigns_the_rows_of_several_files(folder, explainer, tmp_path):
    document = tmp_path / "groups.json"
    rows = folder / "rows.csv"
    done("groups", explainer, rows, rows, "--target", "granted", "--groups", "1", "--json", document)
    assert len(json.loads(document.read_text())["rows"]) == 8


def test_groups_names_rows_by_a_key_in_all_files(folder, explainer, tmp_path):
    out, rows = tmp_path / "who.parquet", folder / "rows.csv"
    other = tmp_path / "rows.parquet"
    pd.read_csv(rows, dtype={"customer": str}).assign(branch="north").to_parquet(other)
    done(
        "groups",
        explainer,
        rows,
        other,
        "--target",
        "granted",
        "--groups",
        "2",
        "--key",
        "customer",
        "--out",
        out,
    )
    table = pd.read_parquet(out)
    assert table["customer"].tolist() == ["000", "001", "002", "003"] * 2
    assert table["branch"].fillna("none").tolist() == ["none"] * 4 + ["north"] * 4
    assert table["action"].iloc[:4].tolist() == table["action"].iloc[4:].tolist()


def test_groups_refuses_a_file_without_the_key(folder, explainer):
    line = refused("groups", explainer, folder / "rows.csv", "--target", "granted", "--key", "number")
    assert "no column 'number'" in line


def test_groups_refuses_an_unknown_form(folder, explainer):
    line = refused("groups", explainer, folder / "rows.csv", "--form", "twist")
    assert "--form must be auto, shift, reach, direction" in line


def test_groups_keeps_limits_and_uses_saved_actions(folder, explainer, tmp_path):
    saved, first, second = (tmp_path / name for name in ("actions.json", "first.json", "second.json"))
    rows = folder / "rows.csv"
    free = tmp_path / "free.json"
    done("groups", explainer, rows, "--target", "granted", "--groups", "2", "--json", free)
    costs = [action["cost"] for action in json.loads(free.read_text())["actions"]]
    finished = done("groups", explainer, rows, "--target", "granted", "--groups", "2", "--max-cost",
                    str(max(costs)), "--save", saved, "--json", first)  # fmt: skip
    assert f"at a cost of at most {max(costs):.3g} each" in finished.stdout
    assert json.loads(first.read_text())["limit"] == max(costs)
    assert "rows" not in json.loads(saved.read_text())
    done("groups", explainer, rows, "--use", saved, "--json", second)
    assert second.read_text() == first.read_text()


def test_groups_refuses_options_that_saved_actions_decide(folder, explainer, tmp_path):
    rows = folder / "rows.csv"
    line = refused(
        "groups", explainer, rows, "--use", tmp_path / "a.json", "--groups", "2", "--max-cost", "1"
    )
    assert "got also --groups, --max-cost" in line
    assert "cannot be opened" in refused("groups", explainer, rows, "--use", tmp_path / "a.json")


@pytest.mark.parametrize("option", ["--max-cost", "--mean-cost"])
def test_groups_refuses_a_limit_of_zero(folder, explainer, option):
    line = refused("groups", explainer, folder / "rows.csv", "--target", "granted", option, "0")
    assert "must be a number above 0" in line


def test_audit_prints_groups_and_writes_json(folder, explainer, tmp_path):
    document = tmp_path / "audit.json"
    finished = done("audit", explainer, folder / "rows.csv", "--by", "education", "--target", "granted",
                    "--json", document)  # fmt: skip
    assert "education=" in finished.stdout
    assert "not its cause" in json.loads(document.read_text())["note"]


def test_audit_takes_several_files_and_says_nothing_about_unused_columns(folder, explainer):
    one, two = (
        done("audit", explainer, *[folder / "rows.csv"] * count, "--by", "education", "--target", "granted")
        for count in (1, 2)
    )

    def counts(text):
        lines = text.split("\n\n")[0].splitlines()[2:]
        return [int(line.removeprefix("education=").split()[1]) for line in lines]

    assert counts(two.stdout) == [2 * count for count in counts(one.stdout)]
    assert "--out" not in one.stderr


def test_audit_refuses_a_group_of_one(folder, explainer):
    line = refused("audit", explainer, folder / "rows.csv", "--by", "education", "--min-size", "1")
    assert "--min-size must be a whole number, 2 or more" in line


def test_audit_refuses_an_unknown_column(folder, explainer):
    assert "no column 'sex'" in refused("audit", explainer, folder / "rows.csv", "--by", "sex")


def test_recheck_of_the_same_explainer_finds_that_all_answers_hold(folder, explainer, answers):
    finished = done("recheck", answers, "--explainer", explainer, "--rows", folder / "rows.csv",
                    "--date", "issued")  # fmt: skip
    assert "0 answers no longer hold." in finished.stdout


def test_recheck_writes_json_with_the_labels_of_the_rows(folder, explainer, answers, tmp_path):
    document = tmp_path / "recheck.json"
    done("recheck", answers, "--explainer", explainer, "--key", "customer", "--json", document)
    table = pd.read_csv(answers, dtype={"customer": str})
    content = json.loads(document.read_text())
    assert [row["row"] for row in content["rows"]] == table.loc[
        table["status"] == "found", "customer"
    ].tolist()
    assert content["by_age"][-1]["age"] == "all"


def test_recheck_takes_the_outcome_that_was_promised(folder, explainer, answers, tmp_path):
    without = tmp_path / "without.csv"
    pd.read_csv(answers).drop(columns="target").to_csv(without, index=False)
    assert "no column 'target'" in refused("recheck", without, "--explainer", explainer)
    finished = done("recheck", without, "--explainer", explainer, "--target", "granted")
    assert "0 answers no longer hold." in finished.stdout
    finished = done("recheck", without, "--explainer", explainer, "--target", "rejected")
    assert "0 answers no longer hold." not in finished.stdout
    line = refused("recheck", without, "--explainer", explainer, "--target", "opposite")
    assert "the outcome that was promised" in line


def test_recheck_refuses_numbers_as_dates(explainer, answers):
    line = refused("recheck", answers, "--explainer", explainer, "--date", "customer")
    assert "Write dates as 2026-03-31." in line


def test_recheck_refuses_a_file_without_dates(explainer, answers):
    line = refused("recheck", answers, "--explainer", explainer, "--date", "sent")
    assert "no column 'sent'" in line
