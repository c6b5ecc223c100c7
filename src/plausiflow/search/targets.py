"""Parse the outcome that a user wants for each row."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from pandas.api.extensions import ExtensionArray
from torch import Tensor

from plausiflow.core import TargetCriterion, Targets
from plausiflow.errors import InvalidInputError, ShapeError
from plausiflow.tables import Mask

Target: TypeAlias = Hashable | Sequence[Any] | npt.NDArray[Any] | Tensor | pd.DataFrame
"""``"opposite"``, ``"runner_up"``, ``"other"``, a label, or one label for each row. For a predicted number:
an interval, or one interval for each row."""

METHOD_POLICIES = ("opposite", "runner_up", "paper")
TABLE_POLICIES = ("opposite", "runner_up", "other")
LONGEST = 80
BINS = 5


def bin_outcomes(values: Tensor) -> tuple[tuple[float, ...], Tensor]:
    """Return the edges of up to five bins with about as many outcomes each, and the bin of each outcome."""
    shares = torch.linspace(0, 1, BINS + 1, dtype=torch.float64)[1:-1]
    inner = torch.quantile(values, shares, interpolation="higher").unique()  # no bin is empty
    inner = inner[(inner > values.min()) & (inner <= values.max())]
    edges = (-np.inf, *inner.tolist(), np.inf)
    return edges, torch.bucketize(values, inner, right=True)


def parse_target(
    target: Target,
    outputs: Tensor,
    criterion: TargetCriterion,
    labels: tuple[Any, ...],
    min_probability: float | None = None,
    decided: Tensor | None = None,
) -> list[Targets]:
    """Return the targets of each row; several if any one of them is enough.

    Args:
        target: What the user asks for.
        outputs: The model's log-probabilities ``(n, k)``, or predictions ``(n,)``.
        criterion: Compares the model's outputs with targets.
        labels: Labels of the classes; empty for a regressor.
        min_probability: Minimum probability of the target class.
        decided: The classes that the model decides for, shape ``(n,)``; those of its outputs if None.
    """
    n = len(outputs)
    if criterion.edges:
        return _interval_targets(target, outputs, criterion)
    minimum = (
        None if min_probability is None else torch.full((n,), float(min_probability), dtype=torch.float64)
    )
    decided = criterion.classes(outputs) if decided is None else decided
    if isinstance(target, str) and target == "other" and target not in labels:
        first = outputs.scatter(1, decided[:, None], torch.inf)
        order = first.argsort(dim=1, descending=True, stable=True)
        return [Targets(order[:, place], minimum) for place in range(1, len(labels))]
    return [Targets(target_classes(target, outputs, labels, TABLE_POLICIES, decided), minimum)]


def _interval_targets(target: Target, values: Tensor, criterion: TargetCriterion) -> list[Targets]:
    """Return the interval of each row with each bin that it meets, the nearest to the prediction first.

    A bin that the interval only touches does not count. A row whose interval meets fewer bins than that of
    another row repeats its last one.
    """
    low, high = _intervals(target, len(values))
    inner = torch.tensor(criterion.edges[1:-1], dtype=torch.float64)
    first, last = torch.bucketize(low, inner, right=True), torch.bucketize(high, inner)
    own = torch.bucketize(values, inner, right=True).clamp(first, last)
    bins = torch.arange(criterion.n_bins)
    distance = (bins - own[:, None]).abs()
    outside = (bins < first[:, None]) | (bins > last[:, None])
    order = distance.masked_fill(outside, criterion.n_bins).argsort(dim=1, stable=True)
    count = last - first + 1
    places = torch.arange(int(count.max()) if len(count) else 1)
    y = order.gather(1, torch.minimum(places, count[:, None] - 1))
    return [Targets(own_bin, low=low, high=high) for own_bin in y.unbind(1)]


def _intervals(target: Target, n: int) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest number wanted for each row, both of shape ``(n,)``."""
    expected = (
        "`target` must be the smallest and the largest number wanted, such as (100, 150), with None for no "
        f"bound, or such a pair for each of the {n} rows"
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
        raise InvalidInputError(
            f"{expected}; a lower bound is not below its upper bound, or both are missing."
        )
    return torch.from_numpy(low), torch.from_numpy(high)


def _bound(cell: Any) -> float:  # noqa: ANN401
    """Return a bound as a number, NaN for no bound."""
    if isinstance(cell, str | bool | np.bool_):
        raise TypeError
    return np.nan if pd.isna(cell) else float(cell)


def target_classes(
    target: Target,
    outputs: Tensor,
    labels: tuple[Any, ...],
    policies: tuple[str, ...] = METHOD_POLICIES,
    decided: Tensor | None = None,
) -> Tensor:
    """Return the target class of each row, long, shape ``(n,)``.

    Args:
        target: What the user asks for. A label that has the name of a policy is the label.
        outputs: The model's logits or log-probabilities, shape ``(n, k)``.
        labels: Labels of the classes.
        policies: The names of policies that may be asked for.
        decided: The classes that the model decides for, shape ``(n,)``; default: the largest output.
    """
    n = len(outputs)
    if isinstance(target, Tensor):
        if all(label == k and not isinstance(label, bool) for k, label in enumerate(labels)):
            return _from_tensor(target, n, labels).to(outputs.device)
        target = target.tolist()  # labels, not class numbers
    known = {label: k for k, label in enumerate(labels)}
    if isinstance(target, np.ndarray) and target.ndim == 0:
        target = target.item()
    if isinstance(target, list | tuple | np.ndarray | pd.Series | pd.Index | ExtensionArray):
        return _per_row(list(target), known, n).to(outputs.device)
    one = _class_number(target, known)
    if one is not None:
        return torch.full((n,), one, dtype=torch.long, device=outputs.device)
    policy = target if isinstance(target, str) and target in policies else ""
    predicted = outputs.argmax(dim=1) if decided is None else decided
    if policy == "opposite" and len(labels) == 2:
        return 1 - predicted
    if policy == "runner_up":
        others = outputs.clamp_min(torch.finfo(outputs.dtype).min)  # a probability of zero has -inf
        return others.scatter(1, predicted[:, None], -torch.inf).argmax(dim=1)
    if policy == "paper":
        # Deviation: the published runs aim at |1 - predicted|: 0 -> 1, 1 -> 0, 2 -> 1, ... 9 -> 8.
        return (1 - predicted).abs()
    listed = ", ".join(map(repr, labels))
    if policy == "opposite":
        raise InvalidInputError(
            f"`target='opposite'` needs two outcomes; this model has {len(labels)}: {listed}. Use "
            f"{', '.join(map(repr, policies[1:]))}, one of the outcomes, or one per row."
        )
    raise InvalidInputError(
        f"`target` must be {', '.join(map(repr, policies))}, one of the outcomes {listed}, or a list with "
        f"one outcome for each row; got {_shown(target)}."
    )


def _from_tensor(target: Tensor, n: int, labels: tuple[Any, ...]) -> Tensor:
    """Return class numbers given as a tensor: one for all rows, or one for each row."""
    if target.is_floating_point() or target.dtype == torch.bool:
        raise InvalidInputError(
            f"`target` must hold whole class numbers; got {target.dtype}. Convert it with `.long()`."
        )
    if target.ndim > 0 and target.shape != (n,):
        raise ShapeError(f"`target` must have shape ({n},), one class per row; got {tuple(target.shape)}.")
    classes = target.long().expand(n).clone()
    if n and not (int(classes.min()) >= 0 and int(classes.max()) < len(labels)):
        raise InvalidInputError(
            f"`target` must be between 0 and {len(labels) - 1}, the model's classes; got "
            f"{int(classes.min())} to {int(classes.max())}."
        )
    return classes


def _per_row(target: list[Any], known: dict[Any, int], n: int) -> Tensor:
    if len(target) != n:
        raise ShapeError(f"`target` must have {n} outcomes, one for each row; got {len(target)}.")
    numbers = [_class_number(label, known) for label in target]
    wrong = list(dict.fromkeys(_shown(label) for label, k in zip(target, numbers, strict=True) if k is None))
    if wrong:
        raise InvalidInputError(
            f"`target` must hold outcomes of the model, {', '.join(map(repr, known))}; got "
            f"{', '.join(wrong[:10])}{' and more' if len(wrong) > 10 else ''}."
        )
    return torch.tensor([k for k in numbers if k is not None], dtype=torch.long)


def _class_number(label: Any, known: dict[Any, int]) -> int | None:  # noqa: ANN401
    """Return the class of a label, or None; booleans and numbers are not mixed up."""
    if isinstance(label, np.generic):
        label = label.item()
    try:
        number = known.get(label)
    except TypeError:  # not hashable, so not a label
        return None
    if number is not None and isinstance(label, bool) != isinstance(list(known)[number], bool):
        return None
    return number


def targets_as_text(targets: Targets, labels: tuple[Any, ...], usable: Mask) -> npt.NDArray[np.object_]:
    """Return target labels, or intervals in words, None for rows that are not usable, shape ``(n,)``."""
    if labels:
        return class_labels(labels, targets.y, usable)
    assert targets.low is not None
    assert targets.high is not None
    texts = np.full(len(usable), None, dtype=object)
    for row in np.flatnonzero(usable):
        texts[row] = _interval_text(float(targets.low[row]), float(targets.high[row]))
    return texts


def outcome_names(labels: tuple[Any, ...], criterion: TargetCriterion) -> list[str]:
    """Return the labels of the classes, or the bins of a predicted number, in words."""
    if labels:
        return [repr(label) for label in labels]
    return [_interval_text(low, high) for low, high in pairwise(criterion.edges)]


def _interval_text(low: float, high: float) -> str:
    if np.isinf(low):
        return f"at most {high:g}"
    return f"at least {low:g}" if np.isinf(high) else f"{low:g} to {high:g}"


def predicted_labels(
    outputs: Tensor, decided: Tensor | None, labels: tuple[Any, ...], usable: Mask
) -> npt.NDArray[Any]:
    """Return decided labels or predicted numbers, missing for rows that are not usable, shape ``(n,)``."""
    if decided is not None:
        return class_labels(labels, decided, usable)
    return np.where(usable, outputs.numpy(), np.nan)


def class_labels(labels: tuple[Any, ...], classes: Tensor, known: Mask) -> npt.NDArray[np.object_]:
    """Return the labels of classes ``(n,)``, None where they are not ``known``, shape ``(n,)``."""
    all_labels = np.array([*labels, None], dtype=object)
    return cast(npt.NDArray[np.object_], all_labels[np.where(known, classes.numpy(), -1)])


def _shown(value: object) -> str:
    """Return a value on one short line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({type(value).__name__})"
