"""Models of ONNX files, written by skl2onnx and torch, are explained and decide every answer."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import make_column_transformer
from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from plausiflow import Explainer, Immutable, OnnxModel, load_table
from plausiflow.errors import InvalidInputError

rt = pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed")
skl2onnx = pytest.importorskip("skl2onnx", reason="the test needs `pip install skl2onnx` to write models")
from skl2onnx.common.data_types import FloatTensorType, StringTensorType  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:FutureWarning")
NUMBERS = ["age", "income", "debt_ratio", "credit_score"]
SETTINGS = {"confidence": None, "judges": 0}


@pytest.fixture(scope="module")
def table():
    train, _ = load_table("loans").split(250, 10)
    return train.x[[*NUMBERS, "job"]], train.y


@pytest.fixture(scope="module")
def forest(table):
    x, y = table
    model = RandomForestClassifier(20, random_state=0).fit(x[NUMBERS].to_numpy(np.float32), y)
    written = skl2onnx.to_onnx(model, initial_types=[("X", FloatTensorType([None, 4]))])
    return model, OnnxModel(written)


def test_a_forest_is_called_through_onnxruntime_and_decides_every_answer(table, forest, tmp_path):
    x, (own, model) = table[0][NUMBERS], forest
    np.testing.assert_allclose(model.predict_proba(x), own.predict_proba(x.to_numpy(np.float32)), atol=1e-5)
    explainer = Explainer(model, constraints=[Immutable("age")], **SETTINGS).fit(x, table[1], effort="quick")
    rows = x[model.predict(x) == "rejected"].iloc[:5]
    result = explainer.explain(rows, "granted")
    assert (result.status["status"] == "found").all()
    session = rt.InferenceSession(model.content, providers=["CPUExecutionProvider"])
    given = result.counterfactuals.to_numpy(np.float32)
    assert session.run(["output_label"], {"X": given})[0].tolist() == ["granted"] * 5
    assert "OnnxModel" in str(explainer)


def test_the_file_is_saved_with_the_explainer(table, forest, tmp_path):
    x = table[0][NUMBERS]
    explainer = Explainer(forest[1], **SETTINGS).fit(x, table[1], effort="quick")
    explainer.save(tmp_path / "own")
    assert (tmp_path / "own" / "model.onnx").read_bytes() == forest[1].content
    again = Explainer.load(tmp_path / "own")
    pd.testing.assert_frame_equal(
        again.explain(x.iloc[:3]).counterfactuals, explainer.explain(x.iloc[:3]).counterfactuals
    )


def test_a_pipeline_of_numbers_and_text_has_an_input_for_each_column(table, tmp_path):
    x, y = table
    columns = make_column_transformer((OneHotEncoder(), ["job"]), (StandardScaler(), NUMBERS))
    own = make_pipeline(columns, LogisticRegression()).fit(x, y)
    inputs = [(name, FloatTensorType([None, 1])) for name in NUMBERS] + [("job", StringTensorType([None, 1]))]
    written = skl2onnx.to_onnx(own, initial_types=inputs, options={"zipmap": False})
    path = tmp_path / "credit.onnx"
    path.write_bytes(written.SerializeToString())
    model = OnnxModel(path)
    assert model.predict(x).tolist() == own.predict(x).tolist()
    np.testing.assert_allclose(model.predict_proba(x), own.predict_proba(x), atol=1e-5)
    explainer = Explainer(model, **SETTINGS).fit(x[x.columns[::-1]], y, effort="quick")
    rows = x[own.predict(x) == "rejected"].iloc[:4]
    found = explainer.explain(rows, "granted").best_answers
    assert len(found)
    assert (own.predict(found) == "granted").all()


def test_a_regressor_predicts_numbers(table):
    x = table[0][NUMBERS]
    own = GradientBoostingRegressor(n_estimators=20, random_state=0).fit(
        x.drop(columns="income").to_numpy(np.float32), x["income"]
    )
    written = skl2onnx.to_onnx(own, initial_types=[("X", FloatTensorType([None, 3]))])
    model = OnnxModel(written)
    assert not hasattr(model, "predict_proba")
    rows = x.drop(columns="income")
    explainer = Explainer(model, **SETTINGS).fit(rows, x["income"], effort="quick")
    assert explainer.predict(rows).to_numpy() == pytest.approx(
        own.predict(rows.to_numpy(np.float32)), rel=1e-4
    )


def test_logits_of_a_network_become_probabilities():
    """A linear layer written node by node, since torch.onnx needs another package."""
    from onnx import TensorProto, helper

    weight, bias = np.array([[1.0], [-2.0]], np.float32), np.array([0.5], np.float32)
    constants = [
        helper.make_tensor("W", TensorProto.FLOAT, weight.shape, weight.ravel()),
        helper.make_tensor("b", TensorProto.FLOAT, bias.shape, bias),
    ]
    nodes = [helper.make_node("MatMul", ["X", "W"], ["Y"]), helper.make_node("Add", ["Y", "b"], ["Z"])]
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, width])]
        for name, width in (("X", 2), ("Z", 1))
    ]
    graph = helper.make_graph(nodes, "linear", *ends, constants)
    written = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    x = np.array([[1.0, 0.25], [0.0, 3.0]])
    expected = torch.sigmoid(torch.tensor([1.0, -5.5])).numpy()
    model = OnnxModel(written, logits=True)
    np.testing.assert_allclose(model.predict_proba(x)[:, 1], expected, rtol=1e-5)
    with pytest.raises(InvalidInputError, match="`predict` needs `classes`"):
        model.predict(x)
    assert OnnxModel(written, logits=True, classes=["no", "yes"]).predict(x).tolist() == ["yes", "no"]
    assert OnnxModel(written, classes=["no", "yes"]).predict_proba(x)[0].tolist() == [0.0, 1.0]


def test_it_can_be_copied_to_other_processes(table, forest):
    again = pickle.loads(pickle.dumps(forest[1]))
    x = table[0][NUMBERS]
    np.testing.assert_array_equal(again.predict_proba(x), forest[1].predict_proba(x))


def test_what_is_no_model_is_refused_with_a_way_out(table, forest, tmp_path):
    with pytest.raises(InvalidInputError, match="there is no file"):
        OnnxModel(tmp_path / "missing.onnx")
    with pytest.raises(InvalidInputError, match=r"must be an ONNX model that onnxruntime .* reads"):
        OnnxModel(b"not a model")
    with pytest.raises(InvalidInputError, match="must be the path of an ONNX file, its bytes or"):
        OnnxModel(5)
    session = rt.InferenceSession(forest[1].content, providers=["CPUExecutionProvider"])
    with pytest.raises(InvalidInputError, match=r"Pass `plausiflow.OnnxModel\(model\)`"):
        Explainer(session, **SETTINGS).fit(table[0][NUMBERS], table[1])
    wrapped = OnnxModel(session)
    x = table[0][NUMBERS]
    np.testing.assert_allclose(wrapped.predict_proba(x), forest[1].predict_proba(x), atol=1e-5)
    with pytest.raises(InvalidInputError, match="cannot be copied to other processes"):
        pickle.dumps(wrapped)
