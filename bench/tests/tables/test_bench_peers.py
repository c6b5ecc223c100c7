"""Other libraries on a small table: the files of their process, and the process itself."""

import json
import math
import signal
import sys
import types
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarking import FEW_LOANS
from plausiflow.core.prediction import predict_proba
from plausiflow.errors import InvalidInputError, ModelError
from plausiflow.models import MLPClassifier
from plausiflow.tables.encoder import Encoder
from plausiflow.tables.schema import Schema
from plausiflow_bench.tables import peer_process, peers
from plausiflow_bench.tables.peers import MissingPeerError, PeerSettings

# ---------------------------------------------------------------- what goes over, what comes back


def mixed_frame(n=80):
    """Numbers with many zeros and a heavy tail, on and off a grid, and levels."""
    generator = np.random.default_rng(0)
    gain = np.where(generator.random(n) < 0.6, 0, np.exp(generator.normal(6, 2, n))).round()
    return pd.DataFrame(
        {
            "gain": gain.astype(int),
            "ratio": generator.random(n),
            "job": generator.choice(["clerk", " smith", "none"], n),
            "school": generator.choice([1, 2, 3], n),
        }
    )


def test_the_model_of_the_other_process_gives_the_same_probabilities():
    frame = mixed_frame()
    encoder = Encoder(Schema.infer(frame))
    features = encoder.schema.features
    assert features[0].special == (0.0,)
    assert features[0].log
    sizes = (encoder.layout.width, 7, 5, 2)
    maps = [(torch.randn(b, a), torch.randn(b)) for a, b in pairwise(sizes)]
    classifier = MLPClassifier.from_weights(*zip(*maps, strict=True))
    expected = predict_proba(classifier, encoder.encode(frame).x)
    described = [peers._describe(feature) for feature in features]
    model = peer_process.PeerModel(described, [(w.numpy(), b.numpy()) for w, b in maps])
    values = peers.to_matrix(frame, features)
    np.testing.assert_allclose(model.probabilities(values), expected.numpy(), atol=1e-12)
    np.testing.assert_allclose(model.predict_proba(model.frame(values)), expected.numpy(), atol=1e-12)


def test_a_matrix_becomes_a_table_in_which_other_cells_are_untouched():
    frame = mixed_frame(20)
    features = Encoder(Schema.infer(frame)).schema.features
    values = peers.to_matrix(frame, features)
    assert peers.to_frame(values, frame, features).equals(frame)
    values[3, 0], values[4, 2] = 17.0, [*map(str.strip, map(str, features[2].levels))].index("smith")
    changed = peers.to_frame(values, frame, features)
    assert changed.loc[3, "gain"] == 17
    assert changed.loc[4, "job"].strip() == "smith"
    assert changed["gain"].dtype == frame["gain"].dtype
    assert changed.drop(index=[3, 4]).equals(frame.drop(index=[3, 4]))


FAKE = """
import json, pathlib, sys, time
if sys.argv[1] == "--check":
    print(json.dumps({name: {MISSING}.get(name, "fake 1.0") for name in sys.argv[2:]}))
    sys.exit()
folder, method = pathlib.Path(sys.argv[1]), sys.argv[2]
rows = json.loads((folder / "answers.json").read_text()) if (folder / "answers.json").exists() else None
task = json.loads((folder / "task.json").read_text())
with open(folder / f"{method}.jsonl", "w") as file:
    file.write(json.dumps({"setup_cpu_seconds": 0.01}) + "\\n")
    for i in range(len(task["targets"])):
        if method == "dice_genetic" and i == 2:
            file.write('{"row": 2, "val')
            file.flush()
            time.sleep(60)
        if method == "nice_sparsity":
            sys.exit("no such luck")
        values = [0.0 for feature in task["features"]] if i % 2 else None
        why = "" if i % 2 else "ValueError: nothing"
        file.write(json.dumps({"row": i, "values": values, "why": why, "cpu_seconds": 0.25}) + "\\n")
        file.flush()
"""


@pytest.fixture
def fake(tmp_path):
    def made(**missing):
        script = tmp_path / "fake_peer.py"
        script.write_text(FAKE.replace("{MISSING}", repr(missing)))
        return script

    return made


def test_a_peer_is_measured_by_what_its_process_writes(case, fake):
    setting = PeerSettings(methods=("dice_random",), script=fake())
    ours, theirs = peers.run(replace(FEW_LOANS, rows=4), setting)
    assert (ours["method"], theirs["method"], theirs["version"]) == ("plausiflow", "dice_random", "fake 1.0")
    assert theirs["found"] == 0.5
    assert theirs["rules_broken"] == 1.0
    assert (theirs["cpu_seconds_per_row"], theirs["fit_cpu_seconds"]) == (0.25, 0.01)
    assert theirs["why_not"] == "2 × ValueError: nothing"
    assert theirs["timeouts"] == 0
    assert "rules_broken" in ours["wins"].split(", ")
    assert "fit_cpu_seconds" in theirs["wins"].split(", ")


def test_what_a_peer_wrote_before_its_time_was_over_counts(case, fake):
    setting = PeerSettings(methods=("dice_genetic",), script=fake(), seconds_per_method=2.0)
    row = list(peers.run(replace(FEW_LOANS, rows=4), setting))[1]
    assert row["found"] == 0.25
    assert row["timeouts"] == 2
    assert "2 × not reached" in row["why_not"]


def test_a_peer_that_fails_is_an_error_with_its_last_words(case, fake):
    with pytest.raises(ModelError, match="nice_sparsity failed: no such luck"):
        list(peers.run(replace(FEW_LOANS, rows=4), PeerSettings(methods=("nice_sparsity",), script=fake())))


def test_a_missing_peer_is_named_with_how_to_install_it(fake):
    setting = PeerSettings(script=fake(nice_sparsity=None))
    with pytest.raises(MissingPeerError, match=r"The peers nice_sparsity are not installed .*pip install"):
        setting.versions()


def test_a_peer_needs_an_interpreter_and_known_names(tmp_path):
    with pytest.raises(InvalidInputError, match=r"must be a Python interpreter; got .* does not start"):
        PeerSettings(python=tmp_path / "none").versions()
    with pytest.raises(InvalidInputError, match=r"Unknown method 'dicey'.*Time limits must be positive"):
        PeerSettings(methods=("dicey",), seconds_per_row=0)


def test_the_best_of_a_column_wins_and_a_tie_is_won_twice():
    rows = [
        {"found": 1.0, "cost": 2.0, "judged": math.nan},
        {"found": 1.0, "cost": 1.0, "rules_broken": 0.5},
        {"found": 0.9, "cost": 3.0, "rules_broken": 0.0},
    ]
    assert [row["wins"] for row in peers.mark_wins(rows)] == ["found", "found, cost", "rules_broken"]


# ---------------------------------------------------------------- inside the other process


class FakeDice(types.ModuleType):
    """Records its arguments and returns the row with another job; row 1 hangs and row 2 fails."""

    def __init__(self):
        super().__init__("dice_ml")
        self.calls = []

    def Data(self, dataframe, continuous_features, outcome_name):
        self.train, self.numbers = dataframe, continuous_features
        return self

    def Model(self, model, backend):
        self.model = model
        return self

    def Dice(self, data, model, method):
        self.method = method
        return self

    def generate_counterfactuals(self, row, **options):
        self.calls.append(options)
        if len(self.calls) == 2:
            while True:
                pass
        if len(self.calls) == 3:
            raise RuntimeError("no luck")
        found = types.SimpleNamespace(final_cfs_df=row, final_cfs_df_sparse=row.assign(job="0"))
        return types.SimpleNamespace(cf_examples_list=[found])


class FakeNice(types.ModuleType):
    """Answers with the first training row that the model decides as the target class."""

    def __init__(self):
        super().__init__("nice")

    def NICE(self, predict_fn, X_train, cat_feat, num_feat, y_train, optimization, justified_cf):
        decided = predict_fn(X_train).argmax(axis=1)

        def explain(row, target_class):
            return X_train[decided == target_class[0]][:1]

        return types.SimpleNamespace(explain=explain)


@pytest.fixture
def task(case, tmp_path):
    peers.write_task(case.first_rows(6), tmp_path, 0.2, 0)
    before = signal.getsignal(signal.SIGALRM)
    yield tmp_path
    signal.signal(signal.SIGALRM, before)


def lines_of(folder, method):
    first, *rest = map(json.loads, (folder / f"{method}.jsonl").read_text().splitlines())
    assert first["setup_cpu_seconds"] >= 0
    return rest


def test_dice_is_told_the_rules_and_a_row_that_hangs_or_fails_has_no_answer(case, task, monkeypatch):
    dice = FakeDice()
    monkeypatch.setitem(sys.modules, "dice_ml", dice)
    peer_process.main([str(task), "dice_random"])
    lines = lines_of(task, "dice_random")
    assert Counter(line["why"] for line in lines) == {"": 4, "time limit": 1, "RuntimeError: no luck": 1}
    names = list(case.test.x.columns)
    assert lines[0]["values"][names.index("job")] == 0.0
    order = list(case.train.orders["education"])
    known = [level for level in order if level in set(case.train.x["education"])]
    for i, options in enumerate(dice.calls):
        assert set(names) - set(options["features_to_vary"]) == {"age", "sex"}
        own = known.index(case.test.x["education"].iloc[i])
        assert options["permitted_range"] == {"education": [str(c) for c in range(own, len(known))]}
        assert options["desired_class"] == int(case.y_target[i])
    assert dice.method == "random"
    assert dice.train["income"].tolist() == case.train.x["income"].tolist()


def test_nice_is_told_the_wanted_class(case, task, monkeypatch):
    monkeypatch.setitem(sys.modules, "nice", FakeNice())
    peer_process.main([str(task), "nice_sparsity"])
    values = np.array([line["values"] for line in lines_of(task, "nice_sparsity")])
    few = case.first_rows(6)
    features = case.encoder.schema.features
    answers = peers.to_frame(values, few.test.x, features)
    decided = case.explainer.predict_proba(answers).to_numpy().argmax(axis=1)
    assert decided.tolist() == few.y_target.tolist()


def test_a_model_that_was_not_carried_over_exactly_is_refused(task):
    with np.load(task / "arrays.npz") as file:
        arrays = dict(file)
    np.savez(task / "arrays.npz", **arrays | {"bias0": arrays["bias0"] + 0.1})
    with pytest.raises(SystemExit, match="other probabilities"):
        peer_process.main([str(task), "dice_random"])


def test_a_check_tells_versions_and_what_is_missing(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "dice_ml", types.ModuleType("dice_ml"))
    monkeypatch.setitem(sys.modules, "nice", None)
    monkeypatch.setattr(peer_process.metadata, "version", lambda name: "0.12")
    peer_process.main(["--check", "dice_random", "nice_sparsity"])
    assert json.loads(capsys.readouterr().out) == {"dice_random": "dice-ml 0.12", "nice_sparsity": None}
