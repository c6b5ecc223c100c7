"""A fitted explainer: its verdicts against pandas, the model and the members one by one."""

import numpy as np
import pytest
import torch
from pandas.testing import assert_frame_equal

from explaining import broken_rules, cells, same, unlike_training
from plausiflow import Explainer, LinearClassifier, MLPClassifier, Training
from plausiflow.constraints import Allowed, Immutable, Increasing, Linear, Range
from plausiflow.datasets.tables import loans_table
from plausiflow.errors import NotFittedError

RULES = [
    Immutable("age", "sex"),
    Increasing("education"),
    Range("debt_ratio", 0, 0.6),
    Linear("loan_amount <= 3 * income"),
    Allowed("job", {"manual": ["clerk"], "clerk": ["manager"], "specialist": ["manager", "clerk"]}),
]
ROWS = 14


@pytest.fixture(scope="module")
def table():
    return loans_table(n=400)


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
    ensemble, encoder = loans.engine_.plausibility, loans.encoder_
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
    assert not torch.equal(first.engine_.plausibility.thresholds_, other.engine_.plausibility.thresholds_)


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
    assert explainer.engine_.plausibility.margin_.shape == (2,)
    judged = explainer.explain(x.iloc[:3]).figures["judged"]
    assert judged.isin([0, 0.5, 1]).all()
    without = Explainer(LinearClassifier(), confidence=None, judges=0).fit(x, y)
    assert without.engine_.plausibility.margin_.tolist() == [0, 0]
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
