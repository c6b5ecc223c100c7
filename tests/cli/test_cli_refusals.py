"""Invalid files, options and requests: one line with a remedy, and existing files are kept."""

import sys

import pandas as pd
import pytest

from commanding import QUICK, done, make, refused
from plausiflow import Explainer
from plausiflow.cli.table_files import Dialect, read_table, write_table

pytest.importorskip("pyarrow")


FILES = {
    "semicolons.csv": (b"age;loan\n1;yes\n", "Add --separator ';'"),
    "tabs.csv": (b"age\tloan\n1\tyes\n", "Add --separator 'tab'"),
    "latin.csv": (
        "age,loan\n1,Gr\u00fcn\n".encode("latin-1"),
        "line 2 has the byte 0xfc. Save it as UTF-8, or add --encoding latin-1",
    ),
    "wide.csv": ("age,loan\n1,yes\n".encode("utf-16"), "add --encoding utf-16"),
    "twice.csv": (b"age,loan,age\n1,yes,2\n", "more than one column named 'age'"),
    "unnamed.csv": (b"age,,loan\n1,2,yes\n", "Column 2 of"),
    "empty.csv": (b"", "is empty"),
    "blank.csv": (b"\n\n", "is empty"),
    "header.csv": (b"age,loan\n", "has a header and no rows"),
    "headless.csv": (b",\n1,2\n", "has no header"),
    "ragged.csv": (b"age,loan\n1,yes\n2\n", "Line 3 of"),
    "long.csv": (b"age,loan\n1,yes,no\n", "has 3 cells, and the header 2"),
    "quote.csv": (b'age,loan\n1,"yes\n', "unclosed double quote"),
    "zeros.csv": (b"age,loan\n1,\0\n", "contains zero bytes"),
    "commas.csv": (b'age,loan\n"1,5",yes\n"2,5",no\n', "got '1,5' with a decimal comma"),
    "alone.csv": (b"loan\nyes\nno\n", "has no column besides 'loan'"),
    "one.csv": (b"age,loan\n1,yes\n2,yes\n", "must contain two outcomes or more; it has 1"),
    "gone.csv": (b"age,loan\n1,yes\n2,\n", "is missing in 1 of 2 rows, first in row 2"),
    "broken.parquet": (b"PAR1nothingPAR1", "cannot be read as Parquet"),
    "table.xlsx": (b"PK", "Tables are files that end in .csv or .parquet"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_cannot_be_used_is_one_line_with_a_remedy(tmp_path, name):
    content, remedy = FILES[name]
    (tmp_path / name).write_bytes(content)
    line = refused("fit", tmp_path / name, "--target", "loan", "--out", tmp_path / "out")
    assert remedy in line
    assert not (tmp_path / "out").exists()


def test_separators_encodings_and_byte_marks_are_read_where_they_are_named(tmp_path):
    text = "age;name\n1;J\u00e4ger\n"
    (tmp_path / "t.csv").write_bytes(text.encode("latin-1"))
    frame = read_table(tmp_path / "t.csv", Dialect(separator=";", encoding="latin-1"))
    assert frame.to_dict("list") == {"age": [1], "name": ["J\u00e4ger"]}
    (tmp_path / "t.csv").write_bytes(text.replace(";", "\t").encode("utf-8-sig"))
    assert list(read_table(tmp_path / "t.csv", Dialect(separator="tab"))) == ["age", "name"]
    write_table(frame, tmp_path / "u.csv", Dialect(separator=";", encoding="latin-1"))
    assert (tmp_path / "u.csv").read_bytes() == text.encode()


def test_without_pyarrow_parquet_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    line = refused("fit", tmp_path / "t.parquet", "--target", "loan", "--out", tmp_path / "out")
    assert 'pip install "plausiflow[files]"' in line


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (("--target", "lona"), "no column 'lona' (did you mean 'loan'?); its columns are age, income"),
        (("--target", "loan", "--drop", "jbo"), "no column 'jbo' (did you mean 'job'?)"),
        (("--target", "loan", "--drop", "loan"), "--drop names 'loan', which is the target"),
        (("--target", "loan", "--train", "mlp", "--model", "model.skops"), "--model and --train exclude"),
        (("--target", "loan", "--train", "svm"), "'svm' is not one of"),
        (("--target", "loan", "--confidence", "high"), "such as 0.95, or none; got 'high'"),
        (("--target", "loan", "--confidence", "2"), "`confidence` must be a share between 0 and 1"),
        (("--target", "loan", "--plausibility", "7"), "`plausibility` must be a quantile"),
        (("--target", "loan", "--judges", "-1"), "`judges` must be"),
        (("--target", "loan", "--hold-out", "1"), "--hold-out must be a share from 0 to 0.9"),
        (("--target", "loan", "--rows", "1"), "--rows must be 2 or more"),
        (("--target", "loan", "--separator", ";;"), "--separator must be one character"),
        (("--target", "loan", "--encoding", "klingon"), "--encoding must be one that Python knows"),
        (("--target", "loan", "--model", "nope.skops"), "There is no model nope.skops"),
        (("--target", "loan", "--rules", "nope.toml"), "There is no file of rules nope.toml"),
        ((), "Missing option '--target'. See: plausiflow fit --help"),
    ],
)  # fmt: skip
def test_a_wrong_choice_is_one_line_before_anything_is_learned(
    folder, tmp_path, monkeypatch, arguments, remedy
):
    monkeypatch.setattr(Explainer, "fit", lambda *_: pytest.fail("something was learned"))
    line = refused("fit", folder / "loans.csv", "--out", tmp_path / "out", *arguments)
    assert remedy in line


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (("--target", "grantd"), "--target must be opposite, runner_up, other or one of granted, rejected"),
        (("--range", "income"), "--range must be a column and its bounds"),
        (("--range", "incme=0:1"), "there is no feature 'incme'; did you mean 'income'?"),
        (("--locked", "jbo"), "there is no feature 'jbo'; did you mean 'job'?"),
        (("--k", "0"), "`k` must be a whole number"),
        (("--key", "costumer"), "no column 'costumer' (did you mean 'customer'?)"),
        (("--min-probability", "1.5"), "`min_probability` must be a probability"),
        (("--out", "answers.xlsx"), "end in .csv or .parquet; got answers.xlsx"),
    ],
)
def test_a_wrong_question_is_one_line_with_a_remedy(folder, explainer, arguments, remedy):
    assert remedy in refused("explain", explainer, folder / "rows.csv", *arguments)


def test_rows_and_explainers_that_are_not_there_are_told(folder, explainer, tmp_path):
    assert "There is no file" in (line := refused("explain", explainer, folder / "row.csv"))
    assert "Did you mean rows.csv?" in line
    assert "is a directory; a CSV or Parquet file is expected" in refused(
        "explain", explainer, make(tmp_path / "d.csv")
    )
    assert "directory of a saved explainer" in refused("explain", tmp_path / "nope", folder / "rows.csv")
    pd.read_csv(folder / "rows.csv").rename(columns={"income": "incom"}).to_csv(
        tmp_path / "r.csv", index=False
    )
    assert "no column 'income' (did you mean 'incom'?)" in refused("explain", explainer, tmp_path / "r.csv")
    (explainer.parent / "damaged").mkdir(exist_ok=True)
    (explainer.parent / "damaged" / "explainer.json").write_text("{}")
    assert "explainer.json is something else" in refused(
        "explain", explainer.parent / "damaged", folder / "rows.csv"
    )


@pytest.mark.parametrize(
    ("option", "name", "suffixes"), [("--report", "r.pdf", ".html or .htm"), ("--json", "a.csv", ".json")]
)
def test_a_format_that_an_option_does_not_write_is_refused_before_the_search(
    folder, explainer, tmp_path, monkeypatch, option, name, suffixes
):
    monkeypatch.setattr(Explainer, "explain", lambda *_, **__: pytest.fail("something was explained"))
    line = refused("explain", explainer, folder / "rows.csv", option, tmp_path / name)
    assert f"{option} writes a file that ends in {suffixes}; got" in line


def test_a_missing_package_for_parquet_is_named_before_the_search(folder, explainer, tmp_path, monkeypatch):
    monkeypatch.setattr(Explainer, "explain", lambda *_, **__: pytest.fail("something was explained"))
    monkeypatch.setattr("plausiflow.cli.output_paths.find_spec", lambda name: None)
    line = refused("explain", explainer, folder / "rows.csv", "--out", tmp_path / "a.parquet")
    assert 'pip install "plausiflow[files]"' in line


def test_nothing_is_written_over_unless_that_is_asked_for(folder, explainer, tmp_path, monkeypatch):
    command = ("explain", explainer, folder / "rows.csv")
    (tmp_path / "a.csv").write_text("mine")
    with monkeypatch.context() as patch:
        patch.setattr(Explainer, "explain", lambda *_, **__: pytest.fail("something was explained"))
        for option in ("--out", "--report", "--json"):
            assert "exists already. Use another name, or --force" in refused(
                *command, option, tmp_path / "a.csv"
            )
        assert "is the file of rows itself" in refused(*command, "--out", folder / "rows.csv", "--force")
        assert "is a directory; a file is expected" in refused(*command, "--out", make(tmp_path / "d.csv"))
        same = ("--out", tmp_path / "b.csv", "--json", tmp_path / "b.csv")
        assert "--out and --json are both" in refused(*command, *same)
        file = tmp_path / "a.csv" / "b.csv"
        assert "cannot be written" in refused(*command, "--out", file)
    assert (tmp_path / "a.csv").read_text() == "mine"
    done(*command, "--out", tmp_path / "a.csv", "--force")
    assert (tmp_path / "a.csv").read_text() != "mine"


def test_only_an_explainer_is_ever_replaced_by_another(folder, explainer, tmp_path, brief):
    command = ("fit", folder / "loans.csv", "--target", "loan", "--train", "logistic", *QUICK)
    (tmp_path / "file").write_text("mine")
    make(tmp_path / "photos").joinpath("cat.png").write_text("mine")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Explainer, "fit", lambda *_: pytest.fail("something was learned"))
        for force in ((), ("--force",)):
            assert "is a file; a directory is expected" in refused(
                *command, "--out", tmp_path / "file", *force
            )
            assert "contains cat.png, and no saved explainer" in refused(
                *command, "--out", tmp_path / "photos", *force
            )
        assert "contains an explainer already" in refused(*command, "--out", explainer)
    for force in ((), ("--force",)):
        done(*command, "--out", tmp_path / "new" / "e", *force)
    assert (tmp_path / "photos" / "cat.png").read_text() == "mine"
