"""The study of batch runs: its table, the estimate for a billion rows, and a small run of it."""

import pytest

from plausiflow.errors import InvalidInputError
from plausiflow_bench.batch import study as batch
from plausiflow_bench.batch.runs import BatchRunError


def measured(method: str, workers: int, rows: int, throughput: float) -> dict:
    return {
        "dataset": "loans", "method": method, "device": "cpu", "cores": 4, "workers": workers, "rows": rows,
        "throughput": throughput, "training_rows": 1000, "seed": 0, "commit": "abc", "torch": "2",
    }  # fmt: skip


def test_a_billion_rows_cost_what_the_largest_run_says():
    rows = [measured("local", 1, 20, 7.0), measured("local", 2, 1000, 400.0), measured("ray", 2, 2000, 9.0)]
    rows.append(measured("local", 1, 5000, 9.0) | {"device": "cuda"})
    killed = measured("local", 2, 6000, 0.0) | {"kills": 10}
    del killed["throughput"]
    rows.append(killed)
    told = batch.estimate_cost(rows, price=0.05)
    assert "200 rows per second and core" in told
    assert "**1,389 core hours**" in told  # 1e9 / 200 / 3600
    assert "| 16 | 86.8 h | 69 |" in told


def test_nothing_is_reckoned_from_runs_of_another_kind():
    rows = [measured("ray", 2, 2000, 9.0), measured("local", 1, 20, 7.0) | {"device": "cuda"}]
    assert batch.estimate_cost(rows, price=0.05).endswith("there are none.")


def test_the_page_gets_the_table_and_the_estimate(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{batch.MARK}\nold\n<!-- end -->\nafter\n")
    older = measured("local", 1, 20, 7.0)
    del older["device"]
    batch.write_page([older], page)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("<!-- end -->\nafter\n")
    assert "| loans | local | cpu | 4 | 1 | 20 | 7.000 |" in text
    assert "core hours" in text
    assert "old" not in text


def test_a_study_that_makes_no_sense_is_refused():
    for settings in (
        {"engines": ("slurm",)}, {"engines": ()}, {"device": "tpu"}, {"rows": 0}, {"many": -1},
        {"workers": 0}, {"kills": -1},
    ):  # fmt: skip
        with pytest.raises(InvalidInputError, match="`engines` must be local or ray"):
            batch.BatchSelection(**settings)


def test_kills_need_rows_that_are_left_after_them():
    with pytest.raises(InvalidInputError, match=r"`many` must be at least 155,000, .* 10 kills of 2 workers"):
        batch.BatchSelection(many=154_999, kills=10)
    batch.BatchSelection(many=155_000, kills=10)


@pytest.mark.slow
def test_a_small_study_runs(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    monkeypatch.setitem(batch.UNIT_ROWS, "cpu", 20)
    selection = batch.BatchSelection(
        rows=60, many=2000, kills=2, engines=("local",), train=150, folder=tmp_path
    )
    rows = list(batch.run(selection))
    assert [(row["method"], row["workers"], row["rows"]) for row in rows] == [
        ("local", 1, 60),
        ("local", 2, 60),
        ("local", 2, 2000),
        ("local", 2, 2000),
    ]
    assert [row.get("same") for row in rows] == ["yes", "yes", None, "yes"]
    assert [row.get("kills") for row in rows] == [None, None, None, 2]
    assert all(row["once"] == "yes" and row["worker_mib"] > row["beyond_mib"] > 0 for row in rows)
    assert all(row["throughput"] > 0 for row in rows[:3])
    with pytest.raises(BatchRunError, match="use another folder"):
        list(batch.run(selection))
