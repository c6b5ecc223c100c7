"""Directories that were damaged, by accident or on purpose, raise clear errors and no others."""

import json
import os
import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from plausiflow import Explainer
from plausiflow.errors import PlausiflowError
from plausiflow.persistence import ArtefactError
from saving import changed_document, changed_tensors, document_of, score, seal

for library in ("lightgbm", "xgboost", "skops.io"):
    pytest.importorskip(library)

DOCUMENTS = {
    "a newer version": (lambda d: d.update(format=99), r"format 99 by plausiflow .* reads format 2"),
    "no version": (lambda d: d.pop("format"), "checksum"),
    "another kind": (lambda d: d.update(kind="letter"), "is something else"),
    "a path upwards": (lambda d: d["files"].update({"../x.safetensors": {"bytes": 1}}), "`files` may only"),
    "a whole path": (lambda d: d["files"].update({"/etc/passwd": {"bytes": 1}}), "`files` may only name"),
    "wide layers": (lambda d: d["plausibility"]["base"].update(hidden=[1 << 20] * 2), "too (large|many)"),
    "many layers": (lambda d: d["plausibility"]["base"].update(transforms=60_000), "too many"),
    "many members": (lambda d: d["plausibility"].update(members=10**9), "too large"),
    "a wide network": (lambda d: d["model"]["settings"].update(hidden=[10**9]), "too large"),
    "an unknown class": (lambda d: d["plausibility"].update(kind="os.system"), "its parts do not fit"),
    "an unknown setting": (lambda d: d["settings"].update(debug=True), "its parts do not fit"),
    "a wrong setting": (lambda d: d["settings"].update(margin=7), r"`margin` must be in \[0, 0.5\)"),
    "no feature": (lambda d: d["rules"].append({"rule": "Increasing", "feature": ""}), "constraints"),
    "a range upside down": (lambda d: d["schema"]["features"][0].update(minimum=1e9), "not a valid feature"),
    "a feature twice": (lambda d: d["schema"]["features"].append(d["schema"]["features"][0]), "same name"),
    "notes that are no texts": (lambda d: d["schema"].update(notes=[1]), "`notes` of the schema must be"),
    "no schema": (lambda d: d.pop("schema"), "its parts do not fit"),
    "fewer columns": (lambda d: d["schema"]["features"].pop(), "its parts do not fit|must"),
    "other thresholds": (lambda d: d["plausibility"].update(aggregation="min"), "scores of synthetic rows"),
}  # fmt: skip


def test_an_older_format_says_which_release_reads_it_and_what_to_do(copied):
    folder = copied()
    changed_document(folder, lambda d: d.update(format=1, versions={"plausiflow": "0.9"}))
    with pytest.raises(ArtefactError) as caught:
        Explainer.load(folder)
    for part in (
        str(folder),
        "format 1 by plausiflow 0.9",
        "reads format 2",
        "Fit the explainer again and save",
    ):
        assert part in str(caught.value)


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
    "few": ("plausibility", lambda t: t.update(thresholds=t["thresholds"][:1].clone()), "the thresholds"),
    "whole margins": ("plausibility", lambda t: t.update(margin=t["margin"].long()), "margins must be"),
    "other weights": ("plausibility", lambda t: t["0.numbers.flow.mean"].add_(1), "scores of synthetic rows"),
    "weights that are whole": (
        "plausibility",
        lambda t: t.update({"0.numbers.flow.mean": t["0.numbers.flow.mean"].long()}),
        "do not fit",
    ),
    "a huge shape": ("plausibility", lambda t: t["0.shape"].fill_(1 << 40), "too large"),
    "no member": ("plausibility", lambda t: [t.pop(k) for k in list(t) if k.startswith("1.")], "members"),
    "another judge": ("judges", lambda t: t["log_delta"].add_(1e6), "judgements of synthetic rows"),
    "other outputs": ("synthetic_rows", lambda t: t["outputs"].mul_(0.5), "The stored model has changed"),
    "few rows": ("synthetic_rows", lambda t: t.update(x=t["x"][:3].clone()), "rows must be doubles"),
}  # fmt: skip


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_that_do_not_fit_are_refused(name, copied):
    folder = copied()
    file, change, message = TENSORS[name]
    changed_tensors(folder, f"{file}.safetensors", change)
    with pytest.raises(PlausiflowError, match=message):
        Explainer.load(folder)


WEIGHTS = {
    "judges": ("judges", "0.numbers.flow.mean", "judgements"),
    "levels of judges": ("judges", "0.levels.net.first.weight", "judgements"),
    "thresholds of judges": ("judges", "log_delta", "judgements"),
    "densities": ("plausibility", "1.numbers.flow.mean", "scores"),
    "network": ("network", "0.weight", "outputs"),
    "deviations": ("bank", "deviations", ""),
}
"""Weights, and the outputs for synthetic rows that they change."""


@pytest.mark.filterwarnings("ignore")  # NaN may be computed with
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_that_are_not_finite_are_refused(name, value, copied):
    folder = copied()
    file, key, output = WEIGHTS[name]
    if key == "log_delta":
        value = torch.nan
    changed_tensors(folder, f"{file}.safetensors", lambda t: t[key].fill_(value))
    if output:  # as an attacker would, write what the changed weights give
        undefined = False if output == "judgements" else torch.nan
        changed_tensors(folder, "synthetic_rows.safetensors", lambda t: t[output].fill_(undefined))
    with pytest.raises(ArtefactError, match=rf"of the weights `{key}` of the {file} are NaN or infinite"):
        Explainer.load(folder)


@pytest.mark.parametrize("node", ["feature", "left", "root", "levels", "threshold"])
def test_trees_that_lead_nowhere_are_refused(node, copied, fitted):
    folder = copied("function")
    value = 0 if node == "threshold" else 10**6
    changed_tensors(folder, "surrogate.safetensors", lambda t: t[node].fill_(value))
    with pytest.raises(PlausiflowError, match=r"not those of trees|surrogate outputs of synthetic rows"):
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
            with pytest.raises(ArtefactError, match=f"{name} (cannot be opened|is not a regular file)"):
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


MUTATIONS = 300


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


@pytest.mark.slow
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
