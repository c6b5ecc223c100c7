"""Solvers: the batched SQP (default) and the paper's Adam on penalties."""

from plausiflow.solvers.iteration import GRID
from plausiflow.solvers.local_curvature import local_model
from plausiflow.solvers.penalty_adam import PenaltyAdam
from plausiflow.solvers.sqp import FROM_NEIGHBOUR, SQP

__all__ = ["FROM_NEIGHBOUR", "GRID", "SQP", "PenaltyAdam", "local_model"]
