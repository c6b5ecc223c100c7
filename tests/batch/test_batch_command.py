"""``plausiflow batch`` does what the library does, and its exit code reports the result."""

import inspect
import re
from dataclasses import replace

import pytest
from typer.testing import CliRunner

pytest.importorskip("pyarrow")

from batches import GRANTED, answers, failures, parts
from plausiflow import Explainer, Range
from plausiflow.batch import RowFilter, RowSelection, unit_explainer
from plausiflow.cli import app
from plausiflow.cli import batch as batch_command
from plausiflow.errors import ModelError
from plausiflow.workers import Inline


def batch(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["batch", *map(str, arguments)])
    return done.exit_code, " ".join((done.stdout + done.stderr).split())


@pytest.fixture
def inline(monkeypatch):
    """Run units in this process: starting workers takes seconds."""
    monkeypatch.setattr("plausiflow.cli.batch.Processes", lambda **settings: Inline())


@pytest.mark.usefixtures("inline")
def test_the_command_does_what_the_library_does(run, portfolio, tmp_path, folder):
    request = replace(GRANTED, k=2, locked=("job",), constraints=(Range("debt", -2.0, None),))
    run(
        portfolio, tmp_path / "library", request=request, where=RowFilter("income < 5000"), limit=30, key="id"
    )
    code, told = batch(
        folder, portfolio, tmp_path / "out", "--target", "granted", "--k", 2, "--locked", "job",
        "--range", "debt=-2:", "--where", "income < 5000", "--limit", 30, "--key", "id",
        "--rows-per-unit", 10,
    )  # fmt: skip
    assert code == 0, told
    assert re.match(
        r"\d+ rows \(.*\) in 4 parts; \d+ rows now, in \d+ seconds \(.* a second\).* Written: ", told
    )
    assert parts(tmp_path / "out") == parts(tmp_path / "library")


@pytest.mark.usefixtures("inline")
def test_reasons_are_left_out_where_nobody_asks(run, portfolio, tmp_path, folder):
    kept = ("income", "debt", "job", "owner")
    request = replace(GRANTED, locked=kept, diagnose=False)
    run(portfolio, tmp_path / "library", request=request)
    options = ("--target", "granted", "--locked", ",".join(kept), "--rows-per-unit", 10)
    code, told = batch(folder, portfolio, tmp_path / "out", *options, "--no-reasons")
    assert code == 0, told
    assert parts(tmp_path / "out") == parts(tmp_path / "library")
    quiet = answers(tmp_path / "out").query("status == 'infeasible'")
    assert len(quiet) > 10
    assert set(quiet["reason"]) == {"no answer was found; reasons were not asked for"}
    code, told = batch(folder, portfolio, tmp_path / "told", *options)
    assert code == 0, told
    reasons = answers(tmp_path / "told").query("status == 'infeasible'")["reason"]
    # The model is linear: which feature to allow is proven, with OR-tools installed.
    named = "|".join(kept)
    assert reasons.str.contains(f"^the lock on some features blocks|allow `(?:{named})` to change").all()


@pytest.mark.usefixtures("inline")
def test_a_model_that_is_given_makes_another_run(portfolio, tmp_path, folder):
    code, told = batch(folder, portfolio, tmp_path / "out", "--target", "granted", "--model", folder)
    assert code == 0, told
    code, told = batch(folder, portfolio, tmp_path / "out", "--target", "granted", "--resume")
    assert (code, "the explainer is another one" in told) == (2, True)


def test_the_command_has_the_units_of_the_library():
    option = inspect.signature(batch_command.batch).parameters["rows_per_unit"]
    assert option.default == RowSelection().rows_per_unit


@pytest.mark.usefixtures("inline")
def test_a_model_that_fails_makes_units_fail_until_it_works_again(
    run, portfolio, tmp_path, folder, monkeypatch
):
    run(portfolio, tmp_path / "whole")
    out, explain, calls = tmp_path / "out", Explainer.explain, []
    command = (folder, portfolio, out, "--target", "granted", "--rows-per-unit", 10)

    def failing(self, rows, *arguments, **named):
        calls.append(len(rows))
        if len(rows) and len(calls) > 3:  # the model breaks when the run has begun
            raise ModelError("The model raised ConnectionError: no route to host. Check the model.")
        return explain(self, rows, *arguments, **named)

    monkeypatch.setattr(Explainer, "explain", failing)
    code, told = batch(*command)
    assert code == 3
    assert "; 4 units failed" in told
    assert "c.csv, rows 1 to 10: The model raised ConnectionError: no route to host. Check the model." in told
    assert len(failures(out)) == 4
    assert all("no route to host" in record["reason"] for record in failures(out))
    assert not (out / "_SUCCESS").exists()
    assert len(parts(out)) == 2
    assert "invalid_input" not in set(answers(out)["status"])
    code, _ = batch(*command, "--resume")
    assert code == 3, "the model still fails, and units are tried again"
    monkeypatch.setattr(Explainer, "explain", explain)
    code, told = batch(*command, "--resume")
    assert code == 0, told
    assert failures(out) == []
    assert parts(out) == parts(tmp_path / "whole")
    assert (out / "_SUCCESS").read_bytes() == (tmp_path / "whole" / "_SUCCESS").read_bytes()


@pytest.mark.usefixtures("inline")
def test_a_damaged_part_is_told(portfolio, tmp_path, folder):
    out = tmp_path / "out"
    batch(folder, portfolio, out, "--target", "granted")
    min(out.glob("part-*")).write_bytes(b"")
    code, told = batch(folder, portfolio, out, "--target", "granted", "--resume")
    assert code == 0
    assert "its part was damaged (it has no checksum), and the unit was tried again" in told


@pytest.mark.usefixtures("inline")
def test_the_exit_code_reports_the_result(portfolio, tmp_path, folder, monkeypatch):
    (portfolio / "e.parquet").write_bytes(b"")
    code, told = batch(folder, portfolio, tmp_path / "out", "--target", "granted")
    assert code == 3
    assert "; 1 unit failed" in told
    assert "e.parquet: it cannot be read as Parquet" in told
    code, told = batch(folder, portfolio, tmp_path / "out")
    assert code == 2
    assert "Add --resume" in told
    code, told = batch(folder, portfolio, tmp_path / "other", "--jobs", 0)
    assert (code, "--jobs must be at least 1; got 0" in told) == (2, True)
    code, told = batch(folder, portfolio, tmp_path / "other", "--gpus-per-worker", 1)
    assert (code, "Add --engine ray" in told) == (2, True)

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(unit_explainer.UnitExplainer, "__call__", interrupt)
    code, told = batch(folder, portfolio, tmp_path / "stopped")
    assert code == 130
    assert "the same command with --resume continues the run" in told
