"""Learned rules that are checked all at once, against each rule on its own."""

import numpy as np
import pytest

import plausiflow as pf
from plausiflow.constraints.learned import LearnedRule
from plausiflow.constraints.violations import RowChanges
from plausiflow.datasets import load_table
from plausiflow.densities import KDE
from plausiflow.models import LinearClassifier


@pytest.fixture(scope="module", params=["contacts", "orders"])
def learned(request):
    train, test = load_table(request.param).split(800, 200)
    explainer = pf.Explainer(
        LinearClassifier(), density=KDE(), confidence=None, judges=0, orders=train.orders
    ).fit(train.x, train.y, verbose=False)
    return explainer.engine_.rules, test.x.reset_index(drop=True)


def test_rules_checked_at_once_find_what_each_rule_finds(learned):
    rules, before = learned
    generator, after = np.random.default_rng(0), before.copy()
    for name in after:
        other = before[name].iloc[generator.permutation(len(before))].reset_index(drop=True)
        after[name] = after[name].where(generator.random(len(before)) < 0.7, other)
    own = [rule for rule in rules.constraints if isinstance(rule, LearnedRule)]
    changes = RowChanges(rules.features, before, after)
    found = rules.violations(before, after)
    assert len(own) > 3
    assert sum(rule.broken(changes).any() for rule in own) > 3
    for name in {str(rule) for rule in own}:
        each = np.any([rule.broken(changes) for rule in own if str(rule) == name], axis=0)
        np.testing.assert_array_equal(found[name].to_numpy(bool), each)
    unchanged = rules.violations(before, before)
    assert not unchanged[[str(rule) for rule in own]].to_numpy().any()
