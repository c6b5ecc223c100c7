"""Files with very many columns: their headers are checked once, in time that grows with their number."""

import time
from contextlib import contextmanager

import pytest

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from batches import answers, applicants  # noqa: E402
from plausiflow.batch import RowSelection, csv_files  # noqa: E402
from plausiflow.batch.csv_files import read_header  # noqa: E402
from plausiflow.batch.input_files import find_input_files  # noqa: E402
from plausiflow.batch.parquet_files import read_schema  # noqa: E402
from plausiflow.batch.plan import make_plan  # noqa: E402
from plausiflow.cli.table_files import (  # noqa: E402
    Dialect,
    _read_cells,
    require_columns,
)
from plausiflow.errors import InvalidInputError  # noqa: E402

NAMES = [f"column_{i}" for i in range(40_000)]


@contextmanager
def seconds_of_processor(limit: float):
    start = time.process_time()
    yield
    assert time.process_time() - start < limit


def test_forty_thousand_columns_are_checked_in_linear_time(tmp_path):
    (tmp_path / "a.csv").write_text(",".join(NAMES) + "\n")
    pq.write_table(pa.table({name: pa.array([], pa.int64()) for name in NAMES}), tmp_path / "b.parquet")
    with seconds_of_processor(5):
        assert read_header(tmp_path / "a.csv", ",", "utf-8") == NAMES
        assert read_schema(tmp_path / "b.parquet").names == NAMES
        plan = make_plan(*find_input_files(tmp_path), NAMES, RowSelection())
        assert plan.units == []
        assert _read_cells(tmp_path / "a.csv", Dialect())[0] == NAMES
        require_columns(NAMES, NAMES, "a.csv")


def test_columns_with_the_same_name_are_found_among_many(tmp_path):
    (tmp_path / "a.csv").write_text(",".join([*NAMES, *NAMES]) + "\n")
    with seconds_of_processor(5), pytest.raises(InvalidInputError, match=r"named 'column_0', .* and more"):
        read_header(tmp_path / "a.csv", ",", "utf-8")


def test_the_header_of_a_file_is_checked_once_for_all_its_units(run, tmp_path, monkeypatch):
    checks, check = [], csv_files.check_unique

    def counted(names):
        checks.append(names)
        check(names)

    monkeypatch.setattr(csv_files, "check_unique", counted)
    for name in ("a", "b"):
        applicants(30, 5).to_csv(tmp_path / f"{name}.csv", index=False)
    run(tmp_path, tmp_path.with_name("out"), rows_per_unit=10)
    assert len(answers(tmp_path.with_name("out"))) == 60
    # Once to plan, and once in each worker; here the worker is this process.
    assert len(checks) == 4, "six units"
