"""How much a fit may cost: the epochs of the densities, and the rows that calibration searches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from plausiflow.densities import OneCycle
from plausiflow.errors import InvalidInputError

EffortName = Literal["quick", "standard", "thorough"]


@dataclass(frozen=True)
class Effort:
    """The training of the densities, and the number of rows that calibration searches."""

    training: OneCycle
    calibration_rows: int


EFFORTS: dict[EffortName, Effort] = {
    "quick": Effort(OneCycle(epochs=10), 40),
    "standard": Effort(OneCycle(epochs=40), 120),
    "thorough": Effort(OneCycle(epochs=160), 400),
}


def check_effort(effort: object) -> None:
    """Raise unless an effort is known."""
    if effort not in EFFORTS:
        raise InvalidInputError(f"`effort` must be one of {', '.join(map(repr, EFFORTS))}; got {effort!r}.")
