"""Random numbers that belong to a row, whatever batch it is in.

Each is a hash of the row's own numbers, of what is drawn and of a counter (SplitMix64), so a row alone gets
what it gets among thousands.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_GOLDEN, _FIRST, _SECOND = -0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15


def row_keys(x: Tensor) -> Tensor:
    """A key for each row ``(n, d)``, of its numbers alone, shape ``(n,)``, long."""
    bits = (x.double() + 0.0).contiguous().view(torch.int64)  # + 0.0: minus zero is zero
    place = torch.arange(1, x.shape[1] + 1, device=x.device) * _GOLDEN
    return _mixed(_mixed(bits + place).sum(dim=1))


def uniforms(keys: Tensor, count: int, salt: int) -> Tensor:
    """Numbers in (0, 1) for rows with these keys ``(n,)``, shape ``(n, count)``; others for every salt."""
    counter = (torch.arange(1, count + 1, device=keys.device) + (salt << 32)) * _GOLDEN
    bits = _mixed(keys[:, None] + counter)
    return (_shifted(bits, 12).double() + 0.5) * 2.0**-52


def normals(keys: Tensor, count: int, salt: int) -> Tensor:
    """Standard normal numbers, likewise."""
    return math.sqrt(2) * torch.erfinv(2 * uniforms(keys, count, salt) - 1)


def signs(keys: Tensor, count: int, salt: int) -> Tensor:
    """Plus or minus one, likewise."""
    return torch.where(uniforms(keys, count, salt) < 0.5, -1.0, 1.0).double()


def _mixed(bits: Tensor) -> Tensor:
    bits = (bits ^ _shifted(bits, 30)) * _FIRST
    bits = (bits ^ _shifted(bits, 27)) * _SECOND
    return bits ^ _shifted(bits, 31)


def _shifted(bits: Tensor, by: int) -> Tensor:
    """To the right, with zeros coming in."""
    return (bits >> by) & ((1 << (64 - by)) - 1)
