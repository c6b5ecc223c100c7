"""Searches: the batched SQP (default) and the paper's Adam, and the bank of feasible rows to start from."""

from plausiflow.solvers.penalty import PenaltyAdam
from plausiflow.solvers.sqp import SQP
from plausiflow.solvers.starts import Bank

__all__ = ["SQP", "Bank", "PenaltyAdam"]
