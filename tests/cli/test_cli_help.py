"""Help texts and documentation name existing options, and exit codes report how a command ended."""

import re
import shlex
from pathlib import Path

import pandas as pd

from commanding import DOCS, done, invoke, recorded, refused
from plausiflow import Explainer
from plausiflow.cli import explain


def examples(command):
    """Return the commands in a help text."""
    text = done(command, "--help").stdout
    return re.findall(rf"^ *(plausiflow {command} .*?) *$", text, re.MULTILINE)


def test_the_examples_of_the_help_texts_can_be_run(folder, tmp_path, brief, monkeypatch):
    monkeypatch.setenv("COLUMNS", "150")
    monkeypatch.chdir(tmp_path)
    table = pd.read_csv(folder / "loans.csv")
    table.assign(id=range(len(table)), date="2024-02-29").to_csv("loans.csv", index=False)
    rows = pd.read_csv(folder / "rows.csv").head(2)
    rows.assign(id=7, date="2024-02-29").to_csv("rows.csv", index=False)
    for name in ("rules.toml", "model.skops"):
        Path(name).write_bytes((folder / name).read_bytes())
    Path("token.txt").write_text("a" * 20 + "\n")
    served = recorded(monkeypatch)
    shown = {command: examples(command) for command in ("fit", "explain", "serve")}
    assert [len(lines) for lines in shown.values()] == [4, 2, 2]
    *others, quick = shown["fit"]
    assert "--confidence none" in quick
    for line in others:
        done(*shlex.split(f"{line} --force --confidence none --judges 0")[1:])
    done(*shlex.split(quick)[1:])
    for line in shown["explain"]:
        done(*shlex.split(line)[1:])
    Path("mortgage").symlink_to("quick")
    for line in shown["serve"]:
        done(*shlex.split(line)[1:])
    assert [sorted(call["explainers"]) for call in served] == [["credit"], ["credit", "mortgage"]]
    for name in ("answers.csv", "report.html", "answers.json"):
        assert Path(name).stat().st_size > 100


def test_an_error_that_nobody_expected_is_one_line_and_another_exit_code(folder, explainer, monkeypatch):
    def broken(*_, **__):
        raise KeyError("surprise")

    monkeypatch.setattr(Explainer, "explain", broken)
    finished = invoke("explain", explainer, folder / "rows.csv")
    assert finished.exit_code == 1
    line = finished.stderr.splitlines()[-1]
    assert "unexpected KeyError: 'surprise'" in line
    assert "--debug" in line
    assert "Traceback" not in finished.output
    traced = invoke("--debug", "explain", explainer, folder / "rows.csv")
    assert traced.exit_code == 1
    assert isinstance(traced.exception, KeyError)


def test_an_interrupted_command_has_its_own_exit_code_and_leaves_nothing(
    folder, explainer, tmp_path, monkeypatch
):
    def interrupted(self, path):
        Path(path).write_text("half")
        raise KeyboardInterrupt

    monkeypatch.setattr(explain.Explanations, "to_json", interrupted)
    finished = invoke("explain", explainer, folder / "rows.csv", "--json", tmp_path / "a.json")
    assert finished.exit_code == 130
    assert "plausiflow: stopped" in finished.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_one_line(folder, explainer, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device", "a.json")

    monkeypatch.setattr(explain.Explanations, "to_json", full)
    line = refused("explain", explainer, folder / "rows.csv", "--json", tmp_path / "a.json")
    assert "No space left on device" in line


def test_every_option_that_the_documentation_names_exists(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    names = ("fit", "explain", "letter", "batch", "serve", "groups", "audit", "recheck")
    commands = ((), *((name,) for name in names), ("benchmark", "batch"))
    helps = "".join(done(*command, "--help").stdout for command in commands)
    named = {
        name
        for page in ("cli.md", "rules.md", "batch.md")
        for name in re.findall(r"--[a-z][a-z-]*", (DOCS / page).read_text())
    }
    assert len(named) > 20
    assert [name for name in sorted(named) if name not in helps] == []


def test_commands_that_do_not_exist_are_one_line_and_help_is_help():
    assert "No such command 'fitt'" in refused("fitt")
    assert "No such option: --folder" in refused("--folder")
    assert done("--help").stdout.count("explain") >= 1
    assert "Usage" in invoke("benchmark").output
