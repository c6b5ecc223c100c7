"""How far inside the ensemble's boundary a search must stay, so that a flow that did not guide it agrees.

Training rows are searched with one member left out, and that member judges the counterfactuals. The margin of
each class is raised, by bisection, until a stated share of them passes; never beyond what a tenth of the
class's real rows reach. The left-out member rotates over the rows, so that one batched search serves all
members. The work is bounded: at most ``STEPS`` searches of a few hundred rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from plausiflow.densities.ensemble import CrossFitEnsemble
from plausiflow.densities.row_scores import RowScores
from plausiflow.progress import progress_bar

ALLOWANCE = 1.5
"""In standard errors of the threshold of the member that judges."""
STEPS, ROWS, ROWS_OF_CLASS = 8, 400, 40

Validity = Callable[[Tensor, Tensor], Tensor]
"""``(x, y_target) -> (n,)``: not negative where the model decides as wanted."""
Search = Callable[[Tensor, Tensor, RowScores, dict[int, Tensor]], Tensor]
"""``(x, y_target, guide, bank) -> x_cf``, NaN where nothing was found; ``bank`` are training rows of each
class that are valid and plausible."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What was found.

    Attributes:
        margin: Of each class, shape ``(k,)``.
        passed: Share of the counterfactuals that pass at it, shape ``(k,)``; NaN where none was searched.
    """

    margin: Tensor
    passed: Tensor


class PlausibilityWarning(UserWarning):
    """An outcome cannot reach the confidence asked for, or the model decides no training row for it."""


@torch.no_grad()
def calibrate(
    ensemble: CrossFitEnsemble,
    x: Tensor,
    y_predicted: Tensor,
    *,
    validity: Validity,
    search: Search,
    confidence: float,
    seed: int = 0,
    n_rows: int | None = None,
) -> Calibration:
    """Raise the ensemble's margins, in place, until a member left out accepts the share asked for.

    Args:
        ensemble: A fitted ensemble.
        x: Training rows, shape ``(n, d)``.
        y_predicted: What the model decides for them, shape ``(n,)``.
        validity: Whether the model decides as wanted.
        search: The search, under a guide that leaves members out.
        confidence: Share that must pass, class by class.
        seed: Of the rows that are searched and the members left out.
        n_rows: About how many rows are searched; 400 by default.
    """
    n_classes = len(ensemble.margin_)
    generator = torch.Generator().manual_seed(seed)
    rows, y_target = _sample(y_predicted, n_classes, generator, ROWS if n_rows is None else n_rows)
    trial = _Trial(ensemble, x.double(), rows, y_target, validity, search)
    with progress_bar("Calibrating the margin", STEPS) as advance:
        margin, share = _bisect(
            trial.passed, ensemble.most_margin_.double(), confidence, lambda: advance(1, "")
        )
    ensemble.margin_ = margin
    short = [f"class {k}: {share[k]:.2f}" for k in range(n_classes) if share[k] < confidence]
    if short:
        warnings.warn(
            f"The confidence of {confidence} is out of reach within what a tenth of the real rows reach; a "
            "flow that did not guide the search accepts this share of the counterfactuals: "
            f"{', '.join(short)}. More rows of these classes would help.",
            PlausibilityWarning,
            stacklevel=3,
        )
    return Calibration(margin=margin, passed=share)


def _bisect(
    passed: Callable[[Tensor, Tensor], Tensor], most: Tensor, confidence: float, tell: Callable[[], None]
) -> tuple[Tensor, Tensor]:
    """The smallest margin of each class at which enough pass, and the share; else that of the largest share.

    Near its cap a margin may leave a search with nothing to find: smaller ones are tried as upper ends, too.
    """
    low = margin = torch.zeros_like(most)
    share = passed(margin, torch.ones_like(most, dtype=torch.bool))
    tell()
    high = torch.full_like(most, torch.nan)
    for part in (1.0, 0.75, 0.5):
        missing = (share < confidence) & torch.isnan(high)
        if bool(missing.any()):
            tried = passed(part * most, missing)
            tell()
            better = missing & (tried > share)
            margin, share = torch.where(better, part * most, margin), torch.where(better, tried, share)
            high = torch.where(missing & (tried >= confidence), part * most, high)
    open_ = ~torch.isnan(high)
    for _ in range(STEPS - 4):
        if not bool(open_.any()):
            break
        middle = torch.where(open_, (low + high) / 2, 0.0)
        tried = passed(middle, open_)
        tell()
        enough = open_ & (tried >= confidence)
        margin, share = torch.where(enough, middle, margin), torch.where(enough, tried, share)
        high, low = torch.where(enough, middle, high), torch.where(open_ & ~enough, middle, low)
    return margin, share


class _Trial:
    """Searches of a fixed sample of training rows at a given margin."""

    def __init__(
        self,
        ensemble: CrossFitEnsemble,
        x: Tensor,
        rows: Tensor,
        y_target: Tensor,
        validity: Validity,
        search: Search,
    ) -> None:
        self.ensemble, self.search, self.n_classes = ensemble, search, len(ensemble.margin_)
        self.x, self.y_target = x[rows], y_target
        self.left_out = torch.arange(len(rows), device=x.device) % ensemble.members
        self.bank_x = torch.unique(x, dim=0)
        self.bank_scores, self.bank_valid = [], []
        for k in range(self.n_classes):
            wanted = torch.full((len(self.bank_x),), k, device=x.device)
            self.bank_valid.append(validity(self.bank_x, wanted) >= 0)
            self.bank_scores.append(ensemble.least_left_out(self.bank_x, wanted))

    def passed(self, margin: Tensor, of_classes: Tensor) -> Tensor:
        """Share that the member left out accepts, for each class asked for; NaN for the others."""
        used = of_classes.to(self.y_target.device)[self.y_target]
        share = torch.full((self.n_classes,), torch.nan, dtype=torch.float64)
        if not bool(used.any()):
            return share
        x, y_target, left_out = self.x[used], self.y_target[used], self.left_out[used]
        margins = margin.to(x)
        bank = {
            k: self.bank_x[self.bank_valid[k] & (self.bank_scores[k] >= margins[k])]
            for k in range(self.n_classes)
        }
        guide = RowScores(self.ensemble, x, y_target, margin=margins, left_out=left_out)
        found = self.search(x, y_target, guide, bank)
        judged = self._verdicts(x, torch.nan_to_num(found).double(), y_target, left_out)
        answered = torch.isfinite(found).all(dim=1)
        for k in of_classes.nonzero()[:, 0].tolist():
            of_class = y_target == k
            if bool(of_class.any()):  # among the rows that have an answer; none of none
                share[k] = float(
                    judged[of_class & answered].double().sum() / (of_class & answered).sum().clamp_min(1)
                )
        return share

    def _verdicts(self, x: Tensor, x_cf: Tensor, y_target: Tensor, left_out: Tensor) -> Tensor:
        """What the members left out say.

        Their thresholds are estimates from a few rows: slightly stricter ones should agree, too.
        """
        allowance = ALLOWANCE * self.ensemble.errors_.to(x)[left_out, y_target]
        everyone = torch.arange(len(x), device=x.device)
        scores = self.ensemble.member_scores(x_cf, y_target)[left_out, everyone]
        return scores - self.ensemble.context_threshold(x, y_target) >= allowance


def _sample(
    y_predicted: Tensor, n_classes: int, generator: torch.Generator, n_rows: int
) -> tuple[Tensor, Tensor]:
    """Rows to search and the class wanted for each: some for every class, from the rows decided otherwise."""
    rows, targets = [], []
    for k in range(n_classes):
        others = (y_predicted != k).nonzero()[:, 0]
        count = min(len(others), max(ROWS_OF_CLASS, n_rows // n_classes))
        chosen = others[torch.randperm(len(others), generator=generator)[:count].to(others.device)]
        rows.append(chosen)
        targets.append(torch.full_like(chosen, k))
    return torch.cat(rows), torch.cat(targets)
