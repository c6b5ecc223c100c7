"""Self-contained HTML: the report of many explanations, and the small tables that notebooks show."""

from plausiflow.report.content import Column, Content, Curve
from plausiflow.report.notebook import ExplainerLike, Line, explainer_table, rows_table
from plausiflow.report.page import page_parts

__all__ = [
    "Column",
    "Content",
    "Curve",
    "ExplainerLike",
    "Line",
    "explainer_table",
    "page_parts",
    "rows_table",
]
