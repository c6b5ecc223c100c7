"""The commands of README and documentation work, one after the other, as a reader would type them."""

import os
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from pages import ROOT, command_lines, of_command_line
from plausiflow import load_table

PAGES = {"README.md": "loan", "docs/cli.md": "loan", "docs/quickstart.md": "decision"}
"""Pages whose commands build on each other, and the name of their outcome column."""
COLUMNS = ["age", "sex", "education", "income", "debt_ratio", "loan_amount", "credit_score"]
RULES = 'immutable = ["age", "sex"]\nmax_changes = 3\n'


def write_files(folder: Path, outcome: str) -> None:
    """Write the files that a reader has: a table, rows, rules, a model, a portfolio."""
    train, test = load_table("loans").split(250, 6)
    x, rows = train.x[COLUMNS], test.x[COLUMNS]
    x.assign(**{outcome: train.y.to_numpy()}).to_csv(folder / "loans.csv", index=False)
    rows.to_csv(folder / "rows.csv", index=False)
    (folder / "rules.toml").write_text(RULES)
    (folder / "portfolio").mkdir()
    rows.to_parquet(folder / "portfolio" / "rows.parquet")
    skops = pytest.importorskip("skops.io", reason="the extra `files` is not installed")
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = ["age", "income", "debt_ratio", "loan_amount", "credit_score"]
    columns = make_column_transformer((StandardScaler(), numbers), (OneHotEncoder(), ["sex", "education"]))
    skops.dump(make_pipeline(columns, LogisticRegression()).fit(x, train.y), folder / "model.skops")


def run_command(words: list[str], folder: Path) -> None:
    """Run a command, which must succeed."""
    command = [sys.executable, "-m", "plausiflow", *words]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=900)
    assert ended.returncode == 0, f"{shlex.join(words)}\n{ended.stdout[-2000:]}\n{ended.stderr[-2000:]}"


def run_service(words: list[str], folder: Path) -> None:
    """Start a service, which must answer and stop on SIGTERM."""
    with subprocess.Popen(
        [sys.executable, "-m", "plausiflow", *words], cwd=folder, stdout=subprocess.DEVNULL
    ) as process:
        given_up = time.monotonic() + 120
        try:
            while True:
                assert process.poll() is None
                assert time.monotonic() < given_up
                try:
                    with urllib.request.urlopen("http://127.0.0.1:8080/healthz", timeout=5) as answer:
                        assert answer.status == 200
                    break
                except OSError:
                    time.sleep(0.3)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) in (0, -signal.SIGTERM, 130)
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_work(page, tmp_path, monkeypatch):
    pytest.importorskip("pyarrow", reason="the extra `files` is not installed")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    write_files(tmp_path, PAGES[page])
    lines = command_lines(ROOT / page)
    assert len(lines) >= 3
    for line in lines:
        words = of_command_line(line)
        (run_service if words[0] == "serve" else run_command)(words, tmp_path)
    assert (tmp_path / "report.html").stat().st_size > 10_000
    if page == "README.md":
        assert (tmp_path / "answers" / "_SUCCESS").exists()
        assert (tmp_path / "out" / "paper.md").exists()
