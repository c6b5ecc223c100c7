"""Proofs: the cheapest row that a model decides as wanted, found with a solver that cannot miss it."""

from plausiflow.exact.certificate import GAP, Certificate, CertificateStatus
from plausiflow.exact.cp_sat import is_installed
from plausiflow.exact.deepening import Answer, Proof
from plausiflow.exact.layer_space import has_hidden_layers
from plausiflow.exact.model_space import model_space
from plausiflow.exact.prover import Prover
from plausiflow.exact.relaxation import Relaxation, RuleItem
from plausiflow.exact.spaces import ModelSpace

__all__ = [
    "GAP", "Answer", "Certificate", "CertificateStatus", "ModelSpace", "Proof", "Prover", "Relaxation",
    "RuleItem", "has_hidden_layers", "is_installed", "model_space",
]  # fmt: skip
