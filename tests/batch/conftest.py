"""Fixtures of the tests of batch runs: a saved explainer, runs in this process, and files of rows.

Batch runs need the extra ``files``, so fixtures import them.
"""

from pathlib import Path

import pytest

from plausiflow import Explainer
from plausiflow.workers import Inline


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """The directory of a saved explainer."""
    from batches import fitted

    path = tmp_path_factory.mktemp("explainer") / "credit"
    fitted().save(path)
    return path


@pytest.fixture(scope="session")
def explainer(folder) -> Explainer:
    return Explainer.load(folder)


@pytest.fixture
def run(folder):
    """A function that runs a batch in this process, by default with units of ten rows."""
    from batches import GRANTED
    from plausiflow.batch import RowSelection, run_batch

    def ran(given, out, *, request=GRANTED, rows_per_unit=10, resume=False, executor=None, **selection):
        return run_batch(
            folder,
            given,
            out,
            request=request,
            selection=RowSelection(rows_per_unit=rows_per_unit, **selection),
            executor=executor or Inline(),
            resume=resume,
        )

    return ran


@pytest.fixture
def portfolio(tmp_path) -> Path:
    """Two Parquet files and a CSV file."""
    from batches import applicants

    given = tmp_path / "portfolio"
    given.mkdir()
    applicants(25, 1).to_parquet(given / "a.parquet", row_group_size=15)
    applicants(8, 2).to_parquet(given / "b.parquet")
    applicants(12, 3).to_csv(given / "c.csv", index=False)
    return given
