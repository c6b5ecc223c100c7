"""Greedy cover and swaps, against all choices of small tables."""

from itertools import combinations

import pytest
import torch

from plausiflow.groups.cover import coverage, greedy_cover, greedy_worth, swap_actions, swap_worth


def random_costs(seed, n=14, c=7, share=0.35):
    generator = torch.Generator().manual_seed(seed)
    cost = torch.rand(n, c, generator=generator, dtype=torch.float64)
    return torch.where(torch.rand(n, c, generator=generator) < share, cost, torch.inf)


def best_cover(cost, count):
    return max(
        coverage(cost, torch.tensor(choice))[0] for choice in combinations(range(cost.shape[1]), count)
    )


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("count", [1, 2, 3])
def test_greedy_covers_what_the_guarantee_says(seed, count):
    cost = random_costs(seed)
    covered = coverage(cost, greedy_cover(cost, count))[0]
    assert covered >= (1 - (1 - 1 / count) ** count) * best_cover(cost, count) - 1e-9


def test_one_action_is_the_best_one():
    cost = random_costs(3)
    assert coverage(cost, greedy_cover(cost, 1))[0] == best_cover(cost, 1)


@pytest.mark.parametrize("seed", range(12))
def test_swaps_never_cover_fewer_rows_and_never_cost_more_for_as_many(seed):
    cost = random_costs(seed)
    before = greedy_cover(cost, 3)
    after = swap_actions(cost, before)
    (first, paid), (second, then) = coverage(cost, before), coverage(cost, after)
    assert second > first or (second == first and then <= paid + 1e-9)


def test_no_swap_improves_the_result():
    cost = random_costs(5)
    chosen = swap_actions(cost, greedy_cover(cost, 3))
    covered, paid = coverage(cost, chosen)
    for place in range(3):
        for other in range(cost.shape[1]):
            trial = chosen.clone()
            trial[place] = other
            count, total = coverage(cost, trial)
            assert (count, -total) <= (covered, -paid + 1e-9)


def test_spare_actions_lower_the_cost_once_all_rows_are_covered():
    cost = torch.tensor([[5.0, 1.0, 9.0], [5.0, torch.inf, 9.0]], dtype=torch.float64)
    assert greedy_cover(cost, 3).tolist() == [0, 1]


def test_no_action_is_chosen_if_none_helps():
    assert greedy_cover(torch.full((3, 2), torch.inf), 2).tolist() == []


def best_worth(worth, count):
    choices = combinations(range(worth.shape[1]), count)
    return max(float(worth[:, list(choice)].amax(dim=1).sum()) for choice in choices)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("count", [1, 2, 3])
def test_greedy_worth_is_what_the_guarantee_says_and_swaps_add_to_it(seed, count):
    worth = (1 - random_costs(seed) / 0.8).clamp_min(0)
    chosen = greedy_worth(worth, count)
    swapped = swap_worth(worth, chosen)
    first, second = (float(worth[:, some].amax(dim=1).sum()) for some in (chosen, swapped))
    best = best_worth(worth, count)
    assert first >= (1 - (1 - 1 / count) ** count) * best - 1e-9
    assert first - 1e-9 <= second <= best + 1e-9


def test_an_action_that_adds_nothing_is_not_chosen():
    assert greedy_worth(torch.tensor([[0.5, 0.5], [0.2, 0.1]]), 2).tolist() == [0]
