"""Batch runs where something goes wrong: that is told, the rest is done, and what is there is left alone."""

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

pq = pytest.importorskip("pyarrow.parquet")

from batches import GRANTED, answers, applicants, failures, parts  # noqa: E402
from plausiflow import Explainer  # noqa: E402
from plausiflow.batch import BatchRequest, Chosen, Saved, Where, outputs, run_batch  # noqa: E402
from plausiflow.errors import InvalidInputError, ModelError  # noqa: E402
from plausiflow.workers import WorkerError, locked  # noqa: E402


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
        ({"asked": BatchRequest(target="perhaps")}, "`target` must be"),
        ({"asked": BatchRequest(locked=("none",))}, "none"),
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
        BatchRequest(device="auto")
    run(portfolio, tmp_path / "out")
    with pytest.raises(InvalidInputError, match="device is 'cpu' there, 'cuda' here"):
        run(portfolio, tmp_path / "out", asked=replace(GRANTED, device="cuda"), resume=True)
    if not torch.cuda.is_available():
        outcome = run(portfolio, tmp_path / "other", asked=replace(GRANTED, device="cuda"))
        assert all("a CUDA device that is there" in reason for reason in outcome.failed.values())
        assert len(outcome.failed) == outcome.units


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
