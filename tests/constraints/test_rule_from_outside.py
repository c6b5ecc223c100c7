"""A rule that a user defines outside the package: what it allows, who breaks it, and its JSON."""

import json
import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from plausiflow import Explainer
from plausiflow.constraints import (
    Immutable,
    Limits,
    Linear,
    MaxChanges,
    Range,
    RowChanges,
    Rule,
    rule_from_dict,
    rules_from_dicts,
)
from plausiflow.errors import InvalidInputError
from rule_table import ENCODER, allowance_for, people, row, rules_for


@dataclass(frozen=True)
class MultipleOf(Rule):
    """A number that changes becomes a multiple of ``of``."""

    feature: str
    of: float

    def narrow(self, limits):
        return limits.restrict_step(self.of)

    def broken(self, changes):
        return changes.changed(self.feature) & (changes.numbers_after(self.feature) % self.of != 0)


@dataclass(frozen=True)
class Within(Rule):
    """A number that changes by at most a share of its own value."""

    feature: str
    share: float = 0.1

    def problems(self, features):
        return [f"`{f.name}` has no numbers" for f in features.values() if not f.is_numeric]

    def narrow(self, limits):
        return limits.clip(limits.values * (1 - self.share), limits.values * (1 + self.share))

    def broken(self, changes):
        before, after = changes.numbers_before(self.feature), changes.numbers_after(self.feature)
        return np.abs(after - before) > self.share * np.abs(before)


@dataclass(frozen=True)
class Unsteered(Rule):
    """A rule that only checks: nobody ends exactly at fifty."""

    def broken(self, changes):
        return changes.numbers_after("age") == 50


def test_a_step_becomes_the_grid_of_the_search():
    rules = rules_for(MultipleOf("age", 5), Range("age", 31, None))
    block = rules.layout.block("age")
    x = ENCODER.encode(row(age=42)).x
    x[:, block.number] += 0.04
    assert block.scale.decode(rules.layout.snap(x)[0, block.number]) == 45
    allowance = rules.for_rows(ENCODER.encode(row(age=42)).x, row(age=42))
    assert allowance.layout == rules.layout
    assert block.scale.decode(allowance.lower[0, block.number]).item() == pytest.approx(35)
    assert rules.for_rows(x, row(age=42), without=0).layout == ENCODER.layout
    assert ENCODER.layout.block("age").scale.step == 1
    assert rules_for().layout is ENCODER.layout


def test_several_steps_become_their_common_multiple():
    rules = rules_for(MultipleOf("age", 4), MultipleOf("age", 6), MultipleOf("rent", 0.25))
    assert rules.layout.block("age").scale.step == 12
    assert rules.layout.block("rent").scale.step == 0.25


def test_points_on_the_grid_of_a_rule_break_no_rule():
    rules = rules_for(MultipleOf("age", 5), MultipleOf("income", 0.5), Within("rent", 0.2))
    before = people(60, 3)
    x = ENCODER.encode(before).x
    allowance = rules.for_rows(x, before)
    moved = allowance.lower + torch.rand(x.shape) * (allowance.upper - allowance.lower)
    numbers = rules.layout.numbers
    x_cf = x.clone()
    x_cf[:, numbers] = rules.layout.snap(moved)[:, numbers].clamp(
        allowance.lower[:, numbers], allowance.upper[:, numbers]
    )
    x_cf = rules.layout.with_codes(x_cf, rules.layout.codes(x))
    fine = allowance.contains(x_cf).numpy()
    assert fine.sum() > 20
    broken = rules.violations(before, ENCODER.decode(x_cf, like=before))
    on_grid = (rules.layout.snap(x_cf) == x_cf)[:, numbers].all(dim=1).numpy()
    assert not broken[fine & on_grid].to_numpy().any()


def test_bounds_may_depend_on_the_row():
    before = people(40, 4)
    allowance = rules_for(Within("age", 0.1)).for_rows(ENCODER.encode(before).x, before)
    block = ENCODER.layout.block("age")
    lower = block.scale.decode(allowance.lower[:, block.number])
    upper = block.scale.decode(allowance.upper[:, block.number])
    age = torch.tensor(before["age"].to_numpy(), dtype=torch.float64)
    torch.testing.assert_close(lower, torch.maximum(torch.ceil(0.9 * age - 1e-9), torch.tensor(17.0)))
    torch.testing.assert_close(upper, torch.minimum(torch.floor(1.1 * age + 1e-9), torch.tensor(79.0)))
    assert allowance.possible.all()


def test_a_row_without_a_value_is_not_bound():
    allowance = allowance_for(Within("rent", 0.1), rent=math.nan)
    assert allowance.possible.all()


def test_bounds_of_the_row_cut_the_levels_of_numbers():
    levels = ENCODER.layout.block("children").level_slice
    assert allowance_for(Within("children", 0.5), children=2).levels[0, levels].tolist() == [
        False,
        True,
        True,
        True,
    ]


def test_a_broken_rule_has_a_column_of_its_own():
    rules = rules_for(MultipleOf("age", 5), Unsteered(), MaxChanges(2))
    broken = rules.violations(people(3, 1).assign(age=[40, 41, 42]), people(3, 1).assign(age=[50, 43, 42]))
    assert broken["MultipleOf(feature='age', of=5)"].tolist() == [False, True, False]
    assert broken["Unsteered()"].tolist() == [True, False, False]


def test_problems_are_listed_with_those_of_other_rules():
    with pytest.raises(InvalidInputError) as error:
        rules_for(Within("job"), Within("agee"), Immutable("sex"))
    assert "Within(feature='job', share=0.1): `job` has no numbers" in str(error.value)
    assert "there is no feature 'agee'; did you mean 'age'?" in str(error.value)
    assert "there is no feature 'sex'" in str(error.value)


@pytest.mark.parametrize(("rule", "got"), [(MultipleOf("job", 5), "category"), (MultipleOf("age", -1), "-1")])
def test_a_step_that_does_not_fit_is_refused(rule, got):
    with pytest.raises(InvalidInputError, match=rf"The step of `(job|age)` must be positive.*{got}"):
        rules_for(rule)


def test_a_rule_from_outside_survives_json():
    rules = (MultipleOf("age", 5), Within("rent"), Within("rent", 0.3), Linear("rent <= income"), Unsteered())
    written = json.loads(json.dumps([rule.to_dict() for rule in rules]))
    assert written[0] == {"rule": "MultipleOf", "feature": "age", "of": 5}
    assert rules_from_dicts(written) == rules
    assert rule_from_dict({"rule": "Within", "feature": "rent"}) == Within("rent", 0.1)


def test_an_unknown_rule_or_key_is_named():
    with pytest.raises(InvalidInputError, match=r"got 'Odd'\. Import the module that defines it"):
        rule_from_dict({"rule": "Odd", "feature": "age"})
    with pytest.raises(
        InvalidInputError, match=r"MultipleOf takes feature, of: of is missing, by is unknown"
    ):
        rule_from_dict({"rule": "MultipleOf", "feature": "age", "by": 5})


def test_a_name_is_taken_once():
    body = {"broken": lambda self, changes: np.zeros(len(changes.after), bool), "__module__": "elsewhere"}
    with pytest.raises(InvalidInputError, match="Range of elsewhere already exists in plausiflow"):
        type("Range", (Rule,), dict(body))
    assert rule_from_dict({"rule": "Range", "feature": "age", "lo": 1}) == Range("age", 1)


def test_a_rule_must_say_who_breaks_it_and_be_hashable():
    with pytest.raises(TypeError, match="abstract"):
        Rule()

    @dataclass
    class _Mutable(Rule):
        def broken(self, changes: RowChanges):
            return changes.changed("age")

        def narrow(self, limits: Limits):
            return limits

    with pytest.raises(InvalidInputError, match=r"is not a rule; expected .* a frozen dataclass"):
        rules_for(_Mutable())


# ---------------------------------------------------------------- through the explainer


class _Everything:
    """A plausibility that every row passes."""

    def score(self, x, y):
        return torch.ones(len(x), dtype=x.dtype)


@pytest.fixture(scope="module")
def loans():
    i = np.arange(120)
    x = pd.DataFrame({"income": 37 * i % 61, "amount": 100 * (i % 47), "age": 20 + i % 31})
    return x, np.where(x["income"] - x["amount"] / 100 > 5, "granted", "rejected")


def _explain(loans, constraints, more):
    x, y = loans
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y)
    explainer = Explainer(model, constraints=constraints, plausibility=_Everything(), judges=0).fit(x, y)
    rows = x[model.predict(x) == "rejected"][:10]
    return rows, explainer.explain(rows, target="granted", constraints=more)


@pytest.mark.parametrize("fitted", [True, False])
def test_answers_obey_a_rule_from_outside_given_to_the_explainer_or_to_explain(loans, fitted):
    rules = [MultipleOf("amount", 500), Within("income", 0.5)]
    rows, result = _explain(loans, rules if fitted else [], [] if fitted else rules)
    answers = result.counterfactuals
    found = (result.status["status"] == "found").to_numpy()
    assert found.sum() >= 3
    before, after = rows[found], answers[found]
    kept = before["amount"].to_numpy() == after["amount"].to_numpy()
    assert (kept | (after["amount"] % 500 == 0)).all()
    assert not kept.all()
    assert ((after["income"] - before["income"]).abs() <= 0.5 * before["income"] + 1e-9).all()


def test_a_verdict_names_the_rule_from_outside_that_blocks(loans, monkeypatch):
    monkeypatch.setattr("plausiflow.search.certify.is_installed", lambda: False)
    _, result = _explain(loans, [Immutable("age", "amount")], [Within("income", 0.0)])
    assert set(result.status["status"]) == {"infeasible"}
    assert (
        result.status["reason"].str.contains("Within(feature='income', share=0.0) blocks", regex=False).all()
    )


def test_a_proof_names_the_rule_from_outside_or_a_feature_to_allow(loans):
    pytest.importorskip("ortools")
    _, result = _explain(loans, [Immutable("age", "amount")], [Within("income", 0.0)])
    assert set(result.status["status"]) == {"infeasible"}
    named = r"without Within\(feature='income', share=0\.0\) there is one|allow `(?:age|amount)` to change"
    assert result.status["reason"].str.contains(f"^proven: .*(?:{named})").all()
