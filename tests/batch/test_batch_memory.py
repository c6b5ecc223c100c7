"""The memory of batch runs does not depend on the number of rows."""

import os
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from batches import GRANTED, applicants
from plausiflow.batch import RowSelection, run_batch
from plausiflow.workers import Inline
from processes import forked


def used(given: Path, out: Path, folder: Path, told: Path) -> None:
    selection = RowSelection(rows_per_unit=2000)
    summary = run_batch(folder, given, out, request=GRANTED, selection=selection, executor=Inline())
    told.write_text(str(summary.memory[1]))


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_row_groups(folder, tmp_path):
    beyond = []
    for groups in (3, 24):
        given, told = tmp_path / f"{groups}.parquet", tmp_path / f"{groups}.txt"
        applicants(2000 * groups, groups, few=True).to_parquet(given, row_group_size=2000)
        os.waitpid(forked(partial(used, given, tmp_path / str(groups), folder, told)), 0)
        beyond.append(int(told.read_text()))
    if not any(beyond):
        pytest.skip("this system does not report the memory of a process")
    assert beyond[1] < beyond[0] + 30e6
