"""The paper's evaluation: its grid, its tables, and a run that is stopped and goes on."""

import math
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser

import pytest
from typer.testing import CliRunner

from plausiflow.cli import app
from plausiflow.errors import InvalidInputError
from plausiflow_bench.harness.sheets import Cell, Sheet, format_number, mark_best, mean_and_std
from plausiflow_bench.paper.page import write_page
from plausiflow_bench.paper.selection import DEFAULT_METHODS, PAPER_METHODS, PaperSelection, cost
from plausiflow_bench.paper.tables import LABELS, Results, make_sheets, methods_sheet
from plausiflow_bench.published import study as published
from plausiflow_bench.published.runs import published_metrics

# ---------------------------------------------------------------- the grid


def test_the_whole_grid_has_every_method_data_set_classifier_and_fold_of_the_paper():
    tasks = [task for task in PaperSelection().tasks() if task.study == "methods"]
    for method in ("cbce", "cegp", "cem", "wach", "ppcef"):
        own = {(t.dataset, t.classifier, t.fold) for t in tasks if t.method == method}
        assert len(own) == 7 * 3 * 5, method
    assert {t.classifier for t in tasks if t.method == "artelt"} == {"lr"}
    assert len([t for t in tasks if t.method == "artelt"]) == 7 * 5
    assert len([t for t in tasks if (t.method, t.classifier) == ("ppcef_paper", "lr")]) == 7 * 5


def test_every_task_is_there_once_and_has_a_cost():
    tasks = PaperSelection().tasks()
    assert len(set(tasks)) == len(tasks)
    assert all(0 < cost(task) < 3600 for task in tasks)


def test_the_quick_form_has_one_fold_of_three_data_sets_and_logistic_regression():
    tasks = PaperSelection().quick().tasks()
    assert {t.dataset for t in tasks} == {"moons", "law", "wine"}
    assert {t.fold for t in tasks} == {0}
    assert {t.classifier for t in tasks} <= {"lr", "none"}
    assert {t.method for t in tasks if t.study == "methods"} == set(DEFAULT_METHODS)


def test_unknown_studies_and_methods_are_named_all_at_once():
    with pytest.raises(InvalidInputError, match=r"study 'cake'.*method 'magic'"):
        PaperSelection(studies=("cake",), methods=("magic",))


def test_every_method_of_the_grid_has_a_label():
    assert set(DEFAULT_METHODS) <= set(LABELS)


# ---------------------------------------------------------------- sheets


SHEET = Sheet(
    title="A & B",
    header=("Dataset", "Method", "L2 ↓"),
    lines=(
        (Cell("moons"), Cell("x_1"), Cell("0.10±0.01", best=True)),
        (Cell("moons"), Cell("PPCEF"), Cell("–")),
    ),
    groups=2,
    notes=("50 % of it",),
)


def test_markdown_has_one_line_for_each_row_and_bold_for_the_best():
    lines = SHEET.markdown().splitlines()
    assert "| moons | x_1 | **0.10±0.01** |" in lines
    assert "| moons | PPCEF | – |" in lines
    assert len({line.count("|") for line in lines if line.startswith("|")}) == 1


def test_latex_is_escaped_and_names_a_group_once():
    text = SHEET.latex()
    assert r"x\_1 & \textbf{0.10$\pm$0.01} \\" in text
    assert text.count("moons") == 1
    assert text.count(r"\begin{tabular}{llr}") == text.count(r"\end{tabular}") == 1


def test_html_is_well_formed_and_escaped():
    open_tags, seen = [], []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attributes):
            open_tags.append(tag)

        def handle_endtag(self, tag):
            assert open_tags.pop() == tag

        def handle_data(self, data):
            seen.append(data)

    Reader().feed(SHEET.html())
    assert open_tags == []
    assert "A & B" in seen
    assert "0.10±0.01" in seen


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.005, "1.00"), (-0.001, "0.00"), (6.4712e7, "6.47e+07"), (math.nan, "–"), (-12.345, "-12.35")],
)
def test_numbers_are_written_as_people_read_them(value, text):
    assert format_number(value, 2) == text


def test_a_spread_is_the_mean_and_the_standard_deviation_over_folds():
    assert mean_and_std([1.0, 3.0], 1) == "2.0±1.0"
    assert mean_and_std([1.0], 1) == "1.0"
    assert mean_and_std([math.nan], 1) == "–"


def test_the_best_is_decided_as_printed():
    assert mark_best([0.998, 1.0, 0.5, math.nan], 2, "higher") == [True, True, False, False]
    assert mark_best([0.2, 0.3], 2, "lower") == [True, False]
    assert mark_best([0.2], 2, "lower") == [False]


def row(method, fold, **measures):
    named = {"study": "methods", "dataset": "moons", "classifier": "lr", "method": method, "fold": fold}
    columns = (
        "coverage validity plausibility lof iso_forest log_density l1 l2 seconds target_validity judged "
        "sparsity out_of_box cpu_seconds"
    )
    return dict.fromkeys(columns.split(), 1.0) | named | measures


# ---------------------------------------------------------------- published values

# As the paper prints them: table 1 (logistic regression) and the appendix, L2 and validity.
PRINTED = {
    ("moons", "lr", "ppcef", "l2"): 0.36,
    ("heloc", "lr", "ppcef", "l2"): 0.23,
    ("digits", "lr", "ppcef", "l2"): 1.33,
    ("wine", "lr", "cem", "l2"): 0.63,
    ("blobs", "lr", "wach", "l1"): 0.51,
    ("law", "mlp", "ppcef", "validity"): 0.95,
    ("wine", "node", "ppcef", "l2"): 0.55,
}


@pytest.mark.parametrize("key", PRINTED)
def test_published_means_are_those_that_the_paper_prints(key, reference_directory):
    rows = [row("ppcef", fold) for fold in range(5)]
    found = Results(rows, published_metrics(reference_directory)).published_mean(*key)
    assert found == pytest.approx(PRINTED[key], abs=0.0051)


def test_a_cell_has_our_mean_and_deviation_the_published_mean_and_the_difference(reference_directory):
    rows = [row("ppcef", 0, l2=0.3), row("ppcef", 1, l2=0.4), row("cem", 0, l2=0.2)]
    table = published_metrics(reference_directory)
    own = table[(table.dataset == "moons") & (table.method == "ppcef") & table.fold.isin([0, 1])]
    there = own[own.classifier == "LogisticRegression"]["l2"].mean()
    sheet = methods_sheet(Results(rows, table), "lr")
    cell = sheet.lines[[c[1].text for c in sheet.lines].index("PPCEF")][sheet.header.index("L2 ↓")]
    assert cell.text == f"0.350±0.050 ({there:.3f}, {0.35 - there:+.3f})"
    assert not cell.best


def test_ablations_share_the_line_of_the_papers_settings():
    whole = PaperSelection(datasets=("moons",), folds=(0,))
    assert {t.method for t in whole.tasks() if t.study == "loss"} == {"cross_entropy"}
    alone = PaperSelection(datasets=("moons",), folds=(0,), studies=("loss", "lambda"))
    assert {t.method for t in alone.tasks() if t.study == "loss"} == {"hinge", "cross_entropy"}
    rows = [row("ppcef_paper", 0, l2=0.1), row("cross_entropy", 0, l2=0.5) | {"study": "loss"}]
    made = {sheet.title: sheet for sheet in make_sheets(Results(rows, None))}
    ablation = next(sheet for title, sheet in made.items() if "loss" in title)
    assert [line[1].text for line in ablation.lines] == ["hinge", "cross_entropy"]
    assert ablation.lines[0][-1].text == "0.100"
    assert not any("λ" in title for title in made)


def test_without_published_files_tables_have_our_values_alone():
    made = make_sheets(Results([row("ppcef", 0), row("wach", 0)], None))
    assert [sheet.title for sheet in made] == ["Methods, logistic regression"]
    assert "(" not in made[0].lines[0][2].text


# ---------------------------------------------------------------- the published models


RAN = {"seed": 0, "commit": "c", "torch": "2", "task_wall_seconds": 1.0, "task_cpu_seconds": 1.0}


def solved(solver, l2, dataset="moons"):
    named = {"dataset": dataset, "solver": solver, "classifier": "lr", "seed": 0, "commit": "c"}
    return named | {"validity": 1.0, "plausibility": 0.5, "l2": l2}


def test_the_published_models_have_their_place_on_the_page_and_a_new_run_leaves_it(tmp_path):
    page = tmp_path / "page.md"
    write_page(Results([row("ppcef", 0, **RAN)], None), page)
    published.write_page([solved("published", 0.4), solved("penalty_adam", 0.5), solved("sqp", 0.3)], page)
    line = "| moons | 1.000 | 1.000 | 1.000 | 0.500 | 0.500 | 0.500 | 0.400 | 0.500 | 0.300 | 1.250 | 0.750 |"
    assert line in page.read_text()
    write_page(Results([row("wach", 0, **RAN)], None), page)
    text = page.read_text()
    assert line in text
    assert "| moons | WACH |" in text
    assert text.count(published.MARK) == 1


def test_the_published_models_need_all_three_solvers_of_a_data_set():
    with pytest.raises(InvalidInputError, match="penalty_adam, sqp for moons"):
        published.make_sheet([solved("published", 0.4)])


# ---------------------------------------------------------------- runs


QUICK = ["benchmark", "paper", "--quick", "--datasets", "wine", "--rows", "5", "--studies", "methods,data"]


def test_a_small_run_writes_all_its_files_and_goes_on_where_it_was(tmp_path):
    files = {name: tmp_path / f"all.{name}" for name in ("page", "latex", "html", "json")}
    options = [text for name, path in files.items() for text in (f"--{name}", str(path))]
    methods = ["--methods", "cbce,ppcef,nnce_dense,wach"]
    command = [*QUICK, *methods, "--engine", "inline", "--folder", str(tmp_path / "run"), *options]
    first = CliRunner().invoke(app, command, catch_exceptions=False)
    assert first.exit_code == 0, first.output
    assert "5 tasks: 0 finished earlier, 5 now, 0 failed" in first.output
    assert "NNCE-dense" in files["page"].read_text()
    assert r"\begin{tabular}" in files["latex"].read_text()
    assert files["html"].read_text().startswith("<!doctype html>")
    again = CliRunner().invoke(app, command, catch_exceptions=False)
    assert "5 tasks: 5 finished earlier, 0 now, 0 failed" in again.output


@pytest.mark.slow
def test_a_run_that_is_killed_three_times_gives_the_same_rows(tmp_path):
    def command(folder):
        return [
            sys.executable, "-c", "from plausiflow.cli import app; app()", *QUICK, "--jobs", "2", "--folder",
            str(tmp_path / folder), "--json", str(tmp_path / f"{folder}.json"),
            "--methods", ",".join(m for m in PAPER_METHODS if m != "artelt"),
        ]  # fmt: skip

    for seconds in (12, 20, 28):
        process = subprocess.Popen(command("killed"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        process.wait()
    for folder in ("killed", "whole"):
        subprocess.run(command(folder), check=True, stdout=subprocess.DEVNULL)
    kept, whole = (_without_times((tmp_path / f"{name}.json").read_text()) for name in ("killed", "whole"))
    assert kept == whole


def _without_times(text):
    return [line for line in text.splitlines() if "seconds" not in line]
