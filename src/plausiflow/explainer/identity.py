"""What an explainer is known by: files that belong to it must not be used with another one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from plausiflow.densities import row_scores
from plausiflow.persistence import SyntheticRows, draw_rows, to_json_bytes
from plausiflow.search import read_rows
from plausiflow.tables import to_python

if TYPE_CHECKING:
    from plausiflow.explainer.explainer import Explainer

SETTINGS = ("confidence", "durability", "distance", "weights", "max_extra_cost", "missing", "random_state")
"""Settings that change answers and are seen neither in the schema nor in the rules nor in scores."""
TOLERANCE = 1e-6


@torch.no_grad()
def explainer_identity(explainer: Explainer) -> dict[str, Any]:
    """Return what an explainer is known by, as JSON values.

    These are hashes of the training rows, the schema, all rules and some settings; and, for synthetic rows,
    what the model predicts, and their plausibility scores.
    """
    encoder, model, engine = explainer._fitted()
    summary = explainer.training_summary_
    assert summary is not None
    rows = SyntheticRows.decode(encoder, draw_rows(encoder), summary)
    read = read_rows(encoder, model, rows.frame)
    classes = len(model.labels) or explainer.criterion_.n_bins
    y = torch.arange(len(rows.x)) % classes
    scores = row_scores(engine.plausibility, rows.x, y).score(rows.x, torch.arange(len(rows.x)))
    rules = [rule.to_dict() for rule in (*explainer.constraints, *explainer.learned_rules)]
    settings = {name: _plain(getattr(explainer, name)) for name in SETTINGS}
    return {
        "training rows": summary.fingerprint,
        "schema": _hash(encoder.schema.to_dict()),
        "rules": _hash(rules),
        "settings": _hash(settings),
        "predictions": _numbers(read.outputs.exp() if model.labels else read.outputs),
        "scores": _numbers(scores),
    }


def differences(now: Mapping[str, Any], saved: Mapping[str, Any]) -> list[str]:
    """Return in what an explainer differs from what was saved; empty if it is the same."""
    hashes = [name for name in ("training rows", "schema", "rules", "settings") if now[name] != saved[name]]
    values = [name for name in ("predictions", "scores") if not _close(now[name], saved[name])]
    return [*hashes, *values]


def _close(now: list[float], saved: list[float]) -> bool:
    return len(now) == len(saved) and torch.allclose(
        torch.tensor(now, dtype=torch.float64),
        torch.tensor(saved, dtype=torch.float64),
        rtol=TOLERANCE,
        atol=TOLERANCE,
    )


def _numbers(values: Tensor) -> list[float]:
    """Return finite numbers; what is not a number or infinite is taken to the ends of single precision."""
    largest = torch.finfo(torch.float32).max
    finite = values.double().nan_to_num(nan=0.0).clamp(-largest, largest)
    return finite.flatten().tolist()


def _plain(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return to_python(value)


def _hash(value: object) -> str:
    return hashlib.sha256(to_json_bytes(value)).hexdigest()
