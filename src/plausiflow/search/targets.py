"""What is wanted of each row, as users ask for it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from pandas.api.extensions import ExtensionArray
from torch import Tensor

from plausiflow.errors import InvalidInputError, ShapeError
from plausiflow.search.criterion import TargetCriterion, Targets
from plausiflow.tables import Mask

Target: TypeAlias = Hashable | Sequence[Any] | npt.NDArray[Any] | pd.DataFrame
"""``"opposite"``, ``"runner_up"``, ``"other"``, a label, or one label for each row; of a predicted number its
bounds, or those of each row."""

LONGEST = 80
BINS = 5


def binned(values: Tensor) -> tuple[tuple[float, ...], Tensor]:
    """Edges of up to five bins of about as many outcomes each, and the bin of each, shape ``(n,)``."""
    shares = torch.linspace(0, 1, BINS + 1, dtype=torch.float64)[1:-1]
    inner = torch.quantile(values, shares, interpolation="higher").unique()  # no bin is empty
    inner = inner[(inner > values.min()) & (inner <= values.max())]
    edges = (-np.inf, *inner.tolist(), np.inf)
    return edges, torch.bucketize(values, inner, right=True)


def parse_target(
    target: Target, outputs: Tensor, aim: TargetCriterion, labels: tuple[Any, ...], least: float | None = None
) -> list[Targets]:
    """What is wanted of each row; several wishes where any of them will do.

    Args:
        target: What the user asks for.
        outputs: What the model says of the rows: log-probabilities ``(n, k)``, or predictions ``(n,)``.
        aim: Of the model.
        labels: Of its classes; none for a regressor.
        least: Probability that the wanted class must have.
    """
    n = len(outputs)
    if aim.edges:
        return [_bounded(target, outputs, aim)]
    probability = None if least is None else torch.full((n,), float(least), dtype=torch.float64)
    if isinstance(target, str) and target == "other" and target not in labels:
        order = outputs.argsort(dim=1, descending=True, stable=True)
        return [Targets(order[:, place], probability) for place in range(1, len(labels))]
    return [Targets(target_classes(target, outputs.exp(), labels, n), probability)]


def _bounded(target: Target, values: Tensor, aim: TargetCriterion) -> Targets:
    """The bounds of each row, and the bin that its prediction comes to first."""
    low, high = _bounds(target, len(values))
    inner = torch.tensor(aim.edges[1:-1], dtype=torch.float64)
    below, above = torch.bucketize(low, inner, right=True), torch.bucketize(high, inner)
    own = torch.bucketize(values, inner, right=True)
    nearest = torch.where(values < low, below, torch.where(values > high, above, own))
    return Targets(nearest, low=low, high=high)


def _bounds(target: Target, n: int) -> tuple[Tensor, Tensor]:
    """Smallest and largest number wanted for each row, both of shape ``(n,)``."""
    expected = (
        "`target` must be the smallest and the largest number wanted, such as (100, 150), with None where "
        f"there is no bound, or such a pair for each of the {n} rows"
    )
    if isinstance(target, str) or not isinstance(target, list | tuple | np.ndarray | pd.DataFrame):
        raise InvalidInputError(f"{expected}; got {_shown(target)}.")
    try:
        rows = target.to_numpy(object) if isinstance(target, pd.DataFrame) else target
        pairs = np.array([[_bound(cell) for cell in np.ravel(np.array(row, dtype=object))] for row in rows])
    except (TypeError, ValueError, OverflowError):
        raise InvalidInputError(f"{expected}; got {_shown(target)}.") from None
    if pairs.size == 2 and pairs.shape in ((2,), (2, 1)):
        pairs = np.tile(pairs.reshape(1, 2), (n, 1))
    if pairs.shape != (n, 2):
        raise ShapeError(f"{expected}; got shape {pairs.shape}.")
    low = np.where(np.isnan(pairs[:, 0]), -np.inf, pairs[:, 0])
    high = np.where(np.isnan(pairs[:, 1]), np.inf, pairs[:, 1])
    if (low >= high).any() or (np.isinf(low) & np.isinf(high)).any():
        raise InvalidInputError(f"{expected}; a smallest one is not below its largest, or neither is there.")
    return torch.from_numpy(low), torch.from_numpy(high)


def _bound(cell: Any) -> float:  # noqa: ANN401
    """A bound as a number, NaN where there is none."""
    if isinstance(cell, str | bool | np.bool_):
        raise TypeError
    return np.nan if pd.isna(cell) else float(cell)


def targets_as_text(wanted: Targets, labels: tuple[Any, ...], usable: Mask) -> npt.NDArray[np.object_]:
    """Wanted labels, or bounds in words, ``None`` for rows that are not usable, objects, shape ``(n,)``."""
    if labels:
        return named(labels, wanted.y, usable)
    assert wanted.low is not None
    assert wanted.high is not None
    texts = np.full(len(usable), None, dtype=object)
    for row in np.flatnonzero(usable):
        texts[row] = _between(float(wanted.low[row]), float(wanted.high[row]))
    return texts


def _between(low: float, high: float) -> str:
    if np.isinf(low):
        return f"at most {high:g}"
    return f"at least {low:g}" if np.isinf(high) else f"{low:g} to {high:g}"


def answers_as_text(outputs: Tensor, labels: tuple[Any, ...], usable: Mask) -> npt.NDArray[Any]:
    """What a model answers, labels or numbers; missing for rows that are not usable, shape ``(n,)``."""
    if labels:
        return named(labels, outputs.argmax(dim=1), usable)
    return np.where(usable, outputs.numpy(), np.nan)


def named(labels: tuple[Any, ...], classes: Tensor, known: Mask) -> npt.NDArray[np.object_]:
    """The labels of classes ``(n,)``, ``None`` where they are not ``known``, objects, shape ``(n,)``."""
    all_labels = np.array([*labels, None], dtype=object)
    return cast(npt.NDArray[np.object_], all_labels[np.where(known, classes.numpy(), -1)])


def target_classes(target: Target, proba: Tensor, labels: tuple[Any, ...], n_rows: int) -> Tensor:
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
            "'runner_up', 'other', for one of them, or for one per row."
        )
    raise InvalidInputError(
        f"`target` must be 'opposite', 'runner_up', 'other', one of the outcomes {listed}, or a list of one "
        f"of them for each row; got {_shown(target)}."
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
