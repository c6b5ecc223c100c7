"""PPCEF: the closest row that the model decides as wanted and whose density is high enough. [PPCEF Eq. 3]

The same problem is handed to either solver: as constraints to :class:`~plausiflow.solvers.SQP` (the default),
as the paper's penalties to :class:`~plausiflow.solvers.PenaltyAdam` (``PPCEF.paper``).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from plausiflow.core import (
    Classifier,
    Constraint,
    Density,
    HasValueAndGrad,
    Plausibility,
    Problem,
    RowFunction,
    RowValueAndGrad,
    Solution,
    Solver,
    Starts,
    check_rows,
    cross_entropy,
    multiclass_validity_hinge,
    predict,
    published_logit_hinge,
    validity_hinge,
    validity_value,
    validity_value_and_grad,
)
from plausiflow.densities import (
    ARCHITECTURES,
    Architecture,
    ConditionalFlow,
    CrossFitEnsemble,
    RowScores,
    Thresholded,
    calibrate,
    row_value_and_grad,
    scorer_of,
)
from plausiflow.errors import InvalidInputError, NotFittedError
from plausiflow.methods.base import Method
from plausiflow.models import LinearClassifier
from plausiflow.solvers import SQP, Bank, PenaltyAdam

VALIDITY_AIM, PLAUSIBILITY_AIM = 1e-3, 5e-3
"""How far inside its constraints (in logits, in nats) the search steers."""


@dataclass(kw_only=True, eq=False)
class PPCEF(Method):
    r"""Probabilistically plausible counterfactuals.

    Attributes:
        plausibility: How dense a counterfactual must be: a quantile of the log-densities of held-out rows of
            the wanted class (0.5: denser than half of them), or a fitted plausibility of your own.
        confidence: Share of the counterfactuals that a flow which did not guide the search must accept, too;
            nothing asks for no second opinion.
        density: What ``fit`` learns where ``plausibility`` is a quantile: the cross-fitted ``ensemble``, one
            flow by its architecture (``maf``, ``nsf``, ``realnvp``, ``nice``), or a density of your own (an
            ensemble that is already fitted is only calibrated).
        seed: Of what is learned.
        margin: :math:`\epsilon`: the wanted class must reach probability :math:`0.5 + \epsilon` (two classes)
            or beat the strongest rival by it (more classes).
        solver: How the problem is solved.
        validity_loss: The validity loss of solvers that descend on penalties: the paper's ``hinge``, the
            ``cross_entropy`` of its ablation, or ``published``, the hinge on logits of its multiclass runs.
        lower: Smallest allowed value, for all features or one each ``(d,)``; a row outside keeps its own
            value as bound.
        upper: Largest allowed value, likewise.
        immutable: Columns that keep their value exactly.
        increasing: Columns that may only grow.
        decreasing: Columns that may only shrink.
        weights: Cost per feature ``(d,)``: changing a feature with a larger weight is dearer.
        neighbours: How many feasible training rows a search may start from.

    Example:
        >>> from plausiflow.models import LinearClassifier
        >>> from plausiflow.densities import KDE, Thresholded
        >>> x = torch.rand(200, 2); y = (x.sum(1) > 1).long()
        >>> model = LinearClassifier().fit(x, y)
        >>> plausibility = Thresholded(density=KDE().fit(x, y)).fit(x, y)
        >>> method = PPCEF(classifier=model, plausibility=plausibility).fit(x, y)
        >>> result = method.explain(x[:5])
        >>> bool(result.feasible.all())
        True
    """

    label: ClassVar[str] = "PPCEF"

    plausibility: Plausibility | float | None = 0.5
    confidence: float | None = 0.95
    density: Literal["ensemble"] | Architecture | Density = "ensemble"
    seed: int = 0
    margin: float = 0.02
    solver: Solver = field(default_factory=SQP)
    validity_loss: Literal["hinge", "cross_entropy", "published"] = "hinge"
    lower: Tensor | float | None = None
    upper: Tensor | float | None = None
    immutable: tuple[int, ...] = ()
    increasing: tuple[int, ...] = ()
    decreasing: tuple[int, ...] = ()
    weights: Tensor | None = None
    neighbours: int = 3
    plausibility_: Plausibility | None = field(init=False, default=None, repr=False)
    bank_: Bank | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        problems = []
        if isinstance(self.plausibility, int | float) and not 0 <= self.plausibility <= 1:
            problems.append(f"`plausibility` must be a quantile in [0, 1]; got {self.plausibility}")
        if self.confidence is not None and not 0 < self.confidence < 1:
            problems.append(f"`confidence` must be a share between 0 and 1; got {self.confidence}")
        if isinstance(self.density, str) and self.density not in ("ensemble", *ARCHITECTURES):
            problems.append(
                f"`density` must be one of ensemble, {', '.join(ARCHITECTURES)}; got {self.density!r}"
            )
        if not 0 <= self.margin < 0.5:
            problems.append(f"`margin` must be in [0, 0.5); got {self.margin}")
        twice = set(self.increasing) & set(self.decreasing)
        if twice:
            problems.append(
                f"columns {sorted(twice)} cannot be increasing and decreasing; make them `immutable`"
            )
        if self.weights is not None and not bool((self.weights > 0).all()):
            problems.append("`weights` must all be positive; put columns that may not move into `immutable`")
        if self.plausibility is None:
            problems.append("`plausibility` is needed: a quantile such as 0.5, or a fitted plausibility")
        if problems:
            raise InvalidInputError("; ".join(problems) + ".")

    @classmethod
    def paper(
        cls, *, classifier: Classifier, plausibility: Plausibility, binary_linear: bool | None = None
    ) -> Self:
        """As the published runs: Adam for 1,000 or 2,000 steps, last iterate, no box.

        The validity loss is the logit hinge unless the model is binary logistic, as ``binary_linear`` says or
        else the model itself.
        """
        if binary_linear is None:
            binary_linear = isinstance(classifier, LinearClassifier) and classifier.n_classes == 2
        return cls(
            classifier=classifier,
            plausibility=plausibility,
            solver=PenaltyAdam.paper(binary_linear=binary_linear),
            validity_loss="hinge" if binary_linear else "published",
        )

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Learn the density and how far inside it to stay; keep the training rows that satisfy everything.

        These rows are the bank thanks to which no row comes back empty. A plausibility of your own is used as
        it is.
        """
        check_rows(x, y, n_classes=self.classifier.n_classes)
        if isinstance(self.plausibility, int | float):
            absent = sorted(set(range(self.classifier.n_classes)) - set(y.unique().tolist()))
            if absent:
                raise InvalidInputError(
                    f"`y` must hold rows of all {self.classifier.n_classes} classes that the classifier "
                    f"knows, so that each has a density; there are none of {', '.join(map(str, absent))}. "
                    "Add such rows, or give a fitted `plausibility`."
                )
            self.plausibility_ = self._learn_plausibility(x, y, float(self.plausibility))
        self.bank_ = Bank.of(x, self.classifier.n_classes, self._feasible)
        return self

    def _learn_plausibility(self, x: Tensor, y: Tensor, quantile: float) -> Plausibility:
        density = self.density
        if density == "ensemble":
            density = CrossFitEnsemble(seed=self.seed)
        if isinstance(density, CrossFitEnsemble):
            fitted = density if density.flows_ else replace(density, quantile=quantile).fit(x, y)
            return self._calibrated(fitted, x)
        if isinstance(density, str):
            density = ConditionalFlow(architecture=density, seed=self.seed)
        return Thresholded(density=density.fit(x, y), quantile=quantile).fit(x, y)

    def _calibrated(self, ensemble: CrossFitEnsemble, x: Tensor) -> CrossFitEnsemble:
        self.plausibility_ = ensemble
        if self.confidence is not None:
            calibrate(
                ensemble,
                x,
                predict(self.classifier, x.double()),
                validity=self._validity,
                search=self._guided,
                confidence=self.confidence,
                seed=self.seed,
            )
        return ensemble

    def _guided(self, x: Tensor, y_target: Tensor, guide: RowScores, bank: dict[int, Tensor]) -> Tensor:
        """A search under a guide of its own, for the calibration."""
        problem = self._problem(x, y_target)
        constraints = {
            **problem.constraints,
            "plausibility": Constraint(guide.score, PLAUSIBILITY_AIM),
        }
        real = Bank(bank)

        def starts(rows: Tensor) -> Tensor:
            lower, upper = (None if b is None else b[rows] for b in (problem.lower, problem.upper))
            return real.nearest(x[rows], y_target[rows], count=3, lower=lower, upper=upper)

        solver = self.solver if isinstance(self.solver, SQP) else SQP()
        return solver.solve(replace(problem, constraints=constraints), starts).x

    def scored_by(self) -> Plausibility:
        """The plausibility given, or the one that ``fit`` has learned."""
        if self.plausibility is not None and not isinstance(self.plausibility, int | float):
            return self.plausibility
        if self.plausibility_ is None:
            raise NotFittedError(
                "This method has not learned a density. Call `fit(x, y)` with training rows first."
            )
        return self.plausibility_

    def _search(self, x: Tensor, y_target: Tensor) -> Solution:
        return self.solver.solve(
            self._problem(x, y_target), self._starts(x, y_target) if self.bank_ is not None else None
        )

    def _problem(self, x: Tensor, y_target: Tensor) -> Problem:
        lower, upper = self._bounds(x)
        score = scorer_of(self.scored_by(), y_target)
        constraints = {
            "validity": Constraint(
                lambda x_cf, rows: self._validity(x_cf, y_target[rows]),
                VALIDITY_AIM,
                self._validity_slope(y_target),
            ),
            "plausibility": Constraint(
                score, PLAUSIBILITY_AIM, row_value_and_grad(self.scored_by(), y_target)
            ),
        }
        penalties: dict[str, RowFunction] = {
            "validity": lambda x_cf, rows: self._validity_loss(x_cf, y_target[rows]),
            "plausibility": lambda x_cf, rows: (-score(x_cf, rows)).clamp_min(0),
        }
        weights = None if self.weights is None else self.weights.to(x)
        return Problem(
            x=x, constraints=constraints, penalties=penalties, lower=lower, upper=upper, weights=weights
        )

    def _validity(self, x_cf: Tensor, y_target: Tensor) -> Tensor:
        return validity_value(self.classifier.logits(x_cf), y_target, self.margin)

    def _validity_slope(self, y_target: Tensor) -> RowValueAndGrad | None:
        """The same with its gradient, of a classifier that knows its own without a graph."""
        classifier = self.classifier
        if not isinstance(classifier, HasValueAndGrad):
            return None

        def slope(x_cf: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            logits, pulled_back = classifier.value_and_grad(x_cf)
            value, shares = validity_value_and_grad(logits, y_target[rows], self.margin)
            return value, pulled_back(shares)

        return slope

    def _score(self, x_cf: Tensor, y_target: Tensor) -> Tensor:
        return self.scored_by().score(x_cf, y_target)

    def _validity_loss(self, x_cf: Tensor, y_target: Tensor) -> Tensor:
        logits = self.classifier.logits(x_cf)
        if self.validity_loss == "cross_entropy":
            return cross_entropy(logits, y_target)
        if self.validity_loss == "published":
            return published_logit_hinge(logits, y_target, self.margin)
        hinge = validity_hinge if logits.shape[1] == 2 else multiclass_validity_hinge
        return hinge(logits.softmax(dim=1), y_target, self.margin)

    @torch.no_grad()
    def _feasible(self, x: Tensor, y_target: Tensor) -> Tensor:
        return (self._validity(x, y_target) >= 0) & (self._score(x, y_target) >= 0)

    def _starts(self, x: Tensor, y_target: Tensor) -> Starts:
        lower, upper = self._bounds(x)

        def starts(rows: Tensor) -> Tensor:
            assert self.bank_ is not None
            return self.bank_.nearest(
                x[rows].double(),
                y_target[rows],
                count=self.neighbours,
                lower=None if lower is None else lower[rows].double(),
                upper=None if upper is None else upper[rows].double(),
                feasible=self._feasible,
            )

        return starts

    def _bounds(self, x: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Each row's interval per feature: the box, widened to the row's value, then what may not move."""
        moves = (self.immutable, self.increasing, self.decreasing)
        if self.lower is None and self.upper is None and not any(moves):
            return None, None
        infinite = torch.full_like(x, torch.inf)
        lower = (
            -infinite
            if self.lower is None
            else torch.minimum(torch.as_tensor(self.lower).to(x).expand_as(x), x)
        )
        upper = (
            infinite
            if self.upper is None
            else torch.maximum(torch.as_tensor(self.upper).to(x).expand_as(x), x)
        )
        lower, upper = lower.clone(), upper.clone()
        for columns, bounds in zip(moves, ((lower, upper), (lower,), (upper,)), strict=True):
            wrong = [c for c in columns if not -x.shape[1] <= c < x.shape[1]]
            if wrong:
                raise InvalidInputError(f"Columns {wrong} do not exist; the rows have {x.shape[1]} columns.")
            for bound in bounds:
                bound[:, list(columns)] = x[:, list(columns)]
        return lower, upper
