"""Frozen copies of a torch module: evaluation mode, no parameter gradients, any precision and device.

Searches run in double precision while models are trained in single precision; a copy is made once for each
pair of dtype and device and never trained, so a user's own module is never switched to another mode behind
their back.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

M = TypeVar("M", bound=nn.Module)


class Frozen(Generic[M]):
    """``frozen(x)`` is a frozen copy of a module in eval mode, in the dtype and on the device of ``x``.

    ``finish`` may rewrite each copy once, to make it faster.

    Example:
        >>> frozen = Frozen(nn.Dropout(0.5))
        >>> frozen(torch.ones(2, dtype=torch.float64)).training
        False
    """

    def __init__(self, module: M, finish: Callable[[M], None] | None = None) -> None:
        self.module = module
        self.finish = finish
        self.copies: dict[tuple[torch.dtype, torch.device], M] = {}

    def __call__(self, like: Tensor) -> M:
        """Return the copy in the dtype and on the device of ``like``; it is made on first use."""
        key = (like.dtype, like.device)
        if key not in self.copies:
            frozen = (
                copy.deepcopy(self.module)
                .to(dtype=like.dtype, device=like.device)
                .eval()
                .requires_grad_(False)
            )
            if self.finish is not None:
                self.finish(frozen)
            self.copies[key] = frozen
        return self.copies[key]

    def __getstate__(self) -> dict[str, object]:
        return {"module": self.module, "finish": self.finish, "copies": {}}
