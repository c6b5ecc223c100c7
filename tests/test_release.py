"""A release: the same version everywhere, a recipe with the declared dependencies, versioned pages."""

import importlib.util
import json
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import plausiflow

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BENCH = tomllib.loads((ROOT / "bench" / "pyproject.toml").read_text())["project"]
CONDA_NAMES = {"torch": "pytorch"}


def tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("file", "pattern"),
    [
        ("pyproject.toml", r'^version = "(.+)"'),
        ("bench/src/plausiflow_bench/__init__.py", r'^__version__ = "(.+)"'),
        ("bench/pyproject.toml", r'"plausiflow\[plots\]==(.+)"'),
        ("CITATION.cff", r"^version: (.+)"),
        ("conda/recipe.yaml", r"^  version: (.+)"),
        ("docs/comparison.md", r"\*\*Last release\*\* \| ([\d.]+),"),
    ],
)
def test_the_version_is_the_same_everywhere(file, pattern):
    assert re.search(pattern, (ROOT / file).read_text(), re.M)[1] == plausiflow.__version__


def test_the_changelog_has_a_heading_or_a_plan_for_this_version():
    text = (ROOT / "CHANGELOG.md").read_text()
    assert f"## [{plausiflow.__version__}]" in text or f"to become {plausiflow.__version__}." in text


def test_the_conda_recipe_has_the_dependencies_of_the_project():
    text = (ROOT / "conda" / "recipe.yaml").read_text()
    listed = re.findall(r"^    - (\S+)(?: (.+))?$", text.split("  run:\n")[1].split("\ntests:")[0], re.M)
    recipe = {name: SpecifierSet(ranges) for name, ranges in listed}
    declared = [Requirement(each) for each in PROJECT["dependencies"]]
    expected = {CONDA_NAMES.get(each.name, each.name): each.specifier for each in declared}
    assert recipe == expected | {"python": SpecifierSet(PROJECT["requires-python"])}


def test_both_distributions_name_the_same_versions_of_python():
    assert BENCH["requires-python"] == PROJECT["requires-python"]
    versions = [each for each in PROJECT["classifiers"] if "Python :: 3." in each]
    assert versions == [each for each in BENCH["classifiers"] if "Python :: 3." in each]


def test_the_lowest_versions_are_those_of_the_project():
    found = tool("minimum_versions").lowest(["numpy>=2.0,<3", "plausiflow[plots]==1", "uvicorn[x]>=0.3"])
    assert found == ["numpy==2.0", "uvicorn==0.3"]
    assert len(tool("minimum_versions").lowest(PROJECT["dependencies"])) == len(PROJECT["dependencies"])


def test_each_version_of_the_pages_keeps_its_directory(tmp_path, capsys):
    html, site, publish = tmp_path / "html", tmp_path / "site", tool("version_docs").main
    html.mkdir()
    assert publish([str(html), str(site), "0.1.0"]) == 1
    assert "make docs" in capsys.readouterr().err
    for version in ("0.1.0", "0.10.0", "0.9.0", "0.11.0.dev1"):
        (html / "index.html").write_text(version)
        assert publish([str(html), str(site), version]) == 0
    assert json.loads((site / "versions.json").read_text()) == ["0.11.0.dev1", "0.10.0", "0.9.0", "0.1.0"]
    assert (site / "0.1.0" / "index.html").read_text() == "0.1.0"
    assert "url=0.10.0/index.html" in (site / "index.html").read_text()
    assert publish([str(html), str(site), "../up"]) == 2
