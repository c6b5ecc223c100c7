"""Self-contained HTML: the report of a result, and the small tables that notebooks show."""

from plausiflow.report.content import ReportContent
from plausiflow.report.labels import format_number, format_share
from plausiflow.report.notebook import explainer_table, explainer_text, notebook_row, notebook_table
from plausiflow.report.page import render_report
from plausiflow.report.report_table import ReportTable, Share

__all__ = [
    "ReportContent", "ReportTable", "Share", "explainer_table", "explainer_text", "format_number",
    "format_share", "notebook_row", "notebook_table", "render_report",
]  # fmt: skip
