"""What a plain installation promises: the core alone imports, without the network, and knows its version."""

import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import plausiflow

ROOT = Path(__file__).resolve().parents[1]

IMPORT_WITHOUT_EXTRAS_AND_NETWORK = """
import importlib.abc
import socket
import sys

EXTRAS = {
    "matplotlib", "cvxpy", "clarabel", "ray", "fastapi", "uvicorn", "pyarrow", "skops", "xgboost", "lightgbm",
    "catboost", "pytest", "hypothesis", "entmax",
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


def test_importing_needs_no_extra_and_no_network():
    command = [sys.executable, "-W", "error", "-c", IMPORT_WITHOUT_EXTRAS_AND_NETWORK]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


def test_version_is_that_of_pyproject():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert plausiflow.__version__ == version == metadata.version("plausiflow")
