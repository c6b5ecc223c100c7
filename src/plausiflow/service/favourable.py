"""The outcome that people want: what the what-if page asks for when it opens.

Whoever starts the service may name it (``plausiflow serve --target``). Otherwise it is guessed, and the page
says that it is a guess and why: from the name of an outcome, such as "granted", or, for two outcomes with
names that say nothing, the second label of the model, which is the positive class by convention. For a
predicted number, and for three or more outcomes with such names, there is no guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from plausiflow.errors import InvalidInputError
from plausiflow.explanations import json_value

GOOD = frozenset({
    "accept", "accepted", "admit", "admitted", "approve", "approved", "eligible", "employed",
    "favorable", "favourable", "fit", "good", "grant", "granted", "healthy", "hired", "low_risk",
    "negative_test", "no_default", "ok", "paid", "pass", "passed", "positive_outcome", "qualified",
    "repaid", "retained", "safe", "selected", "success", "successful",
})  # fmt: skip
BAD = frozenset({
    "bad", "charged_off", "churn", "churned", "decline", "declined", "default", "defaulted", "denied",
    "deny", "dropout", "fail", "failed", "failure", "fraud", "high_risk", "ineligible", "late",
    "refused", "reject", "rejected", "risk", "risky", "sick", "unfavorable", "unfavourable",
    "unsuccessful",
})  # fmt: skip


@dataclass(frozen=True)
class Favourable:
    """The outcome that the page asks for, as a JSON value, and where it comes from.

    Attributes:
        outcome: A label, or a pair of bounds for a predicted number; None if it is not known.
        source: "given", "name" for a guess from names, "order" for the second of two labels, "" if unknown.
    """

    outcome: Any = None
    source: str = ""


def favourable_outcome(labels: Sequence[Any], target: object = None) -> Favourable:
    """Return the favourable outcome of a model.

    Args:
        labels: Labels of the model; empty if it predicts a number.
        target: The favourable label, or the pair of bounds of a number; None for a guess.

    Raises:
        InvalidInputError: The target is not a label of the model, or not a pair of numbers.

    Example:
        >>> favourable_outcome(["granted", "rejected"])
        Favourable(outcome='granted', source='name')
    """
    if target is not None:
        return Favourable(_check_target(labels, target), "given")
    known = [json_value(label) for label in labels]
    names = [str(label).strip().lower().replace(" ", "_").replace("-", "_") for label in known]
    good = [i for i, name in enumerate(names) if name in GOOD]
    left = [i for i, name in enumerate(names) if name not in BAD]
    if len(good) == 1:
        return Favourable(known[good[0]], "name")
    if not good and len(left) == 1 and len(names) > 1:
        return Favourable(known[left[0]], "name")
    return Favourable(known[1], "order") if len(known) == 2 else Favourable()


def _check_target(labels: Sequence[Any], target: object) -> Any:  # noqa: ANN401
    """Return a target as a JSON value."""
    if labels:
        same = [label for label in labels if bool(np.all(label == target))]
        if len(same) != 1:
            listed = ", ".join(map(repr, map(json_value, labels)))
            raise InvalidInputError(
                f"The target of the what-if page must be one of the outcomes {listed}; got {target!r}. "
                "Name one of them, or none."
            )
        return json_value(same[0])
    bounds = target if isinstance(target, tuple | list) and len(target) == 2 else ()
    if not bounds or all(bound is None for bound in bounds):
        raise InvalidInputError(
            "The target of the what-if page must be the smallest and the largest wanted number, such as "
            f"(100, None), because the model predicts a number; got {target!r}."
        )
    return [json_value(bound) for bound in bounds]
