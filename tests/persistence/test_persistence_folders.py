"""The document of a saved explainer, and that saving never loses other files."""

import pytest
import torch
from safetensors.torch import load_file

from plausiflow import Explainer, LinearClassifier, Training
from plausiflow.errors import InvalidInputError, NotFittedError
from plausiflow.persistence import ArtefactError, files
from saving import LEVELS, NUMBERS, RULES, document_of

for library in ("lightgbm", "xgboost", "skops.io"):
    pytest.importorskip(library)


def test_synthetic_rows_are_drawn_from_the_schema_alone(saved, fitted, table):
    synthetic = load_file(saved("network") / "synthetic_rows.safetensors")["x"]
    encoder = fitted("network").encoder_
    x = encoder.encode(table[0]).x
    assert not (synthetic[:, None] == x[None]).all(dim=2).any()
    decoded = encoder.decode(synthetic)
    for name in NUMBERS:
        assert decoded[name].between(table[0][name].min(), table[0][name].max()).all()
    for name in LEVELS:
        assert set(decoded[name]) <= set(table[0][name])


def test_the_document_says_what_was_saved(saved, fitted):
    document, ensemble = document_of(saved("network")), fitted("network").engine_.plausibility
    assert document["kind"] == "plausiflow explainer"
    assert document["format"] == 2
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
        .training_summary_.fingerprint
        for rows, labels in ((x, y), (changed, y), (x, y.to_numpy()[::-1].copy()))
    }
    assert len(marks) == 3
    assert fitted("network").training_summary_.fingerprint in marks


def test_a_directory_that_is_something_else_is_not_overwritten(fitted, tmp_path):
    explainer, folder = fitted("network"), tmp_path / "mine"
    folder.mkdir()
    (folder / "letter.txt").write_text("dear")
    with pytest.raises(InvalidInputError, match=r"contains letter\.txt, which would be lost"):
        explainer.save(folder)
    with pytest.raises(InvalidInputError, match="is a file"):
        explainer.save(folder / "letter.txt")
    assert (folder / "letter.txt").read_text() == "dear"
    (folder / "letter.txt").unlink()
    explainer.save(folder)
    explainer.save(folder)
    (folder / "letter.txt").write_text("dear")
    with pytest.raises(InvalidInputError, match=r"contains letter\.txt"):
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
    with pytest.raises(ArtefactError, match=r"is not a directory\. Save one first"):
        Explainer.load(tmp_path / "none")
