r"""WACH: gradient descent on prediction loss plus distance (Wachter, Mittelstadt and Russell, 2017).

.. math:: \arg\min_{x'} \ell(x', y') + \lambda \, d(x_0, x')

with the largest weight :math:`\lambda` for which the decision still changes. There is no density. By default
the loss is a hinge on the log-odds of the target class against its strongest rival, whose gradient is not
zero where the model is certain. The published runs used the squared distance of its probability from one.

Every row has its own weight and step counter. It descends by Adam for one *turn*. Then its weight is raised
if enough iterates were accepted, else lowered, by bisection between a weight that worked and one that did
not, and the next turn starts at the factual. The closest accepted iterate of all turns is the result.

The published runs first *sweep* ten weights, each a tenth of the one before, to find the two bounds. Without
the sweep the upper bound is known: if :math:`\lambda` is the norm of the loss's gradient at the factual, in
the norm dual to the distance, the factual is a stationary point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from plausiflow.core import Classifier, Plausibility, Solution, predict
from plausiflow.errors import NotFittedError
from plausiflow.methods.box import BoxedMethod
from plausiflow.methods.reference.row_adam import RowAdam, settle
from plausiflow.methods.reference.statistics import feature_spreads, log_odds
from plausiflow.validation import is_whole, raise_unless, to_float

SWEEP = 10
"""Number of weights in the published sweep; each gets a tenth of the steps of a turn."""
FIRST_WEIGHT = 0.1
"""The largest of them."""
ENOUGH = 5
"""Accepted iterates in a turn that lead to a larger weight."""


@dataclass
class WeightSearchState:
    """The n rows that are still searched."""

    rows: Tensor  # Row numbers, (n,).
    x0: Tensor  # Factuals, (n, d).
    x: Tensor  # Iterates, (n, d).
    lower: Tensor  # Smallest allowed values, (n, d).
    upper: Tensor  # Largest allowed values, (n, d).
    cost: Tensor  # Cost of a change of each feature in the L1 distance, (n, d).
    pull: Tensor  # Gradient of the prediction loss at x, (n, d).
    first_pull: Tensor  # Gradient of the prediction loss at x0, (n, d).
    weight: Tensor  # Weight of this turn, (n,).
    low: Tensor  # Largest weight that worked so far, zero before, (n,).
    high: Tensor  # Smallest weight that did not work, (n,).
    turn: Tensor  # Number of the turn, negative in the sweep, (n,).
    worked: Tensor  # Turns that worked, (n,).
    hits: Tensor  # Accepted iterates of this turn, (n,).
    run: Tensor  # Latest consecutive accepted iterates, or rejected ones with a minus sign, (n,).
    carries_on: Tensor  # Whether the next turn starts where this one ends, (n,).
    adam: RowAdam  # Adam's memory of this turn.

    def select(self, mask: Tensor) -> WeightSearchState:
        """Return the rows where the mask is true."""
        return WeightSearchState(**{f.name: getattr(self, f.name)[mask] for f in fields(self)})


@dataclass(kw_only=True, eq=False)
class Wachter(BoxedMethod):
    r"""Wachter's counterfactuals: close and valid.

    Attributes:
        distance: Distance that is minimised: the sum of absolute changes (``l1``), the same with each change
            divided by the feature's median absolute deviation in the training rows (``mad``, as Wachter et
            al.), or the Euclidean norm (``l2``).
        margin: :math:`\epsilon`: with two classes the target must reach probability :math:`0.5 + \epsilon`;
            with more it must have the same odds against its strongest rival.
        any_class: Whether any change of the decision is accepted, whatever ``y_target``.
        difference: Step of central differences for models without gradients; zero uses gradients.
        steps: Maximum number of steps of a turn, that is, with one weight.
        patience: Consecutive accepted, or rejected, iterates that end a turn.
        turns: Number of weights that are tried.
        learning_rate: Initial learning rate of Adam; features are on a scale of about one.
        published: Use the loss, box and search of the published runs; see ``paper``.

    Example:
        >>> from plausiflow.models import LinearClassifier
        >>> model = LinearClassifier.from_weights(torch.tensor([[4.0, 1.0]]), torch.tensor([-2.0]))
        >>> method = Wachter(classifier=model, margin=0.0, lower=0.0, upper=1.0)
        >>> method.explain(torch.tensor([[0.25, 0.5]])).x_cf
        tensor([[0.37..., 0.5000]])
    """

    label: ClassVar[str] = "WACH"

    distance: Literal["l1", "mad", "l2"] = "l1"
    margin: float = 0.01
    any_class: bool = False
    difference: float = 0.0
    steps: int = 100
    patience: int = 50
    turns: int = 6
    learning_rate: float = 0.1
    published: bool = False
    spread_: Tensor | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        whole = "a whole number of at least 1"
        requirements = {
            "distance": ("'l1', 'mad' or 'l2'", self.distance in ("l1", "mad", "l2")),
            "margin": ("in [0, 0.5)", 0 <= to_float(self.margin) < 0.5),
            "difference": ("at least 0", to_float(self.difference) >= 0),
            "steps": (whole, is_whole(self.steps) and self.steps >= 1),
            "patience": (whole, is_whole(self.patience) and self.patience >= 1),
            "turns": (whole, is_whole(self.turns) and self.turns >= 1),
            "learning_rate": ("positive", to_float(self.learning_rate) > 0),
        }
        raise_unless(requirements, vars(self))

    @classmethod
    def paper(
        cls, *, classifier: Classifier, plausibility: Plausibility | None = None, difference: float = 0.0
    ) -> Self:
        """Return the settings of the published runs: any other class, at probability 0.51.

        All features share one box, from the smallest to the largest entry of the training rows. The search
        runs in the precision of the rows.

        Args:
            classifier: The model to explain.
            plausibility: Criterion that judges the results.
            difference: The published runs used central differences with step 0.01, which take two evaluations
                per feature and step. With gradients, means over rows differ by up to 2 %.
        """
        return cls(
            classifier=classifier,
            plausibility=plausibility,
            any_class=True,
            difference=difference,
            steps=1000,
            turns=10,
            published=True,
        )

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Learn the box, and each feature's spread, from training rows ``(n, d)``."""
        super().fit(x, y)
        self.spread_ = feature_spreads(x)
        if self.published:
            self.range_ = (x.min(), x.max())
        return self

    def search(self, x: Tensor, y_target: Tensor) -> Solution:
        """Descend with a weight per row, and return the closest accepted iterate of all turns."""
        dtype, x = x.dtype, x.detach() if self.published else x.detach().double()
        y = predict(self.classifier, x.double()) if self.any_class else None
        every = torch.arange(len(x), device=x.device)
        pull, accepted = self._evaluate(x, y_target, y)
        best, gradients = torch.where(accepted[:, None], x, torch.nan), torch.ones_like(every)
        closest = torch.where(accepted, 0.0, x.new_full((len(x),), math.inf))
        # Without a gradient a row stays at its factual for every weight.
        state = self._begin(x, pull).select(~accepted & (pull != 0).any(dim=1))
        while len(state.rows):
            self._step(state, dtype)
            rows = state.rows
            state.pull, accepted = self._evaluate(state.x, y_target[rows], None if y is None else y[rows])
            gradients[rows] += 1
            distance = self._distance(state)
            better = accepted & (distance < closest[rows]) & (state.turn >= 0)
            best[rows[better]], closest[rows[better]] = state.x[better], distance[better]
            ended = self._count(state, accepted)
            if bool(ended.any()):
                state = self._next_turn(state, ended)
        return Solution(x=best.to(dtype), gradients=gradients)

    def _begin(self, x: Tensor, pull: Tensor) -> WeightSearchState:
        lower, upper = self.box(x, widened=not self.published)
        cost = self._feature_costs(x).expand_as(x)
        steepest = pull.norm(dim=1) if self.distance == "l2" else (pull.abs() / cost).amax(dim=1)
        zeros = torch.zeros(len(x), dtype=torch.long, device=x.device)
        return WeightSearchState(
            rows=torch.arange(len(x), device=x.device),
            x0=x,
            x=x,
            lower=lower,
            upper=upper,
            cost=cost,
            pull=pull,
            first_pull=pull,
            weight=torch.full_like(steepest, FIRST_WEIGHT) if self.published else steepest / 2,
            low=torch.zeros_like(steepest),
            high=torch.full_like(steepest, FIRST_WEIGHT) if self.published else steepest,
            turn=zeros - SWEEP if self.published else zeros.clone(),
            worked=zeros.clone(),
            hits=zeros.clone(),
            run=zeros.clone(),
            carries_on=torch.full_like(zeros, self.published, dtype=torch.bool),
            adam=RowAdam(x),
        )

    def _feature_costs(self, x: Tensor) -> Tensor:
        if self.distance != "mad":
            return x.new_ones(x.shape[1])
        if self.spread_ is None:
            raise NotFittedError(
                'The distance "mad" needs the spread of training rows. Call `fit(x, y)` first, or use "l1".'
            )
        return 1 / self.spread_.to(x)

    def _distance(self, state: WeightSearchState) -> Tensor:
        change = state.x - state.x0
        return change.norm(dim=1) if self.distance == "l2" else (change.abs() * state.cost).sum(dim=1)

    def _gradient(self, state: WeightSearchState, change: Tensor) -> Tensor:
        """Return the objective's gradient; where the distance has a kink, the shortest subgradient."""
        pull, weight = state.pull, state.weight[:, None]
        if self.distance == "l2":
            length = change.norm(dim=1, keepdim=True)
            shrunk = pull * (1 - weight / pull.norm(dim=1, keepdim=True).clamp_min(1e-30)).clamp_min(0)
            return torch.where(length > 0, pull + weight * change / length.clamp_min(1e-30), shrunk)
        weight = weight * state.cost
        derivative = pull + weight * change.sign()
        if self.published:
            return derivative
        return torch.where(change == 0, pull.sign() * (pull.abs() - weight).clamp_min(0), derivative)

    def _step(self, state: WeightSearchState, dtype: torch.dtype) -> None:
        """Take one step; iterates are rounded to the precision of the results."""
        change = state.x - state.x0
        derivative = self._gradient(state, change)
        rate = self.learning_rate * (1 - state.adam.clock / self.steps)
        moved = change - state.adam.step(derivative, rate)
        if not self.published and self.distance != "l2":
            moved = settle(change, moved, derivative)
        state.x = (state.x0 + moved).clamp(state.lower, state.upper).to(dtype).to(moved)

    def _count(self, state: WeightSearchState, accepted: Tensor) -> Tensor:
        """Count accepted iterates; return which turns have ended."""
        state.hits += accepted
        state.run = torch.where(accepted, state.run.clamp_min(0) + 1, state.run.clamp_max(0) - 1)
        bisecting = state.turn >= 0
        settled = bisecting & (state.run.abs() >= self.patience)
        return settled | (state.adam.clock >= torch.where(bisecting, self.steps, self.steps // SWEEP))

    def _next_turn(self, state: WeightSearchState, ended: Tensor) -> WeightSearchState:
        """Set the next weight of rows whose turn has ended; drop rows that have had all turns."""
        sweeping = state.turn < 0
        works = state.hits >= torch.where(sweeping, 1, ENOUGH)
        state.worked += ended & works
        # In the sweep the second weight that works is the lower bound, as published.
        raised = ended & works & (~sweeping | (state.worked == 2))
        state.low = torch.where(raised, torch.maximum(state.low, state.weight), state.low)
        state.high = torch.where(ended & ~works, torch.minimum(state.high, state.weight), state.high)
        # The published sweep always tries all weights. Here a row stops after two weights that work, if its
        # last iterate was accepted: smaller weights pull it back less (true for all 4,669 published rows).
        enough = (state.worked >= 2) & (state.run > 0)
        swept = ended & sweeping & (enough | (state.turn == -1))
        state.turn = torch.where(swept, 0, state.turn + ended)
        bisect = (state.turn >= 0) & (state.low > 0)
        weight = torch.where(bisect, (state.low + state.high) / 2, state.weight / 10)
        state.weight = torch.where(ended, weight, state.weight)
        # If half of the turns from the factual have failed, the next ones start at the last iterate.
        state.carries_on |= ended & (state.low == 0) & (2 * state.turn >= self.turns)
        back = (swept | (ended & ~state.carries_on))[:, None]
        state.x = torch.where(back, state.x0, state.x)
        state.pull = torch.where(back, state.first_pull, state.pull)
        state.hits, state.run = state.hits.masked_fill(ended, 0), state.run.masked_fill(ended, 0)
        state.adam.restart(ended)
        leaving = (state.turn >= self.turns) | (swept & (state.worked < 2))
        return state.select(~leaving) if bool(leaving.any()) else state

    def _evaluate(self, x_cf: Tensor, y_target: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the prediction loss's gradient, and which points are in the target class by the margin."""
        value, gradient = self._value_and_gradient(x_cf, y_target, y)
        if self.published:
            return 2 * (value - 1)[:, None] * gradient, value >= 0.5 + self.margin
        accepted = value >= max(math.log((0.5 + self.margin) / (0.5 - self.margin)), 1e-9)
        return -gradient.masked_fill(accepted[:, None], 0.0), accepted

    def _value_and_gradient(self, x_cf: Tensor, y_target: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the value of points, shape ``(m,)``, and its gradient, shape ``(m, d)``."""
        exact = self.difference == 0
        with torch.set_grad_enabled(exact):
            point = x_cf.detach().requires_grad_(exact)
            logits = self.classifier.logits(point)
            # If any other class is accepted, the target is the strongest of them at this step.
            target = y_target if y is None else logits.scatter(1, y[:, None], -math.inf).argmax(dim=1)
            value = self._value(logits, target)
            if not exact:
                gradient = self._central_differences(point, target)
            elif value.requires_grad:
                (gradient,) = torch.autograd.grad(value.sum(), point)
            else:
                gradient = torch.zeros_like(point)
        return value.detach(), gradient.nan_to_num(0.0, 0.0, 0.0)

    def _value(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the target class's probability, as published, or its log-odds."""
        if self.published:
            return logits.softmax(dim=1).gather(1, target[:, None])[:, 0]
        return log_odds(logits, target)

    def _central_differences(self, x_cf: Tensor, target: Tensor) -> Tensor:
        """Return central differences of the value in each feature, shape ``(m, d)``."""
        d = x_cf.shape[1]
        step = self.difference * torch.eye(d).to(x_cf)
        around = torch.stack([x_cf[:, None] + step, x_cf[:, None] - step])
        logits = self.classifier.logits(around.reshape(-1, d))
        values = self._value(logits, target.repeat_interleave(d).repeat(2)).view(2, -1, d)
        return (values[0] - values[1]) / (2 * self.difference)
