"""Generated contacts of a bank's campaign, with special values and logic as in tables that people bring.

Most customers were never contacted before. Their row says so in four columns at once: ``days_since_contact``
is -1, ``last_call_seconds`` is 9999, ``last_result`` is ``none`` and ``previous_calls`` is 0. Calls add up,
a branch belongs to a region, a customer without a card has no limit, and limits are multiples of 500.
``TRUTHS`` lists all of this. No row is a real customer.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from plausiflow.datasets.planted import (
    Truth,
    equivalence_truth,
    grid_truth,
    hierarchy_truth,
    never_truth,
    order_truth,
    special_truth,
    sum_truth,
)
from plausiflow.errors import InvalidInputError

TARGET, LABELS = "subscribed", ("no", "yes")
ROWS, SEED = 5000, 0
ORIGIN = "Generated contacts of a bank's campaign, with planted special values and logic"
COLUMNS = (
    "age", "education", "job", "balance", "mortgage", "has_card", "card_limit", "branch", "region",
    "campaign_calls", "answered_calls", "previous_calls", "total_calls", "days_since_contact",
    "last_call_seconds", "last_result", "channel",
)  # fmt: skip
EDUCATION = ("primary", "secondary", "tertiary")
JOBS = ("manual", "services", "office", "management", "student", "retired")
RESULTS = ("failure", "other", "success")
BRANCHES = {
    "harbour": "north", "lakeside": "north", "old town": "north", "castle": "east", "station": "east",
    "market": "south", "garden": "south", "bridge": "south", "mill": "west", "valley": "west",
}  # fmt: skip
NO_DAYS, NO_SECONDS = -1, 9999
# Share of each job by education. A zero never occurs.
JOBS_BY_EDUCATION = (
    (0.52, 0.26, 0.06, 0.0, 0.0, 0.16),
    (0.24, 0.24, 0.24, 0.08, 0.08, 0.12),
    (0.03, 0.10, 0.30, 0.38, 0.09, 0.10),
)

Floats = npt.NDArray[np.float64]

TRUTHS: tuple[Truth, ...] = (
    special_truth("days_since_contact", NO_DAYS, 1, 900),
    special_truth("last_call_seconds", NO_SECONDS, 5, 3000),
    special_truth("card_limit", 0, 500, 20_000),
    grid_truth("card_limit", 500, exceptions=0.003),
    equivalence_truth(("days_since_contact", NO_DAYS), ("last_result", "none")),
    equivalence_truth(("days_since_contact", NO_DAYS), ("last_call_seconds", NO_SECONDS)),
    equivalence_truth(("last_call_seconds", NO_SECONDS), ("last_result", "none")),
    equivalence_truth(("previous_calls", 0), ("last_result", "none")),
    equivalence_truth(("previous_calls", 0), ("days_since_contact", NO_DAYS)),
    equivalence_truth(("has_card", False), ("card_limit", 0)),
    never_truth(("education", "primary"), ("job", "management")),
    never_truth(("education", "primary"), ("job", "student")),
    sum_truth("total_calls", "campaign_calls", "previous_calls"),
    order_truth("answered_calls", "campaign_calls"),
    hierarchy_truth("branch", "region", BRANCHES),
)


def draw(n: int = ROWS, seed: int = SEED) -> tuple[pd.DataFrame, pd.Series]:
    """Draw customers and whether they subscribed.

    Example:
        >>> x, y = draw(n=200)
        >>> x.shape, sorted(y.unique())
        ((200, 17), ['no', 'yes'])
    """
    if n < 1:
        raise InvalidInputError(f"`n` must be at least 1; got {n}.")
    generator = np.random.default_rng((seed, 20))
    person = _draw_person(generator, n)
    history = _draw_history(generator, person)
    x = pd.DataFrame(person | history)[list(COLUMNS)]
    for name, levels in (("education", EDUCATION), ("last_result", ("none", *RESULTS))):
        x[name] = x[name].astype(pd.CategoricalDtype(list(levels), ordered=name == "education"))
    chance = 1 / (1 + np.exp(-_log_odds(x)))
    y = pd.Series(np.where(generator.random(n) < chance, "yes", "no"), name=TARGET)
    return x, y


def _draw_person(generator: np.random.Generator, n: int) -> dict[str, npt.NDArray[np.generic]]:
    """Draw what a bank knows of its customers."""
    level = generator.choice(3, size=n, p=[0.2, 0.5, 0.3])
    cumulative = np.cumsum(JOBS_BY_EDUCATION, axis=1)[level]
    job = (generator.random(n)[:, None] > cumulative[:, :-1]).sum(axis=1)
    age = np.where(job == 4, generator.integers(18, 28, n), generator.integers(24, 64, n))
    age = np.where(job == 5, generator.integers(60, 85, n), age)
    wealth = 0.5 * level + 0.02 * (age - 40) + 0.4 * (job == 3) - 0.6 * (job == 4)
    balance = np.exp(6.2 + 0.7 * wealth + generator.normal(0, 0.9, n)).round()
    has_card = generator.random(n) < 1 / (1 + np.exp(-0.6 - 0.8 * wealth))
    limit = 500 * np.clip(np.rint(np.exp(1.1 + 0.5 * wealth + generator.normal(0, 0.5, n))), 1, 40)
    odd = generator.random(n) < 0.003
    limit = np.where(odd, limit + generator.integers(1, 500, n), limit).clip(500, 20_000)
    branch = np.array(list(BRANCHES))[generator.choice(len(BRANCHES), size=n)]
    return {
        "age": age,
        "education": np.array(EDUCATION)[level],
        "job": np.array(JOBS)[job],
        "balance": balance.astype(np.int64),
        "mortgage": generator.random(n) < 0.25 + 0.3 * ((age > 28) & (age < 60)),
        "has_card": has_card,
        "card_limit": np.where(has_card, limit, 0).astype(np.int64),
        "branch": branch,
        "region": np.array([BRANCHES[name] for name in branch]),
    }


def _draw_history(
    generator: np.random.Generator, person: dict[str, npt.NDArray[np.generic]]
) -> dict[str, npt.NDArray[np.generic]]:
    """Draw the calls to each customer: those of this campaign, and those of earlier ones, if any."""
    n = len(person["age"])
    contacted = generator.random(n) < 0.3
    days = np.clip(np.rint(np.exp(generator.normal(5.0, 0.8, n))), 1, 900)
    seconds = np.clip(np.rint(np.exp(generator.normal(5.2, 0.8, n))), 5, 3000)
    result = np.array(RESULTS)[generator.choice(3, size=n, p=[0.5, 0.2, 0.3])]
    previous = np.where(contacted, generator.geometric(0.45, n).clip(max=12), 0)
    campaign = generator.geometric(0.4, n).clip(max=15)
    return {
        "campaign_calls": campaign,
        "answered_calls": generator.binomial(campaign, 0.55),
        "previous_calls": previous,
        "total_calls": campaign + previous,
        "days_since_contact": np.where(contacted, days, NO_DAYS).astype(np.int64),
        "last_call_seconds": np.where(contacted, seconds, NO_SECONDS).astype(np.int64),
        "last_result": np.where(contacted, result, "none"),
        "channel": np.array(["mobile", "landline"])[(generator.random(n) < 0.3).astype(int)],
    }


def _log_odds(x: pd.DataFrame) -> Floats:
    """Return the log-odds of a subscription; they are steep, so that decisions can be learned."""
    education = x["education"].cat.codes.to_numpy()
    contacted = x["days_since_contact"].to_numpy() != NO_DAYS
    odds = (
        -2.4
        + 0.8 * education
        + 0.9 * (np.log1p(x["balance"].to_numpy()) - 6.5)
        - 1.1 * x["mortgage"].to_numpy()
        + 0.9 * x["answered_calls"].to_numpy()
        - 0.35 * x["campaign_calls"].to_numpy()
        + 0.5 * (x["channel"].to_numpy() == "mobile")
        + 3.0 * (x["last_result"].to_numpy() == "success")
        - 1.5 * (x["last_result"].to_numpy() == "failure")
    )
    recent = np.where(contacted, 0.004 * (200 - x["days_since_contact"].to_numpy()), 0.0)
    return np.asarray(1.5 * (odds + recent), dtype=np.float64)


def recipe(n: int, seed: int) -> str:
    """Return the provenance of ``draw(n, seed)``."""
    return (
        f"{n} rows drawn with NumPy's default_rng(({seed}, 20)) as plausiflow/datasets/contacts.py says; no "
        "row is a real customer."
    )
