"""Stored boosters: whatever their libraries index with is checked, and a crash happens in a child process."""

import json
import os
import re

import numpy as np
import pandas as pd
import pytest
from threadpoolctl import threadpool_limits

from plausiflow import Explainer
from plausiflow.errors import InvalidInputError
from plausiflow.persistence import trial_load, ubjson, xgboost_files
from plausiflow.persistence.estimators import StoredEstimator, restore_estimator, store_estimator
from processes import forked
from saving import document_of, seal

lightgbm = pytest.importorskip("lightgbm")
xgboost = pytest.importorskip("xgboost")


def succeeds(function) -> bool:
    """Return whether a function ends without an error or a crash, in another process."""
    return os.waitstatus_to_exitcode(os.waitpid(forked(function), 0)[1]) == 0


def refuses(folder) -> bool:
    """Return whether loading raises our error, and does not crash or hang."""

    def load():
        threadpool_limits(4)  # an exception in a thread of a library ends the process
        with pytest.raises(InvalidInputError):
            Explainer.load(folder)

    return succeeds(load)


TREE = {
    "negative leaf vector": lambda t: t["tree_param"].update(size_leaf_vector="-1"),
    "long leaf vector": lambda t: t["tree_param"].update(size_leaf_vector="2"),
    "leaf vector with a gap": lambda t: t["tree_param"].update(size_leaf_vector="1_0"),
    "negative nodes": lambda t: t["tree_param"].update(num_nodes="-1"),
    "deleted nodes": lambda t: t["tree_param"].update(num_deleted="1"),
    "other columns": lambda t: t["tree_param"].update(num_feature="99"),
    "far child": lambda t: t["left_children"].__setitem__(0, 10**6),
    "child before its parent": lambda t: t["right_children"].__setitem__(1, 1),
    "lost nodes": lambda t: [t[f"{side}_children"].__setitem__(1, -1) for side in ("left", "right")],
    "parent of a lost node": lambda t: t["parents"].__setitem__(-1, -(10**9)),
    "far column": lambda t: t["split_indices"].__setitem__(0, 10**9),
    "negative column": lambda t: t["split_indices"].__setitem__(0, -5),
    "half a column": lambda t: t["split_indices"].__setitem__(0, 0.5),
    "levels of no split": lambda t: t.update({f"categories_{n}": [5] for n in ("nodes", "sizes")}),
    "split by levels without levels": lambda t: t["split_type"].__setitem__(0, 1),
    "short list": lambda t: t["sum_hessian"].pop(),
    "unknown field": lambda t: t.update(leaf_weights=[1.0]),
    "other number": lambda t: t.update(id=-1),
}  # fmt: skip
LEARNER = {
    "negative classes": lambda d: d["learner_model_param"].update(num_class="-3"),
    "several targets": lambda d: d["learner_model_param"].update(num_target="2"),
    "all columns of the world": lambda d: d["learner_model_param"].update(num_feature="4294967295"),
    "two base scores": lambda d: d["learner_model_param"].update(base_score="[0.5,0.5]"),
    "infinite base score": lambda d: d["learner_model_param"].update(base_score="[1e999]"),
    "dart": lambda d: d["gradient_booster"].update(name="dart"),
    "far output": lambda d: d["gradient_booster"]["model"]["tree_info"].__setitem__(0, 7),
    "rounds upside down": lambda d: d["gradient_booster"]["model"]["iteration_indptr"].reverse(),
    "more trees": lambda d: d["gradient_booster"]["model"]["gbtree_model_param"].update(num_trees="99"),
    "negative parallel trees": lambda d: d["gradient_booster"]["model"]["gbtree_model_param"].update(
        num_parallel_tree="-1"
    ),
    "categories of no column": lambda d: d["gradient_booster"]["model"].update(
        cats={"enc": [], "feature_segments": [0, 9], "sorted_idx": [7] * 9}
    ),
    "offsets of no name": lambda d: d["gradient_booster"]["model"].update(
        cats={"enc": [{"offsets": [0, 10**9], "values": [1]}] * 3, "feature_segments": [0, 1, 2, 3],
              "sorted_idx": [0, 0, 0]}
    ),
}  # fmt: skip


def changed_model(content: bytes, name: str) -> dict:
    document = json.loads(content)
    if name in TREE:
        TREE[name](document["learner"]["gradient_booster"]["model"]["trees"][0])
    else:
        LEARNER[name](document["learner"])
    return document


@pytest.mark.parametrize("name", [*TREE, *LEARNER])
def test_a_booster_of_xgboost_with_an_invalid_number_is_refused(name, copied):
    folder = copied("xgboost")
    model = changed_model((folder / "model.json").read_bytes(), name)
    (folder / "model.json").write_text(json.dumps(model))
    seal(folder, document_of(folder))
    assert refuses(folder)


@pytest.mark.parametrize("name", [*TREE, *LEARNER])
def test_the_binary_form_is_checked_like_the_text(name, saved):
    stored = StoredEstimator(
        file="model.json",
        content=ubjson.encode(changed_model((saved("xgboost") / "model.json").read_bytes(), name)),
        attributes={"class": "XGBClassifier", "missing": None, "n_jobs": 1},
    )

    def load():
        with pytest.raises(InvalidInputError, match="XGBoost cannot read"):
            restore_estimator(stored)

    assert succeeds(load)


LIGHTGBM = {
    "an empty line": (r"\nnum_cat=0", r"\n\nnum_cat=0"),
    "an unknown line": (r"\nnum_cat=0", r"\nnum_cat=0\nleaf_coeff=1"),
    "a line twice": (r"\nnum_cat=0", r"\nnum_cat=0\nnum_cat=0"),
    "digits of another script": (r"\nnum_cat=0", "\nnum_cat=\N{ARABIC-INDIC DIGIT ZERO}"),
    "another end of line": (r"\nnum_cat=0", r"\r\nnum_cat=0"),
    "two parents": (r"\nleft_child=(\S+) (\S+)", r"\nleft_child=\1 \1"),
    "one leaf twice": (r"\nright_child=.*", lambda m: re.sub(r"-\d+", "-1", m[0])),
    "far leaf": (r"\nright_child=-?\d+", r"\nright_child=-999"),
    "other classes": (r"\nnum_class=1", r"\nnum_class=3"),
    "several trees a round": (r"\nnum_tree_per_iteration=1", r"\nnum_tree_per_iteration=5"),
    "all columns of the world": (r"\nmax_feature_idx=\d+", r"\nmax_feature_idx=2147483646"),
}


@pytest.mark.parametrize("name", LIGHTGBM)
def test_a_booster_of_lightgbm_with_an_invalid_line_is_refused(name, copied):
    folder = copied("lightgbm")
    before, after = LIGHTGBM[name]
    text = re.sub(before, after, (folder / "model.txt").read_text(), count=1)
    trees = re.split(r"^(?=Tree=)", text.partition("end of trees\n")[0], flags=re.MULTILINE)[1:]
    sizes = " ".join(str(len(tree.encode())) for tree in trees)
    text = re.sub(r"\ntree_sizes=.*", f"\ntree_sizes={sizes}", text, count=1)
    (folder / "model.txt").write_bytes(text.encode())
    seal(folder, document_of(folder))
    assert refuses(folder)


def test_a_booster_that_passes_the_checks_and_crashes_only_crashes_a_child_process(saved, monkeypatch):
    document = changed_model((saved("xgboost") / "model.json").read_bytes(), "far column")
    attributes = document_of(saved("xgboost"))["model"]["estimator"]
    stored = StoredEstimator(file="model.json", content=json.dumps(document).encode(), attributes=attributes)
    monkeypatch.setattr(xgboost_files, "check_xgboost", lambda document: None)
    with pytest.raises(
        InvalidInputError, match=r"XGBoost crashed \(SIG[A-Z]+\) when it loaded the stored model"
    ):
        restore_estimator(stored)


def test_a_booster_is_tried_once_and_never_one_that_this_process_wrote(saved, fitted, tmp_path, monkeypatch):
    calls = []
    run = trial_load.subprocess.run
    monkeypatch.setattr(trial_load, "_proven", set())
    monkeypatch.setattr(
        trial_load.subprocess, "run", lambda *args, **options: calls.append(1) or run(*args, **options)
    )
    Explainer.load(saved("xgboost"), model=fitted("xgboost").model)
    assert len(calls) == 0
    for _ in range(2):
        Explainer.load(saved("xgboost"))
    assert len(calls) == 1
    fitted("lightgbm").save(tmp_path / "mine")
    Explainer.load(tmp_path / "mine")
    assert len(calls) == 1


def test_without_child_processes_the_model_must_be_passed(saved, fitted, monkeypatch):
    monkeypatch.setattr(trial_load, "_proven", set())
    monkeypatch.setattr(trial_load.spawn, "get_executable", lambda: "/none/python")
    with pytest.raises(InvalidInputError, match=r"none could be started: .* pass the model with `model=`"):
        Explainer.load(saved("lightgbm"))
    Explainer.load(saved("lightgbm"), model=fitted("lightgbm").model)


def test_a_trial_that_takes_too_long_is_an_error(saved, monkeypatch):
    monkeypatch.setattr(trial_load, "_proven", set())
    monkeypatch.setattr(trial_load, "_SECONDS", 0.001)
    with pytest.raises(InvalidInputError, match=r"LightGBM took more than 0\.001 seconds"):
        Explainer.load(saved("lightgbm"))


def models():
    draw = np.random.default_rng(0)
    numbers = pd.DataFrame({"a": draw.normal(size=300), "b": draw.normal(size=300)})
    levels = numbers.assign(
        c=pd.Categorical(draw.choice(list("xyz"), 300)), d=pd.Categorical(draw.choice([3, 5, 9], 300))
    )
    y, several, value = (
        draw.integers(0, 2, 300),
        draw.integers(0, 3, 300),
        numbers["a"] + draw.normal(size=300),
    )
    few = {"n_estimators": 3, "n_jobs": 1}
    gb, light = xgboost, {"verbose": -1, **few}
    yield levels, gb.XGBClassifier(enable_categorical=True, max_cat_to_onehot=1, **few).fit(levels, y)
    yield numbers, gb.XGBClassifier(max_depth=3, **few).fit(numbers, several)
    yield numbers.to_numpy(), gb.XGBRegressor(num_parallel_tree=3, **few).fit(numbers.to_numpy(), value)
    yield (
        numbers,
        gb.XGBRegressor(objective="reg:quantileerror", quantile_alpha=0.3, **few).fit(numbers, value),
    )
    yield (
        numbers,
        gb.XGBRegressor(grow_policy="lossguide", max_leaves=31, max_depth=0, **few).fit(numbers, value),
    )
    yield levels, lightgbm.LGBMClassifier(**light).fit(levels, y)
    yield numbers, lightgbm.LGBMClassifier(**light).fit(numbers, several)
    yield numbers, lightgbm.LGBMRegressor(min_child_samples=1000, **light).fit(numbers, value)


@pytest.mark.parametrize("number", range(8))
def test_honest_boosters_pass_every_check_and_predict_the_same(number):
    rows, model = list(models())[number]
    stored = store_estimator(model)
    copies = [restore_estimator(stored)]
    if stored.file == "model.json":
        binary = bytes(model.get_booster().save_raw("ubj"))
        copies.append(
            restore_estimator(StoredEstimator(file=stored.file, content=binary, attributes=stored.attributes))
        )
    for copy in copies:
        for method in ("predict", "predict_proba"):
            if hasattr(model, method):
                assert (getattr(copy, method)(rows) == getattr(model, method)(rows)).all()


def test_the_binary_form_is_decoded_as_xgboost_writes_it(fitted):
    booster = fitted("xgboost").model.get_booster()
    text = json.loads(bytes(booster.save_raw("json")))
    decoded = ubjson.decode(bytes(booster.save_raw("ubj")))
    tree, same = (d["learner"]["gradient_booster"]["model"]["trees"][0] for d in (decoded, text))
    for name in ("left_children", "split_indices", "default_left", "parents"):
        assert tree[name].tolist() == same[name]
    assert tree["split_conditions"].tolist() == pytest.approx(same["split_conditions"])
    assert decoded["learner"]["objective"] == text["learner"]["objective"]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"{L", b"[#L\xff", b"[$d#L" + bytes([0x7F]) * 8, b"[" * 100, b"[#i\x05TT", b"Si\xff", b"ZZ",
     b"{i\x01aZi\x01aZ}", b"X"],
)  # fmt: skip
def test_binary_that_is_a_trap_is_refused(content):
    with pytest.raises(InvalidInputError, match="UBJSON"):
        ubjson.decode(content)
