"""A small table of loans, and explainers fitted fast, for tests of answers that last."""

from plausiflow.datasets import loans_table
from plausiflow.explainer import Explainer

NUMBERS = ["income", "debt_ratio", "loan_amount", "credit_score"]


def number_table():
    """Return 400 rows of the numbers of loans, and their outcomes."""
    made = loans_table(400)
    return made.x[NUMBERS], made.y


def fitted(model, x, y, **settings):
    """Return an explainer without margin and judges, fitted fast."""
    return Explainer(model, confidence=None, judges=0, **settings).fit(x, y, effort="quick", verbose=False)
