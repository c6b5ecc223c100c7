"""What people get: counterfactual rows, a verdict for each row, changes, sentences, summaries and files."""

from plausiflow.explanations.result import Explanations
from plausiflow.explanations.single import Explanation
from plausiflow.explanations.summary import Summary

__all__ = ["Explanation", "Explanations", "Summary"]
