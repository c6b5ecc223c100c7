"""Ways to find counterfactuals, all with the same ``explain``."""

from plausiflow.methods.base import Method, Policy, Target
from plausiflow.methods.ppcef import PPCEF

__all__ = ["PPCEF", "Method", "Policy", "Target"]
