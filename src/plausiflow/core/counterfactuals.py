"""What a method returns: tensors only, one entry per explained row."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class Counterfactuals:
    """The result of ``Method.explain``, one entry per row.

    Attributes:
        x: Factuals, shape ``(n, d)``.
        x_cf: Counterfactuals, shape ``(n, d)``; NaN exactly where ``found`` is False.
        y: Predicted classes of the factuals, shape ``(n,)``.
        y_target: Target classes, shape ``(n,)``.
        y_cf: Predicted classes of the counterfactuals, shape ``(n,)``; -1 where not found.
        found: Whether the method returned a point, shape ``(n,)``.
        valid: Whether the model decides that point for the target class, shape ``(n,)``.
        plausible: Whether its density passes the threshold, shape ``(n,)``; False without a density.
        log_prob: Log-density of the counterfactual under its target class, shape ``(n,)``; NaN if unknown.
        log_delta: The threshold of that log-density, shape ``(n,)``; NaN if unknown.
        gradients: Evaluations of value and gradient, shape ``(n,)``.
        seconds: Wall-clock seconds, each row's share of its batch, shape ``(n,)``.
        cpu_seconds: CPU seconds, each row's share of its batch, shape ``(n,)``.
        path: Iterates of the search, shape ``(steps, n, d)``, if the solver keeps them.
        reason: Why the method cannot explain this model; empty if it can.
    """

    x: Tensor
    x_cf: Tensor
    y: Tensor
    y_target: Tensor
    y_cf: Tensor
    found: Tensor
    valid: Tensor
    plausible: Tensor
    log_prob: Tensor
    log_delta: Tensor
    gradients: Tensor
    seconds: Tensor
    cpu_seconds: Tensor
    path: Tensor | None = None
    reason: str = ""

    def __len__(self) -> int:
        return len(self.x)

    @property
    def feasible(self) -> Tensor:
        """Whether the point is valid and plausible, shape ``(n,)``."""
        return self.valid & self.plausible

    def __getitem__(self, rows: Tensor | slice) -> Counterfactuals:
        """Select rows."""
        taken = {name: getattr(self, name)[rows] for name in _PER_ROW}
        path = None if self.path is None else self.path[:, rows]
        return Counterfactuals(**taken, path=path, reason=self.reason)

    def __repr__(self) -> str:
        return (
            f"Counterfactuals({len(self)} rows, {int(self.found.sum())} found, "
            f"{int(self.valid.sum())} valid, {int(self.plausible.sum())} plausible"
            f"{f'; {self.reason}' if self.reason else ''})"
        )


_PER_ROW = [f.name for f in fields(Counterfactuals) if f.name not in ("path", "reason")]


def concatenate(parts: list[Counterfactuals]) -> Counterfactuals:
    """Concatenate the results of several batches; paths are kept if all have the same number of steps."""
    if len(parts) == 1:
        return parts[0]
    columns = {name: torch.cat([getattr(part, name) for part in parts]) for name in _PER_ROW}
    paths = [part.path for part in parts if part.path is not None]
    whole = len(paths) == len(parts) and len({len(path) for path in paths}) == 1
    path = torch.cat(paths, dim=1) if whole else None
    return Counterfactuals(**columns, path=path, reason=parts[0].reason)
