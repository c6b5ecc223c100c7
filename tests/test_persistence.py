"""Saved explainers: the same answers to the bit, and nothing but clear errors from bad directories."""

import hashlib
import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from pandas.testing import assert_frame_equal, assert_series_equal
from safetensors.torch import load_file, save_file
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from plausiflow import Explainer, Immutable, Increasing, LinearClassifier, MLPClassifier, Range, Training
from plausiflow.classifiers import blackbox, standins
from plausiflow.data.tables import loans_table
from plausiflow.densities import mixed
from plausiflow.errors import InvalidInputError, ModelError, NotFittedError, PlausiflowError
from plausiflow.persistence import ArtefactError, estimators, files
from plausiflow.search import fitting, verified
from plausiflow.search.evolution import Evolution

lightgbm = pytest.importorskip("lightgbm")
xgboost = pytest.importorskip("xgboost")
skops_io = pytest.importorskip("skops.io")

NUMBERS, LEVELS = ["age", "income", "debt_ratio"], ["education", "job"]
RULES = [Immutable("age"), Increasing("education"), Range("debt_ratio", 0, 0.9)]
SETTINGS = {"confidence": None, "judges": 1, "plausibility": 0.1}
MUTATIONS = 300
LONG_SEARCH = verified.ITERATIONS, fitting.VerifiedSearch


def score(frame):
    """Any function of a table: the probability of the second outcome."""
    return 1 / (1 + np.exp(frame["income"] / 10_000 - 3 - 5 * frame["debt_ratio"]))


def prepared(estimator):
    steps = make_column_transformer((StandardScaler(), NUMBERS), (OneHotEncoder(), LEVELS))
    return make_pipeline(steps, estimator)


MODELS = {
    "network": lambda x, y: MLPClassifier(hidden=(16,), training=Training(epochs=30, batch_size=64)),
    "logistic": lambda x, y: prepared(LogisticRegression()).fit(x, y),
    "histogram": lambda x, y: prepared(HistGradientBoostingClassifier(max_iter=5)).fit(x, y),
    "xgboost": lambda x, y: xgboost.XGBClassifier(n_estimators=5, max_depth=3, n_jobs=1).fit(x[NUMBERS], y),
    "lightgbm": lambda x, y: lightgbm.LGBMClassifier(n_estimators=5, n_jobs=1, verbose=-1).fit(x[NUMBERS], y),
    "forest": lambda x, y: prepared(RandomForestClassifier(5, max_depth=4, random_state=0)).fit(x, y),
    "function": lambda x, y: score,
    "ridge": lambda x, y: prepared(Ridge()).fit(x, y),
    "boosted numbers": lambda x, y: prepared(GradientBoostingRegressor(n_estimators=5)).fit(x, y),
}
STORED = {
    "network": "network", "logistic": "model.skops", "histogram": "model.skops", "xgboost": "model.json",
    "lightgbm": "model.txt", "forest": "model.skops", "function": None, "ridge": "model.skops",
    "boosted numbers": "model.skops",
}  # fmt: skip


@pytest.fixture(scope="module")
def table():
    loans = loans_table(n=300)
    return loans.x[[*NUMBERS, *LEVELS]], loans.y


def outcomes(name, table):
    x, y = table
    if name in ("ridge", "boosted numbers"):
        return (0.1 * x["income"] + x["age"] + x["debt_ratio"]).rename("score")
    return (y == "granted").astype(int) if name == "xgboost" else y


@pytest.fixture(scope="module", autouse=True)
def brief():
    """Densities and students that learn for a moment only; short searches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixed, "FLOW_TRAINING", Training(epochs=1, learning_rate=1e-2))
        patch.setattr(mixed, "LEVELS_TRAINING", Training(epochs=1, learning_rate=1e-2))
        patch.setattr(fitting, "MEMBERS", 2)
        patch.setattr(blackbox, "FEWEST", 1000)
        patch.setattr(standins, "student", partial(standins.student, n_trees=10, n_leaves=8))
        patch.setattr(verified, "ITERATIONS", 4)
        short = partial(verified.VerifiedSearch, evolution=Evolution(rounds=1))
        patch.setattr(fitting, "VerifiedSearch", short)
        yield


@pytest.fixture(scope="module")
def fitted(table):
    """Explainers by the name of their model, each fitted once."""
    known = {}

    def get(name):
        if name not in known:
            y = outcomes(name, table)
            model = MODELS[name](table[0], y)
            known[name] = Explainer(model, constraints=RULES, **SETTINGS).fit(table[0], y)
        return known[name]

    return get


@pytest.fixture(scope="module")
def saved(fitted, tmp_path_factory) -> Callable[[str], Path]:
    """Directories by the name of the model; a test that changes one copies it first."""
    root = tmp_path_factory.mktemp("saved")

    def get(name):
        if not (root / name).exists():
            fitted(name).save(root / name)
        return root / name

    return get


@pytest.fixture
def copied(saved, tmp_path):
    def get(name="network"):
        return Path(shutil.copytree(saved(name), tmp_path / "copy"))

    return get


def target_of(name, table):
    if name in ("ridge", "boosted numbers"):
        return (float(outcomes(name, table).quantile(0.7)), None)
    return "opposite"


def loaded(name, saved, fitted, **given):
    if STORED[name] is None:
        given.setdefault("model", fitted(name).model)
    return Explainer.load(saved(name), **given)


def assert_same(first, second):
    """Bit for bit: answers, verdicts, judged figures."""
    for part in ("answers", "figures", "verdicts", "misses"):
        left, right = getattr(first, part), getattr(second, part)
        assert (left is None) == (right is None)
        if left is not None:
            assert_frame_equal(left, right, check_exact=True)
    assert (first.of == second.of).all()
    assert (first.model_calls, first.model_rows) == (second.model_calls, second.model_rows)
    assert first.outcome == second.outcome


def document_of(folder) -> dict:
    return json.loads((folder / "explainer.json").read_text())


def seal(folder, document) -> None:
    """Write a document with hashes that are right, as whoever means harm would."""
    for name, entry in document["files"].items() if isinstance(document.get("files"), dict) else ():
        if isinstance(entry, dict) and (folder / name).is_file() and ".." not in name:
            content = (folder / name).read_bytes()
            entry |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    document.pop("checksum", None)
    plain = json.dumps(document, sort_keys=True).encode()
    document["checksum"] = hashlib.sha256(plain).hexdigest()
    (folder / "explainer.json").write_text(json.dumps(document))


def changed_document(folder, change) -> None:
    document = document_of(folder)
    change(document)
    seal(folder, document)


def changed_tensors(folder, file, change) -> None:
    tensors = load_file(folder / file)
    change(tensors)
    save_file(tensors, folder / file)
    seal(folder, document_of(folder))


@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_explainer_gives_the_same_answers_to_the_bit(name, saved, fitted, table):
    before, after = fitted(name), loaded(name, saved, fitted)
    assert document_of(saved(name))["model"]["stored"] == STORED[name]
    assert repr(after) == repr(before)
    rows, target = table[0].iloc[:2], target_of(name, table)
    assert_same(before.explain(rows, target), after.explain(rows, target))
    assert_series_equal(after.predict(table[0]), before.predict(table[0]))


@pytest.mark.parametrize("name", ["network", "histogram", "forest", "ridge"])
def test_a_loaded_explainer_is_the_fitted_one_in_every_tensor(name, saved, fitted):
    before, after = fitted(name), loaded(name, saved, fitted)
    for one, other in [
        (before.finder_.plausibility.state(), after.finder_.plausibility.state()),
        (before.judges_.state(), after.judges_.state()),
        (before.finder_.rows_state(), after.finder_.rows_state()),
    ]:
        assert one.keys() == other.keys()
        assert all(torch.equal(one[key], other[key]) for key in one)
    x = torch.rand(50, before.encoder_.layout.width, dtype=torch.float64)
    x = before.encoder_.layout.with_codes(x, before.encoder_.layout.codes(x))
    wanted = before.finder_.plain(torch.arange(50) % 2)
    assert torch.equal(before.finder_.validity(x, wanted), after.finder_.validity(x, wanted))
    assert torch.equal(before.finder_.weights, after.finder_.weights)
    assert before.finder_.rules.constraints == after.finder_.rules.constraints
    assert before.encoder_.schema == after.encoder_.schema


@pytest.mark.parametrize("name", ["network", "lightgbm", "boosted numbers"])
def test_an_explainer_that_was_loaded_is_saved_as_it_was(name, saved, fitted, tmp_path):
    loaded(name, saved, fitted).save(tmp_path / "again")
    for path in saved(name).iterdir():
        if path.suffix == ".safetensors":
            assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes(), path.name
    first, second = document_of(saved(name)), document_of(tmp_path / "again")
    for name in first.keys() - {"files", "checksum"}:  # an archive holds the time of day
        assert first[name] == second[name]


@pytest.mark.slow
def test_a_new_process_gives_the_same_answers_to_the_bit(table, tmp_path, monkeypatch):
    monkeypatch.setattr(verified, "ITERATIONS", LONG_SEARCH[0])
    monkeypatch.setattr(fitting, "VerifiedSearch", LONG_SEARCH[1])
    names, rows = ["network", "logistic", "histogram", "xgboost"], table[0].iloc[:3]
    explainers = {}
    for name in names:
        y = outcomes(name, table)
        model = MODELS[name](table[0], y)
        explainers[name] = Explainer(model, constraints=RULES, **SETTINGS).fit(table[0], y)
        explainers[name].save(tmp_path / name)
    rows.to_json(tmp_path / "rows.json", orient="split")
    code = """
import json, sys
import pandas as pd
import torch
from plausiflow import Explainer

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
rows = pd.read_json(sys.argv[1], orient="split", precise_float=True).astype(json.loads(sys.argv[2]))
for folder in sys.argv[3:]:
    result = Explainer.load(folder).explain(rows)
    figures = result.figures.astype(float).map(float.hex)
    print(json.dumps([table.values.tolist() for table in (
        result.answers.map(repr), figures, result.verdicts.map(repr))]))
"""
    dtypes = json.dumps({column: str(dtype) for column, dtype in rows.dtypes.items() if dtype != "category"})
    arguments = [str(tmp_path / "rows.json"), dtypes, *(str(tmp_path / name) for name in names)]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    for name, line in zip(names, done.stdout.splitlines(), strict=True):
        answers, figures, verdicts = json.loads(line)
        own = explainers[name].explain(rows)
        assert own.answers.map(repr).to_numpy().tolist() == answers
        assert own.figures.astype(float).map(float.hex).to_numpy().tolist() == figures
        assert own.verdicts.map(repr).to_numpy().tolist() == verdicts


@pytest.mark.parametrize("name", ["network", "logistic", "histogram", "xgboost", "function"])
def test_another_model_is_refused(name, saved, table):
    x, y = table[0], outcomes(name, table)
    turned = y.sample(frac=1, random_state=1).to_numpy()
    other = {
        "network": lambda: LinearClassifier.from_weights(torch.ones(2, 13), torch.zeros(2)),
        "function": lambda: lambda frame: 1 - score(frame),
    }.get(name, lambda: MODELS[name](x, turned))()
    with pytest.raises(ModelError, match=r"must be the one that was explained: for \d+ of 64 synthetic rows"):
        Explainer.load(saved(name), model=other)


def test_a_model_of_another_kind_is_refused(saved):
    with pytest.raises(InvalidInputError, match=r"must be the MLPClassifier .* got a str"):
        Explainer.load(saved("network"), model="a model")
    with pytest.raises(InvalidInputError, match=r"asked by `predict_proba`; got a Ridge, which cannot"):
        Explainer.load(saved("histogram"), model=Ridge())
    with pytest.raises(InvalidInputError, match=r"must be the Pipeline .* got a Ridge: "):
        Explainer.load(saved("logistic"), model=Ridge())
    with pytest.raises(NotFittedError):
        Explainer.load(saved("network"), model=MLPClassifier())


def test_a_model_that_is_not_stored_must_be_given(saved):
    with pytest.raises(InvalidInputError, match=r"a function, is not stored .*load\(folder, model=model\)"):
        Explainer.load(saved("function"))


def test_a_torch_module_is_given_again(table, tmp_path):
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
    about = document_of(tmp_path / "own")["model"]
    assert about["stored"] is None
    assert "types that are not trusted" in about["why"]
    assert "score_of_rows" in about["why"]
    assert not (tmp_path / "own" / "model.skops").exists()
    Explainer.load(tmp_path / "own", model=model)


def score_of_rows(rows):
    return rows


@pytest.mark.parametrize("labels", ["model", "bayes"])
def test_an_explainer_without_labels_comes_back(labels, table, tmp_path):
    x, y = table
    model = MODELS["histogram"](x, y) if labels == "bayes" else MODELS["logistic"](x, y)
    explainer = Explainer(model, labels=labels, **SETTINGS).fit(x)
    explainer.save(tmp_path / "saved")
    after = Explainer.load(tmp_path / "saved")
    assert_same(explainer.explain(x.iloc[:1]), after.explain(x.iloc[:1]))


def test_settings_and_odd_columns_come_back(table, tmp_path):
    """Missing cells written as None, an identifier, a constant, booleans, other settings."""
    x, y = table[0].copy(), table[1]
    x["job"] = x["job"].astype(object).where(np.arange(len(x)) % 7 > 0, None)
    x["income"] = x["income"].astype(float).where(np.arange(len(x)) % 11 > 0)
    x["number"] = [f"A{i}" for i in range(len(x))]
    x["country"], x["owner"] = "PL", np.arange(len(x)) % 2 == 0
    steps = make_column_transformer((OneHotEncoder(), ["job", "owner"]), (StandardScaler(), ["age"]))
    model = make_pipeline(steps, LogisticRegression()).fit(x, y)
    orders = {"education": sorted(x["education"].unique())}
    settings = {"weights": {"age": 2.0}, "sparsity": None, "margin": 0.05, "orders": orders, **SETTINGS}
    kinds = {"number": "identifier"}
    explainer = Explainer(model, kinds=kinds, **settings).fit(x, y)
    explainer.save(tmp_path / "saved")
    after = Explainer.load(tmp_path / "saved")
    for name, value in settings.items():
        assert getattr(after, name) == value
    assert after.model_.says == "Pipeline, converted exactly"
    rows = x.iloc[[0, 7, 11]]
    assert_same(explainer.explain(rows), after.explain(rows))


def test_metrics_need_the_training_rows(fitted, saved, table, tmp_path):
    rows = table[0].iloc[:2]
    explainer = fitted("logistic")
    explainer.save(tmp_path / "all", training_rows=True)
    whole = Explainer.load(tmp_path / "all").explain(rows).metrics()
    assert_series_equal(whole, explainer.explain(rows).metrics(), check_exact=True)
    few = Explainer.load(saved("logistic")).explain(rows).metrics()
    assert set(few.index) < set(whole.index)
    assert not (saved("logistic") / "training.safetensors").exists()


def test_probes_are_drawn_from_the_schema_alone(saved, fitted, table):
    probes = load_file(saved("network") / "probes.safetensors")["x"]
    encoder = fitted("network").encoder_
    x = encoder.encode(table[0]).x
    assert not (probes[:, None] == x[None]).all(dim=2).any()
    decoded = encoder.decode(probes)
    for name in NUMBERS:
        assert decoded[name].between(table[0][name].min(), table[0][name].max()).all()
    for name in LEVELS:
        assert set(decoded[name]) <= set(table[0][name])


def test_the_document_says_what_was_saved(saved, fitted):
    document, ensemble = document_of(saved("network")), fitted("network").finder_.plausibility
    assert document["kind"] == "plausiflow explainer"
    assert document["format"] == 1
    assert document["versions"]["torch"].startswith(torch.__version__.split("+")[0])
    assert document["rules"] == [rule.to_dict() for rule in RULES]
    assert document["settings"]["plausibility"] == 0.1
    assert document["thresholds"] == ensemble.thresholds_.tolist()
    assert document["margins"] == ensemble.margin_.tolist()
    assert document["training"]["rows"] == 300
    assert len(document["training"]["fingerprint"]) == 64


def test_the_fingerprint_knows_rows_and_labels(fitted, table):
    x, y = table
    changed = x.copy()
    changed.loc[changed.index[3], "age"] += 1
    marks = {
        Explainer(LinearClassifier(training=Training(epochs=1)), confidence=None, judges=0)
        .fit(rows, labels)
        .origin_.fingerprint
        for rows, labels in ((x, y), (changed, y), (x, y.to_numpy()[::-1].copy()))
    }
    assert len(marks) == 3
    assert fitted("network").origin_.fingerprint in marks


def test_a_directory_that_is_something_else_is_not_overwritten(fitted, tmp_path):
    explainer, folder = fitted("network"), tmp_path / "mine"
    folder.mkdir()
    (folder / "letter.txt").write_text("dear")
    with pytest.raises(InvalidInputError, match=r"holds letter\.txt, which would be lost"):
        explainer.save(folder)
    with pytest.raises(InvalidInputError, match="is a file"):
        explainer.save(folder / "letter.txt")
    assert (folder / "letter.txt").read_text() == "dear"
    (folder / "letter.txt").unlink()
    explainer.save(folder)
    explainer.save(folder)
    (folder / "letter.txt").write_text("dear")
    with pytest.raises(InvalidInputError, match=r"holds letter\.txt"):
        explainer.save(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_save_that_fails_keeps_what_was_there(fitted, tmp_path, monkeypatch):
    explainer, folder = fitted("network"), tmp_path / "mine"
    explainer.save(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setattr(files.os, "fsync", lambda number: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        explainer.save(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_an_explainer_that_is_not_fitted_is_not_saved(tmp_path):
    with pytest.raises(NotFittedError, match="has not been fitted"):
        Explainer(LinearClassifier()).save(tmp_path / "none")
    with pytest.raises(ArtefactError, match=r"is none\. Save one first"):
        Explainer.load(tmp_path / "none")


DOCUMENTS = {
    "a newer version": (lambda d: d.update(format=99), r"has format 99, by plausiflow .*reads format 1"),
    "no version": (lambda d: d.pop("format"), "checksum"),
    "another kind": (lambda d: d.update(kind="letter"), "is not that of one"),
    "a path upwards": (lambda d: d["files"].update({"../x.safetensors": {"bytes": 1}}), "`files` must name"),
    "a whole path": (lambda d: d["files"].update({"/etc/passwd": {"bytes": 1}}), "`files` must name"),
    "wide layers": (lambda d: d["densities"]["base"].update(hidden=[1 << 20] * 2), "cannot be"),
    "many layers": (lambda d: d["densities"]["base"].update(transforms=60_000), "cannot be"),
    "many members": (lambda d: d["densities"].update(members=10**9), "cannot be"),
    "a wide network": (lambda d: d["model"]["settings"].update(hidden=[10**9]), "cannot be"),
    "an unknown class": (lambda d: d["densities"].update(kind="os.system"), "its parts do not fit"),
    "an unknown setting": (lambda d: d["settings"].update(debug=True), "its parts do not fit"),
    "a wrong setting": (lambda d: d["settings"].update(margin=7), r"`margin` must be in \[0, 0.5\)"),
    "a rule of nothing": (lambda d: d["rules"].append({"rule": "Increasing", "feature": ""}), "constraints"),
    "a range upside down": (lambda d: d["schema"]["features"][0].update(minimum=1e9), "this is no feature"),
    "a feature twice": (lambda d: d["schema"]["features"].append(d["schema"]["features"][0]), "one name"),
    "no schema": (lambda d: d.pop("schema"), "its parts do not fit"),
    "fewer columns": (lambda d: d["schema"]["features"].pop(), "its parts do not fit|must"),
    "other thresholds": (lambda d: d["densities"].update(aggregation="min"), "scores of synthetic rows"),
}  # fmt: skip


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_hostile_document_is_refused(name, copied):
    folder = copied()
    change, message = DOCUMENTS[name]
    changed_document(folder, change)
    with pytest.raises(PlausiflowError, match=message):
        Explainer.load(folder)


TENSORS = {
    "another dtype": ("bank", lambda t: t.update({"bank.0": t["bank.0"].float()}), "finite doubles"),
    "another width": ("bank", lambda t: t.update({"bank.1": t["bank.1"][:, 1:].contiguous()}), "width"),
    "not a number": ("bank", lambda t: t["bank.1"].fill_(torch.nan), "finite doubles"),
    "no rows of a class": ("bank", lambda t: t.pop("wider.1"), "its parts do not fit"),
    "few thresholds": ("densities", lambda t: t.update(thresholds=t["thresholds"][:1].clone()), "thresholds"),
    "whole margins": ("densities", lambda t: t.update(margin=t["margin"].long()), "margins must be numbers"),
    "other weights": ("densities", lambda t: t["0.numbers.flow.mean"].add_(1), "scores of synthetic rows"),
    "weights that are whole": (
        "densities",
        lambda t: t.update({"0.numbers.flow.mean": t["0.numbers.flow.mean"].long()}),
        "do not fit",
    ),
    "a huge shape": ("densities", lambda t: t.update({"0.shape": torch.tensor([1 << 40, 2])}), "cannot be"),
    "no member": ("densities", lambda t: [t.pop(k) for k in list(t) if k.startswith("1.")], "members"),
    "another judge": ("judges", lambda t: t["log_delta"].add_(1e6), "judgements of synthetic rows"),
    "other answers": ("probes", lambda t: t["answers"].mul_(0.5), "The stored model has changed"),
    "few probes": ("probes", lambda t: t.update(x=t["x"][:3].clone()), "probes must be doubles"),
}  # fmt: skip


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_that_do_not_fit_are_refused(name, copied):
    folder = copied()
    file, change, message = TENSORS[name]
    changed_tensors(folder, f"{file}.safetensors", change)
    with pytest.raises(PlausiflowError, match=message):
        Explainer.load(folder)


@pytest.mark.parametrize("node", ["feature", "left", "root", "levels", "threshold"])
def test_trees_that_lead_nowhere_are_refused(node, copied, fitted):
    folder = copied("function")
    value = 0 if node == "threshold" else 10**6
    changed_tensors(folder, "likeness.safetensors", lambda t: t[node].fill_(value))
    with pytest.raises(PlausiflowError, match=r"not those of trees|likeness of synthetic rows"):
        Explainer.load(folder, model=score)


def test_links_and_folders_are_not_read(copied, saved):
    folder = copied()
    for make in (
        lambda path: path.symlink_to(saved("network") / path.name),
        lambda path: path.mkdir(),
        lambda path: os.mkfifo(path),
    ):
        for name in ("bank.safetensors", "explainer.json"):
            path = folder / name
            content = path.read_bytes()
            path.unlink()
            make(path)
            with pytest.raises(ArtefactError, match=f"{name} (cannot be opened|is no plain file)"):
                Explainer.load(folder)
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
            path.write_bytes(content)
    Explainer.load(folder)


def test_sizes_are_checked_before_anything_is_read(copied, monkeypatch):
    folder = copied()
    path = folder / "bank.safetensors"
    content = path.read_bytes()
    path.write_bytes((len(content) * 2).to_bytes(8, "little") + content[8:])
    seal(folder, document_of(folder))
    with pytest.raises(ArtefactError, match=r"the header of bank\.safetensors is too long"):
        Explainer.load(folder)
    with path.open("r+b") as file:
        file.truncate(1 << 40)  # a hole, which takes no space
    with pytest.raises(ArtefactError, match=r"bank\.safetensors has 1099511627776 bytes, more than"):
        Explainer.load(folder)
    with (folder / "explainer.json").open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(ArtefactError, match=r"explainer\.json has 1099511627776 bytes, more than"):
        Explainer.load(folder)


@pytest.mark.parametrize(
    "text",
    ["[" * 200_000, '{"a":' * 200_000, '{"a": NaN}', '{"a": 1e999}', '{"a": 1, "a": 2}', "9" * 10_000, ""],
    ids=["deep lists", "deep objects", "NaN", "infinity", "repeated", "long", "empty"],
)
def test_json_that_is_a_trap_is_refused(text, copied):
    folder = copied()
    (folder / "explainer.json").write_text(text)
    with pytest.raises(ArtefactError, match=r"explainer\.json"):
        Explainer.load(folder)


def test_a_model_file_makes_nothing_that_is_not_trusted(copied, tmp_path, monkeypatch):
    folder = copied("logistic")
    marker = tmp_path / "executed"
    bad = make_pipeline(FunctionTransformer(os.system, kw_args={"command": f"touch {marker}"}), Ridge())
    (folder / "model.skops").write_bytes(skops_io.dumps(bad))
    seal(folder, document_of(folder))
    with pytest.raises(InvalidInputError, match=r"types that are not trusted: posix\.system"):
        Explainer.load(folder)
    assert not marker.exists()
    monkeypatch.setattr(estimators, "_MOST_BYTES", 1000)
    with pytest.raises(InvalidInputError, match="unpacks to more than 1000 bytes"):
        Explainer.load(folder)


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
    ("name", "field"),
    [("forest", "left_child"), ("forest", "feature"), ("histogram", "right"), ("histogram", "feature_idx")],
)
def test_a_tree_that_leads_out_of_memory_is_not_followed(name, field, copied):
    folder = copied(name)
    with zipfile.ZipFile(folder / "model.skops") as archive:
        parts = {entry: archive.read(entry) for entry in archive.namelist()}
    for entry, content in parts.items():
        if entry.endswith(".npy"):
            array = np.load(io.BytesIO(content))
            if field in (array.dtype.names or ()):
                array[field][0] = 10**6
                file = io.BytesIO()
                np.save(file, array)
                parts[entry] = file.getvalue()
    with zipfile.ZipFile(folder / "model.skops", "w") as archive:
        for entry, content in parts.items():
            archive.writestr(entry, content)
    seal(folder, document_of(folder))
    with pytest.raises(InvalidInputError, match="nodes that lead nowhere"):
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
        with pytest.raises(InvalidInputError, match="the model file does not fit"):
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
        with pytest.raises(InvalidInputError, match=r"LightGBM cannot read|the model file does not fit"):
            Explainer.load(folder)


def test_a_booster_that_is_not_one_is_refused(copied):
    folder = copied("xgboost")
    (folder / "model.json").write_text('{"learner": {}}')
    seal(folder, document_of(folder))
    with pytest.raises(PlausiflowError, match="XGBoost cannot read"):
        Explainer.load(folder)
    changed_document(folder, lambda d: d["model"]["estimator"].update(estimator="DMatrix"))
    with pytest.raises(PlausiflowError, match="must be of XGBClassifier or XGBRegressor"):
        Explainer.load(folder)
    changed_document(folder, lambda d: d["model"].update(method="save_model"))
    with pytest.raises(PlausiflowError):
        Explainer.load(folder)


def mutated(folder: Path, draw: random.Random) -> str:
    """Change one thing of a directory; returns what."""
    how = draw.choice(
        ["flip", "cut", "delete file", "field", "sealed field", "sealed field", "sealed tensor"]
    )
    path = draw.choice(sorted(folder.iterdir()))
    if how == "flip":
        content = bytearray(path.read_bytes())
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        path.write_bytes(content)
    elif how == "cut":
        path.write_bytes(path.read_bytes()[: draw.randrange(path.stat().st_size)])
    elif how == "delete file":
        path.unlink()
    elif how == "sealed tensor":
        path = draw.choice(sorted(folder.glob("*.safetensors")))
        tensors = load_file(path)
        key = draw.choice(sorted(tensors))
        change = draw.choice([None, *CHANGES])
        tensors.pop(key) if change is None else tensors.update({key: change(tensors[key])})
        save_file(tensors, path)
        seal(folder, document_of(folder))
        return f"{how}: {path.name}, {key}"
    else:
        document = document_of(folder)
        place = damage(document, draw)
        if how == "sealed field":
            seal(folder, document)
        else:
            (folder / "explainer.json").write_text(json.dumps(document))
        return f"{how}: {place}"
    return f"{how}: {path.name}"


CHANGES = [
    lambda t: t.flatten(),
    lambda t: t[:0].contiguous(),
    lambda t: t.bool(),
    lambda t: t.double() * torch.nan,
    lambda t: torch.zeros_like(t),
    lambda t: torch.cat([t, t]) if t.ndim else t,
    lambda t: t[None].clone(),
]
VALUES = [None, True, -1, 10**30, 1e300, "", "x" * 100, [], [[]], {}, {"kind": "KDE"}, ["a", 1], 0.5]


def damage(document, draw):
    """Delete or replace one value anywhere in a document."""
    at, place = document, []
    while True:
        key = draw.choice(list(at) if isinstance(at, dict) else range(len(at)))
        place.append(key)
        if not isinstance(at[key], dict | list) or not at[key] or draw.random() < 0.3:
            break
        at = at[key]
    if draw.random() < 0.3:
        del at[key]
    else:
        at[key] = draw.choice(VALUES)
    return place


@pytest.mark.filterwarnings("ignore")  # numbers that are no numbers may be computed with
def test_no_mutation_raises_anything_but_our_errors(copied):
    folder = copied()
    original = {path.name: path.read_bytes() for path in folder.iterdir()}
    draw, refused = random.Random(0), 0
    for number in range(MUTATIONS):
        what = mutated(folder, draw)
        try:
            Explainer.load(folder)
        except PlausiflowError:
            refused += 1
        except Exception as error:
            pytest.fail(f"mutation {number}, {what}: {type(error).__name__}: {error}")
        for path in folder.iterdir():
            path.unlink()
        for name, content in original.items():
            (folder / name).write_bytes(content)
    assert refused > 0.8 * MUTATIONS


def test_settings_may_be_numbers_of_numpy(table, tmp_path):
    x, y = table[0][NUMBERS], table[1]
    settings = {"plausibility": np.float32(0.25), "margin": np.float64(0.03), "sparsity": np.float64(0.2)}
    model = LinearClassifier(training=Training(epochs=1))
    explainer = Explainer(model, confidence=None, judges=np.int64(1), **settings).fit(x, y)
    explainer.save(tmp_path / "saved")
    after = Explainer.load(tmp_path / "saved")
    assert {name: getattr(after, name) for name in settings} == settings
    assert after.judges_.count == 1
