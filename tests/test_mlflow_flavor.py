"""Explainers in MLflow: saved, logged, loaded, and as a pyfunc, with the same answers."""

import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from plausiflow import Explainer, Immutable, load_table
from plausiflow.errors import InvalidInputError, NotFittedError

mlflow = pytest.importorskip("mlflow", reason="the extra `mlflow` is not installed")
flavor = pytest.importorskip("plausiflow.mlflow")

pytestmark = [pytest.mark.mlflow, pytest.mark.filterwarnings("ignore")]
NUMBERS = ["age", "income", "debt_ratio", "credit_score"]


@pytest.fixture(scope="module")
def table():
    train, _ = load_table("loans").split(200, 10)
    return train.x[[*NUMBERS, "job", "owns_home"]], train.y


@pytest.fixture(scope="module")
def explainer(table):
    x, y = table
    columns = make_column_transformer((OneHotEncoder(), ["job", "owns_home"]), (StandardScaler(), NUMBERS))
    model = make_pipeline(columns, LogisticRegression()).fit(x, y)
    return Explainer(model, constraints=[Immutable("age")], confidence=None, judges=0).fit(
        x, y, effort="quick"
    )


@pytest.fixture(scope="module")
def saved(explainer, tmp_path_factory, table):
    path = tmp_path_factory.mktemp("models") / "credit"
    flavor.save_model(
        explainer, path, target="granted", input_example=table[0].head(2), metadata={"owner": "risk"}
    )
    return path


@pytest.fixture(scope="module")
def rows(table, explainer):
    x = table[0]
    return x[explainer.predict(x) == "rejected"].iloc[:6].reset_index(drop=True)


def test_a_loaded_explainer_gives_the_same_answers(explainer, saved, rows):
    again = flavor.load_model(saved)
    pd.testing.assert_frame_equal(
        again.explain(rows, "granted", k=2).to_frame(), explainer.explain(rows, "granted", k=2).to_frame()
    )


def test_the_pyfunc_explains_rows(explainer, saved, rows):
    model = mlflow.pyfunc.load_model(str(saved))
    expected = explainer.explain(rows, "granted").to_frame()
    answers = model.predict(rows)
    assert answers["status"].tolist() == expected["status"].tolist() == ["found"] * len(rows)
    pd.testing.assert_frame_equal(answers, expected, check_dtype=False)


def test_the_parameters_of_a_pyfunc_are_arguments_of_explain(explainer, saved, rows):
    model = mlflow.pyfunc.load_model(str(saved))
    answers = model.predict(rows, params={"k": 2, "locked": ["income"], "min_probability": 0.6})
    expected = explainer.explain(rows, "granted", k=2, locked=["income"], min_probability=0.6).to_frame()
    pd.testing.assert_frame_equal(answers, expected, check_dtype=False)
    already = model.predict(rows, params={"target": "rejected"})
    assert already["status"].tolist() == ["already"] * len(rows)


def test_the_signature_names_the_columns_and_refuses_others(explainer, saved, rows):
    signature = mlflow.models.get_model_info(str(saved)).signature
    assert signature.inputs.input_names() == list(rows.columns)
    types = {column.name: column.type.name for column in signature.inputs}
    assert types == {
        "age": "long", "income": "long", "debt_ratio": "double", "credit_score": "long", "job": "string",
        "owns_home": "boolean",
    }  # fmt: skip
    model = mlflow.pyfunc.load_model(str(saved))
    with pytest.raises(mlflow.exceptions.MlflowException, match="missing inputs"):
        model.predict(rows.drop(columns="job"))


def test_a_logged_explainer_is_loaded_from_its_run(explainer, rows, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # mlflow-skinny has no database
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    with mlflow.start_run():
        logged = flavor.log_model(explainer, target="granted")
    again = flavor.load_model(logged.model_uri)
    pd.testing.assert_frame_equal(
        again.explain(rows, "granted").counterfactuals, explainer.explain(rows, "granted").counterfactuals
    )


def test_nothing_in_the_directory_is_a_pickle(saved):
    names = {path.name for path in saved.rglob("*") if path.is_file()}
    assert {"MLmodel", "requirements.txt", "explainer.json", "model.skops"} <= names
    assert not any(name.endswith((".pkl", ".pickle", ".joblib")) for name in names)
    assert "plausiflow[files]==" in (saved / "requirements.txt").read_text()
    assert mlflow.models.get_model_info(str(saved)).metadata == {"owner": "risk"}


def test_what_cannot_be_saved_is_refused_with_a_way_out(explainer, table, saved, tmp_path):
    with pytest.raises(InvalidInputError, match="must be a new or empty directory"):
        flavor.save_model(explainer, saved)
    with pytest.raises(NotFittedError):
        flavor.save_model(Explainer(explainer.model), tmp_path / "a")
    x = table[0][NUMBERS]
    function = Explainer(lambda rows: (rows["income"] > 40_000).astype(float), confidence=None, judges=0)
    function.fit(x, x["income"] > 40_000, effort="quick")
    with pytest.raises(InvalidInputError, match=r"cannot be stored with it: .* Log that model by itself"):
        flavor.save_model(function, tmp_path / "b")
    mlflow.models.Model().save(str(tmp_path / "MLmodel"))
    with pytest.raises(InvalidInputError, match="must be a model that plausiflow"):
        flavor.load_model(tmp_path)
