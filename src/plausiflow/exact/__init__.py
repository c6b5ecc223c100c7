"""Proofs: the cheapest row that a model decides as wanted, found with a solver that cannot miss it."""

from plausiflow.exact.cp_sat import is_installed
from plausiflow.exact.deepening import Proof
from plausiflow.exact.prover import TreeProver

__all__ = ["Proof", "TreeProver", "is_installed"]
