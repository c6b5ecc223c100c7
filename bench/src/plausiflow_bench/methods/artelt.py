r"""ARTELT: the closest row of the target class of a linear model that is dense under a Gaussian mixture.

After Artelt and Hammer (2020). With logits :math:`z = W x + b`, there is one convex program for each
component of the target class's mixture, and the closest of the solutions is the result [PPCEF Eq. 5]:

.. math::
    \min_u \; d(x, \mu_j + L_j u) \quad\text{s.t.}\quad
    (w_i - w_{y'})^\top (\mu_j + L_j u) + b_i - b_{y'} + \epsilon \le 0 \;\; \forall i \ne y', \quad
    \lVert u \rVert_2 \le \sqrt{r_j}

with :math:`\Sigma_j = L_j L_j^\top`, so that no covariance is inverted. The program without the last
constraint is solved first; if its solution is dense, it is the result. Radii and mixtures are in
:mod:`plausiflow_bench.methods.artelt_program`. Clarabel solves the programs, through cvxpy, row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from plausiflow.core import Classifier, Plausibility, Solution, check_rows, l1_distance, l2_distance
from plausiflow.errors import MissingExtraError, NotFittedError
from plausiflow.methods import Method, log_odds
from plausiflow.models import LinearClassifier
from plausiflow.validation import raise_unless
from plausiflow_bench.methods.artelt_program import (
    Array,
    ConvexProgram,
    DenseRegion,
    Distance,
    Radii,
    learn_region,
)

UNCHANGED = 1e-7
"""A feature that an L1 program moves by less keeps its value: interior points only approach corners."""


@dataclass(kw_only=True, eq=False)
class Artelt(Method):
    r"""Convex programs under the ellipsoids of a Gaussian mixture; for linear classifiers.

    Attributes:
        distance: Distance that is minimised: ``l2``, as in the other methods, has a unique solution; ``l1``
            changes few features.
        margin: :math:`\epsilon`: lead in logits that the target class needs over every other class.
        quantile: Share of the target class's training rows that are less dense than required.
        radii: ``density`` requires that density; ``published`` repeats the published runs, whose ellipsoids
            are so large that they do not constrain the result.
        components: Candidate numbers of components, chosen by cross-validation in each class.
        regularisation: Added to the diagonals of covariances; None is 1e-6, and 1e-4 in classes with fewer
            rows than a mixture has parameters.
        lower: Smallest allowed value, for all features or one each ``(d,)``; a row outside keeps its own
            value as bound.
        upper: Largest allowed value, as ``lower``.
        random_state: Seed of the mixtures.

    Example:
        >>> x = torch.rand(200, 2); y = (x.sum(1) > 1).long()
        >>> method = Artelt(classifier=LinearClassifier().fit(x, y), components=[2]).fit(x, y)
        >>> method.explain(x[:5])
        Counterfactuals(5 rows, 5 found, 5 valid, 0 plausible)
    """

    label: ClassVar[str] = "ARTELT"

    distance: Distance = "l2"
    margin: float = 1e-3
    quantile: float = 0.5
    radii: Radii = "density"
    components: Sequence[int] = range(2, 10)
    regularisation: float | None = None
    lower: Tensor | float | None = None
    upper: Tensor | float | None = None
    random_state: int = 0
    regions_: dict[int, DenseRegion] = field(init=False, default_factory=dict, repr=False)
    varying_: Tensor | None = field(init=False, default=None, repr=False)
    _programs: dict[tuple[int, int | None], ConvexProgram] = field(
        init=False, default_factory=dict, repr=False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        requirements = {
            "distance": ("'l1' or 'l2'", self.distance in ("l1", "l2")),
            "radii": ("'density' or 'published'", self.radii in ("density", "published")),
            "quantile": ("in [0, 1]", 0 <= self.quantile <= 1),
            "margin": ("at least 0", self.margin >= 0),
            "components": ("numbers of at least 1", bool(self.components) and min(self.components) >= 1),
        }
        raise_unless(requirements, vars(self))

    @classmethod
    def paper(cls, *, classifier: Classifier, plausibility: Plausibility | None = None) -> Self:
        """Return the settings of the published runs: L1, and ellipsoids that do not constrain the result."""
        return cls(
            classifier=classifier,
            plausibility=plausibility,
            distance="l1",
            radii="published",
            regularisation=1e-6,
            random_state=42,
        )

    def unsupported(self) -> str | None:
        """Return why this classifier cannot be explained; None if it can."""
        if isinstance(self.classifier, LinearClassifier):
            return None
        return (
            "ARTELT needs a linear classifier, for which its programs are convex; this is a "
            f"{type(self.classifier).__name__}. No row is answered."
        )

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Learn each class's mixture, and which columns vary.

        A column that is constant over the training rows keeps its value and is not part of the density.
        """
        check_rows(x, y, n_classes=self.classifier.n_classes)
        self.regions_, self._programs = {}, {}
        exact, labels = x.detach().double().cpu(), y.cpu()
        self.varying_ = (exact != exact[:1]).any(dim=0).nonzero()[:, 0]
        if self.unsupported() is None and len(self.varying_):
            _import_cvxpy()  # raise for a missing extra before the mixtures are learned
            for k in labels.unique().tolist():
                self.regions_[k] = learn_region(
                    exact[labels == k][:, self.varying_],
                    components=self.components,
                    quantile=self.quantile,
                    radii=self.radii,
                    regularisation=self.regularisation,
                    random_state=self.random_state,
                )
        return self

    def search(self, x: Tensor, y_target: Tensor) -> Solution:
        """Solve the convex programs of every row."""
        exact, target = x.detach().double().cpu(), y_target.cpu()
        result, iterations = torch.full_like(exact, torch.nan), torch.zeros_like(target)
        rows = torch.arange(len(exact))
        for margin in (self.margin, 10 * self.margin):
            for k in target[rows].unique().tolist():
                members = rows[target[rows] == k]
                found = self._closest(k, exact[members], margin)
                result[members] = found.x
                iterations[members] += found.gradients
            # Rounding to the rows' precision may lose a small lead; such rows are repeated with a larger one.
            rounded = result.to(x.dtype).double()
            lost = self._lead(rounded.nan_to_num(), target) <= 0
            rows = (lost & torch.isfinite(rounded).all(dim=1)).nonzero()[:, 0]
        return Solution(x=result.to(x), gradients=iterations.to(y_target.device))

    def _closest(self, k: int, x: Tensor, margin: float) -> Solution:
        """Return the closest dense point of class k for each row; NaN if there is none."""
        if self.varying_ is None:
            raise NotFittedError("The mixtures are not known. Call `fit(x, y)` with training rows first.")
        result, iterations = torch.full_like(x, torch.nan), torch.zeros(len(x), dtype=torch.long)
        region = self.regions_.get(k)
        if region is None:
            return Solution(x=result, gradients=iterations)
        valid = self._lead(x, torch.full_like(iterations, k)) >= margin
        stays = valid & region.contains(x[:, self.varying_])
        result[stays] = x[stays]
        rows = (~stays).nonzero()[:, 0]
        closest = self._solve(k, None, x[rows], margin)
        result[rows], iterations[rows] = closest.x, closest.gradients
        dense = region.contains(closest.x.nan_to_num()[:, self.varying_])
        rows = rows[torch.isfinite(closest.x).all(dim=1) & ~dense]
        least = torch.full((len(rows),), torch.inf, dtype=x.dtype)
        result[rows] = torch.nan
        for component in (region.radii > 0).nonzero()[:, 0].tolist():
            found = self._solve(k, component, x[rows], margin)
            cost = (l1_distance if self.distance == "l1" else l2_distance)(found.x, x[rows])
            better = cost < least  # False without a solution, whose cost is NaN
            result[rows[better]], least[better] = found.x[better], cost[better]
            iterations[rows] += found.gradients
        return Solution(x=result, gradients=iterations)

    def _solve(self, k: int, component: int | None, x: Tensor, margin: float) -> Solution:
        """Solve the program of one component, or the one without density, for each row."""
        result, iterations = torch.full_like(x, torch.nan), torch.zeros(len(x), dtype=torch.long)
        if len(x) and (k, component) not in self._programs:
            self._programs[k, component] = self._compile(k, component, x.shape[1])
        lower, upper = self._bounds(x)
        for i, row in enumerate(x.numpy()):
            found, iterations[i] = self._programs[k, component].solve(row, margin, lower[i], upper[i])
            if found is not None:
                result[i] = torch.from_numpy(found)
        if self.distance == "l1":
            result = torch.where((result - x).abs() < UNCHANGED, x, result)
        return Solution(x=result, gradients=iterations)

    def _bounds(self, x: Tensor) -> tuple[Array, Array]:
        """Return the box of each row, widened to its values; a missing bound is not used by any program."""
        lower, upper = (
            x.new_tensor(0.0) if b is None else torch.as_tensor(b).to(x) for b in (self.lower, self.upper)
        )
        return torch.minimum(lower, x).numpy(), torch.maximum(upper, x).numpy()

    def _compile(self, k: int, component: int | None, n_features: int) -> ConvexProgram:
        assert self.varying_ is not None
        weight, bias = self._weights()
        others = [i for i in range(len(weight)) if i != k]
        return ConvexProgram(
            _import_cvxpy(),
            distance=self.distance,
            normals=(weight[others] - weight[k]).numpy(),
            offsets=(bias[others] - bias[k]).numpy(),
            varying=torch.eye(n_features, dtype=weight.dtype)[:, self.varying_].numpy(),
            ellipsoid=None if component is None else self.regions_[k].ellipsoid(component),
            bounded=(self.lower is not None, self.upper is not None),
        )

    def _weights(self) -> tuple[Tensor, Tensor]:
        assert isinstance(self.classifier, LinearClassifier)
        return self.classifier.weight.double().cpu(), self.classifier.bias.double().cpu()

    def _lead(self, x: Tensor, y_target: Tensor) -> Tensor:
        """Return the lead in logits of the target class over the strongest other class."""
        weight, bias = self._weights()
        return log_odds(x @ weight.T + bias, y_target)


def _import_cvxpy() -> Any:  # noqa: ANN401
    try:
        import cvxpy
    except ImportError as error:
        raise MissingExtraError("cvxpy", None, "ARTELT") from error
    return cvxpy
