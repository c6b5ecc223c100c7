"""The verdict on a point, whoever found it: its class by the model, and whether its density is high enough.

Methods judge what their search returned with the same function that judges counterfactuals read from a file.
Everything is judged in double precision, and no model is ever asked about a row that is not there.
"""

from __future__ import annotations

import torch
from torch import Tensor

from plausiflow.core.counterfactuals import Counterfactuals
from plausiflow.core.protocols import Classifier, Plausibility
from plausiflow.errors import ShapeError


@torch.no_grad()
def judge(
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
    """Judge points in double precision, whatever the search that made them believed.

    Args:
        classifier: The model that is explained.
        plausibility: What a row's density is held against; without it nothing is called plausible.
        x: Factuals, shape ``(n, d)``; entries that are not finite count as zero where their class is
            predicted.
        x_cf: Counterfactuals, shape ``(n, d)``; a row with an entry that is not finite counts as not found.
        y_target: Targets classes, shape ``(n,)``.
        y: Predicted classes of the factuals, shape ``(n,)``, where they are known already.
        gradients: Value-and-gradient evaluations spent, shape ``(n,)``; zero where not given.
        seconds: Wall-clock seconds, shape ``(n,)``, or one share for every row, shape ``()``; NaN where not
            given.
        cpu_seconds: Processor seconds, likewise.
        path: Iterates of the search, shape ``(steps, n, d)``.

    Example:
        >>> from plausiflow.models import LinearClassifier
        >>> classifier = LinearClassifier.from_weights(torch.tensor([[1.0, 0.0]]), torch.tensor([0.0]))
        >>> x, x_cf = torch.tensor([[-1.0, 0.0]] * 2), torch.tensor([[1.0, 0.0], [torch.nan, 0.0]])
        >>> judge(classifier=classifier, plausibility=None, x=x, x_cf=x_cf, y_target=torch.tensor([1, 1]))
        Counterfactuals(2 rows, 1 found, 1 valid, 0 plausible)
    """
    _check_shapes(x, x_cf, y_target)
    found = torch.isfinite(x_cf).all(dim=1)
    exact, wanted = x_cf[found].double(), y_target[found]
    y_cf = torch.full_like(found, -1, dtype=torch.long)
    y_cf[found] = _predict(classifier, exact)
    plausible = torch.zeros_like(found)
    log_prob, log_delta = torch.full((2, len(x)), torch.nan, dtype=torch.float64, device=x.device)
    if plausibility is not None and len(exact):
        score = plausibility.score(exact, wanted)
        plausible[found] = score >= 0
        if hasattr(plausibility, "log_prob"):
            log_prob[found] = plausibility.log_prob(exact, wanted).double()
            log_delta[found] = log_prob[found] - score
    return Counterfactuals(
        x=x,
        x_cf=torch.where(found[:, None], x_cf, torch.nan),
        y=_predict(classifier, torch.nan_to_num(x, posinf=0.0, neginf=0.0)) if y is None else y,
        y_target=y_target,
        y_cf=y_cf,
        found=found,
        valid=found & (y_cf == y_target),
        plausible=plausible,
        log_prob=log_prob,
        log_delta=log_delta,
        gradients=torch.zeros_like(y_cf) if gradients is None else gradients,
        seconds=_shares(seconds, x),
        cpu_seconds=_shares(cpu_seconds, x),
        path=path,
    )


def _predict(classifier: Classifier, x: Tensor) -> Tensor:
    if len(x) == 0:
        return torch.empty(0, dtype=torch.long, device=x.device)
    return classifier.logits(x.double()).argmax(dim=1)


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
            "; ".join(problems) + ". A row for which there is no counterfactual is a row of NaN."
        )
