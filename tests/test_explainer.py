"""The explainer: verdicts, targets, missing values and settings, against pandas, closed forms and members."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from pandas.testing import assert_frame_equal

from explaining import STATUSES, broken_rules, cells, same, stand_in, unlike_training
from plausiflow import Explainer, LinearClassifier, MLPClassifier, Training
from plausiflow.constraints import Allowed, Decreasing, Immutable, Increasing, Linear, MaxChanges, Range
from plausiflow.data.tables import loans_table
from plausiflow.densities import mixed
from plausiflow.errors import InvalidInputError, NotFittedError, ShapeError
from plausiflow.search.mixed import MixedSearch
from searching import ORDERS, applicants

RULES = [
    Immutable("age", "sex"),
    Increasing("education"),
    Range("debt_ratio", 0, 0.6),
    Linear("loan_amount <= 3 * income"),
    Allowed("job", {"manual": ["clerk"], "clerk": ["manager"], "specialist": ["manager", "clerk"]}),
]
ROWS = 14
BOTH = torch.tensor([[0.0] * 4, [0.0, 1.0, 0.0, 1.0]])
"""A model that says yes where both of two booleans are true."""


@pytest.fixture(scope="module")
def table():
    return loans_table(n=400)


@pytest.fixture(scope="module")
def quickly_trained():
    """Densities are trained for a few epochs only: what they know does not matter here."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("FLOW_TRAINING", "LEVELS_TRAINING"):
            patch.setattr(mixed, name, replace(getattr(mixed, name), epochs=8))
        yield


@pytest.fixture(scope="module")
def loans(table, quickly_trained):
    return Explainer(LinearClassifier(), constraints=RULES, confidence=None, judges=0).fit(table.x, table.y)


@pytest.fixture(scope="module")
def asked(table):
    """Rows with labels that repeat and columns in another order; two of them cannot be read."""
    rows = table.x.iloc[:ROWS]
    rows = rows[rows.columns[::-1]].set_axis([i // 2 for i in range(ROWS)], axis=0)
    rows["job"] = rows["job"].mask(np.arange(ROWS) == 3, "astronaut")
    rows["income"] = rows["income"].astype(object).mask(np.arange(ROWS) == 7, "a lot")
    return rows


@pytest.fixture(scope="module")
def explained(loans, asked):
    return loans.explain(asked, "granted")


# ---------------------------------------------------------------- verdicts, on a fitted explainer


def test_every_row_has_one_verdict_in_the_order_and_under_the_label_it_came_with(loans, asked, explained):
    status, found = explained.status["status"], explained.status["status"].to_numpy() == "found"
    assert set(status) == {"found", "already", "invalid_input"}
    assert explained.status.index.equals(asked.index)
    assert explained.counterfactuals.index.equals(asked.index)
    assert explained.counterfactuals.columns.equals(asked.columns)
    assert_frame_equal(explained.rows, asked)
    assert explained.counterfactuals.isna().all(axis=1).to_numpy().tolist() == (~found).tolist()
    decided = loans.predict(asked)
    assert (status == "already").tolist() == (decided == "granted").tolist()
    assert np.flatnonzero(status == "invalid_input").tolist() == [3, 7]
    assert decided.isna().to_numpy().nonzero()[0].tolist() == [3, 7]


def test_rows_that_cannot_be_read_say_which_cell_and_what_was_expected(explained):
    unseen, text = explained.status["reason"].iloc[[3, 7]]
    assert unseen == (
        "`job` is 'astronaut', a level that no training row has (known: 'clerk', 'manager', 'manual', "
        "'self-employed', 'specialist')"
    )
    assert text == "`income` is 'a lot', which is not a number"
    assert explained.status["predicted"].iloc[[3, 7]].isna().all()


def test_found_rows_are_decided_as_wanted_once_decoded(loans, explained):
    proba = loans.predict_proba(explained.answers)
    assert (loans.predict(explained.answers) == "granted").all()
    np.testing.assert_allclose(explained.figures["probability"], proba["granted"], rtol=1e-12)
    assert (proba["granted"] - proba["rejected"] >= 0.02 - 1e-12).all()


def test_found_rows_are_as_plausible_as_the_members_say_one_by_one(loans, explained):
    ensemble, encoder = loans.finder_.plausibility, loans.encoder_
    x = encoder.encode(explained.rows.iloc[explained.of]).x
    x_cf = encoder.encode(explained.answers).x
    y = torch.full((len(x),), loans.model_.labels.index("granted"))
    log_probs = torch.stack([flow.log_prob(x_cf, y) for flow in ensemble.flows_])
    score = (log_probs - ensemble.thresholds_[:, y]).mean(dim=0) - ensemble.context(x, y)
    assert (score >= 0).all()
    np.testing.assert_allclose(explained.figures["score"], score, atol=1e-8)
    np.testing.assert_allclose(
        explained.figures["log_density"], log_probs.exp().mean(dim=0).log(), atol=1e-8, rtol=1e-9
    )


def test_found_rows_keep_the_rules_and_hold_what_training_rows_could(loans, table, explained):
    orders = {name: list(levels) for name, levels in table.orders.items()}
    assert len(explained.answers) > 3
    assert broken_rules(loans, explained, orders) == []
    assert unlike_training(table.x, explained) == []
    before = explained.rows.iloc[explained.of].reset_index(drop=True)
    for name in ("age", "sex"):
        assert explained.answers[name].equals(before[name])


def test_changes_are_those_that_a_loop_over_cells_finds(explained):
    for answer, i in enumerate(explained.of.tolist()):
        before, after = cells(explained.rows, i), cells(explained.answers, answer)
        names = [name for name in before.index if not same(before[name], after[name])]
        assert explained.figures["n_changes"].iloc[answer] == len(names)
        assert explained[i].changes["feature"].tolist() == names


def test_where_every_row_has_an_answer_dtypes_are_kept(loans, table, explained):
    rows = table.x.iloc[:ROWS][explained.is_found].head(2)
    result = loans.explain(rows)
    assert result.status["status"].tolist() == ["found"] * 2
    assert result.counterfactuals.dtypes.equals(rows.dtypes)


def test_the_same_seed_gives_the_same_answers_and_another_one_another_density(table, quickly_trained):
    x, y = table.x[["income", "debt_ratio", "job"]].iloc[:120], table.y.iloc[:120]

    def made(seed):
        return Explainer(LinearClassifier(), confidence=None, judges=0, random_state=seed).fit(x, y)

    first, twin, other = made(3), made(3), made(4)
    one, two = first.explain(x.iloc[:3]), twin.explain(x.iloc[:3])
    for part in ("answers", "figures", "status"):
        assert_frame_equal(getattr(one, part), getattr(two, part))
    assert not torch.equal(first.finder_.plausibility.thresholds_, other.finder_.plausibility.thresholds_)


def test_a_row_alone_has_the_answer_that_it_has_among_others(loans, asked, explained):
    for i in np.flatnonzero(explained.is_found)[:2].tolist():
        alone = loans.explain(asked.iloc[[i]], "granted")
        among = explained.answers[explained.of == i].reset_index(drop=True)
        assert alone.answers.astype(object).equals(among.astype(object))
        assert alone.figures["cost"].tolist() == explained.figures["cost"][explained.of == i].tolist()


def test_the_order_of_rows_changes_nothing(loans, asked, explained):
    order = np.random.default_rng(0).permutation(ROWS)[:6]
    turned = loans.explain(asked.iloc[order], "granted")
    assert_frame_equal(turned.status, explained.status.iloc[order])
    assert_frame_equal(turned.counterfactuals, explained.counterfactuals.iloc[order])


def test_judges_and_margins_are_learned_where_they_are_asked_for(table, quickly_trained):
    x, y = table.x[["income", "owns_home"]].iloc[:120], table.y.iloc[:120]
    explainer = Explainer(LinearClassifier(), confidence=0.5, judges=2).fit(x, y)
    assert explainer.finder_.plausibility.margin_.shape == (2,)
    judged = explainer.explain(x.iloc[:3]).figures["judged"]
    assert judged.isin([0, 0.5, 1]).all()
    without = Explainer(LinearClassifier(), confidence=None, judges=0).fit(x, y)
    assert without.finder_.plausibility.margin_.tolist() == [0, 0]
    assert without.explain(x.iloc[:1]).figures["judged"].isna().all()


def test_a_model_is_trained_as_a_copy_and_one_that_is_trained_is_used_as_it_is(table, quickly_trained):
    x, y = table.x[["job", "owns_home"]].iloc[:120], table.y.iloc[:120]
    model = MLPClassifier(hidden=(4,), training=Training(epochs=2))
    first = Explainer(model, confidence=None, judges=0).fit(x, y)
    assert model.n_classes == 0
    trained = first.model_.model
    second = Explainer(trained, confidence=None, judges=0).fit(x, y)
    assert second.model_.model is trained
    assert_frame_equal(first.predict_proba(x), second.predict_proba(x))


def test_before_fit_everything_says_what_to_do(table):
    explainer = Explainer(LinearClassifier())
    for ask in (explainer.explain, explainer.predict, explainer.predict_proba):
        with pytest.raises(NotFittedError, match=r"Call `fit\(x, y\)`"):
            ask(table.x)


# ---------------------------------------------------------------- verdicts, in closed form


@pytest.fixture(scope="module")
def frame():
    return applicants(200)


@pytest.fixture(scope="module")
def by_income(frame):
    """Only the income decides, everything is plausible, and nothing is forbidden."""
    return stand_in(frame, push={"income": 4.0}, orders=ORDERS)


def poor(frame, explainer, n=2):
    """Rows that the model rejects."""
    return frame[(explainer.predict(frame) == "no").to_numpy()].head(n)


def test_the_cost_is_the_distance_to_the_hyperplane():
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(draw.uniform(0, 1, (200, 3)), columns=list("abc"))
    frame.iloc[0], frame.iloc[1] = 0.0, 1.0  # encoded numbers are the numbers
    explainer = stand_in(frame, push={"a": 2.0, "b": -1.0, "c": 0.5}, search=MixedSearch(sparsity=None))
    rows = frame.iloc[((frame - 0.5).abs().max(axis=1) < 0.3).to_numpy()].head(6)
    result = explainer.explain(rows)
    logits = np.log(explainer.predict_proba(rows)["yes"] / explainer.predict_proba(rows)["no"])
    distance = logits.abs() / np.sqrt(2.0**2 + 1 + 0.5**2)
    np.testing.assert_allclose(result.figures["cost"], distance, atol=1e-3)


@pytest.mark.parametrize(
    "index",
    [
        [7, 7, 7],
        ["b", None, "a"],
        pd.MultiIndex.from_tuples([(1, "x"), (1, "x"), (0, "y")], names=["rank", None]),
        pd.date_range("2020", periods=3),
        pd.CategoricalIndex(["u", "v", "u"]),
    ],
    ids=["duplicates", "mixed", "levels", "dates", "categories"],
)
def test_any_index_is_kept(by_income, frame, index):
    rows = frame.iloc[:3].set_axis(pd.Index(index), axis=0)
    result = by_income.explain(rows)
    plain = by_income.explain(frame.iloc[:3])
    assert result.status.index.equals(rows.index)
    assert result.counterfactuals.index.equals(rows.index)
    assert_frame_equal(result.counterfactuals.reset_index(drop=True), plain.counterfactuals)
    assert by_income.predict(rows).index.equals(rows.index)


@pytest.mark.parametrize("n", [0, 1])
def test_few_rows_are_fine(by_income, frame, n):
    result = by_income.explain(frame.iloc[:n])
    assert len(result) == n
    assert result.counterfactuals.shape == (n, frame.shape[1])
    assert result.status["status"].tolist() == ["found"] * n
    assert by_income.predict_proba(frame.iloc[:n]).shape == (n, 2)


@pytest.mark.parametrize("column", ["income", "savings", "job", "owns", "school", "gain"])
def test_a_table_of_one_column_is_fine(frame, column):
    explainer = stand_in(
        frame[[column]], push={column: 3.0}, orders={k: v for k, v in ORDERS.items() if k == column}
    )
    result = explainer.explain(frame[[column]].iloc[:4])
    assert result.status["status"].tolist() == ["found"] * 4
    assert (explainer.predict(result.counterfactuals) == result.status["target"]).all()


def test_what_is_decided_as_wanted_already_is_not_searched(by_income, frame):
    decided = by_income.predict(frame.iloc[:6])
    result = by_income.explain(frame.iloc[:6], decided)
    assert result.status["status"].tolist() == ["already"] * 6
    assert result.counterfactuals.isna().all(axis=None)
    assert len(result.answers) == 0


def test_without_time_no_row_is_reached_but_others_have_their_verdict(by_income, frame):
    rows = frame.iloc[:5].astype({"job": object})
    rows.iloc[2, rows.columns.get_loc("job")] = "astronaut"
    target = by_income.predict(frame.iloc[:5]).replace({"no": "yes", "yes": "no"}).to_numpy()
    target[4] = by_income.predict(frame.iloc[[4]]).iloc[0]
    result = by_income.explain(rows, target, time_limit=0)
    reached = ["not_reached", "not_reached", "invalid_input", "not_reached", "already"]
    assert result.status["status"].tolist() == reached
    assert "time limit" in result.status["reason"].iloc[0]
    assert by_income.explain(rows.iloc[:1], time_limit=60).status["status"].tolist() == ["found"]


def test_when_the_time_is_over_nothing_more_is_searched(frame, monkeypatch):
    explainer = stand_in(frame, [Range("income", None, 2000)], push={"income": 8.0})  # no row has an answer
    clock = iter(range(1000))
    monkeypatch.setattr("plausiflow.explainer.time.monotonic", lambda: next(clock))
    asked = []
    search = type(explainer.finder_.search).run

    def noted(self, task, bank, *, keep=1):
        asked.append(len(task))
        return search(self, task, bank, keep=keep)

    monkeypatch.setattr(type(explainer.finder_.search), "run", noted)
    # Each look at the clock takes a second: the first search, then the one without a margin, are in time.
    result = explainer.explain(frame.iloc[:4], time_limit=3)
    assert len(asked) == 2
    assert (result.status["status"] == "infeasible").all()
    assert result.status["reason"].str.contains("the time was over before the reason was looked for").all()


@pytest.mark.parametrize(
    ("rules", "blamed"),
    [
        ([Immutable("income")], 'Immutable("income")'),
        ([Immutable(*ORDERS, "age", "income", "savings", "job", "owns", "gain")], "Immutable("),
        ([Decreasing("income"), Increasing("age")], 'Decreasing("income")'),
        ([Range("income", None, 2000)], 'Range("income", None, 2000)'),
        ([Linear("income <= 2000")], 'Linear("income <= 2000")'),
    ],
    ids=["immutable", "all immutable", "one way", "range", "relation"],
)
def test_the_rule_that_blocks_is_named(frame, rules, blamed):
    explainer = stand_in(frame, rules, push={"income": 4.0}, orders=ORDERS)
    result = explainer.explain(poor(frame, explainer, 1), "yes")
    assert result.status["status"].tolist() == ["infeasible"]
    assert result.status["reason"].iloc[0].startswith(blamed)
    assert result.status["reason"].iloc[0].endswith("blocks: without it there is an answer")


def test_a_level_that_may_not_be_left_is_named(frame):
    stay = Allowed("job", {})
    explainer = stand_in(frame, [stay], push={"job": 3.0}, orders=ORDERS)
    result = explainer.explain(poor(frame, explainer, 1), "yes")
    assert result.status["reason"].tolist() == [f"{stay} blocks: without it there is an answer"]


def test_locks_that_block_are_named(by_income, frame):
    result = by_income.explain(poor(frame, by_income), "yes", locked=[["income"], ["age"]])
    assert result.status["status"].tolist() == ["infeasible", "found"]
    assert (
        result.status["reason"].iloc[0] == "the lock on some features blocks: without it there is an answer"
    )


def test_locks_that_block_a_single_row_are_named(by_income, frame):
    status = by_income.explain(poor(frame, by_income, 1), "yes", locked=["income"]).status
    assert status["reason"].tolist() == ["the lock on some features blocks: without it there is an answer"]


def test_where_no_single_rule_blocks_the_reason_says_that_nothing_is_left(frame):
    rules = [Decreasing("income"), Range("income", None, 2000)]
    explainer = stand_in(frame, rules, push={"income": 4.0}, orders=ORDERS)
    result = explainer.explain(poor(frame, explainer, 1), "yes")
    assert result.status["reason"].tolist() == ["no allowed row was found that the model decides as wanted"]


@pytest.mark.parametrize("answers", [1, 3])
def test_a_row_that_needs_two_changes_has_no_answer_where_one_is_allowed(answers):
    frame = pd.DataFrame({"a": [True, False] * 40, "b": [True, True, False, False] * 20})
    explainer = stand_in(frame, [MaxChanges(1)], push={"a": 1.0, "b": 1.0})
    explainer.model_.model.load_state({"weight": BOTH, "bias": torch.tensor([0.0, -1.5])})
    rows = pd.DataFrame({"a": [False, True, True], "b": [False, False, True]})
    assert explainer.predict(rows).tolist() == ["no", "no", "yes"]
    result = explainer.explain(rows, "yes", k=answers)
    assert result.status["status"].tolist() == ["infeasible", "found", "already"]
    assert result.status["reason"].iloc[0] == "MaxChanges(1) blocks: without it there is an answer"
    assert result.answers.to_dict("records") == [{"a": True, "b": True}]


@pytest.fixture(scope="module")
def tight(frame):
    """What the model wants is not plausible: the ball about the mean row is small."""
    return stand_in(frame[["income", "savings"]], push={"income": 4.0}, radius=0.3)


def test_the_nearest_miss_is_kept_and_says_how_much_it_lacks(frame, tight):
    rows = frame[["income", "savings"]].assign(savings=9.9)  # far from the ball, where it may not move to
    result = tight.explain(poor(rows, tight), "yes", locked=["savings"])
    assert result.status["status"].tolist() == ["infeasible"] * 2
    assert len(result.answers) == 0
    assert result.misses_of.tolist() == [0, 1]
    assert (tight.predict(result.misses) == "yes").all()
    assert (result.misses["savings"] == 9.9).all()
    score = tight.finder_.plausibility.score(tight.encoder_.encode(result.misses).x, torch.ones(2))
    for i, (short, said) in enumerate(zip((-score).tolist(), result.misses_why, strict=True)):
        assert said.endswith(f"is {short:.2f} nats short of plausible")
        assert result[i].misses[0][1] == said


def test_a_relaxed_answer_is_the_nearest_miss(frame, tight):
    rows = poor(frame[["income", "savings"]].assign(savings=9.9), tight)
    strict = tight.explain(rows, "yes", locked=["savings"])
    relaxed = tight.explain(rows, "yes", locked=["savings"], relaxed=True)
    assert relaxed.status["status"].tolist() == ["relaxed"] * 2
    assert_frame_equal(relaxed.answers, strict.misses)
    assert (relaxed.figures["score"] < 0).all()
    assert len(relaxed.misses_of) == 0


# ---------------------------------------------------------------- what is wanted


@pytest.mark.parametrize("labels", [("no", "yes"), (False, True), (0, 1), (-1, 7.5)], ids=str)
def test_any_labels_may_be_asked_for(frame, labels):
    explainer = stand_in(frame, push={"income": 4.0}, labels=labels, orders=ORDERS)
    rows = frame.iloc[:4]
    decided = explainer.predict(rows)
    opposite = [labels[1] if label == labels[0] else labels[0] for label in decided]
    first = explainer.explain(rows)
    assert first.status["target"].tolist() == opposite
    assert explainer.predict(first.counterfactuals).tolist() == opposite
    ways = [
        "runner_up",
        opposite,
        tuple(opposite),
        np.array(opposite, dtype=object),
        pd.Series(opposite, index=[9, 9, 8, 8]),
        pd.Index(opposite),
        pd.Categorical(opposite),
        pd.Series(opposite).convert_dtypes().array,
    ]
    for target in ways:
        asked = explainer.explain(rows, target, time_limit=0).status
        assert asked["target"].tolist() == opposite
        assert set(asked["status"]) == {"not_reached"}
    for label in (*labels, np.array(labels)[1], np.array(labels[0])):
        asked = explainer.explain(rows, label, time_limit=0).status
        assert asked["target"].tolist() == [label] * 4
        assert (asked["status"] == "already").tolist() == (decided == label).tolist()


def test_a_label_that_is_called_like_a_policy_is_the_label(frame):
    explainer = stand_in(frame, push={"income": 4.0}, labels=("runner_up", "opposite"), orders=ORDERS)
    asked = explainer.explain(frame.iloc[:6], "opposite", time_limit=0).status
    assert asked["target"].tolist() == ["opposite"] * 6


@pytest.mark.parametrize(
    ("labels", "target", "error", "message"),
    [
        (("no", "yes"), "maybe", InvalidInputError, "one of the outcomes 'no', 'yes'.*got 'maybe'"),
        (("no", "yes"), ["yes"], ShapeError, "`target` must have 2 outcomes, one for each row; got 1"),
        (
            ("no", "yes"),
            ["yes", "maybe"],
            InvalidInputError,
            "outcomes of the model, 'no', 'yes'; got 'maybe'",
        ),
        (("no", "yes"), [None, "yes"], InvalidInputError, "got None"),
        ((0, 1), True, InvalidInputError, "got True"),
        ((False, True), 1, InvalidInputError, "got 1"),
        ((0, 1), "1", InvalidInputError, "got '1'"),
        ((0, 1), torch.tensor([0, 1]), InvalidInputError, r"got tensor\(\[0, 1\]\)"),
        ((0, 1), pd.DataFrame({"a": [0, 1]}), InvalidInputError, "a list of one of them for each row"),
        ((0, 1), pd.NA, InvalidInputError, "got <NA>"),
    ],
    ids=str,
)
def test_what_cannot_be_wanted_is_refused(frame, labels, target, error, message):
    explainer = stand_in(frame, push={"income": 4.0}, labels=labels, orders=ORDERS)
    with pytest.raises(error, match=message):
        explainer.explain(frame.iloc[:2], target)


def test_with_three_outcomes_any_other_may_be_asked_for_but_none_is_the_opposite(quickly_trained):
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"a": draw.uniform(0, 9, 240), "b": draw.uniform(0, 1, 240)})
    grade = pd.cut(frame["a"], [0, 3, 6, 9], labels=["low", "mid", "top"]).rename("grade")
    explainer = Explainer(LinearClassifier(), confidence=None, judges=0).fit(frame, grade)
    rows = frame.iloc[:5]
    decided, proba = explainer.predict(rows), explainer.predict_proba(rows)
    assert proba.columns.tolist() == ["low", "mid", "top"]
    assert decided.name == "grade"
    second = proba.apply(lambda row: row.sort_values().index[-2], axis=1)
    result = explainer.explain(rows, "runner_up")
    assert result.status["target"].tolist() == second.tolist()
    found = explainer.predict(result.answers)
    assert found.tolist() == second.iloc[result.of].tolist()
    third = proba.idxmin(axis=1)
    assert explainer.predict(explainer.explain(rows, third).answers).isin(third.tolist()).all()
    with pytest.raises(InvalidInputError, match="needs two outcomes; this model has 3: 'low', 'mid', 'top'"):
        explainer.explain(rows)


# ---------------------------------------------------------------- missing values


@pytest.fixture(scope="module")
def gaps():
    return applicants(200, missing=True)


def test_kept_missing_values_stay_missing_and_the_model_sees_them(gaps):
    explainer = stand_in(gaps, push={"income": 4.0, "job": 0.5, "gain": 0.5}, orders=ORDERS)
    rows = gaps[gaps["gain"].isna() | gaps["job"].isna()].head(6)
    result = explainer.explain(rows)
    assert result.status["status"].tolist() == ["found"] * 6
    assert_frame_equal(result.counterfactuals.isna(), rows.isna())
    assert (explainer.predict(result.counterfactuals) == result.status["target"]).all()
    filled = rows.assign(job=rows["job"].fillna("clerk"), gain=rows["gain"].fillna(0.0))
    assert not explainer.predict_proba(rows).equals(explainer.predict_proba(filled))


def test_rows_with_all_values_keep_them(gaps):
    explainer = stand_in(gaps, push={"income": 4.0, "job": 0.5, "gain": 0.5}, orders=ORDERS)
    result = explainer.explain(gaps.dropna().head(6))
    assert not result.counterfactuals.isna().any(axis=None)


def test_a_value_that_no_training_row_misses_makes_a_row_invalid(by_income, frame):
    rows = frame.iloc[:2].astype({"age": float})
    rows.iloc[0, 0] = np.nan
    result = by_income.explain(rows)
    assert result.status["status"].tolist() == ["invalid_input", "found"]
    reason = result.status["reason"].iloc[0]
    assert "`age` is nan, which no training row misses" in reason
    assert 'missing="impute" fills it with' in reason


def test_imputed_values_are_the_median_and_the_most_common_level(gaps):
    explainer = stand_in(gaps, push={"income": 4.0}, missing="impute", orders=ORDERS)
    rows = gaps[gaps["gain"].isna() & gaps["job"].isna()].head(2)
    assert len(rows) == 2
    result = explainer.explain(rows)
    assert not result.counterfactuals.isna().any(axis=None)
    assert (result.counterfactuals["job"] == gaps["job"].mode()[0]).all()
    middle = gaps["gain"].dropna().sort_values().iloc[(gaps["gain"].notna().sum() - 1) // 2]
    assert (result.counterfactuals["gain"] == middle).all()
    filled = rows.assign(job=gaps["job"].mode()[0], gain=middle)
    assert explainer.predict_proba(rows).equals(explainer.predict_proba(filled))


def test_columns_that_lack_and_columns_too_many_are_one_error(by_income, frame):
    with pytest.raises(InvalidInputError) as raised:
        by_income.explain(frame.drop(columns=["age", "job"]).assign(height=1))
    assert "are not there: 'age', 'job'" in str(raised.value)
    assert "did not have the columns 'height'; drop them" in str(raised.value)


# ---------------------------------------------------------------- several answers, locks, weights


def test_several_answers_differ_and_the_cheapest_comes_first(frame):
    explainer = stand_in(frame, [Immutable("age")], push={"income": 3.0, "savings": 2.0, "job": 1.0})
    rows = frame.iloc[:4]
    one, several = explainer.explain(rows), explainer.explain(rows, k=3)
    assert several.status["answers"].tolist() == [3] * 4
    for i in range(4):
        costs = several.figures["cost"][several.of == i].tolist()
        assert costs == sorted(costs)
        assert costs[0] <= one.figures["cost"].iloc[i] + 1e-12
    assert not pd.concat([several.answers, pd.Series(several.of, name="of")], axis=1).duplicated().any()
    assert (explainer.predict(several.answers) == several.status["target"].iloc[several.of].to_numpy()).all()
    assert several.alternatives.index.get_level_values("rank").tolist() == [1, 2, 3] * 4


@pytest.mark.parametrize("form", ["names", "names by row", "table", "one column"])
def test_locked_features_keep_their_values_however_they_are_given(frame, form):
    explainer = stand_in(frame, push={"income": 2.0, "savings": 2.0, "age": 6.0}, orders=ORDERS)
    rows = frame.iloc[:3]
    locked = {
        "names": ["income", "savings"],
        "names by row": [["income"], (), {"savings", "age"}],
        "table": pd.DataFrame(True, index=[5, 5, 5], columns=["income", "savings"]),
        "one column": pd.DataFrame({"income": [True, False, True]}),
    }[form]
    kept = {
        "names": [["income", "savings"]] * 3,
        "names by row": [["income"], [], ["savings", "age"]],
        "table": [["income", "savings"]] * 3,
        "one column": [["income"], [], ["income"]],
    }[form]
    result = explainer.explain(rows, locked=locked)
    assert result.status["status"].tolist() == ["found"] * 3
    for i, names in enumerate(kept):
        assert result.counterfactuals[names].iloc[[i]].equals(rows[names].iloc[[i]])


def test_what_costs_more_changes_less(frame):
    def changes(weights):
        explainer = stand_in(
            frame[["income", "savings"]], push={"income": 3.0, "savings": 3.0}, weights=weights
        )
        result = explainer.explain(frame[["income", "savings"]].iloc[:5])
        return result.changes["feature"].value_counts()

    assert changes({"savings": 400.0}).index.tolist()[:1] == ["income"]
    assert changes({"income": 400.0}).index.tolist()[:1] == ["savings"]
    assert "savings" not in changes({"savings": 400.0})
    assert "income" not in changes({"income": 400.0})


@pytest.mark.parametrize("weight", [0, -1, np.nan, np.inf, "2", None, True, [1]], ids=repr)
def test_a_weight_must_be_a_positive_number(frame, weight):
    with pytest.raises(InvalidInputError, match="the weight of 'income' must be a positive number; got"):
        Explainer(LinearClassifier(), weights={"income": weight}).fit(frame, frame["owns"])


def test_weights_of_unknown_features_are_refused_all_at_once(frame):
    explainer = Explainer(LinearClassifier(), weights={"incme": 2, "age": -2}, kinds={"age": "integer"})
    with pytest.raises(InvalidInputError, match="'incme' is no feature that can change; the weight of 'age'"):
        explainer.fit(frame, frame["owns"])


def test_the_result_does_not_change_with_the_table_that_was_asked_about(by_income, frame):
    rows = frame.iloc[:3].copy()
    result = by_income.explain(rows)
    rows["income"] = 0
    assert result.rows.equals(frame.iloc[:3])


def test_the_set_of_verdicts_is_the_documented_one():
    from plausiflow.explanations.checks import STATUSES as documented

    assert set(documented) == STATUSES
