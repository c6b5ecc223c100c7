"""The soak in small: outcomes, damage, odd tables, and the command."""

import random
from pathlib import Path

import pytest

from benchmarking import invoke, read_json
from plausiflow.errors import InvalidInputError
from plausiflow_bench.soak import frames, mutations, study
from plausiflow_bench.soak.outcomes import MOST_EXAMPLES, Countdown, Outcomes


def test_outcomes_are_counted_with_a_few_examples():
    outcomes = Outcomes("part")
    for kind in ("right", "clear", *["wrong"] * 9, "lost"):
        outcomes.add(kind, "an example")
    row = outcomes.row(2.0)
    assert [row[name] for name in study.COLUMNS] == ["part", 12, 1, 1, 9, 1, 2.0]
    assert len(outcomes.examples) == MOST_EXAMPLES
    assert study.failures([row]) == 10


def test_every_way_of_damage_changes_the_folder(tmp_path):
    def content():
        return {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    draw, seen = random.Random(0), set()
    for _ in range(200):
        (tmp_path / "a.json").write_text('{"a": [1, {"b": "c"}], "d": 2.5}')
        (tmp_path / "b.bin").write_bytes(bytes(range(256)))
        before = content()
        what = mutations._damage(tmp_path, draw)
        seen.add(what.partition(": ")[2].split(" ")[-1])
        if "truncated" not in what and "is now" not in what and "flipped" not in what:
            assert content() != before
    assert {"truncated", "deleted", "appended", "flipped"} <= seen


def test_a_crash_and_a_raw_exception_are_wrong(tmp_path, monkeypatch):
    saved = tmp_path / "saved"
    saved.mkdir()
    (saved / "document.json").write_text("{}")
    program = "import os, sys\nfor f in sys.argv[3:]: print('wrong KeyError', flush=True); os.abort()"
    monkeypatch.setattr(mutations, "_PROGRAM", program)
    outcomes = Outcomes("files")

    class Once(Countdown):
        over = property(lambda self: outcomes.wrong > 0)

    mutations.soak_files(saved, Path("r"), Path("e"), tmp_path, outcomes, Once(0.0))
    assert (outcomes.wrong, outcomes.right, outcomes.clear) == (2, 0, 0)
    assert "ended with -6" in outcomes.examples[1]


class Stubborn:
    """An explainer that raises what no explainer should."""

    def explain(self, frame, **arguments):
        raise KeyError("column")


def test_a_raw_exception_of_explain_is_wrong():
    import pandas as pd

    outcomes = Outcomes("tables")
    frames._explain(Stubborn(), pd.DataFrame({"a": [1]}), {}, outcomes)
    assert outcomes.wrong == 1
    assert "KeyError" in outcomes.examples[0]


@pytest.mark.parametrize("wrong", [{"minutes": 0}, {"clients": 0}, {"parts": ("sleep",)}, {"batch_rows": 0}])
def test_an_impossible_soak_is_refused(wrong):
    with pytest.raises(InvalidInputError, match="A soak needs minutes"):
        study.SoakSelection(**wrong)


def test_the_command_fails_if_anything_was_wrong(tmp_path, monkeypatch):
    row = {"part": "files", "tried": 1, "right": 0, "clear": 0, "wrong": 1, "lost": 0, "seconds": 1.0}
    given = row | {"examples": "files: a crash", "seed": 0, "commit": "abc"}
    monkeypatch.setattr(study, "run", lambda selection: iter([given]))
    done = invoke("benchmark", "soak", "--minutes", 1)
    assert done.exit_code == 1
    assert "a crash" in done.output


@pytest.mark.slow
def test_a_short_soak_finds_nothing_wrong(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"{study.MARK}\n<!-- end -->\n")
    done = invoke(
        "benchmark", "soak", "--minutes", 0.5, "--clients", 12, "--batch-rows", 200,
        "--json", tmp_path / "soak.json", "--page", page,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    rows = read_json(tmp_path / "soak.json")
    assert [row["part"] for row in rows] == list(study.PARTS)
    assert all(row["tried"] > 0 and row["wrong"] == row["lost"] == 0 for row in rows)
    assert "| service |" in page.read_text()
