"""Generated invoices, with sums, hierarchies, codes and grids as in tables that people bring.

``total`` is ``net`` plus ``tax``, ``paid`` and ``open`` add up to it, a city belongs to a country, product
codes have gaps, and credit limits are multiples of 500 but for a few. An order without a reminder has -9 days
since the last one; a prepaid order never had one. ``TRUTHS`` lists all of this. No row is a real order.
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
    implication_truth,
    order_truth,
    special_truth,
    sum_truth,
)
from plausiflow.errors import InvalidInputError

TARGET, LABELS = "payment", ("in time", "late")
ROWS, SEED = 5000, 0
ORIGIN = "Generated invoices, with planted sums, hierarchies, codes and grids"
COLUMNS = (
    "customer_years", "city", "country", "segment", "credit_limit", "product_code", "quantity", "net", "tax",
    "total", "express", "express_fee", "packed_on", "delivered_on", "paid", "open", "terms", "n_reminders",
    "days_since_reminder",
)  # fmt: skip
CITIES = {
    "Bremen": "DE", "Kassel": "DE", "Ulm": "DE", "Lyon": "FR", "Nantes": "FR", "Reims": "FR",
    "Leeds": "UK", "York": "UK", "Malaga": "ES", "Vigo": "ES",
}  # fmt: skip
PRODUCTS = (101, 102, 110, 205, 207, 300, 950)
TERMS = ("prepaid", "14 days", "30 days", "60 days")
NO_REMINDER = -9

Floats = npt.NDArray[np.float64]

TRUTHS: tuple[Truth, ...] = (
    special_truth("days_since_reminder", NO_REMINDER, 0, 120),
    special_truth("express_fee", 0, 5, 60),
    grid_truth("credit_limit", 500, exceptions=0.003),
    grid_truth("express_fee", 5),
    equivalence_truth(("n_reminders", 0), ("days_since_reminder", NO_REMINDER)),
    equivalence_truth(("express", False), ("express_fee", 0)),
    implication_truth(("terms", "prepaid"), ("n_reminders", 0)),
    implication_truth(("terms", "prepaid"), ("days_since_reminder", NO_REMINDER)),
    sum_truth("total", "net", "tax"),
    sum_truth("total", "paid", "open"),
    order_truth("paid", "total"),
    order_truth("packed_on", "delivered_on"),
    hierarchy_truth("city", "country", CITIES),
)


def draw(n: int = ROWS, seed: int = SEED) -> tuple[pd.DataFrame, pd.Series]:
    """Draw orders and whether they were paid in time.

    Example:
        >>> x, y = draw(n=200)
        >>> x.shape, sorted(y.unique())
        ((200, 19), ['in time', 'late'])
    """
    if n < 1:
        raise InvalidInputError(f"`n` must be at least 1; got {n}.")
    generator = np.random.default_rng((seed, 21))
    x = pd.DataFrame(_draw_customer(generator, n) | _draw_order(generator, n))
    x = x.assign(**_draw_payment(generator, x))[list(COLUMNS)]
    chance = 1 / (1 + np.exp(-_log_odds(x)))
    y = pd.Series(np.where(generator.random(n) < chance, "late", "in time"), name=TARGET)
    return x, y


def _draw_customer(generator: np.random.Generator, n: int) -> dict[str, npt.NDArray[np.generic]]:
    city = np.array(list(CITIES))[generator.choice(len(CITIES), size=n)]
    years = generator.gamma(2.0, 3.0, n)
    limit = 500 * np.clip(np.rint(np.exp(1.4 + 0.06 * years + generator.normal(0, 0.6, n))), 1, 80)
    odd = generator.random(n) < 0.003
    limit = np.where(odd, limit + generator.integers(1, 500, n), limit)
    return {
        "customer_years": years.round(1),
        "city": city,
        "country": np.array([CITIES[name] for name in city]),
        "segment": np.array(["retail", "wholesale", "public"])[
            generator.choice(3, size=n, p=[0.6, 0.3, 0.1])
        ],
        "credit_limit": limit.astype(np.int64),
    }


def _draw_order(generator: np.random.Generator, n: int) -> dict[str, npt.NDArray[np.generic]]:
    express = generator.random(n) < 0.3
    packed = generator.integers(1, 15, n)
    net = np.exp(generator.normal(5.5, 0.9, n)).round(2)
    tax = (net * generator.uniform(0.05, 0.25, n)).round(2)
    return {
        "product_code": np.array(PRODUCTS)[generator.choice(len(PRODUCTS), size=n)],
        "quantity": generator.geometric(0.2, n).clip(max=40),
        "net": net,
        "tax": tax,
        "total": (net + tax).round(2),
        "express": express,
        "express_fee": np.where(express, 5 * generator.integers(1, 13, n), 0),
        "packed_on": packed,
        "delivered_on": packed + generator.poisson(np.where(express, 0.6, 3.0)),
    }


def _draw_payment(generator: np.random.Generator, x: pd.DataFrame) -> dict[str, npt.NDArray[np.generic]]:
    n, total = len(x), x["total"].to_numpy()
    terms = generator.choice(len(TERMS), size=n, p=[0.2, 0.3, 0.35, 0.15])
    part = np.where(generator.random(n) < 0.35, 0.0, generator.beta(2, 2, n))
    part = np.where(generator.random(n) < 0.15, 1.0, part)
    paid = np.minimum((total * part).round(2), total)
    reminders = np.where(terms == 0, 0, generator.poisson(0.9, n).clip(max=5))
    days = np.rint(generator.gamma(2.0, 9.0, n)).clip(0, 120)
    return {
        "paid": paid,
        "open": (total - paid).round(2),
        "terms": np.array(TERMS)[terms],
        "n_reminders": reminders,
        "days_since_reminder": np.where(reminders > 0, days, NO_REMINDER).astype(np.int64),
    }


def _log_odds(x: pd.DataFrame) -> Floats:
    """Return the log-odds of a late payment."""
    open_share = x["open"].to_numpy() / x["total"].to_numpy()
    terms = x["terms"].map({name: k for k, name in enumerate(TERMS)}).to_numpy()
    odds = (
        -1.8
        + 1.8 * open_share
        + 0.5 * terms
        + 0.9 * x["n_reminders"].to_numpy()
        - 0.14 * x["customer_years"].to_numpy()
        + 0.5 * (np.log(x["total"].to_numpy()) - 5.6)
        - 0.6 * (np.log(x["credit_limit"].to_numpy()) - 7.5)
        + 0.12 * (x["delivered_on"] - x["packed_on"]).to_numpy()
        - 0.8 * (x["segment"].to_numpy() == "public")
        + 0.7 * (x["product_code"].to_numpy() >= 300)
    )
    return np.asarray(1.6 * odds, dtype=np.float64)


def recipe(n: int, seed: int) -> str:
    """Return the provenance of ``draw(n, seed)``."""
    return (
        f"{n} rows drawn with NumPy's default_rng(({seed}, 21)) as plausiflow/datasets/orders.py says; no "
        "row is a real order."
    )
