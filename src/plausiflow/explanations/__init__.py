"""What people get: counterfactual rows, a verdict for each row, changes, sentences, summaries and files."""

from plausiflow.explanations.changes import find_changes
from plausiflow.explanations.document import json_column, json_parts, json_value
from plausiflow.explanations.figures import context_of, figures_of, held_out_of, verdicts_of
from plausiflow.explanations.result import Explanations
from plausiflow.explanations.single import Explanation
from plausiflow.explanations.summary import Summary
from plausiflow.explanations.table import ROW, answer_table, whole_numbers

__all__ = [
    "ROW",
    "Explanation",
    "Explanations",
    "Summary",
    "answer_table",
    "context_of",
    "figures_of",
    "find_changes",
    "held_out_of",
    "json_column",
    "json_parts",
    "json_value",
    "verdicts_of",
    "whole_numbers",
]
