r"""Generated loan applications of numbers and categories, drawn from a known density.

The six numbers are those of :mod:`plausiflow.datasets.synthetic`, rounded to ``STEPS``. There are six
categories more, with the levels of ``LEVELS``. An applicant's class y is drawn first, then the kind s. Given
the kind, the numbers u and the categories c are independent of each other:

.. math:: p(u, c | y) = \sum_s \pi_{s,y}\, \mathcal N(u; \mu_s, \Sigma_s)\, p(c | s)

Within a kind s, categories depend on one another:

.. math:: p(c | s) = p(\text{sex}|s)\, p(\text{education}|s)\, p(\text{job}|\text{sex}, \text{education}, s)\,
          p(\text{home}|s)\, p(\text{lines}|\text{home}, s)\, p(\text{dependents}|s)

Jobs follow ``JOBS_BY_EDUCATION``, each entry times the job's weights for the sex and for the kind, normalised
for each sex and education. Dependents are binomial of five. Open lines of credit are binomial of six, each
more likely by ``LINES_WITH_HOME`` for home owners.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import comb

import numpy as np
import numpy.typing as npt
import pandas as pd

from plausiflow.datasets.synthetic import CLASSES, FEATURES, POPULATIONS, ROWS, SEED, TARGET, draw_with_kinds

# Steps of the numbers; all but the ratio are whole numbers.
STEPS = {
    "income": 100, "debt_ratio": 0.01, "loan_amount": 100, "years_employed": 1, "credit_score": 1, "age": 1,
}  # fmt: skip
COLUMNS = (
    "age", "sex", "education", "job", "years_employed", "income", "debt_ratio", "loan_amount", "credit_score",
    "open_lines", "dependents", "owns_home",
)  # fmt: skip
ORIGIN = "Generated loan applications of numbers and categories whose density is known"
LEVELS: dict[str, tuple[str | bool | int, ...]] = {
    "sex": ("female", "male"),
    "education": ("none", "school", "college", "degree", "doctorate"),
    "job": ("manual", "clerk", "self-employed", "manager", "specialist"),
    "owns_home": (False, True),
    "open_lines": tuple(range(7)),
    "dependents": tuple(range(6)),
}
JOBS_BY_EDUCATION = (
    (0.62, 0.18, 0.15, 0.03, 0.02),
    (0.42, 0.33, 0.14, 0.07, 0.04),
    (0.20, 0.36, 0.14, 0.14, 0.16),
    (0.05, 0.24, 0.13, 0.26, 0.32),
    (0.02, 0.08, 0.12, 0.26, 0.52),
)
JOBS_BY_SEX = ((0.8, 1.4, 0.8, 0.9, 1.0), (1.2, 0.7, 1.2, 1.1, 1.0))
LINES_WITH_HOME = 0.1


@dataclass(frozen=True, kw_only=True)
class ApplicantCategories:
    """The distribution of the categories of one kind of applicant."""

    women: float  # share of women
    education: tuple[float, ...]  # share of each level of education
    jobs: tuple[float, ...]  # weight of each job
    owners: float  # share of home owners
    lines: float  # probability that each of six lines of credit is open, without a home
    dependents: float  # probability of each of five dependents

    @cached_property
    def table(self) -> npt.NDArray[np.float64]:
        """Probability of each combination of levels, one axis per category in the order of ``LEVELS``."""
        jobs = np.array(JOBS_BY_SEX)[:, None] * np.array(JOBS_BY_EDUCATION) * np.array(self.jobs)
        table: npt.NDArray[np.float64] = np.einsum(
            "s,e,sej,h,hl,d->sejhld",
            [self.women, 1 - self.women],
            self.education,
            jobs / jobs.sum(axis=-1, keepdims=True),
            [1 - self.owners, self.owners],
            [_binomial(6, self.lines), _binomial(6, self.lines + LINES_WITH_HOME)],
            _binomial(5, self.dependents),
        )
        return table


def _binomial(n: int, p: float) -> list[float]:
    return [comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]


def draw(n: int = ROWS, seed: int = SEED) -> tuple[pd.DataFrame, pd.Series]:
    """Draw applications and decisions; the numbers are the rounded numbers of ``synthetic.draw``.

    Example:
        >>> x, y = draw(n=200)
        >>> x.shape, sorted(y.unique())
        ((200, 12), ['granted', 'rejected'])
    """
    numbers, y, kinds = draw_with_kinds(n, seed)
    chance = np.random.default_rng((seed, 1)).random(n)
    cells = np.empty(n, dtype=np.int64)
    for k, population in enumerate(POPULATIONS):
        for s, kind in enumerate(population.kinds):
            rows = (y == k) & (kinds == s)
            cumulative = CATEGORIES[kind.name].table.cumsum()
            cells[rows] = np.searchsorted(cumulative[:-1], chance[rows], side="right")
    shape = tuple(map(len, LEVELS.values()))
    codes = dict(zip(LEVELS, np.unravel_index(cells, shape), strict=True))
    columns = {name: _rounded(numbers[name]) for name in FEATURES} | {
        name: pd.Series([LEVELS[name][code] for code in codes[name]]) for name in LEVELS
    }
    for name in ("sex", "education"):
        dtype = pd.CategoricalDtype(list(LEVELS[name]), ordered=name == "education")
        columns[name] = columns[name].astype(dtype)
    x = pd.DataFrame({name: columns[name] for name in COLUMNS})
    return x, pd.Series([CLASSES[k] for k in y], name=TARGET)


def recipe(n: int, seed: int) -> str:
    """Return the provenance of ``draw(n, seed)``."""
    return (
        f"{n} rows: the numbers and classes of the numeric loans of seed {seed}, rounded, and categories "
        f"drawn with NumPy's default_rng(({seed}, 1)) from the tables in plausiflow/datasets/loans.py; no "
        "row is a real applicant."
    )


def _rounded(numbers: pd.Series) -> pd.Series:
    """Return numbers rounded to their step: integers, or floats if the step is a fraction."""
    step = STEPS[str(numbers.name)]
    if isinstance(step, int):
        return (numbers / step).round().astype(np.int64) * step
    return numbers.round(2)


# fmt: off
CATEGORIES = {
    "starting out": ApplicantCategories(
        women=0.54, education=(0.10, 0.42, 0.32, 0.14, 0.02), jobs=(1.2, 1.3, 0.9, 0.4, 0.8),
        owners=0.12, lines=0.28, dependents=0.10),
    "overextended": ApplicantCategories(
        women=0.46, education=(0.08, 0.39, 0.32, 0.18, 0.03), jobs=(1.0, 0.9, 1.7, 1.0, 0.8),
        owners=0.45, lines=0.54, dependents=0.32),
    "fallen behind": ApplicantCategories(
        women=0.50, education=(0.15, 0.45, 0.25, 0.13, 0.02), jobs=(1.3, 1.0, 1.3, 0.6, 0.6),
        owners=0.45, lines=0.40, dependents=0.14),
    "young professional": ApplicantCategories(
        women=0.56, education=(0.03, 0.25, 0.36, 0.32, 0.04), jobs=(0.7, 1.1, 0.8, 0.8, 1.4),
        owners=0.24, lines=0.24, dependents=0.12),
    "established": ApplicantCategories(
        women=0.44, education=(0.04, 0.28, 0.32, 0.29, 0.07), jobs=(0.9, 0.9, 0.9, 1.5, 1.1),
        owners=0.66, lines=0.38, dependents=0.30),
    "late career": ApplicantCategories(
        women=0.48, education=(0.06, 0.34, 0.30, 0.24, 0.06), jobs=(1.0, 1.0, 1.0, 1.4, 1.0),
        owners=0.76, lines=0.30, dependents=0.10),
}
# fmt: on
