"""The public names, frozen: what people type does not change unless somebody means it to.

After a change that is meant, `python tests/test_api.py` writes the list anew; the change of the list is then
part of the commit, and of the changelog.
"""

import inspect
from pathlib import Path

import plausiflow as pf

LIST = Path(__file__).with_name("public_api.txt")


def parameters(function) -> str:
    """Names and defaults, without types: those are mypy's business."""
    own = inspect.signature(function).parameters.values()
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in own]
    return str(inspect.Signature(bare))


def members(cls):
    """Public methods and properties that a class, or a base of ours, has."""
    for name in sorted(dir(cls)):
        raw = inspect.getattr_static(cls, name)
        home = next((base for base in cls.__mro__ if name in vars(base)), object)
        if name.startswith("_") or not home.__module__.startswith("plausiflow"):
            continue
        if isinstance(raw, property) or type(raw).__name__ == "cached_property":
            yield f"    .{name}"
        elif callable(getattr(cls, name)):
            yield f"    .{name}{parameters(getattr(cls, name))}"


def described() -> str:
    lines = []
    for name in sorted(pf.__all__):
        thing = getattr(pf, name)
        lines.append(name + (parameters(thing) if callable(thing) else ""))
        lines += members(thing) if inspect.isclass(thing) else []
    return "\n".join(lines) + "\n"


def test_the_public_names_are_those_of_the_list():
    assert described() == LIST.read_text(), "meant? then run `python tests/test_api.py`"


def test_every_public_name_says_what_it_is():
    for name in pf.__all__:
        thing = getattr(pf, name)
        assert inspect.getdoc(thing), name
        for line in members(thing) if inspect.isclass(thing) else ():
            member = line.strip(" .").split("(")[0]
            assert inspect.getdoc(inspect.getattr_static(thing, member)), f"{name}.{member}"


if __name__ == "__main__":
    LIST.write_text(described())
