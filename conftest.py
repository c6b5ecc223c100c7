"""Shared by all tests: double precision, seeds, options for device and precision, a guard of global state."""

import contextlib
import os
import random
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings

with contextlib.suppress(ImportError):  # before cvxpy, which loads another version of one of its libraries
    import ortools.sat.python.cp_model  # noqa: F401

settings.register_profile("plausiflow", deadline=None, derandomize=True)
settings.load_profile("plausiflow")

ROOT = Path(__file__).resolve().parent

OPTIONAL = {"mlflow": "src/plausiflow/mlflow.py", "mcp": "src/plausiflow/service/mcp_server.py"}
"""Modules that cannot be imported for their doctests without an extra."""
collect_ignore = [path for package, path in OPTIONAL.items() if find_spec(package) is None]


def pytest_addoption(parser):
    parser.addoption(
        "--device", default="cpu", help="where tests that take the `device` fixture run, such as cuda"
    )
    parser.addoption(
        "--dtype",
        default="float64",
        choices=["float32", "float64"],
        help="torch's default dtype in the tests",
    )
    parser.addoption(
        "--rewrite-pages",
        action="store_true",
        help="write what the code of pages prints into them, instead of comparing it",
    )
    parser.addoption(
        "--rewrite-pictures",
        action="store_true",
        help="record the pictures of plots, instead of comparing them with recorded ones",
    )


def pytest_collection_modifyitems(items):
    if torch.cuda.is_available():
        return
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="no CUDA device on this machine"))


@pytest.fixture(scope="session")
def device(request) -> torch.device:
    return torch.device(request.config.getoption("--device"))


@pytest.fixture(scope="session")
def dtype(request) -> torch.dtype:
    return getattr(torch, request.config.getoption("--dtype"))


@pytest.fixture(scope="session", autouse=True)
def default_dtype(dtype):
    """Set once for the session, so that fixtures of any scope see it."""
    before, threads = torch.get_default_dtype(), torch.get_num_threads()
    torch.set_default_dtype(dtype)
    torch.set_num_threads(1)
    yield
    torch.set_default_dtype(before)
    torch.set_num_threads(threads)


# What a test must leave as it was: how it is read, and how it is put back.
GLOBAL_STATE = {
    "torch's default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "torch's default device": (torch.get_default_device, torch.set_default_device),
    "torch's number of threads": (torch.get_num_threads, torch.set_num_threads),
    "gradients enabled": (torch.is_grad_enabled, torch.set_grad_enabled),
    "anomaly detection": (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    "deterministic algorithms": (
        torch.are_deterministic_algorithms_enabled,
        torch.use_deterministic_algorithms,
    ),
    "NumPy's error handling": (np.geterr, lambda state: np.seterr(**state)),
}


@pytest.fixture(autouse=True)
def clean_state(default_dtype):
    """The same random numbers for every test; fail one that leaves torch or NumPy in another state.

    One fixture for both, because it runs around every test.
    """
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(0)
    before = {name: read() for name, (read, _) in GLOBAL_STATE.items()}
    yield
    changed = []
    for name, (read, put_back) in GLOBAL_STATE.items():
        after = read()
        if after != before[name]:
            put_back(before[name])
            changed.append(f"{name}: {before[name]} became {after}")
    assert not changed, "the test changed global state: " + "; ".join(changed)


def _folder(variable: str, beside: str) -> Path:
    folder = Path(os.environ.get(variable) or ROOT.parent / "shared" / beside)
    if not folder.is_dir():
        pytest.skip(f"no folder {folder}; set {variable}")
    return folder


@pytest.fixture(scope="session")
def reference_directory() -> Path:
    """Arrays of the published runs."""
    return _folder("PLAUSIFLOW_REFERENCE", "reference")


@pytest.fixture(scope="session")
def data_directory() -> Path:
    """The data files of the catalogue."""
    return _folder("PLAUSIFLOW_DATA", "data")
