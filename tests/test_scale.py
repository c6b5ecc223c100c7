"""Batch runs: every row of the input once in the output, with the answers that ``explain`` gives.

An interrupted run is held against one that was not, byte by byte.
"""

import inspect
import json
import os
import re
import signal
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from typer.testing import CliRunner

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
dataset = pytest.importorskip("pyarrow.dataset")

from batches import FEATURES, answers, applicants, failures, fitted, parts  # noqa: E402
from plausiflow import Explainer, Range  # noqa: E402
from plausiflow.cli import app, batching  # noqa: E402
from plausiflow.errors import InvalidInputError, ModelError  # noqa: E402
from plausiflow.scale import Asked, Chosen, Saved, Where, outputs, run_batch, work  # noqa: E402
from plausiflow.scale.rows import Rows  # noqa: E402
from plausiflow.workers import Inline, WorkerError, locked  # noqa: E402
from processes import forked, wait_for  # noqa: E402

GRANTED = Asked(target="granted")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Of a saved explainer."""
    path = tmp_path_factory.mktemp("explainer") / "credit"
    fitted().save(path)
    return path


@pytest.fixture(scope="module")
def explainer(folder) -> Explainer:
    return Explainer.load(folder)


@pytest.fixture
def run(folder):
    """A run in this process, with units of ten rows unless they are said to be larger."""

    def ran(given, out, *, asked=GRANTED, rows_per_unit=10, resume=False, executor=None, **chosen):
        return run_batch(
            folder,
            given,
            out,
            asked=asked,
            chosen=Chosen(rows_per_unit=rows_per_unit, **chosen),
            executor=executor or Inline(),
            resume=resume,
        )

    return ran


@pytest.fixture
def portfolio(tmp_path) -> Path:
    """Two Parquet files and a CSV file."""
    given = tmp_path / "portfolio"
    given.mkdir()
    applicants(25, 1).to_parquet(given / "a.parquet", row_group_size=15)
    applicants(8, 2).to_parquet(given / "b.parquet")
    applicants(12, 3).to_csv(given / "c.csv", index=False)
    return given


# What is written.


def test_a_run_gives_the_answers_that_explain_gives(run, explainer, tmp_path):
    rows = applicants(40, 5)
    rows.loc[7, "job"] = "pilot"
    rows.to_parquet(tmp_path / "a.parquet", row_group_size=25)
    asked = replace(GRANTED, k=2, locked=("job",), constraints=(Range("debt", -2, None),))
    outcome = run(tmp_path / "a.parquet", tmp_path / "out", asked=asked, key="id", columns=("branch",))
    result = explainer.explain(
        rows[FEATURES], "granted", k=2, locked=["job"], constraints=[Range("debt", -2, None)]
    )
    found = answers(tmp_path / "out")
    assert found.columns[:5].tolist() == ["id", "file", "row", "rank", "status"]
    assert set(found["file"]) == {"a.parquet"}
    first = found[found["rank"].isna() | (found["rank"] == 1)]
    assert first["row"].tolist() == list(range(1, 41))
    assert first["id"].tolist() == rows["id"].tolist()
    assert first["branch"].tolist() == rows["branch"].tolist()
    assert first["status"].tolist() == result.verdicts["status"].tolist()
    assert {"found", "already", "invalid_input"} <= set(first["status"])
    assert first["reason"].iloc[7] == result.verdicts["reason"].iloc[7] != ""
    lines = found[found["rank"].notna()].reset_index(drop=True)
    for name in ("job", "owner"):
        assert lines[name].tolist() == result.answers[name].tolist()
    for name in ("income", "debt"):
        np.testing.assert_allclose(lines[name], result.answers[name], atol=1e-6)
    for name in ("cost", "l1", "l2", "n_changes", "probability", "log_density", "score"):
        np.testing.assert_allclose(lines[name], result.figures[name], rtol=1e-5, atol=1e-6)
    assert outcome.tally.rows == 40
    assert outcome.tally.lines == len(found)
    assert outcome.tally.statuses == result.verdicts["status"].value_counts().sort_index().to_dict()
    assert str(outcome).startswith("40 rows (")


def test_every_row_of_a_directory_is_there_once(run, portfolio, tmp_path):
    outcome = run(portfolio, tmp_path / "out", key="id")
    found = answers(tmp_path / "out")
    assert list(zip(found["file"], found["row"], strict=True)) == [
        (name, row)
        for name, n in (("a.parquet", 25), ("b.parquet", 8), ("c.csv", 12))
        for row in range(1, n + 1)
    ]
    expected = [applicants(n, seed)["id"] for n, seed in ((25, 1), (8, 2), (12, 3))]
    assert found["id"].tolist() == pd.concat(expected).tolist()
    assert (outcome.units, outcome.earlier, outcome.failed) == (6, 0, {})
    success = json.loads((tmp_path / "out" / "_SUCCESS").read_text())
    manifest = json.loads((tmp_path / "out" / "_manifest.json").read_text())
    assert success["rows"] == 45
    assert success["fingerprint"] == manifest["fingerprint"]
    assert {f"{unit[0]}.parquet" for unit in manifest["units"]} == set(parts(tmp_path / "out"))


def test_all_parts_have_the_same_columns_whatever_is_missing_in_them(run, tmp_path):
    rows = applicants(40, 5).astype({"income": "Int64"})
    rows.loc[:9, "income"] = pd.NA
    rows.loc[:9, "branch"] = 7
    rows.loc[10:19, "job"] = "pilot"
    rows.loc[20:29, ["income", "debt"]] = [5900, -3.0]
    rows.to_parquet(tmp_path / "a.parquet", row_group_size=10)
    run(tmp_path / "a.parquet", tmp_path / "out", columns=("branch",))
    schemas = [pq.read_schema(path) for path in sorted((tmp_path / "out").glob("*.parquet"))]
    assert len(schemas) == 4
    assert all(schema.equals(schemas[0], check_metadata=True) for schema in schemas)
    whole = dataset.dataset(tmp_path / "out").to_table()
    assert len(whole) == 40
    assert {name: str(whole.schema.field(name).type) for name in FEATURES} == {
        "id": "large_string", "income": "int64", "debt": "double", "job": "string", "owner": "bool"
    }  # fmt: skip
    counts = whole.to_pandas().groupby("status").size().to_dict()
    assert counts["invalid_input"] == 20
    assert pd.read_parquet(tmp_path / "out")["row"].nunique() == 40


def test_columns_of_ours_give_way_to_those_of_the_input(run, tmp_path):
    applicants(6).assign(file="x", status="old").to_parquet(tmp_path / "a.parquet")
    run(tmp_path / "a.parquet", tmp_path / "out", columns=("file", "status"))
    table = dataset.dataset(tmp_path / "out").to_table()
    assert table["status"].to_pylist() == ["old"] * 6
    assert set(table["plausiflow_status"].to_pylist()) <= {"found", "already"}
    assert table["plausiflow_file"].to_pylist() == ["a.parquet"] * 6


def test_a_limit_a_condition_and_a_key_choose_rows(run, tmp_path):
    rows = applicants(40, 5)
    rows.to_parquet(tmp_path / "a.parquet", row_group_size=20)
    where = Where('income < 3000 and job in ["clerk", "nurse"] and branch > 2')
    run(tmp_path / "a.parquet", tmp_path / "out", limit=25, where=where, key="id")
    first = rows.head(25)
    expected = first[(first["income"] < 3000) & (first["job"] != "smith") & (first["branch"] > 2)]
    found = answers(tmp_path / "out")
    assert found["id"].tolist() == expected["id"].tolist()
    assert found["row"].tolist() == (expected.index + 1).tolist()
    assert len(parts(tmp_path / "out")) == 3


def test_a_part_without_rows_has_all_columns(run, tmp_path):
    applicants(20).to_parquet(tmp_path / "a.parquet")
    outcome = run(tmp_path / "a.parquet", tmp_path / "out", where=Where("income < 0"))
    assert (outcome.tally.rows, outcome.units) == (0, 2)
    whole = run(tmp_path / "a.parquet", tmp_path / "whole")
    assert whole.tally.rows == 20
    some, all_ = (dataset.dataset(tmp_path / name).to_table().schema for name in ("out", "whole"))
    assert some.equals(all_)


def test_files_without_rows_are_no_problem(run, tmp_path):
    given = tmp_path / "given"
    given.mkdir()
    applicants(0).to_parquet(given / "a.parquet")
    applicants(0).to_csv(given / "b.csv", index=False)
    (given / "c.csv").touch()
    outcome = run(given, tmp_path / "out")
    assert (outcome.units, outcome.tally.rows, outcome.failed) == (0, 0, {})
    assert (tmp_path / "out" / "_SUCCESS").exists()


def test_lines_of_csv_files_keep_their_places(run, tmp_path):
    rows = applicants(6, 3).assign(note='two\nlines, "quoted"')
    text = rows.to_csv(index=False, lineterminator="\r\n").splitlines(keepends=True)
    assert len(text) == 13
    (tmp_path / "a.csv").write_text("".join([*text[:5], "short,line\r\n", "\r\n", *text[5:]]), newline="")
    run(tmp_path / "a.csv", tmp_path / "out", key="id", columns=("note",), rows_per_unit=2)
    found = answers(tmp_path / "out")
    assert found["row"].tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert found["id"].drop(2).tolist() == rows["id"].tolist()
    assert found.loc[2, ["id", "income", "job", "cost", "note"]].isna().all()
    assert found["status"].iloc[2] == "invalid_input"
    assert found["reason"].iloc[2] == "it has 2 cells, and the header 7"
    assert set(found["status"].drop(2)) <= {"found", "already"}
    assert set(found["note"].drop(2)) == {'two\nlines, "quoted"'}


def test_rows_need_no_columns_besides_features():
    rows = Rows(numbers=np.arange(3), frame=applicants(3), stored=pa.table({}), problems={1: "short"})
    assert rows.readable().numbers.tolist() == [0, 2]
    assert rows.unreadable().problems == {0: "short"}


def test_a_number_on_a_grid_is_whole_in_the_output_where_it_is_whole_in_all_files(run, tmp_path):
    given = tmp_path / "given"
    given.mkdir()
    applicants(4, 1).astype({"income": "int16"}).to_parquet(given / "a.parquet")
    applicants(4, 2).to_parquet(given / "b.parquet")
    run(given, tmp_path / "whole")
    applicants(4, 3).assign(income=100.5).to_parquet(given / "c.parquet")
    run(given, tmp_path / "mixed")
    kinds = [pq.read_schema(next((tmp_path / name).glob("*.parquet"))) for name in ("whole", "mixed")]
    assert [str(schema.field("income").type) for schema in kinds] == ["int64", "double"]
    assert len(answers(tmp_path / "mixed")) == 12


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [False, True], ids=["classes", "numbers"])
def test_a_model_without_gradients_and_no_column_but_features(tmp_path, numbers):
    names = ["income", "debt", "owner"]
    rows = applicants(150, 1)
    outcome = rows["income"] / 1000 - 2 * rows["debt"] + rows["owner"]
    y = outcome if numbers else pd.cut(outcome, [-99, 1.5, 4, 99], labels=[0, 1, 2]).astype(int)
    kind = HistGradientBoostingRegressor if numbers else HistGradientBoostingClassifier
    model = kind(max_iter=10).fit(rows[names], y)
    made = Explainer(model, confidence=None, judges=0, model_rows=50).fit(rows[names], y)
    made.save(tmp_path / "explainer")
    given = tmp_path / "a.csv"
    applicants(12, 2)[names].to_csv(given, index=False)
    asked = Asked(target=(4.0, None)) if numbers else Asked(target="other")
    chosen = Chosen(rows_per_unit=5)
    outcome = run_batch(
        tmp_path / "explainer", given, tmp_path / "out", asked=asked, chosen=chosen, executor=Inline()
    )
    assert outcome.failed == {}
    result = made.explain(pd.read_csv(given), asked.target)
    found = answers(tmp_path / "out")
    assert found["status"].tolist() == result.verdicts["status"].tolist()
    assert found["target"].tolist() == result.verdicts["target"].tolist()
    np.testing.assert_allclose(found["predicted"], result.verdicts["predicted"].astype(float))
    lines = found[found["rank"].notna()]
    np.testing.assert_allclose(lines["steady"], result.figures["steady"])
    if numbers:
        np.testing.assert_allclose(lines["prediction"], result.figures["prediction"])


# What goes wrong.


def damage(path: Path, group: int) -> None:
    """Overwrite the bytes of a row group."""
    with pq.ParquetFile(path) as file:
        column = file.metadata.row_group(group).column(1)
        start = column.dictionary_page_offset or column.data_page_offset
        size = column.total_compressed_size
    content = bytearray(path.read_bytes())
    content[start : start + size] = b"\xff" * size
    path.write_bytes(content)


def test_a_bad_row_group_is_reported_and_does_not_stop_the_run(run, tmp_path):
    path, out = tmp_path / "a.parquet", tmp_path / "out"
    applicants(30, 5).to_parquet(path, row_group_size=10)
    damage(path, 1)
    outcome = run(path, out)
    assert list(outcome.failed) == ["a.parquet, row group 1, rows 11 to 20"]
    assert str(outcome).endswith("; 1 unit failed")
    (record,) = failures(out)
    assert record["where"] == "a.parquet, row group 1, rows 11 to 20"
    assert record["reason"]
    assert not (out / "_SUCCESS").exists()
    assert answers(out)["row"].tolist() == [*range(1, 11), *range(21, 31)]


def test_units_that_failed_are_tried_again(run, tmp_path, monkeypatch):
    applicants(30, 5).to_parquet(tmp_path / "a.parquet", row_group_size=10)
    run(tmp_path / "a.parquet", tmp_path / "whole")
    explain = Explainer.explain

    def failing(self, rows, *arguments, **named):
        if len(rows) and rows.index[0] == 11:
            raise ModelError("the model is out of order.")
        return explain(self, rows, *arguments, **named)

    monkeypatch.setattr(Explainer, "explain", failing)
    first = run(tmp_path / "a.parquet", tmp_path / "out")
    assert list(first.failed.values()) == ["the model is out of order"]
    assert len(failures(tmp_path / "out")) == 1
    monkeypatch.undo()
    second = run(tmp_path / "a.parquet", tmp_path / "out", resume=True)
    assert (second.failed, second.earlier, second.units) == ({}, 2, 3)
    assert failures(tmp_path / "out") == []
    assert parts(tmp_path / "out") == parts(tmp_path / "whole")
    assert (tmp_path / "out" / "_SUCCESS").read_bytes() == (tmp_path / "whole" / "_SUCCESS").read_bytes()


def test_files_that_cannot_be_used_are_told_and_the_others_are_done(run, portfolio, tmp_path):
    applicants(5).drop(columns="debt").to_parquet(portfolio / "d.parquet")
    (portfolio / "e.parquet").write_bytes(b"PAR1 no more")
    (portfolio / "f.csv").write_text("id;income\n")
    outcome = run(portfolio, tmp_path / "out")
    assert list(outcome.failed) == ["d.parquet", "e.parquet", "f.csv"]
    assert outcome.failed["d.parquet"].startswith("it has no column 'debt'; its columns are id, income")
    assert outcome.failed["e.parquet"].startswith("it cannot be read as Parquet")
    assert "separated by ';'" in outcome.failed["f.csv"]
    assert outcome.tally.rows == 45
    for name in "abc":
        next(portfolio.glob(f"{name}.*")).unlink()
    with pytest.raises(InvalidInputError, match=r"d\.parquet cannot be used: it has no column 'debt'"):
        run(portfolio, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_what_cannot_be_asked_is_told_before_anything_is_written(run, portfolio, tmp_path):
    for settings, told in (
        ({"asked": Asked(target="perhaps")}, "`target` must be"),
        ({"asked": Asked(locked=("none",))}, "none"),
        ({"key": "income"}, "answers may change the feature 'income'"),
        ({"columns": ("none",)}, "no column 'none'"),
        ({"where": Where("none > 3")}, "no column 'none'"),
    ):
        with pytest.raises(InvalidInputError, match=told):
            run(portfolio, tmp_path / "out", **settings)
    with pytest.raises(InvalidInputError, match=r"is inside .*, which is read"):
        run(portfolio, portfolio / "out")
    assert not (tmp_path / "out").exists()


def test_a_device_is_named_and_makes_another_run(run, portfolio, tmp_path):
    with pytest.raises(InvalidInputError, match="`device` must be 'cpu' or 'cuda'"):
        Asked(device="auto")
    run(portfolio, tmp_path / "out")
    with pytest.raises(InvalidInputError, match="device is 'cpu' there, 'cuda' here"):
        run(portfolio, tmp_path / "out", asked=replace(GRANTED, device="cuda"), resume=True)
    if not torch.cuda.is_available():
        outcome = run(portfolio, tmp_path / "other", asked=replace(GRANTED, device="cuda"))
        assert all("a CUDA device that is there" in reason for reason in outcome.failed.values())
        assert len(outcome.failed) == outcome.units


@pytest.mark.gpu
def test_a_run_on_a_gpu_finds_what_one_without_finds(run, tmp_path):
    applicants(3000, 5).to_parquet(tmp_path / "a.parquet")
    run(tmp_path / "a.parquet", tmp_path / "cpu", rows_per_unit=3000)
    run(tmp_path / "a.parquet", tmp_path / "cuda", rows_per_unit=3000, asked=replace(GRANTED, device="cuda"))
    cpu, cuda = answers(tmp_path / "cpu"), answers(tmp_path / "cuda")
    assert cuda["status"].tolist() == cpu["status"].tolist()
    assert (cpu["status"] == "found").sum() > 500
    assert abs(cuda["cost"].mean() / cpu["cost"].mean() - 1) < 0.01


def test_a_directory_that_holds_something_else_is_left_alone(run, portfolio, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    for resume in (False, True):
        with pytest.raises(InvalidInputError, match=r"must be new, empty.*it holds mine\.txt"):
            run(portfolio, out, resume=resume)
    with pytest.raises(InvalidInputError, match="is a file; a directory is expected"):
        run(portfolio, out / "mine.txt")
    (out / "mine.txt").unlink()
    with locked(out / "_lock"), pytest.raises(InvalidInputError, match="is in use by process"):
        run(portfolio, out)
    run(portfolio, out, resume=True)
    with pytest.raises(InvalidInputError, match=r"holds a run already\. Add --resume"):
        run(portfolio, out)
    (out / f"part-{'0' * 32}.parquet").write_bytes(b"")
    with pytest.raises(InvalidInputError, match="which is not of this run"):
        run(portfolio, out, resume=True)


def test_another_run_is_not_gone_on_with(run, portfolio, tmp_path, folder):
    out = tmp_path / "out"
    run(portfolio, out)
    before = parts(out)
    for settings, told in (
        ({"rows_per_unit": 11}, "rows_per_unit is 10 there, 11 here"),
        ({"asked": replace(GRANTED, k=2)}, "k is 1 there, 2 here"),
        ({"where": Where("income > 0")}, "where is None there, 'income > 0' here"),
    ):
        with pytest.raises(InvalidInputError, match=f"cannot be gone on with: {told}"):
            run(portfolio, out, resume=True, **settings)
    os.utime(portfolio / "c.csv", ns=(0, 0))
    with pytest.raises(InvalidInputError, match="the input files have changed"):
        run(portfolio, out, resume=True)
    other = Saved(folder=folder, model=partial(model_of, folder), model_is="another")
    with pytest.raises(InvalidInputError, match="the explainer is another one; the input files have changed"):
        run_batch(other, portfolio, out, asked=GRANTED, chosen=Chosen(rows_per_unit=10), resume=True)
    (out / "_manifest.json").write_text("[]")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        run(portfolio, out, resume=True)
    assert parts(out) == before


def model_of(folder: Path) -> object:
    return Explainer.load(folder).model


def test_a_part_that_cannot_be_read_again_is_done_again(run, portfolio, tmp_path):
    out = tmp_path / "out"
    run(portfolio, out)
    before = parts(out)
    name = min(before)
    (out / name).write_bytes(before[name][:100])
    broken = run(portfolio, out, resume=True)
    assert next(iter(broken.failed.values())).startswith("its part could not be read again")
    assert not (out / "_SUCCESS").exists()
    again = run(portfolio, out, resume=True)
    assert (again.failed, again.earlier) == ({}, 5)
    assert parts(out) == before


def test_a_run_ends_where_nothing_can_be_written(run, portfolio, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(outputs.Folder, "write_part", full)
    with pytest.raises(WorkerError, match=r"stopped at a\.parquet.*nothing can be written.*No space left"):
        run(portfolio, tmp_path / "out")


# Interrupted runs.


@contextmanager
def killed_in_the_middle_of_writing(number: int):
    """In the middle of the part of this number, this process ends at once."""
    write, written = pq.write_table, []

    def half(table, file, **settings):
        written.append(table)
        if len(written) == number:
            buffer = pa.BufferOutputStream()
            write(table, buffer, **settings)
            content = buffer.getvalue().to_pybytes()
            file.write(content[: len(content) // 2])
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        write(table, file, **settings)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(outputs.pq, "write_table", half)
        yield


def test_a_run_that_is_killed_in_the_middle_of_writing_goes_on(run, portfolio, tmp_path):
    run(portfolio, tmp_path / "whole")
    out = tmp_path / "out"
    for number, done in ((3, 2), (2, 3)):

        def killed(number=number):
            with killed_in_the_middle_of_writing(number):
                run(portfolio, out, resume=True)

        _, status = os.waitpid(forked(killed), 0)
        assert os.WTERMSIG(status) == signal.SIGKILL
        assert len(parts(out)) == done
        assert len(list(out.glob(".part-*.tmp"))) == 1
    outcome = run(portfolio, out, resume=True)
    assert outcome.earlier == 3
    assert parts(out) == parts(tmp_path / "whole")
    assert list(out.glob(".*")) == []
    assert (out / "_SUCCESS").read_bytes() == (tmp_path / "whole" / "_SUCCESS").read_bytes()


def test_a_run_that_is_killed_at_any_moment_goes_on(run, tmp_path):
    given, out = tmp_path / "a.parquet", tmp_path / "out"
    applicants(2000, 5, few=True).to_parquet(given, row_group_size=100)
    run(given, tmp_path / "whole", rows_per_unit=100)
    for enough in (2, 9):
        pid = forked(lambda: run(given, out, rows_per_unit=100, resume=True))
        wait_for(lambda enough=enough: len(list(out.glob("part-*"))) >= enough)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert len(parts(out)) < 20
    run(given, out, rows_per_unit=100, resume=True)
    assert parts(out) == parts(tmp_path / "whole")
    assert answers(out)["row"].tolist() == list(range(1, 2001))


def test_ctrl_c_leaves_whole_parts_alone(run, portfolio, tmp_path, monkeypatch):
    out, write = tmp_path / "out", outputs.Folder.write_part

    def interrupted(self, name, table):
        if len(parts(out)) == 2:
            raise KeyboardInterrupt
        write(self, name, table)

    monkeypatch.setattr(outputs.Folder, "write_part", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(portfolio, out)
    monkeypatch.undo()
    assert sorted(path.name for path in out.iterdir() if not path.name.startswith("part-")) == [
        "_lock",
        "_manifest.json",
    ]
    assert run(portfolio, out, resume=True).earlier == 2


def used(given: Path, out: Path, folder: Path, told: Path) -> None:
    chosen = Chosen(rows_per_unit=2000)
    outcome = run_batch(folder, given, out, asked=GRANTED, chosen=chosen, executor=Inline())
    told.write_text(str(outcome.memory[1]))


def test_memory_does_not_grow_with_the_number_of_row_groups(folder, tmp_path):
    beyond = []
    for groups in (3, 24):
        given, told = tmp_path / f"{groups}.parquet", tmp_path / f"{groups}.txt"
        applicants(2000 * groups, groups, few=True).to_parquet(given, row_group_size=2000)
        os.waitpid(forked(partial(used, given, tmp_path / str(groups), folder, told)), 0)
        beyond.append(int(told.read_text()))
    if not any(beyond):
        pytest.skip("this system does not tell how much memory a process uses")
    assert beyond[1] < beyond[0] + 30e6


def test_columns_whose_types_differ_between_files_are_text(run, portfolio, tmp_path):
    run(portfolio, tmp_path / "out", columns=("branch",))
    expected = [applicants(n, seed)["branch"] for n, seed in ((25, 1), (8, 2), (12, 3))]
    assert answers(tmp_path / "out")["branch"].tolist() == pd.concat(expected).map(str).tolist()


# The command line.


def batch(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["batch", *map(str, arguments)])
    return done.exit_code, " ".join((done.stdout + done.stderr).split())


@pytest.fixture
def inline(monkeypatch):
    """Let commands run in this process: starting workers takes seconds."""
    monkeypatch.setattr("plausiflow.cli.batching.Processes", lambda **settings: Inline())


@pytest.mark.usefixtures("inline")
def test_the_command_does_what_the_library_does(run, portfolio, tmp_path, folder):
    asked = replace(GRANTED, k=2, locked=("job",), constraints=(Range("debt", -2.0, None),))
    run(portfolio, tmp_path / "library", asked=asked, where=Where("income < 5000"), limit=30, key="id")
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
def test_a_model_that_is_given_makes_another_run(portfolio, tmp_path, folder):
    code, told = batch(folder, portfolio, tmp_path / "out", "--target", "granted", "--model", folder)
    assert code == 0, told
    code, told = batch(folder, portfolio, tmp_path / "out", "--target", "granted", "--resume")
    assert (code, "the explainer is another one" in told) == (2, True)


def test_the_command_takes_as_many_rows_for_a_unit_as_the_library():
    option = inspect.signature(batching.batch).parameters["rows_per_unit"]
    assert option.default == Chosen().rows_per_unit


@pytest.mark.usefixtures("inline")
def test_the_exit_code_tells_what_became_of_a_run(portfolio, tmp_path, folder, monkeypatch):
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

    monkeypatch.setattr(work.Work, "__call__", interrupt)
    code, told = batch(folder, portfolio, tmp_path / "stopped")
    assert code == 130
    assert "the same command with --resume goes on from there" in told
