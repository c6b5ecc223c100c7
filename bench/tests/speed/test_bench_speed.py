"""The study of speed, quickly: its numbers agree with each other, its page keeps what is not its own."""

import json
import math
import subprocess
import sys
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import plausiflow as pf
from plausiflow.cli import app
from plausiflow.densities import ConditionalFlow, CrossFitEnsemble
from plausiflow.errors import DataNotFoundError, InvalidInputError
from plausiflow.models.networks import NetworkClassifier
from plausiflow_bench.harness.rows import environment, read_json, write_json
from plausiflow_bench.harness.selection import Selection
from plausiflow_bench.numeric import densities, performance, solvers
from plausiflow_bench.published import study as published
from plausiflow_bench.speed import models as speed_models
from plausiflow_bench.speed import page as speed_page
from plausiflow_bench.speed import study as speed
from plausiflow_bench.speed.measurements import SpeedBench
from plausiflow_bench.speed.models import ModelCache, gaussian, heloc
from plausiflow_bench.speed.plan import QUICK, STUDIES, SpeedSelection, TimedDevice

MEASURED = {"seconds", "cpu_seconds", "feasible", "l2", "gradients"}
ORIGIN = {
    "study", "dataset", "classifier", "density", "device", "device_name", "threads", "quick", "seed",
    "plausiflow", "torch", "python", "commit", "elapsed",
}  # fmt: skip
ON_BOTH = ("batch", "columns", "growth", "paper")


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def rows(kept):
    """A quick look on the processor, without the mixed table."""
    return list(
        speed.run(SpeedSelection(device="cpu", quick=True, sizes=(1, 20), studies=ON_BOTH, cache=kept))
    )


@pytest.fixture
def like_cuda(monkeypatch):
    """The processor in place of a CUDA device, which counts its memory."""
    monkeypatch.setattr(TimedDevice, "device", torch.device("cpu"))
    used = iter(range(2**30, 2**60, 2**20))
    stubs = {
        "is_available": lambda: True,
        "synchronize": lambda: None,
        "get_device_name": lambda: "a card",
        "reset_peak_memory_stats": lambda: None,
        "max_memory_allocated": lambda: 3 * 2**30,
        "memory_allocated": lambda: next(used),
        "memory_reserved": lambda: 2**31,
    }
    for name, stub in stubs.items():
        monkeypatch.setattr(torch.cuda, name, stub)


def of(rows, study):
    return [row for row in rows if row["study"] == study]


def invoke(*arguments):
    return CliRunner().invoke(app, ["benchmark", "speed", *(str(argument) for argument in arguments)])


# ---------------------------------------------------------------- the measurements


def test_every_row_says_what_was_run_where_and_with_which_code(rows):
    for row in rows:
        assert row.keys() >= ORIGIN | MEASURED
        assert (row["device"], row["threads"], row["seed"], row["quick"]) == ("cpu", 1, 0, 1)
        assert row["torch"] == torch.__version__.split("+")[0]
        assert row["device_name"]
        assert row["seconds"] > 0
        assert "peak_gib" not in row
    assert sum(row["elapsed"] for row in rows) >= sum(row["seconds"] for row in rows)


def test_batches_are_measured_for_every_classifier_density_and_size(rows):
    assert [(row["classifier"], row["density"], row["rows"]) for row in of(rows, "batch")] == [
        (classifier, density, size)
        for classifier in ("lr", "mlp")
        for density in ("one", "ensemble")
        for size in (1, 20)
    ]


def test_rows_per_second_are_rows_over_seconds(rows):
    for row in (*of(rows, "batch"), *of(rows, "columns"), *of(rows, "growth")):
        assert row["rows_per_second"] == pytest.approx(row["rows"] / row["seconds"])
        assert 1 <= row["repeats"] <= 9
        assert row["feasible"] == 1.0


def test_the_cost_of_a_column_and_of_a_row_is_held_against_the_first(rows):
    columns, growth = of(rows, "columns"), of(rows, "growth")
    assert [row["columns"] for row in columns] == list(QUICK.columns)
    assert [row["rows"] for row in growth] == list(QUICK.growth)
    for row in (*columns, *growth):
        assert row["ms_per_row"] == pytest.approx(1000 * row["cpu_seconds"] / row["rows"])
    for row in columns:
        expected = (row["ms_per_row"] / row["columns"]) / (columns[0]["ms_per_row"] / columns[0]["columns"])
        assert row["ratio"] == pytest.approx(expected)
    assert growth[1]["ratio"] == pytest.approx(growth[1]["ms_per_row"] / growth[0]["ms_per_row"])


def test_the_papers_solver_runs_on_the_same_rows_and_its_ratio_counts_the_bank(rows):
    paper = of(rows, "paper")
    assert [(row["classifier"], row["solver"]) for row in paper] == [
        ("lr", "penalty_adam"), ("lr", "sqp"), ("mlp", "penalty_adam"), ("mlp", "sqp"),
    ]  # fmt: skip
    for adam, sqp in (paper[:2], paper[2:]):
        assert adam["gradients"] == QUICK.steps
        assert adam["rows"] == sqp["rows"] == QUICK.paper
        assert (adam["ratio"], sqp["feasible"]) == (1.0, 1.0)
        expected = adam["cpu_seconds"] / (sqp["cpu_seconds"] + sqp["bank_seconds"])
        assert sqp["ratio"] == pytest.approx(expected)


def test_single_rows_are_explained_one_at_a_time_also_those_of_a_table(kept, monkeypatch):
    asked = []

    def explain(frame):
        asked.append(len(frame))
        return SimpleNamespace(is_found=[len(asked) % 2 == 0])

    table = SimpleNamespace(name="a table", x=pd.DataFrame({"income": range(60)}))
    monkeypatch.setattr(SpeedBench, "_fit_table", lambda self: (SimpleNamespace(explain=explain), table))
    selection = SpeedSelection(device="cpu", quick=True, studies=("single",), cache=kept)
    rows = list(speed.run(selection))
    assert [(row["dataset"], row["classifier"], row["density"]) for row in rows] == [
        ("gaussian_4", "lr", "one"),
        ("gaussian_4", "lr", "ensemble"),
        ("gaussian_4", "mlp", "one"),
        ("a table", "mlp", "ensemble"),
    ]
    assert asked == [1] * (3 + QUICK.single)
    assert rows[-1]["feasible"] == 0.5
    for row in rows:
        assert row["rows"] == QUICK.single
        assert 0 <= row["p50_ms"] <= row["p95_ms"]
        assert row["p50_ms"] > 0 or row["dataset"] == "a table"


def test_on_cuda_memory_and_agreement_are_measured_and_wall_time_counts(kept, like_cuda):
    selection = SpeedSelection(
        device="cuda",
        quick=True,
        classifiers=("lr",),
        densities=("one",),
        studies=STUDIES[1:],
        sizes=(5,),
        cache=kept,
    )
    rows = list(speed.run(selection))
    assert {row["study"] for row in rows} == {"batch", "columns", "growth", "paper", "memory", "agreement"}
    assert {(row["device"], row["device_name"]) for row in rows} == {("cuda", "a card")}
    assert of(rows, "batch")[0]["peak_gib"] == 3.0
    assert [row["run"] for row in of(rows, "memory")] == [1, 2, 3]
    assert [row["allocated_mib"] for row in of(rows, "memory")] == [1024, 1025, 1026]
    (agreed,) = of(rows, "agreement")
    assert (agreed["rows"], agreed["same_feasible"]) == (200, 1.0)
    assert agreed["l2"] == agreed["l2_cpu"] > 0
    first = of(rows, "growth")[0]
    assert first["ms_per_row"] == pytest.approx(1000 * first["seconds"] / first["rows"])
    page = speed_page.sections(rows)["cuda"]
    assert "### Memory from run to run" in page
    assert "milliseconds of wall time" in page


def test_threads_are_those_asked_for_and_put_back(kept):
    running = speed.run(SpeedSelection(device="cpu", quick=True, studies=("growth",), threads=2, cache=kept))
    assert next(running)["threads"] == torch.get_num_threads() == 2
    running.close()
    assert torch.get_num_threads() == 1


def test_drawn_classes_are_as_far_apart_and_as_correlated_for_any_number_of_columns():
    for d in (4, 32):
        data = gaussian(d, 20_000, 10, seed=0)
        own = [data.x_train[data.y_train == k].double() for k in (0, 1)]
        assert float(10 * (own[1].mean(0) - own[0].mean(0)).norm()) == pytest.approx(2, abs=0.15)
        assert float(torch.corrcoef(own[0].T)[1, 2]) == pytest.approx(0.5, abs=0.03)
        assert data.x_test.shape == (10, d)
        assert 0 <= data.x_train.min() < data.x_train.max() <= 1


def test_rows_are_drawn_with_replacement_and_by_seed():
    data = gaussian(3, 20, 30, seed=0)
    drawn = data.sample(500, seed=1)
    assert torch.equal(drawn, data.sample(500, seed=1))
    assert not torch.equal(drawn, data.sample(500, seed=2))
    assert len(drawn.unique(dim=0)) == 30


def test_where_heloc_is_not_on_the_machine_drawn_rows_of_its_size_stand_in(monkeypatch):
    def missing(name, fold):
        raise DataNotFoundError(name)

    monkeypatch.setattr(speed_models, "load_fold", missing)
    data = heloc(0)
    assert data.name == "gaussian_23"
    assert (data.x_train.shape, data.x_test.shape) == ((8367, 23), (2092, 23))


def test_heloc_is_the_papers_first_fold(data_directory, monkeypatch):
    monkeypatch.setenv("PLAUSIFLOW_DATA", str(data_directory))
    data = heloc(0)
    assert data.name == "heloc"
    assert (data.x_train.shape, data.x_test.shape) == ((8367, 23), (2092, 23))


# ---------------------------------------------------------------- models


def test_kept_models_are_not_trained_again_and_answer_the_same(rows, kept, monkeypatch):
    data = gaussian(QUICK.gaussian_columns, *speed.QUICK_ROWS, 0)
    place = torch.device("cpu")

    def refuse(self, *_, **__):
        raise AssertionError(f"{type(self).__name__} is trained again")

    trained = ModelCache(None, 0).method("mlp", "ensemble", data, QUICK.recipe, place)
    for model in (NetworkClassifier, ConditionalFlow, CrossFitEnsemble):
        monkeypatch.setattr(model, "fit", refuse)
    read = ModelCache(kept, 0).method("mlp", "ensemble", data, QUICK.recipe, place)
    assert float(read.fitted_plausibility().margin_.sum()) == float(
        trained.fitted_plausibility().margin_.sum()
    )
    assert torch.equal(read.explain(data.x_test[:20]).x_cf, trained.explain(data.x_test[:20]).x_cf)
    with pytest.raises(AssertionError, match="is trained again"):
        ModelCache(kept, 1).classifier("lr", data, QUICK.recipe)


def test_a_file_that_is_no_model_is_named(tmp_path):
    data = gaussian(2, 60, 10, 0)
    ModelCache(tmp_path, 0).classifier("lr", data, QUICK.recipe)
    (path,) = tmp_path.glob("*.safetensors")
    path.write_bytes(b"no model")
    with pytest.raises(InvalidInputError, match=f"{path.name} must be a model .* Remove the file"):
        ModelCache(tmp_path, 0).classifier("lr", data, QUICK.recipe)


# ---------------------------------------------------------------- the page


def on_cuda(rows):
    return [row | {"device": "cuda", "device_name": "a card", "peak_gib": 1.5} for row in rows]


def test_a_page_gets_the_section_at_its_end_and_the_rest_stays(rows, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Performance\n\nBy hand.\n")
    speed_page.write_page(rows, page)
    text = page.read_text()
    assert text.startswith("# Performance\n\nBy hand.\n\n<!-- written by `plausiflow benchmark speed")
    assert text.endswith("<!-- end -->\n")
    for title in ("Rows per second against batch size", "Against the paper's solver"):
        assert f"\n### {title}\n" in text
    assert "One row at a time" not in text
    head = "| dataset | classifier | density | threads | rows | repeats | seconds | cpu_seconds |"
    assert f"\n{head} rows_per_second | feasible | l2 | gradients |\n" in text
    assert f"commit {rows[0]['commit']}" in text
    assert "threads 1; seed 0" in text
    assert "This was a quick run" in text


def test_the_section_of_the_other_kind_of_device_stays(rows, tmp_path):
    page = tmp_path / "new" / "page.md"
    speed_page.write_page(on_cuda(rows), page)
    before = page.read_text()
    speed_page.write_page(rows, page)
    assert page.read_text().startswith(before.rstrip())
    assert "## Speed on a processor" in page.read_text()
    other = [row | {"commit": "another"} for row in on_cuda(rows)]
    own = page.read_text().partition(speed_page.MARKS["cpu"])[2]
    speed_page.write_page(other, page)
    text = page.read_text()
    assert text.partition(speed_page.MARKS["cpu"])[2] == own
    assert "commit another" in text
    assert text.count("## Speed on CUDA") == text.count("## Speed on a processor") == 1


def test_both_kinds_may_come_at_once(rows, tmp_path):
    speed_page.write_page([*rows, *on_cuda(rows)], tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert text.index("## Speed on a processor") < text.index("## Speed on CUDA")


def test_the_page_of_all_studies_keeps_the_sections_on_speed(rows, tmp_path, monkeypatch):
    page = tmp_path / "performance.md"
    speed_page.write_page([*rows, *on_cuda(rows)], page)
    sections = speed_page.sections([*rows, *on_cuda(rows)])
    for study in (published, solvers, densities):
        monkeypatch.setattr(study, "run", lambda *_: [])
    monkeypatch.setattr(performance, "batch_sizes", lambda _: [])
    for _ in range(2):
        performance.write(page, Selection(datasets=("wine",)), None, lambda title: None)
        text = page.read_text()
        assert "## Published models" in text
        assert all(f"{speed_page.MARKS[kind]}\n{own}\n<!-- end -->" in text for kind, own in sections.items())


def test_rows_of_another_study_make_no_page(tmp_path):
    for rows in ([], [{"solver": "sqp", "l2": 1.0}]):
        with pytest.raises(InvalidInputError, match="needs rows that this study measured"):
            speed_page.write_page(rows, tmp_path / "page.md")
    assert not (tmp_path / "page.md").exists()


# ---------------------------------------------------------------- the command line


def test_rows_of_a_file_make_the_same_page(rows, tmp_path):
    write_json(rows, tmp_path / "rows.json")
    done = invoke(
        "--reuse", tmp_path / "rows.json", "--page", tmp_path / "a.md", "--json", tmp_path / "b.json"
    )
    assert done.exit_code == 0, done.output
    speed_page.write_page(rows, tmp_path / "b.md")
    assert (tmp_path / "a.md").read_text() == (tmp_path / "b.md").read_text()
    assert read_json(tmp_path / "b.json") == rows
    assert "Rows per second against batch size" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--device", "tpu"), "`device` must be cpu, cuda or auto; got 'tpu'"),
        (("--device", "cuda"), "torch finds no CUDA device"),
        (("--sizes", "1,many"), "--sizes takes whole numbers such as 1,100; got '1,many'"),
        (("--sizes", "0"), "`sizes` must be at least 1; got 0"),
        (("--threads", 0), "`threads` must be at least 1; got 0"),
        (("--classifiers", "node"), "`classifiers` must be one or more of lr, mlp; got node"),
        (("--densities", ""), "`densities` must be one or more of one, ensemble; got none"),
        (("--studies", "memory"), "`studies` must include one that runs on cpu; got memory"),
        (("--studies", "batch,speed"), "`studies` must be one or more of product, batch"),
    ],
)
def test_what_cannot_be_measured_is_said_on_one_line(arguments, said, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    done = invoke("--quick", *arguments)
    assert done.exit_code == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_a_machine_without_the_command_line_measures_as_a_module(kept, tmp_path):
    program = (
        "import sys; sys.modules['typer'] = None; import torch; torch.set_default_dtype(torch.float64); "
        "from plausiflow_bench.speed.study import main; main()"
    )
    path = tmp_path / "rows.json"
    options = ["--quick", "--studies", "growth", "--cache", kept, "--json", path]
    command = [sys.executable, "-W", "error", "-c", program, "--device", "cpu", *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    rows = json.loads(path.read_text())
    assert [row["rows"] for row in rows] == list(QUICK.growth)
    assert done.stdout.startswith("## Speed on a processor")
    assert "done: growth gaussian_4" in done.stderr


def test_the_module_says_what_is_wrong(capsys):
    with pytest.raises(SystemExit, match="2"):
        speed.main(["--device", "tpu"])
    assert "`device` must be cpu, cuda or auto; got 'tpu'" in capsys.readouterr().err


def test_a_variable_names_the_commit_of_a_copy(monkeypatch):
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    tell = environment.__wrapped__
    assert tell()["commit"] == "unknown"
    monkeypatch.setenv("PLAUSIFLOW_COMMIT", "abc")
    assert tell() | {"torch": ""} == {"commit": "abc", "plausiflow": pf.__version__, "torch": ""}


@pytest.mark.slow
def test_a_quick_look_shows_every_table_of_a_processor(tmp_path):
    path, page = tmp_path / "rows.json", tmp_path / "page.md"
    done = invoke("--quick", "--device", "cpu", "--json", path, "--page", page)
    assert done.exit_code == 0, done.output
    rows = read_json(path)
    assert {row["study"] for row in rows} == {"product", "batch", "single", "columns", "growth", "paper"}
    assert of(rows, "single")[-1]["dataset"] == "loans"
    assert page.read_text().count("\n### ") == 4
    assert not any(math.isnan(value) for row in rows for value in row.values() if isinstance(value, float))
