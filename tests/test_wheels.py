"""Hashes of installed packages: known files must have the listed hash, unknown ones are named."""

import importlib.util
import json
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
SPEC = importlib.util.spec_from_file_location("check_wheels", ROOT / "tools" / "check_wheels.py")
check_wheels = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(check_wheels)

KNOWN, OTHER = "a" * 64, "b" * 64


@pytest.fixture
def report(tmp_path):
    """Write a report of pip with one archive and one directory, and a list; return the arguments."""

    def write(digest, name="one-1.0%2Bcpu-py3-none-any.whl"):
        archive = {"url": f"https://index/packages/{name}", "archive_info": {"hashes": {"sha256": digest}}}
        folder = {"url": "file:///project", "dir_info": {"editable": True}}
        entries = [{"download_info": info} for info in (archive, folder)]
        (tmp_path / "report.json").write_text(json.dumps({"install": entries}))
        (tmp_path / "list").write_text(f"{KNOWN}  one-1.0+cpu-py3-none-any.whl\n")
        return [str(tmp_path / "report.json"), str(tmp_path / "list")]

    return write


def test_a_package_with_the_listed_hash_passes(report, capsys):
    assert check_wheels.main(report(KNOWN)) == 0
    assert "1 packages have the hashes" in capsys.readouterr().out


def test_a_package_with_another_hash_fails(report, capsys):
    assert check_wheels.main(report(OTHER)) == 1
    assert "one-1.0+cpu-py3-none-any.whl" in capsys.readouterr().err


def test_a_package_that_is_not_listed_is_named(report, capsys):
    assert check_wheels.main(report(OTHER, "two-1.0-py3-none-any.whl")) == 0
    assert "not in the list, so not checked: two-1.0-py3-none-any.whl" in capsys.readouterr().out


def pins() -> dict[str, str]:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]
    return {
        name.lower().replace("_", "-"): version
        for name, _, version in (line.partition("==") for line in lines)
    }


def test_every_pinned_version_is_in_the_list():
    listed = set()
    for file in check_wheels.read_list(ROOT / "wheels.sha256"):
        name, version = re.match(r"(.+?)-(\d[^-]*?)(?:-|\.tar\.gz$|\.zip$)", file).groups()
        listed.add((re.sub(r"[-_.]+", "-", name).lower(), version))
    missing = [pin for pin in pins().items() if (re.sub(r"[-_.]+", "-", pin[0]), pin[1]) not in listed]
    assert missing == []


FLOORS = {"skops": "0.12.99", "h11": "0.15.99", "ray": "2.53.99"}
"""The last versions with known holes."""


@pytest.mark.parametrize("name", FLOORS)
def test_versions_with_known_holes_are_excluded_and_the_pin_is_not(name):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [Requirement(text) for extra in project["optional-dependencies"].values() for text in extra]
    (requirement,) = [requirement for requirement in wanted if requirement.name == name]
    assert not requirement.specifier.contains(FLOORS[name])
    assert requirement.specifier.contains(pins()[name])
