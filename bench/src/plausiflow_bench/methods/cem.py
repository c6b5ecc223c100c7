r"""CEM: pertinent negatives of the contrastive explanation method (Dhurandhar et al., NeurIPS 2018).

For a row x of predicted class o, with a weight c that a bisection finds,

.. math::
    \min_{x'}\ c \max\bigl(p_o(x') - \max_{j \ne o} p_j(x') + \kappa,\ 0\bigr) + \beta \lVert x' - x \rVert_1
        + \lVert x' - x \rVert_2^2 + \gamma \lVert x' - \mathrm{AE}(x') \rVert_2^2

with AE an autoencoder of the training rows. For a target class t the hinge is on
:math:`\max_{j \ne t} p_j - p_t` instead. :class:`~plausiflow_bench.methods.fista.FISTA` solves the
problem, for CEGP as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from plausiflow.core import Classifier, Plausibility, RowFunction, Solution, predict
from plausiflow.errors import NotFittedError
from plausiflow.methods import BoxedMethod, column_medians
from plausiflow.validation import raise_unless, to_float
from plausiflow_bench.methods.autoencoder import Autoencoder
from plausiflow_bench.methods.elastic_net import ElasticNet, GapScale, decision_gap
from plausiflow_bench.methods.fista import FISTA


@dataclass(kw_only=True, eq=False)
class ElasticNetMethod(BoxedMethod):
    r"""Base class of CEM and CEGP: the hinge, the distances, the autoencoder.

    Attributes:
        margin: :math:`\kappa`: lead in probability that the target class needs.
        l1_weight: :math:`\beta`, weight of the L1 distance; the squared L2 distance has weight one.
        reconstruction_weight: :math:`\gamma`, weight of the autoencoder's error; if positive, ``fit`` trains
            an autoencoder.
        autoencoder: Settings of the autoencoder.
        scale: Whether the hinge compares logits, which have a gradient even where the model is certain, or
            probabilities. It is zero at the same points.
        any_class: Accept any class but the predicted one, whatever the target.
        solver: Settings of the solver.
    """

    margin: float = 0.02
    l1_weight: float = 0.1
    reconstruction_weight: float = 0.0
    autoencoder: Autoencoder = field(default_factory=Autoencoder)
    scale: GapScale = "logit"
    any_class: bool = False
    solver: FISTA = field(default_factory=FISTA)
    autoencoder_: Autoencoder | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        requirements = {
            "margin": ("in [0, 1)", 0 <= to_float(self.margin) < 1),
            "l1_weight": ("at least 0", to_float(self.l1_weight) >= 0),
            "reconstruction_weight": ("at least 0", to_float(self.reconstruction_weight) >= 0),
            "scale": ("'logit' or 'probability'", self.scale in ("logit", "probability")),
        }
        raise_unless(requirements, vars(self))

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Learn each feature's range from training rows ``(n, d)``, and train the autoencoder if needed."""
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
        """Return the part of the problem that both methods share."""
        # The published runs clip to the training range even if the factual is outside.
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
    r"""Contrastive explanations by pertinent negatives: what must be added for another decision.

    On tables, "adding" is defined by one neutral value per feature, from which the feature may only move
    away. By default there are no neutral values, and features move freely. With medians, 59 % of the rows of
    Audit reach another class under logistic models (97 to 100 % for the paper's other data sets), and changes
    are mostly 1.5 to 2 times as long.

    Attributes:
        no_information: Values that carry no information: the ``median`` or ``mean`` of the training rows, one
            value per feature ``(d,)``, or None. A feature may only change to values farther from it.

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
        expected = "'median', 'mean', one value for each feature or None"
        raise_unless({"no_information": (expected, known)}, vars(self))

    @classmethod
    def paper(cls, *, classifier: Classifier, plausibility: Plausibility | None = None) -> Self:
        """Return the settings of the published runs: no autoencoder, 5 rounds of 200 steps, a dead zone."""
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
        """Learn each feature's range and neutral value from training rows ``(n, d)``.

        If the reconstruction error has a weight, this also trains the autoencoder.
        """
        super().fit(x, y)
        if self.no_information == "mean":
            self.no_information_ = x.mean(dim=0)
        elif self.no_information == "median":
            self.no_information_ = column_medians(x)
        return self

    def search(self, x: Tensor, y_target: Tensor) -> Solution:
        """Solve the elastic net, with features restricted by their neutral values."""
        problem = self._problem(x, y_target)
        if self.no_information is not None:
            problem = replace(problem, restrict=self._restriction(problem.x.double()))
        return self.solver.solve(problem, n_classes=self.classifier.n_classes)

    def _restriction(self, x: Tensor) -> RowFunction:
        """Return a function that undoes changes which do not lead away from the neutral value."""
        given = self.no_information if isinstance(self.no_information, Tensor) else self.no_information_
        if given is None:
            raise NotFittedError(
                "The values without information are not known. Call `fit(x, y)` with training rows, or give "
                "them as `no_information`."
            )
        centre = given.to(x)
        reach = (x - centre).abs()

        def restrict(x_cf: Tensor, rows: Tensor) -> Tensor:
            return torch.where((x_cf - centre).abs() > reach[rows], x_cf, x[rows])

        return restrict
