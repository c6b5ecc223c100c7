"""The studies of mixed tables on small ones: what they report, how peers are run, what pages they write."""

import json
import math
import signal
import sys
import types
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from plausiflow.benchmark import cases, mixed, peer_process, peers, sparsity
from plausiflow.benchmark.cases import TableSelection, rules_of, write_section
from plausiflow.benchmark.mixed import NeighbourJudge
from plausiflow.benchmark.peers import MissingPeerError, Peers
from plausiflow.classifiers import MLPClassifier, predict_proba
from plausiflow.constraints import Immutable, Increasing
from plausiflow.data.encoding import Encoder
from plausiflow.data.loans import true_log_prob_given
from plausiflow.data.schema import Schema
from plausiflow.data.tables import loans_table
from plausiflow.densities import mixed as density
from plausiflow.errors import InvalidInputError, ModelError, NotFittedError
from plausiflow.explainer import Explainer
from plausiflow.search import fitting
from plausiflow.search.mixed import MixedSearch
from plausiflow.training import Training

PAGE = Path(__file__).resolve().parents[1] / "docs" / "tables.md"
SELECTION = TableSelection(tables=("loans",), rows=30)


@pytest.fixture(scope="module", autouse=True)
def quick(default_dtype):
    """300 loans, hardly trained densities, short searches; fitted once for the module, forgotten after."""
    table = replace(loans_table(n=300), study=(220, 80))
    brief = Training(epochs=4, learning_rate=1e-2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cases, "load_table", lambda name: table)
        patch.setattr(cases, "Explainer", partial(Explainer, confidence=None))
        patch.setattr(cases, "MLPClassifier", lambda hidden, seed: MLPClassifier(hidden=(8,), seed=seed))
        patch.setattr(fitting, "MixedSearch", partial(MixedSearch, real_rows=2, flips=False, finalists=1))
        patch.setattr(density, "FLOW_TRAINING", brief)
        patch.setattr(density, "LEVELS_TRAINING", brief)
        cases.fitted.cache_clear()
        yield
    cases.fitted.cache_clear()


@pytest.fixture(scope="module")
def case(quick):
    return SELECTION.case("loans")


@pytest.fixture(scope="module")
def rows(quick):
    return {row["method"]: row for row in mixed.run(SELECTION)}


# ---------------------------------------------------------------- the judge of another family


def test_a_neighbour_judge_agrees_with_distances_counted_by_hand():
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "income": generator.normal(50, 10, 60).round(2),
            "job": generator.choice(["clerk", "none", "smith"], 60),
            "school": generator.choice(["low", "mid", "high"], 60),
        }
    )
    encoder = Encoder(Schema.infer(frame, orders={"school": ["low", "mid", "high"]}))
    y = np.arange(60) % 2
    new = frame.iloc[generator.permutation(60)[:12]].assign(income=generator.normal(50, 25, 12))
    step = {"low": 0.0, "mid": 0.5, "high": 1.0}
    span = frame["income"].max() - frame["income"].min()

    def distance(a, b):
        return (
            abs(a["income"] - b["income"]) / span
            + (a["job"] != b["job"])
            + abs(step[a["school"]] - step[b["school"]])
        )

    def fifth(row, others):
        return sorted(distance(row, other) for _, other in others.iterrows())[4]

    expected = []
    for (_, row), wanted in zip(new.iterrows(), y[:12], strict=True):
        own = frame[y == wanted]
        bar = sorted(fifth(own.loc[i], own.drop(index=i)) for i in own.index)[(len(own) - 1) // 2]
        expected.append(fifth(row, own) <= bar)
    judge = NeighbourJudge(layout=encoder.layout).fit(encoder.encode(frame).x, torch.from_numpy(y))
    assert judge.passes(encoder.encode(new).x, torch.from_numpy(y[:12])).tolist() == expected
    assert 0 < sum(expected) < 12


def test_a_neighbour_judge_must_be_fitted(case):
    with pytest.raises(NotFittedError, match="fit"):
        NeighbourJudge(layout=case.encoder.layout).passes(case.x, case.y_target)


# ---------------------------------------------------------------- the study of tables


def test_the_study_reports_every_column_for_every_method(rows):
    assert list(rows) == ["real", "plausiflow", "nearest_real_row"]
    for row in rows.values():
        assert {
            "dataset",
            "rows",
            "accuracy",
            "judged",
            "judged_worst",
            "knn_judge",
            "true_plausible",
        } <= set(row)
        assert {"seed", "commit", "training_rows"} <= set(row)
        assert row["judged_worst"] <= row["judged"]
    assert set(mixed.COLUMNS) <= set(rows["plausiflow"])
    assert rows["real"]["validity"] == rows["real"]["accuracy"]


@pytest.mark.parametrize("method", ["plausiflow", "nearest_real_row"])
def test_answers_are_valid_plausible_and_keep_the_rules(rows, method):
    row = rows[method]
    assert row["found"] > 0.5
    assert (row["validity"], row["plausible"], row["rules_broken"]) == (1.0, 1.0, 0.0)
    assert row["immutable_identical"] == 1.0


def test_figures_of_answers_written_by_hand_are_what_they_must_be(case):
    x = case.test.x
    of = np.array([0, 1, 2, 3])
    answers = x.iloc[of].copy()
    answers["income"] = answers["income"] + 100
    other = {"female": "male", "male": "female"}
    answers.iloc[0, x.columns.get_loc("sex")] = other[x["sex"].iloc[0]]
    answers.iloc[1, x.columns.get_loc("job")] = "clerk" if x["job"].iloc[1] != "clerk" else "manual"
    row = mixed.measured(case, answers, of)
    train = case.train
    span = train.x["income"].max() - train.x["income"].min()
    inside = x["income"].iloc[of] + 100 <= np.maximum(train.x["income"].max(), x["income"].iloc[of])
    assert inside.all()
    assert row["found"] == 4 / 30
    assert row["changes"] == 6 / 4
    assert row["rules_broken"] == 1 / 4
    assert row["immutable_identical"] == 7 / 8
    assert row["cost"] == pytest.approx(100 / span + 2 / 4)
    wanted = case.explainer.predict_proba(answers).idxmax(axis=1).to_numpy()
    before = case.explainer.predict_proba(x.iloc[of]).idxmax(axis=1).to_numpy()
    assert row["validity"] == (wanted != before).mean()


def test_true_plausibility_is_above_the_median_of_the_wanted_class(case, rows):
    result = case.explainer.explain(case.test.x)
    wanted = result.verdicts["target"].to_numpy()[result.of]
    real = (
        pd.Series(true_log_prob_given(case.train.x, case.train.y)).groupby(case.train.y.to_numpy()).median()
    )
    reached = true_log_prob_given(result.answers, wanted) >= real[wanted].to_numpy()
    assert rows["plausiflow"]["true_plausible"] == reached.mean()


def test_the_worst_group_is_the_least_found_among_large_ones():
    table = replace(loans_table(n=300), protected=("sex", "dependents"))
    women = (table.x["sex"] == "female").to_numpy()
    found = ~women
    found[np.flatnonzero(women)[:10]] = True
    row = mixed._groups(table, found)
    assert row["worst_group_name"] == "sex = female"
    assert row["worst_group"] == 10 / women.sum()
    assert row["group_gap"] == pytest.approx(found.mean() - 10 / women.sum())
    small = replace(table, x=table.x.iloc[:40])
    assert math.isnan(mixed._groups(small, found[:40])["worst_group"])


def test_cells_are_identical_only_bit_for_bit_and_in_the_same_dtype():
    before = pd.Series([0.0, 1.5, np.nan])
    assert mixed._same_bits(before, pd.Series([-0.0, 1.5, np.nan])).tolist() == [False, True, True]
    assert not mixed._same_bits(before, before.astype(np.float32)).any()
    texts = pd.Series(["a", None, "b"])
    assert mixed._same_bits(texts, pd.Series(["a", None, " b"])).tolist() == [True, True, False]


def test_rules_are_those_of_the_table():
    table = loans_table(n=50)
    assert rules_of(table) == [Immutable("age", "sex"), Increasing("education")]
    assert rules_of(replace(table, immutable=(), increasing=())) == []


def test_a_selection_names_everything_that_is_wrong_with_it():
    with pytest.raises(InvalidInputError, match=r"'lawn' is no table.*`rows` must be at least 1; got 0"):
        TableSelection(tables=("lawn",), rows=0)


# ---------------------------------------------------------------- sparsity and several answers


def test_sparser_answers_change_fewer_features_and_a_limit_holds(quick):
    found = {row["method"]: row for row in sparsity.run(replace(SELECTION, rows=6))}
    assert list(found) == ["all_changes", "sparsity_0.1", "at_most_3_changes", "4_answers"]
    assert found["all_changes"]["l2_ratio"] == 1.0
    assert found["sparsity_0.1"]["changes"] <= found["all_changes"]["changes"]
    assert found["at_most_3_changes"]["most_changes"] <= 3
    assert 0 <= found["4_answers"]["four_distinct"] <= found["4_answers"]["found"]
    assert found["4_answers"]["spread"] > 0
    assert all(row["features"] == 12 for row in found.values())


# ---------------------------------------------------------------- peers: what goes over, what comes back


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
    assert features[0].zero_state
    assert features[0].log
    sizes = (encoder.layout.width, 7, 5, 2)
    maps = [(torch.randn(b, a), torch.randn(b)) for a, b in pairwise(sizes)]
    classifier = MLPClassifier.from_weights(*zip(*maps, strict=True))
    expected = predict_proba(classifier, encoder.encode(frame).x)
    described = [peers._described(feature) for feature in features]
    model = peer_process.Model(described, [(w.numpy(), b.numpy()) for w, b in maps])
    values = peers.matrix(frame, features)
    np.testing.assert_allclose(model.probabilities(values), expected.numpy(), atol=1e-12)
    np.testing.assert_allclose(model.predict_proba(model.frame(values)), expected.numpy(), atol=1e-12)


def test_a_matrix_becomes_a_table_in_which_other_cells_are_untouched():
    frame = mixed_frame(20)
    features = Encoder(Schema.infer(frame)).schema.features
    values = peers.matrix(frame, features)
    assert peers.table(values, frame, features).equals(frame)
    values[3, 0], values[4, 2] = 17.0, [*map(str.strip, map(str, features[2].levels))].index("smith")
    changed = peers.table(values, frame, features)
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
    file.write(json.dumps({"setup_cpu_seconds": 0.5}) + "\\n")
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
    setting = Peers(methods=("dice_random",), script=fake())
    ours, theirs = peers.run(replace(SELECTION, rows=4), setting)
    assert (ours["method"], theirs["method"], theirs["version"]) == ("plausiflow", "dice_random", "fake 1.0")
    assert theirs["found"] == 0.5
    assert theirs["rules_broken"] == 1.0
    assert (theirs["cpu_seconds_per_row"], theirs["fit_cpu_seconds"]) == (0.25, 0.5)
    assert theirs["why_not"] == "2 × ValueError: nothing"
    assert theirs["timeouts"] == 0
    assert "rules_broken" in ours["wins"].split(", ")
    assert "fit_cpu_seconds" in theirs["wins"].split(", ")


def test_what_a_peer_wrote_before_its_time_was_over_counts(case, fake):
    setting = Peers(methods=("dice_genetic",), script=fake(), seconds_per_method=2.0)
    row = list(peers.run(replace(SELECTION, rows=4), setting))[1]
    assert row["found"] == 0.25
    assert row["timeouts"] == 2
    assert "2 × not reached" in row["why_not"]


def test_a_peer_that_fails_is_an_error_with_its_last_words(case, fake):
    with pytest.raises(ModelError, match="nice_sparsity failed: no such luck"):
        list(peers.run(replace(SELECTION, rows=4), Peers(methods=("nice_sparsity",), script=fake())))


def test_a_missing_peer_is_named_with_how_to_install_it(fake):
    setting = Peers(script=fake(nice_sparsity=None))
    with pytest.raises(MissingPeerError, match=r"The peers nice_sparsity are not installed .*pip install"):
        setting.versions()


def test_a_peer_needs_an_interpreter_and_known_names(tmp_path):
    with pytest.raises(InvalidInputError, match="interpreter that starts"):
        Peers(python=tmp_path / "none").versions()
    with pytest.raises(InvalidInputError, match=r"'dicey' is no peer.*time limits must be positive"):
        Peers(methods=("dicey",), seconds_per_row=0)


def test_the_best_of_a_column_wins_and_a_tie_is_won_twice():
    rows = [
        {"found": 1.0, "cost": 2.0, "judged": math.nan},
        {"found": 1.0, "cost": 1.0, "rules_broken": 0.5},
        {"found": 0.9, "cost": 3.0, "rules_broken": 0.0},
    ]
    assert [row["wins"] for row in peers.with_wins(rows)] == ["found", "found, cost", "rules_broken"]


# ---------------------------------------------------------------- peers: inside the other process


class FakeDice(types.ModuleType):
    """Says what it was told, and answers with the row, its job changed; row 1 hangs and row 2 fails."""

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
    """Answers with the first training row that the model decides as wanted."""

    def __init__(self):
        super().__init__("nice")

    def NICE(self, predict_fn, X_train, cat_feat, num_feat, y_train, optimization, justified_cf):
        decided = predict_fn(X_train).argmax(axis=1)

        def explain(row, target_class):
            return X_train[decided == target_class[0]][:1]

        return types.SimpleNamespace(explain=explain)


@pytest.fixture
def task(case, tmp_path):
    peers.write_task(case.few(6), tmp_path, 0.2, 0)
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
    few = case.few(6)
    features = case.encoder.schema.features
    answers = peers.table(values, few.test.x, features)
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


# ---------------------------------------------------------------- the page


def test_the_page_has_the_marks_of_every_study_and_keeps_its_text(rows, tmp_path):
    page = tmp_path / "tables.md"
    page.write_text(PAGE.read_text())
    mixed.write_page(list(rows.values()), page)
    won = [row | {"why_not": "–", "timeouts": 0} for row in peers.with_wins(list(rows.values()))]
    peers.write_page(won, page)
    sparsity.write_page([row | {"features": 12} for row in rows.values()], page)
    written = page.read_text()
    assert written.startswith(PAGE.read_text()[:200])
    assert written.count("| loans | plausiflow |") == 3
    assert "**1.000**" in written
    assert f"commit {rows['real']['commit']}" in written


def test_a_page_without_marks_is_refused(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("nothing here")
    with pytest.raises(InvalidInputError, match="must have the marks"):
        write_section(page, mixed.MARK, "text")
