r"""DiCE: several answers at once, close to the row and unlike each other (Mothilal, Sharma and Tan, 2020).

The answers :math:`c_1 \dots c_q` of a row descend together on

.. math::
    \frac{1}{q} \sum_i \max\bigl(0, 1 - g(c_i)\bigr) + \frac{\lambda_1}{q d} \sum_i \mathrm{dist}(c_i, x_0)
    - \lambda_2 \det S, \qquad S_{ij} = \frac{1}{1 + \mathrm{dist}(c_i, c_j)}

where g is the log-odds of the wanted class against its strongest rival, for any number of classes, and dist
the sum of absolute changes, each divided by the feature's spread in the training rows. Small changes that the
decision does not need are then taken back. There is no notion of density.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Self

import torch
from torch import Tensor

from plausiflow.core import CPU_ROWS, Solution, check_query
from plausiflow.methods.box import BoxedMethod
from plausiflow.methods.reference.wachter import deviation, median
from plausiflow.methods.reference.wachter_search import RowAdam, settled
from plausiflow.validation import is_whole, raise_unless, to_float

_JITTER = 1e-4
"""Added to the diagonal of S."""
_APART = 0.01
"""The i-th answer starts so many times i from the row."""
_WON = 1e-9
"""Log-odds from which the wanted class counts as the model's decision."""


@dataclass(kw_only=True, eq=False)
class DiCE(BoxedMethod):
    r"""Diverse counterfactuals; ``explain`` returns the closest of each row, ``explain_many`` all.

    Attributes:
        count: q: how many answers are searched for each row.
        proximity: :math:`\lambda_1`: the weight of being close.
        diversity: :math:`\lambda_2`: the weight of being unlike each other.
        steps: Steps of the descent. The learning rate falls to zero over them, so that the answers come to
            rest: the authors' constant rate and first small change of the loss stop it earlier or later than
            that, at a higher loss.
        learning_rate: Adam's, at first; features are on a scale of about one.
        resolution: Steps in which small changes are taken back; zero takes none back.

    Example:
        >>> from plausiflow.models import LinearClassifier
        >>> model = LinearClassifier.from_weights(torch.tensor([[4.0, 4.0]]), torch.tensor([-4.0]))
        >>> method = DiCE(classifier=model, count=2, lower=0.0, upper=1.0)
        >>> answers = method.explain_many(torch.tensor([[0.2, 0.2]]), torch.tensor([1]))
        >>> model.logits(answers[0]).argmax(dim=1)
        tensor([1, 1])
    """

    label: ClassVar[str] = "DiCE"

    count: int = 4
    proximity: float = 0.5
    diversity: float = 1.0
    steps: int = 300
    learning_rate: float = 0.05
    resolution: float = 0.01
    spread_: Tensor | None = field(init=False, default=None, repr=False)
    small_: Tensor | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        whole, positive, at_least_0 = "a whole number of at least 1", "positive", "at least 0"
        fine = {
            "count": (whole, is_whole(self.count) and self.count >= 1),
            "proximity": (at_least_0, to_float(self.proximity) >= 0),
            "diversity": (at_least_0, to_float(self.diversity) >= 0),
            "steps": (whole, is_whole(self.steps) and self.steps >= 1),
            "learning_rate": (positive, to_float(self.learning_rate) > 0),
            "resolution": (at_least_0, to_float(self.resolution) >= 0),
        }
        raise_unless(fine, {name: getattr(self, name) for name in fine})

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Learn the box, each feature's spread and which of its changes are small, from rows ``(n, d)``.

        Without training rows, where the box is given, all features count alike and no change is small.
        """
        super().fit(x, y)
        self.spread_ = deviation(x)
        distance = (x - median(x)).abs()
        tenth = distance.kthvalue(math.ceil(0.1 * len(x)), dim=0).values
        self.small_ = torch.minimum(tenth, median(distance))
        return self

    def explain_many(self, x: Tensor, y_target: Tensor) -> Tensor:
        """All answers of each row.

        Args:
            x: Rows, shape ``(n, d)``; one that is not finite has no answers.
            y_target: Target classes, shape ``(n,)``.

        Returns:
            Answers in no particular order, shape ``(n, count, d)``; NaN where one is not valid.
        """
        check_query(x, y_target, x.shape[-1], self.classifier.n_classes)
        found = torch.full((len(x), self.count, x.shape[1]), torch.nan, dtype=x.dtype, device=x.device)
        for rows in torch.isfinite(x).all(dim=1).nonzero()[:, 0].split(self.chunk_size or CPU_ROWS):
            found[rows] = self._answers(x[rows], y_target[rows])
        return found

    def loss(self, sets: Tensor, x: Tensor, y_target: Tensor) -> tuple[Tensor, Tensor]:
        """The objective of each set of answers, and the log-odds of each answer; keeps the graph.

        Args:
            sets: Answers, shape ``(n, q, d)``.
            x: Factuals, shape ``(n, d)``.
            y_target: Target classes, shape ``(n,)``.

        Returns:
            Shapes ``(n,)`` and ``(n, q)``.
        """
        n, q, d = sets.shape
        odds = self._odds(sets.reshape(-1, d), y_target.repeat_interleave(q)).view(n, q)
        spread = self._spread(x)
        distance = ((sets - x[:, None]).abs() / spread).sum(dim=2)
        loss = (1 - odds).clamp_min(0).mean(dim=1) + self.proximity / d * distance.mean(dim=1)
        if q > 1 and self.diversity > 0:  # the determinant of one answer is a constant
            between = ((sets[:, :, None] - sets[:, None]).abs() / spread).sum(dim=3)
            similarity = 1 / (1 + between) + _JITTER * torch.eye(q).to(sets)
            loss = loss - self.diversity * torch.linalg.det(similarity)
        return loss, odds

    def search(self, x: Tensor, y_target: Tensor) -> Solution:
        """The closest valid answer of each row; a row that is decided as wanted is its own."""
        stays = self._valid(x, y_target)
        x, closest, rows = x.detach(), x.detach().clone(), (~stays).nonzero()[:, 0]
        sets = self._answers(x[rows], y_target[rows])
        distance = ((sets - x[rows, None]).abs() / self._spread(x)).sum(dim=2).nan_to_num(math.inf)
        closest[rows] = sets[torch.arange(len(rows), device=x.device), distance.argmin(dim=1)]
        gradients = torch.where(stays, 1, self.count * (self.steps + 1))
        return Solution(x=closest, gradients=gradients)

    def _answers(self, x: Tensor, y_target: Tensor) -> Tensor:
        """All answers in x's precision, shape ``(n, q, d)``; NaN where not valid."""
        exact = x.detach().double()
        sets = self._descend(exact, y_target)
        answers = sets.flatten(0, 1).to(x.dtype)
        target, origin = y_target.repeat_interleave(self.count), exact.repeat_interleave(self.count, dim=0)
        valid = self._valid(answers, target)
        if self.small_ is not None and self.resolution > 0:
            answers[valid] = self._simplified(answers[valid], origin[valid].to(x.dtype), target[valid])
        answers[~valid] = torch.nan
        return answers.view(sets.shape)

    def _descend(self, x: Tensor, y_target: Tensor) -> Tensor:
        """The set of lowest loss in which all answers are valid, the last set where there is none."""
        lower, upper = (bound[:, None] for bound in self.box(x))
        sets = (x[:, None] + _APART * torch.arange(self.count).to(x)[:, None]).clamp(lower, upper)
        found, lowest, adam = sets, x.new_full((len(x),), math.inf), RowAdam(sets)
        # At a factual's value the distance has any slope up to this; the loss's gradient takes it as zero.
        kink = self.proximity / (self.count * x.shape[1]) / self._spread(x)
        for step in range(self.steps + 1):
            loss, odds, slope = self._evaluate(sets, x, y_target)
            valid = (odds >= _WON).all(dim=1)
            better = torch.isinf(lowest) | (valid & (loss < lowest))
            found = torch.where(better[:, None, None], sets, found)
            lowest = torch.where(better & valid, loss, lowest)
            rate = torch.full_like(loss, self.learning_rate * (1 - step / self.steps))
            change = sets - x[:, None]
            settling = 2 * step > self.steps  # where answers go is decided; features not needed come to rest
            if settling:
                slope = torch.where(change == 0, slope.sign() * (slope.abs() - kink).clamp_min(0), slope)
            moved = change - adam.move(slope, rate)
            moved = settled(change, moved, slope) if settling else moved
            sets = (x[:, None] + moved).clamp(lower, upper)
        return found

    @torch.enable_grad()
    def _evaluate(self, sets: Tensor, x: Tensor, y_target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        sets = sets.detach().requires_grad_(True)
        loss, odds = self.loss(sets, x, y_target)
        (slope,) = torch.autograd.grad(loss.sum(), sets)
        return loss.detach(), odds.detach(), slope.nan_to_num(0.0, 0.0, 0.0)

    @torch.no_grad()
    def _simplified(self, answers: Tensor, x: Tensor, y_target: Tensor) -> Tensor:
        """Take small changes back towards the factual, step by step, as long as the decision holds.

        Features whose small changes are larger come first.

        Args:
            answers: Valid answers, shape ``(m, d)``.
            x: Their factuals, shape ``(m, d)``.
            y_target: Target classes, shape ``(m,)``.
        """
        assert self.small_ is not None
        answers = answers.clone()
        for k in self.small_.argsort(descending=True, stable=True).tolist():
            change = (answers[:, k] - x[:, k]).abs()
            rows = ((change > 0) & (change <= self.small_[k].to(change))).nonzero()[:, 0]
            while len(rows):
                trial, origin = answers[rows], x[rows, k]
                change = trial[:, k] - origin
                trial[:, k] = origin + change.sign() * (change.abs() - self.resolution).clamp_min(0)
                holds = self._valid(trial, y_target[rows]) & (trial[:, k] - origin != change)
                answers[rows[holds]] = trial[holds]
                rows = rows[holds & (trial[:, k] != origin)]
        return answers

    @torch.no_grad()
    def _valid(self, x_cf: Tensor, y_target: Tensor) -> Tensor:
        return self._odds(x_cf.double(), y_target) >= _WON

    def _odds(self, x_cf: Tensor, y_target: Tensor) -> Tensor:
        """Log-odds of the wanted class against its strongest rival, shape ``(m,)``."""
        logits, wanted = self.classifier.logits(x_cf), y_target[:, None]
        return logits.gather(1, wanted)[:, 0] - logits.scatter(1, wanted, -math.inf).amax(dim=1)

    def _spread(self, x: Tensor) -> Tensor:
        return x.new_ones(x.shape[1]) if self.spread_ is None else self.spread_.to(x)
