"""Which outcome is wanted for each row."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import torch
from pandas.api.extensions import ExtensionArray
from torch import Tensor

from plausiflow.errors import InvalidInputError, ShapeError

Target: TypeAlias = Hashable | Sequence[Any]
"""``"opposite"``, ``"runner_up"``, a label, or one label for each row."""

LONGEST = 80


def wanted_classes(target: Target, proba: Tensor, labels: tuple[Any, ...], n_rows: int) -> Tensor:
    """The class wanted for each row, long, shape ``(n,)``.

    Args:
        target: What the user asks for; a label that is called like a policy is the label.
        proba: What the model thinks of the rows, shape ``(n, k)``.
        labels: Of the classes.
        n_rows: How many rows there are.
    """
    known = {label: k for k, label in enumerate(labels)}
    if isinstance(target, np.ndarray) and target.ndim == 0:
        target = target.item()
    if isinstance(target, list | tuple | np.ndarray | pd.Series | pd.Index | ExtensionArray):
        return _per_row(list(target), known, n_rows)
    number = _number(target, known)
    if number is not None:
        return torch.full((n_rows,), number, dtype=torch.long)
    policy = target if isinstance(target, str) else ""
    if policy == "opposite" and len(labels) == 2:
        return 1 - proba.argmax(dim=1)
    if policy == "runner_up":
        return proba.scatter(1, proba.argmax(dim=1, keepdim=True), -1.0).argmax(dim=1)
    listed = ", ".join(map(repr, labels))
    if policy == "opposite":
        raise InvalidInputError(
            f"`target='opposite'` needs two outcomes; this model has {len(labels)}: {listed}. Ask for "
            "'runner_up', for one of them, or for one per row."
        )
    raise InvalidInputError(
        f"`target` must be 'opposite', 'runner_up', one of the outcomes {listed}, or a list of one of them "
        f"for each row; got {_shown(target)}."
    )


def _per_row(target: list[Any], known: dict[Any, int], n_rows: int) -> Tensor:
    if len(target) != n_rows:
        raise ShapeError(f"`target` must have {n_rows} outcomes, one for each row; got {len(target)}.")
    numbers = [_number(label, known) for label in target]
    wrong = list(dict.fromkeys(_shown(label) for label, k in zip(target, numbers, strict=True) if k is None))
    if wrong:
        raise InvalidInputError(
            f"`target` must hold outcomes of the model, {', '.join(map(repr, known))}; got "
            f"{', '.join(wrong[:10])}{' and more' if len(wrong) > 10 else ''}."
        )
    return torch.tensor([k for k in numbers if k is not None], dtype=torch.long)


def _number(label: Any, known: dict[Any, int]) -> int | None:  # noqa: ANN401
    """The class of a label; booleans and numbers are not taken for each other."""
    if isinstance(label, np.generic):
        label = label.item()
    try:
        number = known.get(label)
    except TypeError:  # it has no hash, so it is no label
        return None
    if number is not None and isinstance(label, bool) != isinstance(list(known)[number], bool):
        return None
    return number


def _shown(value: object) -> str:
    """Its type and value, on one short line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({type(value).__name__})"
