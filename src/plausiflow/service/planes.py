r"""The plane of a projection: through a row and its answers, in the encoded numbers.

The first axis leads from the row to the first answer. The second leads to the second answer or, where there
is none that leaves the first axis, along the largest spread of plausible real rows across it. Both have the
same scale, so distances are true to the eye.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from plausiflow.errors import InvalidInputError
from plausiflow.tables import Layout

ROOM, LEAST_REACH = 0.9, 0.15
"""A plane reaches beyond the points on it: by a share of their extent, and so far from them at least."""
FLAT = 0.05
"""A second answer gives an axis where it leaves the first one by this share of its distance."""


@dataclass(frozen=True, eq=False)
class Plane:
    """A plane through encoded rows.

    Attributes:
        layout: Of encoded rows.
        names: Features whose numbers move on the plane.
        x: The rows that are drawn, the one that is explained first, shape ``(n, width)``.
        directions: Orthogonal unit vectors of the numbers, shape ``(2, len(names))``.
        aims: Where each of them leads.
    """

    layout: Layout
    names: list[str]
    x: Tensor
    directions: Tensor
    aims: tuple[str, str]

    @classmethod
    def through(cls, layout: Layout, x: Tensor, real: Tensor, immutable: Sequence[str]) -> Plane:
        """The plane through rows ``(n, width)``, of which the first is explained.

        Args:
            layout: Of encoded rows.
            x: The rows.
            real: Plausible real rows, shape ``(m, width)``.
            immutable: Features that the plane does not move.

        Raises:
            InvalidInputError: Fewer than two numbers can change.
        """
        names = [b.name for b in layout.blocks if b.number is not None and b.name not in immutable]
        if len(names) < 2:
            raise InvalidInputError(
                f"A projection needs two numbers that can change; this table has {len(names)}. Name two "
                "features as `horizontal` and `vertical`."
            )
        columns = _columns(layout, names)
        return cls(layout, names, x, *_directions((x - x[0])[:, columns], real[:, columns]))

    @property
    def places(self) -> Tensor:
        """Where the rows, or the points of the plane nearest to them, lie: distances from the first."""
        return (self.x - self.x[0])[:, _columns(self.layout, self.names)] @ self.directions.T

    @property
    def window(self) -> tuple[Tensor, float]:
        """The corner of the part that is drawn, shape ``(2,)``, and the length of its sides."""
        low, high = self.places.aminmax(dim=0)
        reach = max(LEAST_REACH, ROOM * float((high - low).max()))
        return (low + high) / 2 - reach, 2 * reach

    def cells(self, size: int) -> tuple[Tensor, Tensor]:
        """Encoded rows of size × size cells, line by line, and which are within the training range.

        Categories, and whether a number is zero or missing, are as in the nearest of the rows.
        """
        corner, side = self.window
        middles = (torch.arange(size).to(self.x) + 0.5) * side / size
        grid = torch.cartesian_prod(middles, middles).flip(1) + corner
        columns = _columns(self.layout, self.names)
        cells = self.x[:1].repeat(len(grid), 1)
        cells[:, columns] += grid @ self.directions
        low, high = self.x[:, columns].aminmax(dim=0)
        moved = cells[:, columns]
        inside = ((moved >= low.clamp_max(0)) & (moved <= high.clamp_min(1))).all(dim=1)
        if self.layout.with_levels:
            nearest = torch.cdist(grid, self.places).argmin(dim=1)
            cells = self.layout.with_codes(cells, self.layout.codes(self.x)[nearest])
        return cells, inside

    def axis(self, k: int) -> dict[str, Any]:
        """What is said of an axis: where it leads, its ends, and how much each feature moves along it."""
        corner, side = self.window
        low = float(corner[k])
        shares = zip(self.names, self.directions[k].tolist(), strict=True)
        parts = [
            {"feature": name, "share": round(v, 4)} for name, v in sorted(shares, key=lambda p: -abs(p[1]))
        ]
        return {"name": self.aims[k], "scale": "linear", "from": low, "to": low + side, "parts": parts}

    def shares(self, k: int) -> list[float]:
        """Where the rows lie along an axis, from 0 to 1."""
        corner, side = self.window
        shares: list[float] = ((self.places[:, k] - corner[k]) / side).tolist()
        return shares


def _columns(layout: Layout, names: Sequence[str]) -> list[int]:
    return [b.number for b in layout.blocks if b.number is not None and b.name in names]


def _directions(moved: Tensor, real: Tensor) -> tuple[Tensor, tuple[str, str]]:
    """Two orthogonal unit vectors ``(2, d)``, and where each leads."""
    found: list[Tensor] = []
    aims: list[str] = []
    for number, move in enumerate(moved[1:3], start=1):
        rest = _across(move[None], found)[0]
        if len(found) + 1 == number and float(rest.norm()) > max(1e-6, FLAT * float(move.norm())):
            found.append(rest / rest.norm())
            aims.append(f"towards answer {number}")
    while len(found) < 2:
        spread = _across(real - real.mean(dim=0), found) if len(real) > 1 else real
        if not len(spread) or float(spread.abs().max()) < 1e-6:
            spread = _across(torch.eye(moved.shape[1]).to(moved), found)
        direction = torch.linalg.svd(spread, full_matrices=False).Vh[0]
        found.append(direction * direction[direction.abs().argmax()].sign())
        aims.append("along the spread of plausible rows")
    return torch.stack(found), (aims[0], aims[1])


def _across(rows: Tensor, directions: Sequence[Tensor]) -> Tensor:
    """What is left of rows ``(n, d)`` across some unit vectors."""
    for direction in directions:
        rows = rows - (rows @ direction)[:, None] * direction
    return rows
