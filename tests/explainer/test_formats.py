"""Tables of other libraries: rows of Polars, PyArrow and NumPy in, results of the same library out."""

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from plausiflow import Explainer, Immutable, load_table
from plausiflow.errors import InvalidInputError

pl = pytest.importorskip("polars", reason="the test of Polars needs `pip install polars`")
pa = pytest.importorskip("pyarrow", reason="the test of PyArrow needs the extra `files`")

NUMBERS = ["age", "income", "debt_ratio", "credit_score"]
SETTINGS = {"confidence": None, "judges": 0, "constraints": [Immutable("age")]}


@pytest.fixture(scope="module")
def table():
    train, _ = load_table("loans").split(200, 10)
    return train.x[[*NUMBERS, "job"]], train.y


@pytest.fixture(scope="module")
def native(table):
    """The training table in Polars, with dtypes of its own."""
    frame = pl.DataFrame({name: column.tolist() for name, column in table[0].items()})
    levels = sorted(table[0]["job"].unique())
    return frame.with_columns(
        pl.col("age").cast(pl.Int16),
        pl.col("debt_ratio").cast(pl.Float32),
        pl.col("job").cast(pl.Enum(levels)),
    )


def pipeline():
    columns = make_column_transformer((OneHotEncoder(), ["job"]), (StandardScaler(), NUMBERS))
    return make_pipeline(columns, LogisticRegression())


@pytest.fixture(scope="module")
def explainer(native, table):
    y = pl.Series("loan", table[1].tolist())
    model = pipeline().fit(native, y)
    return Explainer(model, **SETTINGS).fit(native, y, effort="quick")


@pytest.fixture(scope="module")
def denied(explainer, native):
    return native.filter(explainer.predict(native) != "granted").head(8)


def test_polars_in_is_polars_out_with_the_same_dtypes(explainer, denied):
    result = explainer.explain(denied, "granted", k=2)
    assert result.counterfactuals.schema == denied.schema
    assert result.best_answers.schema == denied.schema
    assert (result.counterfactuals["age"] == denied["age"]).all()
    assert explainer.predict(result.best_answers).to_list() == ["granted"] * len(result.best_answers)
    for each in (result.status, result.changes, result.figures, result.alternatives, result.to_frame()):
        assert isinstance(each, pl.DataFrame)
    assert isinstance(result.sentences, pl.Series)
    assert result.alternatives.columns[:2] == ["row", "rank"]
    assert result.alternatives.drop("row", "rank").schema == denied.schema
    assert len(result) == len(denied) == len(result.status)
    assert "FormattedResult" not in repr(result)


def test_the_answers_are_those_of_pandas(explainer, denied):
    own = explainer.explain(denied, "granted")
    frame = pd.DataFrame({name: denied[name].to_list() for name in denied.columns})
    pandas = explainer.explain(frame, "granted")
    for name in denied.columns:
        assert own.counterfactuals[name].to_list() == pytest.approx(pandas.counterfactuals[name].tolist())
    assert own.status["status"].to_list() == pandas.status["status"].tolist()
    pd.testing.assert_series_equal(own.pandas.metrics(), pandas.metrics(), rtol=1e-4)


def test_predictions_are_in_polars(explainer, denied):
    assert explainer.predict(denied).to_list() == ["rejected"] * len(denied)
    proba = explainer.predict_proba(denied)
    assert isinstance(proba, pl.DataFrame)
    assert proba.columns == ["granted", "rejected"]
    assert explainer.score(denied, "granted").shape == (len(denied),)


def test_one_row_of_a_result_has_its_tables_in_polars(explainer, denied):
    result = explainer.explain(denied, "granted", k=2)
    one = next(each for each in result if each.status == "found")
    assert one.factual.schema == denied.schema
    assert one.counterfactuals[0].schema == denied.schema
    assert isinstance(one.changes, pl.DataFrame)
    assert one.changes["from"].dtype == pl.String


def test_rows_without_an_answer_are_null_and_keep_the_dtypes(explainer, native):
    result = explainer.explain(native.head(20), "granted")
    rows = result.counterfactuals
    assert rows.schema == native.schema
    without = [status != "found" for status in result.status["status"]]
    assert any(without)
    assert rows.select(pl.all_horizontal(pl.all().is_null())).to_series().to_list() == without


def test_missing_values_stay_null_or_nan_as_they_were(native, table):
    x = native.with_columns(
        income=pl.when(pl.int_range(pl.len()) % 7 == 0).then(None).otherwise(pl.col("income")),
        credit_score=pl.when(pl.int_range(pl.len()) % 7 == 1)
        .then(float("nan"))
        .otherwise(pl.col("credit_score").cast(pl.Float64)),
    )

    def decide(rows):
        assert isinstance(rows, pl.DataFrame)
        return 1 / (1 + (-(rows["age"].cast(pl.Float64) - 40) / 5).exp())

    settings = SETTINGS | {"constraints": [], "plausibility": 0.1}
    own = Explainer(decide, **settings).fit(x, [int(age > 40) for age in x["age"]], effort="quick")
    result = own.explain(x.head(60), target=1)
    found = pl.Series(result.status["status"]) == "found"
    answers, before = result.counterfactuals.filter(found), x.head(60).filter(found)
    assert answers.schema == x.schema
    assert before["income"].null_count() > 0 < before["credit_score"].is_nan().sum()
    assert (answers["income"].is_null() >= before["income"].is_null()).all()
    assert (answers["credit_score"].is_nan() >= before["credit_score"].is_nan()).all()
    assert answers["credit_score"].null_count() == 0


def test_a_function_gets_the_kind_of_table_that_fit_got_also_after_loading(native, table, tmp_path):
    seen = set()

    def granted(rows):
        seen.add(type(rows))
        return rows.select(1 / (1 + (-(pl.col("income") - 40_000) / 8000).exp())).to_series()

    x = native.drop("job")
    y = (x["income"] > 40_000).cast(pl.String)
    own = Explainer(granted, **SETTINGS).fit(x, y, effort="quick")
    rows = x.head(5)
    own.save(tmp_path / "own")
    again = Explainer.load(tmp_path / "own", model=granted)
    assert again.explain(rows).counterfactuals.equals(own.explain(rows).counterfactuals)
    assert seen == {pl.DataFrame}


def test_pyarrow_in_is_pyarrow_out(explainer, denied):
    rows = (
        denied.drop("job")
        .to_arrow()
        .append_column("job", pa.array(denied["job"].to_list()).dictionary_encode())
    )
    result = explainer.explain(rows, "granted")
    assert result.best_answers.schema == rows.schema
    assert result.best_answers.num_rows == len(rows)
    assert isinstance(result.changes, pa.Table)
    assert explainer.predict(rows).to_pylist() == ["rejected"] * len(denied)


def test_groups_are_in_polars_and_assign_other_rows(explainer, native):
    groups = explainer.explain_groups(native.head(60), "granted", groups=2)
    assert isinstance(groups.actions, pl.DataFrame)
    assert groups.actions["action"].to_list() == list(range(1, len(groups) + 1))
    assert "row" in groups.members.columns
    assert groups.explanations.best_answers.schema == native.schema
    other = groups.assign(native.slice(60, 20))
    assert isinstance(other.members, pl.DataFrame)
    assert isinstance(groups.assign(native.slice(60, 20).to_arrow()).uncovered, pa.Table)


def test_locked_cells_and_targets_may_be_in_polars(explainer, denied):
    locked = pl.DataFrame({"income": [True] * len(denied)})
    result = explainer.explain(denied, pl.Series(["granted"] * len(denied)), locked=locked)
    assert "income" not in result.changes["feature"].to_list()


def test_reports_and_json_of_other_tables_are_written(explainer, denied, tmp_path):
    result = explainer.explain(denied, "granted")
    result.to_html(tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size > 10_000
    assert '"counterfactual' in result.to_json()
    assert explainer.recheck(result.best_answers, "granted", before=denied).rows["valid"].all()


def test_arrays_need_names_and_come_back_as_arrays(table):
    x, y = table[0][NUMBERS].to_numpy(float), table[1]
    model = LogisticRegression(max_iter=5000).fit(x, y)
    with pytest.raises(
        InvalidInputError, match=r"4 columns need names. Set them: `Explainer\(model, feature_n"
    ):
        Explainer(model, **SETTINGS).fit(x, y)
    own = Explainer(model, feature_names=np.array(NUMBERS), **SETTINGS).fit(x, y.to_numpy(), effort="quick")
    rows = x[model.predict(x) == "rejected"][:6]
    result = own.explain(rows, "granted")
    assert isinstance(result.counterfactuals, np.ndarray)
    assert (model.predict(result.best_answers) == "granted").all()
    assert (result.best_answers[:, 0] == rows[:, 0]).all()
    assert isinstance(result.changes, pd.DataFrame)
    assert own.predict(rows).tolist() == ["rejected"] * len(rows)
    with pytest.raises(
        InvalidInputError, match="must have 4 columns, one for each of the feature names; got 3"
    ):
        own.explain(rows[:, :3])
    with pytest.raises(InvalidInputError, match=r"got shape \(4,\). For one row, pass `row\[None, :\]`"):
        own.explain(rows[0])


def test_a_function_of_an_array_gets_arrays_and_saves_the_names(table, tmp_path):
    x = table[0][NUMBERS].to_numpy(float)

    def granted(rows):
        assert isinstance(rows, np.ndarray)
        return 1 / (1 + np.exp(-(rows[:, 1] - 40_000) / 8000))

    own = Explainer(granted, feature_names=NUMBERS, **SETTINGS).fit(x, x[:, 1] > 40_000, effort="quick")
    own.save(tmp_path / "own")
    again = Explainer.load(tmp_path / "own", model=granted)
    assert again.feature_names == NUMBERS
    np.testing.assert_array_equal(again.explain(x[:4]).counterfactuals, own.explain(x[:4]).counterfactuals)


def test_a_series_is_one_row_with_the_training_dtypes(table):
    x, y = table
    own = Explainer(pipeline().fit(x, y), **SETTINGS).fit(x, y, effort="quick")
    row = x[own.predict(x) == "rejected"].iloc[0]
    one, all_rows = own.explain(row, "granted"), own.explain(x.loc[[row.name]], "granted")
    pd.testing.assert_frame_equal(one.counterfactuals, all_rows.counterfactuals)
    with pytest.raises(InvalidInputError, match=r"`x` must be a table; got Series. A Series is one row"):
        own.fit(row, y)


@pytest.mark.parametrize(
    ("rows", "way"),
    [
        (lambda x: x.lazy(), r"got LazyFrame. It has not been computed: call `.collect\(\)`"),
        (lambda x: x["age"], r"got Series. Select the row as a table, as in `table\[\[0\]\]`"),
        (
            lambda x: x.to_dicts(),
            "got list. Pass a DataFrame of pandas or Polars, a PyArrow table, or a NumPy",
        ),
        (lambda x: x.drop("age"), "columns of the training table are missing: 'age'"),
    ],
)
def test_every_refusal_says_what_to_do(explainer, native, rows, way):
    with pytest.raises(InvalidInputError, match=way):
        explainer.explain(rows(native))


def test_values_that_a_dtype_cannot_hold_widen_it(native):
    from plausiflow.tables import read_table

    frame, table_format = read_table(native.head(2))
    wide = table_format.write(frame.assign(age=[40_000, 1], job=["boat", "own"]))
    assert wide.schema["age"] == pl.Int64
    assert wide.schema["job"] == pl.String
    assert wide.schema["income"] == native.schema["income"]
