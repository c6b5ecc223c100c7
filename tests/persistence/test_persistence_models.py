"""The model of a saved explainer: other models and files with untrusted types are refused."""

import io
import json
import os
import re
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from plausiflow import Explainer, LinearClassifier, MLPClassifier
from plausiflow.errors import InvalidInputError, ModelError, NotFittedError, PlausiflowError
from plausiflow.persistence import ArtefactError
from saving import (
    MODELS,
    NUMBERS,
    SETTINGS,
    assert_same,
    changed_document,
    document_of,
    outcomes,
    score,
    seal,
)

skops_io = pytest.importorskip("skops.io")
for library in ("lightgbm", "xgboost"):
    pytest.importorskip(library)


@pytest.mark.parametrize("name", ["network", "logistic", "histogram", "xgboost", "function"])
def test_another_model_is_refused(name, saved, table):
    x, y = table[0], outcomes(name, table)
    turned = y.sample(frac=1, random_state=1).to_numpy()
    other = {
        "network": lambda: LinearClassifier.from_weights(torch.ones(2, 13), torch.zeros(2)),
        "function": lambda: lambda frame: 1 - score(frame),
    }.get(name, lambda: MODELS[name](x, turned))()
    with pytest.raises(
        ModelError,
        match=r"must be the model that was explained: its outputs for \d+ of 64 synthetic rows differ",
    ):
        Explainer.load(saved(name), model=other)


def test_a_model_of_another_kind_is_refused(saved):
    with pytest.raises(InvalidInputError, match=r"must be the MLPClassifier .* got a str"):
        Explainer.load(saved("network"), model="a model")
    with pytest.raises(InvalidInputError, match=r"with the method `predict_proba`; got a Ridge without it"):
        Explainer.load(saved("histogram"), model=Ridge())
    with pytest.raises(InvalidInputError, match=r"must be the Pipeline .* got a Ridge: "):
        Explainer.load(saved("logistic"), model=Ridge())
    with pytest.raises(NotFittedError):
        Explainer.load(saved("network"), model=MLPClassifier())


def test_a_model_that_is_not_stored_must_be_passed(saved):
    with pytest.raises(InvalidInputError, match=r"a function, is not stored .*load\(folder, model=model\)"):
        Explainer.load(saved("function"))


def test_a_torch_module_is_passed_again(table, tmp_path):
    x = table[0][NUMBERS]
    centre, scale = torch.tensor(x.mean().to_numpy()), torch.tensor(x.std().to_numpy())

    class Module(torch.nn.Module):
        def forward(self, rows):
            return ((rows - centre.to(rows)) / scale.to(rows)) @ rows.new_tensor([[0.1], [-2.0], [1.0]])

    explainer = Explainer(Module(), **SETTINGS).fit(x, table[1])
    explainer.save(tmp_path / "module")
    after = Explainer.load(tmp_path / "module", model=Module())
    assert_same(explainer.explain(x.iloc[:2]), after.explain(x.iloc[:2]))
    with pytest.raises(InvalidInputError, match="a Module, is not stored"):
        Explainer.load(tmp_path / "module")


def test_types_that_are_not_named_are_not_stored(table, tmp_path):
    x = table[0][NUMBERS]
    model = make_pipeline(FunctionTransformer(score_of_rows), LogisticRegression()).fit(x, table[1])
    explainer = Explainer(model, **SETTINGS).fit(x, table[1])
    explainer.save(tmp_path / "own")
    document = document_of(tmp_path / "own")["model"]
    assert document["stored"] is None
    assert "types that are not trusted" in document["not_stored_because"]
    assert "score_of_rows" in document["not_stored_because"]
    assert not (tmp_path / "own" / "model.skops").exists()
    Explainer.load(tmp_path / "own", model=model)


def test_a_pipeline_that_selects_columns_by_their_type_is_stored(table, tmp_path):
    x = table[0]
    columns = make_column_transformer(
        (StandardScaler(), make_column_selector(dtype_include=np.number)),
        (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_exclude=np.number)),
    )
    model = make_pipeline(columns, LogisticRegression()).fit(x, table[1])
    explainer = Explainer(model, **SETTINGS).fit(x, table[1])
    explainer.save(tmp_path / "selected")
    after = Explainer.load(tmp_path / "selected")
    assert_same(explainer.explain(x.iloc[:2]), after.explain(x.iloc[:2]))


def score_of_rows(rows):
    return rows


def test_a_model_file_with_untrusted_types_is_refused(copied, tmp_path):
    folder = copied("logistic")
    marker = tmp_path / "executed"
    bad = make_pipeline(FunctionTransformer(os.system, kw_args={"command": f"touch {marker}"}), Ridge())
    (folder / "model.skops").write_bytes(skops_io.dumps(bad))
    seal(folder, document_of(folder))
    with pytest.raises(InvalidInputError, match=r"types that are not trusted: posix\.system"):
        Explainer.load(folder)
    assert not marker.exists()


def test_a_model_file_that_is_no_archive_is_refused(copied, table):
    folder = copied("logistic")
    with zipfile.ZipFile(folder / "model.skops", "w") as archive:
        archive.writestr("schema.json", '{"__class__": "eval", "__module__": "builtins"}')
    seal(folder, document_of(folder))
    with pytest.raises(PlausiflowError):
        Explainer.load(folder)
    (folder / "model.skops").write_bytes(b"nothing")
    seal(folder, document_of(folder))
    with pytest.raises(ArtefactError, match="BadZipFile"):
        Explainer.load(folder)


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("forest", "left_child", 10**6),
        ("forest", "feature", 10**6),
        ("histogram", "right", 10**6),
        ("histogram", "feature_idx", 10**6),
        ("forest", "right_child", 1),  # the left child is the right one, too
        ("histogram", "right", 1),
    ],
)
def test_a_tree_that_leads_out_of_memory_is_not_followed(name, field, value, copied):
    folder = copied(name)
    with zipfile.ZipFile(folder / "model.skops") as archive:
        parts = {entry: archive.read(entry) for entry in archive.namelist()}
    for entry, content in parts.items():
        if entry.endswith(".npy"):
            array = np.load(io.BytesIO(content))
            if field in (array.dtype.names or ()):
                array[field][0] = value
                file = io.BytesIO()
                np.save(file, array)
                parts[entry] = file.getvalue()
    with zipfile.ZipFile(folder / "model.skops", "w") as archive:
        for entry, content in parts.items():
            archive.writestr(entry, content)
    seal(folder, document_of(folder))
    with pytest.raises(InvalidInputError, match="a tree has invalid nodes"):
        Explainer.load(folder)


def test_a_booster_that_leads_out_of_memory_is_not_followed(saved, tmp_path):
    folder = Path(shutil.copytree(saved("xgboost"), tmp_path / "xgboost"))
    whole = json.loads((folder / "model.json").read_text())
    for field, value in [
        ("left_children", 10**6),
        ("split_indices", 99),
        ("parents", 5),
        ("right_children", 0),
    ]:
        model = json.loads(json.dumps(whole))
        model["learner"]["gradient_booster"]["model"]["trees"][0][field][0] = value
        (folder / "model.json").write_text(json.dumps(model))
        seal(folder, document_of(folder))
        with pytest.raises(InvalidInputError, match="The model file is invalid"):
            Explainer.load(folder)
    folder = Path(shutil.copytree(saved("lightgbm"), tmp_path / "lightgbm"))
    text = (folder / "model.txt").read_text()
    for before, after in [
        (r"split_feature=\d", "split_feature=9"),
        (r"\nnum_cat=0", "\nnum_cat=7"),
        ("end of", ""),
    ]:
        (folder / "model.txt").write_text(re.sub(before, after, text, count=1))
        seal(folder, document_of(folder))
        with pytest.raises(InvalidInputError, match=r"LightGBM cannot read|The model file is invalid"):
            Explainer.load(folder)


def test_a_booster_that_is_not_one_is_refused(copied):
    folder = copied("xgboost")
    (folder / "model.json").write_text('{"learner": {}}')
    seal(folder, document_of(folder))
    with pytest.raises(PlausiflowError, match="XGBoost cannot read"):
        Explainer.load(folder)
    changed_document(folder, lambda d: d["model"]["estimator"].update({"class": "DMatrix"}))
    with pytest.raises(PlausiflowError, match="must be of XGBClassifier or XGBRegressor"):
        Explainer.load(folder)
    changed_document(folder, lambda d: d["model"].update(method="save_model"))
    with pytest.raises(PlausiflowError):
        Explainer.load(folder)
