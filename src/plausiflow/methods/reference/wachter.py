r"""WACH: gradient descent on prediction loss plus distance (Wachter, Mittelstadt and Russell, 2017).

.. math:: \arg\min_{x'} \ell(x', y') + \lambda \, d(x_0, x')

with the largest weight :math:`\lambda` for which the decision still changes, found for each row; see
:mod:`plausiflow.methods.reference.wachter_search`. There is no density. By default the loss is a hinge on the
log-odds of the target class against its strongest rival, which has a slope even where the model is certain.
The published runs used the squared distance of the target class's probability from one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from plausiflow.core import Classifier, Plausibility, Solution, predict
from plausiflow.errors import NotFittedError
from plausiflow.methods.box import BoxedMethod
from plausiflow.methods.reference.statistics import feature_spreads, log_odds
from plausiflow.methods.reference.wachter_search import WeightSearch
from plausiflow.validation import is_whole, raise_unless, to_float


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
        """Descend with a weight per row, searched by bisection."""
        stored, x = x.dtype, x.detach() if self.published else x.detach().double()
        y = predict(self.classifier, x.double()) if self.any_class else None
        lower, upper = self.box(x, widened=not self.published)
        search = WeightSearch(
            distance="l2" if self.distance == "l2" else "l1",
            cost=self._feature_costs(x),
            steps=self.steps,
            patience=self.patience,
            turns=self.turns,
            learning_rate=self.learning_rate,
            published=self.published,
            stored=stored,
        )

        def goal(x_cf: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            return self._goal(x_cf, y_target[rows], None if y is None else y[rows])

        solution = search.solve(goal, x, lower, upper)
        return Solution(x=solution.x.to(stored), gradients=solution.gradients)

    def _feature_costs(self, x: Tensor) -> Tensor:
        if self.distance != "mad":
            return x.new_ones(x.shape[1])
        if self.spread_ is None:
            raise NotFittedError(
                'The distance "mad" needs the spread of training rows. Call `fit(x, y)` first, or use "l1".'
            )
        return 1 / self.spread_.to(x)

    def _goal(self, x_cf: Tensor, y_target: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor]:
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
