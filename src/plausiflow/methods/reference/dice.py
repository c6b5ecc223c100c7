r"""DiCE: several close counterfactuals that differ from each other (Mothilal, Sharma and Tan, 2020).

The counterfactuals :math:`c_1 \dots c_q` of a row are optimised together on

.. math::
    \frac{1}{q} \sum_i \max\bigl(0, 1 - g(c_i)\bigr) + \frac{\lambda_1}{q d} \sum_i \mathrm{dist}(c_i, x_0)
    - \lambda_2 \det S, \qquad S_{ij} = \frac{1}{1 + \mathrm{dist}(c_i, c_j)}

where g is the log-odds of the target class against its strongest rival, for any number of classes, and dist
the sum of absolute changes, each divided by the feature's spread in the training rows. Small changes that the
decision does not need are then undone. There is no density.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Self

import torch
from torch import Tensor

from plausiflow.core import CPU_ROWS, Solution, check_query
from plausiflow.methods.box import BoxedMethod
from plausiflow.methods.reference.row_adam import RowAdam, settle
from plausiflow.methods.reference.statistics import column_medians, feature_spreads, log_odds
from plausiflow.validation import is_whole, raise_unless, to_float

_JITTER = 1e-4  # Added to the diagonal of S.
_FIRST_OFFSET = 0.01  # The i-th counterfactual starts i times this far from the row.
_MIN_LOG_ODDS = 1e-9  # Log-odds from which the target class counts as the model's decision.


@dataclass(kw_only=True, eq=False)
class DiCE(BoxedMethod):
    r"""Diverse counterfactuals; ``explain`` returns the closest of each row, ``explain_many`` all.

    Attributes:
        count: q: number of counterfactuals for each row.
        proximity: :math:`\lambda_1`: weight of the distance to the row.
        diversity: :math:`\lambda_2`: weight of the differences between counterfactuals.
        steps: Number of steps. The learning rate falls to zero over them, so that the search converges. The
            authors use a constant rate and stop at the first small change of the loss, at a higher loss.
        learning_rate: Initial learning rate of Adam; features are on a scale of about one.
        resolution: Step size in which small changes are undone; zero undoes none.

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
        whole, at_least_0 = "a whole number of at least 1", "at least 0"
        requirements = {
            "count": (whole, is_whole(self.count) and self.count >= 1),
            "proximity": (at_least_0, to_float(self.proximity) >= 0),
            "diversity": (at_least_0, to_float(self.diversity) >= 0),
            "steps": (whole, is_whole(self.steps) and self.steps >= 1),
            "learning_rate": ("positive", to_float(self.learning_rate) > 0),
            "resolution": (at_least_0, to_float(self.resolution) >= 0),
        }
        raise_unless(requirements, vars(self))

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Learn the box, each feature's spread and its largest small change, from rows ``(n, d)``.

        Without ``fit``, if the box is given, all features have the same spread and no change is small.
        """
        super().fit(x, y)
        self.spread_ = feature_spreads(x)
        distance = (x - column_medians(x)).abs()
        tenth = distance.kthvalue(math.ceil(0.1 * len(x)), dim=0).values
        self.small_ = torch.minimum(tenth, column_medians(distance))
        return self

    def explain_many(self, x: Tensor, y_target: Tensor) -> Tensor:
        """Return all counterfactuals of each row, in no particular order, shape ``(n, count, d)``.

        One that is not valid is NaN, and so are those of a row that is not finite.
        """
        check_query(x, y_target, x.shape[-1], self.classifier.n_classes)
        found = torch.full((len(x), self.count, x.shape[1]), torch.nan, dtype=x.dtype, device=x.device)
        for rows in torch.isfinite(x).all(dim=1).nonzero()[:, 0].split(self.chunk_size or CPU_ROWS):
            found[rows] = self._find_sets(x[rows], y_target[rows])
        return found

    def loss(self, sets: Tensor, x: Tensor, y_target: Tensor) -> tuple[Tensor, Tensor]:
        """Return the objective ``(n,)`` of sets ``(n, q, d)``, and their members' log-odds ``(n, q)``."""
        n, q, d = sets.shape
        logits = self.classifier.logits(sets.reshape(-1, d))
        odds = log_odds(logits, y_target.repeat_interleave(q)).view(n, q)
        spread = self._spread(x)
        distance = ((sets - x[:, None]).abs() / spread).sum(dim=2)
        loss = (1 - odds).clamp_min(0).mean(dim=1) + self.proximity / d * distance.mean(dim=1)
        if q > 1 and self.diversity > 0:  # the determinant of a single member is constant
            between = ((sets[:, :, None] - sets[:, None]).abs() / spread).sum(dim=3)
            similarity = 1 / (1 + between) + _JITTER * torch.eye(q).to(sets)
            loss = loss - self.diversity * torch.linalg.det(similarity)
        return loss, odds

    def search(self, x: Tensor, y_target: Tensor) -> Solution:
        """Return the closest valid member of each set; a row of the target class stays unchanged."""
        stays = self._valid(x, y_target)
        x, closest, rows = x.detach(), x.detach().clone(), (~stays).nonzero()[:, 0]
        sets = self._find_sets(x[rows], y_target[rows])
        distance = ((sets - x[rows, None]).abs() / self._spread(x)).sum(dim=2).nan_to_num(math.inf)
        closest[rows] = sets[torch.arange(len(rows), device=x.device), distance.argmin(dim=1)]
        gradients = torch.where(stays, 1, self.count * (self.steps + 1))
        return Solution(x=closest, gradients=gradients)

    def _find_sets(self, x: Tensor, y_target: Tensor) -> Tensor:
        """Return all counterfactuals in x's precision, shape ``(n, q, d)``; NaN if not valid."""
        exact = x.detach().double()
        sets = self._descend(exact, y_target)
        members = sets.flatten(0, 1).to(x.dtype)
        target, origin = y_target.repeat_interleave(self.count), exact.repeat_interleave(self.count, dim=0)
        valid = self._valid(members, target)
        if self.small_ is not None and self.resolution > 0:
            factuals = origin[valid].to(x.dtype)
            members[valid] = self._undo_small_changes(members[valid], factuals, target[valid])
        members[~valid] = torch.nan
        return members.view(sets.shape)

    def _descend(self, x: Tensor, y_target: Tensor) -> Tensor:
        """Return the set of lowest loss in which all members are valid, else the last set."""
        lower, upper = (bound[:, None] for bound in self.box(x))
        sets = (x[:, None] + _FIRST_OFFSET * torch.arange(self.count).to(x)[:, None]).clamp(lower, upper)
        found, lowest, adam = sets, x.new_full((len(x),), math.inf), RowAdam(sets)
        # At a factual's value any gradient up to this is a subgradient of the distance; autograd gives zero.
        kink = self.proximity / (self.count * x.shape[1]) / self._spread(x)
        for step in range(self.steps + 1):
            loss, odds, derivative = self._evaluate(sets, x, y_target)
            valid = (odds >= _MIN_LOG_ODDS).all(dim=1)
            better = torch.isinf(lowest) | (valid & (loss < lowest))
            found = torch.where(better[:, None, None], sets, found)
            lowest = torch.where(better & valid, loss, lowest)
            rate = torch.full_like(loss, self.learning_rate * (1 - step / self.steps))
            change = sets - x[:, None]
            settling = 2 * step > self.steps  # in the second half, unneeded features return to the factual
            if settling:
                shrunk = derivative.sign() * (derivative.abs() - kink).clamp_min(0)
                derivative = torch.where(change == 0, shrunk, derivative)
            moved = change - adam.step(derivative, rate)
            moved = settle(change, moved, derivative) if settling else moved
            sets = (x[:, None] + moved).clamp(lower, upper)
        return found

    @torch.enable_grad()
    def _evaluate(self, sets: Tensor, x: Tensor, y_target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        sets = sets.detach().requires_grad_(True)
        loss, odds = self.loss(sets, x, y_target)
        (derivative,) = torch.autograd.grad(loss.sum(), sets)
        return loss.detach(), odds.detach(), derivative.nan_to_num(0.0, 0.0, 0.0)

    @torch.no_grad()
    def _undo_small_changes(self, x_cf: Tensor, x: Tensor, y_target: Tensor) -> Tensor:
        """Undo small changes of valid counterfactuals ``(m, d)``, step by step, while the decision holds.

        Features with a larger limit of small changes come first.
        """
        assert self.small_ is not None
        x_cf = x_cf.clone()
        for k in self.small_.argsort(descending=True, stable=True).tolist():
            change = (x_cf[:, k] - x[:, k]).abs()
            rows = ((change > 0) & (change <= self.small_[k].to(change))).nonzero()[:, 0]
            while len(rows):
                trial, origin = x_cf[rows], x[rows, k]
                change = trial[:, k] - origin
                trial[:, k] = origin + change.sign() * (change.abs() - self.resolution).clamp_min(0)
                holds = self._valid(trial, y_target[rows]) & (trial[:, k] - origin != change)
                x_cf[rows[holds]] = trial[holds]
                rows = rows[holds & (trial[:, k] != origin)]
        return x_cf

    @torch.no_grad()
    def _valid(self, x_cf: Tensor, y_target: Tensor) -> Tensor:
        return log_odds(self.classifier.logits(x_cf.double()), y_target) >= _MIN_LOG_ODDS

    def _spread(self, x: Tensor) -> Tensor:
        return x.new_ones(x.shape[1]) if self.spread_ is None else self.spread_.to(x)
