r"""FACE: the training row that is reached from a row in small, dense steps (Poyiadzi et al., 2020).

Training rows are the nodes of a graph. A step of length :math:`d_{ij}` where the density is :math:`p_{ij}`
costs

.. math:: w_{ij} = \max\bigl(0,\ c - \log p_{ij}\bigr)\, d_{ij}

with :math:`c = 0` as in the paper, or the largest :math:`\log p_{ij}` where a density exceeds one. The answer
is the row, decided as wanted, with the cheapest path. Going backwards from all such rows at once, one run of
Dijkstra's algorithm for each class answers every question.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Self

import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra
from torch import Tensor

from plausiflow.core import Plausibility, Solution, check_rows, predict_proba
from plausiflow.densities import KDE
from plausiflow.errors import InvalidInputError, NotFittedError
from plausiflow.methods.base import Method
from plausiflow.methods.reference.nearest import distances

_BLOCK = 256


@dataclass(frozen=True, eq=False)
class Ways:
    """The cheapest way from every training row to each class.

    Attributes:
        rows: The distinct training rows, shape ``(n, d)``.
        cost: What the way costs, shape ``(k, n)``; infinite where there is none.
        following: Number of the next row on it, shape ``(k, n)``; negative at its end.
        end: Number of its last row, shape ``(k, n)``; negative where there is none.
    """

    rows: Tensor
    cost: Tensor
    following: Tensor
    end: Tensor

    def to(self, device: torch.device) -> Ways:
        """The same ways, on a device."""
        return Ways(*(part.to(device) for part in (self.rows, self.cost, self.following, self.end)))


@dataclass(kw_only=True, eq=False)
class FACE(Method):
    r"""Feasible and actionable counterfactuals: training rows at the end of a path of training rows.

    Attributes:
        weights: What the density of a step is. ``knn``: :math:`r / d_{ij}` with :math:`r = k / (n \eta)` and
            the volume :math:`\eta` of the unit ball; ``epsilon``: :math:`\epsilon^d / d_{ij}`; ``kde``: a
            kernel estimate in the middle of the step; ``flow``: there, the mixture of the class densities
            of ``plausibility``.
        neighbours: How many nearest rows a row is joined to, unless ``epsilon`` says how near.
        epsilon: Longest step with ``epsilon`` weights; nothing takes a length within which nine rows in ten
            have that many neighbours.
        bandwidth: Of the kernel estimate; nothing takes the one under which a row is likeliest, given the
            others.
        probability: Least probability of the wanted class at the end; the model must decide for it, too.
        density_threshold: Least log-density at the end: of the mixture with ``flow`` weights, else of the
            kernel estimate.
        allowed: Which steps may be taken, such as none that lowers an age: ``(from, to) -> (m,)`` bool, for
            rows ``(m, d)`` each.

    Example:
        >>> from plausiflow.models import LinearClassifier
        >>> model = LinearClassifier.from_weights(torch.tensor([[1.0]]), torch.tensor([-2.5]))
        >>> x = torch.arange(6.0)[:, None]
        >>> method = FACE(classifier=model, neighbours=1).fit(x, (x[:, 0] > 2.5).long())
        >>> method.paths(torch.tensor([[0.9]]), torch.tensor([1]))[0].flatten()
        tensor([1., 2., 3.])
    """

    label: ClassVar[str] = "FACE"

    weights: Literal["knn", "epsilon", "kde", "flow"] = "knn"
    neighbours: int = 20
    epsilon: float | None = None
    bandwidth: float | None = None
    probability: float = 0.5
    density_threshold: float | None = None
    allowed: Callable[[Tensor, Tensor], Tensor] | None = None
    ways_: Ways | None = field(init=False, default=None, repr=False)
    epsilon_: float = field(init=False, default=math.inf, repr=False)
    log_scale_: float = field(init=False, default=0.0, repr=False)
    peak_: float = field(init=False, default=0.0, repr=False)
    log_density_: Callable[[Tensor], Tensor] | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        problems = []
        if self.weights not in ("knn", "epsilon", "kde", "flow"):
            problems.append(f"`weights` must be 'knn', 'epsilon', 'kde' or 'flow'; got {self.weights!r}")
        if self.weights == "flow" and not hasattr(self.plausibility, "log_prob"):
            problems.append(
                "'flow' weights need a `plausibility` with `log_prob(x, y)`, such as a fitted `Thresholded`; "
                f"got {self.plausibility!r}"
            )
        if self.neighbours < 1:
            problems.append(f"`neighbours` must be at least 1; got {self.neighbours}")
        for name, value in (("epsilon", self.epsilon), ("bandwidth", self.bandwidth)):
            if value is not None and not value > 0:
                problems.append(f"`{name}` must be positive; got {value}")
        if not 0 <= self.probability < 1:
            problems.append(f"`probability` must be in [0, 1); got {self.probability}")
        if problems:
            raise InvalidInputError("; ".join(problems) + ".")

    @torch.no_grad()
    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Join training rows ``(n, d)`` to a graph, and find the way from each to every class."""
        check_rows(x, y, n_classes=self.classifier.n_classes)
        # Copies of a row would have only each other as neighbours.
        rows = torch.unique(x.double(), dim=0)
        if self.weights == "flow" and self.plausibility is not None:
            self.log_density_ = _mixture(self.plausibility, y)
        elif self.weights == "kde" or self.density_threshold is not None:
            self.log_density_ = _kernels(x.double(), self.bandwidth or likeliest_bandwidth(rows))
        start, end = self._join(rows)
        length = torch.linalg.vector_norm(rows[start] - rows[end], dim=1)
        log_density = self._step_log_density(rows[start], rows[end], length)
        if self.weights in ("kde", "flow"):
            # Deviation: where a density exceeds one, the paper's cost -log p is negative; shifted it is not.
            finite = log_density[torch.isfinite(log_density)]
            self.peak_ = max(0.0, float(finite.max())) if len(finite) else 0.0
        self.ways_ = self._find_ways(rows, start, end, self._cost(log_density, length))
        return self

    def paths(self, x: Tensor, y_target: Tensor) -> list[Tensor]:
        """The training rows on the way from each row to its counterfactual, which is the last of them.

        Args:
            x: Rows, shape ``(n, d)``.
            y_target: Target classes, shape ``(n,)``.

        Returns:
            One table ``(steps, d)`` per row: no steps where there is no way, or none is needed.
        """
        ways, usable = self._ways(x), torch.isfinite(x).all(dim=1)
        at = torch.full_like(y_target, -1)
        at[usable] = self._first_rows(x[usable].double(), y_target[usable])
        steps = [at]
        while bool((at >= 0).any()):
            at = torch.where(at >= 0, ways.following[y_target, at.clamp_min(0)], -1)
            steps.append(at)
        return [ways.rows[numbers[numbers >= 0]].to(x.dtype) for numbers in torch.stack(steps, dim=1)]

    @torch.no_grad()
    def search(self, x: Tensor, y_target: Tensor) -> Solution:
        ways, exact = self._ways(x), x.double()
        first = self._first_rows(exact, y_target)
        found = ways.rows[ways.end[y_target, first.clamp_min(0)].clamp_min(0)]
        found = found.masked_fill((first < 0)[:, None], torch.nan)
        already = self._ends(exact).gather(1, y_target[:, None])
        return Solution(x=torch.where(already, x, found.to(x.dtype)), gradients=torch.zeros_like(y_target))

    def _ways(self, x: Tensor) -> Ways:
        if self.ways_ is None:
            raise NotFittedError("This method has no graph. Call `fit(x, y)` with training rows first.")
        return self.ways_.to(x.device)

    @torch.no_grad()
    def _first_rows(self, x: Tensor, y_target: Tensor) -> Tensor:
        """The training row that each way starts with, shape ``(n,)``; -1 where no way is found or needed."""
        ways, found = self._ways(x), torch.full_like(y_target, -1)
        for at in torch.arange(len(x), device=x.device).split(_BLOCK):
            apart = distances(x[at], ways.rows)
            near = apart.topk(min(self.neighbours, len(ways.rows)), largest=False).values
            row, number = (apart <= self._reach(near)).nonzero(as_tuple=True)
            here, there, length = x[at][row], ways.rows[number], apart[row, number]
            cost = self._cost(self._step_log_density(here, there, length), length)
            if self.allowed is not None:
                cost = cost.masked_fill(~self.allowed(here, there), torch.inf)
            total = torch.full_like(apart, torch.inf)
            total[row, number] = cost + ways.cost[y_target[at][row], number]
            best = total.min(dim=1)
            already = self._ends(x[at]).gather(1, y_target[at, None])[:, 0]
            found[at] = best.indices.masked_fill(torch.isinf(best.values) | already, -1)
        return found

    def _reach(self, near: Tensor) -> Tensor:
        """How far the rows are that a row is joined to, from its sorted distances ``(n, k)``: ``(n, 1)``."""
        return torch.full_like(near[:, :1], self.epsilon_) if self.weights == "epsilon" else near[:, -1:]

    def _join(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Which rows a step leads between: row numbers, shape ``(m,)`` twice, each pair once."""
        blocks = torch.arange(len(rows), device=rows.device).split(_BLOCK)
        count = min(self.neighbours + 1, len(rows))
        # The nearest row of all is the row itself.
        near = torch.cat([distances(rows[at], rows).topk(count, largest=False).values for at in blocks])
        if self.weights == "epsilon":
            self.epsilon_ = self.epsilon or float(near[:, -1].quantile(0.9)) or math.inf
        self.log_scale_ = self._log_scale(rows, float(near[:, min(1, count - 1)].median()))
        reach, codes = self._reach(near), []
        for at in blocks:
            row, number = (distances(rows[at], rows) <= reach[at]).nonzero(as_tuple=True)
            start, end = torch.minimum(at[row], number), torch.maximum(at[row], number)
            codes.append((start * len(rows) + end)[start < end])
        code = torch.cat(codes).unique()
        return code // len(rows), code % len(rows)

    def _log_scale(self, rows: Tensor, typical: float) -> float:
        """Logarithm of the step length below which ``knn`` and ``epsilon`` weights are zero."""
        n, d = rows.shape
        log_ball = 0.5 * d * math.log(math.pi) - math.lgamma(0.5 * d + 1)
        scale = math.log(min(self.neighbours, n)) - math.log(n) - log_ball
        if self.weights == "epsilon":
            scale = d * math.log(self.epsilon_)
        # Deviation: with many features the ball vanishes, and the paper's weights are negative everywhere.
        # Here no step is free that is longer than a typical one to the nearest row.
        return min(scale, math.log(typical)) if typical > 0 else scale

    def _step_log_density(self, start: Tensor, end: Tensor, length: Tensor) -> Tensor:
        """What a step's log-density is taken to be, shape ``(m,)``."""
        if self.weights in ("kde", "flow"):
            return self._log_density((start + end) / 2)
        return self.log_scale_ - length.log()

    def _cost(self, log_density: Tensor, length: Tensor) -> Tensor:
        """Of steps, shape ``(m,)``; infinite where the density is not a number."""
        cost = ((self.peak_ - log_density).clamp_min(0) * length).masked_fill(length == 0, 0.0)
        return cost.masked_fill(cost.isnan(), torch.inf)

    def _log_density(self, x: Tensor) -> Tensor:
        """Whatever the class, shape ``(n,)``."""
        assert self.log_density_ is not None
        return torch.cat([self.log_density_(block) for block in x.split(_BLOCK)])

    def _find_ways(self, rows: Tensor, start: Tensor, end: Tensor, cost: Tensor) -> Ways:
        here, there, cost = torch.cat([start, end]), torch.cat([end, start]), cost.repeat(2)
        kept = torch.isfinite(cost)
        if self.allowed is not None:
            kept &= self.allowed(rows[here], rows[there])
        # Transposed: each step leads from its end to its start.
        backwards = (cost[kept].cpu().numpy(), (there[kept].cpu().numpy(), here[kept].cpu().numpy()))
        graph = csr_array(backwards, shape=(len(rows), len(rows)))
        ends = self._ends(rows).T.cpu()
        costs = torch.full(ends.shape, torch.inf, dtype=torch.float64)
        following, last = torch.full((2, *ends.shape), -1)
        for c, wanted in enumerate(ends):
            if wanted.any():
                found = dijkstra(
                    graph, indices=wanted.nonzero()[:, 0].numpy(), min_only=True, return_predecessors=True
                )
                costs[c], following[c], last[c] = (torch.from_numpy(part) for part in found)
        return Ways(rows, costs, following, last).to(rows.device)

    def _ends(self, x: Tensor) -> Tensor:
        """Whether a way to each class may end at a row, shape ``(n, k)``."""
        proba = torch.cat([predict_proba(self.classifier, block) for block in x.split(_BLOCK)])
        decided = torch.arange(proba.shape[1], device=x.device) == proba.argmax(dim=1, keepdim=True)
        ends = decided & (proba >= self.probability)
        if self.density_threshold is not None:
            ends &= (self._log_density(x) >= self.density_threshold)[:, None]
        return ends


def _mixture(density: Plausibility | float, y: Tensor) -> Callable[[Tensor], Tensor]:
    """The log-density whatever the class, from class densities and the classes ``(n,)`` of training rows."""
    log_shares = {c: math.log(float((y == c).double().mean())) for c in y.unique().tolist()}

    def log_density(x: Tensor) -> Tensor:
        assert hasattr(density, "log_prob")
        classes = {c: torch.full((len(x),), c, device=x.device) for c in log_shares}
        parts = [share + density.log_prob(x, classes[c]) for c, share in log_shares.items()]
        return torch.stack(parts).logsumexp(dim=0)

    return log_density


def _kernels(x: Tensor, bandwidth: float) -> Callable[[Tensor], Tensor]:
    kde = KDE(bandwidth=bandwidth).fit(x, torch.zeros(len(x), dtype=torch.long, device=x.device))
    return lambda at: kde.log_prob(at, torch.zeros(len(at), dtype=torch.long, device=at.device))


def likeliest_bandwidth(rows: Tensor) -> float:
    """The kernel width under which a thousand of the rows are likeliest, given all others."""
    spread = float(rows.var(dim=0, correction=0).mean().sqrt())
    if spread == 0:
        return 1.0
    squared = distances(rows[:: math.ceil(len(rows) / 1000)], rows).square()
    squared = squared.masked_fill(squared == 0, torch.inf)
    widths = spread * torch.logspace(-2, 0.5, 16, dtype=torch.float64)
    kernels = torch.stack([torch.logsumexp(-squared / (2 * h * h), dim=1).mean() for h in widths.tolist()])
    return float(widths[(kernels.cpu() - rows.shape[1] * widths.log()).argmax()])
