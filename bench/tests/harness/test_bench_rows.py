"""Measures of the benchmarks on answers written by hand, and the tables and files that show them."""

import math

import pytest
import torch

from benchmarking import NAN, answers, read_json
from plausiflow_bench.harness import printing, rows, selection
from plausiflow_bench.harness.rows import compare_distances, geometric_mean, out_of_box, summarize
from plausiflow_bench.harness.selection import Selection


def test_a_summary_is_over_the_rows_found_but_feasible_is_over_all():
    x = [[0.0, 0.0]] * 4
    x_cf = [[0.3, 0.4], [1.0, 0.0], [0.0, 2.0], [NAN, NAN]]
    found = answers(x, x_cf, valid=torch.tensor([True, True, False, False]))
    row = summarize(found)
    assert row["rows"] == 4
    assert row["coverage"] == 0.75
    assert row["validity"] == pytest.approx(2 / 3)
    assert row["plausibility"] == 1.0
    assert row["feasible"] == 0.5
    assert row["l1"] == pytest.approx((0.7 + 1 + 2) / 3)
    assert row["l2"] == pytest.approx((0.5 + 1 + 2) / 3)
    assert row["log_density"] == pytest.approx((0 + 1 + 2) / 3)
    assert row["out_of_box"] == pytest.approx(1 / 3)
    assert row["gradients"] == 15
    assert (row["cpu_seconds"], row["wall_seconds"]) == (1.0, 2.0)


def test_a_summary_without_answers_is_nan_where_there_is_nothing_to_average():
    row = summarize(answers([[0.0, 0.0]] * 2, [[NAN, NAN]] * 2))
    assert (row["coverage"], row["feasible"]) == (0.0, 0.0)
    assert all(math.isnan(row[name]) for name in ("validity", "plausibility", "l1", "l2", "log_density"))


def test_out_of_box_allows_a_row_outside_to_keep_its_own_value():
    x = [[0.5, 0.5], [0.5, 0.5], [-0.2, 0.5], [-0.2, 0.5], [1.3, 0.5], [1.3, 0.5], [0.5, 0.5]]
    x_cf = [[0.0, 1.0], [0.5, 1.01], [-0.2, 0.5], [-0.21, 0.5], [1.3, 0.9], [1.31, 0.5], [-1e-8, 0.5]]
    assert out_of_box(answers(x, x_cf)).tolist() == [False, True, False, True, False, True, False]


def test_closeness_counts_what_is_over_one_percent_farther_or_missing_where_the_other_is_feasible():
    x = [[0.0]] * 6
    plausible = torch.tensor([True, True, True, True, True, False])
    penalty = answers(x, [[0.5], [0.5], [0.5], [0.5], [1.5], [0.5]], plausible=plausible)
    # Closer, 0.8 % farther, 2 % farther, nothing, closer to a point out of the box, not compared.
    found = answers(x, [[0.25], [0.504], [0.51], [NAN], [1.0], [9.0]])
    row = compare_distances(found, penalty)
    assert row["farther"] == pytest.approx(2 / 5)
    assert row["farther_in_box"] == pytest.approx(2 / 4)
    assert row["l2_common"] == pytest.approx((0.25 + 0.504 + 0.51 + 1.0) / 4)
    assert row["l2_common_penalty"] == pytest.approx((0.5 + 0.5 + 0.5 + 1.5) / 4)


def test_an_answer_that_is_not_feasible_counts_as_farther():
    penalty = answers([[0.0]] * 2, [[0.5], [0.5]])
    found = answers([[0.0]] * 2, [[0.1], [0.1]], valid=torch.tensor([True, False]))
    assert compare_distances(found, penalty)["farther"] == 0.5


def test_a_search_compared_with_itself_is_nowhere_farther():
    found = answers([[0.0]] * 3, [[0.5], [0.7], [NAN]])
    row = compare_distances(found, found)
    assert row["farther"] == 0
    assert row["l2_common"] == row["l2_common_penalty"] == pytest.approx(0.6)


def test_closeness_is_nan_where_there_is_nothing_to_compare_with():
    nothing = answers([[0.0]], [[NAN]])
    assert all(math.isnan(value) for value in compare_distances(nothing, nothing).values())


def test_the_geometric_mean_is_the_root_of_the_product():
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4)
    assert geometric_mean(iter([5.0])) == pytest.approx(5)


def test_the_geometric_mean_leaves_out_what_is_no_number():
    assert geometric_mean([2.0, NAN, 8.0]) == pytest.approx(4)
    assert math.isnan(geometric_mean([]))
    assert math.isnan(geometric_mean([NAN]))


def test_a_selection_lists_every_case_and_takes_the_first_rows():
    chosen = Selection(datasets=("wine", "moons"), classifiers=("lr", "mlp"), folds=(0, 3), rows=2)
    assert list(chosen.cases()) == [
        (dataset, classifier, fold)
        for dataset in ("wine", "moons")
        for fold in (0, 3)
        for classifier in ("lr", "mlp")
    ]
    assert chosen.first_rows(torch.arange(5)).tolist() == [0, 1]
    assert Selection().first_rows(torch.arange(5)).tolist() == [0, 1, 2, 3, 4]


def test_studies_ask_for_the_other_class_or_the_runner_up():
    assert selection.target_policy(2) == "opposite"
    assert selection.target_policy(3) == "runner_up"


def test_where_a_row_comes_from_is_part_of_it():
    origin = rows.environment()
    assert origin["torch"] == torch.__version__.split("+")[0]
    assert origin["commit"]


# ---------------------------------------------------------------- tables and files


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("l2", 0.123456, "0.1235"),
        ("l1", 0.123456, "0.123"),
        ("difference", 3.1e-05, "0.000031"),
        ("gradients", 12.34, "12.3"),
        ("ratio", 40.04, "40.0"),
        ("cpu_seconds", 1.234, "1.23"),
        ("validity", 1.0, "1.000"),
        ("anything", 2.0, "2.000"),
        ("log_density", -12.3456, "-12.346"),
        ("rows", 2092, "2092"),
        ("dataset", "moons", "moons"),
        ("l2", NAN, "–"),
        ("l2", None, "–"),
    ],
)
def test_a_cell_has_the_decimals_of_its_column_and_a_dash_for_nothing(name, value, shown):
    assert printing.format_cell(name, value) == shown


ROWS = [
    {"dataset": "moons", "solver": "penalty_adam", "l2": 0.5, "farther": NAN, "extra": 1},
    {"dataset": "moons", "solver": "sqp", "l2": 0.25, "ratio": 20.0, "extra": 2},
    {"dataset": "wine", "solver": "sqp", "l2": 0.125, "ratio": 5.0, "extra": 3},
    {"dataset": "wine", "solver": "sqp_quality", "l2": 0.125, "ratio": 1.0, "extra": 3},
]


def test_a_table_shows_the_columns_that_there_are_in_order_and_sums_up_the_ratios(capsys):
    printing.print_table(iter(ROWS), ("dataset", "solver", "rows", "l2", "farther", "ratio"), "A title")
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert lines[0].strip() == "A title"
    head = next(line for line in lines if "dataset" in line)
    assert head.replace("┃", " ").split() == ["dataset", "solver", "l2", "farther", "ratio"]
    first = next(line for line in lines if "penalty_adam" in line)
    assert first.replace("│", " ").split() == ["moons", "penalty_adam", "0.5000", "–", "–"]
    assert "geometric mean 10.0, smallest 5.0" in " ".join(printed.split())
    assert f"commit {rows.environment()['commit']}" in printed


def test_a_table_for_a_page_has_the_same_cells():
    assert printing.markdown(ROWS[:2], ("dataset", "rows", "l2", "ratio")).splitlines() == [
        "| dataset | l2 | ratio |",
        "| --- | --- | --- |",
        "| moons | 0.5000 | – |",
        "| moons | 0.2500 | 20.0 |",
    ]


def test_a_table_without_ratios_has_no_caption():
    assert printing.caption(ROWS[:1]) == ""


def test_files_are_lists_of_flat_objects_with_null_for_what_is_no_number(tmp_path):
    path = tmp_path / "new" / "rows.json"
    rows.write_json(ROWS, path)
    written = read_json(path)
    assert written[0] == {
        "dataset": "moons",
        "solver": "penalty_adam",
        "l2": 0.5,
        "farther": None,
        "extra": 1,
    }
    assert written[1:] == ROWS[1:]


def test_infinite_numbers_are_no_json_either(tmp_path):
    rows.write_json([{"log_density": -math.inf, "ratio": math.inf}], tmp_path / "rows.json")
    assert read_json(tmp_path / "rows.json") == [{"log_density": None, "ratio": None}]


def test_a_narrow_terminal_shows_the_most_important_columns_in_their_order():
    rows = [{"dataset": "wine", "solver": "sqp", "rows": 36, "feasible": 1.0, "l2": 0.4, "gradients": 11.0}]
    columns = ["dataset", "solver", "rows", "feasible", "l2", "gradients"]
    assert printing.select_columns(rows, columns, 200) == columns
    assert printing.select_columns(rows, columns, 42) == ["dataset", "solver", "feasible", "l2"]
