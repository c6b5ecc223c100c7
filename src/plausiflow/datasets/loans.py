r"""Loan applications of numbers and categories whose density is known.

They are the applicants of :mod:`plausiflow.datasets.synthetic`, their six numbers rounded as people write them
(``STEPS``), with six categories more (``LEVELS``). An applicant's class y is drawn first, then the kind s,
and given the kind the numbers u and the categories c are independent of each other:

.. math:: p(u, c | y) = \sum_s \pi_{s,y}\, \mathcal N(u; \mu_s, \Sigma_s)\, p(c | s)

The categories of a kind depend on one another: :mod:`plausiflow.datasets.applicants`.

Some columns, say those that nobody can change, have a marginal density of the same form: of each Gaussian
only their rows and columns stay, and other categories are summed out. The density given them is the joint one
divided by it, again in closed form.

Rounding is left out: the log-density of a written row is that of unrounded numbers, at the written ones. Up
to the log-volume of a grid cell this is the log-probability of the row by the midpoint rule. It errs by 0.06
on average and by less than 0.2 for 95 % of rows, in classes whose log-densities have standard deviations of 2
to 3 (600 rows, their cells integrated by quasi-Monte Carlo). Whole years of employment are the coarsest grid.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from plausiflow.datasets.applicants import LEVELS, PEOPLE
from plausiflow.datasets.synthetic import CLASSES, FEATURES, POPULATIONS, ROWS, SEED, TARGET, draw_with_kinds
from plausiflow.errors import InvalidInputError

Floats = npt.NDArray[np.float64]

# What numbers are rounded to; all but the ratio are whole.
STEPS = {
    "income": 100, "debt_ratio": 0.01, "loan_amount": 100, "years_employed": 1, "credit_score": 1, "age": 1,
}  # fmt: skip
COLUMNS = (
    "age", "sex", "education", "job", "years_employed", "income", "debt_ratio", "loan_amount", "credit_score",
    "open_lines", "dependents", "owns_home",
)  # fmt: skip
ORIGIN = "Generated loan applications of numbers and categories whose density is known"


def draw(n: int = ROWS, seed: int = SEED) -> tuple[pd.DataFrame, pd.Series]:
    """Applications and decisions; the numbers are those of the numeric loans of this seed, rounded.

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
            cumulative = PEOPLE[kind.name].table.cumsum()
            cells[rows] = np.searchsorted(cumulative[:-1], chance[rows], side="right")
    shape = tuple(map(len, LEVELS.values()))
    codes = dict(zip(LEVELS, np.unravel_index(cells, shape), strict=True))
    columns = {name: _written(numbers[name]) for name in FEATURES} | {
        name: pd.Series([LEVELS[name][code] for code in codes[name]]) for name in LEVELS
    }
    for name in ("sex", "education"):
        dtype = pd.CategoricalDtype(list(LEVELS[name]), ordered=name == "education")
        columns[name] = columns[name].astype(dtype)
    x = pd.DataFrame({name: columns[name] for name in COLUMNS})
    return x, pd.Series([CLASSES[k] for k in y], name=TARGET)


def true_log_prob(frame: pd.DataFrame, y: Sequence[str] | pd.Series) -> Floats:
    r"""The joint log-density :math:`\log p(x | y)` of written rows, one per row.

    Args:
        frame: Applications, with the columns of ``COLUMNS`` in any order; others are not read.
        y: Their decisions, ``rejected`` or ``granted``, one per row and in the order of the rows.

    Raises:
        InvalidInputError: A column is missing, a value is no number or no level, or a decision is unknown.

    Example:
        >>> true_log_prob(*draw(n=3)).shape
        (3,)
    """
    return _log_marginal(*_read(frame, y), COLUMNS)


def true_log_prob_given(
    frame: pd.DataFrame, y: Sequence[str] | pd.Series, given: Sequence[str] = ("age", "sex")
) -> Floats:
    r"""The log-density of the other columns given some, :math:`\log p(x | y) - \log p(x_{given} | y)`.

    Args:
        frame: Applications, as for ``true_log_prob``.
        y: Their decisions, one per row.
        given: Columns that are taken as they are, such as those that nobody can change.

    Raises:
        InvalidInputError: As for ``true_log_prob``, or a given name is no column.
    """
    if isinstance(given, str) or not set(given) <= set(COLUMNS):
        raise InvalidInputError(f"`given` must list some of {', '.join(COLUMNS)}; got {given!r}.")
    values, classes = _read(frame, y)
    return _log_marginal(values, classes, COLUMNS) - _log_marginal(values, classes, given)


def recipe(n: int, seed: int) -> str:
    """What ``draw`` did, for the provenance."""
    return (
        f"{n} rows: the numbers and classes of the numeric loans of seed {seed}, rounded, and categories "
        f"drawn with NumPy's default_rng(({seed}, 1)) from the tables in plausiflow/data/applicants.py; no "
        "real applicant is among them."
    )


def _read(
    frame: pd.DataFrame, y: Sequence[str] | pd.Series
) -> tuple[dict[str, Floats], npt.NDArray[np.int64]]:
    """Numbers and codes of levels by column, and codes of classes."""
    decisions = [y] if isinstance(y, str) else list(y)
    classes = pd.Series(decisions, dtype=object).map({name: k for k, name in enumerate(CLASSES)})
    problems = [f"no column {name}" for name in COLUMNS if name not in frame]
    if len(decisions) != len(frame):
        problems.append(f"{len(decisions)} decisions for {len(frame)} rows")
    if classes.isna().any():
        problems.append(f"{classes.isna().sum()} decisions are not one of {', '.join(CLASSES)}")
    values: dict[str, Floats] = {}
    for name in [name for name in COLUMNS if name in frame]:
        if name in FEATURES:
            column = pd.to_numeric(frame[name], errors="coerce")
        else:
            column = frame[name].astype(object).map({level: code for code, level in enumerate(LEVELS[name])})
        values[name] = column.to_numpy(dtype=np.float64, na_value=np.nan)
        wrong = int((~np.isfinite(values[name])).sum())
        expected = "numbers" if name in FEATURES else f"one of {', '.join(map(str, LEVELS[name]))}"
        problems += [f"{wrong} values of {name} are not {expected}"] if wrong else []
    if problems:
        raise InvalidInputError(
            f"`frame` must hold loan applications and `y` their decisions; got: {'; '.join(problems)}. "
            "Leave out rows without a value: the density is known of whole applications only."
        )
    return values, np.asarray(classes, dtype=np.int64)


def _log_marginal(values: dict[str, Floats], classes: npt.NDArray[np.int64], names: Sequence[str]) -> Floats:
    """The log-density of the named columns alone, given the class."""
    features = [j for j, name in enumerate(FEATURES) if name in names]
    x = np.stack([values[FEATURES[j]] for j in features], axis=1) if features else np.empty((len(classes), 0))
    levels = tuple(values[name].astype(np.int64) for name in LEVELS if name in names)
    summed = tuple(axis for axis, name in enumerate(LEVELS) if name not in names)
    log_prob = np.empty(len(classes))
    for k, population in enumerate(POPULATIONS):
        rows = classes == k
        own = tuple(codes[rows] for codes in levels)
        parts = [
            np.log(kind.share)
            + _log_normal(x[rows], mean[features], factor[features])
            + np.log(PEOPLE[kind.name].table.sum(axis=summed)[own])
            for kind, mean, factor in zip(
                population.kinds, population.means, population.cholesky, strict=True
            )
        ]
        log_prob[rows] = np.logaddexp.reduce(parts)
    return log_prob


def _log_normal(x: Floats, mean: Floats, factor: Floats) -> Floats:
    """The log-density of rows under a Gaussian of covariance ``factor @ factor.T``."""
    lower = np.linalg.cholesky(factor @ factor.T)
    z = np.linalg.solve(lower, (x - mean).T)
    log_scale = np.log(lower.diagonal()).sum() + 0.5 * len(mean) * np.log(2 * np.pi)
    result: Floats = -0.5 * (z**2).sum(axis=0) - log_scale
    return result


def _written(numbers: pd.Series) -> pd.Series:
    """Rounded to the column's step: whole numbers, or floats where the step is a fraction."""
    step = STEPS[str(numbers.name)]
    if isinstance(step, int):
        return (numbers / step).round().astype(np.int64) * step
    return numbers.round(2)
