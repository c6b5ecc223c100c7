"""The code of README and documentation runs."""

import sys
import textwrap
import types
import warnings
from contextlib import contextmanager, redirect_stdout
from functools import partial
from io import StringIO
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from pages import PAGES, ROOT, fences, named
from plausiflow import Training, workers
from plausiflow.densities import calibration, flows, mixed
from plausiflow.densities.calibration import PlausibilityWarning
from plausiflow.errors import DataNotFoundError, MissingExtraError
from plausiflow.workers import Inline

TABLE = """
import numpy as np
import pandas as pd
import plausiflow as pf
from sklearn.linear_model import LogisticRegression

random = np.random.default_rng(0)
X = pd.DataFrame({"income": random.integers(10, 60, 160) * 100})
X["job"] = random.choice(["clerk", "nurse"], 160)
y = pd.Series(np.where(X["income"] > 3000, "granted", "rejected"), name="loan")
model = pf.LinearClassifier(training=pf.Training(epochs=20))
"""
NUMBERS = 'X = X[["income"]]\nmodel = LogisticRegression().fit(X, y)\n'
FITTED = "explainer = pf.Explainer(model, judges=0, confidence=None, plausibility=0.1).fit(X, y)\n"
SAVED = FITTED + 'explainer.save("credit")\n'
PORTFOLIO = """
from pathlib import Path
Path("portfolio").mkdir()
X.assign(customer=range(len(X))).to_parquet("portfolio/rows.parquet")
"""
TENSORS = """
import torch
from plausiflow import KDE, LinearClassifier, PPCEF, Thresholded
x = torch.rand(120, 2)
y = (x.sum(dim=1) > 1).long()
model = LinearClassifier().fit(x, y)
plausibility = Thresholded(density=KDE().fit(x, y)).fit(x, y)
"""
SETUP = {
    "docs/labels.md": TABLE + NUMBERS,
    "docs/plausibility.md": TENSORS,
    "docs/saving.md": TABLE + NUMBERS + FITTED,
    "docs/batch.md": TABLE + SAVED + PORTFOLIO,
    "docs/service.md": TABLE + SAVED,
    "docs/guide/engines.md": TABLE + SAVED + PORTFOLIO,
}
"""Code that runs before the first block of a page, for pages that show calls and not whole programs."""
PLACEHOLDERS = {"docs/plausibility.md": {"plausibility=...": "plausibility=plausibility"}}
"""Placeholders on a page, and what replaces them."""
LONG = (
    "docs/index.md",
    "docs/guide/auditor.md",
    "docs/guide/suggest.md",
    "README.md",
    "docs/models.md",
    "docs/report.md",
    "docs/rules.md",
    "docs/faq.md",
    "docs/guide/audit.md",
)
"""Pages whose code takes longest: it runs with the slow tests."""
SLOW = partial(pytest.param, marks=pytest.mark.slow)
EXTRAS = {
    "xgboost",
    "lightgbm",
    "catboost",
    "matplotlib",
    "cvxpy",
    "clarabel",
    "ray",
    "pyarrow",
    "skops",
    "fastapi",
    "uvicorn",
    "polars",
    "onnxruntime",
    "skl2onnx",
    "duckdb",
    "dask",
    "mcp",
    "mlflow",
}


@contextmanager
def single_precision():
    """Use single precision, the default of torch."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def run(page: Path, monkeypatch) -> tuple[types.ModuleType, dict[int, str]]:
    """Run the blocks of a page as one program; return it, and what each block printed, by line."""
    program = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", program)
    blocks = [(line, body) for language, line, body in fences(page) if language == "python"]
    if named(page) in SETUP:
        blocks.insert(0, (1, SETUP[named(page)]))
    printed = {}
    for line, body in blocks:
        for dots, value in PLACEHOLDERS.get(named(page), {}).items():
            body = body.replace(dots, value)
        code = compile("\n" * (line - 1) + body, str(page), "exec")
        try:
            with redirect_stdout(StringIO()) as output:
                exec(code, program.__dict__)
        except (DataNotFoundError, MissingExtraError) as error:
            pytest.skip(f"{named(page)}, line {line}: {error}")
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] not in EXTRAS:
                raise
            pytest.skip(f"{named(page)}, line {line}: {error.name} is not installed")
        printed[line] = output.getvalue()
    return program, printed


def shorten(monkeypatch) -> None:
    """Train densities for one epoch only: these pages show calls, not results."""
    brief = Training(epochs=1, learning_rate=1e-2)
    for place, name in ((flows, "FLOW_TRAINING"), (mixed, "FLOW_TRAINING"), (mixed, "LEVELS_TRAINING")):
        monkeypatch.setattr(place, name, brief)


def run_tasks_here(monkeypatch) -> None:
    """Run tasks in this process: worker processes would each load torch."""
    pytest.importorskip("pyarrow", reason="the extra `files` is not installed")
    monkeypatch.setattr(workers, "Processes", lambda workers: Inline())


def stop_services_at_once(monkeypatch) -> None:
    """Let a server start on a free port and stop."""
    uvicorn = pytest.importorskip("uvicorn", reason="the extra `serve` is not installed")
    from plausiflow.service import server

    listening = server._listening
    monkeypatch.setattr(server, "_listening", lambda host, port: listening(host, 0))
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)


def ignore_warnings_of_mlflow(monkeypatch) -> None:
    """MLflow warns of its own types when it is imported."""
    warnings.simplefilter("ignore", UserWarning)


PATCHES = {
    "docs/guide/mlflow.md": ignore_warnings_of_mlflow,
    "docs/batch.md": run_tasks_here,
    "docs/guide/engines.md": run_tasks_here,
    "docs/service.md": stop_services_at_once,
}


def blocks_with_output(page: Path) -> list[tuple[int, str]]:
    """Return the line of each block that is followed by its output, and that output."""
    return [
        (line, shown)
        for (language, line, _), (after, _, shown) in pairwise(fences(page))
        if (language, after) == ("python", "text")
    ]


@pytest.fixture
def run_page(tmp_path, monkeypatch):
    """Return a function that runs a page in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")

    def play(page: Path) -> tuple[types.ModuleType, dict[int, str]]:
        if named(page) in SETUP:
            shorten(monkeypatch)
        PATCHES.get(named(page), lambda patch: None)(monkeypatch)
        warnings.simplefilter("ignore", PlausibilityWarning)  # pages use few rows
        with single_precision():
            return run(page, monkeypatch)

    return play


WITH_CODE = [page for page in PAGES if any(language == "python" for language, *_ in fences(page))]
WITH_PRINTS = [page for page in WITH_CODE if blocks_with_output(page)]


@pytest.mark.parametrize(
    "page", [page if named(page) not in LONG else SLOW(page) for page in WITH_CODE], ids=named
)
def test_the_code_of_a_page_runs(page, run_page, tmp_path):
    program, printed = run_page(page)
    if page == ROOT / "README.md":
        check_readme(program, "".join(printed.values()), tmp_path)


def test_the_code_of_the_readme_runs_with_a_brief_training(run_page, tmp_path, monkeypatch):
    shorten(monkeypatch)
    monkeypatch.setattr(calibration, "ROWS", 30)
    monkeypatch.setattr(calibration, "ROWS_OF_CLASS", 10)
    program, printed = run_page(ROOT / "README.md")
    assert "".join(printed.values()).startswith("Explanations(20 rows: ")
    assert len(program.result) == 20
    assert len(program.answers.found) == len(program.fold.x_test)
    check_files_of_readme(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_PRINTS, ids=named)
def test_a_page_shows_what_its_code_prints(page, run_page, monkeypatch, request):
    monkeypatch.delenv("PLAUSIFLOW_DATA", raising=False)  # pages show results of generated rows
    _, printed = run_page(page)
    shown = dict(blocks_with_output(page))
    if request.config.getoption("--rewrite-pages"):
        rewrite(page, printed)
        return
    assert {line: tidy(printed[line]) for line in shown} == {line: tidy(text) for line, text in shown.items()}


def rewrite(page: Path, printed: dict[int, str]) -> None:
    """Replace the output of blocks by what they print; an output has the indent of its fence."""
    lines = page.read_text().splitlines()
    outputs = [
        (after, len(text.splitlines()), line)
        for (language, line, _), (kind, after, text) in pairwise(fences(page))
        if (language, kind) == ("python", "text")
    ]
    for start, length, block in reversed(outputs):
        indent = " " * (len(lines[start - 2]) - len(lines[start - 2].lstrip()))
        fresh = [f"{indent}{line}".rstrip() for line in tidy(printed[block])]
        if tidy("\n".join(lines[start - 1 : start - 1 + length])) != tidy("\n".join(fresh)):
            lines[start - 1 : start - 1 + length] = fresh
    page.write_text("\n".join(lines) + "\n")


def tidy(text: str) -> list[str]:
    """Return the lines without trailing spaces, and without an indent that all of them have."""
    return [line.rstrip() for line in textwrap.dedent(text.strip("\n")).splitlines()]


def check_readme(program, printed, folder):
    """Check what the README says that its code prints and writes."""
    output = next(body for language, _, body in fences(ROOT / "README.md") if language == "text")
    assert printed.startswith(output[: output.index(":")])
    assert set(program.result.status["status"]) == {"found", "already"}
    assert "→" in printed
    assert program.answers.feasible.all()
    check_files_of_readme(folder)


def check_files_of_readme(folder):
    assert (folder / "report.html").stat().st_size > 10_000
    assert (folder / "credit-explainer" / "explainer.json").exists()
