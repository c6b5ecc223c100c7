"""The rooms and their layers, one file per heavy package, safe loading, the paper's equations in the code.

A module imports only from rooms of lower layers; sideways only inside its own room.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "plausiflow"
MODULES = sorted(SOURCE.rglob("*.py"))
WRITTEN = [*MODULES, *sorted((ROOT / "tests").rglob("*.py"))]
MOST_LINES = 400

PAGE = ROOT / "docs" / "architecture.md"


def table_of(heading: str) -> list[list[str]]:
    """The cells of the table below a heading of the page, without its head."""
    text = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


LAYERS = {int(layer): set(rooms.split(", ")) for layer, rooms in table_of("Layers")}
LAYER = {room: layer for layer, rooms in LAYERS.items() for room in rooms}

ONLY_IN = {
    "zuko": {"densities/flows.py"},
    "matplotlib": {"plots.py", "benchmark/figures.py"},
    "cvxpy": {"methods/artelt.py"},
    "ray": {"workers/ray.py"},
    "fastapi": {"service/app.py"},
    "uvicorn": {"service/server.py"},
    "typer": {
        f"cli/{name}.py"
        for name in (
            *("__init__", "options", "benchmarks", "table_benchmarks", "paper"),
            *("table_options", "fitting", "explaining", "batching", "serving"),
        )
    },
}

# A distribution's name and the name it is imported by, where these differ.
IMPORTED_AS = {"scikit-learn": "sklearn", "xgboost-cpu": "xgboost"}

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
    return path.relative_to(SOURCE).as_posix()


def room_of(path: Path) -> str:
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
    package = ".".join(["plausiflow", *path.relative_to(SOURCE).parts[:-1]])
    return set(imported(ast.parse(path.read_text()), package))


def wrong_imports(room: str, names: set[str]) -> list[str]:
    """Which of the names imported by a module of ``room`` are not below it."""
    wrong = []
    for name in sorted(names):
        package, _, rest = name.partition(".")
        other = rest.split(".")[0]
        if package != "plausiflow" or other == room or (other == "__version__" and LAYER[room] >= 7):
            continue
        if other not in LAYER or LAYER[other] >= LAYER[room]:
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
    room = room_of(module)
    assert room in LAYER, f"{room} is in no layer: add it to the table in {PAGE.name}"
    assert wrong_imports(room, imports_of(module)) == []


def test_the_page_names_every_room_and_every_module():
    told = {room: set(filter(None, modules.split(", "))) for room, _, modules in table_of("Rooms")}
    there = {room: set() for room in LAYER}
    for path in MODULES:
        if path.parent != SOURCE and path.stem != "__init__":
            there[room_of(path)].add(".".join(path.relative_to(SOURCE).with_suffix("").parts[1:]))
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
    ("line", "expected"),
    [
        ("from plausiflow.errors import ShapeError", []),
        ("from plausiflow.densities.flows import ConditionalFlow", []),
        ("from plausiflow import losses", []),
        ("from . import flows", []),
        ("from plausiflow.methods import PPCEF", ["plausiflow.methods.PPCEF"]),
        ("import plausiflow.solvers.sqp", ["plausiflow.solvers.sqp"]),
        ("from plausiflow import PPCEF", ["plausiflow.PPCEF"]),
        ("from ..metrics import evaluate", ["plausiflow.metrics.evaluate"]),
        ("def late():\n    from plausiflow.cli import app", ["plausiflow.cli.app"]),
    ],
)
def test_the_check_tells_allowed_imports_from_others(line, expected):
    assert wrong_imports("densities", set(imported(ast.parse(line), "plausiflow.densities"))) == expected


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
