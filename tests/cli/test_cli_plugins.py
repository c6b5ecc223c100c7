"""Commands of other packages: added through entry points, reported in one line if missing or broken."""

import os
import subprocess
import sys
from importlib.metadata import EntryPoint, entry_points

import pytest
from typer.testing import CliRunner

from plausiflow.cli import GROUP, create_app

INSTALL = (
    "needs the package `plausiflow-bench`, which is not installed. "
    "Install it with: pip install plausiflow-bench"
)


def run(plugins, *arguments):
    finished = CliRunner().invoke(create_app(plugins), list(arguments))
    return finished.exit_code, finished.stdout, finished.stderr


def entry(value, name="benchmark"):
    return EntryPoint(name=name, value=value, group=GROUP)


def test_the_installed_benchmarks_are_a_command():
    plugins = entry_points(group=GROUP)
    if "benchmark" not in plugins.names:
        pytest.skip("plausiflow-bench is not installed")
    code, out, _ = run(plugins, "benchmark", "--help")
    assert code == 0
    assert "paper" in out


@pytest.mark.parametrize("arguments", [(), ("paper", "--rows", "3"), ("--help",), ("batch", "--help")])
def test_missing_benchmarks_are_one_line_that_names_the_package(arguments):
    code, out, err = run([], "benchmark", *arguments)
    assert (code, out) == (2, "")
    assert err == f"plausiflow: `plausiflow benchmark` {INSTALL}\n"


@pytest.mark.slow
def test_missing_benchmarks_are_reported_by_the_command_itself():
    program = (
        "import importlib.metadata as m; m.entry_points = lambda **_: (); "
        "from plausiflow.cli import app; app(['benchmark', 'paper'])"
    )
    path = os.pathsep.join(filter(None, sys.path))
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}
    )
    assert (finished.returncode, finished.stdout) == (2, "")
    assert finished.stderr == f"plausiflow: `plausiflow benchmark` {INSTALL}\n"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("no_such_module:app", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("plausiflow.cli:no_such_name", "has no attribute 'no_such_name'"),
        ("plausiflow.cli:GROUP", "TypeError: plausiflow.cli:GROUP must be a typer.Typer; got str"),
        ("broken_plugin:app", "RuntimeError: two lines"),
    ],
)
def test_a_broken_command_is_one_line_and_the_others_work(value, reason, tmp_path, monkeypatch):
    (tmp_path / "broken_plugin.py").write_text("raise RuntimeError('two\\nlines.')")
    monkeypatch.syspath_prepend(tmp_path)
    plugins = [entry(value, "extra")]
    code, out, err = run(plugins, "extra", "--anything", "else")
    assert (code, out) == (2, "")
    assert err.startswith("plausiflow: `plausiflow extra` cannot be loaded: ")
    assert reason in err
    assert f"Reinstall the package that provides {value}." in err
    assert err.count("\n") == 1
    code, out, _ = run(plugins, "--help")
    assert code == 0
    assert all(name in out for name in ("fit", "explain", "batch", "serve", "extra", "benchmark"))
    assert run(plugins, "fit", "--help")[0] == 0


def test_a_broken_benchmark_is_not_reported_as_missing():
    code, _, err = run([entry("no_such_module:app")], "benchmark")
    assert code == 2
    assert "cannot be loaded: ModuleNotFoundError" in err
