"""A row of a file that cannot be read costs that row alone, and all others keep their numbers."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from batches import answers, applicants  # noqa: E402
from plausiflow.batch import RowFilter, csv_files  # noqa: E402
from plausiflow.batch.csv_files import csv_slices, read_records  # noqa: E402
from plausiflow.batch.input_files import FileSlice  # noqa: E402

UNREADABLE = {
    "an unclosed quote": (b'7-4,"12', "a double quote is not closed"),
    "text after a quote": (
        b'"7-4"x,1',
        "it is not valid CSV (',' expected after",
    ),
    "an oversized cell": (b"x" * 200_000, "a cell has more than 131,072 characters"),
    "a byte of another encoding": (b"7-4,1200,0.5,cl\xfcrk,True,3", "it is not utf-8 text at the byte 0xfc"),
    "a carriage return": (b"7-4,12\r00", "it is not valid CSV"),
}


def read_all(path: Path, max_rows: int, encoding: str = "utf-8") -> tuple[list[list[str]], dict[int, str]]:
    """Return the records of all slices, and the problems by the number of the row, from 1."""
    cells, problems = [], {}
    for own in csv_slices(path, ",", max_rows):
        found, wrong = read_records(path, own, ",", encoding)
        assert len(found) == own.n_rows
        assert len(cells) == own.first_row - 1
        problems |= {own.first_row + position: text for position, text in wrong.items()}
        cells += found
    return cells, problems


@pytest.fixture(scope="module")
def known():
    """Answers that were found already."""
    return {}


@pytest.fixture
def whole(run, tmp_path, known):
    """The answers for the rows of a file that can all be read; found once for all tests."""
    if "whole" not in known:
        applicants(12, 7).to_csv(tmp_path / "a.csv", index=False)
        run(tmp_path / "a.csv", tmp_path / "whole", key="id")
        known["whole"] = answers(tmp_path / "whole")
    return known["whole"]


@pytest.mark.parametrize("kind", UNREADABLE)
@pytest.mark.parametrize("position", [1, pytest.param(5, marks=pytest.mark.slow), 12])
def test_a_row_that_cannot_be_read_costs_that_row_alone(run, whole, tmp_path, kind, position):
    rows = applicants(12, 7)
    lines = rows.to_csv(index=False).encode().splitlines()
    lines[position], reason = UNREADABLE[kind]
    given = tmp_path / "b.csv"
    given.write_bytes(b"\n".join(lines))
    summary = run(given, tmp_path / "out", key="id")
    found = answers(tmp_path / "out")
    assert summary.failed == {}
    assert found["row"].tolist() == list(range(1, 13))
    assert found["status"][position - 1] == "invalid_input"
    assert reason in found["reason"][position - 1]
    others = [row for row in range(12) if row != position - 1]
    columns = ["id", "row", "status", "income", "debt", "job", "owner"]
    assert found.loc[others, columns].equals(whole.loc[others, columns])


def test_a_line_without_end_costs_its_row(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_files, "MAX_LINE_BYTES", 50)
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n" + "x" * 170 + "\n3,4\n" + "y" * 100)
    assert next(csv_slices(path, ",", 1)) == FileSlice(first_row=1, n_rows=1, start=4, stop=8)
    for max_rows in (1, 2, 9):
        cells, problems = read_all(path, max_rows)
        assert cells == [["1", "2"], [], ["3", "4"], []]
        assert problems == dict.fromkeys((2, 4), "a line has more than 50 bytes")


def test_a_byte_of_another_encoding_does_not_matter_in_its_own_encoding(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"one,two\n1,\xfc\n2,b\n")
    assert read_all(path, 1, "latin-1") == ([["1", "ü"], ["2", "b"]], {})
    path.write_bytes("a|b\n\u8a00|2\n".encode("gbk"))
    assert read_records(path, next(csv_slices(path, "|", 1)), "|", "gbk") == ([["\u8a00", "2"]], {})


@given(
    lines=st.lists(
        st.binary(min_size=1, max_size=9).map(lambda line: bytes(b'ab",\xfc\r'[b % 6] for b in line)),
        max_size=15,
    ),
    max_rows=st.integers(1, 5),
)
def test_the_size_of_units_does_not_change_the_rows(tmp_path_factory, lines, max_rows):
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_bytes(b"\n".join([b"one,two", *lines]))
    assert read_all(path, max_rows) == read_all(path, 1000)


@given(
    lines=st.lists(
        st.tuples(st.sampled_from(["1", "ab", '"a,b"', '"say ""a"""']), st.sampled_from(["", "x", '""'])),
        min_size=1,
        max_size=15,
    ),
    place=st.integers(0, 14),
    bad=st.sampled_from(['"', 'a,"', '"a', '"a"b,c', 'a,"b""', '""",x']),
    max_rows=st.integers(1, 5),
)
def test_a_bad_quote_costs_its_line_whatever_quotes_the_others_have(
    tmp_path_factory, lines, place, bad, max_rows
):
    path, place = tmp_path_factory.mktemp("csv") / "a.csv", min(place, len(lines))
    texts = [",".join(cells) for cells in lines]
    path.write_text("\n".join(["one,two", *texts]))
    expected, _ = read_all(path, 1000)
    path.write_text("\n".join(["one,two", *texts[:place], bad, *texts[place:]]))
    cells, problems = read_all(path, max_rows)
    assert list(problems) == [place + 1]
    assert cells == [*expected[:place], [], *expected[place:]]


def test_a_file_of_bad_quotes_is_read_in_linear_time(tmp_path, monkeypatch):
    path, read, n = tmp_path / "a.csv", [], 3000
    path.write_text("one,two\n" + 'x",",\n' * n)
    following = csv_files._Lines.__next__

    def counted(self):
        read.append(1)
        return following(self)

    monkeypatch.setattr(csv_files._Lines, "__next__", counted)
    assert sum(own.n_rows for own in csv_slices(path, ",", 100)) == n
    assert len(read) < 3 * n + 10


def test_a_condition_keeps_the_rows_that_cannot_be_read(run, tmp_path):
    rows = applicants(12, 7)
    lines = rows.to_csv(index=False).encode().splitlines()
    lines[5] = b'7-4,"12'
    (tmp_path / "a.csv").write_bytes(b"\n".join(lines))
    run(tmp_path / "a.csv", tmp_path / "out", where=RowFilter('job == "clerk"'), key="id")
    found = answers(tmp_path / "out")
    kept = [row + 1 for row in range(12) if row == 4 or rows["job"][row] == "clerk"]
    assert found["row"].tolist() == kept
    assert found.set_index("row")["status"][5] == "invalid_input"


def test_a_text_of_a_parquet_file_that_is_not_text_costs_its_row(run, tmp_path):
    rows = applicants(12, 7)
    jobs = [job.encode() for job in rows["job"]]
    jobs[4] = b"cl\xfcrk"
    table = pa.Table.from_pandas(rows)
    job = pa.Array.from_buffers(pa.string(), 12, pa.array(jobs, pa.binary()).buffers())
    table = table.set_column(table.schema.get_field_index("job"), "job", job)
    pq.write_table(table, tmp_path / "a.parquet")
    summary = run(tmp_path / "a.parquet", tmp_path / "out", key="id")
    assert summary.failed == {}
    found = answers(tmp_path / "out")
    assert found["row"].tolist() == list(range(1, 13))
    assert found["id"].tolist() == rows["id"].tolist()
    assert found["reason"][4] == "column 'job' is not UTF-8 text"
    assert (found["status"] == "invalid_input").sum() == 1


def test_an_empty_csv_file_is_an_error(run, portfolio, tmp_path):
    (portfolio / "d.csv").touch()
    summary = run(portfolio, tmp_path / "out")
    assert list(summary.failed) == ["d.csv"]
    assert "it is empty; a header and rows are expected. Write the file again" in summary.failed["d.csv"]
    assert not (tmp_path / "out" / "_SUCCESS").exists()
    assert summary.counts.rows == 45
    with pytest.raises(ValueError, match=r"d\.csv cannot be used: it is empty"):
        run(portfolio / "d.csv", tmp_path / "other")
    assert not os.path.exists(tmp_path / "other")
