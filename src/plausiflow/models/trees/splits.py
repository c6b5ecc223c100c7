"""Where the soft splits of a forest lie, and how wide they are.

A temperature is in units of the encoded range. The cell that a tree splits is made of an encoded number by
decoding it, and perhaps scaling it again: a split is as wide as the cell changes, at the threshold, with the
encoded number. On a grid a threshold lies between two values, in the middle.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from plausiflow.errors import InvalidInputError, ShapeError
from plausiflow.models.trees.cells import Cells
from plausiflow.models.trees.forest import Forest
from plausiflow.tables import Layout, Scale

_TIE = 1e-9  # How far a threshold moves off its own value, in steps or scales.
_ROUNDING = 4  # The same, in roundings of double precision.


@dataclass(frozen=True, eq=False)
class Sizes:
    """How large the columns of a forest are, at its splits.

    Attributes:
        scales: How much a cell changes over the encoded range, at each split, shape ``(splits,)``.
        steps: The grid of each column, zero where there is none, shape ``(d,)``.
        origins: Some value on that grid, shape ``(d,)``.
    """

    scales: Tensor
    steps: Tensor
    origins: Tensor

    @classmethod
    def of(cls, forest: Forest, cells: Cells, layout: Layout, x: Tensor) -> Sizes:
        """The sizes of the cells of encoded rows.

        A column that is no single number of the table, such as a projection, is measured at some rows
        ``(n, width)``; one that only has states has size one, for these are told apart for certain.
        """
        numbers = {element: layout.block(name).scale for name, element in cells.basis.elements.items()}
        sizes = cls(
            torch.ones_like(forest.threshold), *torch.zeros(2, forest.n_features, dtype=torch.float64)
        )
        for j, column in enumerate(cells.columns):
            own, form = forest.feature == j, column.number or {}
            elements = [element for element in form if element != column.gate]
            scale = numbers.get(elements[0]) if len(elements) == 1 else None
            if scale is not None:
                weight, shift = form[elements[0]], form.get(column.gate, 0.0)
                sizes.scales[own] = _slopes(scale, forest.threshold[own], weight, shift)
                sizes.steps[j], sizes.origins[j] = abs(weight) * scale.step, shift
            elif elements:
                sizes.scales[own] = _measured(cells, j, x, layout.numbers, forest.threshold[own])
        return sizes


def _slopes(scale: Scale, threshold: Tensor, weight: float, shift: float) -> Tensor:
    """How fast ``weight * number + shift`` changes with the encoded number where it is at a threshold."""
    number = ((threshold - shift) / weight).clamp(scale.minimum, scale.maximum).requires_grad_()
    with torch.enable_grad():
        (encoding,) = torch.autograd.grad(scale.encode(number).sum(), number)
    return abs(weight) / encoding


def _measured(cells: Cells, j: int, x: Tensor, numbers: list[int], threshold: Tensor) -> Tensor:
    """How fast a cell changes with the encoded numbers, at the rows where it is nearest to a threshold."""
    x = x.detach().clone().requires_grad_()
    with torch.enable_grad():
        cell = cells(x)[:, j]
        (gradient,) = torch.autograd.grad(cell.sum(), x)
    slope = gradient[:, numbers].norm(dim=1)
    moves = slope > 0
    if not bool(moves.any()):
        return torch.ones_like(threshold)
    nearest = (cell.detach()[moves] - threshold[:, None]).abs().argmin(dim=1)
    sizes: Tensor = slope[moves][nearest]
    return sizes


def soft_thresholds(forest: Forest, scale: Tensor, steps: Tensor | None, origins: Tensor | None) -> Tensor:
    """Where splits lie when they are soft.

    Args:
        forest: With hard splits.
        scale: Of each split, shape ``(splits,)``.
        steps: The grid of each column, shape ``(d,)``, zero where there is none.
        origins: Some value on each grid, shape ``(d,)``.

    Returns:
        Thresholds in the middle of the two values that they separate where there is a grid; elsewhere moved
        off their own values, by next to nothing, so that a tie goes to its side; shape ``(splits,)``.
    """
    threshold, none = forest.threshold, scale.new_zeros(forest.n_features)
    steps = none if steps is None else steps.double()
    if steps.shape != none.shape or not bool((steps >= 0).all()):
        raise ShapeError(
            f"`steps` must have shape ({forest.n_features},), one step per column, zero where there is no "
            f"grid; got {tuple(steps.shape)}, and {int((~(steps >= 0)).sum())} that are negative or NaN."
        )
    step = steps[forest.feature]
    origin = (none if origins is None else origins.double())[forest.feature]
    size = threshold.abs().nan_to_num(posinf=0.0) + origin.abs()
    rounding = _ROUNDING * torch.finfo(torch.float64).eps * size
    move = torch.maximum(_TIE * step.where(step > 0, scale), rounding)
    # LightGBM parts zero from other cells at 1e-35 and -1e-35: there zero itself must stay on its side.
    by_zero = (threshold != 0) & (threshold.abs() < move)
    moved = threshold + move * torch.where(by_zero, threshold.sign(), 1.0 if forest.inclusive else -1.0)
    if forest.single:
        rounded = _between_singles(threshold, forest.inclusive)
        moved = moved.where((moved - threshold).abs() > (rounded - threshold).abs(), rounded)
    middle = ((moved - origin) / step.where(step > 0, 1.0)).floor().add(0.5) * step + origin
    return middle.where(step > 0, moved)


def _between_singles(threshold: Tensor, inclusive: bool) -> Tensor:
    """Where a cell is on the one side or the other when it is rounded to single precision and compared."""
    single, away = threshold.float(), torch.tensor(torch.inf if inclusive else -torch.inf)
    beyond = single > threshold if inclusive else single < threshold
    last = torch.where(beyond, torch.nextafter(single, -away.float()), single)
    return (last.double() + torch.nextafter(last, away.float()).double()) / 2


def scale_of_splits(forest: Forest, scales: Tensor, per_split: bool) -> Tensor:
    """The scale of each split, shape ``(splits,)``, of those of columns or of splits; checked."""
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


def tied(forest: Forest, sizes: Sizes, cells: Tensor, certain: Tensor | None) -> Tensor:
    """Which rows a rounding error of some number could send another way, shape ``(n,)``.

    Behind a scaler a value on a grid may lie on a threshold, and on which side only the scaler's own rounding
    says. In single precision there is no such doubt, for cells are rounded before they are compared.

    Args:
        forest: With hard splits.
        sizes: Of its columns.
        cells: Rows as the trees take them, shape ``(n, d)``.
        certain: Cells that are in a state, and known exactly, shape ``(n, d)``.
    """
    if forest.single:
        return torch.zeros(len(cells), dtype=torch.bool)
    largest = cells.new_zeros(forest.n_features).scatter_reduce(0, forest.feature, sizes.scales, "amax")
    move = (_TIE * largest).expand_as(cells)
    move = move if certain is None else move.masked_fill(certain, 0.0)
    return (forest.values(cells - move) != forest.values(cells + move)).any(dim=1)
