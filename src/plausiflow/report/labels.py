"""Names of verdicts and figures in reports, and the format of numbers there."""

from __future__ import annotations

import math

VERDICTS = {
    "found": ("✓", "found", "the answer has the target outcome, is plausible and follows the rules"),
    "already": ("=", "already", "the row already has the target outcome"),
    "relaxed": (
        "≈",
        "relaxed",
        "the answer has the target outcome and follows the rules, but is less plausible",
    ),
    "infeasible": ("✕", "infeasible", "no answer was found"),
    "not_reached": ("…", "not reached", "the time limit ended the search before an answer was found"),
    "invalid_input": ("!", "invalid input", "the row could not be read"),
}
"""A sign, a name and a meaning for each status, in the order of the tables."""

FIGURES = {
    "cost": "Cost of the changes",
    "n_changes": "Number of changed features",
    "l1": "Distance, encoded (L1)",
    "l2": "Distance, encoded (L2)",
    "probability": "Probability of the target outcome",
    "prediction": "Prediction",
    "score": "Plausibility score",
    "log_density": "Log-density",
    "denser": "Share of real rows that are less typical",
    "judged": "Share of independent checks passed",
    "steady": "Share of nearby rows with the same decision",
    "lasting": "Share of retrained models that still decide so",
}
"""Measures of an answer, in the order of the tables."""

SHARES = frozenset({"probability", "denser", "judged", "steady", "lasting"})
"""Measures that are shown in per cent."""


def figure_titles(distance: str) -> dict[str, str]:
    """Return the names of the measures; that of the cost says in which distance.

    Example:
        >>> figure_titles("l1-mad")["cost"]
        'Cost of the changes (distance l1-mad)'
    """
    return FIGURES | {"cost": f"{FIGURES['cost']} (distance {distance})"}


def format_number(value: float) -> str:
    """Format a number with about four digits; a dash if it is not finite.

    Example:
        >>> format_number(12345.678), format_number(0.12345), format_number(float("nan"))
        ('12,346', '0.1235', '–')
    """
    if not math.isfinite(value):
        return "–"
    if 1000 <= abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def format_share(part: float, whole: float = 1.0) -> str:
    """Format a share in per cent; a dash if it is undefined.

    Example:
        >>> format_share(1, 3), format_share(2, 0), format_share(0.9996), format_share(0.0002)
        ('33.3 %', '–', 'almost 100 %', 'under 0.1 %')
    """
    share = part / whole if whole else math.nan
    if not math.isfinite(share):
        return "–"
    if 0 < share < 0.0005:
        return "under 0.1 %"
    if share < 1 and f"{share:.1%}" == "100.0%":
        return "almost 100 %"
    return f"{share:.1%}".removesuffix("%").removesuffix(".0") + " %"


def format_count(count: int, noun: str) -> str:
    """Return a text such as "1 row" or "2 rows"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
