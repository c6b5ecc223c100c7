"""The study of six fresh judges: its seeds, and its means."""

import pytest

from plausiflow.densities import Judges
from plausiflow_bench.numeric import fresh


def test_the_seeds_of_the_judges_are_those_of_nothing_else():
    assert fresh.JUDGES == 6
    assert abs(fresh.SEED - Judges().random_state) > 1000
    assert fresh.SEED > 1_000_000  # members have a seed times 1,000, and a few more


def test_means_are_over_the_cases_of_a_data_set_and_then_over_data_sets():
    case = {"found": 1.0, "judged": 1.0, "judged_worst": 0.8, "judged_paper": 0.5, "l2": 1.0, "l2_paper": 2.0}
    rows = [
        {"dataset": "a"} | case,
        {"dataset": "a"} | case | {"judged": 0.5, "l2": 2.0},
        {"dataset": "b"} | case,
    ]
    first, second, mean = fresh.average_rows(rows)
    assert first["judged"] == pytest.approx(0.75)
    assert first["ratio"] == pytest.approx(0.75)
    assert second["ratio"] == pytest.approx(0.5)
    assert mean["judged"] == pytest.approx(0.875)
