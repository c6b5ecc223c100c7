"""The study of proofs: its figures, and other libraries against the proven optimum."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from plausiflow_bench.tables import exact, exact_peers, peers
from plausiflow_bench.tables.cases import TableSelection
from plausiflow_bench.tables.exact import ExactSelection
from plausiflow_bench.tables.peers import PeerSettings

pytest.importorskip("ortools")

FEW = TableSelection(tables=("loans",), rows=4, train=200)
FAKE = """
import json, pathlib, sys
if sys.argv[1] == "--check":
    print(json.dumps({name: "fake 1.0" for name in sys.argv[2:]}))
    sys.exit()
folder, method = pathlib.Path(sys.argv[1]), sys.argv[2]
answers = json.loads(pathlib.Path(__file__).with_name("answers.json").read_text())
with open(folder / f"{method}.jsonl", "w") as file:
    for i, values in enumerate(answers):
        file.write(json.dumps({"row": i, "values": values, "why": "", "cpu_seconds": 0.1}) + "\\n")
"""


@pytest.fixture(scope="module")
def case():
    return exact_peers.small_case(FEW, "loans")


@pytest.fixture(scope="module")
def proofs(case):
    return exact_peers.prove(case, 20.0)


def run_with(answers, case, proofs, folder, monkeypatch):
    """Run the comparison with a library that returns these rows."""
    (folder / "fake.py").write_text(FAKE)
    (folder / "answers.json").write_text(json.dumps(answers))
    monkeypatch.setattr(exact_peers, "small_case", lambda *_: case)
    monkeypatch.setattr(exact_peers, "prove", lambda *_: proofs)
    settings = PeerSettings(methods=("dice_random",), script=folder / "fake.py")
    _, theirs = exact_peers.run(FEW, 20.0, settings)
    return theirs


def test_a_library_that_returns_the_proven_rows_costs_what_is_proven(case, proofs, tmp_path, monkeypatch):
    """Rows of the proof are written as a library writes them."""
    answers = []
    for i, proof in enumerate(proofs):
        row = case.test.x.iloc[[i]]
        decoded = case.encoder.decode(proof.answer, like=row, encoded=case.x[i : i + 1])
        answers.append(peers.to_matrix(decoded, peers._features(case))[0].tolist())
    theirs = run_with(answers, case, proofs, tmp_path, monkeypatch)
    assert (theirs["found"], theirs["below"]) == (1.0, 0)
    assert theirs["ratio_median"] == pytest.approx(1.0, abs=1e-6)


def test_an_answer_that_is_not_decided_as_wanted_does_not_count(case, proofs, tmp_path, monkeypatch):
    unchanged = peers.to_matrix(case.test.x, peers._features(case)).tolist()
    theirs = run_with(unchanged, case, proofs, tmp_path, monkeypatch)
    assert theirs["found"] == 0.0


def test_an_answer_below_a_bound_is_counted(case, proofs, tmp_path, monkeypatch):
    """A bound that is too high shows."""
    wrong = [replace(proof, bound=proof.cost + 1.0) for proof in proofs]
    row = exact_peers._figures(case, 0, "ours", wrong, *_answers(case, proofs))
    assert row["below"] == len(proofs)


def _answers(case, proofs):
    x = np.arange(len(proofs))
    rows = [
        case.encoder.decode(p.answer, like=case.test.x.iloc[[i]], encoded=case.x[i : i + 1])
        for i, p in zip(x.tolist(), proofs, strict=True)
    ]
    return pd.concat(rows), x


@pytest.mark.parametrize("kind", ["xgb-5x2", "logistic", pytest.param("mlp-4", marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_models_of_every_kind_are_proven(kind):
    selection = ExactSelection(tables=("loans",), models=(kind,), rows=3, train=200, seconds=10.0)
    (row,) = exact.run(selection)
    assert (row["model"], row["setting"], row["rows"]) == (kind, "proof", 3)
    assert row["proven"] == 1.0
