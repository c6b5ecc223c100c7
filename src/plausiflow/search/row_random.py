"""Random numbers that depend on a row only, not on the batch it is in.

Each is a hash (SplitMix64) of the row's own numbers, a salt and a counter.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_GOLDEN, _FIRST, _SECOND = -0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15


def row_keys(x: Tensor) -> Tensor:
    """Return a key of each row's numbers, ``(n, d) -> (n,)``, long."""
    bits = (x.double() + 0.0).contiguous().view(torch.int64)  # + 0.0 turns -0.0 into 0.0
    place = torch.arange(1, x.shape[1] + 1, device=x.device) * _GOLDEN
    return _mixed(_mixed(bits + place).sum(dim=1))


def uniforms(keys: Tensor, count: int, salt: int) -> Tensor:
    """Return uniform numbers in (0, 1) for keys ``(n,)``, shape ``(n, count)``; every salt gives others."""
    counter = (torch.arange(1, count + 1, device=keys.device) + (salt << 32)) * _GOLDEN
    bits = _mixed(keys[:, None] + counter)
    return (_shifted(bits, 12).double() + 0.5) * 2.0**-52


def normals(keys: Tensor, count: int, salt: int) -> Tensor:
    """Return standard normal numbers for keys ``(n,)``, shape ``(n, count)``."""
    return math.sqrt(2) * torch.erfinv(2 * uniforms(keys, count, salt) - 1)


def signs(keys: Tensor, count: int, salt: int) -> Tensor:
    """Return random signs, 1 or -1, for keys ``(n,)``, shape ``(n, count)``."""
    return torch.where(uniforms(keys, count, salt) < 0.5, -1.0, 1.0).double()


def _mixed(bits: Tensor) -> Tensor:
    bits = (bits ^ _shifted(bits, 30)) * _FIRST
    bits = (bits ^ _shifted(bits, 27)) * _SECOND
    return bits ^ _shifted(bits, 31)


def _shifted(bits: Tensor, by: int) -> Tensor:
    """Shift to the right, filling with zeros."""
    return (bits >> by) & ((1 << (64 - by)) - 1)
