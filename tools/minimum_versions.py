"""Print the lowest version of each dependency that pyproject.toml allows, as constraints for pip.

    python tools/minimum_versions.py > lowest.txt
    PIP_CONSTRAINT=lowest.txt pip install .

``make test-minimum`` runs the tests with them. It needs only the standard library.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[[^]]*\])?>=([\d.]+)")


def lowest(requirements: list[str]) -> list[str]:
    """Return a pin for each requirement with a lower bound."""
    found = [_REQUIREMENT.match(requirement) for requirement in requirements]
    return [f"{match[1]}=={match[2]}" for match in found if match is not None]


if __name__ == "__main__":
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    sys.stdout.write("".join(f"{pin}\n" for pin in lowest(project["dependencies"])))
