r"""CEM: pertinent negatives of the contrastive explanation method (Dhurandhar et al., NeurIPS 2018).

For a row x that the model gives class o, with a weight c that a bisection finds,

.. math::
    \min_{x'}\ c \max\bigl(p_o(x') - \max_{j \ne o} p_j(x') + \kappa,\ 0\bigr) + \beta \lVert x' - x \rVert_1
        + \lVert x' - x \rVert_2^2 + \gamma \lVert x' - \mathrm{AE}(x') \rVert_2^2

with AE an autoencoder of the training rows. What is minimised for a wanted class t has
:math:`\max_{j \ne t} p_j - p_t` instead. The loop is :class:`~plausiflow.methods.reference.fista.FISTA`'s, and CEGP's
as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from plausiflow.core import Classifier, Plausibility, RowFunction, Solution, predict
from plausiflow.errors import NotFittedError
from plausiflow.methods.box import BoxedMethod
from plausiflow.methods.reference.autoencoder import Autoencoder
from plausiflow.methods.reference.elastic_net import ElasticNet, Scale, decision_gap
from plausiflow.methods.reference.fista import FISTA
from plausiflow.validation import raise_unless, to_float


@dataclass(kw_only=True, eq=False)
class ElasticNetMethod(BoxedMethod):
    r"""What CEM and CEGP share: the hinge, the distances, the autoencoder.

    Attributes:
        margin: :math:`\kappa`: the wanted class's probability must beat any other's by it.
        l1_weight: :math:`\beta`, of the city-block distance; the squared Euclidean distance has weight one.
        reconstruction_weight: :math:`\gamma`, of the autoencoder's error; above zero, ``fit`` trains one.
        autoencoder: How it is trained.
        scale: Whether the hinge compares logits, which point somewhere even where the model is certain, or
            probabilities. It is zero at the same points.
        any_class: Go to any other class than the predicted one, whatever class was asked for.
        solver: Settings of the loop.
    """

    margin: float = 0.02
    l1_weight: float = 0.1
    reconstruction_weight: float = 0.0
    autoencoder: Autoencoder = field(default_factory=Autoencoder)
    scale: Scale = "logit"
    any_class: bool = False
    solver: FISTA = field(default_factory=FISTA)
    autoencoder_: Autoencoder | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        fine = {
            "margin": ("in [0, 1)", 0 <= to_float(self.margin) < 1),
            "l1_weight": ("at least 0", to_float(self.l1_weight) >= 0),
            "reconstruction_weight": ("at least 0", to_float(self.reconstruction_weight) >= 0),
            "scale": ("'logit' or 'probability'", self.scale in ("logit", "probability")),
        }
        raise_unless(fine, {name: getattr(self, name) for name in fine})

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Learn each feature's range from training rows ``(n, d)``, and what else the settings need."""
        super().fit(x, y)
        if self._needs_autoencoder():
            self.autoencoder_ = replace(self.autoencoder).fit(x)
        return self

    def _needs_autoencoder(self) -> bool:
        return self.reconstruction_weight > 0

    def _fitted_autoencoder(self) -> Autoencoder:
        if self.autoencoder_ is None:
            raise NotFittedError("There is no autoencoder yet. Call `fit(x, y)` with training rows first.")
        return self.autoencoder_

    def _problem(self, x: Tensor, y_target: Tensor) -> ElasticNet:
        """The part of the problem that the methods share."""
        # The published runs clip to the training range even where a row lies outside.
        lower, upper = self.box(x, widened=self.solver.prox == "ista")
        y = predict(self.classifier, x.double()) if self.any_class else y_target
        margin, scale, away = self.margin, self.scale, self.any_class

        def gap(x_cf: Tensor, rows: Tensor) -> Tensor:
            return decision_gap(self.classifier.logits(x_cf), y[rows], margin, scale=scale, away=away)

        return ElasticNet(
            x=x.detach(),
            lower=lower.detach(),
            upper=upper.detach(),
            l1_weight=self.l1_weight,
            gap=gap,
            smooth=self._reconstruction() if self.reconstruction_weight > 0 else None,
            curvature=2 * (1 + self.reconstruction_weight),
        )

    def _reconstruction(self) -> RowFunction:
        autoencoder = self._fitted_autoencoder()
        return lambda x_cf, _: self.reconstruction_weight * autoencoder.error(x_cf)


@dataclass(kw_only=True, eq=False)
class CEM(ElasticNetMethod):
    r"""Contrastive explanations: what would have to be there for another decision, and is not.

    A pertinent negative only adds to a row. On tables, what "adding" means is told by values that carry no
    information, one for each feature: a feature may only move away from its value. By default there are none,
    and features move freely: with medians, logistic models of the paper's data sets are left by 59 % of the
    rows of Audit (97 to 100 % of the others), and changes are mostly one and a half to two times as long.

    Attributes:
        no_information: Values that carry no information: the training rows' ``median`` or ``mean``, one value
            for each feature ``(d,)``, or nothing. A feature changes only to values farther from it than its
            own.

    Example:
        >>> from plausiflow.models import LinearClassifier
        >>> x = torch.rand(200, 2); y = (x[:, 0] > 0.5).long()
        >>> model = LinearClassifier.from_weights(torch.tensor([[9.0, 1.0]]), torch.tensor([-5.0]))
        >>> CEM(classifier=model).fit(x, y).explain(x[:5])
        Counterfactuals(5 rows, 5 found, 5 valid, 0 plausible)
    """

    label: ClassVar[str] = "CEM"

    no_information: Literal["median", "mean"] | Tensor | None = None
    no_information_: Tensor | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        given = self.no_information
        known = given is None or isinstance(given, Tensor) or given in ("median", "mean")
        raise_unless(
            {"no_information": ("'median', 'mean', one value for each feature or None", known)},
            {"no_information": given},
        )

    @classmethod
    def paper(cls, *, classifier: Classifier, plausibility: Plausibility | None = None) -> Self:
        """As the published runs: no autoencoder, five rounds of 200 steps, thresholds as a dead zone."""
        return cls(
            classifier=classifier,
            plausibility=plausibility,
            margin=0.2,
            l1_weight=0.1,
            scale="probability",
            any_class=True,
            no_information="median",
            solver=FISTA.paper(rounds=5, steps=200, first_weight=10.0),
        )

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Learn each feature's range and value without information from training rows ``(n, d)``.

        The autoencoder, too, where its error has a weight.
        """
        super().fit(x, y)
        if self.no_information == "mean":
            self.no_information_ = x.mean(dim=0)
        elif self.no_information == "median":
            ordered = x.sort(dim=0).values
            self.no_information_ = (ordered[(len(x) - 1) // 2] + ordered[len(x) // 2]) / 2
        return self

    def search(self, x: Tensor, y_target: Tensor) -> Solution:
        problem = self._problem(x, y_target)
        if self.no_information is not None:
            problem = replace(problem, restrict=self._restriction(problem.x.double()))
        return self.solver.solve(problem, n_classes=self.classifier.n_classes)

    def _restriction(self, x: Tensor) -> RowFunction:
        """Take back changes of features that did not move away from their value without information."""
        given = self.no_information if isinstance(self.no_information, Tensor) else self.no_information_
        if given is None:
            raise NotFittedError(
                "The values without information are not known. Call `fit(x, y)` with training rows, or give "
                "them as `no_information`."
            )
        centre = given.to(x)
        reach = (x - centre).abs()

        def restricted(x_cf: Tensor, rows: Tensor) -> Tensor:
            return torch.where((x_cf - centre).abs() > reach[rows], x_cf, x[rows])

        return restricted
