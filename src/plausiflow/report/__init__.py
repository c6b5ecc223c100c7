"""Self-contained HTML: the report of a result, and the small tables that notebooks show."""

from plausiflow.report.content import DensityCurve, ReportColumn, ReportContent
from plausiflow.report.notebook import ExplainerLike, explainer_table, notebook_table
from plausiflow.report.page import render_report

__all__ = [
    "DensityCurve",
    "ExplainerLike",
    "ReportColumn",
    "ReportContent",
    "explainer_table",
    "notebook_table",
    "render_report",
]
