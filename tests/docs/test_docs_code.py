"""The code of README and documentation runs."""

import re
import sys
import types
import warnings
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from pages import PAGES, ROOT, fences, named
from plausiflow import Training, workers
from plausiflow.densities import flows, mixed
from plausiflow.densities.calibration import PlausibilityWarning
from plausiflow.errors import DataNotFoundError, MissingExtraError
from plausiflow.search import fit as fitting
from plausiflow.workers import Inline

AT_HAND = """
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
READERS_HAVE = {
    "docs/labels.md": AT_HAND + NUMBERS,
    "docs/plausibility.md": TENSORS,
    "docs/saving.md": AT_HAND + NUMBERS + FITTED,
    "docs/batch.md": AT_HAND + SAVED + PORTFOLIO,
    "docs/service.md": AT_HAND + SAVED,
}
"""What the readers of a page have before its first line: pages that show calls, not whole programs."""
FILLED_IN = {"docs/plausibility.md": {"plausibility=...": "plausibility=plausibility"}}
"""Dots on a page that stand for something of the reader's."""
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
}


@contextmanager
def as_users_have_it():
    """Single precision, as torch has it unless told otherwise."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def run(page: Path, monkeypatch) -> tuple[types.ModuleType, dict[int, str]]:
    """Run the blocks of a page one after the other, as one program; and what each has printed, by line."""
    program = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", program)
    blocks = [(line, body) for language, line, body in fences(page) if language == "python"]
    if named(page) in READERS_HAVE:
        blocks.insert(0, (1, READERS_HAVE[named(page)]))
    printed = {}
    for line, body in blocks:
        for dots, meant in FILLED_IN.get(named(page), {}).items():
            body = body.replace(dots, meant)
        code = compile("\n" * (line - 1) + body, str(page), "exec")
        try:
            with redirect_stdout(StringIO()) as said:
                exec(code, program.__dict__)
        except (DataNotFoundError, MissingExtraError) as error:
            pytest.skip(f"{named(page)}, line {line}: {error}")
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] not in EXTRAS:
                raise
            pytest.skip(f"{named(page)}, line {line}: {error.name} is not installed")
        printed[line] = said.getvalue()
    return program, printed


def shorten(monkeypatch) -> None:
    """Let densities learn for a moment only: such pages show how to ask, not what comes of it."""
    brief = Training(epochs=1, learning_rate=1e-2)
    for place, name in ((flows, "FLOW_TRAINING"), (mixed, "FLOW_TRAINING"), (mixed, "LEVELS_TRAINING")):
        monkeypatch.setattr(place, name, brief)
    monkeypatch.setattr(fitting, "MEMBERS", 2)


def stand_in_for_processes(monkeypatch) -> None:
    """Tasks in this process: workers would each load torch, to explain a hundred rows."""
    pytest.importorskip("pyarrow", reason="the extra `files` is not installed")
    monkeypatch.setattr(workers, "Processes", lambda workers: Inline())


def end_services_at_once(monkeypatch) -> None:
    """A server that gets ready, on a free port, and ends."""
    uvicorn = pytest.importorskip("uvicorn", reason="the extra `serve` is not installed")
    from plausiflow.service import server

    listening = server._listening
    monkeypatch.setattr(server, "_listening", lambda host, port: listening(host, 0))
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)


CIRCUMSTANCES = {
    "docs/batch.md": stand_in_for_processes,
    "docs/service.md": end_services_at_once,
}


def blocks_and_what_follows(page: Path) -> list[tuple[int, str]]:
    """Of each block of code that what it prints is shown after: its line, and what is shown."""
    return [
        (line, shown)
        for (language, line, _), (after, _, shown) in pairwise(fences(page))
        if (language, after) == ("python", "text")
    ]


@pytest.fixture
def played(tmp_path, monkeypatch):
    """Runs a page in an empty folder, as its readers would."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")

    def play(page: Path) -> tuple[types.ModuleType, dict[int, str]]:
        if named(page) in READERS_HAVE:
            shorten(monkeypatch)
        CIRCUMSTANCES.get(named(page), lambda patch: None)(monkeypatch)
        warnings.simplefilter("ignore", PlausibilityWarning)  # that rows are few is no fault of a page
        with as_users_have_it():
            return run(page, monkeypatch)

    return play


WITH_CODE = [page for page in PAGES if any(language == "python" for language, *_ in fences(page))]
WITH_PRINTS = [page for page in WITH_CODE if blocks_and_what_follows(page)]


@pytest.mark.parametrize("page", WITH_CODE, ids=named)
def test_the_code_of_a_page_runs(page, played, tmp_path):
    program, printed = played(page)
    if page == ROOT / "README.md":
        keeps_its_promises(program, "".join(printed.values()), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_PRINTS, ids=named)
def test_a_page_shows_what_its_code_prints(page, played, monkeypatch):
    monkeypatch.delenv("PLAUSIFLOW_DATA", raising=False)  # pages show what comes of generated rows
    _, printed = played(page)
    shown = dict(blocks_and_what_follows(page))
    assert {line: tidy(printed[line]) for line in shown} == {line: tidy(text) for line, text in shown.items()}


def tidy(text: str) -> list[str]:
    """Lines without what cannot be seen."""
    return [line.rstrip() for line in text.strip("\n").splitlines()]


def keeps_its_promises(program, printed, folder):
    """What the README says that its lines print and write."""
    first = next(body for language, _, body in fences(ROOT / "README.md") if language == "python")
    promised = re.search(r"print\(result\)\s+# (Explanations\(\d+ rows: )", first)
    assert promised is not None
    assert printed.startswith(promised[1])
    assert set(program.result.status["status"]) == {"found", "already"}
    assert "→" in printed
    assert program.answers.feasible.all()
    assert (folder / "report.html").stat().st_size > 10_000
    assert (folder / "credit-explainer" / "explainer.json").exists()
