r"""The solver of CEM and CEGP: FISTA on an elastic net inside a bisection of the validity weight.

A round minimises the objective of :mod:`plausiflow_bench.methods.elastic_net` for one weight c. It takes
a gradient step from y on all terms but :math:`\ell_1`, the proximal step of that term, and momentum from the
last two results to the next y. A row with an accepted iterate in a round gets a smaller c in the next round,
any other row a larger one. The closest accepted iterate of all rounds is the result.

The proximal step is soft thresholding by ``rate * beta`` and a projection on the box. The published runs
threshold by beta itself: a feature moves only if one step exceeds beta, and every step pulls it back by beta.

Unnecessary model evaluations are skipped. The gradient is needed at y if h is positive there. The value at an
iterate is needed only if the round has no accepted iterate yet, or if this one would be closer than the best
so far. A row that has stopped moving leaves the round.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, Self

import torch
from torch import Tensor

from plausiflow.core import Solution
from plausiflow.progress import progress_bar
from plausiflow.validation import is_whole, raise_unless, to_float
from plausiflow_bench.methods.elastic_net import (
    ClosestAccepted,
    ElasticNet,
    evaluate_in_batches,
    with_gradient,
)

_UNBOUNDED = 1e9  # A larger weight is not an upper end of a bracket.


@dataclass(frozen=True, kw_only=True)
class FISTA:
    """Settings of the solver; ``paper`` gives those of the published runs.

    Attributes:
        rounds: Number of validity weights that are tried.
        steps: Maximum number of steps of a round.
        first_weight: First validity weight.
        learning_rate: Initial step size, which falls as the square root of the remaining steps. With ``ista``
            it is limited by the curvature of the distance and the smooth term.
        max_gradient: Bound of the entries of both parts of the gradient, the model's and the rest.
        prox: ``ista`` thresholds by the step size times the weight of the distance, ``dead_zone`` by that
            weight itself, as the published runs did.
        numerical: Whether to repeat the numerical gradients of the published runs, which are k / (k - 1)
            times too long for k classes, and missing in the first step of a round.
        tolerance: A row leaves a round when its generalised gradient is shorter.
        patience: Steps without a better result after which a row with an accepted iterate leaves a round;
            None uses all steps.
    """

    rounds: int = 8
    steps: int = 300
    first_weight: float = 1.0
    learning_rate: float = 1e-2
    max_gradient: float = 1000.0
    prox: Literal["ista", "dead_zone"] = "ista"
    numerical: bool = False
    tolerance: float = 1e-3
    patience: int | None = 20

    def __post_init__(self) -> None:
        whole = "a whole number of at least 1"
        patient = self.patience is None or (is_whole(self.patience) and self.patience >= 1)
        requirements = {
            "rounds": (whole, is_whole(self.rounds) and self.rounds >= 1),
            "steps": (whole, is_whole(self.steps) and self.steps >= 1),
            "first_weight": ("positive", to_float(self.first_weight) > 0),
            "learning_rate": ("positive", to_float(self.learning_rate) > 0),
            "max_gradient": ("positive", to_float(self.max_gradient) > 0),
            "prox": ("'ista' or 'dead_zone'", self.prox in ("ista", "dead_zone")),
            "tolerance": ("at least 0", to_float(self.tolerance) >= 0),
            "patience": (f"{whole}, or None", patient),
        }
        raise_unless(requirements, vars(self))

    @classmethod
    def paper(cls, *, rounds: int, steps: int, first_weight: float) -> Self:
        """Return the settings of the published runs: a dead zone, numerical gradients, no early exit."""
        return cls(
            rounds=rounds,
            steps=steps,
            first_weight=first_weight,
            prox="dead_zone",
            numerical=True,
            tolerance=0.0,
            patience=None,
        )

    @torch.no_grad()
    def solve(self, problem: ElasticNet, *, n_classes: int) -> Solution:
        """Return the closest accepted iterate of every row, NaN if there is none, in the rows' precision.

        Args:
            problem: The problem.
            n_classes: Number of classes of the model.
        """
        scale = n_classes / (n_classes - 1) if self.numerical else 1.0
        best = ClosestAccepted.empty(problem)
        every = torch.arange(len(problem.x), device=problem.x.device)
        best.update(problem, problem.x.double(), every)
        rows = every[torch.isinf(best.distance)]  # an accepted factual cannot be improved
        weight = torch.full_like(best.distance[rows], self.first_weight)
        low, high = torch.zeros_like(weight), torch.full_like(weight, 10 * _UNBOUNDED)
        with progress_bar("FISTA: rounds", self.rounds) as advance:
            for _ in range(self.rounds):
                found = self._round(problem, FISTAState.begin(problem, rows, scale * weight), best)[rows]
                high = torch.where(found, weight, high)
                low = torch.where(found, low, weight)
                weight = torch.where(high < _UNBOUNDED, (low + high) / 2, 10 * weight)
                advance(1, "")
        return Solution(x=best.x.to(problem.x.dtype), gradients=best.gradients)

    def _round(self, problem: ElasticNet, state: FISTAState, best: ClosestAccepted) -> Tensor:
        """Run one round; return which rows of the problem had an accepted iterate, shape ``(n,)``."""
        found = torch.zeros_like(best.distance, dtype=torch.bool)
        ista = self.prox == "ista"
        first_rate = min(self.learning_rate, 1 / problem.curvature) if ista else self.learning_rate
        for step in range(self.steps):
            if len(state.rows) == 0:
                break
            rate = first_rate * (1 - step / self.steps) ** 0.5
            without_model = self.numerical and step == 0
            gradient = state.gradient(problem).clamp(-self.max_gradient, self.max_gradient)
            if not without_model:
                pull = state.model_gradient(problem, best).clamp(-self.max_gradient, self.max_gradient)
                gradient = gradient + pull
            threshold = problem.l1_weight * (rate if ista else 1.0)
            x_cf = state.shrink(problem, state.y - rate * gradient, threshold)
            resting = state.advance(problem, x_cf, self.tolerance * rate, ista=ista)
            candidates = state.candidates(problem, found, best)
            if len(candidates):
                accepted, closer = best.update(problem, state.x_cf[candidates], state.rows[candidates])
                first = accepted & ~found[state.rows[candidates]]
                state.waited[candidates[closer | first]] = 0
                found[state.rows[candidates[accepted]]] = True
            leaving = torch.zeros_like(resting) if without_model else resting
            if self.patience is not None:
                leaving = leaving | (found[state.rows] & (state.waited >= self.patience))
            if leaving.any():
                state = state.select(~leaving)
        return found


@dataclass(kw_only=True)
class FISTAState:
    """The m rows of a round that are still moving."""

    rows: Tensor  # Row numbers in the problem, (m,).
    x: Tensor  # Factuals, (m, d).
    lower: Tensor  # Smallest allowed values, (m, d).
    upper: Tensor  # Largest allowed values, (m, d).
    weight: Tensor  # c, times the scale of the model's gradient, (m,).
    x_cf: Tensor  # Last iterates, (m, d).
    y: Tensor  # Points where the next gradient is taken, (m, d).
    active: Tensor  # Whether the gap was positive at the last y, (m,).
    momentum: Tensor  # Steps since the last restart of the momentum, (m,).
    waited: Tensor  # Steps since the round's first accepted iterate, or since a better result, (m,).

    @classmethod
    def begin(cls, problem: ElasticNet, rows: Tensor, weight: Tensor) -> Self:
        """Start a round at the factuals."""
        x = problem.x[rows].double()
        return cls(
            rows=rows,
            x=x,
            lower=problem.lower[rows].double(),
            upper=problem.upper[rows].double(),
            weight=weight,
            x_cf=x,
            y=x,
            active=torch.ones_like(rows, dtype=torch.bool),
            momentum=torch.zeros_like(weight),
            waited=torch.zeros_like(rows),
        )

    def select(self, kept: Tensor) -> Self:
        """Return the state of the rows where the mask is true."""
        return type(self)(**{f.name: getattr(self, f.name)[kept] for f in fields(self)})

    def gradient(self, problem: ElasticNet) -> Tensor:
        """Return the gradient of the squared distance and the smooth term at y, shape ``(m, d)``."""
        gradient = 2 * (self.y - self.x)
        if problem.smooth is None:
            return gradient
        return gradient + evaluate_in_batches(with_gradient(problem.smooth), self.y, self.rows)[:, 1:]

    def model_gradient(self, problem: ElasticNet, best: ClosestAccepted) -> Tensor:
        """Return the gradient of the weighted hinge at y, shape ``(m, d)``.

        For rows whose gap was not positive at the last y, only its value is evaluated first.
        """
        active = self.active.clone()
        inactive = (~active).nonzero()[:, 0]
        if len(inactive):
            active[inactive] = evaluate_in_batches(problem.gap, self.y[inactive], self.rows[inactive]) > 0
        needed = active.nonzero()[:, 0]
        gradient = torch.zeros_like(self.y)
        if len(needed):
            both = evaluate_in_batches(with_gradient(problem.gap), self.y[needed], self.rows[needed])
            positive = both[:, 0] > 0
            gradient[needed] = torch.where(positive, self.weight[needed], 0.0)[:, None] * both[:, 1:]
            active[needed] = positive
            best.gradients[self.rows[needed]] += 1
        self.active = active
        return gradient

    def shrink(self, problem: ElasticNet, point: Tensor, threshold: float) -> Tensor:
        """Take the proximal step: shrink changes by the threshold, and keep them in the box."""
        change = point - self.x
        shrunk = point - change.sign() * threshold
        inside = torch.where(change > 0, torch.minimum(shrunk, self.upper), torch.maximum(shrunk, self.lower))
        moved = torch.where(change.abs() > threshold, inside, self.x)
        return moved if problem.restrict is None else problem.restrict(moved, self.rows)

    def advance(self, problem: ElasticNet, x_cf: Tensor, tolerance: float, *, ista: bool) -> Tensor:
        """Set the iterate and the next y; return which rows rest, that is, moved at most by the tolerance.

        With ``ista`` a row drops its momentum where that led uphill. Otherwise thresholds do not fall with
        the step size, and only a row that rests at its factual is sure to rest for ever.
        """
        step = x_cf - self.x_cf
        factor = (self.momentum + 1) / (self.momentum + 4)
        self.momentum = self.momentum + 1
        if ista:
            uphill = ((self.y - x_cf) * step).sum(dim=1) > 0
            factor, self.momentum = (torch.where(uphill, 0.0, v) for v in (factor, self.momentum))
        y = x_cf + factor[:, None] * step
        if problem.restrict is None:
            y = torch.minimum(torch.maximum(y, self.lower), self.upper)
        else:
            y = problem.restrict(y, self.rows)
        moved = torch.maximum(torch.maximum((x_cf - self.y).abs(), step.abs()), (y - x_cf).abs())
        resting = (moved <= tolerance).all(dim=1)
        self.x_cf, self.y, self.waited = x_cf, y, self.waited + 1
        return resting if ista else resting & ~self._changed()

    def candidates(self, problem: ElasticNet, found: Tensor, best: ClosestAccepted) -> Tensor:
        """Return positions of changed iterates that are the round's first or closer than the best."""
        closer = problem.distance(self.x_cf, self.rows) < best.distance[self.rows]
        return (self._changed() & (closer | ~found[self.rows])).nonzero()[:, 0]

    def _changed(self) -> Tensor:
        return (self.x_cf != self.x).any(dim=1)
