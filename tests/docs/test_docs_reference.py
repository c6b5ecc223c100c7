"""The reference tells of every public name, and every public name says what it is."""

import importlib
import inspect
import re

import pytest

import plausiflow
from pages import DOCS, fences


def summarised() -> list[str]:
    """The full names on the page of the reference."""
    names, module = [], ""
    for language, _, body in fences(DOCS / "api.md"):
        for line in body.splitlines() if language == "{eval-rst}" else ():
            if told := re.match(r"\.\. currentmodule:: (\S+)", line):
                module = told[1]
            elif told := re.match(r" {3}([A-Za-z][\w.]*)$", line):
                names.append(f"{module}.{told[1]}")
    return names


def found(name: str) -> object:
    """What a full name stands for."""
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
    """Public parts of a thing, and itself, that have no docstring of their own."""
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
    assert {f"plausiflow.{name}" for name in plausiflow.__all__} <= set(summarised())


def test_no_name_is_twice_in_the_reference():
    assert len(summarised()) == len(set(summarised()))


@pytest.mark.parametrize(
    "module",
    [
        "methods",
        "constraints",
        "densities",
        "classifiers",
        "solvers",
        "search",
        "scale",
        "workers",
        "service",
    ],
)
def test_every_class_and_function_of_a_public_module_is_in_the_reference(module):
    room = importlib.import_module(f"plausiflow.{module}")
    told = {id(found(name)) for name in summarised()}
    own = {name: getattr(room, name) for name in room.__all__}
    things = {
        name: thing for name, thing in own.items() if inspect.isclass(thing) or inspect.isfunction(thing)
    }
    assert [name for name, thing in things.items() if id(thing) not in told] == []


@pytest.mark.parametrize("name", summarised())
def test_everything_in_the_reference_has_a_docstring(name):
    assert undocumented(name, found(name)) == []
