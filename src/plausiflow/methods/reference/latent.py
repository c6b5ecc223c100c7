r"""Counterfactuals by moves in a flow's latent space: Diffeomorphic and CeFlow.

A flow is an invertible map :math:`g: z \mapsto x` under which latents are normally distributed. Both methods
encode the row, :math:`z_0 = g^{-1}(x)`, move the latent and decode it, so that changes follow the data.
Neither weighs the cost of a change or asks for a density.

The flow may know classes. Then the wanted class's map is used throughout, in both directions.
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
from plausiflow.errors import InvalidInputError, NotFittedError
from plausiflow.methods.base import Method

BETAS = (0.9, 0.999)
"""Adam's."""


class LatentMap(Protocol):
    """An invertible map that is fitted already, of one class (all rows alike) or of each class its own."""

    n_classes_: int

    def to_latent(self, x: Tensor, y: Tensor) -> Tensor:
        """``(n, d), (n,) -> (n, d)``; keeps the graph."""
        ...

    def from_latent(self, z: Tensor, y: Tensor) -> Tensor:
        """The inverse."""
        ...


@dataclass(kw_only=True, eq=False)
class LatentMethod(Method):
    r"""What both share: the flow, and when a row counts as reached.

    Attributes:
        flow: A fitted flow; where there is none, ``fit`` learns one of all training rows.
        architecture: Of the flow that is learned. A coupling flow (``realnvp``, ``nice``) decodes in one
            pass; ``maf`` and ``nsf`` need one for each column, at every step.
        margin: :math:`\epsilon`: the wanted class must reach probability :math:`0.5 + \epsilon` (two classes)
            or beat the strongest rival by it (more classes).
        seed: Of the flow that is learned.
    """

    flow: LatentMap | None = None
    architecture: Architecture = "realnvp"
    margin: float = 0.02
    seed: int = 0
    flow_: LatentMap | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        problems = []
        if self.architecture not in ARCHITECTURES:
            problems.append(
                f"`architecture` must be one of {', '.join(ARCHITECTURES)}; got {self.architecture!r}"
            )
        if not 0 <= self.margin < 0.5:
            problems.append(f"`margin` must be in [0, 0.5); got {self.margin}")
        if problems:
            raise InvalidInputError("; ".join(problems) + ".")
        self.flow_ = self.flow

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Learn the flow of all training rows ``(n, d)``, whatever their class, unless one was given."""
        check_rows(x, y, n_classes=self.classifier.n_classes)
        if self.flow is None:
            flow = ConditionalFlow(architecture=self.architecture, seed=self.seed)
            self.flow_ = flow.fit(x, torch.zeros_like(y), n_classes=1)
        return self

    def _map(self) -> LatentMap:
        if self.flow_ is None:
            raise NotFittedError("There is no flow. Call `fit(x, y)` with training rows, or give a `flow`.")
        return self.flow_

    def _context(self, y_target: Tensor) -> Tensor:
        """The class that the flow is told: the wanted one, unless it knows none."""
        return y_target if self._map().n_classes_ > 1 else torch.zeros_like(y_target)

    def _reached(self, logits: Tensor, y_target: Tensor) -> Tensor:
        return validity_value(logits, y_target, self.margin) >= 0


@dataclass(kw_only=True, eq=False)
class Diffeomorphic(LatentMethod):
    r"""Gradient descent on the classifier's loss, in the latent space (Dombrowski et al. 2022).

    .. math:: z \leftarrow z - \eta \nabla_z \ell_{CE}\bigl(h(g(z)), y'\bigr)

    To first order this moves x along :math:`J J^\top \nabla_x \ell`, with J the Jacobian of g: far in
    directions in which the data vary, hardly in others. The first point that reaches the wanted class is
    taken.

    Attributes:
        optimiser: ``adam``, as its authors, or plain gradient descent, ``sgd``.
        learning_rate: :math:`\eta`.
        steps: Most steps; a row that has not arrived by then has no answer.
    """

    label: ClassVar[str] = "Diffeomorphic"

    optimiser: Literal["adam", "sgd"] = "adam"
    learning_rate: float = 0.05
    steps: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.optimiser not in ("adam", "sgd"):
            raise InvalidInputError(f"`optimiser` must be 'adam' or 'sgd'; got {self.optimiser!r}.")
        if not self.learning_rate > 0 or self.steps < 1:
            raise InvalidInputError(
                f"`learning_rate` must be positive and `steps` at least 1; got {self.learning_rate} and "
                f"{self.steps}."
            )

    def search(self, x: Tensor, y_target: Tensor) -> Solution:
        exact, context = x.detach().double(), self._context(y_target)
        answer, gradients = torch.full_like(exact, torch.nan), torch.zeros_like(y_target)
        rows = torch.arange(len(exact), device=x.device)
        with torch.no_grad():
            z = self._map().to_latent(exact, context)
        momentum, scale = torch.zeros_like(z), torch.zeros_like(z)
        for step in range(self.steps + 1):
            if not len(rows):
                break
            point, slope, reached = self._look(z, y_target[rows], context[rows])
            gradients[rows] += 1
            # A row that is there already stays exactly where it is.
            answer[rows[reached]] = point[reached] if step else exact[rows[reached]]
            rows, z, slope = rows[~reached], z[~reached], slope[~reached]
            momentum, scale = momentum[~reached], scale[~reached]
            if self.optimiser == "adam":
                momentum, scale = torch.lerp(slope, momentum, BETAS[0]), torch.lerp(slope**2, scale, BETAS[1])
                first, second = (
                    m / (1 - b ** (step + 1)) for m, b in zip((momentum, scale), BETAS, strict=True)
                )
                slope = first / (second.sqrt() + 1e-8)
            z = z - self.learning_rate * slope
        return Solution(x=answer.to(x), gradients=gradients)

    def _look(self, z: Tensor, y_target: Tensor, context: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The points of latents, the gradient of the loss there, and whether they reach the wanted class."""
        with torch.enable_grad():
            leaf = z.detach().requires_grad_(True)
            point = self._map().from_latent(leaf, context)
            logits = self.classifier.logits(point)
            (slope,) = torch.autograd.grad(cross_entropy(logits, y_target).sum(), leaf)
        return point.detach(), slope, self._reached(logits.detach(), y_target)


@dataclass(kw_only=True, eq=False)
class CeFlow(LatentMethod):
    r"""A straight move in the latent space, from the row's class to the wanted one (Duong et al. 2023).

    .. math:: x' = g\bigl(g^{-1}(x) + \alpha (\bar z_{y'} - \bar z_y)\bigr)

    with :math:`\bar z_k` the mean latent of the training rows that the model decides as k. Of the
    :math:`\alpha` that reach the wanted class the one is taken that changes x least.

    Attributes:
        grid: How many :math:`\alpha` are tried, evenly up to ``furthest``.
        furthest: The largest :math:`\alpha`; 1 goes as far as the means are apart.
    """

    label: ClassVar[str] = "CeFlow"

    grid: int = 20
    furthest: float = 1.0
    means_: Tensor | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.grid < 1 or not self.furthest > 0:
            raise InvalidInputError(
                f"`grid` must be at least 1 and `furthest` positive; got {self.grid} and {self.furthest}."
            )

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Learn the flow, unless one was given, and the mean latent of each class that the model decides."""
        super().fit(x, y)
        exact = x.detach().double()
        decided = predict(self.classifier, exact)
        members = F.one_hot(decided, self.classifier.n_classes).to(exact)
        with torch.no_grad():
            of_contexts = []
            for k in range(self._map().n_classes_):
                parts = (
                    self._map().to_latent(part, part.new_full((len(part),), k, dtype=torch.long))
                    for part in exact.split(self.chunk_size or CPU_ROWS)
                )
                z = torch.cat(list(parts))
                of_contexts.append(members.T @ z / members.sum(dim=0)[:, None])
        self.means_ = torch.stack(of_contexts)
        return self

    @torch.no_grad()
    def search(self, x: Tensor, y_target: Tensor) -> Solution:
        if self.means_ is None:
            raise NotFittedError("The classes' mean latents are not known. Call `fit(x, y)` first.")
        exact, context, means = x.detach().double(), self._context(y_target), self.means_.to(x.device)
        decided = predict(self.classifier, exact)
        # A class that no training row is decided as has no mean: there is nowhere to go.
        towards = (means[context, y_target] - means[context, decided]).nan_to_num(0.0)
        z = self._map().to_latent(exact, context)
        answer, least = torch.full_like(exact, torch.nan), torch.full_like(exact[:, 0], torch.inf)
        for step in range(self.grid + 1):
            alpha = step * self.furthest / self.grid
            point = self._map().from_latent(z + alpha * towards, context) if step else exact
            reached = self._reached(self.classifier.logits(point), y_target)
            change = l2_distance(point, exact)
            better = reached & (change < least)
            answer[better], least[better] = point[better], change[better]
        return Solution(x=answer.to(x), gradients=torch.zeros_like(y_target))
