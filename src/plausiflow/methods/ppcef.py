"""PPCEF: the closest row that the model decides as wanted and whose density is high enough. [PPCEF Eq. 3]

Either solver gets the same problem: as constraints (:class:`~plausiflow.solvers.SQP`, the default), or as the
paper's penalties (:class:`~plausiflow.solvers.PenaltyAdam`, ``PPCEF.paper``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from plausiflow.core import (
    Classifier,
    Density,
    MovingColumns,
    Plausibility,
    Problem,
    RowScores,
    Solution,
    Solver,
    Starts,
    Targets,
    ValidityConstraint,
    ValidityLoss,
    check_rows,
    predict,
)
from plausiflow.densities import (
    ARCHITECTURES,
    Architecture,
    Calibratable,
    calibrate,
    fit_plausibility,
    row_scores,
)
from plausiflow.errors import InvalidInputError, NotFittedError
from plausiflow.methods.base import Method
from plausiflow.models import LinearClassifier
from plausiflow.search import Bank, Feasible, build_problem
from plausiflow.solvers import SQP, PenaltyAdam


@dataclass(kw_only=True, eq=False)
class PPCEF(Method):
    r"""Probabilistically plausible counterfactuals.

    Attributes:
        plausibility: How dense a counterfactual must be: a quantile of the log-densities of held-out rows of
            the target class (0.5: denser than half of them), or a fitted plausibility of your own.
        confidence: Share of the counterfactuals that a flow which did not guide the search must accept too;
            None skips this calibration.
        density: What ``fit`` learns if ``plausibility`` is a quantile: the cross-fitted ``ensemble``, a flow
            by its architecture (``maf``, ``nsf``, ``realnvp``, ``nice``), or a density of your own (a fitted
            ensemble is only calibrated).
        random_state: Seed of everything that is learned.
        margin: :math:`\epsilon`: the target class must reach probability :math:`0.5 + \epsilon` (two classes)
            or beat the strongest rival by it (more classes).
        solver: How the problem is solved.
        validity_loss: The validity loss of penalty solvers: the paper's ``hinge``, the ``cross_entropy`` of
            its ablation, or ``published``, the hinge on logits of its multiclass runs.
        lower: Smallest allowed value, for all features or each ``(d,)``; a row outside keeps its own value
            as bound.
        upper: Largest allowed value, as ``lower``.
        immutable: Columns that keep their value exactly.
        increasing: Columns that may only grow.
        decreasing: Columns that may only shrink.
        weights: Cost per feature ``(d,)``: changing a feature with a larger weight is more expensive.
        neighbours: How many feasible training rows a search may start from.
        part_: The part of the way to the nearest feasible training row that the answers of each class are
            moved, shape ``(k,)``: zero unless no margin reaches the ``confidence``.

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
    random_state: int = 0
    margin: float = 0.02
    solver: Solver = field(default_factory=SQP)
    validity_loss: ValidityLoss = "hinge"
    lower: Tensor | float | None = None
    upper: Tensor | float | None = None
    immutable: tuple[int, ...] = ()
    increasing: tuple[int, ...] = ()
    decreasing: tuple[int, ...] = ()
    weights: Tensor | None = None
    neighbours: int = 3
    plausibility_: Plausibility | None = field(init=False, default=None, repr=False)
    bank_: Bank | None = field(init=False, default=None, repr=False)
    part_: Tensor | None = field(init=False, default=None, repr=False)

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
        """Return the settings of the published runs: Adam for 1,000 or 2,000 steps, last iterate, no box.

        The validity loss is the hinge on logits unless the model is binary logistic; ``binary_linear=None``
        finds out from the model.
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
        """Learn the density and its margin, and keep the training rows that satisfy everything (the bank).

        A fitted plausibility of your own is used as it is.
        """
        check_rows(x, y, n_classes=self.classifier.n_classes)
        self.part_ = None
        if isinstance(self.plausibility, int | float):
            absent = sorted(set(range(self.classifier.n_classes)) - set(y.unique().tolist()))
            if absent:
                raise InvalidInputError(
                    f"`y` must hold rows of all {self.classifier.n_classes} classes of the classifier, so "
                    f"that each has a density; there are none of {', '.join(map(str, absent))}. Add such "
                    "rows, or give a fitted `plausibility`."
                )
            self.plausibility_ = fit_plausibility(
                self.density,
                x,
                y,
                quantile=float(self.plausibility),
                random_state=self.random_state,
                held_out=False,
            )
            if self.confidence is not None and isinstance(self.plausibility_, Calibratable):
                self.part_ = calibrate(
                    self.plausibility_,
                    x,
                    predict(self.classifier, x.double()),
                    validity=self._validity,
                    search=self._search_with,
                    move=self._move_with,
                    confidence=self.confidence,
                    random_state=self.random_state,
                ).part
        self.bank_ = Bank.of(x, self.classifier.n_classes, self._feasible)
        return self

    def fitted_plausibility(self) -> Plausibility:
        """Return the plausibility given, or the one that ``fit`` has learned."""
        if self.plausibility is not None and not isinstance(self.plausibility, int | float):
            return self.plausibility
        if self.plausibility_ is None:
            raise NotFittedError(
                "This method has not learned a density. Call `fit(x, y)` with training rows first."
            )
        return self.plausibility_

    def search(self, x: Tensor, y_target: Tensor) -> Solution:
        """Return the closest feasible point of every row."""
        scores = row_scores(self.fitted_plausibility(), x.double(), y_target)
        starts = None if self.bank_ is None else self._starts(x, y_target, self.bank_, self._feasible)
        found = self.solver.solve(self._problem(x, y_target, scores), starts)
        if self.part_ is None or self.bank_ is None or not bool(self.part_.any()):
            return found
        part = self.part_.to(x)[y_target]
        return replace(found, x=self._moved(x, found.x, y_target, part, self.bank_, self._feasible))

    def _search_with(self, x: Tensor, y_target: Tensor, scores: RowScores, bank: dict[int, Tensor]) -> Tensor:
        """Search under other scores and with another bank, for the calibration."""
        solver = self.solver if isinstance(self.solver, SQP) else SQP()
        problem = self._problem(x, y_target, scores)
        return solver.solve(problem, self._starts(x, y_target, Bank(bank))).x

    def _move_with(
        self,
        x: Tensor,
        x_cf: Tensor,
        y_target: Tensor,
        part: Tensor,
        scores: RowScores,
        bank: dict[int, Tensor],
    ) -> Tensor:
        """Move counterfactuals under other scores and with another bank, for the calibration."""

        def feasible(x_cf: Tensor, y_target: Tensor, rows: Tensor) -> Tensor:
            return (self._validity(x_cf, y_target) >= 0) & (scores.score(x_cf, rows) >= 0)

        return self._moved(x, x_cf, y_target, part, Bank(bank), feasible)

    @torch.no_grad()
    def _moved(
        self,
        x: Tensor,
        x_cf: Tensor,
        y_target: Tensor,
        part: Tensor,
        bank: Bank,
        feasible: Callable[[Tensor, Tensor, Tensor], Tensor],
    ) -> Tensor:
        """Move counterfactuals a part of the way to the nearest bank row, or farther until feasible."""
        rows = (torch.isfinite(x_cf).all(dim=1) & (part > 0)).nonzero()[:, 0]
        start, y = x_cf[rows].double(), y_target[rows]
        lower, upper = (None if b is None else b[rows].double() for b in self._bounds(x))
        ends = bank.nearest(start, y, count=1, lower=lower, upper=upper, feasible=self._feasible)[:, 0]
        result, open_ = x_cf.clone(), torch.isfinite(ends).all(dim=1)
        for extra in (0.0, 0.25, 0.5, 0.75, 1.0):
            share = part[rows].double() + extra * (1 - part[rows].double())
            points = torch.lerp(start, ends, share[:, None]).to(x_cf)
            points = torch.where(share[:, None] == 1, ends.to(x_cf), points)
            good = open_ & feasible(torch.nan_to_num(points).double(), y, rows)
            result[rows[good]], open_ = points[good], open_ & ~good
        return result

    def _problem(self, x: Tensor, y_target: Tensor, scores: RowScores) -> Problem:
        lower, upper = self._bounds(x)
        return build_problem(
            x=x,
            targets=Targets(y_target),
            validity=self._validity,
            scores=scores,
            moving=MovingColumns(x.double()),
            rows=torch.arange(len(x), device=x.device),
            lower=lower,
            upper=upper,
            weights=None if self.weights is None else self.weights.to(x),
        )

    @property
    def _validity(self) -> ValidityConstraint:
        return ValidityConstraint.of_classifier(self.classifier, self.margin, self.validity_loss)

    @torch.no_grad()
    def _feasible(self, x: Tensor, y_target: Tensor, rows: Tensor | None = None) -> Tensor:
        feasible = self._validity(x, y_target) >= 0
        valid = feasible.nonzero()[:, 0]  # only their density is computed, which takes longer
        if len(valid):
            feasible[valid] = self.fitted_plausibility().score(x[valid], y_target[valid]) >= 0
        return feasible

    def _starts(self, x: Tensor, y_target: Tensor, bank: Bank, feasible: Feasible | None = None) -> Starts:
        lower, upper = self._bounds(x)

        def starts(rows: Tensor) -> Tensor:
            return bank.nearest(
                x[rows].double(),
                y_target[rows],
                count=self.neighbours,
                lower=None if lower is None else lower[rows].double(),
                upper=None if upper is None else upper[rows].double(),
                feasible=feasible,
            )

        return starts

    def _bounds(self, x: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Return each row's interval per feature: the box, widened to the row's value, and frozen columns."""
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
