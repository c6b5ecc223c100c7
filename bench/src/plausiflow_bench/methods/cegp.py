r"""CEGP: counterfactuals guided by prototypes (Van Looveren and Klaise, ECML PKDD 2021).

CEM's objective (:mod:`plausiflow_bench.methods.cem`) with unrestricted features and one more term:

.. math:: \theta \lVert E(x') - \mathrm{proto} \rVert_2^2

The prototype represents the target class. Without an encoder, E(x) = x and it is the k-th nearest training
row of that class; with one, it is the mean code of the k nearest rows, or of all. The class of a training row
is the one that the model predicts. If any other class is accepted, the prototype is that of the nearest
class. If no training row is predicted as the target class, there is no prototype and no such term.

The published runs did not use prototypes: :math:`\theta = 0` (``CEGP.paper``).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from scipy.spatial import cKDTree
from torch import Tensor

from plausiflow.core import Classifier, Plausibility, RowFunction, Solution, predict
from plausiflow.errors import NotFittedError
from plausiflow.validation import is_whole, raise_unless, to_float
from plausiflow_bench.methods.cem import ElasticNetMethod
from plausiflow_bench.methods.elastic_net import ElasticNet
from plausiflow_bench.methods.fista import FISTA

_EPSILON = 1e-10  # keeps the trust score finite at a training row


class ClassRows:
    """Training rows, or their codes, by class, with one k-d tree per class.

    Args:
        points: The rows, shape ``(n, q)``.
        y: Their classes, shape ``(n,)``.
    """

    def __init__(self, points: Tensor, y: Tensor) -> None:
        self.points = {int(c): points[y == c].double().cpu().numpy() for c in y.unique()}
        self.trees = {c: cKDTree(points, leafsize=40) for c, points in self.points.items()}

    def prototypes(self, x: Tensor, allowed: Tensor, *, k: int | None, mean: bool) -> Tensor:
        """Return the prototype of each point's nearest allowed class; NaN if no allowed class has rows.

        Args:
            x: Points, shape ``(m, q)``.
            allowed: Allowed classes, shape ``(m, classes)`` bool.
            k: Number of neighbours in a class; None uses the whole class.
            mean: Whether to use the mean of the neighbours and of their distances, instead of the k-th.
        """
        found, nearest = torch.full_like(x, torch.nan), x.new_full((len(x),), torch.inf)
        for c in self.trees:
            rows = allowed[:, c].nonzero()[:, 0]
            if len(rows):
                point, distance = self._prototype(c, x[rows], k, mean=mean)
                closer = distance < nearest[rows]
                found[rows[closer]], nearest[rows[closer]] = point[closer], distance[closer]
        return found

    def distance(self, x: Tensor, y: Tensor) -> Tensor:
        """Return distances of points ``(m, q)`` to the nearest row of classes ``(m,)``; infinite if none."""
        distance = x.new_full((len(x),), torch.inf)
        for c in set(y.tolist()) & set(self.trees):
            distance[y == c] = self._prototype(c, x[y == c], 1, mean=False)[1]
        return distance

    def _prototype(self, c: int, x: Tensor, k: int | None, *, mean: bool) -> tuple[Tensor, Tensor]:
        points = self.points[c]
        if k is None:
            centre = torch.from_numpy(points.mean(axis=0)).to(x)
            return centre.expand_as(x), (x - centre).norm(dim=1)
        neighbours = range(1, min(k, len(points)) + 1)
        distance, which = self.trees[c].query(x.detach().cpu().numpy(), k=neighbours)
        point = points[which]
        point, distance = (v.mean(axis=1) if mean else v[:, -1] for v in (point, distance))
        return torch.from_numpy(point).to(x), torch.from_numpy(distance).to(x)


@dataclass(kw_only=True, eq=False)
class CEGP(ElasticNetMethod):
    r"""Counterfactuals guided by prototypes.

    Attributes:
        prototype_weight: :math:`\theta`.
        prototypes: Nearest rows themselves (``kdtree``), or mean codes of an autoencoder (``encoder``), which
            ``fit`` trains.
        neighbours: k; a class with fewer rows uses its farthest. None, for encoders only, is the mean of all
            codes of a class.
        trust: Minimum trust score of a counterfactual: its distance to the nearest row of the original class,
            divided by the distance to the nearest row of the new class; zero disables the check.

    Example:
        >>> from plausiflow.models import LinearClassifier
        >>> x = torch.rand(200, 2); y = (x[:, 0] > 0.5).long()
        >>> model = LinearClassifier.from_weights(torch.tensor([[9.0, 1.0]]), torch.tensor([-5.0]))
        >>> CEGP(classifier=model).fit(x, y).explain(x[:5])
        Counterfactuals(5 rows, 5 found, 5 valid, 0 plausible)
    """

    label: ClassVar[str] = "CEGP"

    prototype_weight: float = 10.0
    prototypes: Literal["kdtree", "encoder"] = "kdtree"
    neighbours: int | None = 1
    trust: float = 0.0
    rows_: ClassRows | None = field(init=False, default=None, repr=False)
    codes_: ClassRows | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.neighbours is None:
            neighbours = self.prototypes == "encoder"
        else:
            neighbours = is_whole(self.neighbours) and self.neighbours >= 1
        requirements = {
            "prototype_weight": ("at least 0", to_float(self.prototype_weight) >= 0),
            "prototypes": ("'kdtree' or 'encoder'", self.prototypes in ("kdtree", "encoder")),
            "neighbours": ("a whole number of at least 1, or None for encoders", neighbours),
            "trust": ("at least 0", to_float(self.trust) >= 0),
        }
        raise_unless(requirements, vars(self))

    @classmethod
    def paper(cls, *, classifier: Classifier, plausibility: Plausibility | None = None) -> Self:
        """Return the settings of the published runs: no prototypes, 5 rounds of 500 steps, a dead zone."""
        # Deviation: the method is named after its prototypes; the published runs gave them no weight.
        return cls(
            classifier=classifier,
            plausibility=plausibility,
            margin=0.0,
            l1_weight=0.01,
            scale="probability",
            any_class=True,
            prototype_weight=0.0,
            solver=FISTA.paper(rounds=5, steps=500, first_weight=1.0),
        )

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Learn each feature's range, and group the rows ``(n, d)`` by the class that the model predicts."""
        super().fit(x, y)
        if self.prototype_weight > 0 or self.trust > 0:
            exact = x.double()
            predicted = predict(self.classifier, exact)
            self.rows_ = self.codes_ = ClassRows(exact, predicted)
            if self._encodes():
                with torch.no_grad():
                    self.codes_ = ClassRows(self._code(exact), predicted)
        return self

    def _encodes(self) -> bool:
        return self.prototypes == "encoder" and self.prototype_weight > 0

    def _needs_autoencoder(self) -> bool:
        return super()._needs_autoencoder() or self._encodes()

    def _code(self, x: Tensor) -> Tensor:
        return self._fitted_autoencoder().encode(x) if self._encodes() else x

    def search(self, x: Tensor, y_target: Tensor) -> Solution:
        """Solve the elastic net with prototypes."""
        problem = self._problem(x, y_target)
        if self.prototype_weight > 0 or self.trust > 0:
            if self.rows_ is None or self.codes_ is None:
                raise NotFittedError(
                    "The prototypes are not known. Call `fit(x, y)` with training rows first."
                )
            y = predict(self.classifier, x.double())
            if self.prototype_weight > 0:
                problem = replace(
                    problem,
                    smooth=self._prototype_term(problem, y, y_target, self.codes_),
                    curvature=problem.curvature + 2 * self.prototype_weight,
                )
            if self.trust > 0:
                problem = replace(problem, accept=self._trust_check(y, self.rows_))
        return self.solver.solve(problem, n_classes=self.classifier.n_classes)

    def _prototype_term(
        self, problem: ElasticNet, y: Tensor, y_target: Tensor, codes: ClassRows
    ) -> RowFunction:
        """Return the smooth terms with the distance to the prototype."""
        named = F.one_hot(y if self.any_class else y_target, self.classifier.n_classes).bool()
        with torch.no_grad():
            code = self._code(problem.x.double())
        prototype = codes.prototypes(
            code, ~named if self.any_class else named, k=self.neighbours, mean=self._encodes()
        )
        weight = self.prototype_weight * torch.isfinite(prototype).all(dim=1).double()
        prototype = prototype.nan_to_num()

        def smooth(x_cf: Tensor, rows: Tensor) -> Tensor:
            pull = weight[rows] * (self._code(x_cf) - prototype[rows]).square().sum(dim=1)
            return pull if problem.smooth is None else pull + problem.smooth(x_cf, rows)

        return smooth

    def _trust_check(self, y: Tensor, known: ClassRows) -> RowFunction:
        """Return whether points are nearer to their new class than to the original one, by the score."""

        def trusted(x_cf: Tensor, rows: Tensor) -> Tensor:
            reached = known.distance(x_cf, predict(self.classifier, x_cf))
            return known.distance(x_cf, y[rows]) / (reached + _EPSILON) > self.trust

        return trusted
