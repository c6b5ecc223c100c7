r"""What loan applicants are besides numbers: the levels of each category, and how likely each kind has them.

The kinds are those of :mod:`plausiflow.datasets.synthetic`. Within a kind s, categories depend on one another:

.. math:: p(c | s) = p(\text{sex}|s)\, p(\text{education}|s)\, p(\text{job}|\text{sex}, \text{education}, s)\,
          p(\text{home}|s)\, p(\text{lines}|\text{home}, s)\, p(\text{dependents}|s)

Jobs follow ``JOBS_BY_EDUCATION``, each of its entries times the job's weights for the sex and for the kind,
then scaled so that the jobs of each sex and education sum to one. Dependents are binomial of five. Open lines
of credit are binomial of six, each of them likelier by ``LINES_WITH_HOME`` for those who own their home.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import comb

import numpy as np
import numpy.typing as npt

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
class Person:
    """What an applicant of some kind is besides numbers.

    Attributes:
        women: Their share.
        education: The share of each level.
        jobs: The weight of each job.
        owners: The share with a home of their own.
        lines: How likely each of six lines of credit is open, for those without a home.
        dependents: How likely each of five dependents is.
    """

    women: float
    education: tuple[float, ...]
    jobs: tuple[float, ...]
    owners: float
    lines: float
    dependents: float

    @cached_property
    def table(self) -> npt.NDArray[np.float64]:
        """The probability of each combination of levels, an axis per category in the order of ``LEVELS``."""
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


# fmt: off
PEOPLE = {
    "starting out": Person(
        women=0.54, education=(0.10, 0.42, 0.32, 0.14, 0.02), jobs=(1.2, 1.3, 0.9, 0.4, 0.8),
        owners=0.12, lines=0.28, dependents=0.10),
    "overextended": Person(
        women=0.46, education=(0.08, 0.39, 0.32, 0.18, 0.03), jobs=(1.0, 0.9, 1.7, 1.0, 0.8),
        owners=0.45, lines=0.54, dependents=0.32),
    "fallen behind": Person(
        women=0.50, education=(0.15, 0.45, 0.25, 0.13, 0.02), jobs=(1.3, 1.0, 1.3, 0.6, 0.6),
        owners=0.45, lines=0.40, dependents=0.14),
    "young professional": Person(
        women=0.56, education=(0.03, 0.25, 0.36, 0.32, 0.04), jobs=(0.7, 1.1, 0.8, 0.8, 1.4),
        owners=0.24, lines=0.24, dependents=0.12),
    "established": Person(
        women=0.44, education=(0.04, 0.28, 0.32, 0.29, 0.07), jobs=(0.9, 0.9, 0.9, 1.5, 1.1),
        owners=0.66, lines=0.38, dependents=0.30),
    "late career": Person(
        women=0.48, education=(0.06, 0.34, 0.30, 0.24, 0.06), jobs=(1.0, 1.0, 1.0, 1.4, 1.0),
        owners=0.76, lines=0.30, dependents=0.10),
}
# fmt: on
