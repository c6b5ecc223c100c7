r"""Counterfactuals by moves in the latent space of a flow: Diffeomorphic and CeFlow.

A flow is an invertible map :math:`g: z \mapsto x` under which latents are normally distributed. Both methods
encode the row, :math:`z_0 = g^{-1}(x)`, move the latent and decode it, so that changes follow the data.
Neither minimises the cost of a change or requires a density.

If the flow is conditional, the map of the target class is used in both directions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from plausiflow.core import (
    CPU_ROWS,
    Solution,
    check_rows,
    cross_entropy,
    l2_distance,
    predict,
    validity_value,
)
from plausiflow.densities import ARCHITECTURES, Architecture, ConditionalFlow
from plausiflow.errors import NotFittedError
from plausiflow.methods import Method
from plausiflow.validation import raise_unless

_BETAS = (0.9, 0.999)  # of Adam


class LatentMap(Protocol):
    """A fitted invertible map, one for all classes or one per class."""

    n_classes_: int

    def to_latent(self, x: Tensor, y: Tensor) -> Tensor:
        """Return latents, ``(n, d), (n,) -> (n, d)``; keeps the graph."""
        ...

    def from_latent(self, z: Tensor, y: Tensor) -> Tensor:
        """Return the rows of latents, the inverse of ``to_latent``."""
        ...


@dataclass(kw_only=True, eq=False)
class LatentMethod(Method):
    r"""Base class of both methods: the flow, and the validity check.

    Attributes:
        flow: A fitted flow; None lets ``fit`` learn one from all training rows.
        architecture: Architecture of the flow that is learned. A coupling flow (``realnvp``, ``nice``)
            decodes in one pass; ``maf`` and ``nsf`` need one pass per column, at every step.
        margin: :math:`\epsilon`: the target class must reach probability :math:`0.5 + \epsilon` (two classes)
            or lead the strongest rival by it (more classes).
        random_state: Seed of the flow that is learned.
    """

    flow: LatentMap | None = None
    architecture: Architecture = "realnvp"
    margin: float = 0.02
    random_state: int = 0
    flow_: LatentMap | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        architectures = f"one of {', '.join(ARCHITECTURES)}"
        requirements = {
            "architecture": (architectures, self.architecture in ARCHITECTURES),
            "margin": ("in [0, 0.5)", 0 <= self.margin < 0.5),
        }
        raise_unless(requirements, vars(self))
        self.flow_ = self.flow

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Learn an unconditional flow of all training rows ``(n, d)``, unless a flow was given."""
        check_rows(x, y, n_classes=self.classifier.n_classes)
        if self.flow is None:
            flow = ConditionalFlow(architecture=self.architecture, random_state=self.random_state)
            self.flow_ = flow.fit(x, torch.zeros_like(y), n_classes=1)
        return self

    def _map(self) -> LatentMap:
        if self.flow_ is None:
            raise NotFittedError("There is no flow. Call `fit(x, y)` with training rows, or give a `flow`.")
        return self.flow_

    def _context(self, y_target: Tensor) -> Tensor:
        """Return the class that conditions the flow: the target, or zero if it is unconditional."""
        return y_target if self._map().n_classes_ > 1 else torch.zeros_like(y_target)

    def _reached(self, logits: Tensor, y_target: Tensor) -> Tensor:
        return validity_value(logits, y_target, self.margin) >= 0


@dataclass(kw_only=True, eq=False)
class Diffeomorphic(LatentMethod):
    r"""Gradient descent on the classifier's loss in the latent space (Dombrowski et al. 2022).

    .. math:: z \leftarrow z - \eta \nabla_z \ell_{CE}\bigl(h(g(z)), y'\bigr)

    To first order this moves x along :math:`J J^\top \nabla_x \ell`, with J the Jacobian of g: far in
    directions in which the data vary, hardly in others. The first point in the target class is the result.

    Attributes:
        optimiser: ``adam``, as its authors, or plain gradient descent, ``sgd``.
        learning_rate: :math:`\eta`.
        steps: Maximum number of steps; a row that has not reached its target by then is not found.
    """

    label: ClassVar[str] = "Diffeomorphic"

    optimiser: Literal["adam", "sgd"] = "adam"
    learning_rate: float = 0.05
    steps: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        requirements = {
            "optimiser": ("'adam' or 'sgd'", self.optimiser in ("adam", "sgd")),
            "learning_rate": ("positive", self.learning_rate > 0),
            "steps": ("at least 1", self.steps >= 1),
        }
        raise_unless(requirements, vars(self))

    def search(self, x: Tensor, y_target: Tensor) -> Solution:
        """Descend on the cross-entropy in the latent space until the target class is reached."""
        exact, context = x.detach().double(), self._context(y_target)
        result, gradients = torch.full_like(exact, torch.nan), torch.zeros_like(y_target)
        rows = torch.arange(len(exact), device=x.device)
        with torch.no_grad():
            z = self._map().to_latent(exact, context)
        momentum, scale = torch.zeros_like(z), torch.zeros_like(z)
        for step in range(self.steps + 1):
            if not len(rows):
                break
            point, gradient, reached = self._evaluate(z, y_target[rows], context[rows])
            gradients[rows] += 1
            # A row that is in the target class at the start stays exactly where it is.
            result[rows[reached]] = point[reached] if step else exact[rows[reached]]
            rows, z, gradient = rows[~reached], z[~reached], gradient[~reached]
            momentum, scale = momentum[~reached], scale[~reached]
            if self.optimiser == "adam":
                momentum = torch.lerp(gradient, momentum, _BETAS[0])
                scale = torch.lerp(gradient**2, scale, _BETAS[1])
                first, second = (
                    m / (1 - b ** (step + 1)) for m, b in zip((momentum, scale), _BETAS, strict=True)
                )
                gradient = first / (second.sqrt() + 1e-8)
            z = z - self.learning_rate * gradient
        return Solution(x=result.to(x), gradients=gradients)

    def _evaluate(self, z: Tensor, y_target: Tensor, context: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the points of latents, the gradient of the loss, and which points are valid."""
        with torch.enable_grad():
            leaf = z.detach().requires_grad_(True)
            point = self._map().from_latent(leaf, context)
            logits = self.classifier.logits(point)
            (gradient,) = torch.autograd.grad(cross_entropy(logits, y_target).sum(), leaf)
        return point.detach(), gradient, self._reached(logits.detach(), y_target)


@dataclass(kw_only=True, eq=False)
class CeFlow(LatentMethod):
    r"""A straight move in the latent space, from the row's class to the target class (Duong et al. 2023).

    .. math:: x' = g\bigl(g^{-1}(x) + \alpha (\bar z_{y'} - \bar z_y)\bigr)

    with :math:`\bar z_k` the mean latent of the training rows that the model predicts as k. Of the
    :math:`\alpha` that reach the target class, the one that changes x least is used.

    Attributes:
        grid: Number of :math:`\alpha` that are tried, evenly up to ``furthest``.
        furthest: Largest :math:`\alpha`; 1 is the distance of the means.
    """

    label: ClassVar[str] = "CeFlow"

    grid: int = 20
    furthest: float = 1.0
    means_: Tensor | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        requirements = {
            "grid": ("at least 1", self.grid >= 1),
            "furthest": ("positive", self.furthest > 0),
        }
        raise_unless(requirements, vars(self))

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Learn the flow, unless one was given, and the mean latent of each predicted class."""
        super().fit(x, y)
        exact = x.detach().double()
        members = F.one_hot(predict(self.classifier, exact), self.classifier.n_classes).to(exact)
        means = []
        with torch.no_grad():
            for k in range(self._map().n_classes_):
                parts = (
                    self._map().to_latent(part, part.new_full((len(part),), k, dtype=torch.long))
                    for part in exact.split(self.chunk_size or CPU_ROWS)
                )
                z = torch.cat(list(parts))
                means.append(members.T @ z / members.sum(dim=0)[:, None])
        self.means_ = torch.stack(means)
        return self

    @torch.no_grad()
    def search(self, x: Tensor, y_target: Tensor) -> Solution:
        """Try all steps along the line between the mean latents."""
        if self.means_ is None:
            raise NotFittedError("The classes' mean latents are not known. Call `fit(x, y)` first.")
        exact, context, means = x.detach().double(), self._context(y_target), self.means_.to(x.device)
        predicted = predict(self.classifier, exact)
        # A class without training rows has no mean; its direction is zero.
        direction = (means[context, y_target] - means[context, predicted]).nan_to_num(0.0)
        z = self._map().to_latent(exact, context)
        result, least = torch.full_like(exact, torch.nan), torch.full_like(exact[:, 0], torch.inf)
        for step in range(self.grid + 1):
            alpha = step * self.furthest / self.grid
            point = self._map().from_latent(z + alpha * direction, context) if step else exact
            reached = self._reached(self.classifier.logits(point), y_target)
            change = l2_distance(point, exact)
            better = reached & (change < least)
            result[better], least[better] = point[better], change[better]
        return Solution(x=result.to(x), gradients=torch.zeros_like(y_target))
