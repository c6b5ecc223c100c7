r"""The loop that CEM and CEGP share: FISTA on an elastic net, around it a bisection of the validity's weight.

A round minimises the objective of :mod:`plausiflow.methods.reference.elastic_net` for one weight c: a gradient step
from y on all but the :math:`\ell_1` term, the proximal step of that term, and momentum from the last two
results to the next y. A row that was accepted in a round gets a smaller c in the next, any other row a larger
one. The closest accepted iterate of all rounds is the answer.

The proximal step is soft thresholding by ``rate * beta`` and a projection on the box. The published runs
threshold by beta itself: a feature moves only where one step reaches farther than beta, and is pulled back by
beta in every step.

The model is asked as little as the definition allows. Its gradient is needed at y where h is positive there;
its value at an iterate only where the round has no accepted iterate yet, or where this one would be closer
than the best so far. A row whose step leads nowhere, and so never will, leaves the round.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, Self

import torch
from torch import Tensor

from plausiflow.core import Solution
from plausiflow.methods.reference.elastic_net import Best, ElasticNet, in_parts, with_gradient
from plausiflow.progress import progress_bar
from plausiflow.validation import is_whole, raise_unless, to_float

_UNBOUNDED = 1e9  # a weight that large is no upper end of a bracket


@dataclass(frozen=True, kw_only=True)
class FISTA:
    """Settings of the loop; the defaults are the sound form.

    Attributes:
        rounds: How many weights of the validity are tried.
        steps: Most steps of a round.
        first_weight: The first weight.
        learning_rate: Step size at first; falls as the square root of the steps left. With ``ista`` it is
            not longer than the curvature of the distance and the smooth term allows.
        max_gradient: Where the entries of the two parts of the gradient, the model's and the rest, are cut.
        prox: ``ista`` thresholds by the step size times the weight of the distance, ``dead_zone`` by that
            weight itself, as the published runs.
        numerical: Take the model's gradient as the published runs did, numerically: it is k / (k - 1) times
            too long for k classes, and missing in the first step of a round.
        tolerance: A row leaves a round when its generalised gradient is shorter.
        patience: Steps without a better answer before a row that was accepted in a round leaves it; nothing:
            all steps.
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
        fine = {
            "rounds": ("a whole number of at least 1", is_whole(self.rounds) and self.rounds >= 1),
            "steps": ("a whole number of at least 1", is_whole(self.steps) and self.steps >= 1),
            "first_weight": ("positive", to_float(self.first_weight) > 0),
            "learning_rate": ("positive", to_float(self.learning_rate) > 0),
            "max_gradient": ("positive", to_float(self.max_gradient) > 0),
            "prox": ("'ista' or 'dead_zone'", self.prox in ("ista", "dead_zone")),
            "tolerance": ("at least 0", to_float(self.tolerance) >= 0),
            "patience": (
                "a whole number of at least 1, or None",
                self.patience is None or (is_whole(self.patience) and self.patience >= 1),
            ),
        }
        raise_unless(fine, {name: getattr(self, name) for name in fine})

    @classmethod
    def paper(cls, *, rounds: int, steps: int, first_weight: float) -> Self:
        """As the published runs: a dead zone, numerical gradients, and no row leaves early."""
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
        """The closest accepted iterate of every row, NaN where there is none; in the rows' precision.

        Args:
            problem: What is minimised.
            n_classes: Classes of the model.
        """
        scale = n_classes / (n_classes - 1) if self.numerical else 1.0
        best = Best.none(problem)
        every = torch.arange(len(problem.x), device=problem.x.device)
        best.offer(problem, problem.x.double(), every)
        rows = every[torch.isinf(best.distance)]  # nothing is closer than a factual that is accepted itself
        weight = torch.full_like(best.distance[rows], self.first_weight)
        low, high = torch.zeros_like(weight), torch.full_like(weight, 10 * _UNBOUNDED)
        with progress_bar("FISTA: rounds", self.rounds) as advance:
            for _ in range(self.rounds):
                found = self._round(problem, _State.begin(problem, rows, scale * weight), best)[rows]
                high = torch.where(found, weight, high)
                low = torch.where(found, low, weight)
                weight = torch.where(high < _UNBOUNDED, (low + high) / 2, 10 * weight)
                advance(1, "")
        return Solution(x=best.x.to(problem.x.dtype), gradients=best.gradients)

    def _round(self, problem: ElasticNet, state: _State, best: Best) -> Tensor:
        """One round; says which rows of the problem were accepted in it, shape ``(n,)``."""
        found = torch.zeros_like(best.distance, dtype=torch.bool)
        ista = self.prox == "ista"
        first_rate = min(self.learning_rate, 1 / problem.curvature) if ista else self.learning_rate
        for step in range(self.steps):
            if len(state.rows) == 0:
                break
            rate = first_rate * (1 - step / self.steps) ** 0.5
            blind = self.numerical and step == 0
            gradient = state.gradient(problem).clamp(-self.max_gradient, self.max_gradient)
            if not blind:
                pull = state.model_gradient(problem, best).clamp(-self.max_gradient, self.max_gradient)
                gradient = gradient + pull
            threshold = problem.l1_weight * (rate if ista else 1.0)
            x_cf = state.shrunk(problem, state.y - rate * gradient, threshold)
            rests = state.advance(problem, x_cf, self.tolerance * rate, ista=ista)
            worth = state.worth_asking(problem, found, best)
            if len(worth):
                accepted, closer = best.offer(problem, state.x_cf[worth], state.rows[worth])
                fresh = accepted & ~found[state.rows[worth]]
                state.waited[worth[closer | fresh]] = 0
                found[state.rows[worth[accepted]]] = True
            leaves = torch.zeros_like(rests) if blind else rests
            if self.patience is not None:
                leaves = leaves | (found[state.rows] & (state.waited >= self.patience))
            if leaves.any():
                state = state.only(~leaves)
        return found


@dataclass(kw_only=True)
class _State:
    """The rows of a round that are still moving, m of them.

    Attributes:
        rows: Which rows of the problem they are.
        x: Factuals.
        lower: Smallest allowed values.
        upper: Largest allowed values.
        weight: c, times the scale of the model's gradient.
        x_cf: Last iterates.
        y: Where the next gradient is taken.
        active: Whether the gap was positive at the last y.
        momentum: Steps since the momentum was last dropped.
        waited: Steps since the round's first accepted iterate, or since a better answer.
    """

    rows: Tensor
    x: Tensor
    lower: Tensor
    upper: Tensor
    weight: Tensor
    x_cf: Tensor
    y: Tensor
    active: Tensor
    momentum: Tensor
    waited: Tensor

    @classmethod
    def begin(cls, problem: ElasticNet, rows: Tensor, weight: Tensor) -> Self:
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

    def only(self, kept: Tensor) -> Self:
        """The state of some of the rows."""
        return type(self)(**{f.name: getattr(self, f.name)[kept] for f in fields(self)})

    def gradient(self, problem: ElasticNet) -> Tensor:
        """Of the squared distance and the smooth term at y, shape ``(m, d)``."""
        gradient = 2 * (self.y - self.x)
        if problem.smooth is None:
            return gradient
        return gradient + in_parts(with_gradient(problem.smooth), self.y, self.rows)[:, 1:]

    def model_gradient(self, problem: ElasticNet, best: Best) -> Tensor:
        """Of the weighted hinge at y, shape ``(m, d)``: zero where the gap is not positive.

        Rows where it was not positive at the last y are first asked for its value only.
        """
        asked = self.active.clone()
        quiet = (~asked).nonzero()[:, 0]
        if len(quiet):
            asked[quiet] = in_parts(problem.gap, self.y[quiet], self.rows[quiet]) > 0
        loud = asked.nonzero()[:, 0]
        gradient = torch.zeros_like(self.y)
        if len(loud):
            answer = in_parts(with_gradient(problem.gap), self.y[loud], self.rows[loud])
            positive = answer[:, 0] > 0
            gradient[loud] = torch.where(positive, self.weight[loud], 0.0)[:, None] * answer[:, 1:]
            asked[loud] = positive
            best.gradients[self.rows[loud]] += 1
        self.active = asked
        return gradient

    def shrunk(self, problem: ElasticNet, point: Tensor, threshold: float) -> Tensor:
        """The proximal step: changes pulled towards zero by the threshold, in the box."""
        change = point - self.x
        shrunk = point - change.sign() * threshold
        inside = torch.where(change > 0, torch.minimum(shrunk, self.upper), torch.maximum(shrunk, self.lower))
        moved = torch.where(change.abs() > threshold, inside, self.x)
        return moved if problem.restrict is None else problem.restrict(moved, self.rows)

    def advance(self, problem: ElasticNet, x_cf: Tensor, tolerance: float, *, ista: bool) -> Tensor:
        """Take the iterate and set the next y; says which rows rest: they moved by no more than a tolerance.

        With ``ista`` a row drops its momentum where that led uphill. Without, thresholds do not fall with the
        step size, and only a row that rests at its factual is known to rest for ever.
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
        rests = (moved <= tolerance).all(dim=1)
        self.x_cf, self.y, self.waited = x_cf, y, self.waited + 1
        return rests if ista else rests & ~self._changed()

    def worth_asking(self, problem: ElasticNet, found: Tensor, best: Best) -> Tensor:
        """Which iterates matter, as positions: changed, and either not yet found or closer than the best."""
        closer = problem.distance(self.x_cf, self.rows) < best.distance[self.rows]
        return (self._changed() & (closer | ~found[self.rows])).nonzero()[:, 0]

    def _changed(self) -> Tensor:
        return (self.x_cf != self.x).any(dim=1)
