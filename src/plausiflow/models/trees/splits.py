"""Thresholds and widths of the soft splits of a forest.

A temperature is in units of the encoded range. The value that a tree splits is computed from an encoded
number by decoding it, and perhaps scaling it again. A split is therefore as wide as the value's derivative
with respect to the encoded number at the threshold. On a grid, a threshold is in the middle of two values.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from plausiflow.errors import InvalidInputError, ShapeError
from plausiflow.models.trees.cells import Cells
from plausiflow.models.trees.forest import Forest
from plausiflow.tables import Layout, Scale

_TIE = 1e-9  # How far a threshold is moved off its own value, in steps or scales.
_ROUNDING = 4  # The minimum of that, in roundings of double precision.


@dataclass(frozen=True, eq=False)
class SplitScales:
    """Sizes of the columns of a forest at its splits."""

    scales: Tensor  # Change of the value over the encoded range, at each split, (splits,).
    steps: Tensor  # Grid step of each column, zero for no grid, (d,).
    origins: Tensor  # Some value on each grid, (d,).

    @classmethod
    def measure(cls, forest: Forest, cells: Cells, layout: Layout, x: Tensor) -> SplitScales:
        """Measure the sizes for inputs that are computed from encoded rows.

        A column that combines several numbers of the table, such as a projection, is measured at the rows
        ``x``, shape ``(n, width)``. A column that only has discrete states has size one.
        """
        numbers = {element: layout.block(name).scale for name, element in cells.basis.elements.items()}
        sizes = cls(
            torch.ones_like(forest.threshold), *torch.zeros(2, forest.n_features, dtype=torch.float64)
        )
        for j, column in enumerate(cells.columns):
            splits, weights = forest.feature == j, column.number or {}
            elements = [element for element in weights if element != column.gate]
            scale = numbers.get(elements[0]) if len(elements) == 1 else None
            if scale is not None:
                weight, shift = weights[elements[0]], weights.get(column.gate, 0.0)
                sizes.scales[splits] = _decoding_slopes(scale, forest.threshold[splits], weight, shift)
                sizes.steps[j], sizes.origins[j] = abs(weight) * scale.step, shift
            elif elements:
                sizes.scales[splits] = _sample_slopes(cells, j, x, layout.numbers, forest.threshold[splits])
        return sizes


def _decoding_slopes(scale: Scale, threshold: Tensor, weight: float, shift: float) -> Tensor:
    """Return the derivative of ``weight * number + shift`` in the encoded number at each threshold."""
    number = ((threshold - shift) / weight).clamp(scale.minimum, scale.maximum).requires_grad_()
    with torch.enable_grad():
        (encoding,) = torch.autograd.grad(scale.encode(number).sum(), number)
    return abs(weight) / encoding


def _sample_slopes(cells: Cells, j: int, x: Tensor, numbers: list[int], threshold: Tensor) -> Tensor:
    """Return the gradient norm of column j in the encoded numbers, at the row nearest to each threshold."""
    x = x.detach().clone().requires_grad_()
    with torch.enable_grad():
        cell = cells(x)[:, j]
        (gradient,) = torch.autograd.grad(cell.sum(), x)
    derivative = gradient[:, numbers].norm(dim=1)
    moves = derivative > 0
    if not bool(moves.any()):
        return torch.ones_like(threshold)
    nearest = (cell.detach()[moves] - threshold[:, None]).abs().argmin(dim=1)
    sizes: Tensor = derivative[moves][nearest]
    return sizes


def soft_thresholds(forest: Forest, scale: Tensor, steps: Tensor | None, origins: Tensor | None) -> Tensor:
    """Return the thresholds of soft splits, shape ``(splits,)``.

    On a grid (``steps`` and ``origins``, shape ``(d,)``, as in :class:`SplitScales`) they are in the middle
    of the two values that they separate; otherwise they are those of :func:`off_values`.
    """
    zeros = scale.new_zeros(forest.n_features)
    steps = zeros if steps is None else steps.double()
    if steps.shape != zeros.shape or not bool((steps >= 0).all()):
        raise ShapeError(
            f"`steps` must have shape ({forest.n_features},), one step per column, zero for no grid; got "
            f"{tuple(steps.shape)}, and {int((~(steps >= 0)).sum())} that are negative or NaN."
        )
    step = steps[forest.feature]
    origin = (zeros if origins is None else origins.double())[forest.feature]
    moved = off_values(forest, scale, step, origin)
    middle = ((moved - origin) / step.where(step > 0, 1.0)).floor().add(0.5) * step + origin
    return middle.where(step > 0, moved)


def off_values(forest: Forest, scale: Tensor, step: Tensor, origin: Tensor) -> Tensor:
    """Return the thresholds moved slightly off the values that may equal them, shape ``(splits,)``.

    A value that was decoded differs from the one in the table by roundings, so a hard split of it would be
    arbitrary. On a grid the value of the table is known, and the side that the model sends it to is kept.
    """
    threshold = forest.threshold
    size = threshold.abs().nan_to_num(posinf=0.0) + origin.abs()
    rounding = _ROUNDING * torch.finfo(torch.float64).eps * size
    move = torch.maximum(_TIE * step.where(step > 0, scale), rounding)
    # LightGBM separates zero from other values at 1e-35 and -1e-35; zero itself must stay on its side.
    at_zero = (threshold != 0) & (threshold.abs() < move)
    away = torch.where(at_zero, threshold.sign(), 1.0 if forest.inclusive else -1.0)
    value = _as_written(threshold.nan_to_num(posinf=0.0, neginf=0.0), digits=12)
    # A column that was scaled has no such numbers.
    plain = (step > 0) & (origin == 0) & (step == _as_written(step, digits=6))
    near = plain & ((value - threshold).abs() <= move) & ~at_zero
    left = value <= threshold if forest.inclusive else value < threshold
    away = torch.where(near, torch.where(left, 1.0, -1.0), away)
    moved = threshold + move * away
    if forest.single:
        rounded = _between_singles(threshold, forest.inclusive)
        moved = moved.where((moved - threshold).abs() > (rounded - threshold).abs(), rounded)
    return moved


def _as_written(value: Tensor, digits: int) -> Tensor:
    """Return the nearest numbers with so many significant digits, as a table has them."""
    places = digits - 1 - value.abs().clamp_min(1e-290).log10().floor().clamp(-20, 20)
    factor = 10.0 ** places.abs()
    whole = torch.where(places >= 0, value * factor, value / factor).round()
    return torch.where(places >= 0, whole / factor, whole * factor)


def _between_singles(threshold: Tensor, inclusive: bool) -> Tensor:
    """Return the point that separates values which round to different sides in single precision."""
    single, away = threshold.float(), torch.tensor(torch.inf if inclusive else -torch.inf)
    beyond = single > threshold if inclusive else single < threshold
    last = torch.where(beyond, torch.nextafter(single, -away.float()), single)
    return (last.double() + torch.nextafter(last, away.float()).double()) / 2


def split_scales(forest: Forest, scales: Tensor, per_split: bool) -> Tensor:
    """Check scales, one per column or per split, and return the scale of each split, ``(splits,)``."""
    expected = len(forest.feature) if per_split else forest.n_features
    if scales.shape != (expected,):
        raise ShapeError(
            f"`scales` must have shape ({expected},), one scale per {'split' if per_split else 'column'}; "
            f"got {tuple(scales.shape)}."
        )
    if not bool((scales.isfinite() & (scales > 0)).all()):
        raise InvalidInputError(
            "`scales` must be positive and finite. Give a column that never changes a scale of one."
        )
    return (scales if per_split else scales[forest.feature]).double()


def ambiguous_rows(forest: Forest, sizes: SplitScales, cells: Tensor, certain: Tensor | None) -> Tensor:
    """Return which rows a rounding error of some value could send another way, shape ``(n,)``.

    After a scaler, a value on a grid may equal a threshold up to the rounding of the scaler. In single
    precision there is no such doubt, because values are rounded before they are compared. Cells that are
    ``certain``, in a discrete state, are known exactly; both have shape ``(n, d)``.
    """
    if forest.single:
        return torch.zeros(len(cells), dtype=torch.bool)
    largest = cells.new_zeros(forest.n_features).scatter_reduce(0, forest.feature, sizes.scales, "amax")
    move = (_TIE * largest).expand_as(cells)
    move = move if certain is None else move.masked_fill(certain, 0.0)
    return (forest.values(cells - move) != forest.values(cells + move)).any(dim=1)
