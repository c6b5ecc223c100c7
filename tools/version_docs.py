"""Put a built documentation beside those of other versions, so that each release keeps its own.

    python tools/version_docs.py docs/_build/html docs/_build/site 0.2.0

The pages go to ``SITE/0.2.0``; ``SITE/versions.json`` lists all versions, newest first, and
``SITE/index.html`` leads to the newest release. Publish the directory ``SITE`` as it is.
It needs only the standard library.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

LEAD = """<!doctype html>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={version}/index.html">
<title>plausiflow</title>
<p><a href="{version}/index.html">plausiflow {version}</a></p>
<p>All versions: {links}</p>
"""
_VERSION = re.compile(r"\d+(\.\d+)*[\w.+-]*")


def main(arguments: list[str]) -> int:
    """Run the program; return its exit code."""
    if len(arguments) != 3 or not _VERSION.fullmatch(arguments[2]):
        print("usage: version_docs.py HTML SITE VERSION", file=sys.stderr)
        return 2
    html, site, version = Path(arguments[0]), Path(arguments[1]), arguments[2]
    if not (html / "index.html").is_file():
        print(f"{html} has no index.html. Build the pages first: make docs", file=sys.stderr)
        return 1
    shutil.rmtree(site / version, ignore_errors=True)
    shutil.copytree(html, site / version)
    versions = known_versions(site)
    (site / "versions.json").write_text(json.dumps(versions) + "\n")
    releases = [each for each in versions if re.fullmatch(r"[\d.]+", each)]
    links = ", ".join(f'<a href="{each}/index.html">{each}</a>' for each in versions)
    (site / "index.html").write_text(LEAD.format(version=(releases or versions)[0], links=links))
    return 0


def known_versions(site: Path) -> list[str]:
    """Return the versions in a directory, newest first; one such as 0.3.0.dev1 is older than 0.3.0."""
    names = [path.parent.name for path in site.glob("*/index.html") if _VERSION.fullmatch(path.parent.name)]
    return sorted(names, key=_order, reverse=True)


def _order(version: str) -> tuple[list[int], bool, str]:
    numbers = re.match(r"[\d.]*\d", version)[0]
    return [int(part) for part in numbers.split(".")], numbers == version, version


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
