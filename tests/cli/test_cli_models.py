"""Model files that cannot or must not be read: one line on standard error, and no code is run."""

import json
import os
import pickle
from pathlib import Path

import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from commanding import refused
from plausiflow.persistence import ubjson
from processes import forked

skops_io = pytest.importorskip("skops.io")


class Trap:
    def __reduce__(self):
        return Path.write_text, (Path("trap.txt"), "code was run")


@pytest.mark.parametrize("name", ["model.pkl", "model.joblib", "model.skops", "model.json", "model.txt"])
def test_a_pickle_is_never_read_whatever_it_is_called(folder, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(pickle.dumps(Trap()))
    line = refused("fit", folder / "loans.csv", "--target", "loan", "--model", name, "--out", "out")
    assert "is a pickle, which runs code when it is read" in line
    assert 'skops.io.dump(model, "model.skops")' in line
    assert not Path("trap.txt").exists()


@pytest.mark.parametrize(
    ("name", "content", "remedy"),
    [
        ("model.pmml", b"x", "is not a model that can be read here"),
        ("model.onnx", b"x", "must be an ONNX model that onnxruntime"),
        ("model.skops", b"no zip", "BadZipFile"),
        ("model.json", b"{}", "KeyError: 'learner'"),
        ("model.json", b"[1", "JSONDecodeError"),
        ("model.json", b'{"learner": {"objective": {"name": "rank:ndcg"}}}', "its objective is 'rank:ndcg'"),
        ("model.ubj", b"no booster", "XGBoost cannot read model.ubj: JSONDecodeError"),
        ("model.txt", b"tree", "it was not written by `booster.save_model` of LightGBM"),
        ("model.txt", b"objective=lambdarank\nfeature_names=a\n", "its objective is 'lambdarank'"),
        ("model.txt", b"objective=multiclass num_class:3\nfeature_names=a\n", "the table has 2"),
        ("model.txt", b"objective=binary\nfeature_names=a\n", "LightGBM cannot read"),
        ("model.txt", b"\xff", "UnicodeDecodeError"),
    ],
)  # fmt: skip
def test_a_model_that_cannot_be_read_is_one_line(folder, tmp_path, name, content, remedy):
    (tmp_path / name).write_bytes(content)
    line = refused(
        "fit", folder / "loans.csv", "--target", "loan", "--model", tmp_path / name, "--out", tmp_path / "o"
    )
    assert remedy in line
    assert str(tmp_path / name) in line


@pytest.mark.parametrize("name", ["model.json", "model.ubj"])
def test_a_booster_that_makes_its_library_crash_is_one_line(folder, tmp_path, name):
    model = json.loads((folder / "model.json").read_text())
    tree = model["learner"]["gradient_booster"]["model"]["trees"][0]
    tree["tree_param"]["size_leaf_vector"] = "-1"
    content = ubjson.encode(model) if name == "model.ubj" else json.dumps(model).encode()
    (tmp_path / name).write_bytes(content)

    def fit():
        threadpool_limits(4)  # an exception in a thread of a library ends the process
        line = refused("fit", folder / "numbers.csv", "--target", "paid", "--model", tmp_path / name,
                       "--out", tmp_path / "o")  # fmt: skip
        assert "'-1' must be a number" in line

    assert os.waitstatus_to_exitcode(os.waitpid(forked(fit), 0)[1]) == 0


def test_a_model_that_does_not_fit_into_memory_is_one_line(folder, tmp_path, monkeypatch):
    read = Path.read_bytes

    def read_tables_only(path):
        if path.name == "model.json":
            raise MemoryError
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", read_tables_only)
    line = refused("fit", folder / "numbers.csv", "--target", "paid", "--model", folder / "model.json",
                   "--out", tmp_path / "o")  # fmt: skip
    assert "cannot be read: MemoryError" in line


def test_a_model_of_types_that_are_not_trusted_is_not_read(folder, tmp_path):
    skops_io.dump(make_pipeline(Odd(), LogisticRegression()), tmp_path / "model.skops")
    line = refused("fit", folder / "loans.csv", "--target", "loan", "--model", tmp_path / "model.skops",
                   "--out", tmp_path / "o")  # fmt: skip
    assert "contains types that are not trusted" in line


class Odd(StandardScaler):
    pass


def test_outcomes_that_a_model_does_not_know_are_told(folder, tmp_path):
    line = refused("fit", folder / "named.csv", "--target", "paid", "--model", folder / "model.json",
                   "--out", tmp_path / "o")  # fmt: skip
    assert "`paid` contains 'no', 'yes', and the outcomes of" in line
    assert "are 0, 1. Write them as the model was trained on them" in line
