"""Learned rules in the explainer: answers obey them, they can be switched off, and they are saved."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from plausiflow import Decreasing, Explainer, Immutable, Increasing, LinearClassifier, Range
from plausiflow.constraints import NeverTogether, RowChanges
from plausiflow.densities import KDE
from plausiflow.errors import InvalidInputError
from reporting import page_of


def table(n, seed):
    generator = np.random.default_rng(seed)
    married = generator.random(n) < 0.5
    net, tax = generator.integers(10, 100, n), generator.integers(0, 30, n)
    x = pd.DataFrame(
        {
            "status": np.where(married, "married", generator.choice(["single", "widowed"], n)),
            "spouse": np.where(married, "yes", "no"),
            "net": net,
            "tax": tax,
            "total": net + tax,
        }
    )
    odds = (x["total"] - 70) / 8 + 1.5 * (x["spouse"] == "yes")
    return x, pd.Series(np.where(odds + generator.normal(0, 0.5, n) > 0, "good", "bad"))


@pytest.fixture(scope="module")
def explainer():
    rules = [Increasing("tax"), Range("net", 0, 90)]
    return Explainer(LinearClassifier(), constraints=rules, confidence=None, judges=0).fit(*table(500, 0))


def test_the_rules_are_listed_with_their_evidence(explainer):
    texts = [str(rule) for rule in explainer.learned_rules]
    assert 'Equal("total", "net + tax")' in texts
    assert 'Determines("status", "spouse")' in texts
    assert all(rule.exceptions == 0 and rule.rows == 500 for rule in explainer.learned_rules)


def test_an_explainer_shows_its_learned_rules(explainer):
    count = len(explainer.learned_rules)
    assert repr(explainer).endswith(f"; {count} rules learned from the table)")
    html = explainer._repr_html_()
    assert "learned rules" in html
    assert "learned from 500 rows, 0 exceptions" in html


def test_the_report_shows_the_learned_rules_with_support_and_exceptions(explainer, tmp_path):
    explainer.switch_off('Equal("total", "net + tax")')
    try:
        page = page_of(explainer.explain(table(4, 5)[0]), tmp_path)
    finally:
        explainer.switch_on('Equal("total", "net + tax")')
    head, *lines = page.tables()["Rules learned from the table"]
    assert head == ["Rule", "Rows it was learned from", "Rows it is about", "Exceptions"]
    assert len(lines) == len(explainer.learned_rules)
    assert ["status determines spouse", "500", "500", "0"] in lines
    assert ["total = net + tax (switched off: answers may break it)", "500", "500", "0"] in lines


def test_a_long_list_of_learned_rules_is_folded_in_the_report(explainer, tmp_path):
    result = explainer.explain(table(1, 5)[0])
    many = replace(result, learned_rules=[explainer.learned_rules[0]] * 20)
    tables = page_of(many, tmp_path).tables()
    assert len(tables["Rules learned from the table"]) == 1 + 12
    assert len(tables["Rules learned from the table: 8 more"]) == 1 + 8
    none = page_of(replace(result, learned_rules=()), tmp_path)
    assert "Rules learned from the table" not in none.raw


def test_answers_obey_the_learned_rules(explainer):
    x, _ = table(30, 1)
    result = explainer.explain(x)
    found = result.status["status"].eq("found").to_numpy()
    assert found.sum() >= 0.9 * (result.status["status"] != "already").sum()
    after, before = result.counterfactuals[found], x[found]
    assert (after["total"] == after["net"] + after["tax"]).all()
    assert ((after["status"] == "married") == (after["spouse"] == "yes")).all()
    features = {feature.name: feature for feature in explainer.encoder_.schema.features}
    changes = RowChanges(features, before, after)
    assert not any(rule.broken(changes).any() for rule in explainer.learned_rules)


def test_a_rule_is_switched_off_and_on_and_saved(explainer, tmp_path):
    rule = explainer.learned_rules[0]
    try:
        explainer.switch_off(rule)
        assert [r.active for r in explainer.learned_rules].count(False) == 1
        assert str(rule) not in explainer.engine_.rules.names
        explainer.save(tmp_path / "one")
        loaded = Explainer.load(tmp_path / "one")
        assert loaded.learned_rules == explainer.learned_rules
        assert loaded.engine_.rules.names == explainer.engine_.rules.names
        x, _ = table(5, 2)
        pd.testing.assert_frame_equal(loaded.explain(x).counterfactuals, explainer.explain(x).counterfactuals)
    finally:
        explainer.switch_on(str(rule))
    assert str(rule) in explainer.engine_.rules.names
    with pytest.raises(InvalidInputError, match=r"explainer\.learned_rules"):
        explainer.switch_off("no such rule")


def test_a_row_that_breaks_a_rule_still_gets_an_answer(explainer):
    x, _ = table(20, 3)
    x["spouse"] = "no"
    x["status"] = "married"
    statuses = explainer.explain(x.assign(total=x["net"] + x["tax"])).status["status"]
    assert statuses.isin(["found", "already"]).mean() > 0.8


def test_a_learned_rule_that_blocks_is_named_and_switching_it_off_helps():
    generator = np.random.default_rng(0)
    x = pd.DataFrame({"p": generator.integers(10, 60, 900), "q": generator.integers(10, 60, 900)})
    x["total"], x["z"] = x["p"] + x["q"], generator.normal(0, 1, 900)
    y = np.where(x["total"] + generator.normal(0, 1, 900) > 70, "yes", "no")
    settings = {"density": KDE(), "confidence": None, "judges": 0, "plausibility": 0.05}
    fitted = Explainer(LinearClassifier(), constraints=[Immutable("p", "q")], **settings).fit(x, y)
    rows = x[(x["total"] > 66) & (x["total"] < 74)].iloc[:8]
    before = fitted.explain(rows).status
    blocked = before["status"] == "infeasible"
    assert blocked.any()
    # A proof names one of the smallest sets of rules to relax: this rule, or one locked feature.
    reasons = before.loc[blocked, "reason"]
    named = reasons.str.contains('Equal("total", "p + q")', regex=False)
    assert named.any()
    assert (named | reasons.str.contains("proven.*allow `[pq]` to change")).all()
    fitted.switch_off('Equal("total", "p + q")')
    assert (fitted.explain(rows).status["status"] == "found").all()


def test_learning_can_be_left_out():
    fitted = Explainer(LinearClassifier(), learn_rules=False, confidence=None, judges=0).fit(*table(200, 0))
    assert fitted.learned_rules == ()


def test_a_contradiction_of_the_fit_has_a_way_out_that_works(explainer):
    x, _ = table(3, 4)
    with pytest.raises(InvalidInputError) as error:
        explainer.explain(x, constraints=[Decreasing("tax")])
    assert "pass locked=['tax']" in str(error.value)
    assert len(explainer.explain(x, locked=["tax"])) == 3
    with pytest.raises(InvalidInputError) as error:
        explainer.explain(x, constraints=[Range("net", 95, 99)])
    assert "overlaps 0 to 90" in str(error.value)
    assert len(explainer.explain(x, constraints=[Range("net", 50, 99)])) == 3


def test_single_pairs_of_a_rule_are_switched_off_and_on():
    i = np.arange(200)
    a, b = np.array(list("wxyz"))[i % 4], np.array(list("stuv"))[(i // 4) % 4]
    absent = [("w", "t"), ("x", "u"), ("y", "v")]  # of about 12 rows each: too few for an implication
    frame = pd.DataFrame({"a": a, "b": ["s" if p in absent else p[1] for p in zip(a, b, strict=True)]})
    frame["c"] = np.sin(i)
    explainer = Explainer(LinearClassifier(), density=KDE(), confidence=None, judges=0)
    explainer.fit(frame, np.where(frame["c"] > 0, "yes", "no"))
    (rule,) = explainer.learned_rules
    pair = rule.rule.pairs[0]
    explainer.switch_off(NeverTogether((pair,)))
    kept, off = explainer.learned_rules
    assert (kept.active, off.active) == (True, False)
    assert off.rule.pairs == (pair,)
    assert {*kept.rule.pairs, pair} == {*rule.rule.pairs}
    explainer.switch_on(off)
    assert all(each.active for each in explainer.learned_rules)
    with pytest.raises(InvalidInputError, match="must be learned rules"):
        explainer.switch_off(NeverTogether((("a", "w", "b", "s"),)))
