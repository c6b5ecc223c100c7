"""What every method shares: targets, batches, timing, verification, and the rule that NaN means not found.

A method implements ``search``; ``explain`` does the rest, the same for all, so that comparisons are fair.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from plausiflow.core import (
    CPU_ROWS,
    Classifier,
    Counterfactuals,
    Plausibility,
    Solution,
    concatenate,
    rows_per_search,
    suitable_threads,
    verify_counterfactuals,
)
from plausiflow.errors import InvalidInputError, ShapeError
from plausiflow.progress import progress_bar
from plausiflow.search import Target, target_classes


@dataclass(kw_only=True, eq=False)
class Method(ABC):
    """A way to find counterfactuals; its fields are its settings.

    To add a method, subclass this class and implement :meth:`search`; override :meth:`fit` if it learns from
    training rows, and :meth:`unsupported` if it cannot explain every classifier.

    Attributes:
        classifier: The model that is explained.
        plausibility: Scores the density of a row; without it no row counts as plausible. Methods that learn a
            density themselves take a quantile instead.
        chunk_size: Maximum number of rows searched at once; default: 8,192 on a CPU, and on a GPU as many as
            its free memory is likely to hold (half as many if it does not).
    """

    label: ClassVar[str]

    classifier: Classifier
    plausibility: Plausibility | float | None = None
    chunk_size: int | None = None

    def __post_init__(self) -> None:
        if self.chunk_size is not None and self.chunk_size < 1:
            raise InvalidInputError(f"`chunk_size` must be at least 1; got {self.chunk_size}.")

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Learn what the search needs from training rows ``(n, d)`` and their classes ``(n,)``."""
        return self

    def fitted_plausibility(self) -> Plausibility | None:
        """Return what scores the density of a counterfactual; None if there is no density."""
        return None if isinstance(self.plausibility, float) else self.plausibility

    def unsupported(self) -> str | None:
        """Return why this method cannot explain the classifier; None if it can."""
        return None

    @abstractmethod
    def search(self, x: Tensor, y_target: Tensor) -> Solution:
        """Return a point for every row ``(n, d)`` and its target class ``(n,)``; NaN if there is none."""

    def explain(self, x: Tensor, target: Target = "opposite") -> Counterfactuals:
        """Find a counterfactual for every row of ``x``.

        Args:
            x: Rows to explain, shape ``(n, d)``. A row with NaN or infinite entries comes back as not found.
            target: ``opposite`` (two classes), ``runner_up`` (the most probable other class), a class, one
                class per row, or ``paper`` (``|1 - predicted|``, for reproduction only).
        """
        _check_table(x)
        parts: list[Counterfactuals] = []
        start, size = 0, self.chunk_size or rows_per_search(x)
        bar = progress_bar(f"{self.label}: explaining rows", len(x), show=len(x) > size)
        with suitable_threads(x), bar as advance:
            while start < len(x) or not parts:
                some = slice(start, start + size)
                try:
                    parts.append(self._explain_rows(x[some], _part(target, some, len(x))))
                except torch.OutOfMemoryError:
                    if self.chunk_size is not None or size <= CPU_ROWS:
                        raise
                    size //= 2
                    torch.cuda.empty_cache()
                    continue
                start += size
                advance(len(x[some]), "")
        return concatenate(parts)

    def _explain_rows(self, x: Tensor, target: Target) -> Counterfactuals:
        usable = torch.isfinite(x).all(dim=1)
        readable = torch.nan_to_num(x, posinf=0.0, neginf=0.0)
        with torch.no_grad():
            logits = self.classifier.logits(readable.double())
        y_target = target_classes(target, logits, tuple(range(self.classifier.n_classes)))
        reason = self.unsupported() or ""
        wall, cpu = time.perf_counter(), time.process_time()
        solution = Solution.empty(x[usable]) if reason else self.search(x[usable], y_target[usable])
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        share = torch.tensor([wall, cpu], dtype=torch.float64) / max(1, len(x))
        found = verify_counterfactuals(
            classifier=self.classifier,
            plausibility=self.fitted_plausibility(),
            x=x,
            x_cf=_put(solution.x, usable, torch.nan),
            y=logits.argmax(dim=1),
            y_target=y_target,
            gradients=_put(solution.gradients, usable, 0),
            seconds=share[0],
            cpu_seconds=share[1],
            path=None if solution.path is None else _put(solution.path, usable, torch.nan),
        )
        return replace(found, reason=reason)


def _part(target: Target, some: slice, n: int) -> Target:
    """Return the part of a target for some rows; a target for all rows stays as it is."""
    if hasattr(target, "to_numpy"):  # a column of pandas
        target = target.to_numpy()
    if isinstance(target, Tensor | np.ndarray):
        if target.ndim == 0:
            return target
        if target.shape != (n,):
            raise ShapeError(
                f"`target` must have shape ({n},), one class per row; got {tuple(target.shape)}."
            )
        return target[some]
    if isinstance(target, str) or not isinstance(target, Sequence):
        return target
    if len(target) != n:
        raise ShapeError(f"`target` must have {n} classes, one per row; got {len(target)}.")
    return target[some]


def _put(values: Tensor, rows: Tensor, filler: float) -> Tensor:
    """Put values into the rows where the mask is True, and the filler elsewhere.

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
