"""Packages and their layers, doors, one file per heavy dependency, safe loading, the paper's equations.

A module imports only from packages of lower layers, and only what their ``__init__`` exports; inside its own
package it imports from modules.
"""

import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "plausiflow"
BENCH = ROOT / "bench" / "src" / "plausiflow_bench"
MODULES = sorted(SOURCE.rglob("*.py"))
STUDIES = sorted(BENCH.rglob("*.py"))
WRITTEN = [
    *MODULES,
    *STUDIES,
    *sorted((ROOT / "tests").rglob("*.py")),
    *sorted((ROOT / "bench/tests").rglob("*.py")),
]
MOST_LINES = 400

PAGE = ROOT / "docs" / "architecture.md"


def table_of(heading: str) -> list[list[str]]:
    """The cells of the table below a heading of the page, without its head."""
    text = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


LAYERS = {int(layer): set(packages.split(", ")) for layer, packages in table_of("Layers")}
LAYER = {package: layer for layer, packages in LAYERS.items() for package in packages}

ONLY_IN = {
    "zuko": {"densities/flows.py"},
    "matplotlib": {"plots.py"},
    "ray": {"workers/ray.py"},
    "narwhals": {"tables/formats.py"},
    "onnxruntime": {"models/onnx_model.py"},
    "ortools": {"exact/cp_sat.py"},
    "fastapi": {"service/app.py"},
    "mcp": {"service/mcp_server.py"},
    "mlflow": {"mlflow.py"},
    "uvicorn": {"service/server.py"},
    "typer": {
        f"cli/{name}.py"
        for name in (
            *("__init__", "options", "fit", "suggestions", "explain", "letter"),
            *("groups", "audit", "recheck", "batch", "serve", "mcp"),
        )
    },
}

# A distribution's name and the name it is imported by, where these differ.
IMPORTED_AS = {"scikit-learn": "sklearn", "xgboost-cpu": "xgboost", "mlflow-skinny": "mlflow"}

UNSAFE = {
    *(
        f"{module}.{name}"
        for module in ("pickle", "cloudpickle", "dill")
        for name in ("load", "loads", "Unpickler")
    ),
    *("joblib.load", "pandas.read_pickle", "shelve.open", "marshal.load", "marshal.loads"),
}

EQUATIONS = {3, 6, 7, 8, 9, 10, 11}


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE if path.is_relative_to(SOURCE) else BENCH.parent).as_posix()


def package_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(tree: ast.Module, package: str) -> Iterator[str]:
    """The dotted name of everything a module of ``package`` imports, relative imports made absolute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def imports_of(path: Path) -> set[str]:
    root = SOURCE if path.is_relative_to(SOURCE) else BENCH
    package = ".".join([root.name, *path.relative_to(root).parts[:-1]])
    return set(imported(ast.parse(path.read_text()), package))


def upward_imports(package: str, names: set[str]) -> list[str]:
    """Which of the names imported by a module of ``package`` are not below it."""
    wrong = []
    for name in sorted(names):
        distribution, _, rest = name.partition(".")
        other = rest.split(".")[0]
        if (
            distribution != "plausiflow"
            or other == package
            or (other == "__version__" and LAYER[package] >= 7)
        ):
            continue
        if other not in LAYER or LAYER[other] >= LAYER[package]:
            wrong.append(name)
    return wrong


def exports_of(package: str) -> set[str]:
    """What the ``__init__`` of a package exports."""
    for node in ast.parse((SOURCE / package / "__init__.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def imports_past_a_door(package: str, names: set[str]) -> list[str]:
    """Which of the names imported by a module of ``package`` another package does not export."""
    wrong = []
    for name in sorted(names):
        distribution, *parts = name.split(".")
        if (
            distribution != "plausiflow"
            or not parts
            or parts[0] == package
            or not (SOURCE / parts[0]).is_dir()
        ):
            continue
        if len(parts) != 2 or parts[1] not in exports_of(parts[0]):
            wrong.append(name)
    return wrong


def unsafe_loads(tree: ast.Module) -> list[str]:
    """Calls that would run code from a file: pickles in any disguise."""
    aliases = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            aliases |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            aliases |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        first, _, rest = ast.unparse(node.func).partition(".")
        name = ".".join(filter(None, [aliases.get(first, first), rest]))
        settings = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        pickled = name == "torch.load" and settings.get("weights_only") != "True"
        pickled |= name == "numpy.load" and settings.get("allow_pickle", "False") != "False"
        if pickled or name in UNSAFE:
            found.append(f"line {node.lineno}: {ast.unparse(node)}")
    return found


def declared_packages() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = [
        *project["dependencies"],
        *(r for extra in project["optional-dependencies"].values() for r in extra),
    ]
    names = {re.match(r"[\w.-]+", requirement).group() for requirement in requirements}
    return {IMPORTED_AS.get(name, name.replace("-", "_")) for name in names}


@pytest.fixture(params=MODULES, ids=name_of)
def module(request) -> Path:
    return request.param


def test_a_module_imports_only_from_lower_layers(module):
    if module == SOURCE / "__init__.py":
        return
    package = package_of(module)
    assert package in LAYER, f"{package} is in no layer: add it to the table in {PAGE.name}"
    assert upward_imports(package, imports_of(module)) == []


@pytest.mark.parametrize("path", [*MODULES, *STUDIES], ids=name_of)
def test_a_module_imports_from_other_packages_only_what_they_export(path):
    package = "" if path in STUDIES or path.parent == SOURCE else package_of(path)
    assert imports_past_a_door(package, imports_of(path)) == []


def test_a_package_exports_what_is_there():
    extras = set()
    for package in sorted(path.parent.name for path in SOURCE.glob("*/__init__.py")):
        module = __import__(f"plausiflow.{package}", fromlist=["__all__"])
        for name in module.__all__:
            try:
                assert hasattr(module, name), f"{package}.{name}"
            except ModuleNotFoundError as error:
                extras.add(error.name)
    if extras:
        pytest.skip(f"not all exports were looked at: {', '.join(extras)} is not installed")


def test_a_class_name_is_defined_once():
    where = defaultdict(list)
    for path in [*MODULES, *STUDIES]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                where[node.name].append(name_of(path))
    assert {name: files for name, files in where.items() if len(files) > 1} == {}


def test_the_library_does_not_know_its_repository(module):
    assert not re.search(r"\.\./shared|shared/|README|plausiflow_bench", module.read_text())


def test_the_page_names_every_package_and_every_module():
    told = {package: set(filter(None, modules.split(", "))) for package, _, modules in table_of("Packages")}
    there = {package: set() for package in LAYER}
    for path in MODULES:
        if path.parent != SOURCE and path.stem != "__init__":
            there[package_of(path)].add(".".join(path.relative_to(SOURCE).with_suffix("").parts[1:]))
    assert told == there


def test_the_page_says_where_heavy_packages_are_imported():
    text = " ".join(PAGE.read_text().split())
    for files in ONLY_IN.values():
        assert "cli/" in text if len(files) > 2 else all(f"`{name}`" in text for name in files)


def test_a_heavy_package_is_imported_in_its_own_file_only(module):
    packages = {name.split(".")[0] for name in imports_of(module)}
    assert [
        package for package in sorted(packages & set(ONLY_IN)) if name_of(module) not in ONLY_IN[package]
    ] == []


def test_a_module_imports_only_declared_packages(module):
    packages = {name.split(".")[0] for name in imports_of(module)}
    assert packages - declared_packages() - set(sys.stdlib_module_names) - {"plausiflow"} == set()


def test_a_module_loads_no_pickle(module):
    assert unsafe_loads(ast.parse(module.read_text())) == []


def test_a_module_has_a_docstring_and_at_most_400_lines(module):
    text = module.read_text()
    assert ast.get_docstring(ast.parse(text)), "say in one paragraph what the module is for"
    assert len(text.splitlines()) <= 400


def test_no_module_is_a_junk_drawer():
    assert [
        name_of(path) for path in MODULES if path.stem in {"utils", "util", "helpers", "misc", "common"}
    ] == []


def test_every_equation_of_the_paper_is_tagged_in_the_code():
    found = {int(number) for path in MODULES for number in re.findall(r"PPCEF Eq\. (\d+)", path.read_text())}
    assert found >= EQUATIONS


@pytest.mark.parametrize(
    ("line", "upward", "past"),
    [
        ("from plausiflow.errors import ShapeError", [], []),
        ("from plausiflow.densities.flows import ConditionalFlow", [], []),
        ("from . import flows", [], []),
        ("from plausiflow.core import Density", [], []),
        ("from plausiflow.core.losses import validity_value", [], ["plausiflow.core.losses.validity_value"]),
        ("from plausiflow.core import losses", [], ["plausiflow.core.losses"]),
        ("from plausiflow.methods import PPCEF", ["plausiflow.methods.PPCEF"], []),
        ("import plausiflow.solvers.sqp", ["plausiflow.solvers.sqp"], ["plausiflow.solvers.sqp"]),
        ("from plausiflow import PPCEF", ["plausiflow.PPCEF"], []),
        ("from ..explainer import Explainer", ["plausiflow.explainer.Explainer"], []),
        ("def late():\n    from plausiflow.cli import app", ["plausiflow.cli.app"], []),
    ],
)
def test_the_checks_tell_allowed_imports_from_others(line, upward, past):
    names = set(imported(ast.parse(line), "plausiflow.densities"))
    assert upward_imports("densities", names) == upward
    assert imports_past_a_door("densities", names) == past


@pytest.mark.parametrize(
    ("line", "safe"),
    [
        ("import torch\ntorch.load(path, weights_only=True)", True),
        ("import numpy as np\nnp.load(path)", True),
        ("from safetensors.torch import load_file\nload_file(path)", True),
        ("import torch\ntorch.load(path)", False),
        ("import torch as t\nt.load(path, weights_only=False)", False),
        ("import numpy as np\nnp.load(path, allow_pickle=True)", False),
        ("from pickle import load as read\nread(file)", False),
        ("import joblib\njoblib.load(path)", False),
    ],
)
def test_the_check_tells_safe_loads_from_pickles(line, safe):
    assert (unsafe_loads(ast.parse(line)) == []) == safe


def test_no_module_is_long():
    lines = {path.relative_to(ROOT).as_posix(): path.read_text().count("\n") for path in WRITTEN}
    assert len(lines) > 300
    assert {name: n for name, n in lines.items() if n > MOST_LINES} == {}
