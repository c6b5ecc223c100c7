r"""A mixed-integer program like that of LiCE: the closest likely row of the target class of a linear model.

After Němeček, Pevný and Mareček (ICLR 2025), who write a sum-product network and a ReLU network as one
program. This reference is smaller, so that HiGHS (in SciPy) solves it for tables of few numbers: the network
is one sum over clusters of rows, whose children are products of histograms. As in LiCE, the sum is replaced
by its largest term, which is a lower bound of the likelihood:

.. math::
    \min_{x'} \lVert x' - x \rVert_1 \quad\text{s.t.}\quad
    (w_{y'} - w_i)^\top x' + b_{y'} - b_i \ge \epsilon \;\; \forall i \ne y', \quad
    \max_k \Big[ \log \pi_k + \sum_j \log h_{kj}(x'_j) \Big] \ge \log \delta

A binary variable per bin says where a number is, one per cluster which term reaches the threshold.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_array
from sklearn.cluster import KMeans
from torch import Tensor

from plausiflow.core import Solution, check_rows
from plausiflow.errors import NotFittedError
from plausiflow.methods import Method
from plausiflow.models import LinearClassifier
from plausiflow.validation import raise_unless

Array: TypeAlias = npt.NDArray[np.float64]
INSIDE = 1e-6
"""Share of a bin's width that a number stays away from its upper end, where the next bin begins."""


@dataclass(frozen=True, eq=False)
class HistogramNetwork:
    """One sum over clusters, whose children are products of histograms with common bins.

    Attributes:
        edges: Ends of the bins of each feature, ascending, shape ``(d, bins + 1)``.
        log_weights: Logarithms of the clusters' weights, shape ``(clusters,)``.
        log_density: Logarithm of the density in each bin, shape ``(clusters, d, bins)``.
        threshold: Required log-likelihood.
    """

    edges: Array
    log_weights: Array
    log_density: Array
    threshold: float = -np.inf

    @classmethod
    def learn(cls, x: Array, clusters: int, bins: int, quantile: float, seed: int) -> HistogramNetwork:
        """Learn from the rows of one class; counts get half a row more in every bin."""
        low, high = x.min(axis=0), x.max(axis=0)
        high = np.where(high > low, high, low + 1e-3)
        edges = np.linspace(low, high, bins + 1).T
        clusters = min(clusters, len(np.unique(x, axis=0)))
        label = KMeans(clusters, n_init=3, random_state=seed).fit_predict(x)
        counts = np.full((clusters, x.shape[1], bins), 0.5)
        place = _bins(x, edges)
        for k, row in zip(label.tolist(), place, strict=True):
            counts[k, np.arange(x.shape[1]), row] += 1.0
        widths = np.diff(edges, axis=1)
        density = counts / counts.sum(axis=2, keepdims=True) / widths
        weights = np.bincount(label, minlength=clusters) / len(x)
        network = cls(edges, np.log(weights), np.log(density))
        threshold = float(np.quantile(network.log_likelihood(x), quantile))
        return cls(edges, network.log_weights, network.log_density, threshold)

    def log_likelihood(self, x: Array) -> Array:
        """Return the largest term of the sum, shape ``(n,)``; minus infinity outside the bins."""
        place = _bins(x, self.edges)
        terms = self.log_density[:, np.arange(x.shape[1]), place].sum(axis=2) + self.log_weights[:, None]
        outside = ((x < self.edges[:, 0]) | (x > self.edges[:, -1])).any(axis=1)
        return np.where(outside, -np.inf, terms.max(axis=0))


@dataclass(kw_only=True, eq=False)
class LikelyMilp(Method):
    r"""The closest row by L1 under a histogram network, proven by HiGHS; for linear classifiers and numbers.

    Attributes:
        clusters: Number of clusters of each class.
        bins: Number of bins of each feature.
        quantile: Share of the target class's training rows that are less likely than required.
        margin: :math:`\epsilon`: lead in logits that the target class needs over every other class.
        seconds: Seconds for each row; a row without a proven optimum by then is not found.
        random_state: Seed of the clusters.
    """

    label: ClassVar[str] = "LiCE-like"

    clusters: int = 4
    bins: int = 8
    quantile: float = 0.5
    margin: float = 1e-3
    seconds: float = 30.0
    random_state: int = 0
    networks_: dict[int, HistogramNetwork] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        requirements = {
            "clusters": ("at least 1", self.clusters >= 1),
            "bins": ("at least 2", self.bins >= 2),
            "quantile": ("in [0, 1]", 0 <= self.quantile <= 1),
            "margin": ("at least 0", self.margin >= 0),
            "seconds": ("more than 0", self.seconds > 0),
        }
        raise_unless(requirements, vars(self))

    def unsupported(self) -> str | None:
        """Return why this classifier cannot be explained; None if it can."""
        if isinstance(self.classifier, LinearClassifier):
            return None
        return f"LiCE-like needs a linear classifier; this is a {type(self.classifier).__name__}."

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Learn a network for each class."""
        check_rows(x, y, n_classes=self.classifier.n_classes)
        rows, labels = x.detach().double().cpu().numpy(), y.cpu().numpy()
        learn = (self.clusters, self.bins, self.quantile, self.random_state)
        self.networks_ = {
            int(k): HistogramNetwork.learn(rows[labels == k], *learn) for k in np.unique(labels)
        }
        return self

    def search(self, x: Tensor, y_target: Tensor) -> Solution:
        """Solve one program for each row."""
        if not self.networks_:
            raise NotFittedError("The networks are not known. Call `fit(x, y)` with training rows first.")
        rows = x.detach().double().cpu().numpy()
        found = np.full_like(rows, np.nan)
        for i, target in enumerate(y_target.tolist()):
            if target in self.networks_:
                found[i] = self._solve(rows[i], target, self.networks_[target])
        count = torch.zeros(len(x), dtype=torch.long, device=x.device)
        return Solution(x=torch.from_numpy(found).to(x), gradients=count)

    def _solve(self, row: Array, target: int, network: HistogramNetwork) -> Array:
        """Return the closest likely row of the target class, NaN if none is proven to be."""
        d, bins, clusters = len(row), self.bins, len(network.log_weights)
        size = 3 * d + d * bins + clusters  # the row, changes up and down, bins, clusters
        cost, integer = np.zeros(size), np.zeros(size)
        cost[d : 3 * d], integer[3 * d :] = 1.0, 1
        lower, upper = np.zeros(size), np.ones(size)
        lower[:d], upper[:d] = network.edges[:, 0], network.edges[:, -1]
        upper[d : 3 * d] = np.inf
        answer = milp(
            cost,
            integrality=integer,
            bounds=Bounds(lower, upper),
            constraints=[
                *_inside(row, network, size),
                self._valid(target, d, size),
                _likely(network, d, bins, size),
            ],
            options={"time_limit": self.seconds},
        )
        return np.full(d, np.nan) if answer.x is None or answer.status != 0 else np.asarray(answer.x[:d])

    def _valid(self, target: int, d: int, size: int) -> LinearConstraint:
        assert isinstance(self.classifier, LinearClassifier)
        weight = self.classifier.weight.double().detach().cpu().numpy()
        bias = self.classifier.bias.double().detach().cpu().numpy()
        others = [i for i in range(len(weight)) if i != target]
        matrix = lil_array((len(others), size))
        matrix[:, :d] = weight[target] - weight[others]
        return LinearConstraint(matrix.tocsr(), lb=self.margin - (bias[target] - bias[others]))


def _inside(row: Array, network: HistogramNetwork, size: int) -> list[LinearConstraint]:
    """Return that a number is the row's own plus its change, and in the bin that its variable names."""
    d, bins = len(row), network.edges.shape[1] - 1
    moved, one = lil_array((d, size)), lil_array((d, size))
    above, below = lil_array((d, size)), lil_array((d, size))
    widths = np.diff(network.edges, axis=1)
    for j in range(d):
        moved[j, j], moved[j, d + j], moved[j, 2 * d + j] = 1.0, -1.0, 1.0
        own = slice(3 * d + j * bins, 3 * d + (j + 1) * bins)
        one[j, own] = 1.0
        above[j, j], above[j, own] = 1.0, -network.edges[j, :-1]
        below[j, j], below[j, own] = -1.0, network.edges[j, 1:] - INSIDE * widths[j]
    return [
        LinearConstraint(moved.tocsr(), lb=row, ub=row),
        LinearConstraint(one.tocsr(), lb=1.0, ub=1.0),
        LinearConstraint(above.tocsr(), lb=0.0),
        LinearConstraint(below.tocsr(), lb=0.0),
    ]


def _likely(network: HistogramNetwork, d: int, bins: int, size: int) -> LinearConstraint:
    """Return that the term of a chosen cluster reaches the threshold; at least one is chosen."""
    clusters, start = len(network.log_weights), 3 * d + d * bins
    matrix, least = lil_array((clusters + 1, size)), np.empty(clusters + 1)
    smallest = network.log_weights + network.log_density.min(axis=2).sum(axis=1)
    for k in range(clusters):
        slack = max(0.0, network.threshold - smallest[k])
        matrix[k, 3 * d : start] = network.log_density[k].ravel()
        matrix[k, start + k] = -slack
        least[k] = network.threshold - network.log_weights[k] - slack
    matrix[clusters, start:] = 1.0
    least[clusters] = 1.0
    return LinearConstraint(matrix.tocsr(), lb=least)


def _bins(x: Array, edges: Array) -> npt.NDArray[np.int64]:
    """Return the number of each cell's bin, shape ``(n, d)``."""
    places = [np.searchsorted(ends[1:-1], x[:, j], side="right") for j, ends in enumerate(edges)]
    return np.stack(places, axis=1).astype(np.int64)
