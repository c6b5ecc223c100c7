"""The product against the engine: ratios of what was measured, and the engine's own model and density."""

import pytest

from plausiflow_bench.speed import page as speed_page
from plausiflow_bench.speed import study as speed
from plausiflow_bench.speed.plan import SpeedSelection


@pytest.mark.slow
def test_the_product_is_held_against_the_engine_with_its_own_model_and_density():
    rows = list(speed.run(SpeedSelection(device="cpu", quick=True, studies=("product",))))
    mlp, boosted = rows
    assert [row["classifier"] for row in rows] == ["mlp", "boosted"]
    assert mlp["ratio"] == pytest.approx(mlp["rows_per_second"] / mlp["engine_rows_per_second"])
    assert mlp["engine_feasible"] > 0.5
    assert "ratio" not in boosted
    for row in rows:
        assert row["fit_ratio"] == pytest.approx(row["fit_seconds"] / row["model_seconds"])
        assert row["found"] > 0.5
        assert 0 < row["p50_ms"] <= row["p95_ms"]
        assert row["first_answer_seconds"] > row["p50_ms"] / 1000
    assert "### Product against engine" in speed_page.sections(rows)["cpu"]
