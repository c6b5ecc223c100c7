"""What a method returns: tensors only, one entry per explained row."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class Counterfactuals:
    """The answers to one call of ``Method.explain``, one row each.

    Attributes:
        x: Factuals, shape ``(n, d)``.
        x_cf: Counterfactuals, shape ``(n, d)``; NaN exactly where ``found`` is false.
        y: Predicted classes of the factuals, shape ``(n,)``.
        y_target: Target classes, shape ``(n,)``.
        y_cf: Predicted classes of the counterfactuals, shape ``(n,)``; -1 where not found.
        found: Whether the method returned a point, shape ``(n,)``.
        valid: Whether the model decides that point as wanted, shape ``(n,)``.
        plausible: Whether its density passes the threshold, shape ``(n,)``; false where no density was given.
        log_prob: Log-density of the counterfactual under its wanted class, shape ``(n,)``; NaN where unknown.
        log_delta: The threshold that log-density is held against, shape ``(n,)``; NaN where unknown.
        gradients: Value-and-gradient evaluations spent, shape ``(n,)``.
        seconds: Wall-clock seconds, each row's share of its batch, shape ``(n,)``.
        cpu_seconds: Processor seconds, shared likewise, shape ``(n,)``.
        path: Iterates of the search, shape ``(steps, n, d)``, where asked for.
        reason: Why no row can have an answer, where the method is not made for such a model.
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
        """Valid and plausible, shape ``(n,)``."""
        return self.valid & self.plausible

    def __getitem__(self, rows: Tensor | slice) -> Counterfactuals:
        """The answers for some of the rows."""
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
    """Put the answers of several batches behind each other; paths are kept if all have as many steps."""
    if len(parts) == 1:
        return parts[0]
    columns = {name: torch.cat([getattr(part, name) for part in parts]) for name in _PER_ROW}
    paths = [part.path for part in parts if part.path is not None]
    whole = len(paths) == len(parts) and len({len(path) for path in paths}) == 1
    path = torch.cat(paths, dim=1) if whole else None
    return Counterfactuals(**columns, path=path, reason=parts[0].reason)
