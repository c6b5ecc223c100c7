"""The recipes for other engines: a query of DuckDB becomes a batch, and Dask explains partitions."""

import pandas as pd
import pytest

from batches import applicants, fitted
from commanding import done
from plausiflow import Explainer

pytest.importorskip("pyarrow", reason="the extra `files` is not installed")


def test_a_query_of_duckdb_becomes_a_batch_whose_answers_are_those_of_explain(folder, portfolio, tmp_path):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed: pip install duckdb")
    explainer = Explainer.load(folder)
    features = ", ".join(explainer.feature_names_in_)
    rows, out = tmp_path / "rows.parquet", tmp_path / "answers"
    numbered = f"SELECT row_number() OVER () AS customer, {features} FROM '{portfolio}/*.parquet'"
    duckdb.sql(f"COPY (SELECT * FROM ({numbered}) ORDER BY customer DESC) TO '{rows}' (FORMAT parquet)")
    done("batch", folder, rows, out, "--target", "granted", "--key", "customer", "--jobs", 1)
    query = f"SELECT * FROM '{out}/part-*.parquet' ORDER BY customer, rank"
    answers = duckdb.sql(query).df()
    table = duckdb.sql(f"SELECT * FROM '{rows}' ORDER BY customer").df()
    expected = explainer.explain(table.drop(columns="customer"), "granted").to_frame()
    assert len(answers) == len(expected) == 33
    assert answers["status"].tolist() == expected["status"].tolist()
    assert (answers["status"] == "found").any()
    for name in explainer.feature_names_in_:
        own = [None if pd.isna(cell) else cell for cell in answers[name]]
        assert own == [None if pd.isna(cell) else cell for cell in expected[name]], name
    counts = duckdb.sql(f"SELECT status, count(*) AS n FROM '{out}/part-*.parquet' GROUP BY status").df()
    assert (
        dict(zip(counts["status"], counts["n"], strict=True)) == expected["status"].value_counts().to_dict()
    )


@pytest.mark.dask
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_partitions_of_dask_get_the_answers_of_all_rows(folder):
    dd = pytest.importorskip("dask.dataframe", reason="dask is not installed: pip install 'dask[dataframe]'")
    table = applicants(40, 5)[list(fitted().feature_names_in_)]

    def explain(part, dtypes=None):
        found = Explainer.load(folder).explain(part, "granted").to_frame()
        return found.convert_dtypes() if dtypes is None else found.astype(dtypes)

    sample = explain(table.head(10))
    rows = dd.from_pandas(table, npartitions=4)
    answers = rows.map_partitions(explain, sample.dtypes, meta=sample.iloc[:0]).compute(
        scheduler="synchronous"
    )
    whole = explain(table, sample.dtypes)
    pd.testing.assert_frame_equal(answers.reset_index(drop=True), whole.reset_index(drop=True))
    assert (answers["status"] == "found").any()
