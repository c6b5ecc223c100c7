r"""ARTELT: the closest row that a linear model decides as wanted and a Gaussian mixture finds dense enough.

After Artelt and Hammer (2020). With logits :math:`z = W x + b`, one convex program for each component of the
wanted class's mixture, of which the closest solution is taken [PPCEF Eq. 5]:

.. math::
    \min_u \; d(x, \mu_j + L_j u) \quad\text{s.t.}\quad
    (w_i - w_{y'})^\top (\mu_j + L_j u) + b_i - b_{y'} + \epsilon \le 0 \;\; \forall i \ne y', \quad
    \lVert u \rVert_2 \le \sqrt{r_j}

with :math:`\Sigma_j = L_j L_j^\top`, so that no covariance is ever inverted. The program without the last
constraint comes first: where its solution is dense already, it is the answer. Radii and mixtures are in
:mod:`plausiflow.methods.reference.artelt_program`; Clarabel solves the programs, through cvxpy, one row after the
other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from plausiflow.core import Classifier, Plausibility, Solution, check_rows, l1_distance, l2_distance
from plausiflow.errors import InvalidInputError, MissingExtraError, NotFittedError
from plausiflow.methods.base import Method
from plausiflow.methods.reference.artelt_program import Array, Distance, Program, Radii, Region, learn_region
from plausiflow.models import LinearClassifier

UNCHANGED = 1e-7
"""A feature that an L1 program moves by less is left as it was: interior points only come near corners."""


@dataclass(kw_only=True, eq=False)
class Artelt(Method):
    r"""Convex programs under the ellipsoids of a Gaussian mixture; for linear classifiers.

    Attributes:
        distance: What is minimised: ``l2``, as the other methods do, has one solution; ``l1`` changes few
            features.
        margin: :math:`\epsilon`: how far, in logits, the wanted class must be ahead of every other.
        quantile: Share of the wanted class's training rows that are less dense than is asked for.
        radii: ``density`` asks for that density; ``published`` repeats the published runs, whose ellipsoids
            are so large that they ask for nothing.
        components: Numbers of components to choose from, by cross-validation in each class.
        regularisation: Added to the covariances' diagonals; nothing takes 1e-6, and 1e-4 in classes with
            fewer rows than a mixture has parameters.
        lower: Smallest allowed value, for all features or one each ``(d,)``; a row outside keeps its own
            value as bound.
        upper: Largest allowed value, likewise.
        seed: Of the mixtures.

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
    seed: int = 0
    regions_: dict[int, Region] = field(init=False, default_factory=dict, repr=False)
    varying_: Tensor | None = field(init=False, default=None, repr=False)
    _programs: dict[tuple[int, int | None], Program] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        problems = []
        if self.distance not in ("l1", "l2"):
            problems.append(f"`distance` must be 'l1' or 'l2'; got {self.distance!r}")
        if self.radii not in ("density", "published"):
            problems.append(f"`radii` must be 'density' or 'published'; got {self.radii!r}")
        if not 0 <= self.quantile <= 1:
            problems.append(f"`quantile` must be in [0, 1]; got {self.quantile}")
        if not self.margin >= 0:
            problems.append(f"`margin` must not be negative; got {self.margin}")
        if not self.components or min(self.components) < 1:
            problems.append(f"`components` must name numbers of at least 1; got {self.components}")
        if problems:
            raise InvalidInputError("; ".join(problems) + ".")

    @classmethod
    def paper(cls, *, classifier: Classifier, plausibility: Plausibility | None = None) -> Self:
        """As the published runs: L1, and ellipsoids so large that the density constraint is void."""
        return cls(
            classifier=classifier,
            plausibility=plausibility,
            distance="l1",
            radii="published",
            regularisation=1e-6,
            seed=42,
        )

    def unsupported(self) -> str | None:
        """Why this classifier cannot be explained; nothing where it can."""
        if isinstance(self.classifier, LinearClassifier):
            return None
        return (
            "ARTELT needs a linear classifier, for which its programs are convex; this is a "
            f"{type(self.classifier).__name__}. No row is answered."
        )

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Learn each class's mixture, and which columns vary at all.

        A column that is constant over the training rows keeps its value and has no part in the density.
        """
        check_rows(x, y, n_classes=self.classifier.n_classes)
        self.regions_, self._programs = {}, {}
        exact, labels = x.detach().double().cpu(), y.cpu()
        self.varying_ = (exact != exact[:1]).any(dim=0).nonzero()[:, 0]
        if self.unsupported() is None and len(self.varying_):
            _cvxpy()  # missing: better said now than after the mixtures
            for k in labels.unique().tolist():
                self.regions_[k] = learn_region(
                    exact[labels == k][:, self.varying_],
                    components=self.components,
                    quantile=self.quantile,
                    radii=self.radii,
                    regularisation=self.regularisation,
                    seed=self.seed,
                )
        return self

    def search(self, x: Tensor, y_target: Tensor) -> Solution:
        exact, wanted = x.detach().double().cpu(), y_target.cpu()
        answer, iterations = torch.full_like(exact, torch.nan), torch.zeros_like(wanted)
        rows = torch.arange(len(exact))
        for margin in (self.margin, 10 * self.margin):
            for k in wanted[rows].unique().tolist():
                members = rows[wanted[rows] == k]
                found = self._closest(k, exact[members], margin)
                answer[members] = found.x
                iterations[members] += found.gradients
            # Rounding to the rows' own precision may cost a narrow victory: once more, with a wider one.
            rounded = answer.to(x.dtype).double()
            lost = self._lead(rounded.nan_to_num(), wanted) <= 0
            rows = (lost & torch.isfinite(rounded).all(dim=1)).nonzero()[:, 0]
        return Solution(x=answer.to(x), gradients=iterations.to(y_target.device))

    def _closest(self, k: int, x: Tensor, margin: float) -> Solution:
        """The closest point of class k that is dense enough, for each row: NaN where there is none."""
        if self.varying_ is None:
            raise NotFittedError("The mixtures are not known. Call `fit(x, y)` with training rows first.")
        answer, iterations = torch.full_like(x, torch.nan), torch.zeros(len(x), dtype=torch.long)
        region = self.regions_.get(k)
        if region is None:
            return Solution(x=answer, gradients=iterations)
        ahead = self._lead(x, torch.full_like(iterations, k)) >= margin
        stays = ahead & region.contains(x[:, self.varying_])
        answer[stays] = x[stays]
        rows = (~stays).nonzero()[:, 0]
        valid = self._solve(k, None, x[rows], margin)
        answer[rows], iterations[rows] = valid.x, valid.gradients
        dense = region.contains(valid.x.nan_to_num()[:, self.varying_])
        rows = rows[torch.isfinite(valid.x).all(dim=1) & ~dense]
        least = torch.full((len(rows),), torch.inf, dtype=x.dtype)
        answer[rows] = torch.nan
        for component in (region.radii > 0).nonzero()[:, 0].tolist():
            found = self._solve(k, component, x[rows], margin)
            cost = (l1_distance if self.distance == "l1" else l2_distance)(found.x, x[rows])
            better = cost < least  # not where there is no solution, whose cost is NaN
            answer[rows[better]], least[better] = found.x[better], cost[better]
            iterations[rows] += found.gradients
        return Solution(x=answer, gradients=iterations)

    def _solve(self, k: int, component: int | None, x: Tensor, margin: float) -> Solution:
        """The program of one component, or the one without density, solved for each row."""
        answer, iterations = torch.full_like(x, torch.nan), torch.zeros(len(x), dtype=torch.long)
        if len(x) and (k, component) not in self._programs:
            self._programs[k, component] = self._compile(k, component, x.shape[1])
        lower, upper = self._bounds(x)
        for i, row in enumerate(x.numpy()):
            found, spent = self._programs[k, component].solve(row, margin, lower[i], upper[i])
            iterations[i] = spent
            if found is not None:
                answer[i] = torch.from_numpy(found)
        if self.distance == "l1":
            answer = torch.where((answer - x).abs() < UNCHANGED, x, answer)
        return Solution(x=answer, gradients=iterations)

    def _bounds(self, x: Tensor) -> tuple[Array, Array]:
        """The box of each row, widened to its own values; without one, bounds that no program has."""
        lower, upper = (
            x.new_tensor(0.0) if b is None else torch.as_tensor(b).to(x) for b in (self.lower, self.upper)
        )
        return torch.minimum(lower, x).numpy(), torch.maximum(upper, x).numpy()

    def _compile(self, k: int, component: int | None, n_features: int) -> Program:
        assert self.varying_ is not None
        weight, bias = self._affine()
        others = [i for i in range(len(weight)) if i != k]
        return Program(
            _cvxpy(),
            distance=self.distance,
            normals=(weight[others] - weight[k]).numpy(),
            offsets=(bias[others] - bias[k]).numpy(),
            varying=torch.eye(n_features, dtype=weight.dtype)[:, self.varying_].numpy(),
            ellipsoid=None if component is None else self.regions_[k].ellipsoid(component),
            bounded=(self.lower is not None, self.upper is not None),
        )

    def _affine(self) -> tuple[Tensor, Tensor]:
        assert isinstance(self.classifier, LinearClassifier)
        return self.classifier.weight.double().cpu(), self.classifier.bias.double().cpu()

    def _lead(self, x: Tensor, wanted: Tensor) -> Tensor:
        """How far, in logits, the wanted class is ahead of the strongest other one."""
        weight, bias = self._affine()
        logits = x @ weight.T + bias
        own = logits.gather(1, wanted[:, None])
        return (own - logits.scatter(1, wanted[:, None], -torch.inf)).amin(dim=1)


def _cvxpy() -> Any:  # noqa: ANN401
    try:
        import cvxpy
    except ImportError as error:
        raise MissingExtraError("cvxpy", "artelt", "ARTELT") from error
    return cvxpy
