r"""Loan applications with a known density, so that plausibility can be held against the truth.

Each class is a mixture of a few kinds of applicants, and each kind a Gaussian in original units:

.. math:: p(x | y) = \sum_s \pi_{s,y}\, \mathcal N(x; \mu_s, \Sigma_s), \qquad
          \Sigma_s = \mathrm{diag}(\sigma_s)\, R_y\, \mathrm{diag}(\sigma_s)

A fold scales a row to :math:`u = (x - m) / r`, feature by feature. Its density is that of x times
:math:`\prod_j r_j`, again a mixture of Gaussians: with :math:`\Sigma^{-1} = P P^\top`, the mean becomes
:math:`(\mu - m) / r` and the factor :math:`\mathrm{diag}(r) P`, triangular as before.

No truncation: means lie five standard deviations from what makes no sense, such as a negative income.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from plausiflow.datasets.folds import Dataset, Fold
from plausiflow.errors import InvalidInputError

FEATURES = ("income", "debt_ratio", "loan_amount", "years_employed", "credit_score", "age")
CLASSES = ("rejected", "granted")
TARGET = "decision"
ROWS, SEED = 5000, 0
ORIGIN = "Generated loan applications whose density is known: per class a mixture of three Gaussians"


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of applicant: its share of its class, and its numbers in the order of ``FEATURES``.

    What applicants are besides numbers is in :mod:`plausiflow.datasets.applicants`: given their kind, independent
    of them.
    """

    name: str
    share: float
    means: tuple[float, ...]
    sds: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Population:
    """All applicants of a class: their kinds, and how features go together within each of them."""

    kinds: tuple[Kind, ...]
    correlations: Mapping[tuple[str, str], float]

    @property
    def shares(self) -> npt.NDArray[np.float64]:
        """Of each kind, shape ``(s,)``."""
        return np.array([kind.share for kind in self.kinds])

    @property
    def means(self) -> npt.NDArray[np.float64]:
        """Of each kind, shape ``(s, d)``."""
        return np.array([kind.means for kind in self.kinds])

    @property
    def cholesky(self) -> npt.NDArray[np.float64]:
        """Lower factors of the kinds' covariances, shape ``(s, d, d)``."""
        correlation = np.eye(len(FEATURES))
        for (a, b), value in self.correlations.items():
            i, j = FEATURES.index(a), FEATURES.index(b)
            correlation[i, j] = correlation[j, i] = value
        sds = np.array([kind.sds for kind in self.kinds])
        factors: npt.NDArray[np.float64] = sds[:, :, None] * np.linalg.cholesky(correlation)
        return factors


def loans(n: int = ROWS, seed: int = SEED) -> Dataset:
    """Loan applications, drawn from a density that is known exactly.

    Example:
        >>> loans(n=200)
        Dataset(loans: 200 rows, 6 features, 2 classes)
    """
    x, y = draw(n, seed)
    return Dataset(
        name="loans",
        x=x,
        y=y,
        class_names=CLASSES,
        target=TARGET,
        provenance=f"{ORIGIN}. {recipe(n, seed)}",
        source="generated",
    )


def draw(n: int, seed: int) -> tuple[pd.DataFrame, npt.NDArray[np.int64]]:
    """Features in original units and classes."""
    x, y, _ = draw_with_kinds(n, seed)
    return x, y


def draw_with_kinds(n: int, seed: int) -> tuple[pd.DataFrame, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Features, classes and kinds: each row's class is drawn first, then its kind, its numbers.

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
    """What ``draw`` did, for the provenance."""
    return (
        f"{n} rows drawn with NumPy's default_rng({seed}), classes at even odds, from the means, standard "
        "deviations and correlations in plausiflow/data/synthetic.py; no real applicant is among them."
    )


def true_state(fold: Fold | None = None) -> dict[str, Tensor]:
    """The exact class densities, in the fold's scaled space or else in original units.

    Returns:
        What the Gaussian mixture density takes as its state: for each class the kinds' log-shares, means and
        factors of their precisions, in double precision.
    """
    if fold is not None and fold.feature_names != FEATURES:
        raise InvalidInputError(
            f"`fold` must be one of the loans, with the features {', '.join(FEATURES)}; got "
            f"{', '.join(fold.feature_names)}. Only of the loans is the density known."
        )
    minimum = torch.zeros(len(FEATURES), dtype=torch.float64) if fold is None else fold.minimum
    span = torch.ones(len(FEATURES), dtype=torch.float64) if fold is None else fold.range
    state = {}
    for k, population in enumerate(POPULATIONS):
        factors = np.linalg.inv(population.cholesky).transpose(0, 2, 1)
        state[f"{k}.log_weights"] = torch.from_numpy(np.log(population.shares))
        state[f"{k}.means"] = (torch.from_numpy(population.means) - minimum) / span
        state[f"{k}.precisions_cholesky"] = span[:, None] * torch.from_numpy(factors).triu()
    return state


# fmt: off
POPULATIONS = (
    Population(
        kinds=(
            Kind(name="starting out", share=0.45,
                 means=(34_000, 0.36, 14_500, 4.5, 622, 29), sds=(5_500, 0.06, 2_700, 0.85, 36, 2.1)),
            Kind(name="overextended", share=0.35,
                 means=(47_000, 0.44, 21_500, 10, 640, 43), sds=(7_500, 0.07, 3_800, 1.8, 38, 4.2)),
            Kind(name="fallen behind", share=0.2,
                 means=(40_000, 0.38, 16_000, 15, 610, 54), sds=(7_000, 0.065, 3_000, 2.8, 40, 5)),
        ),
        correlations={
            ("income", "loan_amount"): 0.4, ("income", "years_employed"): 0.3, ("income", "debt_ratio"): -0.2,
            ("debt_ratio", "loan_amount"): 0.5, ("debt_ratio", "credit_score"): -0.4,
            ("years_employed", "age"): 0.6,
        },
    ),
    Population(
        kinds=(
            Kind(name="young professional", share=0.35,
                 means=(42_000, 0.29, 13_000, 6, 672, 32), sds=(6_500, 0.05, 2_500, 1.1, 32, 2.6)),
            Kind(name="established", share=0.4,
                 means=(57_000, 0.32, 19_500, 12, 690, 44), sds=(8_500, 0.055, 3_600, 2.2, 31, 4.4)),
            Kind(name="late career", share=0.25,
                 means=(52_000, 0.26, 15_000, 20, 708, 57), sds=(8_500, 0.048, 2_900, 3.5, 28, 5)),
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
