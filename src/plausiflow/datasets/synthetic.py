r"""Generated loan applications of six numbers, drawn from a known density.

Each class is a mixture of a few kinds of applicants, and each kind is a Gaussian in original units:

.. math:: p(x | y) = \sum_s \pi_{s,y}\, \mathcal N(x; \mu_s, \Sigma_s), \qquad
          \Sigma_s = \mathrm{diag}(\sigma_s)\, R_y\, \mathrm{diag}(\sigma_s)

Nothing is truncated: impossible values, such as a negative income, are five standard deviations away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from plausiflow.errors import InvalidInputError

FEATURES = ("income", "debt_ratio", "loan_amount", "years_employed", "credit_score", "age")
CLASSES = ("rejected", "granted")
TARGET = "decision"
ROWS, SEED = 5000, 0
ORIGIN = "Generated loan applications whose density is known: per class a mixture of three Gaussians"


@dataclass(frozen=True, kw_only=True)
class ApplicantKind:
    """A kind of applicant: its share of its class, and its numbers in the order of ``FEATURES``."""

    name: str
    share: float
    means: tuple[float, ...]
    sds: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Population:
    """All applicants of a class: their kinds, and the correlations of features within each kind."""

    kinds: tuple[ApplicantKind, ...]
    correlations: Mapping[tuple[str, str], float]

    @property
    def shares(self) -> npt.NDArray[np.float64]:
        """Share of each kind, shape ``(s,)``."""
        return np.array([kind.share for kind in self.kinds])

    @property
    def means(self) -> npt.NDArray[np.float64]:
        """Mean of each kind, shape ``(s, d)``."""
        return np.array([kind.means for kind in self.kinds])

    @property
    def cholesky(self) -> npt.NDArray[np.float64]:
        """Lower Cholesky factor of the covariance of each kind, shape ``(s, d, d)``."""
        correlation = np.eye(len(FEATURES))
        for (a, b), value in self.correlations.items():
            i, j = FEATURES.index(a), FEATURES.index(b)
            correlation[i, j] = correlation[j, i] = value
        sds = np.array([kind.sds for kind in self.kinds])
        factors: npt.NDArray[np.float64] = sds[:, :, None] * np.linalg.cholesky(correlation)
        return factors


def draw(n: int, seed: int) -> tuple[pd.DataFrame, npt.NDArray[np.int64]]:
    """Draw features in original units, and classes of shape ``(n,)``."""
    x, y, _ = draw_with_kinds(n, seed)
    return x, y


def draw_with_kinds(n: int, seed: int) -> tuple[pd.DataFrame, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Draw features, classes and kinds: for each row first its class, then its kind, then its numbers.

    Kinds are numbered from 0 within their class, in the order of its population.
    """
    if n < 1:
        raise InvalidInputError(f"`n` must be at least 1; got {n}.")
    generator = np.random.default_rng(seed)
    y = generator.integers(len(CLASSES), size=n)
    chance = generator.random(n)
    noise = generator.standard_normal((n, len(FEATURES)))
    x, kinds = np.empty_like(noise), np.empty_like(y)
    for k, population in enumerate(POPULATIONS):
        rows = y == k
        kind = np.searchsorted(population.shares.cumsum()[:-1], chance[rows], side="right")
        x[rows] = population.means[kind] + np.einsum("nde,ne->nd", population.cholesky[kind], noise[rows])
        kinds[rows] = kind
    return pd.DataFrame(x, columns=list(FEATURES)), y, kinds


def recipe(n: int, seed: int) -> str:
    """Return the provenance of ``draw(n, seed)``."""
    return (
        f"{n} rows drawn with NumPy's default_rng({seed}), classes at even odds, from the means, standard "
        "deviations and correlations in plausiflow/datasets/synthetic.py; no row is a real applicant."
    )


# fmt: off
POPULATIONS = (
    Population(
        kinds=(
            ApplicantKind(
                name="starting out", share=0.45,
                means=(34_000, 0.36, 14_500, 4.5, 622, 29), sds=(5_500, 0.06, 2_700, 0.85, 36, 2.1),
            ),
            ApplicantKind(
                name="overextended", share=0.35,
                means=(47_000, 0.44, 21_500, 10, 640, 43), sds=(7_500, 0.07, 3_800, 1.8, 38, 4.2),
            ),
            ApplicantKind(
                name="fallen behind", share=0.2,
                means=(40_000, 0.38, 16_000, 15, 610, 54), sds=(7_000, 0.065, 3_000, 2.8, 40, 5),
            ),
        ),
        correlations={
            ("income", "loan_amount"): 0.4, ("income", "years_employed"): 0.3, ("income", "debt_ratio"): -0.2,
            ("debt_ratio", "loan_amount"): 0.5, ("debt_ratio", "credit_score"): -0.4,
            ("years_employed", "age"): 0.6,
        },
    ),
    Population(
        kinds=(
            ApplicantKind(
                name="young professional", share=0.35,
                means=(42_000, 0.29, 13_000, 6, 672, 32), sds=(6_500, 0.05, 2_500, 1.1, 32, 2.6),
            ),
            ApplicantKind(
                name="established", share=0.4,
                means=(57_000, 0.32, 19_500, 12, 690, 44), sds=(8_500, 0.055, 3_600, 2.2, 31, 4.4),
            ),
            ApplicantKind(
                name="late career", share=0.25,
                means=(52_000, 0.26, 15_000, 20, 708, 57), sds=(8_500, 0.048, 2_900, 3.5, 28, 5),
            ),
        ),
        correlations={
            ("income", "loan_amount"): 0.6, ("income", "years_employed"): 0.35,
            ("income", "credit_score"): 0.2, ("debt_ratio", "loan_amount"): 0.25,
            ("debt_ratio", "credit_score"): -0.3, ("years_employed", "credit_score"): 0.2,
            ("years_employed", "age"): 0.6,
        },
    ),
)
# fmt: on
