"""Ways to find counterfactuals, all with the same ``explain``."""

from plausiflow.methods.base import Method
from plausiflow.methods.box import BoxedMethod
from plausiflow.methods.ppcef import PPCEF
from plausiflow.methods.reference.dice import DiCE
from plausiflow.methods.reference.face import FACE
from plausiflow.methods.reference.nearest import Nearest, NearestDense
from plausiflow.methods.reference.statistics import (
    column_medians,
    feature_spreads,
    log_odds,
    pairwise_distances,
)
from plausiflow.methods.reference.wachter import Wachter

METHODS: dict[str, type[Method]] = {
    "ppcef": PPCEF,
    "wach": Wachter,
    "nnce": Nearest,
    "nnce_dense": NearestDense,
    "face": FACE,
    "dice": DiCE,
}
"""Every method of this package by name."""

__all__ = [
    "FACE", "METHODS", "PPCEF", "BoxedMethod", "DiCE", "Method", "Nearest", "NearestDense", "Wachter",
    "column_medians", "feature_spreads", "log_odds", "pairwise_distances",
]  # fmt: skip
