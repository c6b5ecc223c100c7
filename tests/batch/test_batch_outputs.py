"""Batch runs: every row of the input is once in the output, with the answers of ``explain``."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
dataset = pytest.importorskip("pyarrow.dataset")

from batches import FEATURES, GRANTED, answers, applicants, parts  # noqa: E402
from plausiflow import Explainer, Range  # noqa: E402
from plausiflow.batch import BatchRequest, RowFilter, RowSelection, run_batch  # noqa: E402
from plausiflow.batch.input_rows import InputRows  # noqa: E402
from plausiflow.workers import Inline  # noqa: E402


def test_a_run_gives_the_answers_that_explain_gives(run, explainer, tmp_path):
    rows = applicants(40, 5)
    rows.loc[7, "job"] = "pilot"
    rows.to_parquet(tmp_path / "a.parquet", row_group_size=25)
    request = replace(GRANTED, k=2, locked=("job",), constraints=(Range("debt", -2, None),))
    summary = run(tmp_path / "a.parquet", tmp_path / "out", request=request, key="id", columns=("branch",))
    result = explainer.explain(
        rows[FEATURES], "granted", k=2, locked=["job"], constraints=[Range("debt", -2, None)]
    )
    found = answers(tmp_path / "out")
    assert found.columns[:5].tolist() == ["id", "file", "row", "rank", "status"]
    assert set(found["file"]) == {"a.parquet"}
    first = found[found["rank"].isna() | (found["rank"] == 1)]
    assert first["row"].tolist() == list(range(1, 41))
    assert first["id"].tolist() == rows["id"].tolist()
    assert first["branch"].tolist() == rows["branch"].tolist()
    assert first["status"].tolist() == result.verdicts["status"].tolist()
    assert {"found", "already", "invalid_input"} <= set(first["status"])
    assert first["reason"].iloc[7] == result.verdicts["reason"].iloc[7] != ""
    lines = found[found["rank"].notna()].reset_index(drop=True)
    for name in ("job", "owner"):
        assert lines[name].tolist() == result.answers[name].tolist()
    for name in ("income", "debt"):
        np.testing.assert_allclose(lines[name], result.answers[name], atol=1e-6)
    for name in ("cost", "l1", "l2", "n_changes", "probability", "log_density", "score"):
        np.testing.assert_allclose(lines[name], result.figures[name], rtol=1e-5, atol=1e-6)
    assert summary.counts.rows == 40
    assert summary.counts.lines == len(found)
    assert summary.counts.statuses == result.verdicts["status"].value_counts().sort_index().to_dict()
    assert str(summary).startswith("40 rows (")


def test_every_row_of_a_directory_is_there_once(run, portfolio, tmp_path):
    summary = run(portfolio, tmp_path / "out", key="id")
    found = answers(tmp_path / "out")
    assert list(zip(found["file"], found["row"], strict=True)) == [
        (name, row)
        for name, n in (("a.parquet", 25), ("b.parquet", 8), ("c.csv", 12))
        for row in range(1, n + 1)
    ]
    expected = [applicants(n, seed)["id"] for n, seed in ((25, 1), (8, 2), (12, 3))]
    assert found["id"].tolist() == pd.concat(expected).tolist()
    assert (summary.units, summary.units_before, summary.failed) == (6, 0, {})
    success = json.loads((tmp_path / "out" / "_SUCCESS").read_text())
    manifest = json.loads((tmp_path / "out" / "_manifest.json").read_text())
    assert success["rows"] == 45
    assert success["fingerprint"] == manifest["fingerprint"]
    assert {f"{unit[0]}.parquet" for unit in manifest["units"]} == set(parts(tmp_path / "out"))


def test_all_parts_have_the_same_columns_whatever_is_missing_in_them(run, tmp_path):
    rows = applicants(40, 5).astype({"income": "Int64"})
    rows.loc[:9, "income"] = pd.NA
    rows.loc[:9, "branch"] = 7
    rows.loc[10:19, "job"] = "pilot"
    rows.loc[20:29, ["income", "debt"]] = [5900, -3.0]
    rows.to_parquet(tmp_path / "a.parquet", row_group_size=10)
    run(tmp_path / "a.parquet", tmp_path / "out", columns=("branch",))
    schemas = [pq.read_schema(path) for path in sorted((tmp_path / "out").glob("*.parquet"))]
    assert len(schemas) == 4
    assert all(schema.equals(schemas[0]) for schema in schemas)
    whole = dataset.dataset(tmp_path / "out").to_table()
    assert len(whole) == 40
    assert {name: str(whole.schema.field(name).type) for name in FEATURES} == {
        "id": "large_string", "income": "int64", "debt": "double", "job": "string", "owner": "bool"
    }  # fmt: skip
    counts = whole.to_pandas().groupby("status").size().to_dict()
    assert counts["invalid_input"] == 20
    assert pd.read_parquet(tmp_path / "out")["row"].nunique() == 40


def test_columns_of_ours_give_way_to_those_of_the_input(run, tmp_path):
    applicants(6).assign(file="x", status="old").to_parquet(tmp_path / "a.parquet")
    run(tmp_path / "a.parquet", tmp_path / "out", columns=("file", "status"))
    table = dataset.dataset(tmp_path / "out").to_table()
    assert table["status"].to_pylist() == ["old"] * 6
    assert set(table["plausiflow_status"].to_pylist()) <= {"found", "already"}
    assert table["plausiflow_file"].to_pylist() == ["a.parquet"] * 6


def test_a_limit_a_condition_and_a_key_choose_rows(run, tmp_path):
    rows = applicants(40, 5)
    rows.to_parquet(tmp_path / "a.parquet", row_group_size=20)
    where = RowFilter('income < 3000 and job in ["clerk", "nurse"] and branch > 2')
    run(tmp_path / "a.parquet", tmp_path / "out", limit=25, where=where, key="id")
    first = rows.head(25)
    expected = first[(first["income"] < 3000) & (first["job"] != "smith") & (first["branch"] > 2)]
    found = answers(tmp_path / "out")
    assert found["id"].tolist() == expected["id"].tolist()
    assert found["row"].tolist() == (expected.index + 1).tolist()
    assert len(parts(tmp_path / "out")) == 3


def test_a_part_without_rows_has_all_columns(run, tmp_path):
    applicants(20).to_parquet(tmp_path / "a.parquet")
    summary = run(tmp_path / "a.parquet", tmp_path / "out", where=RowFilter("income < 0"))
    assert (summary.counts.rows, summary.units) == (0, 2)
    whole = run(tmp_path / "a.parquet", tmp_path / "whole")
    assert whole.counts.rows == 20
    some, all_ = (dataset.dataset(tmp_path / name).to_table().schema for name in ("out", "whole"))
    assert some.equals(all_)


def test_files_without_rows_are_no_problem(run, tmp_path):
    given = tmp_path / "given"
    given.mkdir()
    applicants(0).to_parquet(given / "a.parquet")
    applicants(0).to_csv(given / "b.csv", index=False)
    summary = run(given, tmp_path / "out")
    assert (summary.units, summary.counts.rows, summary.failed) == (0, 0, {})
    assert (tmp_path / "out" / "_SUCCESS").exists()


def test_lines_of_csv_files_keep_their_places(run, tmp_path):
    rows = applicants(6, 3).assign(note='two\nlines, "quoted"')
    text = rows.to_csv(index=False, lineterminator="\r\n").splitlines(keepends=True)
    assert len(text) == 13
    (tmp_path / "a.csv").write_text("".join([*text[:5], "short,line\r\n", "\r\n", *text[5:]]), newline="")
    run(tmp_path / "a.csv", tmp_path / "out", key="id", columns=("note",), rows_per_unit=2)
    found = answers(tmp_path / "out")
    assert found["row"].tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert found["id"].drop(2).tolist() == rows["id"].tolist()
    assert found.loc[2, ["id", "income", "job", "cost", "note"]].isna().all()
    assert found["status"].iloc[2] == "invalid_input"
    assert found["reason"].iloc[2] == "it has 2 cells, and the header 7"
    assert set(found["status"].drop(2)) <= {"found", "already"}
    assert set(found["note"].drop(2)) == {'two\nlines, "quoted"'}


def test_rows_need_no_columns_besides_features():
    rows = InputRows(numbers=np.arange(3), frame=applicants(3), stored=pa.table({}), problems={1: "short"})
    assert rows.readable().numbers.tolist() == [0, 2]
    assert rows.unreadable().problems == {0: "short"}


def test_a_number_on_a_grid_is_whole_in_the_output_where_it_is_whole_in_all_files(run, tmp_path):
    given = tmp_path / "given"
    given.mkdir()
    applicants(4, 1).astype({"income": "int16"}).to_parquet(given / "a.parquet")
    applicants(4, 2).to_parquet(given / "b.parquet")
    run(given, tmp_path / "whole")
    applicants(4, 3).assign(income=100.5).to_parquet(given / "c.parquet")
    run(given, tmp_path / "mixed")
    kinds = [pq.read_schema(next((tmp_path / name).glob("*.parquet"))) for name in ("whole", "mixed")]
    assert [str(schema.field("income").type) for schema in kinds] == ["int64", "double"]
    assert len(answers(tmp_path / "mixed")) == 12


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [False, True], ids=["classes", "numbers"])
def test_a_model_without_gradients_and_no_column_but_features(tmp_path, numbers):
    names = ["income", "debt", "owner"]
    rows = applicants(150, 1)
    outcome = rows["income"] / 1000 - 2 * rows["debt"] + rows["owner"]
    y = outcome if numbers else pd.cut(outcome, [-99, 1.5, 4, 99], labels=[0, 1, 2]).astype(int)
    kind = HistGradientBoostingRegressor if numbers else HistGradientBoostingClassifier
    model = kind(max_iter=10).fit(rows[names], y)
    made = Explainer(model, confidence=None, judges=0, model_rows=50).fit(rows[names], y)
    made.save(tmp_path / "explainer")
    given = tmp_path / "a.csv"
    applicants(12, 2)[names].to_csv(given, index=False)
    request = BatchRequest(target=(4.0, None)) if numbers else BatchRequest(target="other")
    selection = RowSelection(rows_per_unit=5)
    summary = run_batch(
        tmp_path / "explainer",
        given,
        tmp_path / "out",
        request=request,
        selection=selection,
        executor=Inline(),
    )
    assert summary.failed == {}
    result = made.explain(pd.read_csv(given), request.target)
    found = answers(tmp_path / "out")
    assert found["status"].tolist() == result.verdicts["status"].tolist()
    assert found["target"].tolist() == result.verdicts["target"].tolist()
    np.testing.assert_allclose(found["predicted"], result.verdicts["predicted"].astype(float))
    lines = found[found["rank"].notna()]
    np.testing.assert_allclose(lines["steady"], result.figures["steady"])
    if numbers:
        np.testing.assert_allclose(lines["prediction"], result.figures["prediction"])


@pytest.mark.gpu
def test_a_run_on_a_gpu_finds_what_one_without_finds(run, tmp_path):
    applicants(3000, 5).to_parquet(tmp_path / "a.parquet")
    run(tmp_path / "a.parquet", tmp_path / "cpu", rows_per_unit=3000)
    run(
        tmp_path / "a.parquet", tmp_path / "cuda", rows_per_unit=3000, request=replace(GRANTED, device="cuda")
    )
    cpu, cuda = answers(tmp_path / "cpu"), answers(tmp_path / "cuda")
    assert cuda["status"].tolist() == cpu["status"].tolist()
    assert (cpu["status"] == "found").sum() > 500
    assert abs(cuda["cost"].mean() / cpu["cost"].mean() - 1) < 0.01


def test_columns_whose_types_differ_between_files_are_text(run, portfolio, tmp_path):
    run(portfolio, tmp_path / "out", columns=("branch",))
    expected = [applicants(n, seed)["branch"] for n, seed in ((25, 1), (8, 2), (12, 3))]
    assert answers(tmp_path / "out")["branch"].tolist() == pd.concat(expected).map(str).tolist()
