"""Durability: answers that models retrained on other samples of the rows decide as wanted, too.

*Guides* are retrained models that take part in the search (:mod:`plausiflow.core.durability`). *Jurors* are
retrained models that do not: they check what was learned in ``fit``, and the share of them that decides an
answer as wanted is its ``lasting``. For an outcome, a minimum probability may do the same at less cost; the
jurors have set it. A row for which no such answer is found gets the ordinary one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import pandas as pd
import torch
from torch import Tensor

from plausiflow.core import (
    DurableCriterion,
    Pullback,
    TargetCriterion,
    Targets,
    ValidityConstraint,
    probability_value,
)
from plausiflow.models import JointModels, Students, TableModel
from plausiflow.search.bank import Bank
from plausiflow.search.black_box import COLD, HOT, BlackBoxSearch
from plausiflow.tables import Layout
from plausiflow.validation import to_float

if TYPE_CHECKING:
    from plausiflow.search.engine import Engine

SHARES = (0.85, 0.7, 0.5, 0.25)
"""Shares of the tolerance factors that are tried for rows without a lasting answer, one after the other."""
LESS_LASTING = (
    "no counterfactual was found that lasts as asked for when the model is retrained; this one lasts longest"
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Durability:
    """Retrained models, and what they ask for.

    Attributes:
        models: The retrained models as they were trained: guides, then jurors.
        guides: Models that take part in the search.
        jurors: Models that check its answers.
        criterion: Compares the outputs of the model and of all guides with targets.
        level: The share of retrainings that shall decide an answer as wanted.
        factor: The tolerance factor of a normal sample.
        probabilities: The minimum probability of each class or bin that serves as well as the guides do, at
            less cost; 0 if the guides are asked.
        students: What the guides say together, for a search without gradients.
    """

    models: tuple[object, ...]
    guides: tuple[TableModel, ...]
    jurors: tuple[TableModel, ...]
    criterion: DurableCriterion
    level: float
    factor: float
    probabilities: tuple[float, ...]
    students: Students | None = None
    _banks: list[tuple[Bank, Bank]] = field(default_factory=list, repr=False)

    @cached_property
    def joint(self) -> JointModels:
        """All guides, evaluated together."""
        return JointModels(self.guides)

    def with_factors(self, factors: tuple[float, ...]) -> Durability:
        """Return the same with other tolerance factors."""
        return replace(self, criterion=self.criterion.with_factors(factors), _banks=[])

    def with_variances(self, variances: tuple[float, ...]) -> Durability:
        """Return the same with other common variances."""
        return replace(self, criterion=replace(self.criterion, variances=variances), _banks=[])

    def searches(
        self, engine: Engine, targets: Targets, rows: Tensor
    ) -> Iterator[tuple[Engine, Targets, Tensor, str]]:
        """Yield searches for lasting answers, each for the rows that the ones before found nothing for.

        A row that cannot last as asked for gets an answer that lasts as well as it can.

        Yields:
            An engine, the targets of all rows, the rows to search, and the reason that is then given.
        """
        least = torch.tensor(self.probabilities, dtype=torch.float64)[targets.y]
        certain = rows[least[rows] > 0]
        if len(certain):
            given = least if targets.min_probability is None else targets.min_probability.maximum(least)
            yield replace(engine, durability=None), replace(targets, min_probability=given), certain, ""
        guided = self.engine(engine)
        yield guided, targets, rows[least[rows] == 0], ""
        if len(certain):
            yield guided, targets, certain, ""
        for share in SHARES:
            factors = tuple(share * factor for factor in self.criterion.factors)
            yield self.with_factors(factors).engine(engine), targets, rows, LESS_LASTING

    def engine(self, engine: Engine) -> Engine:
        """Return an engine whose answers must meet the bound of the guides."""
        validity, true_model = engine.validity, engine.true_model
        engine = replace(self._with_banks(engine), durability=None)
        if true_model is None:
            return replace(engine, validity=self._guided(validity))
        true_model = replace(true_model, bound=self.bound)
        engine = replace(engine, true_model=true_model)
        strategy = engine.strategy
        if self.students is None or not isinstance(strategy, BlackBoxSearch):
            return engine
        hot, cold = self._led(strategy.hot, HOT), self._led(strategy.cold, COLD)
        return replace(engine, validity=cold, strategy=replace(strategy, hot=hot, cold=cold))

    def _guided(self, validity: ValidityConstraint) -> ValidityConstraint:
        """Return the validity of a model with gradients and of all guides."""
        joint, own = self.joint, validity.model_value_and_grad
        joined = joint.value_and_grad
        return replace(
            validity,
            outputs=_beside(validity.outputs, joint.outputs),
            criterion=self.criterion,
            model_value_and_grad=None if own is None or joined is None else _beside_with_grad(own, joined),
        )

    def _led(self, validity: ValidityConstraint, temperature: float) -> ValidityConstraint:
        """Return the validity of a surrogate and of what the students say about the guides."""
        assert self.students is not None
        outputs = _beside(validity.outputs, self.students.at(temperature))
        return replace(validity, outputs=outputs, criterion=self.criterion.summary, model_value_and_grad=None)

    def _with_banks(self, engine: Engine) -> Engine:
        """Return the engine with the rows of its banks that meet the bound of the guides."""
        wider = None if engine.wider_bank is None else self._lasting_bank(engine.wider_bank)
        return replace(engine, bank=self._lasting_bank(engine.bank), wider_bank=wider)

    def _lasting_bank(self, bank: Bank) -> Bank:
        """Return the rows of a bank that meet the bound of the guides; computed once."""
        for known, lasting in self._banks:
            if known is bank:
                return lasting
        rows = {}
        for y, x in bank.rows.items():
            targets = self.criterion.of_class(torch.full((len(x),), y))
            rows[y] = x[self.bound(x, None, targets) >= 0]
        self._banks.append((bank, replace(bank, rows=rows)))
        return self._banks[-1][1]

    @torch.no_grad()
    def bound(self, x: Tensor, frame: pd.DataFrame | None, targets: Targets) -> Tensor:
        """Return how far inside the bound of the guides rows are, shape ``(n,)``."""
        if len(x) == 0:
            return x.new_zeros(0)
        outputs = self.joint.predict(x, frame)
        guides = outputs.unflatten(1, (len(self.guides), -1)) if self.criterion.n_classes else outputs
        bound = self.criterion.bound(guides, targets)
        return bound if targets.extra_margin is None else bound - targets.extra_margin.to(bound)

    def reserve(self, model: TableModel | None, x: Tensor, frame: pd.DataFrame, targets: Targets) -> Tensor:
        """Return how far inside the bound of the guides, or the probability in its place, rows are, ``(n,)``.

        It is negative for rows that do not last as asked for.
        """
        bound = self.bound(x, frame, targets)
        least = torch.tensor(self.probabilities, dtype=torch.float64)[targets.y]
        if model is None or not bool((least > 0).any()):
            return bound
        certain = probability_value(model.predict_outputs(x, frame), targets.y, least.clamp_min(0.01))
        return torch.where(least > 0, bound.maximum(certain.to(bound)), bound)

    @torch.no_grad()
    def lasting(self, x: Tensor, frame: pd.DataFrame, targets: Targets) -> Tensor:
        """Return the share of the jurors that decide rows as wanted, shape ``(n,)``."""
        if len(x) == 0:
            return x.new_zeros(0)
        return torch.stack([_agrees(juror, x, frame, targets) for juror in self.jurors]).double().mean(dim=0)

    def describe(self) -> dict[str, Any]:
        """Return what was learned, as JSON values; :meth:`restore` reads it."""
        return {
            "level": self.level,
            "jurors": len(self.jurors),
            "factor": self.factor,
            "factors": list(self.criterion.factors),
            "variances": list(self.criterion.variances),
            "probabilities": list(self.probabilities),
        }

    @classmethod
    def restore(
        cls,
        document: Mapping[str, Any],
        models: tuple[Sequence[object], Sequence[TableModel]],
        criterion: TargetCriterion,
        students: Mapping[str, Tensor],
        layout: Layout,
    ) -> Self:
        """Return what :meth:`describe` described.

        Args:
            document: The description.
            models: The retrained models, as they were trained and as they were resolved.
            criterion: The criterion of the explained model.
            students: The state of the students; empty if there are none.
            layout: Layout of encoded rows.

        Raises:
            ValueError: The description does not fit the models.
        """
        raw, resolved = models
        jurors, n_classes = int(document["jurors"]), criterion.n_bins or len(resolved[0].labels)
        if not 0 < jurors < len(resolved):
            raise ValueError(f"{jurors} of {len(resolved)} retrained models cannot be jurors")
        guides = tuple(resolved[:-jurors])
        values = {name: tuple(map(to_float, document[name])) for name in _PER_CLASS}
        if any(len(own) != n_classes or min(own) < 0 for own in values.values()):
            raise ValueError(f"durability needs a number for each of {n_classes} outcomes")
        return cls(
            models=tuple(raw),
            guides=guides,
            jurors=tuple(resolved[-jurors:]),
            criterion=durable_criterion(
                criterion, n_classes, len(guides), values["factors"], values["variances"]
            ),
            level=to_float(document["level"]),
            factor=to_float(document["factor"]),
            probabilities=values["probabilities"],
            students=Students.restore(students, layout) if students else None,
        )


_PER_CLASS = ("factors", "variances", "probabilities")


def durable_criterion(
    criterion: TargetCriterion,
    n_classes: int,
    guides: int,
    factors: tuple[float, ...],
    variances: tuple[float, ...],
) -> DurableCriterion:
    """Return the criterion of a model and its guides; the factors and variances are those of each class."""
    return DurableCriterion(
        margin=criterion.margin,
        edges=criterion.edges,
        unit=criterion.unit,
        cutoffs=criterion.cutoffs,
        n_classes=0 if criterion.edges else n_classes,
        guides=guides,
        factors=factors,
        variances=variances,
    )


def _agrees(model: TableModel, x: Tensor, frame: pd.DataFrame, targets: Targets) -> Tensor:
    outputs = model.predict_outputs(x, frame)
    criterion = TargetCriterion(edges=() if model.labels else (-torch.inf, torch.inf))
    decided = model.decide(outputs, x, frame) if model.labels else None
    return criterion.met(outputs, replace(targets, extra_margin=None, min_probability=None), decided)


Outputs = Callable[[Tensor], Tensor]
Gradients = Callable[[Tensor], tuple[Tensor, Pullback]]


def _beside(own: Outputs, others: Outputs) -> Outputs:
    """Return the outputs of a model and those of others side by side."""

    def outputs(x: Tensor) -> Tensor:
        first = own(x)
        return torch.cat([first if first.ndim == 2 else first[:, None], others(x)], dim=1)

    return outputs


def _beside_with_grad(own: Gradients, others: Gradients) -> Gradients:
    """Do the same with pullbacks."""

    def value_and_grad(x: Tensor) -> tuple[Tensor, Pullback]:
        (first, pull), (rest, pull_rest) = own(x), others(x)
        flat = first.ndim == 1
        first = first[:, None] if flat else first
        width = first.shape[1]

        def pullback(gradient: Tensor) -> Tensor:
            mine = gradient[:, 0] if flat else gradient[:, :width]
            return pull(mine) + pull_rest(gradient[:, width:])

        return torch.cat([first, rest], dim=1), pullback

    return value_and_grad
