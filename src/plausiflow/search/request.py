"""A request to explain rows: checked arguments, encoded rows and their targets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from plausiflow.constraints import LockedFeatures, locked_mask
from plausiflow.core import (
    FIRST_TIMED_ROWS,
    TIMED_ROWS,
    DeadlineError,
    TargetCriterion,
    Targets,
    deadline,
    suitable_threads,
)
from plausiflow.errors import InvalidInputError
from plausiflow.models import TableModel, is_decision_threshold
from plausiflow.search.costs import DISTANCES
from plausiflow.search.targets import Target, parse_target, predicted_labels
from plausiflow.tables import Encoded, Encoder, Mask
from plausiflow.validation import is_whole, raise_unless, to_float

Found = TypeVar("Found")

MOST_ANSWERS, MORE_ANSWERS = 48, 12
SMALLEST_LOG_PROB = -745.0
"""About the logarithm of the smallest positive double."""
ROUNDING = 1e-9
"""How much smaller than the cut-off a minimum probability may be."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SearchRequest:
    """Rows to explain.

    Attributes:
        frame: Rows of the table.
        encoded: The same rows, encoded.
        already: Rows that meet their target, shape ``(n,)``.
        targets: Their targets.
        k: Answers wanted for each row.
        locked: Features that each row keeps, shape ``(n, features)``.
        deadline: On the monotonic clock; None for no time limit.
        relaxed: Whether a row without an answer gets its nearest miss.
        second_opinion: Whether answers keep the calibrated margin.
        diagnose: Whether to find out why a row has no answer.
        tolerance: How far each encoded column of an answer may be missed, shape ``(width,)``; None for none.
    """

    frame: pd.DataFrame
    encoded: Encoded
    already: Tensor
    targets: Targets
    k: int = 1
    locked: Mask | None = None
    deadline: float | None = None
    relaxed: bool = False
    second_opinion: bool = True
    diagnose: bool = True
    tolerance: Tensor | None = None

    @property
    def late(self) -> bool:
        """Whether the deadline has passed."""
        return self.deadline is not None and time.monotonic() >= self.deadline

    @property
    def pool(self) -> int:
        """How many answers of each row are kept to choose ``k`` different ones from."""
        return 1 if self.k == 1 else self.k + min(2 * self.k, MORE_ANSWERS)

    def in_time(self, rows: Tensor) -> Iterator[Tensor]:
        """Yield all rows at once, or with a deadline few and then more at a time until it has passed.

        Rows that are interrupted have no answer, so the first ones are few.
        """
        size = len(rows) if self.deadline is None else FIRST_TIMED_ROWS
        while len(rows) and not self.late:
            yield rows[:size]
            rows, size = rows[size:], min(2 * size, TIMED_ROWS)

    def search_in_time(self, rows: Tensor, search: Callable[[Tensor], Found]) -> list[tuple[Tensor, Found]]:
        """Search rows until the deadline; return each part that was finished, with its result."""
        if self.deadline is None:
            return [(some, search(some)) for some in self.in_time(rows)]
        finished = []
        with suppress(DeadlineError), deadline(self.deadline):
            for some in self.in_time(rows):
                finished.append((some, search(some)))
        return finished

    def part(self, rows: Tensor) -> tuple[Tensor, Targets, pd.DataFrame, Mask | None]:
        """Return encoded rows, targets, rows of the table and locked features of some rows."""
        index = rows.numpy()
        locked = None if self.locked is None else self.locked[index]
        return self.encoded.x[rows], self.targets[rows], self.frame.iloc[index], locked

    def repeat(self, rows: Tensor, targets: Targets) -> SearchRequest:
        """Return the request for some rows with other targets; a row may occur more than once."""
        x, _, frame, locked = self.part(rows)
        return replace(
            self,
            frame=frame,
            encoded=Encoded(x, self.encoded.problems[rows.numpy()]),
            already=self.already[rows],
            targets=targets,
            locked=locked,
        )


def check_settings(given: Mapping[str, Any]) -> None:
    """Raise unless the settings of an explainer are valid; every invalid one is named."""
    confidence, random_state = given["confidence"], given["random_state"]
    judges, model_rows, plausibility = given["judges"], given["model_rows"], given["plausibility"]
    fine = {
        "plausibility": (
            "a quantile in [0, 1], or a fitted plausibility with `score(x, y)`",
            hasattr(plausibility, "score") or 0 <= to_float(plausibility) <= 1,
        ),
        "confidence": (
            "a share between 0 and 1, or None",
            confidence is None or 0 < to_float(confidence) < 1,
        ),
        "max_extra_cost": ("a share of 0 or more", to_float(given["max_extra_cost"]) >= 0),
        "distance": ("'l2', 'l1' or 'l1-mad'", given["distance"] in DISTANCES),
        "margin": ("in [0, 0.5)", 0 <= to_float(given["margin"]) < 0.5),
        "judges": ("a whole number, 0 or more", is_whole(judges) and judges >= 0),
        "model_rows": ("a whole number, 1 or more", is_whole(model_rows) and model_rows >= 1),
        "durability": (
            "a share between 0.5 and 1, or None",
            given["durability"] is None or 0.5 < to_float(given["durability"]) < 1,
        ),
        "refits": ("a whole number, 5 or more", is_whole(given["refits"]) and given["refits"] >= 5),
        "labels": ("'given', 'model' or 'bayes'", given["labels"] in ("given", "model", "bayes")),
        "decision_threshold": (
            "a cut-off between 0 and 1, a mapping from outcomes to such cut-offs, or None",
            given["decision_threshold"] is None or is_decision_threshold(given["decision_threshold"]),
        ),
        "random_state": (
            "a whole number from 0 to 2**32 - 1",
            is_whole(random_state) and 0 <= random_state < 2**32,
        ),
        "density": (
            "None, or an object with `fit(x, y)` and `log_prob(x, y)`",
            given["density"] is None
            or (hasattr(given["density"], "fit") and hasattr(given["density"], "log_prob")),
        ),
        "feature_names": ("a list of different names, or None", _are_names(given["feature_names"])),
        "solver": ("an object with `solve(problem, starts)`", hasattr(given["solver"], "solve")),
        "method": (
            "None, a Method class, or a function of `classifier` and `plausibility` that returns a Method",
            given["method"] is None or callable(given["method"]),
        ),
    } | {
        name: ("a mapping from column names, or None", isinstance(given[name], Mapping | None))
        for name in ("weights", "kinds", "orders", "special", "steps")
    }
    raise_unless(fine, {name: given[name] for name in fine})


def _are_names(names: Any) -> bool:  # noqa: ANN401
    """Return whether a setting lists names, each once, or is None."""
    if names is None:
        return True
    listed = isinstance(names, list | tuple | np.ndarray | pd.Index) and all(
        isinstance(n, str) for n in names
    )
    return listed and len(set(names)) == len(names)


def _check_arguments(
    *,
    k: object,
    time_limit: object,
    relaxed: object,
    min_probability: object,
    second_opinion: object,
    diagnose: object,
    device: object,
    regression: bool,
) -> None:
    """Raise unless the arguments of ``explain`` are valid; every invalid one is named."""
    fine = {
        "k": (
            f"a whole number from 1 to {MOST_ANSWERS}",
            _is_count(k),
        ),
        "time_limit": ("seconds, 0 or more, or None", time_limit is None or to_float(time_limit) >= 0),
        "relaxed": ("True or False", isinstance(relaxed, bool | np.bool_)),
        "second_opinion": ("True or False", isinstance(second_opinion, bool | np.bool_)),
        "diagnose": ("True or False", isinstance(diagnose, bool | np.bool_)),
        "device": ("'auto', 'cpu', or an available CUDA device such as 'cuda'", is_device(device)),
        "min_probability": (
            "a probability between 0 and 1, or None; None for a model that predicts a number",
            min_probability is None or (0 < to_float(min_probability) < 1 and not regression),
        ),
    }
    given = {
        "k": k,
        "time_limit": time_limit,
        "relaxed": relaxed,
        "second_opinion": second_opinion,
        "diagnose": diagnose,
        "device": device,
        "min_probability": min_probability,
    }
    raise_unless(fine, given)


def prepare_request(
    encoder: Encoder,
    model: TableModel,
    criterion: TargetCriterion,
    rows: pd.DataFrame,
    target: Target,
    *,
    min_probability: float | None,
    k: int,
    locked: LockedFeatures | None,
    time_limit: float | None,
    relaxed: bool,
    second_opinion: bool,
    diagnose: bool,
    device: str,
) -> tuple[SearchRequest, list[Targets], ReadRows]:
    """Check the arguments of ``explain``; return the request, its choices of targets, and what was read."""
    started = time.monotonic()
    _check_arguments(
        k=k,
        time_limit=time_limit,
        relaxed=relaxed,
        min_probability=min_probability,
        second_opinion=second_opinion,
        diagnose=diagnose,
        device=device,
        regression=not model.labels,
    )
    read = _read(encoder, model, rows)
    choices = parse_target(target, read.outputs, criterion, model.labels, min_probability, read.decided)
    if min_probability is not None:
        _check_min_probability(float(min_probability), choices, criterion, model)
    frame = rows.copy(deep=False).set_flags(allows_duplicate_labels=True)  # answers repeat rows
    frame.attrs = {}
    request = SearchRequest(
        frame=frame,
        encoded=read.encoded,
        already=criterion.met(read.outputs, choices[0], read.decided),
        targets=choices[0],
        k=k,
        locked=None if locked is None else locked_mask(locked, encoder.schema.names, len(rows)),
        deadline=None if time_limit is None else started + float(time_limit),
        relaxed=relaxed,
        second_opinion=second_opinion,
        diagnose=diagnose,
    )
    return request, choices, read


def _is_count(k: object) -> bool:
    whole = isinstance(k, int | np.integer) and not isinstance(k, bool)
    return whole and 1 <= int(k) <= MOST_ANSWERS  # type: ignore[call-overload]


def is_device(name: object) -> bool:
    """Return whether searches can run on a device."""
    if name in ("auto", "cpu"):
        return True
    try:
        device = torch.device(name)  # type: ignore[call-overload]
    except (RuntimeError, TypeError):
        return False
    return device.type == "cuda" and (device.index or 0) < torch.cuda.device_count()


@dataclass(frozen=True, eq=False)
class ReadRows:
    """Rows of a table and what the model predicts for them.

    Attributes:
        encoded: The encoded rows; a row without a prediction has a problem.
        outputs: What a search follows: log-probabilities ``(n, k)`` or values ``(n,)``.
        decided: The classes that the model itself decides for, shape ``(n,)``; None for a regressor.
        shown: The log-probabilities that the model reports, or its values.
    """

    encoded: Encoded
    outputs: Tensor
    decided: Tensor | None
    shown: Tensor


def read_rows(encoder: Encoder, model: TableModel, rows: pd.DataFrame) -> ReadRows:
    """Return encoded rows and the model's predictions; a row without a prediction gets a problem."""
    with suitable_threads(rows):
        return _read(encoder, model, rows)


def predict_rows(encoder: Encoder, model: TableModel, rows: pd.DataFrame) -> npt.NDArray[Any]:
    """Return what the model predicts for rows, outcomes or numbers, missing where it predicts nothing.

    A row that cannot be encoded, such as one with a larger count than any training row, is passed to the
    user's own model as it is, if there is one that takes rows of the table.
    """
    read = read_rows(encoder, model, rows)
    usable = read.encoded.usable
    predicted = predicted_labels(read.outputs, read.decided, model.labels, usable)
    left = rows[~usable]
    ask = model.decision.predict.outputs if model.decision.predict is not None else model.true_outputs
    if ask is None or not len(left):
        return predicted
    outputs = ask(left)
    known = (outputs.isnan() if outputs.ndim == 1 else outputs.isnan().any(dim=1)).logical_not()
    decided = None
    if model.labels:
        own = model.decision.predict is not None
        decided = outputs.argmax(dim=1) if own else model.decision.classes(outputs, None)
    predicted[~usable] = predicted_labels(outputs, decided, model.labels, known.numpy())
    return predicted


def _read(encoder: Encoder, model: TableModel, rows: pd.DataFrame) -> ReadRows:
    encoded = encoder.encode(rows)
    readable = encoded.usable
    shape = (len(rows), len(model.labels)) if model.labels else (len(rows),)
    outputs = torch.full(shape, torch.nan, dtype=torch.float64)
    shown, decided = outputs.clone(), torch.zeros(len(rows), dtype=torch.long)
    usable = torch.from_numpy(readable)
    own, x = rows[readable], encoded.x[usable]
    if encoder.missing == "impute":
        own = encoder.decode(x, like=own)
    predicted = model.predict_outputs(x, own)
    outputs[usable], shown[usable] = predicted, model.shown_outputs(predicted, x, own)
    if model.labels:
        decided[usable] = model.decide(predicted, x, own)
    unknown = outputs.isnan() if outputs.ndim == 1 else outputs.isnan().any(dim=1)
    undecided = readable & (unknown | (decided < 0)).numpy()
    what = "probabilities" if model.labels else "prediction"
    encoded.problems[undecided] = (
        f"the model gives no {what} for it; a number may be too far from the training range"
    )
    outputs, shown = (part.nan_to_num(nan=0.0, neginf=SMALLEST_LOG_PROB) for part in (outputs, shown))
    return ReadRows(encoded, outputs, decided.clamp_min(0) if model.labels else None, shown)


def _check_min_probability(
    min_probability: float, choices: list[Targets], criterion: TargetCriterion, model: TableModel
) -> None:
    """Raise if a minimum probability is not enough to be decided for, or says nothing about the decision."""
    if model.decision.probabilities is not None:
        raise InvalidInputError(
            "`min_probability` must be None for a model whose `predict` does not follow its probabilities; "
            f"got {min_probability!r}. Calibrate the model, or explain a function that returns probabilities."
        )
    for k in torch.cat([targets.y for targets in choices]).unique().tolist():
        least = criterion.smallest_probability(k, len(model.labels))
        if min_probability < least - ROUNDING:
            raise InvalidInputError(
                f"`min_probability` must be at least {least:.6g} for {model.labels[k]!r}: with less, the "
                f"model decides for another outcome; got {min_probability!r}. Leave it out if winning is "
                "enough."
            )
