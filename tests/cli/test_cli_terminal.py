"""What a person sees who types something incomplete or wrong, and commands that print the next command."""

import shlex
import time

import numpy as np
import pandas as pd
import pytest

from commanding import QUICK, done, invoke, refused
from plausiflow.datasets.tables import loans_table


@pytest.mark.parametrize("words", [(), ("benchmark",)])
def test_a_command_without_words_is_its_help_and_nothing_else(words):
    finished = invoke(*words)
    assert finished.exit_code == 0
    assert finished.stdout.count("Usage") == 1
    assert finished.stderr == ""


def test_a_wrong_word_is_one_sentence_with_the_right_one():
    assert refused("fitt") == "plausiflow: No such command 'fitt'. Did you mean 'fit'? See: plausiflow --help"
    assert refused("nonsense") == "plausiflow: No such command 'nonsense'. See: plausiflow --help"


MISSING = [
    ("explain", "nowhere", "rows.csv"),
    ("letter", "nowhere", "rows.csv", "--out", "new"),
    ("groups", "nowhere", "rows.csv"),
    ("audit", "nowhere", "rows.csv", "--by", "a"),
    ("batch", "nowhere", "rows.csv", "new"),
    ("recheck", "rows.csv", "--explainer", "nowhere"),
    ("serve", "nowhere"),
]


@pytest.mark.parametrize("words", MISSING, ids=lambda words: words[0])
def test_an_explainer_that_is_not_there_is_one_line_that_says_how_to_make_one(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("a\n1\n")
    expected = (
        "plausiflow: nowhere does not exist; the directory of a saved explainer is expected. Make one: "
        "plausiflow fit TABLE --target COLUMN --out DIRECTORY"
    )
    assert refused(*words) == expected
    assert not (tmp_path / "new").exists()


def test_a_file_in_the_place_of_an_explainer_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    assert f"{tmp_path / 'file'} is a file; the directory of" in refused(
        "explain", tmp_path / "file", "rows.csv"
    )


def next_of(finished):
    (line,) = [line for line in finished.stdout.splitlines() if line.startswith("Next: plausiflow ")]
    return shlex.split(line.removeprefix("Next: plausiflow "))


def table(kind):
    loans = loans_table(n=200)
    if kind == "number":
        return loans.x[["age", "debt_ratio"]].assign(goal=loans.x["income"] / 7)
    labels = loans.y if kind == "two" else np.where(loans.x["age"] > 45, "later", loans.y)
    return loans.x[["age", "income", "debt_ratio"]].assign(goal=labels)


@pytest.mark.parametrize("kind", ["two", "three", "number"])
def test_the_command_that_fit_prints_runs_also_when_its_files_are_there(kind, tmp_path, brief, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table(kind).to_csv("t.csv", index=False, sep=";")
    (tmp_path / "answers.csv").write_text("mine")
    train = "gbm" if kind == "number" else "logistic"
    words = ("fit", "t.csv", "--target", "goal", "--train", train, "--separator", ";", "--out", "e", *QUICK)
    command = next_of(done(*words))
    done(*command, "--no-reasons", "--time-limit", 20)
    assert (tmp_path / "answers.csv").read_text() == "mine"
    assert len(pd.read_csv("answers-2.csv", sep=";")) == 200
    assert (tmp_path / "report.html").exists()


def test_the_demo_checks_its_directory_before_it_trains(tmp_path):
    (tmp_path / "file").write_text("")
    start = time.monotonic()
    assert "--out" in refused("demo", "--out", tmp_path / "file")
    assert "--out" in refused("demo", "--out", tmp_path / "file" / "new")
    assert time.monotonic() - start < 5


@pytest.mark.slow
def test_the_demo_takes_at_most_half_a_minute_of_processor_time(tmp_path):
    start = time.process_time()
    finished = done("demo", "--out", tmp_path / "out")
    assert time.process_time() - start <= 30
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"demo.html", "credit", "rows.csv"} <= names
    assert "plausiflow serve" in finished.stdout
