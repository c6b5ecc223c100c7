"""The command ``serve`` passes on its arguments, and reports in one line what it cannot serve."""

import sys

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from commanding import LEVELS, NUMBERS, done, recorded, refused


def test_serve_passes_on_explainers_rows_token_and_limits(folder, explainer, tmp_path, monkeypatch):
    calls = recorded(monkeypatch)
    (tmp_path / "token").write_text("  0123456789abcdef\n")
    limits = ("--max-rows", 7, "--queue-rows", 20, "--time-limit", 2.5, "--max-counterfactuals", 30,
              "--header-timeout", 3, "--body-timeout", 4, "--max-connections", 50)  # fmt: skip
    finished = done("serve", explainer, "--rows", folder / "rows.csv", "--token-file", tmp_path / "token",
                "--port", 9, "--host", "0.0.0.0", *limits)  # fmt: skip
    (call,) = calls
    assert list(call["explainers"]) == ["credit"]
    assert (call["host"], call["port"], call["token"]) == ("0.0.0.0", 9, "0123456789abcdef")
    settings = call["settings"]
    assert (settings.max_rows, settings.queue_rows, settings.time_limit) == (7, 20, 2.5)
    assert (settings.max_counterfactuals, settings.max_connections) == (30, 50)
    assert (settings.header_timeout, settings.body_timeout) == (3.0, 4.0)
    rows = pd.read_csv(folder / "rows.csv")[[*NUMBERS, *LEVELS]]
    assert_frame_equal(call["rows"]["credit"].reset_index(drop=True), rows, check_dtype=False)
    assert "Serving credit at http://127.0.0.1:8080/" in finished.stdout


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (("--host", "0.0.0.0"), "there is no token"),
        (("--token-file", "nope"), "There is no file nope. Make one: python -c"),
        (("--rows", "a.csv", "--rows", "b.csv"), "--rows must be given once for each of the 1 directories"),
        (("--max-rows", "0"), "`max_rows` must be a whole number"),
    ],
)
def test_an_invalid_argument_is_one_line_with_a_remedy(explainer, monkeypatch, arguments, remedy):
    recorded(monkeypatch)
    assert remedy in refused("serve", explainer, *arguments)


def test_serve_passes_on_the_favourable_outcome(explainer, monkeypatch):
    calls = recorded(monkeypatch)
    done("serve", explainer, "--target", "granted")
    assert calls[0]["targets"] == {"credit": "granted"}
    assert "must name an outcome; got 'opposite'" in refused("serve", explainer, "--target", "opposite")


def test_two_explainers_with_the_same_name_cannot_be_served(explainer, tmp_path, monkeypatch):
    recorded(monkeypatch)
    assert "credit is given twice" in refused("serve", explainer, tmp_path / "credit")


def test_without_its_packages_the_service_names_the_extra(explainer, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "plausiflow.service.server", raising=False)
    assert 'pip install "plausiflow[serve]"' in refused("serve", explainer)
