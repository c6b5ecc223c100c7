r"""The convex programs of ARTELT, and the dense regions that constrain them.

Each component of a class's Gaussian mixture has a joint density, written as an energy [PPCEF Eq. 4]:

.. math::
    e_j(x) = -2 \log\bigl(\pi_j \mathcal N(x; \mu_j, \Sigma_j)\bigr)
           = (x-\mu_j)^\top \Sigma_j^{-1} (x-\mu_j) + a_j, \qquad
    a_j = -2\log\pi_j + D\log 2\pi + \log\det\Sigma_j

A row is dense if :math:`\min_j e_j(x) \le \theta`, with :math:`\theta` the median of that energy over the
rows of the class. This is :math:`(x-\mu_j)^\top \Sigma_j^{-1} (x-\mu_j) \le r_j = \theta - a_j` for some j
[PPCEF Eq. 5]: a union of ellipsoids, so one convex program per component finds the closest point. With
:math:`\Sigma_j = L_j L_j^\top` and :math:`x' = \mu_j + L_j u` the constraint is
:math:`\lVert u \rVert_2 \le \sqrt{r_j}`, and no covariance is inverted.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import KFold
from torch import Tensor

from plausiflow.densities import GMM, lower_quantile

Array = NDArray[np.float64]
Distance = Literal["l1", "l2"]
Radii = Literal["density", "published"]

FOLDS = 5
PLENTIFUL, SCARCE = 1e-6, 1e-4
"""Added to the diagonals of covariances if there are more rows than parameters, and if there are fewer."""
SLACK = 1e-6
"""Added to the threshold, so that an ellipsoid has an interior even if all rows of a class are equal."""
TOLERANCES: dict[Distance, tuple[float, ...]] = {"l1": (1e-10, 1e-8, 1e-6), "l2": (1e-8, 1e-6)}
"""Tolerances of the solver, tried in order. They are tight for L1, whose solutions are in corners."""


class Ellipsoid(NamedTuple):
    """The points ``centre + factor u`` with ``|u| <= radius``."""

    centre: Array
    factor: Array
    radius: float


@dataclass(frozen=True, kw_only=True, eq=False)
class DenseRegion:
    """The dense region of a class: a union of ellipsoids."""

    means: Tensor  # Centres, (k, d).
    factors: Tensor  # Lower Cholesky factors of the covariances, (k, d, d).
    radii: Tensor  # Largest squared Mahalanobis distances, (k,); not positive if nowhere dense enough.

    def contains(self, x: Tensor) -> Tensor:
        """Return whether rows are dense, shape ``(n,)``."""
        inside = squared_mahalanobis(x, self.means, self.factors) <= self.radii
        return (inside & (self.radii > 0)).any(dim=1)

    def ellipsoid(self, component: int) -> Ellipsoid:
        """Return the ellipsoid of one component."""
        radius = math.sqrt(float(self.radii[component]))
        return Ellipsoid(self.means[component].numpy(), self.factors[component].numpy(), radius)


def squared_mahalanobis(x: Tensor, means: Tensor, factors: Tensor) -> Tensor:
    """Return squared Mahalanobis distances ``(n, k)`` of rows ``(n, d)`` to k Gaussians."""
    centred = (x[:, None] - means).permute(1, 2, 0)
    whitened: Tensor = torch.linalg.solve_triangular(factors, centred, upper=False)
    return whitened.square().sum(dim=1).T


def learn_region(
    x: Tensor,
    *,
    components: Sequence[int],
    quantile: float,
    radii: Radii,
    regularisation: float | None,
    random_state: int,
) -> DenseRegion:
    """Fit a mixture to the rows of one class and derive the ellipsoids.

    Args:
        x: Rows of the class, shape ``(n, d)``, in double precision.
        components: Candidate numbers of components, chosen by cross-validation.
        quantile: Share of the rows outside the region, 0.5 for the median.
        radii: ``density`` for the closed form, ``published`` for the radii of the published runs.
        regularisation: Added to the diagonals of covariances; None depends on the number of rows.
        random_state: Seed of folds and fits.
    """
    count = choose_components(x, components, regularisation, random_state)
    added = _default_regularisation(x, count) if regularisation is None else regularisation
    mixture = GMM(components=count, regularisation=added, random_state=random_state)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        mixture.fit(x, torch.zeros(len(x), dtype=torch.long))
    log_weights, means, precisions = (
        mixture.parameters_[0][name] for name in ("log_weights", "means", "precisions_cholesky")
    )
    eye = torch.eye(x.shape[1], dtype=x.dtype).expand_as(precisions)
    factors = torch.linalg.solve_triangular(precisions.mT, eye, upper=False)
    log_det = 2 * factors.diagonal(dim1=1, dim2=2).log().sum(dim=1)
    offsets = -2 * log_weights + x.shape[1] * math.log(2 * math.pi) + log_det
    squared = squared_mahalanobis(x, means, factors)
    energies = squared + offsets
    threshold = lower_quantile(energies.amin(dim=1), 1 - quantile)
    if radii == "published":
        # Deviation: the published code keeps the rows of *high* energy, so the ellipsoids contain all rows of
        # the class and most of the others. Only `Artelt.paper` uses it.
        sizes = squared.masked_fill(energies < threshold, 0.0).amax(dim=0)
    else:
        sizes = threshold + SLACK - offsets
    return DenseRegion(means=means, factors=factors, radii=sizes)


def choose_components(
    x: Tensor, candidates: Sequence[int], regularisation: float | None, random_state: int
) -> int:
    """Return the number of components with the highest held-out likelihood; one for very few rows."""
    rows = x.numpy()
    if len(rows) < FOLDS:
        return 1
    folds = list(KFold(FOLDS, shuffle=True, random_state=random_state).split(rows))
    most = min(len(np.unique(rows[kept], axis=0)) for kept, _ in folds)
    scores = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for count in (c for c in candidates if c <= most):
            added = _default_regularisation(x, count) if regularisation is None else regularisation
            mixture = GaussianMixture(count, reg_covar=added, random_state=random_state, max_iter=500)
            scores[count] = float(np.mean([mixture.fit(rows[kept]).score(rows[out]) for kept, out in folds]))
    return max(scores, key=scores.__getitem__, default=1)


def _default_regularisation(x: Tensor, count: int) -> float:
    n, d = x.shape
    return SCARCE if count * d**2 / 2 > n else PLENTIFUL


class ConvexProgram:
    r"""One convex program, compiled once; the row, the margin and the box are its parameters.

    Args:
        cvxpy: The imported package, which is an extra.
        distance: Distance that is minimised.
        normals: :math:`w_i - w_{y'}` of every other class i, shape ``(k - 1, d)``.
        offsets: :math:`b_i - b_{y'}`, shape ``(k - 1,)``.
        varying: Columns of the identity that may move, shape ``(d, free)``.
        ellipsoid: Set that contains the solution; None for the whole space.
        bounded: Whether there are lower and upper bounds.
    """

    def __init__(
        self,
        cvxpy: Any,  # noqa: ANN401
        *,
        distance: Distance,
        normals: Array,
        offsets: Array,
        varying: Array,
        ellipsoid: Ellipsoid | None,
        bounded: tuple[bool, bool],
    ) -> None:
        d, free = varying.shape
        self.cvxpy, self.distance = cvxpy, distance
        self.varying, self.fixed = varying, np.diag(1.0 - varying.sum(axis=1))
        self.centre, self.factor, radius = ellipsoid or Ellipsoid(np.zeros(free), np.eye(free), math.inf)
        self.row, self.lower, self.upper = (cvxpy.Parameter(d) for _ in range(3))
        self.margin, self.u = cvxpy.Parameter(nonneg=True), cvxpy.Variable(free)
        moved = self.centre + self.factor @ self.u
        constraints = [normals @ (varying @ moved + self.fixed @ self.row) + offsets + self.margin <= 0]
        if ellipsoid:
            constraints.append(cvxpy.norm(self.u, 2) <= radius)
        if bounded[0]:
            constraints.append(moved >= varying.T @ self.lower)
        if bounded[1]:
            constraints.append(moved <= varying.T @ self.upper)
        change = moved - varying.T @ self.row
        cost = cvxpy.norm(change, 1) if distance == "l1" else 0.5 * cvxpy.sum_squares(change)
        self.problem = cvxpy.Problem(cvxpy.Minimize(cost), constraints)

    def solve(self, row: Array, margin: float, lower: Array, upper: Array) -> tuple[Array | None, int]:
        """Return the closest point for one row, None if there is none, and the number of iterations."""
        self.row.value, self.margin.value, self.lower.value, self.upper.value = row, margin, lower, upper
        spent = 0
        for tolerance in TOLERANCES[self.distance]:
            status, iterations = self._attempt(tolerance)
            spent += iterations
            if status == self.cvxpy.OPTIMAL:
                moved = self.centre + self.factor @ self.u.value
                return self.varying @ moved + self.fixed @ row, spent
            if status == self.cvxpy.INFEASIBLE:
                break
        return None, spent

    def _attempt(self, tolerance: float) -> tuple[str, int]:
        """Solve to a tolerance; return the status and the number of iterations."""
        names = ("tol_gap_abs", "tol_gap_rel", "tol_feas")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Solution may be inaccurate")
            try:
                # Without a warm start, a result does not depend on the rows before it.
                self.problem.solve(
                    solver=self.cvxpy.CLARABEL, warm_start=False, **dict.fromkeys(names, tolerance)
                )
            except self.cvxpy.error.SolverError:
                return self.cvxpy.SOLVER_ERROR, 0
        return self.problem.status, self.problem.solver_stats.num_iters or 0
