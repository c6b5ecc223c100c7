"""Results of ``explain``: counterfactual rows, verdicts, changes, sentences, summaries and files."""

from plausiflow.explanations.audit import Audit
from plausiflow.explanations.certificates import check_seconds
from plausiflow.explanations.changes import find_changes
from plausiflow.explanations.explanation import Explanation
from plausiflow.explanations.flat_table import ROW, answer_table, whole_floats_to_integers
from plausiflow.explanations.formatting import FeatureFormatter, format_value, join_words
from plausiflow.explanations.json_output import json_column, json_parts, json_value
from plausiflow.explanations.measures import (
    held_out_percentiles,
    measure_counterfactuals,
    metrics_context,
    realism_judge,
    verdict_table,
)
from plausiflow.explanations.provenance import Provenance
from plausiflow.explanations.realism import RealismJudge
from plausiflow.explanations.report_content import report_content
from plausiflow.explanations.result import Explanations
from plausiflow.explanations.steadiness import drop_unsteady
from plausiflow.explanations.summary import Summary

__all__ = [
    "ROW", "Audit", "Explanation", "Explanations", "FeatureFormatter", "Provenance", "RealismJudge",
    "Summary", "answer_table", "check_seconds", "drop_unsteady", "find_changes", "format_value",
    "held_out_percentiles", "join_words",
    "json_column", "json_parts", "json_value", "measure_counterfactuals", "metrics_context",
    "realism_judge", "report_content", "verdict_table", "whole_floats_to_integers",
]  # fmt: skip
