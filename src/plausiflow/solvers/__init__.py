"""Searches: the batched SQP (default) and the paper's Adam, with the bank of feasible training rows they may start from."""

from plausiflow.solvers.penalty import PenaltyAdam
from plausiflow.solvers.sqp import SQP
from plausiflow.solvers.starts import Bank

__all__ = ["SQP", "Bank", "PenaltyAdam"]
