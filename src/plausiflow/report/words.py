"""What verdicts and figures are called in reports, and numbers as they are read there."""

from __future__ import annotations

import math

VERDICTS = {
    "found": ("✓", "found", "an answer that the model decides as wanted, plausible and within the rules"),
    "already": ("=", "already", "decided as wanted as it is"),
    "relaxed": ("≈", "relaxed", "the nearest miss: decided as wanted, within the rules, less plausible"),
    "infeasible": ("✕", "infeasible", "no answer was found"),
    "not_reached": ("…", "not reached", "the time was over before"),
    "invalid_input": ("!", "invalid input", "the row cannot be read"),
}
"""A sign, a name and a meaning for each status, in the order of the tables."""

FIGURES = {
    "cost": "Cost of the changes",
    "n_changes": "Features that change",
    "l1": "Distance, encoded (L1)",
    "l2": "Distance, encoded (L2)",
    "probability": "Probability of the wanted outcome",
    "prediction": "Prediction",
    "score": "Nats above the threshold",
    "log_density": "Log-density",
    "denser": "Share of real rows that are less dense",
    "judged": "Share of the judges that agree",
    "steady": "Share of neighbours decided alike",
}
"""What is measured of an answer, in the order of the tables."""


def number_text(value: float) -> str:
    """About four digits; a dash where there is no number.

    Example:
        >>> number_text(12345.678), number_text(0.12345), number_text(float("nan"))
        ('12,346', '0.1235', '–')
    """
    if not math.isfinite(value):
        return "–"
    if 1000 <= abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def share_text(part: float, whole: float = 1.0) -> str:
    """In per cent; a dash where there is nothing to share.

    Example:
        >>> share_text(1, 3), share_text(2, 0), share_text(0.9996)
        ('33.3 %', '–', 'almost 100 %')
    """
    share = part / whole if whole else math.nan
    if not math.isfinite(share):
        return "–"
    if share < 1 and f"{share:.1%}" == "100.0%":
        return "almost 100 %"
    return f"{share:.1%}".removesuffix("%").removesuffix(".0") + " %"


def counted(count: int, what: str) -> str:
    """Such as "1 row" or "2 rows"."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
