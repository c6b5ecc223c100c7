"""Actions for rows that are unlike others, and the changes that go along with an action."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from plausiflow import GMM, Explainer
from plausiflow.explainer.assigning import GroupCall, group_request, rows_in_need
from plausiflow.groups import needed_features, search_task
from plausiflow.groups.actions import actions_of
from plausiflow.groups.pairs import nearest_real, solve_others, try_actions
from plausiflow.groups.proposals import _sufficient
from plausiflow.search import finish_answers, search_rows

NAMES = ["a", "b", "c", "d", "e", "f"]


def correlated(n, seed=0):
    """Six numbers that follow one another, and a few rows in which all are zero."""
    rng = np.random.default_rng(seed)
    level = rng.uniform(2, 8, n)
    x = level[:, None] + 0.055 * rng.normal(size=(n, 6))
    x[: n // 20] = 0.0
    return pd.DataFrame(x, columns=NAMES), np.where(x[:, :3].mean(axis=1) > 5, "yes", "no")


@pytest.fixture(scope="module")
def explainer():
    x, y = correlated(600)
    model = LogisticRegression(max_iter=1000).fit(x, y)
    model.coef_[:, 3:] = 0.0  # the last three only follow
    model.intercept_[:] = -5 * model.coef_.sum()
    kinds, special = dict.fromkeys(NAMES, "continuous"), {name: [] for name in NAMES}
    explainer = Explainer(
        model, density=GMM(), confidence=None, judges=0, learn_rules=False, kinds=kinds, special=special
    )
    return explainer.fit(x, y, verbose=False)


@pytest.fixture(scope="module")
def declined(explainer):
    x, _ = correlated(400, seed=1)
    return x[explainer.predict(x) == "no"].reset_index(drop=True)


def task_of(explainer, rows):
    call = GroupCall(target="yes", min_probability=None, constraints=(), second_opinion=True)
    engine, request, _ = group_request(explainer, rows, call)
    return engine, request, search_task(engine, request, rows_in_need(request))


def test_a_handful_of_actions_also_helps_rows_unlike_all_others(explainer, declined):
    groups = explainer.explain_groups(declined, "yes", groups=4, verbose=False)
    zero = (declined == 0).all(axis=1).to_numpy()
    assert zero.sum() > 10
    assert (groups.action[zero] > 0).all()
    assert groups.covered > 0.9
    assert (explainer.predict(groups.explanations.best_answers) == "yes").all()


def test_what_goes_along_with_an_action_starts_from_a_real_row_where_the_row_is_far(explainer, declined):
    engine, _, task = task_of(explainer, declined)
    far = (task.x < 0.05).all(dim=1).nonzero()[:3, 0]
    near = nearest_real(task, engine.bank)
    x_cf = task.x[far].clone()
    x_cf[:, :3] = near[far][:, :3] + 0.05
    features = torch.tensor([[True, True, True, False, False, False]]).expand(len(far), -1)
    actions = actions_of(task.layout, task.x[far], x_cf, task.y_target[far], features, "reach")
    trials = try_actions(task, actions, far, torch.arange(len(far)))
    assert trials.possible.all()
    assert not trials.enough.any()
    alone = solve_others(task, actions, trials, torch.full_like(near, torch.nan))
    helped = solve_others(task, actions, trials, near)
    assert torch.isinf(alone.cost).all()
    assert torch.isfinite(helped.cost).all()
    assert (task.scores.score(helped.x, helped.rows) >= 0).all()
    assert torch.equal(helped.x[:, :3], trials.x[:, :3])


def test_nearest_real_rows_are_decided_as_wanted_and_plausible(explainer, declined):
    engine, _, task = task_of(explainer, declined)
    near, rows = nearest_real(task, engine.bank), torch.arange(len(task))
    assert (task.model_value(near, rows) >= 0).all()
    assert (task.scores.score(near, rows) >= 0).all()


def test_sufficient_changes_hold_the_needed_ones_and_change_the_decision_alone(explainer, declined):
    engine, request, task = task_of(explainer, declined.iloc[:30])
    encoder, _, _ = explainer._fitted()
    found = finish_answers(engine, encoder, request, search_rows(engine, encoder, request, reasons=False))
    layout, x = task.layout, task.x[found.of]
    changed, needed = layout.changed(found.x_cf, x), needed_features(layout, found.roles, len(found.of))
    gains = torch.rand(changed.shape, generator=torch.Generator().manual_seed(0), dtype=x.dtype)
    enough = _sufficient(task, found.x_cf, found.of, changed, needed, gains)
    assert enough.any(dim=1).all()
    assert not (enough & ~changed).any()
    assert not (needed & ~enough).any()
    columns = (enough.double() @ task.block_columns.double()) > 0
    alone = torch.where(columns, found.x_cf, x)
    assert (task.model_value(alone, found.of) >= 0).all()
