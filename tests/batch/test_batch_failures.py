"""Batch runs in which something fails: it is reported, the rest is done, existing files are kept."""

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

pq = pytest.importorskip("pyarrow.parquet")

from batches import GRANTED, answers, applicants, failures, parts  # noqa: E402
from plausiflow import Explainer  # noqa: E402
from plausiflow.batch import (  # noqa: E402
    BatchRequest,
    ExplainerLocation,
    RowFilter,
    RowSelection,
    output_folder,
    run_batch,
)
from plausiflow.errors import InvalidInputError, ModelError  # noqa: E402
from plausiflow.workers import WorkerError, hold_lock  # noqa: E402


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
    summary = run(path, out)
    assert list(summary.failed) == ["a.parquet, row group 1, rows 11 to 20"]
    assert str(summary).endswith("; 1 unit failed")
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
    assert (second.failed, second.units_before, second.units) == ({}, 2, 3)
    assert failures(tmp_path / "out") == []
    assert parts(tmp_path / "out") == parts(tmp_path / "whole")
    assert (tmp_path / "out" / "_SUCCESS").read_bytes() == (tmp_path / "whole" / "_SUCCESS").read_bytes()


def test_unusable_files_are_reported_and_the_others_are_done(run, portfolio, tmp_path):
    applicants(5).drop(columns="debt").to_parquet(portfolio / "d.parquet")
    (portfolio / "e.parquet").write_bytes(b"PAR1 no more")
    (portfolio / "f.csv").write_text("id;income\n")
    summary = run(portfolio, tmp_path / "out")
    assert list(summary.failed) == ["d.parquet", "e.parquet", "f.csv"]
    assert summary.failed["d.parquet"].startswith("it has no column 'debt'; its columns are id, income")
    assert summary.failed["e.parquet"].startswith("it cannot be read as Parquet")
    assert "separated by ';'" in summary.failed["f.csv"]
    assert summary.counts.rows == 45
    for name in "abc":
        next(portfolio.glob(f"{name}.*")).unlink()
    with pytest.raises(InvalidInputError, match=r"d\.parquet cannot be used: it has no column 'debt'"):
        run(portfolio, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_an_invalid_request_raises_before_anything_is_written(run, portfolio, tmp_path):
    for settings, told in (
        ({"request": BatchRequest(target="perhaps")}, "`target` must be"),
        ({"request": BatchRequest(locked=("none",))}, "none"),
        ({"key": "income"}, "answers may change the feature 'income'"),
        ({"columns": ("none",)}, "no column 'none'"),
        ({"where": RowFilter("none > 3")}, "no column 'none'"),
    ):
        with pytest.raises(InvalidInputError, match=told):
            run(portfolio, tmp_path / "out", **settings)
    with pytest.raises(InvalidInputError, match=r"is inside the input directory"):
        run(portfolio, portfolio / "out")
    assert not (tmp_path / "out").exists()


def test_a_device_is_named_and_makes_another_run(run, portfolio, tmp_path):
    with pytest.raises(InvalidInputError, match="`device` must be 'cpu' or 'cuda'"):
        BatchRequest(device="auto")
    run(portfolio, tmp_path / "out")
    with pytest.raises(InvalidInputError, match="device was 'cpu', and is now 'cuda'"):
        run(portfolio, tmp_path / "out", request=replace(GRANTED, device="cuda"), resume=True)
    if not torch.cuda.is_available():
        summary = run(portfolio, tmp_path / "other", request=replace(GRANTED, device="cuda"))
        assert all("an available CUDA device" in reason for reason in summary.failed.values())
        assert len(summary.failed) == summary.units


def test_a_directory_with_other_content_is_refused_and_kept(run, portfolio, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    for resume in (False, True):
        with pytest.raises(InvalidInputError, match=r"must be new, empty.*it contains mine\.txt"):
            run(portfolio, out, resume=resume)
    with pytest.raises(InvalidInputError, match="is a file; a directory is expected"):
        run(portfolio, out / "mine.txt")
    (out / "mine.txt").unlink()
    with hold_lock(out / "_lock"), pytest.raises(InvalidInputError, match="is in use by process"):
        run(portfolio, out)
    run(portfolio, out, resume=True)
    with pytest.raises(InvalidInputError, match=r"already contains a run\. Add --resume"):
        run(portfolio, out)
    (out / f"part-{'0' * 32}.parquet").write_bytes(b"")
    with pytest.raises(InvalidInputError, match="which is not part of this run"):
        run(portfolio, out, resume=True)


def test_another_run_is_not_continued(run, portfolio, tmp_path, folder):
    out = tmp_path / "out"
    run(portfolio, out)
    before = parts(out)
    for settings, told in (
        ({"rows_per_unit": 11}, "rows_per_unit was 10, and is now 11"),
        ({"request": replace(GRANTED, k=2)}, "k was 1, and is now 2"),
        ({"where": RowFilter("income > 0")}, "where was None, and is now 'income > 0'"),
    ):
        with pytest.raises(InvalidInputError, match=f"cannot be continued: {told}"):
            run(portfolio, out, resume=True, **settings)
    os.utime(portfolio / "c.csv", ns=(0, 0))
    with pytest.raises(InvalidInputError, match="the input files have changed"):
        run(portfolio, out, resume=True)
    other = ExplainerLocation(folder=folder, model=partial(model_of, folder), model_id="another")
    with pytest.raises(InvalidInputError, match="the explainer is another one; the input files have changed"):
        run_batch(
            other, portfolio, out, request=GRANTED, selection=RowSelection(rows_per_unit=10), resume=True
        )
    (out / "_manifest.json").write_text("[]")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        run(portfolio, out, resume=True)
    assert parts(out) == before


def model_of(folder: Path) -> object:
    return Explainer.load(folder).model


def test_an_unreadable_part_is_done_again(run, portfolio, tmp_path):
    out = tmp_path / "out"
    run(portfolio, out)
    before = parts(out)
    name = min(before)
    (out / name).write_bytes(before[name][:100])
    again = run(portfolio, out, resume=True)
    assert (again.failed, again.units_before) == ({}, 5)
    assert list(again.damaged.values()) == ["it has no checksum"]
    assert parts(out) == before


def test_a_run_stops_when_parts_cannot_be_written(run, portfolio, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(output_folder.OutputFolder, "write_part", full)
    with pytest.raises(
        WorkerError, match=r"stopped at a\.parquet.*the part cannot be written.*No space left"
    ):
        run(portfolio, tmp_path / "out")
