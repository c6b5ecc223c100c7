"""What ``fit`` learns about durability: common variances, tolerance factors, and cheaper probabilities.

Training rows are searched lightly. Ordinary answers tell the variance that is common at counterfactuals. The
jurors then check lasting answers: if they accept too few, tolerance factors are raised. For each outcome, the
smallest probability whose answers the jurors accept as well is found by halving; it takes the place of the
guides if its answers are cheaper.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pandas as pd
import torch
from torch import Tensor

from plausiflow.core import Targets, tolerance_factor
from plausiflow.densities import PlausibilityWarning
from plausiflow.errors import InvalidInputError
from plausiflow.models import TableModel, train_students
from plausiflow.search.black_box import BlackBoxSearch
from plausiflow.search.durability import Durability, durable_criterion
from plausiflow.search.mixed import MixedSearch
from plausiflow.tables import Encoder

if TYPE_CHECKING:
    from plausiflow.search.engine import Engine

JURORS = 10
POOLED_ROWS, CHECKED_ROWS = 40, 30
"""Training rows of each class whose answers tell the common variance, and that jurors check."""
RAISE, RAISES, JUDGED = 1.15, 3, 5
"""By how much a tolerance factor is raised if the jurors accept too few answers, how often, and how many
answers must be left to judge by."""
LARGEST_PROBABILITY, HALVINGS = 0.99, 2
"""The largest minimum probability that is tried, and how often the interval of candidates is halved."""


def fit_durability(
    engine: Engine,
    encoder: Encoder,
    refits: tuple[Sequence[object], Sequence[TableModel]],
    rows: tuple[Tensor, pd.DataFrame],
    decided: Tensor,
    *,
    level: float,
    confidence: float,
    jurors: int,
    seed: int,
    names: Sequence[str],
) -> Durability:
    """Learn the common variance, the tolerance factors and probabilities, and let jurors check them.

    Args:
        engine: The engine without durability.
        encoder: Encoder of the table.
        refits: Retrained models, as trained and as resolved; the last ``jurors`` of them only check.
        rows: Encoded training rows, and the same rows of the table.
        decided: The classes or bins that the model decides for, shape ``(n,)``.
        level: The share of retrainings that shall decide an answer as wanted.
        confidence: The share of answers for which that shall be so.
        jurors: Number of jurors.
        seed: Seed of the training rows that are searched.
        names: The outcomes in words, for warnings.
    """
    raw, models = refits
    guides, n_classes = tuple(models[:-jurors]), len(names)
    _require_differences(engine, models, *rows)
    factor = tolerance_factor(len(guides), level, confidence)
    nothing = (0.0,) * n_classes
    durable = Durability(
        models=tuple(raw),
        guides=guides,
        jurors=tuple(models[-jurors:]),
        criterion=durable_criterion(
            engine.validity.criterion, n_classes, len(guides), (factor,) * n_classes, nothing
        ),
        level=level,
        factor=factor,
        probabilities=nothing,
    )
    if engine.true_model is not None:
        learned = train_students(durable.joint, rows[0], decided, encoder.layout, random_state=seed)
        durable = replace(durable, students=learned)
    generator = torch.Generator().manual_seed(seed + 7)
    trial = _LightSearch(engine, encoder, *rows, *_sample(decided, n_classes, POOLED_ROWS, generator))
    durable = durable.with_variances(_variances(durable, trial.search(engine)))
    trial = _LightSearch(engine, encoder, *rows, *_sample(decided, n_classes, CHECKED_ROWS, generator))
    durable, answers = _checked(trial, durable, names)
    return _with_probabilities(trial, durable, answers, confidence)


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


@dataclass(frozen=True, eq=False)
class _Found:
    """Answers of searched rows: their positions among these rows, costs, decoded rows and targets."""

    rows: Tensor
    x: Tensor
    cost: Tensor
    decoded: pd.DataFrame
    targets: Targets

    def of_class(self, k: int) -> Tensor:
        """Return the positions of the answers for a class."""
        return (self.targets.y == k).nonzero()[:, 0]


@dataclass(frozen=True, eq=False)
class _LightSearch:
    """Training rows that are searched lightly, again and again.

    Attributes:
        engine: The engine without durability.
        encoder: Encoder of the table.
        x: Encoded training rows.
        frame: The same rows of the table.
        rows: Which of them are searched, shape ``(m,)``.
        y: Their target classes or bins, shape ``(m,)``.
    """

    engine: Engine
    encoder: Encoder
    x: Tensor
    frame: pd.DataFrame
    rows: Tensor
    y: Tensor

    def search(self, engine: Engine, which: Tensor | None = None, least: float | None = None) -> _Found:
        """Return the answers of all rows or some, with a minimum probability or without."""
        which = torch.arange(len(self.rows)) if which is None else which
        rows, targets = self.rows[which], engine.validity.criterion.of_class(self.y[which])
        if len(which) == 0:
            return _Found(which, self.x[rows], self.x[rows, 0], self.frame.iloc[:0], targets)
        if least is not None:
            targets = replace(targets, min_probability=torch.full((len(which),), least, dtype=torch.float64))
        own = self.frame.iloc[rows.numpy()]
        task = engine.task(self.x[rows], targets, frame=own)
        strategy = engine.strategy
        light = MixedSearch(max_extra_cost=strategy.max_extra_cost, finalists=1)
        if engine.true_model is None:
            found = light.draft(task, engine.bank).feasible.cheapest(1)
        elif isinstance(strategy, BlackBoxSearch):
            quick = replace(strategy, base=light, evolution=None)
            found = quick.run(task, engine.bank).feasible.cheapest(1)
        else:
            found = engine.search(task).feasible.cheapest(1)
        like = own.iloc[found.rows.numpy()]
        decoded = self.encoder.decode(found.x, like=like, encoded=self.x[rows][found.rows])
        return _Found(which[found.rows], found.x, found.cost, decoded, targets[found.rows])


def _variances(durable: Durability, found: _Found) -> tuple[float, ...]:
    """Return the median variance of the guides' margins at ordinary answers, for each class."""
    count = len(durable.criterion.factors)
    if len(found.rows) == 0:
        return (1.0,) * count
    outputs = durable.joint.predict(found.x, found.decoded)
    guides = outputs.unflatten(1, (len(durable.guides), -1)) if durable.criterion.n_classes else outputs
    variance = durable.criterion.margins(guides, found.targets).var(dim=1)
    own = [variance[found.of_class(k)] for k in range(count)]
    return tuple(float((part if len(part) >= 5 else variance).median()) for part in own)


def _checked(
    trial: _LightSearch, durable: Durability, names: Sequence[str]
) -> tuple[Durability, list[_Found]]:
    """Raise tolerance factors while the jurors accept too few answers; warn if that is not enough.

    A row that cannot meet a raised factor is searched with a smaller one later, so only a factor that leaves
    too few answers to judge by is not raised so far. Returns the last answers of each class, too.
    """
    rows = [(trial.y == k).nonzero()[:, 0] for k in range(len(names))]
    guided = durable.engine(trial.engine)
    answers = [trial.search(guided, own) for own in rows]
    short = [k for k, found in enumerate(answers) if len(found.rows) >= JUDGED]
    for _ in range(RAISES):
        short = [k for k in short if _acceptance(durable, answers[k]) < _wanted(durable)]
        factors = list(durable.criterion.factors)
        raised = durable.with_factors(tuple(f * RAISE if k in short else f for k, f in enumerate(factors)))
        guided = raised.engine(trial.engine)
        for k in tuple(short):
            found = trial.search(guided, rows[k])
            if len(found.rows) < JUDGED:
                short.remove(k)
                continue
            answers[k], factors[k] = found, raised.criterion.factors[k]
        durable = durable.with_factors(tuple(factors))
    _warn_of_short(trial, [_acceptance(durable, found) for found in answers], _wanted(durable), names)
    return durable, answers


def _acceptance(durable: Durability, answers: _Found) -> float:
    """Return the mean share of jurors that accept answers; 0 without answers."""
    if len(answers.rows) == 0:
        return 0.0
    return float(durable.lasting(answers.x, answers.decoded, answers.targets).mean())


def _wanted(durable: Durability) -> float:
    """Return the share of jurors that must accept answers on average."""
    return 1 - (1 - durable.level) / 4


def _warn_of_short(trial: _LightSearch, reached: list[float], wanted: float, names: Sequence[str]) -> None:
    short = [
        f"{name}: {reached[k]:.2f}"
        for k, name in enumerate(names)
        if reached[k] < wanted and bool((trial.y == k).any())
    ]
    if short:
        warnings.warn(
            f"Counterfactuals may not last as asked for: models that did not guide the search decide this "
            f"share as wanted, instead of {wanted:.3f}: {', '.join(short)}. `lasting` has the share of each "
            "answer.",
            PlausibilityWarning,
            stacklevel=7,
        )


def _with_probabilities(
    trial: _LightSearch, durable: Durability, guided: list[_Found], confidence: float
) -> Durability:
    """Let a minimum probability take the place of the guides for the outcomes where it is cheaper."""
    model = trial.engine.model
    if trial.engine.validity.criterion.edges or model is None:
        return durable
    probabilities = []
    for k, own in enumerate(guided):
        needed = (trial.y == k).nonzero()[:, 0]
        least = _least_probability(trial, durable, needed, own, confidence) if len(own.rows) else 0.0
        probabilities.append(least)
    return replace(durable, probabilities=tuple(probabilities))


def _least_probability(
    trial: _LightSearch, durable: Durability, rows: Tensor, guided: _Found, confidence: float
) -> float:
    """Return the smallest probability that serves rows of a class as the guides do; 0 if none is cheaper.

    Its answers must be as many and not more expensive, and the jurors must accept them as ``durability`` and
    ``confidence`` ask. The first one that is tried is the median of the guided answers.
    """
    assert trial.engine.model is not None
    criterion, y = trial.engine.validity.criterion, int(trial.y[rows[0]])
    outputs = trial.engine.model.predict_outputs(guided.x, guided.decoded)
    low = _logit(criterion.smallest_probability(y, len(durable.probabilities)))
    middle, high = float(torch.logit(outputs[:, y].exp().median())), _logit(LARGEST_PROBABILITY)
    cost = guided.cost.new_full((len(trial.rows),), torch.inf)
    cost[guided.rows] = guided.cost
    least = 0.0
    for _ in range(HALVINGS):
        if not low < middle < high:
            middle = (low + high) / 2
        probability = float(torch.sigmoid(torch.tensor(middle)))
        found = trial.search(trial.engine, rows, probability)
        if (
            len(found.rows) < len(guided.rows)
            or float((found.cost - cost[found.rows]).clamp_max(9).mean()) > 0
        ):
            high = middle
        elif _lasts(durable, found, confidence):
            least = probability
            high = middle
        else:
            low = middle
        middle = (low + high) / 2
    return least


def _lasts(durable: Durability, found: _Found, confidence: float) -> bool:
    """Return whether the jurors accept answers as ``durability`` and ``confidence`` ask."""
    share = durable.lasting(found.x, found.decoded, found.targets)
    enough = float((share >= durable.level - 1e-9).double().mean())
    return enough >= confidence and float(share.mean()) >= _wanted(durable)


def _logit(probability: float) -> float:
    return float(torch.logit(torch.tensor(probability, dtype=torch.float64)))
