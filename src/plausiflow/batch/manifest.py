"""What a run is: all that its output depends on, and a fingerprint of it."""

from __future__ import annotations

import hashlib
import json
import platform
from importlib import metadata
from typing import Any

import torch

from plausiflow.batch.columns import Output
from plausiflow.batch.options import BatchRequest, Chosen, Saved
from plausiflow.batch.units import Plan

LIBRARIES = ("plausiflow", "torch", "numpy", "pandas", "scikit-learn", "pyarrow")
"""What the bytes of the output depend on."""


def manifest_of(
    saved: Saved, asked: BatchRequest, chosen: Chosen, plan: Plan, output: Output
) -> dict[str, Any]:
    """All that the output depends on, its ``fingerprint``, and what there is to do.

    How many workers there are, and where, is no part of it: it changes nothing in the output.
    """
    versions = {"python": platform.python_version()} | {name: metadata.version(name) for name in LIBRARIES}
    run = {
        "explainer": saved.fingerprint(),
        "question": asked.to_dict(),
        "rows": chosen.to_dict(),
        "versions": {**versions, "precision": str(torch.get_default_dtype())},
        "files": [[source.path, source.size, source.modified] for source in plan.sources],
    }
    text = json.dumps(run, sort_keys=True)
    run = json.loads(text)  # as it is read again
    fingerprint = hashlib.sha256(text.encode()).hexdigest()
    units = [
        [
            unit.name(fingerprint),
            unit.source.path,
            unit.piece.group,
            unit.piece.number,
            unit.piece.first,
            unit.piece.rows,
        ]
        for unit in plan.units
    ]
    return {
        "fingerprint": fingerprint,
        **run,
        "input": str(plan.root),
        "explainer_folder": str(saved.folder),
        "columns": {field.name: str(field.type) for field in output.fields},
        "unit": ["name", "file", "row group", "slice", "first row", "rows"],
        "units": units,
    }
