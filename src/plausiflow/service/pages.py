"""The files of the what-if page, read once; only these can be asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "static"
INDEX = "index.html"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}


@dataclass(frozen=True)
class StaticFile:
    """A file and its media type."""

    content: bytes
    media_type: str


@cache
def static_files() -> dict[str, StaticFile]:
    """All of them, by their path in the folder."""
    return {
        path.relative_to(FOLDER).as_posix(): StaticFile(path.read_bytes(), _TYPES[path.suffix])
        for path in sorted(FOLDER.rglob("*"))
        if path.suffix in _TYPES and path.is_file()
    }
