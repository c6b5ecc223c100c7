"""Where a result comes from: date, data, model, rules, thresholds, versions, seed and a fingerprint.

A report shows it first, so that an auditor knows what the answers are about. The fingerprint is a hash of
encoded rows: it is the same for the same table, read in the same way. A loaded explainer has no
training rows.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from plausiflow.constraints import Rule
from plausiflow.explanations.rule_words import rule_in_words

if TYPE_CHECKING:
    from plausiflow.explanations.result import Explanations

FINGERPRINT_DIGITS = 16


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """How a result was made.

    Attributes:
        model: Description of the model.
        rules: The rules that answers follow, without the learned ones.
        thresholds: What answers had to reach, as sentences.
        seed: Seed of the explainer.
        date: When it was made, in UTC.
    """

    model: str
    rules: Sequence[Rule] = ()
    thresholds: tuple[str, ...] = ()
    seed: int = 0
    date: datetime = field(default_factory=lambda: datetime.now(UTC))


def describe_provenance(result: Explanations) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return names and texts of everything that is known about the origin of a result."""
    from plausiflow import __version__  # the package is not complete when this module is imported

    made, facts = result.provenance, dict[str, tuple[str, ...]]()
    rows, columns = result.rows.shape
    data = [f"{rows:,} rows with {columns} columns were explained"]
    if result.context is not None:
        data.append(f"{len(result.context.x_train):,} training rows")
    if made is not None:
        facts["Date"] = (f"{made.date:%Y-%m-%d %H:%M} UTC",)
    facts["Data"] = ("; ".join(data),)
    if made is not None:
        facts["Model"] = (made.model,)
        facts["Rules"] = tuple(map(rule_in_words, made.rules)) or ("none: every feature may change",)
        facts["Thresholds"] = made.thresholds
        facts["Versions"] = (
            f"plausiflow {__version__}, torch {torch.__version__}, Python {platform.python_version()}",
        )
        facts["Seed"] = (str(made.seed),)
    hashes = []
    if result.encoded is not None:
        hashes.append(f"{_fingerprint(result.encoded[0])} (explained rows)")
    if result.context is not None:
        hashes.append(f"{_fingerprint(result.context.x_train, result.context.y_train)} (training rows)")
    facts["Fingerprint"] = tuple(hashes)
    return tuple((name, texts) for name, texts in facts.items() if texts)


def _fingerprint(*parts: Tensor) -> str:
    """Return a hash of encoded rows, and of their classes."""
    digest = sha256()
    for part in parts:
        digest.update(f"{part.dtype} {tuple(part.shape)}".encode())
        digest.update(part.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:FINGERPRINT_DIGITS]
