"""What every method shares: targets, chunks, timing, and the rule that NaN means not found.

A method writes ``_search``; ``explain`` does the rest, the same for all, so that comparisons are fair.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from plausiflow.core import Classifier, Counterfactuals, Plausibility, Solution, concatenate, judge, predict
from plausiflow.errors import InvalidInputError, ShapeError
from plausiflow.progress import progress_bar

Policy = Literal["opposite", "runner_up", "paper"]
Target = Policy | int | Tensor | Sequence[int] | npt.NDArray[np.int64]
"""Which outcome is wanted: a policy, one class for all rows, or one class per row ``(n,)``."""


ON_PROCESSOR = 8192
"""Rows that are searched at once on a processor: more would not go faster."""
_TARGETS = "`y_target` must be 'opposite', 'runner_up', 'paper', a class or one class per row"


@dataclass(kw_only=True, eq=False)
class Method(ABC):
    """A way to find counterfactuals; its fields are its settings.

    Attributes:
        classifier: The model that is explained.
        plausibility: What a row's density is held against; without it nothing is called plausible. Methods
            that learn a density themselves take a quantile instead.
        chunk_size: Most rows searched at once; by default 8,192 on a processor, and on a GPU as many as its
            free memory is likely to hold (half as many when it does not).
    """

    label: ClassVar[str]

    classifier: Classifier
    plausibility: Plausibility | float | None = None
    chunk_size: int | None = None

    def __post_init__(self) -> None:
        if self.chunk_size is not None and self.chunk_size < 1:
            raise InvalidInputError(f"`chunk_size` must be at least 1; got {self.chunk_size}.")

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Learn what the search needs from training rows ``(n, d)`` and their classes ``(n,)``.

        Nothing, unless overridden.
        """
        return self

    def scored_by(self) -> Plausibility | None:
        """What judges a counterfactual's density; nothing where there is no density."""
        return None if isinstance(self.plausibility, float) else self.plausibility

    def unsupported(self) -> str | None:
        """Why this method cannot explain the classifier; nothing where it can."""
        return None

    @abstractmethod
    def _search(self, x: Tensor, y_target: Tensor) -> Solution:
        """Find a counterfactual for every row: NaN where there is none."""

    def explain(self, x: Tensor, y_target: Target = "opposite") -> Counterfactuals:
        """Find a counterfactual for every row of ``x``.

        Args:
            x: Rows to explain, shape ``(n, d)``. A row with NaN or infinite entries comes back as not found.
            y_target: ``opposite`` (two classes), ``runner_up`` (the most probable other class), a class, one
                class per row, or ``paper`` (``|1 - predicted|``, for reproduction only).
        """
        _check_table(x)
        wanted, start = _as_target(y_target, len(x)), 0
        parts: list[Counterfactuals] = []
        size = self.chunk_size or likely_to_fit(x)
        with progress_bar(f"{self.label}: explaining rows", len(x), show=len(x) > size) as advance:
            while start < len(x) or not parts:
                some = slice(start, start + size)
                own = wanted[some] if isinstance(wanted, Tensor) and wanted.ndim > 0 else wanted
                try:
                    parts.append(self._explain_chunk(x[some], own))
                except torch.OutOfMemoryError:
                    if self.chunk_size is not None or size <= ON_PROCESSOR:
                        raise
                    size //= 2
                    torch.cuda.empty_cache()
                    continue
                start += size
                advance(len(x[some]), "")
        return concatenate(parts)

    def _explain_chunk(self, x: Tensor, target: Policy | Tensor) -> Counterfactuals:
        usable = torch.isfinite(x).all(dim=1)
        readable = torch.nan_to_num(x, posinf=0.0, neginf=0.0)
        y = predict(self.classifier, readable.double())
        y_target = resolve_target(target, self.classifier, readable, y)
        reason = self.unsupported() or ""
        wall, cpu = time.perf_counter(), time.process_time()
        answer = _nothing(x[usable]) if reason else self._search(x[usable], y_target[usable])
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        share = torch.tensor([wall, cpu], dtype=torch.float64) / max(1, len(x))
        found = judge(
            classifier=self.classifier,
            plausibility=self.scored_by(),
            x=x,
            x_cf=_put(answer.x, usable, torch.nan),
            y=y,
            y_target=y_target,
            gradients=_put(answer.gradients, usable, 0),
            seconds=share[0],
            cpu_seconds=share[1],
            path=None if answer.path is None else _put(answer.path, usable, torch.nan),
        )
        return replace(found, reason=reason)


def likely_to_fit(x: Tensor) -> int:
    """How many rows like these to search at once on their device."""
    if not x.is_cuda:
        return ON_PROCESSOR
    d, reserved = x.shape[1], torch.cuda.memory_reserved(x.device) - torch.cuda.memory_allocated(x.device)
    free = torch.cuda.mem_get_info(x.device)[0] + reserved
    return max(ON_PROCESSOR, int(0.6 * free / (20_000 + 800 * d + 32 * d * d)))


def _as_target(target: Target, n: int) -> Policy | Tensor:
    """A policy as it is, classes as a tensor: one for all rows, or one per row."""
    if isinstance(target, str):
        return target
    try:
        classes = torch.as_tensor(target)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidInputError(f"{_TARGETS}; got {type(target).__name__}.") from error
    if classes.ndim > 0 and classes.shape != (n,):
        raise ShapeError(f"`y_target` must have shape ({n},), one class per row; got {tuple(classes.shape)}.")
    return classes


@torch.no_grad()
def resolve_target(target: Policy | Tensor, classifier: Classifier, x: Tensor, y: Tensor) -> Tensor:
    """Every row's wanted class, from a policy, a class, or one per row; ``y`` are the predicted classes."""
    k = classifier.n_classes
    if isinstance(target, str):
        if target == "opposite":
            if k != 2:
                raise InvalidInputError(
                    f"`opposite` needs a model with two classes; this one has {k}. Ask for 'runner_up' or "
                    "name a class."
                )
            return 1 - y
        if target == "runner_up":
            return classifier.logits(x.double()).scatter(1, y[:, None], float("-inf")).argmax(dim=1)
        if target == "paper":
            # Deviation: the published runs aim at |1 - predicted|: 0 -> 1, 1 -> 0, 2 -> 1, ... 9 -> 8.
            return (1 - y).abs()
        raise InvalidInputError(f"{_TARGETS}; got {target!r}.")
    classes = target.to(x.device)
    if classes.is_floating_point() or classes.dtype == torch.bool:
        raise InvalidInputError(
            f"`y_target` must hold whole class numbers; got {classes.dtype}. Convert it with `.long()`."
        )
    classes = classes.long().expand(len(x)).clone()
    if len(classes) and not (int(classes.min()) >= 0 and int(classes.max()) < k):
        raise InvalidInputError(
            f"`y_target` must be between 0 and {k - 1}, the model's classes; got {int(classes.min())} to "
            f"{int(classes.max())}."
        )
    return classes


def _nothing(x: Tensor) -> Solution:
    """No answer for any row."""
    return Solution(
        x=torch.full_like(x, torch.nan), gradients=torch.zeros(len(x), dtype=torch.long).to(x.device)
    )


def _put(values: Tensor, rows: Tensor, filler: float) -> Tensor:
    """The values at the rows where the mask is true, the filler elsewhere.

    Rows are the last dimension but one, or the only one.
    """
    shape = (*values.shape[:-2], len(rows), *values.shape[-1:]) if values.ndim > 1 else (len(rows),)
    spread = values.new_full(shape, filler)
    spread[(slice(None),) * (values.ndim - 2) + (rows,)] = values
    return spread


def _check_table(x: Tensor) -> None:
    if not isinstance(x, Tensor) or x.ndim != 2 or x.shape[1] == 0:
        shape = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise ShapeError(f"`x` must be a tensor of shape (n, d); got {shape}. One row is `x[None]`.")
    if not x.is_floating_point():
        raise InvalidInputError(f"`x` must be a float tensor; got {x.dtype}. Convert it with `.float()`.")
