"""``plausiflow explain`` writes a line for every row with its verdict, in CSV and in Parquet."""

import csv
import json
import re

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from commanding import DIALECT, LEVELS, NUMBERS, QUICK, done, refused
from plausiflow import Explainer
from plausiflow.cli.table_files import escape_formulas, read_table, write_table

pytest.importorskip("pyarrow")


def test_every_row_has_a_line_and_a_verdict(folder, explainer, tmp_path):
    rows = pd.read_csv(folder / "rows.csv", dtype=str)
    rows.loc[1, "job"] = "astronaut"
    rows.loc[2, "income"] = "much"
    rows.loc[3, "age"] = ""
    rows.to_csv(tmp_path / "rows.csv", index=False)
    told = done("explain", explainer, tmp_path / "rows.csv", "--out", tmp_path / "a.csv")
    answers = pd.read_csv(tmp_path / "a.csv")
    assert answers["row"].tolist() == [1, 2, 3, 4]
    assert answers["status"].tolist()[1:] == ["invalid_input"] * 3
    assert "'astronaut'" in answers["reason"][1]
    assert "'much'" in answers["reason"][2]
    assert "`age` is nan" in answers["reason"][3]
    assert answers.loc[1:, ["rank", "age", "cost", "job"]].isna().all(axis=None)
    assert answers["customer"].tolist() == [0, 1, 2, 3]
    assert "invalid_input" in told.stdout
    assert "Row 2: Cannot be explained" in told.stdout


def test_columns_that_are_no_features_are_carried_along_as_they_are(folder, explainer, tmp_path):
    rows = pd.read_csv(folder / "rows.csv", dtype=str).assign(loan="rejected", note="1.50", status="old")
    rows.to_csv(tmp_path / "rows.csv", index=False)
    told = done("explain", explainer, tmp_path / "rows.csv", "--k", 2, "--out", tmp_path / "a.csv")
    assert "copied to --out: customer, note, status" in told.stderr
    assert "the column `loan` is what the model decides, and is not used" in told.stderr
    answers = pd.read_csv(tmp_path / "a.csv", dtype=str)
    assert list(answers.columns) == [
        "row", "rank", "plausiflow_status", "reason", "predicted", "target", *NUMBERS, *LEVELS, "cost",
        "probability", "score", "judged", "customer", "note", "status",
    ]  # fmt: skip
    assert set(answers["note"]) == {"1.50"}
    assert set(answers["status"]) == {"old"}
    assert (answers["customer"] == answers["row"].map(lambda row: f"00{int(row) - 1}")).all()
    found = answers[answers["plausiflow_status"] == "found"]
    assert found.groupby("row")["rank"].apply(list).map(lambda ranks: ranks == ["1", "2"]).all()


def test_a_column_names_the_rows_in_every_file(folder, explainer, tmp_path):
    files = ("--out", tmp_path / "a.csv", "--json", tmp_path / "a.json", "--report", tmp_path / "a.html")
    done("explain", explainer, folder / "rows.csv", "--key", "customer", *files)
    answers = pd.read_csv(tmp_path / "a.csv", dtype=str)
    assert answers.columns[0] == "customer"
    assert "row" not in answers
    names = ["000", "001", "002", "003"]
    assert answers["customer"].tolist() == names
    assert [row["row"] for row in json.loads((tmp_path / "a.json").read_text())["rows"]] == names
    assert "003" in (tmp_path / "a.html").read_text()
    assert "is a feature that answers may change" in refused(
        "explain", explainer, folder / "rows.csv", "--key", "age"
    )


def test_the_index_that_pandas_writes_names_the_rows(folder, explainer, tmp_path):
    rows = pd.read_csv(folder / "rows.csv").drop(columns="customer")
    rows.set_axis([17, 4, 8, 9], axis=0).to_csv(tmp_path / "rows.csv")
    done("explain", explainer, tmp_path / "rows.csv", "--out", tmp_path / "a.csv")
    assert pd.read_csv(tmp_path / "a.csv")["row"].tolist() == [17, 4, 8, 9]


def test_reasons_are_left_out_where_nobody_asks(folder, explainer, tmp_path):
    own = Explainer.load(explainer)
    rows = pd.read_csv(folder / "rows.csv")
    poor = rows[own.predict(rows[[*NUMBERS, *LEVELS]]) == "rejected"][:1]
    poor.to_csv(tmp_path / "poor.csv", index=False)
    kept = ",".join([*NUMBERS, *LEVELS])
    command = ("explain", explainer, tmp_path / "poor.csv", "--target", "granted", "--locked", kept)
    reasons = []
    for option, name in (("--reasons", "a.csv"), ("--no-reasons", "b.csv")):
        done(*command, option, "--out", tmp_path / name)
        answers = pd.read_csv(tmp_path / name)
        assert answers["status"].tolist() == ["infeasible"]
        reasons += answers["reason"].tolist()
    assert reasons[1] == "no answer was found; reasons were not asked for"
    named = "|".join([*NUMBERS, *LEVELS])
    assert re.search(f"the lock on some features|allow `({named})` to change", reasons[0])


def test_locks_ranges_and_probabilities_are_kept(folder, explainer, tmp_path):
    done("explain", explainer, folder / "rows.csv", "--target", "granted", "--locked", "job,education",
         "--range", "income=:60000", "--range", "debt_ratio=0.1:0.5", "--min-probability", 0.6,
         "--no-second-opinion", "--relaxed", "--time-limit", 60, "--out", tmp_path / "a.csv")  # fmt: skip
    before = pd.read_csv(folder / "rows.csv").set_axis(range(1, 5), axis=0)
    after = pd.read_csv(tmp_path / "a.csv").set_index("row").query("rank == 1")
    assert len(after)
    own = before.loc[after.index]
    assert (after[LEVELS] == own[LEVELS]).all(axis=None)
    assert (after["income"] <= 60000).all()
    assert after["debt_ratio"].between(0.1, 0.5).all()
    assert (after["probability"] >= 0.6 - 1e-9).all()


def test_parquet_and_csv_have_the_same_answers_and_parquet_the_dtypes_of_the_rows(
    folder, explainer, tmp_path
):
    rows = read_table(folder / "rows.csv", DIALECT).reset_index(drop=True)
    rows = rows.astype({"age": "int16", "job": "category", "education": "str", "income": "Int64"})
    rows["since"] = pd.Timestamp("2024-02-29")
    rows.to_parquet(tmp_path / "rows.parquet", index=False)
    for name in ("a.parquet", "b.csv"):
        done("explain", explainer, tmp_path / "rows.parquet", "--target", "granted", "--out", tmp_path / name)
    done("explain", explainer, folder / "rows.csv", "--target", "granted", "--out", tmp_path / "c.csv")
    made = pd.read_parquet(tmp_path / "a.parquet")
    assert made["job"].dtype == rows["job"].dtype
    assert made["income"].dtype == "Int64"
    assert made["age"].dtype in ("int16", "Int16")
    assert made["since"].tolist() == [pd.Timestamp("2024-02-29")] * 4
    written = pd.read_csv(tmp_path / "c.csv")
    for name, column in pd.read_csv(tmp_path / "b.csv").drop(columns=["since", "customer"]).items():
        assert column.tolist() == pytest.approx(written[name].tolist(), nan_ok=True, abs=0)
    assert made["income"].astype(float).tolist() == pytest.approx(written["income"].tolist(), nan_ok=True)


def test_missing_cells_stay_missing_and_whole_numbers_whole(folder, tmp_path, brief):
    table = pd.read_csv(folder / "loans.csv").assign(owner=[True, False, True] * 100)
    gaps = np.random.default_rng(0).random(table.shape) < 0.1
    gaps[:, list(table).index("loan")] = False
    table = table.astype({"age": "Int64", "income": "Int64", "owner": "boolean", "job": "category"}).mask(
        gaps
    )
    for name, kind in (("t.csv", "logistic"), ("t.parquet", "gbm")):
        write_table(table, tmp_path / name, DIALECT)
        done("fit", tmp_path / name, "--target", "loan", "--train", kind, "--out", tmp_path / "e", "--force",
             *QUICK)  # fmt: skip
        write_table(table.head(2), tmp_path / f"rows_{name}", DIALECT)
        done("explain", tmp_path / "e", tmp_path / f"rows_{name}", "--out", tmp_path / "a.csv", "--force")
        answers = pd.read_csv(tmp_path / "a.csv", dtype=str).query("rank == '1'")
        assert set(answers["status"]) == {"found"}
        own = table.iloc[answers["row"].astype(int) - 1].reset_index(drop=True)
        features = answers.reset_index(drop=True)[list(own.columns.drop("loan"))]
        assert (features.isna() == own.drop(columns="loan").isna()).all(axis=None)
        assert not features["income"].dropna().str.contains(".", regex=False).any()


def test_formulas_are_escaped_on_request(folder, explainer, tmp_path):
    texts = ["=HYPERLINK(1)", "-12.50", "@a", "ok\r=1+1"]
    rows = pd.read_csv(folder / "rows.csv", dtype=str).assign(note=texts, balance=["-1", "+2", "3", "-.5"])
    rows.rename(columns={"customer": "=customer"}).to_csv(
        tmp_path / "rows.csv", index=False, quoting=csv.QUOTE_ALL
    )
    command = ("explain", explainer, tmp_path / "rows.csv")
    done(*command, "--out", tmp_path / "plain.csv")
    done(*command, "--out", tmp_path / "safe.csv", "--escape-formulas")
    plain = pd.read_csv(tmp_path / "plain.csv", nrows=3, dtype=str)
    assert plain["note"].tolist() == texts[:3]
    assert "=customer" in plain
    safe = read_table(tmp_path / "safe.csv", DIALECT)
    assert safe["note"].tolist() == ["'=HYPERLINK(1)", "-12.50", "'@a", "ok\r=1+1"]
    assert safe["balance"].tolist() == ["-1", "+2", "3", "-.5"]
    assert "'=customer" in safe
    assert safe["cost"].tolist()[:3] == pytest.approx(plain["cost"].astype(float).tolist(), nan_ok=True)
    for target in ((), ("--out", tmp_path / "a.parquet")):
        told = refused(*command, *target, "--escape-formulas")
        assert "--escape-formulas needs --out with a .csv file" in told


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\t", "\r"])
def test_text_that_begins_like_a_formula_gets_an_apostrophe(first):
    cells = [f"{first}a", f"a{first}", f"{first}1+1", "", None]
    for dtype in ("str", "object", "category"):
        frame = pd.DataFrame({"text": pd.Series(cells, dtype=dtype), "number": [-1.5, 2, -3, None, 0]})
        escaped = escape_formulas(frame)
        assert escaped["text"].tolist()[:4] == [f"'{first}a", f"a{first}", f"'{first}1+1", ""]
        assert escaped["text"].isna().tolist() == [False] * 4 + [True]
        assert escaped["number"].equals(frame["number"])


def test_a_table_survives_writing_and_reading(tmp_path):
    frame = pd.DataFrame(
        {
            "zip": ["01067", "80331"],
            "rooms": [2, 3],
            "price": [0.1 + 0.2, 1e300],
            "sold": [True, False],
            "street": ['"A", \n', "ä;b"],
        }
    ).set_axis([1, 2], axis=0)
    for name in ("t.csv", "t.parquet"):
        write_table(frame, tmp_path / name, DIALECT)
        assert_frame_equal(read_table(tmp_path / name, DIALECT), frame, check_exact=True)
    assert not list(tmp_path.glob(".*"))
