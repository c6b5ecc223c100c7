"""Searches: the batched SQP (default) and the paper's Adam, and the bank of feasible rows to start from."""

from plausiflow.solvers.penalty_adam import PenaltyAdam
from plausiflow.solvers.sqp import FROM_NEIGHBOUR, SQP
from plausiflow.solvers.starts import Bank

__all__ = ["FROM_NEIGHBOUR", "SQP", "Bank", "PenaltyAdam"]
