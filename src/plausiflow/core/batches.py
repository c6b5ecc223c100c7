"""How many rows, candidates or pairs are processed at once: the one place that decides batch sizes.

Rows are independent, so a batch size changes the time and the memory of a search and never its result. On a
CPU batches are as large as its caches make worthwhile; on a GPU as large as its free memory is likely to
hold.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

CPU_ROWS = 8192
"""Rows of numbers that one search takes at once on a CPU: more do not go faster."""
TABLE_ROWS, TABLE_ROWS_ON_GPU = 256, 16_384
"""Rows of a table that one search takes at once: each has dozens of candidates."""
BLACK_BOX_ROWS = 1024
"""Rows that a model without gradients is asked about together: a call costs more than a row."""
FIRST_TIMED_ROWS, TIMED_ROWS = 4, 64
"""Rows that are searched together under a time limit: first, and after doubling a few times."""
CANDIDATES = 6000
"""Candidates that are solved at once on a CPU; a GPU takes as many as its memory holds."""
CHECKED = 256
"""Candidates that are checked at once on a CPU: their intermediate values fit into its caches."""
PAIRS = 16_384
"""Pairs of a row and a bank row that are checked at once."""
EVALUATED_ROWS = 8192
"""Rows whose log-density or logits are evaluated at once outside a search."""
ROWS_WORTH_A_GPU = 512
"""From so many rows on a GPU is faster."""


def rows_per_search(x: Tensor) -> int:
    """Return how many rows like these one search takes at once on their device."""
    if not x.is_cuda:
        return CPU_ROWS
    d, reserved = x.shape[1], torch.cuda.memory_reserved(x.device) - torch.cuda.memory_allocated(x.device)
    free = torch.cuda.mem_get_info(x.device)[0] + reserved
    return max(CPU_ROWS, int(0.6 * free / (20_000 + 800 * d + 32 * d * d)))


def candidates_at_once(x: Tensor) -> int:
    """Return how many candidates like these rows are solved at once on their device."""
    return max(CANDIDATES, rows_per_search(x) // 4) if x.is_cuda else CANDIDATES


def checked_at_once(x: Tensor) -> int:
    """Return how many candidates like these rows are checked at once on their device."""
    return candidates_at_once(x) if x.is_cuda else CHECKED


def table_rows_per_search(x: Tensor, *, black_box: bool = False) -> int:
    """Return how many rows of a table one search takes at once on their device."""
    if black_box:
        return BLACK_BOX_ROWS
    return TABLE_ROWS_ON_GPU if x.is_cuda else TABLE_ROWS


def search_device(device: str, n_rows: int) -> torch.device:
    """Return the device for a search; ``auto`` is CUDA if it is there and the rows are many."""
    if device == "auto":
        return torch.device("cuda" if n_rows >= ROWS_WORTH_A_GPU and torch.cuda.is_available() else "cpu")
    return torch.device(device)


def blocks(*tensors: Tensor, size: int = EVALUATED_ROWS) -> Iterator[tuple[Tensor, ...]]:
    """Split tensors of equal length into blocks of rows."""
    yield from zip(*(tensor.split(size) for tensor in tensors), strict=True)
