"""What a plain installation promises: the core alone imports, without the network, and knows its version."""

import json
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import plausiflow

ROOT = Path(__file__).resolve().parents[1]

IMPORT_WITHOUT_EXTRAS_AND_NETWORK = """
import importlib.abc
import socket
import sys
import tarfile

EXTRAS = {
    "matplotlib", "cvxpy", "clarabel", "ray", "fastapi", "uvicorn", "pyarrow", "skops", "xgboost", "lightgbm",
    "catboost", "pytest", "hypothesis", "polars", "onnxruntime", "mcp", "mlflow", "duckdb", "dask", "ortools",
}

class NotInstalled(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

def refuse(*args, **kwargs):
    raise AssertionError(f"a network call: {args}")

sys.meta_path.insert(0, NotInstalled())
socket.socket.connect = socket.socket.connect_ex = socket.create_connection = socket.getaddrinfo = refuse

import plausiflow

for name in getattr(plausiflow, "__all__", []):
    getattr(plausiflow, name)
print(*sorted(EXTRAS & {name.split(".")[0] for name in sys.modules}))
"""


CORE = {
    "plausiflow", "numpy", "pandas", "scipy", "scikit-learn", "torch", "zuko", "entmax", "safetensors",
    "jinja2", "filelock", "rich", "typer", "narwhals", "threadpoolctl",
    *("python-dateutil", "six", "tzdata"),  # of pandas
    *("joblib", "cloudpickle"),  # of scikit-learn
    *("fsspec", "markupsafe", "mpmath", "networkx", "setuptools", "sympy", "typing-extensions"),  # of torch
    *("annotated-doc", "click", "markdown-it-py", "mdurl", "pygments", "shellingham"),  # of rich and typer
    *("annotated-types", "pydantic", "pydantic-core", "typing-inspection"),  # of typer
}  # fmt: skip
"""Everything that `pip install plausiflow` may install; some is not needed by all versions of others."""


def test_importing_needs_no_extra_and_no_network():
    command = [sys.executable, "-W", "error", "-c", IMPORT_WITHOUT_EXTRAS_AND_NETWORK]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


def test_version_is_that_of_pyproject():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert plausiflow.__version__ == version == metadata.version("plausiflow")


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> tuple[Path, list[Path]]:
    """An empty virtual environment, and the wheels and the source distributions built and installed in it."""
    folder = tmp_path_factory.mktemp("packages")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    quiet = [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    environment = os.environ | {"PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
    subprocess.run([*quiet, "build"], check=True, env=environment)
    for project in (ROOT, ROOT / "bench"):
        build = [python, "-m", "build", "--outdir", folder / "dist", project]
        subprocess.run(build, check=True, env=environment, capture_output=True)
    built = sorted((folder / "dist").iterdir())
    subprocess.run([*quiet, *(path for path in built if path.suffix == ".whl")], check=True, env=environment)
    return python, built


def of(built: list[Path], start: str, end: str) -> Path:
    (found,) = [path for path in built if path.name.startswith(start) and path.name.endswith(end)]
    return found


@pytest.mark.slow
def test_a_plain_installation_brings_nothing_heavy_beyond_the_core(packages, tmp_path):
    """What pip would install for the wheel alone; CUDA is torch's own."""
    built = packages[1]
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    command = [
        tmp_path / "venv" / "bin" / "python", "-m", "pip", "install", "-qq", "--dry-run", "--report", "-",
        of(built, "plausiflow-", ".whl"),
    ]  # fmt: skip
    environment = os.environ | {"PIP_CONSTRAINT": str(ROOT / "constraints.txt")}
    done = subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
    names = {
        each["metadata"]["name"].lower().replace("_", "-") for each in json.loads(done.stdout)["install"]
    }
    names = {name for name in names if not name.startswith(("nvidia-", "cuda-", "triton"))}
    assert names - CORE == set()
    assert {"plausiflow", "torch", "pandas", "scikit-learn", "narwhals"} <= names


@pytest.mark.slow
def test_a_wheel_and_a_source_distribution_are_built(packages):
    wheel, source = of(packages[1], "plausiflow-", ".whl"), of(packages[1], "plausiflow-", ".tar.gz")
    assert wheel.name == f"plausiflow-{plausiflow.__version__}-py3-none-any.whl"
    assert source.name == f"plausiflow-{plausiflow.__version__}.tar.gz"
    with zipfile.ZipFile(wheel) as file:
        inside = set(file.namelist())
    parts = {f.relative_to(ROOT / "src").as_posix() for f in (ROOT / "src" / "plausiflow").rglob("*.*")}
    assert {name for name in parts if "__pycache__" not in name} <= inside
    with tarfile.open(source) as file:
        told = {name.partition("/")[2] for name in file.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "tests/test_install.py"} <= told


@pytest.mark.slow
def test_the_distribution_of_studies_adds_its_command(packages, tmp_path):
    python, built = packages
    of(built, "plausiflow_bench-", ".tar.gz")
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [python.with_name("plausiflow"), "benchmark", "--help"]
    done = subprocess.run(command, cwd=tmp_path, env=plain, capture_output=True, text=True, check=True)
    assert "exact" in done.stdout


@pytest.mark.slow
def test_the_demo_runs_from_the_wheel(packages, tmp_path):
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def told(*command: str | Path) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=plain, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    python = packages[0]
    assert str(python.parents[1]) in told(python, "-c", "import plausiflow; print(plausiflow.__file__)")
    told(python.with_name("plausiflow"), "demo")
    assert list((tmp_path / "out").iterdir())
