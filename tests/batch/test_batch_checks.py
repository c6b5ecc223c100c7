"""A resumed run continues with the same input and the parts that it wrote, or says what has changed."""

import json
import os

import pytest

pq = pytest.importorskip("pyarrow.parquet")

from batches import answers, applicants, parts  # noqa: E402
from plausiflow.errors import InvalidInputError  # noqa: E402
from sampling import slow  # noqa: E402


def test_an_input_that_changed_with_the_old_size_and_time_is_not_continued(run, tmp_path):
    path, out = tmp_path / "a.csv", tmp_path / "out"
    applicants(30, 5).to_csv(path, index=False)
    run(path, out)
    first = min(out.glob("part-*"))
    first.unlink()
    before, times = parts(out), path.stat()
    text = path.read_text().splitlines()
    path.write_text("\n".join([text[0], *reversed(text[1:])]) + "\n")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert path.stat().st_size == times.st_size
    with pytest.raises(InvalidInputError, match="cannot be continued: the input files have changed"):
        run(path, out, resume=True)
    assert parts(out) == before


def test_an_input_that_changes_while_the_run_goes_on_is_not_read(run, tmp_path, monkeypatch):
    from plausiflow.batch.output_folder import OutputFolder

    path, write = tmp_path / "a.csv", OutputFolder.write_part
    applicants(30, 5).to_csv(path, index=False)
    times = path.stat()

    def change(self, *arguments):
        write(self, *arguments)
        text = path.read_text().splitlines()
        path.write_text("\n".join([text[0], *reversed(text[1:])]) + "\n")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        monkeypatch.undo()

    monkeypatch.setattr(OutputFolder, "write_part", change)
    summary = run(path, tmp_path / "out")
    assert len(summary.failed) == 2
    assert all("was changed after the run began" in reason for reason in summary.failed.values())
    assert not (tmp_path / "out" / "_SUCCESS").exists()


def test_parts_carry_their_rows_and_a_checksum(run, tmp_path):
    applicants(25, 5).to_parquet(tmp_path / "a.parquet", row_group_size=15)
    run(tmp_path / "a.parquet", tmp_path / "out")
    entries = []
    for path in (tmp_path / "out").glob("part-*"):
        with pq.ParquetFile(path) as file:
            entry = json.loads(file.metadata.metadata[b"plausiflow"])
            rows = set(file.read(columns=["row"])["row"].to_pylist())
        assert entry["unit"] == path.stem
        assert entry["file"] == "a.parquet"
        assert len(entry["sha256"].strip("0")) > 50
        assert rows == set(range(entry["first_row"], entry["first_row"] + entry["rows"]))
        entries.append((entry["row_group"], entry["first_row"], entry["rows"]))
    assert sorted(entries) == [(0, 1, 10), (0, 11, 5), (1, 16, 10)]


def swap(first, second):
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)


def truncate(first, _):
    first.write_bytes(first.read_bytes()[:-20])


def empty(first, _):
    first.write_bytes(b"")


def copy(first, second):
    first.write_bytes(second.read_bytes())


def write_other_values(first, _):
    table = pq.read_table(first)
    row = table.schema.get_field_index("row")
    pq.write_table(table.set_column(row, "row", table["row"].take(list(range(len(table)))[::-1])), first)


@pytest.mark.parametrize(
    ("damage", "n_damaged"),
    [(swap, 2), (truncate, 1), slow(empty, 1), slow(copy, 1), (write_other_values, 1)],
)
def test_a_part_that_is_not_as_it_was_written_is_explained_again(run, portfolio, tmp_path, damage, n_damaged):
    out = tmp_path / "out"
    run(portfolio, out)
    before, success = parts(out), (out / "_SUCCESS").read_bytes()
    damage(*sorted(out.glob("part-*"))[:2])
    assert parts(out) != before
    summary = run(portfolio, out, resume=True)
    assert len(summary.damaged) == n_damaged
    assert summary.units - summary.units_before == n_damaged
    assert parts(out) == before
    assert (out / "_SUCCESS").read_bytes() == success
    assert len(answers(out)) == 45


def test_every_byte_of_a_part_counts(run, tmp_path):
    from plausiflow.batch.part_files import part_problem

    applicants(3, 5).to_parquet(tmp_path / "a.parquet")
    run(tmp_path / "a.parquet", tmp_path / "out")
    (path,) = (tmp_path / "out").glob("part-*")
    content = path.read_bytes()
    with pq.ParquetFile(path) as file:
        identity = json.loads(file.metadata.metadata[b"plausiflow"])
    del identity["sha256"]
    assert part_problem(path, identity) == ""
    assert "rows of" in part_problem(path, identity | {"first_row": 2})
    checksum = content.rindex(b'"sha256": "')
    for position in (*range(0, len(content), 41), checksum, checksum + 20, len(content) - 1):
        path.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        assert part_problem(path, identity), position


def test_a_run_that_is_not_complete_has_no_mark_of_success(run, portfolio, tmp_path, monkeypatch):
    from plausiflow.batch import unit_explainer

    out = tmp_path / "out"
    run(portfolio, out)
    truncate(min(out.glob("part-*")), None)

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(unit_explainer.UnitExplainer, "__call__", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(portfolio, out, resume=True)
    assert len(parts(out)) == 5
    assert not (out / "_SUCCESS").exists()
