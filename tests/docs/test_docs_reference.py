"""The API reference lists the public names, and each of them has a docstring."""

import importlib
import inspect
import re

import pytest

import plausiflow
from pages import DOCS, fences

FUNCTIONS = {"run_batch", "serve"}
"""Functions of public packages that users call; the others are for other packages."""


def public_names(package: str) -> set[str]:
    """Return the classes of a package, and the functions that users call."""
    module = importlib.import_module(f"plausiflow.{package}")
    return {name for name in module.__all__ if inspect.isclass(getattr(module, name)) or name in FUNCTIONS}


def listed_names() -> list[str]:
    """Return the full names on the page."""
    names, module = [], ""
    for language, _, body in fences(DOCS / "api.md"):
        for line in body.splitlines() if language == "{eval-rst}" else ():
            if match := re.match(r"\.\. currentmodule:: (\S+)", line):
                module = match[1]
            elif match := re.match(r" {3}([A-Za-z][\w.]*)$", line):
                names.append(f"{module}.{match[1]}")
    return names


def resolve(name: str) -> object:
    """Return the object of a full name."""
    module, _, rest = name, "", ""
    while True:
        try:
            thing = importlib.import_module(module)
            break
        except ModuleNotFoundError:
            module, _, last = module.rpartition(".")
            rest = f"{last}.{rest}" if rest else last
    for part in rest.split(".") if rest else ():
        thing = getattr(thing, part)
    return thing


def undocumented(name: str, thing: object) -> list[str]:
    """Return the names of an object and its public parts that have no docstring of their own."""
    if inspect.ismodule(thing):
        own = [n for n in vars(thing) if not n.startswith("_")]
        inside = {
            n: getattr(thing, n)
            for n in own
            if getattr(getattr(thing, n), "__module__", None) == thing.__name__
        }
    elif inspect.isclass(thing):
        inside = {n: part for n, part in vars(thing).items() if not n.startswith("_")}
        inside = {
            n: part for n, part in inside.items() if inspect.isroutine(part) or isinstance(part, property)
        }
    else:
        inside = {}
    text = inspect.getdoc(thing) or ""
    missing = [name] if not text or (inspect.isclass(thing) and text.startswith(f"{thing.__name__}(")) else []
    return missing + [m for n, part in inside.items() for m in undocumented(f"{name}.{n}", part)]


def test_every_public_name_is_in_the_reference():
    assert {f"plausiflow.{name}" for name in plausiflow.__all__} <= set(listed_names())


def test_no_name_is_twice_in_the_reference():
    assert len(listed_names()) == len(set(listed_names()))


@pytest.mark.parametrize("module", ["methods", "batch", "service"])
def test_every_name_of_a_public_package_is_in_the_reference(module):
    package = importlib.import_module(f"plausiflow.{module}")
    listed = {id(resolve(name)) for name in listed_names()}
    assert [name for name in public_names(module) if id(getattr(package, name)) not in listed] == []


def test_the_reference_lists_only_public_names():
    """Names of the package itself, of its public packages, and the parts that users implement or pass."""
    public = {f"plausiflow.{name}" for name in plausiflow.__all__} | {"plausiflow.errors"}
    public |= {f"plausiflow.constraints.{name}" for name in ("Rule",)}
    public |= {f"plausiflow.workers.{name}" for name in ("Inline", "Processes", "Ray")}
    protocols = ("HasValueAndGrad", "RowScores", "PreparesRows", "ImprovingSolver")
    public |= {f"plausiflow.core.{name}" for name in protocols}
    for package in ("methods", "batch", "service"):
        public |= {f"plausiflow.{package}.{name}" for name in public_names(package)}
    assert set(listed_names()) - public == set()


@pytest.mark.parametrize("name", listed_names())
def test_everything_in_the_reference_has_a_docstring(name):
    assert undocumented(name, resolve(name)) == []
