"""Rows that a surrogate is trained on: training rows, and synthetic rows near them.

All rows are on the grid and can be decoded: each category has exactly one level, and numbers have the value
that their level prescribes. Closed levels, such as a missing cell, are kept.
"""

from __future__ import annotations

import torch
from torch import Tensor

from plausiflow.errors import InvalidInputError, ShapeError
from plausiflow.tables import Layout

NOISE = (0.01, 0.03, 0.08)
"""Standard deviations of the noise on numbers, used in turn."""
_RESAMPLED = 0.1  # Probability that a category of a noisy row comes from another row.
_NEAREST = 10
_MAX_NEIGHBOURS = 6000  # Rows of all classes together among which neighbours are searched.
_BATCH = 512


def sample_surrogate_rows(
    x: Tensor, classes: Tensor, layout: Layout, *, size: int, random_state: int = 0
) -> Tensor:
    """Return encoded rows to train a surrogate on, double, shape ``(size, width)``.

    Up to a third are the rows ``x`` themselves. The others are rows with noise on their numbers and some
    categories of other rows, and points on segments to one of the ten nearest rows of another class. Numbers
    are within [0, 1], or as far outside as the row that they come from.
    """
    if x.ndim != 2 or x.shape[1] != layout.width or classes.shape != (len(x),):
        raise ShapeError(
            f"`x` must have shape (n, {layout.width}) and `classes` (n,), one for each row; "
            f"got {tuple(x.shape)} and {tuple(classes.shape)}."
        )
    if len(x) == 0 or size < 1:
        raise InvalidInputError(f"`x` must have rows, and `size` be positive; got {len(x)} rows and {size}.")
    generator = torch.Generator().manual_seed(random_state)
    x, classes = layout.snap(x.detach().double().cpu()), classes.detach().cpu()
    chosen = torch.randperm(len(x), generator=generator)[: -(-size // 3)].sort().values
    n_between = (size - len(chosen)) // 2 if len(classes.unique()) > 1 else 0
    n_noisy = size - len(chosen) - n_between
    noisy = _noisy_rows(x[_draw(len(x), n_noisy, generator)], x, layout, generator)
    return torch.cat([x[chosen], noisy, _rows_between(x, classes, layout, n_between, generator)])


def _draw(n: int, count: int, generator: torch.Generator) -> Tensor:
    """Return ``count`` of ``n`` row numbers, each equally often up to one."""
    rounds = [torch.randperm(n, generator=generator) for _ in range(-(-count // n))]
    return torch.cat([torch.zeros(0, dtype=torch.long), *rounds])[:count]


def _noisy_rows(rows: Tensor, x: Tensor, layout: Layout, generator: torch.Generator) -> Tensor:
    """Add noise to the numbers of rows, and take some categories from other rows."""
    codes = layout.codes(rows)
    donors = x[torch.randint(len(x), (len(rows),), generator=generator)]
    chosen = torch.rand(codes.shape, generator=generator, dtype=x.dtype) < _RESAMPLED
    rows, codes = _mix_categories(rows, donors, chosen, layout)
    size = torch.tensor(NOISE, dtype=x.dtype)[torch.arange(len(rows)) % len(NOISE)]
    noise = size[:, None] * torch.randn(rows.shape, generator=generator, dtype=x.dtype)
    moved = rows + noise * layout.free(codes)
    clipped = torch.minimum(torch.maximum(moved, rows.clamp_max(0)), rows.clamp_min(1))
    return _to_grid(clipped, codes, layout)


def _mix_categories(rows: Tensor, donors: Tensor, chosen: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
    """Take the chosen categories and their numbers from donors; return the rows and their codes."""
    rows, codes, donor_codes = rows.clone(), layout.codes(rows), layout.codes(donors)
    taken = chosen & ~_is_closed(codes, layout) & ~_is_closed(donor_codes, layout)
    for j, block in enumerate(layout.with_levels):
        if block.number is not None:
            at = taken[:, j]
            rows[at, block.number] = donors[at, block.number]
    return rows, torch.where(taken, donor_codes, codes)


def _is_closed(codes: Tensor, layout: Layout) -> Tensor:
    """Return which cells have a closed level, shape ``(n, blocks with levels)``."""
    closed = [torch.tensor(block.closed)[codes[:, j]] for j, block in enumerate(layout.with_levels)]
    return torch.stack(closed, dim=1) if closed else torch.zeros_like(codes, dtype=torch.bool)


def _rows_between(
    x: Tensor, classes: Tensor, layout: Layout, count: int, generator: torch.Generator
) -> Tensor:
    """Return points on segments between rows of two classes; each category is that of one end."""
    starts = _draw(len(x), count, generator)
    rows, ends = x[starts], x[_find_partners(starts, x, classes, generator)]
    fraction = torch.rand(count, 1, generator=generator, dtype=x.dtype)
    codes, end_codes = layout.codes(rows), layout.codes(ends)
    closed = _is_closed(codes, layout) | _is_closed(end_codes, layout)
    kept = torch.zeros(count, layout.width, dtype=torch.bool)
    for j, block in enumerate(layout.with_levels):
        if block.number is not None:
            kept[:, block.number] = closed[:, j]
    taken = (torch.rand(codes.shape, generator=generator, dtype=x.dtype) < fraction) & ~closed
    moved = torch.where(kept, rows, rows + fraction * (ends - rows))
    return _to_grid(moved, torch.where(taken, end_codes, codes), layout)


def _find_partners(starts: Tensor, x: Tensor, classes: Tensor, generator: torch.Generator) -> Tensor:
    """Return for each start one of the nearest rows of another class."""
    labels = classes.unique()
    count = -(-_MAX_NEIGHBOURS // len(labels))
    members = [(classes == label).nonzero()[:, 0] for label in labels]
    among = torch.cat([rows[torch.randperm(len(rows), generator=generator)][:count] for rows in members])
    picks = torch.rand(len(starts), generator=generator, dtype=x.dtype)
    partners = [torch.zeros(0, dtype=torch.long)]
    for rows, pick in zip(starts.split(_BATCH), picks.split(_BATCH), strict=True):
        distance = torch.cdist(x[rows], x[among])
        distance[classes[rows][:, None] == classes[among]] = torch.inf
        nearest = distance.topk(min(_NEAREST, len(among)), largest=False)
        position = (pick * nearest.values.isfinite().sum(dim=1)).long()
        partners.append(among[nearest.indices.gather(1, position[:, None])[:, 0]])
    return torch.cat(partners)


def _to_grid(x: Tensor, codes: Tensor, layout: Layout) -> Tensor:
    """Put rows with these levels on the grid; a free number equal to a special value takes its state."""
    return layout.settle(layout.snap(layout.with_codes(x, codes)))
