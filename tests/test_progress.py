"""How progress is shown: on a terminal, in a notebook, in a log, or not at all."""

from __future__ import annotations

import re
import sys
import types

import pytest

from plausiflow import progress
from plausiflow.datasets import loans_table
from plausiflow.errors import InvalidInputError, TrainingError
from plausiflow.explainer import Explainer
from plausiflow.models import LinearClassifier
from plausiflow.progress import duration, hide_progress, progress_bar, progress_form, say, verbosity
from plausiflow.search import estimate


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on by two seconds each time it is read."""
    now = [0.0]

    def monotonic():
        now[0] += 2.0
        return now[0]

    monkeypatch.setattr(progress, "time", types.SimpleNamespace(monotonic=monotonic))


def run(steps=4):
    with progress_bar("Searching rows", 40) as advance:
        for _ in range(steps):
            advance(10, "")


def test_a_log_gets_nothing_unless_it_is_asked_for(capsys, clock):
    run()
    with verbosity(False):
        run()
        say("Fit: about 3 s.")
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_verbose_writes_lines_with_the_time_left_to_a_log(capsys, clock):
    with verbosity(True):
        run()
        say("Fit: about 3 s.")
    lines = capsys.readouterr().err.splitlines()
    # The clock reads 2 s at the start, then 4, 6, 8 and 10: a line after one second, and five seconds later.
    assert lines == [
        "Searching rows: 10 of 40, 5 a second, about 6 s left",
        "Searching rows: 40 of 40, 5 a second, about 1 s left",
        "Fit: about 3 s.",
    ]


def test_a_bar_inside_another_one_and_hidden_progress_write_nothing(capsys, clock):
    with verbosity(True), progress_bar("Outer", 2):
        run()
    with verbosity(True), hide_progress():
        run()
    assert capsys.readouterr().err == ""


def test_a_notebook_gets_one_line_that_is_removed_at_the_end(capsys, clock, monkeypatch):
    for name in ("ipykernel", "IPython"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    assert progress_form() == "line"
    run()
    text = capsys.readouterr().err
    assert "\n" not in text
    assert "Searching rows: 20 of 40" in text
    assert text.endswith("\r")
    assert text.split("\r")[-2].strip() == ""


def test_a_terminal_gets_a_bar(monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert progress_form() == "bar"
    with verbosity(False):
        assert progress_form() == "none"


@pytest.mark.parametrize("verbose", ["yes", 1, 0.5])
def test_another_value_of_verbose_is_refused(verbose):
    table = loans_table(60)
    with pytest.raises(InvalidInputError, match=r"`verbose` must be True .*, False .* or None .*; got"):
        Explainer(LinearClassifier()).fit(table.x, table.y, verbose=verbose)
    with pytest.raises(InvalidInputError, match="`verbose` must be"):
        Explainer(LinearClassifier()).explain(table.x, verbose=verbose)


@pytest.mark.parametrize(("seconds", "text"), [(0.2, "1 s"), (41.4, "41 s"), (99, "99 s"), (170, "3 min")])
def test_durations_are_short(seconds, text):
    assert duration(seconds) == text


def test_an_estimate_that_fails_is_left_out(capsys, monkeypatch):
    def fail(*_):
        raise TrainingError("the loss is not a number")

    monkeypatch.setattr(estimate, "fit_mixed", fail)
    table = loans_table(160)
    Explainer(LinearClassifier(), confidence=None, judges=0).fit(
        table.x, table.y, effort="quick", verbose=True
    )
    assert "Fit:" not in capsys.readouterr().err


def test_fit_says_how_long_it_takes_before_it_starts(capsys):
    table = loans_table(160)
    explainer = Explainer(LinearClassifier(), confidence=None, judges=1)
    explainer.fit(table.x, table.y, effort="quick", verbose=True)
    said = capsys.readouterr().err.splitlines()
    # Before it there is at most the progress of the model's own training.
    first = next(line for line in said if not line.startswith("LinearClassifier"))
    assert re.fullmatch(r"Fit: 5 densities learn from 160 rows; about \d+ (s|min)\.", first)
    explainer.fit(table.x, table.y, effort="quick")
    assert capsys.readouterr().err == ""
