"""The input of batch runs: files and their slices, CSV records, filters of rows."""

import csv
import io
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from batches import FEATURES, applicants  # noqa: E402
from plausiflow.batch import RowFilter, RowSelection  # noqa: E402
from plausiflow.batch.csv_files import csv_slices, read_header, read_records  # noqa: E402
from plausiflow.batch.input_files import find_input_files  # noqa: E402
from plausiflow.batch.input_rows import read_unit  # noqa: E402
from plausiflow.batch.parquet_files import parquet_slices, read_parquet  # noqa: E402
from plausiflow.batch.plan import make_plan  # noqa: E402
from plausiflow.errors import InvalidInputError  # noqa: E402
from plausiflow.tables.schema import Schema  # noqa: E402

SCHEMA = Schema.infer(applicants(100)[FEATURES], kinds={"id": "identifier"})


# Conditions.

PEOPLE = pd.DataFrame(
    {
        "income": [1500.0, 2500.0, np.nan, 1000.0],
        "job": ["clerk", "smith", "clerk", None],
        "owner": [True, False, True, False],
        "text": ["10", "9", "x", None],
        "net worth": [1, 2, 3, 4],
        "level": pd.Categorical(["a", "b", None, "a"]),
        "day": pd.to_datetime(["2024-01-01", "2024-06-01", None, "2025-01-01"]),
    }
)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("income < 2000", [0, 3]),
        ("income != 1500", [1, 3]),
        ("not income < 2000", [1, 2]),
        ("1000 < income <= 2500", [0, 1]),
        ('income < 2000 and job == "clerk"', [0]),
        ('income > 2000 or job == "clerk"', [0, 1, 2]),
        ('job in ["smith", "baker"]', [1]),
        ('job not in ("smith",)', [0, 2]),
        ("job is None", [3]),
        ("income is not None and owner", [0]),
        ("not owner", [1, 3]),
        ('col("net worth") >= 3', [2, 3]),
        ("income > -1", [0, 1, 3]),
        ("text < 10", [1]),
        ('text == "10"', [0]),
        ('level == "a"', [0, 3]),
        ('day >= "2024-06-01"', [1, 3]),
        ('income < col("net worth")', []),
        ("1 < 2", [0, 1, 2, 3]),
        ("job in []", []),
    ],
)
def test_a_condition_holds_for_these_rows(text, rows):
    assert np.flatnonzero(RowFilter(text).mask(PEOPLE)).tolist() == rows


def test_a_condition_names_its_columns():
    assert RowFilter('income < 2 and not (col("net worth") > income or owner)').columns == (
        "income",
        "net worth",
        "owner",
    )


@pytest.mark.parametrize(
    "text",
    [
        '__import__("os").system("true")',
        "income.real < 2",
        "income[0] < 2",
        "income + 1 < 2",
        "(lambda: 1)() < 2",
        "[x for x in income]",
        "income < abs(2)",
        'col("income", 1) < 2',
        "col(income) < 2",
        "income < f'{job}'",
        "income == None",
        "income is 3",
        "income in job",
        "3",
        '"income"',
        "(income := 3) < 2",
        "income < 2 if owner else job",
        "income <",
        "",
        "a and b;c",
        "\0",
        "income < 2" + " and income < 2" * 1000,
        "not " * 2000 + "owner",
        "(" * 500 + "owner" + ")" * 500,
    ],
)
def test_what_is_no_condition_is_refused_before_it_is_evaluated(text):
    with pytest.raises(InvalidInputError, match="condition"):
        RowFilter(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('owner < "a"', "compares column 'owner'"),
        ("job", "'job' stands alone"),
        ('income < "a"', "compares column 'income'"),
    ],
)
def test_what_cannot_be_compared_is_told(text, told):
    with pytest.raises(InvalidInputError, match=told):
        RowFilter(text).mask(PEOPLE)


# CSV.


def records_of(path: Path, most: int, separator: str = ",") -> list[list[list[str]]]:
    return [read_records(path, own, separator, "utf-8")[0] for own in csv_slices(path, separator, most)]


@given(
    records=st.lists(
        st.lists(st.text(st.sampled_from('ab",;\n\rü '), max_size=6), min_size=2, max_size=2), max_size=12
    ),
    most=st.integers(1, 5),
    end=st.sampled_from(["\n", "\r\n"]),
    mark=st.sampled_from(["", "\ufeff"]),
)
def test_ranges_hold_the_records_of_the_file_whatever_its_cells_hold(
    tmp_path_factory, records, most, end, mark
):
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    text = io.StringIO()
    # Python's writer leaves a lone carriage return without quotes, which no reader understands.
    quoting = csv.QUOTE_ALL if any("\r" in cell for cells in records for cell in cells) else csv.QUOTE_MINIMAL
    csv.writer(text, lineterminator=end, quoting=quoting).writerows([["one", "two"], *records])
    path.write_bytes((mark + text.getvalue()).encode())
    found = records_of(path, most)
    assert [record for part in found for record in part] == records
    assert [len(part) for part in found[:-1]] == [most] * max(0, len(found) - 1)
    assert read_header(path, ",", "utf-8") == ["one", "two"]


def test_blank_lines_are_no_rows_and_a_last_line_needs_no_end(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('\none,two\n\n1,"a\n\nb"\n\n2,c\n3,d')
    assert records_of(path, 2) == [[["1", "a\n\nb"], ["2", "c"]], [["3", "d"]]]
    assert [(own.first_row, own.n_rows) for own in csv_slices(path, ",", 2)] == [(1, 2), (3, 1)]


@pytest.mark.parametrize(
    ("header", "told"),
    [
        ("a,b,a\n", "more than one column named 'a'"),
        ("a,,b\n", "a column has no name"),
        ("a;b\n", "separated by ';'"),
        ('"a\n', "its header cannot be read"),
        ("", "it is empty; a header and rows are expected"),
        ("\n\n", "it is empty"),
    ],
)
def test_a_header_that_cannot_be_used_is_told(tmp_path, header, told):
    path = tmp_path / "a.csv"
    path.write_text(header)
    with pytest.raises(InvalidInputError, match=told):
        read_header(path, ",", "utf-8")


def test_settings_of_csv_files_are_checked():
    for settings, told in (
        ({"encoding": "utf-16"}, "extends ASCII"),
        ({"encoding": "none such"}, "extends ASCII"),
        ({"separator": "§"}, "one ASCII character"),
        ({"separator": ";;"}, "one ASCII character"),
        ({"limit": -1}, "`limit` must be"),
        ({"rows_per_unit": 0}, "`rows_per_unit` must be"),
    ):
        with pytest.raises(InvalidInputError, match=told):
            RowSelection(**settings)


# Files and pieces.


def test_files_below_a_directory_are_found_by_name_and_hidden_ones_are_not(tmp_path):
    for name in ("b.csv", "a/year=2024/x.parquet", "_a.csv", ".b.parquet", "_old/c.csv", "readme.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    root, sources = find_input_files(tmp_path)
    assert root == tmp_path
    assert [source.path for source in sources] == ["a/year=2024/x.parquet", "b.csv"]
    assert sources[0].partition == {"year": "2024"}
    assert find_input_files(tmp_path / "b.csv")[1] == [sources[1]]


@pytest.mark.parametrize(
    ("name", "told"),
    [("gone", "There is no file"), ("a.txt", "must be in files that end in"), ("empty", "contains no file")],
)
def test_where_there_are_no_rows_that_is_told(tmp_path, name, told):
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(InvalidInputError, match=told):
        find_input_files(tmp_path / name)


def test_pieces_of_a_parquet_file_are_its_row_groups_and_slices_of_large_ones(tmp_path):
    rows = applicants(70)
    rows.to_parquet(tmp_path / "a.parquet", row_group_size=30)
    pieces = list(parquet_slices(tmp_path / "a.parquet", 20))
    assert [(piece.group, piece.number, piece.first_row, piece.n_rows) for piece in pieces] == [
        (0, 0, 1, 20),
        (0, 1, 21, 10),
        (1, 0, 31, 20),
        (1, 1, 51, 10),
        (2, 0, 61, 10),
    ]
    for piece in pieces:
        table = read_parquet(tmp_path / "a.parquet", piece, ["debt", "job"])
        expected = rows.iloc[piece.first_row - 1 : piece.first_row - 1 + piece.n_rows]
        assert table.to_pandas().to_numpy().tolist() == expected[["debt", "job"]].to_numpy().tolist()


def test_an_index_that_pandas_wrote_is_a_column_as_any_other(tmp_path):
    rows = applicants(6).astype({"job": "category", "income": "Int64"}).set_index(["branch", "debt"])
    rows.to_parquet(tmp_path / "a.parquet", row_group_size=4)
    selection = RowSelection(where=RowFilter("branch > 0"))
    root, sources = find_input_files(tmp_path)
    plan = make_plan(root, sources, FEATURES, selection)
    read = [read_unit(root, u, SCHEMA, selection).select(selection).frame for u in plan.units]
    expected = rows.reset_index().set_axis(range(1, 7), axis=0)[FEATURES]
    pd.testing.assert_frame_equal(pd.concat(read)[FEATURES], expected)


def test_a_limit_cuts_the_last_piece_and_leaves_later_files_alone(tmp_path):
    for name in ("a", "b"):
        applicants(10).to_parquet(tmp_path / f"{name}.parquet")
        applicants(10).to_csv(tmp_path / f"{name}.csv", index=False)
    (tmp_path / "c.csv").write_bytes(b"\xff")
    root, sources = find_input_files(tmp_path)
    plan = make_plan(root, sources, FEATURES, RowSelection(limit=25, rows_per_unit=4))
    assert [(unit.file.path, unit.rows.n_rows) for unit in plan.units] == [
        *(("a.csv", rows) for rows in (4, 4, 2)),
        *(("a.parquet", rows) for rows in (4, 4, 2)),
        *(("b.csv", rows) for rows in (4, 1)),
    ]
    read = [read_unit(root, u, SCHEMA, RowSelection(rows_per_unit=4)) for u in plan.units]
    assert sum(len(rows.numbers) for rows in read) == plan.n_rows == 25
    assert [rows.frame["id"].tolist() for rows in read[:3]] == [
        rows.frame["id"].tolist() for rows in read[3:6]
    ]


def test_units_have_names_that_differ_in_run_file_group_and_slice(tmp_path):
    for name in ("a", "b"):
        applicants(9).to_parquet(tmp_path / f"{name}.parquet", row_group_size=3)
    plan = make_plan(*find_input_files(tmp_path), FEATURES, RowSelection(rows_per_unit=2))
    names = [unit.name(run) for unit in plan.units for run in ("one", "two")]
    assert len(set(names)) == len(names) == 24
    again = make_plan(*find_input_files(tmp_path), FEATURES, RowSelection(rows_per_unit=2))
    assert [unit.name("one") for unit in again.units] == names[::2]


def test_both_kinds_of_files_give_the_same_rows(tmp_path):
    rows = applicants(30)
    rows.loc[3, "job"] = None
    rows.to_parquet(tmp_path / "a.parquet", row_group_size=7)
    rows.to_csv(tmp_path / "b.csv", index=False)
    selection = RowSelection(key="id", columns=("branch",), where=RowFilter("branch > 2"), rows_per_unit=5)
    root, sources = find_input_files(tmp_path)
    frames = {}
    for unit in make_plan(root, sources, FEATURES, selection).units:
        read = read_unit(root, unit, SCHEMA, selection).select(selection)
        frames.setdefault(unit.file.path, []).append(read.frame[FEATURES])
    parquet, text = (pd.concat(frames[name]) for name in ("a.parquet", "b.csv"))
    expected = rows.set_axis(range(1, 31), axis=0)[FEATURES][(rows["branch"] > 2).to_numpy()]
    pd.testing.assert_frame_equal(parquet, expected)
    pd.testing.assert_frame_equal(text, expected)


def test_names_of_directories_are_columns(tmp_path):
    rows = applicants(4)
    for owner, year in ((True, "2024"), (False, "__HIVE_DEFAULT_PARTITION__")):
        for name, write in (("a.parquet", "to_parquet"), ("b.csv", "to_csv")):
            folder = tmp_path / f"owner={owner}" / f"year={year}"
            folder.mkdir(parents=True, exist_ok=True)
            getattr(rows.drop(columns="owner"), write)(folder / name, index=False)
    selection = RowSelection(columns=("year",))
    root, sources = find_input_files(tmp_path)
    plan = make_plan(root, sources, [*FEATURES, "year"], selection)
    read = [read_unit(root, unit, SCHEMA, selection) for unit in plan.units]
    assert [rows.frame["owner"].unique().tolist() for rows in read] == [[False], [False], [True], [True]]
    assert [rows.stored["year"].to_pylist()[0] for rows in read] == [None, None, 2024, "2024"]


def test_a_file_that_was_changed_meanwhile_is_not_read(tmp_path):
    path = tmp_path / "a.csv"
    applicants(3).to_csv(path, index=False)
    root, (source,) = find_input_files(tmp_path)
    os.utime(path, ns=(0, 0))
    with pytest.raises(InvalidInputError, match="was changed after the run began"):
        source.check_unchanged(root)
    path.unlink()
    with pytest.raises(InvalidInputError, match="cannot be read: No such file"):
        source.check_unchanged(root)


def test_a_file_with_new_content_and_the_old_size_and_time_is_not_read(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n")
    root, (source,) = find_input_files(tmp_path)
    source = source.with_digest(root)
    path.chmod(0o600)
    assert source.check_unchanged(root) == path
    path.write_text("a\n2\n")
    os.utime(path, ns=(source.modified, source.modified))
    with pytest.raises(InvalidInputError, match="was changed after the run began"):
        source.check_unchanged(root)
