r"""FACE: the training row that is reached from a row in small, dense steps (Poyiadzi et al., 2020).

Training rows are the nodes of a graph. A step of length :math:`d_{ij}` at density :math:`p_{ij}` costs

.. math:: w_{ij} = \max\bigl(0,\ c - \log p_{ij}\bigr)\, d_{ij}

with :math:`c = 0` as in the paper, or the largest :math:`\log p_{ij}` if a density exceeds one. The result is
the training row of the target class with the cheapest path. One backward run of Dijkstra's algorithm per
class, from all such rows at once, gives the paths from every row.
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
from plausiflow.errors import NotFittedError
from plausiflow.methods.base import Method
from plausiflow.methods.reference.statistics import pairwise_distances
from plausiflow.validation import raise_unless

_BLOCK = 256


@dataclass(frozen=True, eq=False)
class CheapestPaths:
    """The cheapest path from every training row to each class."""

    rows: Tensor  # The distinct training rows, (n, d).
    cost: Tensor  # Cost of the path, (k, n); infinite if there is none.
    following: Tensor  # Number of the next row on the path, (k, n); negative at its end.
    end: Tensor  # Number of the last row of the path, (k, n); negative if there is none.

    def to(self, device: torch.device) -> CheapestPaths:
        """Return the paths on a device."""
        return CheapestPaths(*(part.to(device) for part in (self.rows, self.cost, self.following, self.end)))


@dataclass(kw_only=True, eq=False)
class FACE(Method):
    r"""Feasible and actionable counterfactuals: training rows at the end of a path of training rows.

    Attributes:
        weights: Density of a step. ``knn``: :math:`r / d_{ij}` with :math:`r = k / (n \eta)` and the volume
            :math:`\eta` of the unit ball; ``epsilon``: :math:`\epsilon^d / d_{ij}`; ``kde``: a kernel density
            estimate at the middle of the step; ``flow``: there, the mixture of the class densities of
            ``plausibility``.
        neighbours: Number of nearest rows that a row is connected to, except with ``epsilon`` weights.
        epsilon: Longest step with ``epsilon`` weights; None is a length within which nine rows in ten have
            that many neighbours.
        bandwidth: Bandwidth of the kernel density estimate; None maximises the leave-one-out likelihood.
        probability: Minimum probability of the target class at the end; the model must also predict it.
        density_threshold: Minimum log-density at the end: of the mixture with ``flow`` weights, else of the
            kernel density estimate.
        allowed: Steps that may be taken, such as none that lowers an age: ``(from, to) -> (m,)`` bool, for
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
    paths_: CheapestPaths | None = field(init=False, default=None, repr=False)
    epsilon_: float = field(init=False, default=math.inf, repr=False)
    log_scale_: float = field(init=False, default=0.0, repr=False)
    peak_: float = field(init=False, default=0.0, repr=False)
    log_density_: Callable[[Tensor], Tensor] | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        kinds = ("knn", "epsilon", "kde", "flow")
        requirements = {
            "weights": ("'knn', 'epsilon', 'kde' or 'flow'", self.weights in kinds),
            "neighbours": ("at least 1", self.neighbours >= 1),
            "epsilon": ("positive", self.epsilon is None or self.epsilon > 0),
            "bandwidth": ("positive", self.bandwidth is None or self.bandwidth > 0),
            "probability": ("in [0, 1)", 0 <= self.probability < 1),
        }
        if self.weights == "flow":
            expected = "one with `log_prob(x, y)` for 'flow' weights, such as a fitted `Thresholded`"
            requirements["plausibility"] = (expected, hasattr(self.plausibility, "log_prob"))
        raise_unless(requirements, vars(self))

    @torch.no_grad()
    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Connect training rows ``(n, d)`` to a graph, and find the path from each to every class."""
        check_rows(x, y, n_classes=self.classifier.n_classes)
        # Copies of a row would have only each other as neighbours.
        rows = torch.unique(x.double(), dim=0)
        if self.weights == "flow" and self.plausibility is not None:
            self.log_density_ = _class_mixture(self.plausibility, y)
        elif self.weights == "kde" or self.density_threshold is not None:
            self.log_density_ = _kernel_density(x.double(), self.bandwidth or likeliest_bandwidth(rows))
        start, end = self._connect(rows)
        length = torch.linalg.vector_norm(rows[start] - rows[end], dim=1)
        log_density = self._step_log_density(rows[start], rows[end], length)
        if self.weights in ("kde", "flow"):
            # Deviation: if a density exceeds one, the paper's cost -log p is negative; shifted it is not.
            finite = log_density[torch.isfinite(log_density)]
            self.peak_ = max(0.0, float(finite.max())) if len(finite) else 0.0
        self.paths_ = self._find_paths(rows, start, end, self._cost(log_density, length))
        return self

    def paths(self, x: Tensor, y_target: Tensor) -> list[Tensor]:
        """Return the training rows on the path from each row to its counterfactual, which is the last.

        There is one table ``(steps, d)`` per row, without steps if there is no path or none is needed.
        """
        paths, usable = self._fitted_paths(x), torch.isfinite(x).all(dim=1)
        at = torch.full_like(y_target, -1)
        at[usable] = self._first_rows(x[usable].double(), y_target[usable])
        steps = [at]
        while bool((at >= 0).any()):
            at = torch.where(at >= 0, paths.following[y_target, at.clamp_min(0)], -1)
            steps.append(at)
        return [paths.rows[numbers[numbers >= 0]].to(x.dtype) for numbers in torch.stack(steps, dim=1)]

    @torch.no_grad()
    def search(self, x: Tensor, y_target: Tensor) -> Solution:
        """Return the last training row of the cheapest path."""
        paths, exact = self._fitted_paths(x), x.double()
        first = self._first_rows(exact, y_target)
        found = paths.rows[paths.end[y_target, first.clamp_min(0)].clamp_min(0)]
        found = found.masked_fill((first < 0)[:, None], torch.nan)
        already = self._is_end(exact).gather(1, y_target[:, None])
        return Solution(x=torch.where(already, x, found.to(x.dtype)), gradients=torch.zeros_like(y_target))

    def _fitted_paths(self, x: Tensor) -> CheapestPaths:
        if self.paths_ is None:
            raise NotFittedError("This method has no graph. Call `fit(x, y)` with training rows first.")
        return self.paths_.to(x.device)

    @torch.no_grad()
    def _first_rows(self, x: Tensor, y_target: Tensor) -> Tensor:
        """Return the first training row of each path, shape ``(n,)``; -1 if no path is found or needed."""
        paths, found = self._fitted_paths(x), torch.full_like(y_target, -1)
        for at in torch.arange(len(x), device=x.device).split(_BLOCK):
            distance = pairwise_distances(x[at], paths.rows)
            near = distance.topk(min(self.neighbours, len(paths.rows)), largest=False).values
            row, number = (distance <= self._reach(near)).nonzero(as_tuple=True)
            here, there, length = x[at][row], paths.rows[number], distance[row, number]
            cost = self._cost(self._step_log_density(here, there, length), length)
            if self.allowed is not None:
                cost = cost.masked_fill(~self.allowed(here, there), torch.inf)
            total = torch.full_like(distance, torch.inf)
            total[row, number] = cost + paths.cost[y_target[at][row], number]
            best = total.min(dim=1)
            already = self._is_end(x[at]).gather(1, y_target[at, None])[:, 0]
            found[at] = best.indices.masked_fill(torch.isinf(best.values) | already, -1)
        return found

    def _reach(self, near: Tensor) -> Tensor:
        """Return the longest step of each row, ``(n, 1)``, from its sorted distances ``(n, k)``."""
        return torch.full_like(near[:, :1], self.epsilon_) if self.weights == "epsilon" else near[:, -1:]

    def _connect(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the row numbers that each step connects, shape ``(m,)`` twice, each pair once."""
        blocks = torch.arange(len(rows), device=rows.device).split(_BLOCK)
        count = min(self.neighbours + 1, len(rows))
        # The nearest row of all is the row itself.
        distances = (pairwise_distances(rows[at], rows) for at in blocks)
        near = torch.cat([distance.topk(count, largest=False).values for distance in distances])
        if self.weights == "epsilon":
            self.epsilon_ = self.epsilon or float(near[:, -1].quantile(0.9)) or math.inf
        self.log_scale_ = self._log_scale(rows, float(near[:, min(1, count - 1)].median()))
        reach, codes = self._reach(near), []
        for at in blocks:
            row, number = (pairwise_distances(rows[at], rows) <= reach[at]).nonzero(as_tuple=True)
            start, end = torch.minimum(at[row], number), torch.maximum(at[row], number)
            codes.append((start * len(rows) + end)[start < end])
        code = torch.cat(codes).unique()
        return code // len(rows), code % len(rows)

    def _log_scale(self, rows: Tensor, typical: float) -> float:
        """Return the logarithm of the step length below which ``knn`` and ``epsilon`` weights are zero."""
        n, d = rows.shape
        log_ball = 0.5 * d * math.log(math.pi) - math.lgamma(0.5 * d + 1)
        scale = math.log(min(self.neighbours, n)) - math.log(n) - log_ball
        if self.weights == "epsilon":
            scale = d * math.log(self.epsilon_)
        # Deviation: with many features the ball vanishes, and the paper's weights are negative everywhere.
        # Here no step is free that is longer than a typical one to the nearest row.
        return min(scale, math.log(typical)) if typical > 0 else scale

    def _step_log_density(self, start: Tensor, end: Tensor, length: Tensor) -> Tensor:
        """Return the log-density of steps, shape ``(m,)``."""
        if self.weights in ("kde", "flow"):
            return self._log_density((start + end) / 2)
        return self.log_scale_ - length.log()

    def _cost(self, log_density: Tensor, length: Tensor) -> Tensor:
        """Return the cost of steps, shape ``(m,)``; infinite if the density is not a number."""
        cost = ((self.peak_ - log_density).clamp_min(0) * length).masked_fill(length == 0, 0.0)
        return cost.masked_fill(cost.isnan(), torch.inf)

    def _log_density(self, x: Tensor) -> Tensor:
        """Return the log-density over all classes, shape ``(n,)``."""
        assert self.log_density_ is not None
        return torch.cat([self.log_density_(block) for block in x.split(_BLOCK)])

    def _find_paths(self, rows: Tensor, start: Tensor, end: Tensor, cost: Tensor) -> CheapestPaths:
        here, there, cost = torch.cat([start, end]), torch.cat([end, start]), cost.repeat(2)
        kept = torch.isfinite(cost)
        if self.allowed is not None:
            kept &= self.allowed(rows[here], rows[there])
        # Transposed: each step leads from its end to its start.
        backwards = (cost[kept].cpu().numpy(), (there[kept].cpu().numpy(), here[kept].cpu().numpy()))
        graph = csr_array(backwards, shape=(len(rows), len(rows)))
        ends = self._is_end(rows).T.cpu()
        costs = torch.full(ends.shape, torch.inf, dtype=torch.float64)
        following, last = torch.full((2, *ends.shape), -1)
        for c, is_end in enumerate(ends):
            if is_end.any():
                numbers = is_end.nonzero()[:, 0].numpy()
                found = dijkstra(graph, indices=numbers, min_only=True, return_predecessors=True)
                costs[c], following[c], last[c] = (torch.from_numpy(part) for part in found)
        return CheapestPaths(rows, costs, following, last).to(rows.device)

    def _is_end(self, x: Tensor) -> Tensor:
        """Return whether a path to each class may end at a row, shape ``(n, k)``."""
        proba = torch.cat([predict_proba(self.classifier, block) for block in x.split(_BLOCK)])
        predicted = torch.arange(proba.shape[1], device=x.device) == proba.argmax(dim=1, keepdim=True)
        ends = predicted & (proba >= self.probability)
        if self.density_threshold is not None:
            ends &= (self._log_density(x) >= self.density_threshold)[:, None]
        return ends


def _class_mixture(density: Plausibility | float, y: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the log-density over all classes, from class densities and training classes ``(n,)``."""
    log_shares = {c: math.log(float((y == c).double().mean())) for c in y.unique().tolist()}

    def log_density(x: Tensor) -> Tensor:
        assert hasattr(density, "log_prob")
        parts = [
            share + density.log_prob(x, torch.full((len(x),), c, device=x.device))
            for c, share in log_shares.items()
        ]
        return torch.stack(parts).logsumexp(dim=0)

    return log_density


def _kernel_density(x: Tensor, bandwidth: float) -> Callable[[Tensor], Tensor]:
    kde = KDE(bandwidth=bandwidth).fit(x, torch.zeros(len(x), dtype=torch.long, device=x.device))
    return lambda at: kde.log_prob(at, torch.zeros(len(at), dtype=torch.long, device=at.device))


def likeliest_bandwidth(rows: Tensor) -> float:
    """Return the kernel bandwidth with the highest leave-one-out likelihood of a thousand of the rows."""
    spread = float(rows.var(dim=0, correction=0).mean().sqrt())
    if spread == 0:
        return 1.0
    squared = pairwise_distances(rows[:: math.ceil(len(rows) / 1000)], rows).square()
    squared = squared.masked_fill(squared == 0, torch.inf)
    widths = spread * torch.logspace(-2, 0.5, 16, dtype=torch.float64)
    kernels = torch.stack([torch.logsumexp(-squared / (2 * h * h), dim=1).mean() for h in widths.tolist()])
    return float(widths[(kernels.cpu() - rows.shape[1] * widths.log()).argmax()])
