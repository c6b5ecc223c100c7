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
    assert first["l2_ratio"] == pytest.approx(0.75)
    assert second["l2_ratio"] == pytest.approx(0.5)
    assert mean["judged"] == pytest.approx(0.875)
    assert first["lowest"] == 0.5


def test_the_page_gets_the_means_and_the_commit(tmp_path):
    case = {"found": 1.0, "judged": 0.9, "judged_worst": 0.8, "judged_paper": 0.5, "l2": 1.0, "l2_paper": 2.0}
    page = tmp_path / "page.md"
    page.write_text(f"before\n{fresh.MARK}\nearlier\n<!-- end -->\nafter\n")
    named = {"dataset": "a", "classifier": "lr", "fold": 2, "seed": 0, "commit": "abc"}
    fresh.write_page([named | case], page)
    text = page.read_text()
    assert "| a | 1.000 | 0.900 | 0.900 | 0.800 | 0.500 |" in text
    assert "classifier lr; seed 0; commit abc." in text
    assert "earlier" not in text
