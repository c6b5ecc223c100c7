"""Durability: answers that models retrained on other samples of the rows decide as wanted, too.

*Guides* are retrained models that take part in the search (:mod:`plausiflow.core.durability`). *Jurors* are
retrained models that do not: they check the tolerance factors in ``fit``, and the share of them that decides
an answer as wanted is its ``lasting``. A row for which no such answer is found gets the ordinary one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pandas as pd
import torch
from torch import Tensor

from plausiflow.core import (
    DurableCriterion,
    Pullback,
    TargetCriterion,
    Targets,
    tolerance_factor,
)
from plausiflow.densities import PlausibilityWarning
from plausiflow.errors import InvalidInputError
from plausiflow.models import TableModel
from plausiflow.search.bank import Bank
from plausiflow.search.mixed import MixedSearch
from plausiflow.tables import Encoder

if TYPE_CHECKING:
    from plausiflow.search.engine import Engine

JURORS = 10
POOLED_ROWS, CHECKED_ROWS = 40, 30
"""Training rows of each class whose answers tell the common variance, and that jurors check."""
RAISE, RAISES, KEPT = 1.25, 2, 0.9
"""By how much a tolerance factor is raised if the jurors accept too few answers, how often, and the share of
the answers that must still be found then."""


@dataclass(frozen=True, eq=False)
class Durability:
    """Retrained models, and what they ask for.

    Attributes:
        guides: Models that take part in the search.
        jurors: Models that check its answers.
        criterion: Compares the outputs of the model and of all guides with targets.
        level: The share of retrainings that shall decide an answer as wanted.
    """

    guides: tuple[TableModel, ...]
    jurors: tuple[TableModel, ...]
    criterion: DurableCriterion
    level: float
    _banks: list[tuple[Bank, Bank]] = field(default_factory=list, repr=False)

    def engine(self, engine: Engine) -> Engine:
        """Return an engine whose answers must meet the bound of the guides."""
        validity, true_model = engine.validity, engine.true_model
        if true_model is None:
            outputs, gradients = [validity.outputs], [validity.model_value_and_grad]
            outputs += [_shifted(guide, guide.outputs_at(0.0)) for guide in self.guides]
            gradients += [_shifted_gradient(guide) for guide in self.guides]
            known = [gradient for gradient in gradients if gradient is not None]
            joined = _joined_gradients(known) if len(known) == len(gradients) else None
            validity = replace(
                validity,
                outputs=_joined(outputs),
                criterion=self.criterion,
                model_value_and_grad=joined,
            )
            return replace(self._with_banks(engine), validity=validity, durability=None)
        frames = [true_model.outputs]
        frames += [_shifted(guide, _true_outputs(guide)) for guide in self.guides]
        trees = [true_model.tree_outputs, *(_shifted_trees(guide) for guide in self.guides)]
        read = [outputs for outputs in trees if outputs is not None]
        true_model = replace(
            true_model,
            outputs=_joined(frames),
            criterion=self.criterion,
            tree_outputs=_joined(read) if len(read) == len(trees) else None,
        )
        return replace(self._with_banks(engine), true_model=true_model, durability=None)

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
        outputs = [_shift(guide, guide.predict_outputs(x, frame)) for guide in self.guides]
        return self.criterion.bound(torch.stack(outputs, dim=1), targets)

    @torch.no_grad()
    def lasting(self, x: Tensor, frame: pd.DataFrame, targets: Targets) -> Tensor:
        """Return the share of the jurors that decide rows as wanted, shape ``(n,)``."""
        if len(x) == 0:
            return x.new_zeros(0)
        return torch.stack([_agrees(juror, x, frame, targets) for juror in self.jurors]).double().mean(dim=0)


def _agrees(model: TableModel, x: Tensor, frame: pd.DataFrame, targets: Targets) -> Tensor:
    outputs = model.predict_outputs(x, frame)
    criterion = TargetCriterion(edges=() if model.labels else (-torch.inf, torch.inf))
    decided = model.decide(outputs, x, frame) if model.labels else None
    return criterion.met(outputs, replace(targets, extra_margin=None), decided)


def _shift(model: TableModel, outputs: Tensor) -> Tensor:
    """Return outputs whose largest one is the decision, whatever the model's cut-offs."""
    if not model.labels or not model.decision.cutoffs:
        return outputs
    return TargetCriterion(cutoffs=model.decision.cutoffs).decision_logits(outputs)


Outputs = Callable[..., Tensor]


def _shifted(model: TableModel, outputs: Outputs) -> Outputs:
    return lambda rows: _shift(model, outputs(rows))


def _true_outputs(model: TableModel) -> Outputs:
    return (
        model.true_outputs
        if model.true_outputs is not None
        else lambda frame: model.predict_outputs(torch.zeros(0), frame)
    )


def _shifted_trees(model: TableModel) -> Outputs | None:
    return None if model.tree_outputs is None else _shifted(model, model.tree_outputs)


def _shifted_gradient(model: TableModel) -> Callable[[Tensor], tuple[Tensor, Pullback]] | None:
    gradient = model.value_and_grad
    if gradient is None:
        return None

    def value_and_grad(x: Tensor) -> tuple[Tensor, Pullback]:
        outputs, pullback = gradient(x)
        return _shift(model, outputs), pullback

    return value_and_grad


def _joined(parts: Sequence[Outputs]) -> Outputs:
    """Return the outputs of all parts side by side."""

    def outputs(rows: Tensor | pd.DataFrame) -> Tensor:
        own = [part(rows) for part in parts]
        return torch.cat([part if part.ndim == 2 else part[:, None] for part in own], dim=1)

    return outputs


def _joined_gradients(
    parts: Sequence[Callable[[Tensor], tuple[Tensor, Pullback]]],
) -> Callable[[Tensor], tuple[Tensor, Pullback]]:
    def value_and_grad(x: Tensor) -> tuple[Tensor, Pullback]:
        own = [part(x) for part in parts]
        flat = [outputs.ndim == 1 for outputs, _ in own]
        columns = [outputs[:, None] if one else outputs for (outputs, _), one in zip(own, flat, strict=True)]
        widths = [part.shape[1] for part in columns]

        def pullback(gradient: Tensor) -> Tensor:
            pieces = zip(own, flat, gradient.split(widths, dim=1), strict=True)
            pulled = [pull(piece[:, 0] if one else piece) for (_, pull), one, piece in pieces]
            return torch.stack(pulled).sum(dim=0)

        return torch.cat(columns, dim=1), pullback

    return value_and_grad


def fit_durability(
    engine: Engine,
    encoder: Encoder,
    models: Sequence[TableModel],
    rows: tuple[Tensor, pd.DataFrame],
    decided: Tensor,
    *,
    level: float,
    confidence: float,
    jurors: int,
    seed: int,
    names: Sequence[str],
) -> Durability:
    """Learn the common variance and the tolerance factors, and let jurors check them.

    Args:
        engine: The engine without durability.
        encoder: Encoder of the table.
        models: Retrained models; the last ``jurors`` of them only check.
        rows: Encoded training rows, and the same rows of the table.
        decided: The classes or bins that the model decides for, shape ``(n,)``.
        level: The share of retrainings that shall decide an answer as wanted.
        confidence: The share of answers for which that shall be so.
        jurors: Number of jurors.
        seed: Seed of the training rows that are searched.
        names: The outcomes in words, for warnings.
    """
    criterion, guides = engine.validity.criterion, tuple(models[:-jurors])
    n_classes = len(names)
    x, frame = rows
    _require_differences(engine, models, x, frame)
    factor = tolerance_factor(len(guides), level, confidence)
    durable = Durability(
        guides=guides,
        jurors=tuple(models[-jurors:]),
        criterion=DurableCriterion(
            margin=criterion.margin,
            edges=criterion.edges,
            unit=criterion.unit,
            cutoffs=criterion.cutoffs,
            n_classes=0 if criterion.edges else n_classes,
            guides=len(guides),
            factors=(factor,) * n_classes,
            variances=(0.0,) * n_classes,
        ),
        level=level,
    )
    generator = torch.Generator().manual_seed(seed + 7)
    sample = _sample(decided, n_classes, POOLED_ROWS, generator)
    variances = _variances(engine, encoder, durable, x, frame, *sample)
    durable = replace(durable, criterion=replace(durable.criterion, variances=variances), _banks=[])
    sample = _sample(decided, n_classes, CHECKED_ROWS, generator)
    return _checked(engine, encoder, durable, x, frame, sample, names)


def _require_differences(
    engine: Engine, models: Sequence[TableModel], x: Tensor, frame: pd.DataFrame
) -> None:
    """Raise if all retrained models are the model itself."""
    assert engine.model is not None
    some = slice(0, 200)
    own = engine.model.predict_outputs(x[some], frame.iloc[some])
    if all(torch.equal(own, model.predict_outputs(x[some], frame.iloc[some])) for model in models):
        raise InvalidInputError(
            "`durability` needs models that differ, but every retrained one predicts exactly as the model "
            "itself: it is frozen or prefitted inside. Pass `retrain`, a function (x, y, seed) that trains "
            "it, or a list of models."
        )


def _sample(decided: Tensor, n_classes: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return rows of other classes for each class, and their targets."""
    rows, targets = [], []
    for k in range(n_classes):
        others = (decided != k).nonzero()[:, 0]
        chosen = others[torch.randperm(len(others), generator=generator)[:count]]
        rows.append(chosen)
        targets.append(torch.full_like(chosen, k))
    return torch.cat(rows), torch.cat(targets)


def _answers(
    engine: Engine, encoder: Encoder, x: Tensor, frame: pd.DataFrame, rows: Tensor, y: Tensor
) -> tuple[Tensor, Tensor, pd.DataFrame, Targets]:
    """Return which rows have an answer, the answers, the same decoded, and their targets."""
    targets, own = engine.validity.criterion.of_class(y), frame.iloc[rows.numpy()]
    task = engine.task(x[rows], targets, frame=own)
    if engine.true_model is None:
        light = MixedSearch(max_extra_cost=engine.strategy.max_extra_cost, finalists=1)
        found = light.draft(task, engine.bank).feasible.cheapest(1)
    else:
        found = engine.search(task).feasible.cheapest(1)
    like = own.iloc[found.rows.numpy()]
    decoded = encoder.decode(found.x, like=like, encoded=x[rows][found.rows])
    return found.rows, found.x, decoded, targets[found.rows]


def _variances(
    engine: Engine,
    encoder: Encoder,
    durable: Durability,
    x: Tensor,
    frame: pd.DataFrame,
    rows: Tensor,
    y: Tensor,
) -> tuple[float, ...]:
    """Return the median variance of the guides' margins at ordinary answers, for each class."""
    found, x_cf, decoded, targets = _answers(engine, encoder, x, frame, rows, y)
    count = len(durable.criterion.factors)
    if len(found) == 0:
        return (1.0,) * count
    outputs = [_shift(guide, guide.predict_outputs(x_cf, decoded)) for guide in durable.guides]
    variance = durable.criterion.margins(torch.stack(outputs, dim=1), targets).var(dim=1)
    common = float(variance.median())
    own = [variance[targets.y == k] for k in range(count)]
    return tuple(float(part.median()) if len(part) >= 5 else common for part in own)


def _checked(
    engine: Engine,
    encoder: Encoder,
    durable: Durability,
    x: Tensor,
    frame: pd.DataFrame,
    sample: tuple[Tensor, Tensor],
    names: Sequence[str],
) -> Durability:
    """Raise tolerance factors until the jurors accept enough answers, and warn if they never do.

    A factor that leaves many rows without an answer is not raised so far.
    """
    rows, y = sample
    wanted = 1 - (1 - durable.level) / 4
    open_ = [bool((y == k).any()) for k in range(len(names))]
    reached, found = [0.0] * len(names), [0] * len(names)
    for turn in range(RAISES + 1):
        _, x_cf, decoded, targets = _answers(durable.engine(engine), encoder, x, frame, rows, y)
        share = durable.lasting(x_cf, decoded, targets)
        factors = list(durable.criterion.factors)
        for k in range(len(names)):
            own = share[targets.y == k]
            if not open_[k]:
                continue
            if turn and len(own) < KEPT * found[k]:
                factors[k] /= RAISE
                open_[k] = False
                continue
            reached[k], found[k] = (float(own.mean()) if len(own) else 0.0), len(own)
            open_[k] = reached[k] < wanted and turn < RAISES
            factors[k] *= RAISE if open_[k] else 1.0
        durable = replace(durable, criterion=durable.criterion.raised(tuple(factors)), _banks=[])
        if not any(open_):
            break
    short = [
        f"{name}: {reached[k]:.2f}"
        for k, name in enumerate(names)
        if reached[k] < wanted and bool((y == k).any())
    ]
    if not short:
        return durable
    warnings.warn(
        f"Counterfactuals may not last as asked for: models that did not guide the search decide this share "
        f"as wanted, instead of {wanted:.3f}: {', '.join(short)}. `lasting` has the share of each answer.",
        PlausibilityWarning,
        stacklevel=6,
    )
    return durable
