"""The manifest of a run: everything that its output depends on, with a fingerprint."""

from __future__ import annotations

import hashlib
import json
import platform
from importlib import metadata
from typing import Any

import torch

from plausiflow.batch.output_columns import OutputColumns
from plausiflow.batch.plan import BatchPlan
from plausiflow.batch.request import BatchRequest, ExplainerLocation, RowSelection

LIBRARIES = ("plausiflow", "torch", "numpy", "pandas", "scikit-learn", "pyarrow")
"""Libraries on whose version the bytes of the output depend."""


def build_manifest(
    explainer: ExplainerLocation,
    request: BatchRequest,
    selection: RowSelection,
    plan: BatchPlan,
    columns: OutputColumns,
) -> dict[str, Any]:
    """Return everything that the output depends on, its ``fingerprint``, and the units.

    The number of workers and where they run are left out: they do not change the output.
    """
    versions = {"python": platform.python_version()} | {name: metadata.version(name) for name in LIBRARIES}
    run = {
        "explainer": explainer.fingerprint(),
        "question": request.to_dict(),
        "rows": selection.to_dict(),
        "versions": {**versions, "precision": str(torch.get_default_dtype())},
        "files": [[file.path, file.size, file.modified, file.digest] for file in plan.files],
    }
    text = json.dumps(run, sort_keys=True)
    fingerprint = hashlib.sha256(text.encode()).hexdigest()
    slices = [(unit.name(fingerprint), unit.file.path, unit.rows) for unit in plan.units]
    return {
        "fingerprint": fingerprint,
        **json.loads(text),  # with the types that a reader of the file gets
        "input": str(plan.root),
        "explainer_folder": str(explainer.folder),
        "columns": {field.name: str(field.type) for field in columns.schema},
        "unit": ["name", "file", "row group", "slice", "first row", "rows"],
        "units": [[name, path, s.group, s.number, s.first_row, s.n_rows] for name, path, s in slices],
    }
