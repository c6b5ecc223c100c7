"""Rules in a file: read as documented, all problems reported at once."""

import re
import shlex

import pandas as pd

from commanding import DOCS, QUICK, done, refused
from plausiflow import Explainer, Immutable, Increasing, Linear, Range
from plausiflow.cli.rules_file import read_rules
from plausiflow.datasets.tables import loans_table


def test_the_file_of_rules_in_the_documentation_can_be_used(tmp_path, brief):
    example = re.search(r"```toml\n(.*?)```", (DOCS / "rules.md").read_text(), re.DOTALL)[1]
    (tmp_path / "rules.toml").write_text(example)
    loans = loans_table(n=200)
    loans.x.assign(loan=loans.y).to_csv(tmp_path / "loans.csv", index=False)
    told = done("fit", tmp_path / "loans.csv", "--target", "loan", "--train", "logistic", "--out",
                tmp_path / "e", "--rules", tmp_path / "rules.toml", *QUICK)  # fmt: skip
    own = Explainer.load(tmp_path / "e")
    assert len(own.constraints) == told.stdout.count("Rule: ") == 10
    assert Linear("loan_amount <= 0.6 * income") in own.constraints
    assert own.encoder_.schema.feature("education").levels[0] == "none"
    assert own.encoder_.schema.feature("dependents").kind == "integer"
    assert own.weights == {"credit_score": 2.0}
    assert own.encoder_.schema.feature("loan_amount").step == 500
    assert Range("income", 10000, None) in own.constraints


def test_rules_of_a_file_hold_and_are_told(folder, explainer, tmp_path):
    assert Explainer.load(explainer).constraints == (
        Immutable("age"), Increasing("income"), Range("debt_ratio", 0, 0.9),
    )  # fmt: skip
    done("explain", explainer, folder / "rows.csv", "--target", "granted", "--out", tmp_path / "a.csv")
    before, after = pd.read_csv(folder / "rows.csv"), pd.read_csv(tmp_path / "a.csv")
    assert sorted(after["row"]) == [1, 2, 3, 4]
    answered = after[after["rank"].notna()].set_index("row")
    own = before.set_axis(range(1, 5), axis=0).loc[answered.index]
    assert (answered["age"] == own["age"]).all()
    assert (answered["income"] >= own["income"]).all()


def test_everything_that_is_wrong_with_rules_is_told_at_once(folder, tmp_path):
    (tmp_path / "rules.toml").write_text(
        """
        imutable = ["age"]
        increasing = "income"
        decreasing = ["debt_ration"]
        max_changes = 1.5
        linear = ["income <", "rent <= income"]
        [range]
        income = 5
        age = { least = 1 }
        debt_ratio = []
        [allowed]
        job = "clerk"
        [kinds]
        age = "number"
        agee = "integer"
        [orders]
        education = "low to high"
        [steps]
        income = "large"
        [weights]
        income = "dear"
        """
    )
    line = refused("fit", folder / "loans.csv", "--target", "loan", "--rules", tmp_path / "rules.toml",
                   "--out", tmp_path / "o")  # fmt: skip
    assert "rules.toml has 15 problems: " in line
    for part in (
        "there is no key 'imutable'; did you mean 'immutable'?",
        "`increasing` must be a list of texts; got 'income'",
        "decreasing: there is no column 'debt_ration'; did you mean 'debt_ratio'?",
        "max_changes: `limit` of MaxChanges must be a whole number",
        "linear: ",
        "linear: there is no column 'rent'",
        "range.income: a range is [smallest, largest]",
        "range.age: a range is",
        "range.debt_ratio: a range is",
        "allowed.job: ",
        "kinds: there is no column 'agee'; did you mean 'age'?",
        "kinds.age: there is no kind 'number'",
        "orders.education must be a list of levels",
        "steps.income must be a number; got 'large'",
        "weights.income must be a number; got 'dear'",
    ):
        assert part in line, line


def test_rules_that_contradict_the_table_are_told_at_once(folder, tmp_path):
    (tmp_path / "rules.toml").write_text('increasing = ["job"]\n[range]\nincome = [9, 1]\n')
    line = refused("fit", folder / "loans.csv", "--target", "loan", "--rules", tmp_path / "rules.toml",
                   "--train", "logistic", "--out", tmp_path / "o")  # fmt: skip
    assert "`job` is a category without an order" in line
    assert "the lower bound 9 is above the upper bound 1" in line


def test_a_file_that_is_no_toml_is_told_with_its_line(folder, tmp_path):
    (tmp_path / "rules.toml").write_text("immutable = [age]\n")
    line = refused("fit", folder / "loans.csv", "--target", "loan", "--rules", tmp_path / "rules.toml",
                   "--out", tmp_path / "o")  # fmt: skip
    assert "is not TOML" in line
    assert "line 1" in line


def test_moves_by_own_level_are_written_as_tables_or_as_pairs(tmp_path):
    (tmp_path / "rules.toml").write_text(
        '[allowed]\ngrade = { C = ["B"] }\nrooms = [[1, [2]], [2, [3, 4]]]\n'
    )
    rules = read_rules(tmp_path / "rules.toml", ["grade", "rooms"]).constraints
    assert [rule.transitions for rule in rules] == [(("C", ("B",)),), ((1, (2,)), (2, (3, 4)))]


def test_proposed_rules_are_written_and_the_printed_command_uses_them(folder, tmp_path, brief, monkeypatch):
    rules, out = tmp_path / "my rules.toml", tmp_path / "credit"
    words = ["fit", str(folder / "loans.csv"), "--target", "loan", "--train", "logistic", *QUICK,
             "--suggest-rules", str(rules), "--out", str(out)]  # fmt: skip
    monkeypatch.setattr("sys.argv", ["plausiflow", *words])
    finished = done(*words)
    assert "Proposed: age never changes (age is a protected attribute" in finished.stdout
    assert not out.exists()
    (line,) = [line for line in finished.stdout.splitlines() if line.startswith("Next: plausiflow ")]
    done(*shlex.split(line.removeprefix("Next: plausiflow ")))
    assert Explainer.load(out).constraints == (Immutable("age"),)


def test_proposed_rules_are_checked_before_the_table_is_read(folder, tmp_path):
    words = ("fit", "nowhere.csv", "--target", "loan", "--out", tmp_path / "credit", "--suggest-rules")
    assert "ends in .toml" in refused(*words, tmp_path / "rules.txt")
    (tmp_path / "rules.toml").write_text("")
    assert "exists already" in refused(*words, tmp_path / "rules.toml")
