"""Saved explainers that were made to exhaust memory, and the memory that a function takes."""

import hashlib
import io
import json
import os
import re
import struct
import zipfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from scipy.sparse import spmatrix

from plausiflow.densities import ConditionalFlow, Thresholded
from plausiflow.persistence import get_settings
from plausiflow.tables import Encoder, Schema
from processes import forked
from saving import changed_document, document_of, seal

ZEROS = 256 << 20


def peak_of(function) -> int:
    """Call a function in another process; return by how much it raises the process's peak memory.

    The function must return without an error.
    """
    read, write = os.pipe()

    def measure():
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts at what is in use
        before = used_memory("VmRSS")
        try:
            function()
            result = used_memory("VmHWM") - before
        except BaseException as error:
            result = f"{type(error).__name__}: {error}"
        os.write(write, json.dumps(result).encode())

    pid = forked(measure)
    os.close(write)
    with open(read) as file:
        result = json.loads(file.read() or '"the process was killed"')
    os.waitpid(pid, 0)
    assert isinstance(result, int), result
    return result


def used_memory(name: str) -> int:
    """Return an entry of this process's status in bytes, such as ``VmRSS``."""
    return 1024 * int(re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])


def size_of(folder: Path) -> int:
    """Return how much space the files of a directory take; holes take none."""
    return sum(path.stat().st_blocks * 512 for path in folder.iterdir())


def npy(count: int) -> bytes:
    """Return an array of zeros as a file."""
    file = io.BytesIO()
    np.save(file, np.zeros(count, dtype=np.uint8))
    return file.getvalue()


def add_to_model(
    folder: Path, entries: dict[str, bytes], compression=zipfile.ZIP_STORED, change=None
) -> None:
    """Add entries to the archive of a stored scikit-learn model, and a list of nodes that use them."""
    with zipfile.ZipFile(folder / "model.skops") as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    schema = json.loads(parts["schema.json"])
    if change is not None:
        change(schema)
    with zipfile.ZipFile(folder / "model.skops", "w", compression, compresslevel=1) as archive:
        for name, content in (parts | entries | {"schema.json": json.dumps(schema).encode()}).items():
            archive.writestr(name, content)
    seal(folder, document_of(folder))


def node(loader: str, kind: str, **content) -> dict:
    """Return an object of skops."""
    module, _, name = kind.rpartition(".")
    return {"__class__": name, "__module__": module, "__loader__": loader, **content}


def array_node(file: str, number: int) -> dict:
    return node("NdArrayNode", "numpy.ndarray", type="numpy", file=file, __id__=number)


def packed_array(folder):
    """An archive with an array of zeros, compressed to a thousandth."""
    use = lambda schema: schema["content"]["content"].update(extra=array_node("x.npy", -1))  # noqa: E731
    add_to_model(folder, {"x.npy": npy(ZEROS)}, zipfile.ZIP_DEFLATED, use)


def packed_sparse_matrix(folder):
    """An archive that contains another one, with arrays of zeros."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in ("data", "indices", "indptr"):
            archive.writestr(f"{name}.npy", npy(ZEROS // 2))
        archive.writestr("format.npy", _npy_of(np.array(b"csr")))
        archive.writestr("shape.npy", _npy_of(np.array([1, 1])))
    trusted = f"{spmatrix.__module__}.spmatrix"
    sparse = node("SparseMatrixNode", trusted, type="scipy", file="x.npz", __id__=-1)
    add_to_model(
        folder, {"x.npz": file.getvalue()}, change=lambda s: s["content"]["content"].update(extra=sparse)
    )


def _npy_of(array) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def array_used_often(folder):
    """An archive whose objects all read the same array."""
    nodes = [array_node("x.npy", -1 - number) for number in range(200)]
    extra = node("ListNode", "builtins.list", content=nodes, __id__=-999)
    content = {"x.npy": npy(4 << 20)}
    add_to_model(folder, content, change=lambda s: s["content"]["content"].update(extra=extra))


def many_objects(folder):
    """An archive of very many small objects."""
    small = node("JsonNode", "builtins.int", content="0")
    extra = node("ListNode", "builtins.list", content=[small] * 600_000, __id__=-999)
    add_to_model(folder, {}, change=lambda s: s["content"]["content"].update(extra=extra))


def many_lists(folder):
    """A document of very many empty lists, which take twenty times their text."""
    changed_document(folder, lambda d: d.update(extra=[[]] * 7_000_000))


def claimed_tensors(folder):
    """A header that claims more than the file holds."""
    header = {"x": {"dtype": "F64", "shape": [1 << 36], "data_offsets": [0, 1 << 39]}}
    text = json.dumps(header).encode()
    (folder / "bank.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(64))
    seal(folder, document_of(folder))


def sparse_file(folder):
    """A file that is almost only a hole, with a right header and a wrong hash."""
    size = 1 << 30
    header = {"x": {"dtype": "U8", "shape": [size - 1024], "data_offsets": [0, size - 1024]}}
    text = json.dumps(header).encode().ljust(1016)
    path, document = folder / "bank.safetensors", document_of(folder)
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    os.truncate(path, size)
    document["files"]["bank.safetensors"]["bytes"] = size
    document.pop("checksum")
    document["checksum"] = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    (folder / "explainer.json").write_text(json.dumps(document))


def sparse_model(folder):
    """A model that is almost only a hole; its hash is right."""
    os.truncate(folder / "model.json", 512 << 20)
    seal(folder, document_of(folder))


def wide_network(folder):
    """Settings of a network that would take gigabytes, and weights that hide it."""
    tensors = {"0.weight": torch.zeros(1, 1 << 20), "3.weight": torch.zeros(1 << 10, 1)}
    save_file(tensors, folder / "network.safetensors")
    changed_document(folder, lambda d: d["model"]["settings"].update(hidden=[1 << 10]))


def wide_density(folder):
    """A density of more columns than the table has, whose networks would take gigabytes."""
    density = Thresholded(density=ConditionalFlow(hidden=(2000,), transforms=5))
    tensors = {"density.shape": torch.tensor([10_000, 2]), "density.flow.mean": torch.zeros(10_000)}
    save_file({"log_delta": torch.zeros(2), **tensors}, folder / "plausibility.safetensors")
    changed_document(folder, lambda d: d.update(plausibility=get_settings(density)))


def many_levels(folder):
    """A table of so many levels that a matrix from levels to levels takes gigabytes."""
    document, path = document_of(folder), folder / "synthetic_rows.safetensors"
    feature = next(f for f in document["schema"]["features"] if f["kind"] == "category")
    encoder = Encoder(Schema.from_dict(document["schema"]), document["missing"])
    end, zeros = encoder.layout.block(feature["name"]).levels.stop, torch.zeros(64, 16_000).double()
    feature["levels"] += [f"level {number}" for number in range(zeros.shape[1])]
    tensors = load_file(path)
    tensors["x"] = torch.cat([tensors["x"][:, :end], zeros, tensors["x"][:, end:]], dim=1)
    save_file(tensors, path)
    trees = load_file(folder / "surrogate.safetensors")
    trees["form"][0] += zeros.shape[1]
    save_file(trees, folder / "surrogate.safetensors")
    seal(folder, document)


def booster_of_many_numbers(folder):
    """A JSON file of numbers that take ten times their text as Python objects."""
    model = json.loads((folder / "model.json").read_text())
    tree = model["learner"]["gradient_booster"]["model"]["trees"][0]
    for name in ("base_weights", "loss_changes", "sum_hessian", "split_conditions"):
        tree[name] = [999] * 3_000_000
    (folder / "model.json").write_text(json.dumps(model, separators=(",", ":")))
    seal(folder, document_of(folder))


def booster_of_many_arrays(folder):
    """A JSON file of empty arrays, which take forty times their text."""
    text = (folder / "model.json").read_text().removesuffix("}")
    (folder / "model.json").write_text(text + ', "x": [' + "[]," * 8_000_000 + "[]]}")
    seal(folder, document_of(folder))


def booster_of_many_lines(folder):
    """A LightGBM file of short lines, which take twenty times their text."""
    text = (folder / "model.txt").read_text()
    lines = "".join(f"k{number}=\n" for number in range(3_000_000))
    (folder / "model.txt").write_text(text.replace("\nTree=0\n", f"\n{lines}\nTree=0\n"))
    seal(folder, document_of(folder))


def booster_of_many_levels(folder):
    """A booster whose sets of levels take two megabytes each."""
    model = json.loads((folder / "model.json").read_text())
    stump = {"left_children": [1, -1, -1], "right_children": [2, -1, -1], "parents": [2**31 - 1, 0, 0]}
    stump |= {"split_type": [1, 0, 0], "categories_nodes": [0], "categories_segments": [0]}
    stump |= {"categories_sizes": [1], "categories": [(1 << 24) - 1]}
    stump |= {"default_left": [0, 0, 0], "split_indices": [0, 0, 0]}
    for name in ("base_weights", "loss_changes", "split_conditions", "sum_hessian"):
        stump[name] = [0.5, 0.5, 0.5]
    trees = model["learner"]["gradient_booster"]["model"]
    sizes = trees["trees"][0]["tree_param"] | {"num_nodes": "3"}
    trees["trees"] = [{**stump, "id": number, "tree_param": sizes} for number in range(300)]
    trees |= {"tree_info": [0] * 300, "iteration_indptr": list(range(301))}
    trees["gbtree_model_param"]["num_trees"] = "300"
    (folder / "model.json").write_text(json.dumps(model))
    seal(folder, document_of(folder))


def booster_of_one_long_line(folder):
    """A LightGBM file with a line of numbers that take thirty times their text as Python texts."""
    text = (folder / "model.txt").read_text()
    long = "split_gain=" + " ".join(["999"] * 10_000_000)
    text = re.sub(r"split_gain=.*", long, text, count=1)
    trees = re.split(r"^(?=Tree=)", text.partition("end of trees\n")[0], flags=re.MULTILINE)[1:]
    sizes = " ".join(str(len(tree)) for tree in trees)
    (folder / "model.txt").write_text(re.sub(r"tree_sizes=.*", f"tree_sizes={sizes}", text, count=1))
    seal(folder, document_of(folder))


HOSTILE = {
    packed_array: "logistic", packed_sparse_matrix: "logistic", array_used_often: "logistic",
    many_objects: "logistic", many_lists: "network", claimed_tensors: "network",
    sparse_file: "network", sparse_model: "xgboost", wide_network: "network", wide_density: "network",
    many_levels: "forest",    booster_of_many_numbers: "xgboost", booster_of_many_levels: "xgboost",
    booster_of_one_long_line: "lightgbm", booster_of_many_arrays: "xgboost",
    booster_of_many_lines: "lightgbm",
}  # fmt: skip
"""Changes of a saved explainer, and the model of the one that they are made to."""
