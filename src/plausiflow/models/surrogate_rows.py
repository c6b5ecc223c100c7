"""Rows on which a model is asked so that a student can learn its answers: real ones, and others near by.

They are on the grid, and can be decoded: exactly one level of each category, numbers pinned where their level
says so. What is closed, such as a missing cell, stays as it is.
"""

from __future__ import annotations

import torch
from torch import Tensor

from plausiflow.errors import InvalidInputError, ShapeError
from plausiflow.tables import Layout

NOISE = (0.01, 0.03, 0.08)
"""Standard deviations of the noise on numbers, in turn."""
_RESAMPLED = 0.1  # How many categories of a noised row come from another row.
_NEAREST = 10
_AMONG = 6000  # Rows of all classes together that neighbours are sought among.
_AT_ONCE = 512


def pool(x: Tensor, classes: Tensor, layout: Layout, *, size: int, seed: int = 0) -> Tensor:
    """Rows to ask a model about.

    Up to a third are the rows themselves. The others are rows with noise on their numbers and some categories
    of other rows, and points on segments to one of the ten nearest rows of another class.

    Args:
        x: Encoded rows, shape ``(n, width)``.
        classes: What the model decides for them, shape ``(n,)``.
        layout: Of encoded rows.
        size: How many rows are wanted.
        seed: Of what is random.

    Returns:
        Double precision, shape ``(size, width)``. A number is within [0, 1], or as far outside as the row
        that it comes from.
    """
    if x.ndim != 2 or x.shape[1] != layout.width or classes.shape != (len(x),):
        raise ShapeError(
            f"`x` must have shape (n, {layout.width}) and `classes` (n,), one for each row; "
            f"got {tuple(x.shape)} and {tuple(classes.shape)}."
        )
    if len(x) == 0 or size < 1:
        raise InvalidInputError(f"There must be rows, and `size` positive; got {len(x)} rows, and {size}.")
    generator = torch.Generator().manual_seed(seed)
    x, classes = layout.snap(x.detach().double().cpu()), classes.detach().cpu()
    own = torch.randperm(len(x), generator=generator)[: -(-size // 3)].sort().values
    between = (size - len(own)) // 2 if len(classes.unique()) > 1 else 0
    noised = size - len(own) - between
    return torch.cat(
        [
            x[own],
            _noised(x[_drawn(len(x), noised, generator)], x, layout, generator),
            _between(x, classes, layout, between, generator),
        ]
    )


def _drawn(n: int, count: int, generator: torch.Generator) -> Tensor:
    """So many of ``n`` rows, each as often as any other, but for one."""
    rounds = [torch.randperm(n, generator=generator) for _ in range(-(-count // n))]
    return torch.cat([torch.zeros(0, dtype=torch.long), *rounds])[:count]


def _noised(rows: Tensor, x: Tensor, layout: Layout, generator: torch.Generator) -> Tensor:
    """Rows with other numbers, and here and there the category of another row."""
    codes = layout.codes(rows)
    donors = x[torch.randint(len(x), (len(rows),), generator=generator)]
    chosen = torch.rand(codes.shape, generator=generator, dtype=x.dtype) < _RESAMPLED
    rows, codes = _mixed(rows, donors, chosen, layout)
    size = torch.tensor(NOISE, dtype=x.dtype)[torch.arange(len(rows)) % len(NOISE)]
    noise = size[:, None] * torch.randn(rows.shape, generator=generator, dtype=x.dtype)
    moved = rows + noise * layout.free(codes)
    return _settled(torch.minimum(torch.maximum(moved, rows.clamp_max(0)), rows.clamp_min(1)), codes, layout)


def _mixed(rows: Tensor, donors: Tensor, chosen: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
    """Rows with chosen categories of others, and the numbers that go with these; and their levels."""
    rows, codes, others = rows.clone(), layout.codes(rows), layout.codes(donors)
    taken = chosen & ~_closed(codes, layout) & ~_closed(others, layout)
    for j, block in enumerate(layout.with_levels):
        if block.number is not None:
            at = taken[:, j]
            rows[at, block.number] = donors[at, block.number]
    return rows, torch.where(taken, others, codes)


def _closed(codes: Tensor, layout: Layout) -> Tensor:
    """Which cells with levels are at a closed one, shape ``(n, blocks with levels)``."""
    closed = [torch.tensor(block.closed)[codes[:, j]] for j, block in enumerate(layout.with_levels)]
    return torch.stack(closed, dim=1) if closed else torch.zeros_like(codes, dtype=torch.bool)


def _between(x: Tensor, classes: Tensor, layout: Layout, count: int, generator: torch.Generator) -> Tensor:
    """Points on segments between rows of two classes; each category is that of one end or the other."""
    starts = _drawn(len(x), count, generator)
    rows, ends = x[starts], x[_partners(starts, x, classes, generator)]
    way = torch.rand(count, 1, generator=generator, dtype=x.dtype)
    codes, others = layout.codes(rows), layout.codes(ends)
    closed = _closed(codes, layout) | _closed(others, layout)
    stays = torch.zeros(count, layout.width, dtype=torch.bool)
    for j, block in enumerate(layout.with_levels):
        if block.number is not None:
            stays[:, block.number] = closed[:, j]
    taken = (torch.rand(codes.shape, generator=generator, dtype=x.dtype) < way) & ~closed
    moved = torch.where(stays, rows, rows + way * (ends - rows))
    return _settled(moved, torch.where(taken, others, codes), layout)


def _partners(starts: Tensor, x: Tensor, classes: Tensor, generator: torch.Generator) -> Tensor:
    """For each of some rows one of the nearest rows of another class."""
    labels = classes.unique()
    among = torch.cat(
        [
            _shuffled((classes == label).nonzero()[:, 0], generator)[: -(-_AMONG // len(labels))]
            for label in labels
        ]
    )
    picks = torch.rand(len(starts), generator=generator, dtype=x.dtype)
    partners = [torch.zeros(0, dtype=torch.long)]
    for rows, pick in zip(starts.split(_AT_ONCE), picks.split(_AT_ONCE), strict=True):
        distance = torch.cdist(x[rows], x[among])
        distance[classes[rows][:, None] == classes[among]] = torch.inf
        near = distance.topk(min(_NEAREST, len(among)), largest=False)
        place = (pick * near.values.isfinite().sum(dim=1)).long()
        partners.append(among[near.indices.gather(1, place[:, None])[:, 0]])
    return torch.cat(partners)


def _shuffled(rows: Tensor, generator: torch.Generator) -> Tensor:
    return rows[torch.randperm(len(rows), generator=generator)]


def _settled(x: Tensor, codes: Tensor, layout: Layout) -> Tensor:
    """Rows on the grid at these levels; a free number that came to lie on an open pin takes that level."""
    x = layout.snap(layout.with_codes(x, codes))
    codes, free = codes.clone(), layout.free(codes)
    for j, block in enumerate(layout.with_levels):
        for level, pin in enumerate(block.pinned):
            if pin is not None and not block.closed[level]:
                codes[free[:, block.number] & (x[:, block.number] == pin), j] = level
    return layout.with_codes(x, codes)
