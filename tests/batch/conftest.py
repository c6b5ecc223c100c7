"""Shared by the tests of batch runs: a saved explainer, runs of it in this process, and files of rows.

Batch runs need the extra ``files``: they are imported where a test asks for one.
"""

from pathlib import Path

import pytest

from plausiflow import Explainer
from plausiflow.workers import Inline


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """Of a saved explainer."""
    from batches import fitted

    path = tmp_path_factory.mktemp("explainer") / "credit"
    fitted().save(path)
    return path


@pytest.fixture(scope="session")
def explainer(folder) -> Explainer:
    return Explainer.load(folder)


@pytest.fixture
def run(folder):
    """A run in this process, with units of ten rows unless they are said to be larger."""
    from batches import GRANTED
    from plausiflow.batch import Chosen, run_batch

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
    from batches import applicants

    given = tmp_path / "portfolio"
    given.mkdir()
    applicants(25, 1).to_parquet(given / "a.parquet", row_group_size=15)
    applicants(8, 2).to_parquet(given / "b.parquet")
    applicants(12, 3).to_csv(given / "c.csv", index=False)
    return given
