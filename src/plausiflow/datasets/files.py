"""Data files: their origins, checksums and folders.

Files are read from ``$PLAUSIFLOW_DATA`` and then from the user's cache; nothing is downloaded.
"""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from plausiflow.errors import DataNotFoundError, InvalidInputError

UCI = "UCI Machine Learning Repository"
ORIGINS = {
    "moons": "Generated with scikit-learn's make_moons",
    "law": "LSAC National Longitudinal Bar Passage Study, "
    "kaggle.com/datasets/danofer/law-school-admissions-bar-passage",
    "audit": f"{UCI} 475, Audit Data, CC BY 4.0, archive.ics.uci.edu/dataset/475/audit+data",
    "heloc": "FICO explainable machine learning challenge, "
    "community.fico.com/s/explainable-machine-learning-challenge",
    "blobs": "Generated with scikit-learn's make_blobs",
    "german_credit": f"{UCI} 144, Statlog (German Credit Data), its codes spelt out, CC BY 4.0, "
    "archive.ics.uci.edu/dataset/144/statlog+german+credit+data",
    "adult": f"{UCI} 2, Adult (its training part), CC BY 4.0, archive.ics.uci.edu/dataset/2/adult",
}
_SHA256 = {
    "moons": "12981e686bf534f5fc64eb6e7d5548c7c82745f34cf1173df4ed86bd712b3278",
    "law": "781166451729a7a84719a46315e4563d340d7e30854272faf1d808eb454161bf",
    "audit": "45e2daa3dc6a9c000e1a467e9d22b6f3369934aa42a08e926768c002f3706d04",
    "heloc": "3ac25654f80c5ce724e2a9528e3cf3bd3f9369e44b4a5f7723eff46c330c2dfb",
    "blobs": "e9016276fc9c7e9a30d13d28582045dcfecdcd6f09aabc863a9af4d7eb3d66cc",
    "german_credit": "2cc8b251c9fdf76a412c452626055ebb562555c8aa9ad0719b4d41ef24b93135",
    "adult": "f88f1682182d82b7cd1fa41e2d369f3b95cca4b816eac83058ef8ff9444b3c86",
}


def find_file(name: str) -> Path | None:
    """Return the path of ``name.csv`` in the first folder that has it, or None."""
    paths = [folder / f"{name}.csv" for _, folder in _folders() if folder is not None]
    return next((path for path in paths if path.is_file()), None)


def not_found(name: str) -> DataNotFoundError:
    """Return the error for a file that is in none of the folders."""
    searched = "; ".join(
        f"{place}: {'not set' if folder is None else folder / f'{name}.csv'}" for place, folder in _folders()
    )
    return DataNotFoundError(
        f"{name}.csv was not found ({searched}). Get it from its origin ({ORIGINS[name]}) and put it there, "
        "or set PLAUSIFLOW_DATA to the folder that has it."
    )


def checksum(path: Path, name: str, expected: str = "the published file") -> str:
    """Return a sentence for the provenance: the file's checksum, and the expected one if it differs."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    known = expected if digest == _SHA256[name] else f"{expected} has {_SHA256[name]}"
    return f"sha256 of {path.name}: {digest} ({known})."


def check_known(name: str, known: Sequence[str]) -> None:
    """Raise if a name is not one of the known names."""
    if name not in known:
        close = difflib.get_close_matches(str(name), known)
        hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
        raise InvalidInputError(f"`name` must be one of {', '.join(known)}; got {name!r}.{hint}")


def balance_classes(frame: pd.DataFrame, target: str) -> pd.DataFrame:
    """Return class 0, then class 1, with the larger class sampled down to the smaller one with seed 42."""
    parts = [frame[frame[target] == k] for k in (0, 1)]
    size = min(len(part) for part in parts)
    return pd.concat([part.sample(size, random_state=42) if len(part) > size else part for part in parts])


def _folders() -> list[tuple[str, Path | None]]:
    configured = os.environ.get("PLAUSIFLOW_DATA")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "plausiflow"
    return [
        ("$PLAUSIFLOW_DATA", Path(configured).expanduser() if configured else None),
        ("the user cache", cache),
    ]
