"""Compare the packages that pip installed with the committed list of SHA-256 hashes, ``wheels.sha256``.

``make setup`` runs this after ``pip install --report``. A file whose name is in the list must have its hash;
otherwise the program fails. A file that is not in the list is named and not checked: another build
of torch, a platform or a mirror that the list does not know. It needs only the standard library, and is run
by the interpreter outside the virtual environment.

    python tools/check_wheels.py REPORT [LIST]
    python tools/check_wheels.py --write       # make the list again, after a change of constraints.txt
"""

from __future__ import annotations

import json
import re
import sys
import urllib.parse
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIST, CONSTRAINTS = ROOT / "wheels.sha256", ROOT / "constraints.txt"
INDEX = "https://pypi.org/simple"
_LINK = re.compile(r'href="[^"#]*/([^"/#]+)#sha256=([0-9a-f]{64})"')
_PYTHONS = re.compile(r"-(?:py3|py2\.py3|cp31[1-3]|cp3\d+-abi3)[-.]")
_PLATFORMS = re.compile(r"-any\.whl$|linux.*_(?:x86_64|aarch64)|macosx")
_OTHERS = re.compile(r"musllinux|cp31[1-3]t|\.exe$")


def main(arguments: list[str]) -> int:
    """Run the program; return its exit code."""
    if arguments == ["--write"]:
        LIST.write_text("".join(f"{digest}  {name}\n" for name, digest in sorted(listed_by_index().items())))
        return 0
    report = json.loads(Path(arguments[0]).read_text())
    known = read_list(Path(arguments[1]) if len(arguments) > 1 else LIST)
    installed = installed_files(report)
    wrong = [name for name, digest in installed.items() if known.get(name, digest) != digest]
    unknown = [name for name in installed if name not in known]
    if wrong:
        print(
            f"These files do not have the hashes in {LIST.name}: {', '.join(wrong)}. They are not what the "
            "maintainers installed. Remove the virtual environment, and find out where pip got them.",
            file=sys.stderr,
        )
        return 1
    not_checked = f"; not in the list, so not checked: {', '.join(unknown)}" if unknown else ""
    print(f"{len(installed) - len(unknown)} packages have the hashes in {LIST.name}{not_checked}")
    return 0


def read_list(path: Path) -> dict[str, str]:
    """Return the hash of each file in a list, as ``sha256sum`` writes it."""
    pairs = (line.split() for line in path.read_text().splitlines())
    return {name: digest for digest, name in pairs}


def installed_files(report: dict) -> dict[str, str]:
    """Return the name and hash of each archive in a report of pip; directories have none."""
    files = {}
    for entry in report["install"]:
        source = entry["download_info"]
        if "archive_info" in source:
            name = urllib.parse.unquote(source["url"].partition("#")[0].rpartition("/")[2])
            archive = source["archive_info"]
            digests = archive.get("hashes") or dict([archive["hash"].split("=", 1)])
            files[name] = digests["sha256"]
    return files


def listed_by_index() -> dict[str, str]:
    """Return the files of all pinned versions for Linux and macOS, with the hashes of the package index."""
    files = {}
    for line in CONSTRAINTS.read_text().splitlines():
        name, pinned, version = line.partition("==")
        if not pinned or line.startswith("#"):
            continue
        page = f"{INDEX}/{re.sub(r'[-_.]+', '-', name).lower()}/"
        with urllib.request.urlopen(page) as answer:
            links = _LINK.findall(answer.read().decode())
        own = {urllib.parse.unquote(file): digest for file, digest in links if is_of(file, version)}
        files |= own
        print(f"{name}=={version}: {len(own)} files")
    return files


def is_of(file: str, version: str) -> bool:
    """Return whether a file is a source distribution or a fitting wheel of a version."""
    file = urllib.parse.unquote(file)
    if file.endswith((".tar.gz", ".zip")):
        return file.removesuffix(".tar.gz").removesuffix(".zip").endswith(f"-{version}")
    wanted = file.split("-")[1] == version and file.endswith(".whl")
    return bool(wanted and _PYTHONS.search(file) and _PLATFORMS.search(file) and not _OTHERS.search(file))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
