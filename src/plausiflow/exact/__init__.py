"""Proofs: the cheapest row that a model decides as wanted, found with a solver that cannot miss it."""

from plausiflow.exact.certificate import GAP, Certificate, CertificateStatus
from plausiflow.exact.cp_sat import is_installed
from plausiflow.exact.deepening import Proof
from plausiflow.exact.model_space import model_space
from plausiflow.exact.prover import TreeProver
from plausiflow.exact.relaxation import Relaxation, RuleItem
from plausiflow.exact.tree_space import TreeSpace

__all__ = [
    "GAP", "Certificate", "CertificateStatus", "Proof", "Relaxation", "RuleItem", "TreeProver", "TreeSpace",
    "is_installed", "model_space",
]  # fmt: skip
