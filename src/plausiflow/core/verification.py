"""Verification: what a model and a density say of points, independent of the search that found them.

Everything is computed in double precision, and no model is asked about a row that has no point. Methods
verify what their search returned with the same function that verifies counterfactuals read from a file, and
the search over tables verifies its decoded rows with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from plausiflow.core.counterfactuals import Counterfactuals
from plausiflow.core.criterion import TargetCriterion, Targets
from plausiflow.core.protocols import Classifier, Plausibility
from plausiflow.errors import ShapeError


@dataclass(frozen=True, eq=False)
class Verification:
    """What a model and a density say of points.

    Attributes:
        decided: The class that the model decides for, or the bin of its prediction, shape ``(n,)``.
        valid: Whether the target is met, shape ``(n,)``.
        safely_valid: Whether the target is met with its margin, shape ``(n,)``.
        score: Plausibility score, NaN without a density, shape ``(n,)``.
    """

    decided: Tensor
    valid: Tensor
    safely_valid: Tensor
    score: Tensor

    @property
    def plausible(self) -> Tensor:
        """Whether the score is at least zero, shape ``(n,)``."""
        return self.score >= 0


def verify(
    outputs: Tensor,
    targets: Targets,
    criterion: TargetCriterion,
    score: Tensor,
    decided: Tensor | None = None,
) -> Verification:
    """Compare model outputs ``(n, k)`` or ``(n,)`` and plausibility scores ``(n,)`` with targets.

    ``decided`` are the classes ``(n,)`` that the model itself decides for, if these are known.
    """
    met = criterion.met(outputs, targets, decided)
    safely = met & (criterion.value(outputs, targets) >= 0)
    return Verification(criterion.classes(outputs) if decided is None else decided, met, safely, score)


@torch.no_grad()
def verify_counterfactuals(
    *,
    classifier: Classifier,
    plausibility: Plausibility | None,
    x: Tensor,
    x_cf: Tensor,
    y_target: Tensor,
    y: Tensor | None = None,
    gradients: Tensor | None = None,
    seconds: Tensor | None = None,
    cpu_seconds: Tensor | None = None,
    path: Tensor | None = None,
) -> Counterfactuals:
    """Verify points in double precision, whatever the search that made them claims.

    Args:
        classifier: The model that is explained.
        plausibility: Scores the density of a row; without it no row counts as plausible.
        x: Factuals, shape ``(n, d)``; entries that are not finite count as zero for their predicted class.
        x_cf: Counterfactuals, shape ``(n, d)``; a row with an entry that is not finite counts as not found.
        y_target: Target classes, shape ``(n,)``.
        y: Predicted classes of the factuals, shape ``(n,)``, if they are known already.
        gradients: Evaluations of value and gradient, shape ``(n,)``; default zero.
        seconds: Wall-clock seconds, shape ``(n,)``, or one share for every row, shape ``()``; default NaN.
        cpu_seconds: CPU seconds, as ``seconds``.
        path: Iterates of the search, shape ``(steps, n, d)``.

    Example:
        >>> from plausiflow.models import LinearClassifier
        >>> classifier = LinearClassifier.from_weights(torch.tensor([[1.0, 0.0]]), torch.tensor([0.0]))
        >>> x, x_cf = torch.tensor([[-1.0, 0.0]] * 2), torch.tensor([[1.0, 0.0], [torch.nan, 0.0]])
        >>> verify_counterfactuals(
        ...     classifier=classifier, plausibility=None, x=x, x_cf=x_cf, y_target=torch.tensor([1, 1])
        ... )
        Counterfactuals(2 rows, 1 found, 1 valid, 0 plausible)
    """
    _check_shapes(x, x_cf, y_target)
    found = torch.isfinite(x_cf).all(dim=1)
    exact, own_target = x_cf[found].double(), y_target[found]
    score = exact.new_full((len(exact),), torch.nan)
    log_prob, log_delta = torch.full((2, len(x)), torch.nan, dtype=torch.float64, device=x.device)
    if plausibility is not None and len(exact):
        score = plausibility.score(exact, own_target)
        if hasattr(plausibility, "log_prob"):
            log_prob[found] = plausibility.log_prob(exact, own_target).double()
            log_delta[found] = log_prob[found] - score
    y_cf = torch.full_like(found, -1, dtype=torch.long)
    valid, plausible = torch.zeros_like(found), torch.zeros_like(found)
    if len(exact):
        checked = verify(classifier.logits(exact), Targets(own_target), TargetCriterion(), score)
        y_cf[found], plausible[found] = checked.decided, checked.plausible
        valid[found] = checked.decided == own_target
    if y is None:
        readable = torch.nan_to_num(x, posinf=0.0, neginf=0.0).double()
        y = classifier.logits(readable).argmax(dim=1) if len(x) else torch.zeros_like(y_cf)
    return Counterfactuals(
        x=x,
        x_cf=torch.where(found[:, None], x_cf, torch.nan),
        y=y,
        y_target=y_target,
        y_cf=y_cf,
        found=found,
        valid=valid,
        plausible=plausible,
        log_prob=log_prob,
        log_delta=log_delta,
        gradients=torch.zeros_like(y_cf) if gradients is None else gradients,
        seconds=_shares(seconds, x),
        cpu_seconds=_shares(cpu_seconds, x),
        path=path,
    )


def _shares(seconds: Tensor | None, x: Tensor) -> Tensor:
    if seconds is None:
        return torch.full((len(x),), torch.nan, dtype=torch.float64, device=x.device)
    return seconds.to(x.device, torch.float64).expand(len(x)).clone()


def _check_shapes(x: Tensor, x_cf: Tensor, y_target: Tensor) -> None:
    problems = []
    if x.ndim != 2:
        problems.append(f"`x` must have shape (n, d); got {tuple(x.shape)}")
    if x_cf.shape != x.shape:
        problems.append(f"`x_cf` must have the shape of `x`, {tuple(x.shape)}; got {tuple(x_cf.shape)}")
    if y_target.shape != x.shape[:1]:
        problems.append(
            f"`y_target` must have shape ({len(x)},), one class per row; got {tuple(y_target.shape)}"
        )
    if problems:
        raise ShapeError(
            "; ".join(problems) + ". A row without a counterfactual must be a row of NaN in `x_cf`."
        )
