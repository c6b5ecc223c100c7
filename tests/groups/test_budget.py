"""Limits on what members cost: the choice against all choices of small tables, and calls with limits."""

import json
import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch

from explaining import stand_in
from plausiflow.errors import InvalidInputError
from plausiflow.groups import Budget, mean_limit
from searching import ORDERS, applicants

PUSH = {"income": 4.0, "savings": 2.0, "school": 1.0}

pytestmark = pytest.mark.usefixtures("few_proposals")


@pytest.fixture(scope="module")
def explainer():
    return stand_in(applicants(160), push=PUSH, radius=1.6, orders=ORDERS)


@pytest.fixture(scope="module")
def rows():
    return applicants(160).iloc[:40]


@pytest.fixture(scope="module")
def free(explainer, rows):
    """Actions without a limit on the cost."""
    return explainer.explain_groups(rows, "yes", groups=4)


@pytest.fixture(scope="module")
def mean(free):
    """Half of what members cost without a limit."""
    return 0.5 * float(np.nanmean(costs(free)))


@pytest.fixture(scope="module")
def cheap(explainer, rows, mean):
    return explainer.explain_groups(rows, "yes", groups=4, mean_cost=mean)


def costs(groups):
    return groups.explanations.found_figures("cost")


def random_costs(seed, n=14, c=7, share=0.5):
    generator = torch.Generator().manual_seed(seed)
    cost = torch.rand(n, c, generator=generator, dtype=torch.float64)
    return torch.where(torch.rand(n, c, generator=generator) < share, cost, torch.inf)


def most_within(cost, count, mean):
    """Return the most rows that any choice helps within a mean cost, by trying all choices."""
    best = 0
    for choice in combinations(range(cost.shape[1]), count):
        least = cost[:, list(choice)].amin(dim=1).sort().values
        means = least.cumsum(0) / torch.arange(1, len(least) + 1)
        best = max(best, int((means <= mean).sum()))
    return best


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("mean", [0.1, 0.25])
def test_the_choice_helps_nearly_as_many_rows_as_the_best_one(seed, mean):
    cost = random_costs(seed)
    chosen, limit = Budget(mean=mean).choose(cost, 3)
    least = cost[:, chosen].amin(dim=1) if len(chosen) else torch.full((14,), torch.inf)
    members = least[torch.isfinite(least) & (least <= limit)]
    assert float(members.sum()) <= mean * len(members) + 1e-9
    assert len(members) >= most_within(cost, 3, mean) - 1


def test_without_a_limit_the_choice_is_the_greedy_cover():
    cost = random_costs(3)
    chosen, limit = Budget().choose(cost, 3)
    assert math.isinf(limit)
    covered = int(torch.isfinite(cost[:, chosen]).any(dim=1).sum())
    best = max(
        int(torch.isfinite(cost[:, list(choice)]).any(dim=1).sum()) for choice in combinations(range(7), 3)
    )
    assert covered >= best - 1


def test_actions_that_cost_too_much_are_not_chosen():
    cost = torch.tensor([[0.2, 0.1], [0.3, 3.0], [torch.inf, 3.0], [torch.inf, 3.0]], dtype=torch.float64)
    assert Budget(most=1.0).choose(cost, 1)[0].tolist() == [0]
    assert Budget().choose(cost, 1)[0].tolist() == [1]
    assert Budget(mean=0.25).choose(cost, 1)[0].tolist() == [0]
    chosen, _ = Budget(mean=0.01).choose(cost, 2)
    assert len(chosen) == 0


def test_equal_costs_are_all_within_a_limit_or_none_is():
    cost = torch.tensor([0.5, 1.0, 1.0, 1.0], dtype=torch.float64)
    assert mean_limit(cost, 0.7) == 0.5
    assert mean_limit(cost, 0.875) == 1.0
    assert mean_limit(cost, 0.4) == 0.0


def test_the_members_keep_the_mean_and_the_limit(cheap, mean):
    own = costs(cheap)
    assert np.isfinite(own).any()
    assert np.nanmean(own) <= mean + 1e-9
    assert np.nanmax(own) <= cheap.limit


def test_actions_chosen_for_a_mean_help_no_fewer_rows_than_the_cheapest_of_others(free, cheap, mean):
    ordered = np.sort(costs(free)[np.isfinite(costs(free))])
    within = (np.cumsum(ordered) / np.arange(1, len(ordered) + 1) <= mean).sum()
    assert (cheap.action > 0).sum() >= within


def test_every_member_is_decided_as_wanted_and_plausible(cheap, explainer):
    result = cheap.explanations
    assert (explainer.predict(result.best_answers) == "yes").all()
    assert (result.figures["score"] >= 0).all()


def test_the_frontier_counts_members_within_each_limit(free):
    own = costs(free)[free.action > 0]
    table = free.frontier
    assert table["max_cost"].is_monotonic_increasing
    assert table["members"].iloc[-1] == len(own)
    for line in table.itertuples():
        within = own[own <= line.max_cost]
        assert line.members == len(within)
        assert line.mean_cost == pytest.approx(within.mean())
        assert line.share == pytest.approx(len(within) / free.explanations.is_needed.sum())
    assert len(free.assign(free.explanations.rows.iloc[:0]).frontier) == 0


def test_rows_above_the_limit_are_told_so(free, rows):
    limit = float(np.nanquantile(costs(free), 0.5))
    for fixed in ({"limit": limit}, {"limit": limit, "most": limit}):
        assigner = replace(free.assigner, fixed=replace(free.assigner.fixed, **fixed))
        reasons = assigner(rows).uncovered["reason"]
        above = rows.index[np.nan_to_num(costs(free)) > limit]
        assert set(reasons[above]) == {"no action helps it at a cost within the limit"}


def test_a_row_alone_gets_the_same_action_within_the_limit(cheap):
    rows = cheap.explanations.rows
    for place in (*np.flatnonzero(cheap.action > 0)[:3], *np.flatnonzero(cheap.action == 0)[:3]):
        alone = cheap.assign(rows.iloc[[place]])
        assert alone.action.tolist() == [cheap.action[place]]
        assert alone.limit == cheap.limit


def test_no_member_costs_more_than_the_most(explainer, rows, free):
    most = float(np.nanquantile(costs(free), 0.3))
    groups = explainer.explain_groups(rows, "yes", groups=4, max_cost=most)
    assert groups.limit == most
    assert np.nanmax(costs(groups)) <= most
    assert (groups.action > 0).sum() >= (costs(free) <= most).sum()


def test_both_limits_hold_together(explainer, rows, mean):
    groups = explainer.explain_groups(rows, "yes", groups=3, max_cost=0.8 * mean, mean_cost=0.5 * mean)
    own = costs(groups)
    assert np.isnan(own).all() or (np.nanmax(own) <= 0.8 * mean and np.nanmean(own) <= 0.5 * mean + 1e-9)


def test_a_limit_that_allows_everything_changes_nothing(explainer, rows, free):
    groups = explainer.explain_groups(rows, "yes", groups=4, max_cost=1e6)
    assert groups.action.tolist() == free.action.tolist()


def test_nobody_is_helped_for_almost_nothing(explainer, rows, tmp_path):
    groups = explainer.explain_groups(rows, "yes", groups=2, mean_cost=1e-6)
    assert groups.covered == 0
    assert len(groups) == 0
    groups.to_html(tmp_path / "report.html")
    assert json.loads(groups.to_json())["covered"] == 0


def test_files_have_the_limit(cheap, free, tmp_path):
    assert json.loads(cheap.to_json())["limit"] == cheap.limit
    assert json.loads(free.to_json())["limit"] is None
    cheap.to_html(tmp_path / "report.html")
    assert f"at a cost of at most {cheap.limit:.3g} each" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), "cheap", True])
@pytest.mark.parametrize("name", ["max_cost", "mean_cost"])
def test_limits_must_be_positive_numbers(explainer, rows, name, value):
    with pytest.raises(InvalidInputError, match=f"`{name}` must be a number above 0"):
        explainer.explain_groups(rows, "yes", **{name: value})
