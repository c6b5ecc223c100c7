"""Calibrate the margin of an ensemble, so that a density that did not guide the search accepts its results.

Training rows are searched with one member left out, and that member judges the counterfactuals. The margin of
each class is raised, by bisection, until a stated share of them passes, and never beyond what a tenth of the
class's real rows reach. The left-out member rotates over the rows, so that one batched search serves all
members. The work is bounded: at most ``STEPS`` searches of a few hundred rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from plausiflow.core import RowScores
from plausiflow.progress import progress_bar

ALLOWANCE = 1.5
"""How much stricter the judging member is, in standard errors of its threshold."""
STEPS, ROWS, ROWS_OF_CLASS = 8, 400, 40

Validity = Callable[[Tensor, Tensor], Tensor]
"""``(x, y_target) -> (n,)``: at least zero where the model decides for the target."""
Search = Callable[[Tensor, Tensor, RowScores, dict[int, Tensor]], Tensor]
"""``(x, y_target, scores, bank) -> x_cf``, NaN where nothing was found; ``bank`` holds the training rows of
each class that are valid and plausible."""


@runtime_checkable
class Calibratable(Protocol):
    """A plausibility of several members with a margin per class that calibration can raise.

    Attributes:
        members: Number of members.
        margin_: Margin of each class, shape ``(k,)``.
        max_margin_: Largest margin of each class, shape ``(k,)``.
        errors_: Standard errors of the members' thresholds, shape ``(members, k)``.
    """

    members: int
    margin_: Tensor
    max_margin_: Tensor
    errors_: Tensor

    def for_rows(
        self,
        x: Tensor,
        y_target: Tensor,
        *,
        with_margin: bool = True,
        margin: Tensor | None = None,
        left_out: Tensor | None = None,
    ) -> RowScores:
        """Prepare for rows, with other margins, and without one member for each row."""
        ...

    def member_scores(self, x: Tensor, y: Tensor) -> Tensor:
        """Return each member's score, shape ``(members, n)``."""
        ...

    def context_threshold(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the part of the threshold that depends on what a row cannot change, shape ``(n,)``."""
        ...

    def lowest_left_out_score(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the lowest score that leaving out any one member gives, shape ``(n,)``."""
        ...


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The result of a calibration, one value per class."""

    margin: Tensor
    passed: Tensor  # share of the counterfactuals that pass at this margin; NaN if none was searched


class PlausibilityWarning(UserWarning):
    """An outcome cannot reach the requested confidence, or the model decides no training row for it."""


@torch.no_grad()
def calibrate(
    ensemble: Calibratable,
    x: Tensor,
    y_predicted: Tensor,
    *,
    validity: Validity,
    search: Search,
    confidence: float,
    random_state: int = 0,
    n_rows: int | None = None,
    names: Sequence[str] | None = None,
) -> Calibration:
    """Raise the ensemble's margins, in place, until left-out members accept the requested share.

    About ``n_rows`` of the training rows ``x`` are searched, 400 by default; ``y_predicted`` are the model's
    classes of the rows. ``names`` are the outcomes in words, for warnings.
    """
    n_classes = len(ensemble.margin_)
    generator = torch.Generator().manual_seed(random_state)
    rows, y_target = _sample(y_predicted, n_classes, generator, ROWS if n_rows is None else n_rows)
    trial = _Trial(ensemble, x.double(), rows, y_target, validity, search)
    with progress_bar("Calibrating the margin", STEPS) as advance:
        most = ensemble.max_margin_.double()
        margin, share = _bisect(trial.passed, most, confidence, lambda: advance(1, ""))
    ensemble.margin_ = margin
    names = names or [f"outcome {k}" for k in range(n_classes)]
    short = [f"{name}: {share[k]:.2f}" for k, name in enumerate(names) if share[k] < confidence]
    if short:
        warnings.warn(
            f"The confidence of {confidence} cannot be reached within what a tenth of the real rows reach. A "
            f"density that did not guide the search accepts this share of the counterfactuals: "
            f"{', '.join(short)}. More rows of these outcomes would help.",
            PlausibilityWarning,
            stacklevel=3,
        )
    return Calibration(margin=margin, passed=share)


def _bisect(
    passed: Callable[[Tensor, Tensor], Tensor], most: Tensor, confidence: float, advance: Callable[[], None]
) -> tuple[Tensor, Tensor]:
    """Return the smallest margin of each class at which enough pass, and the share that passes.

    If no margin is enough, return the one with the largest share. Near its cap a margin may leave a search
    with nothing to find, so smaller ones are tried as upper ends too.
    """
    low = margin = torch.zeros_like(most)
    share = passed(margin, torch.ones_like(most, dtype=torch.bool))
    advance()
    high = torch.full_like(most, torch.nan)
    for part in (1.0, 0.75, 0.5):
        missing = (share < confidence) & torch.isnan(high)
        if bool(missing.any()):
            tried = passed(part * most, missing)
            advance()
            better = missing & (tried > share)
            margin, share = torch.where(better, part * most, margin), torch.where(better, tried, share)
            high = torch.where(missing & (tried >= confidence), part * most, high)
    open_ = ~torch.isnan(high)
    for _ in range(STEPS - 4):
        if not bool(open_.any()):
            break
        middle = torch.where(open_, (low + high) / 2, 0.0)
        tried = passed(middle, open_)
        advance()
        enough = open_ & (tried >= confidence)
        margin, share = torch.where(enough, middle, margin), torch.where(enough, tried, share)
        high, low = torch.where(enough, middle, high), torch.where(open_ & ~enough, middle, low)
    return margin, share


class _Trial:
    """Searches of a fixed sample of training rows at a given margin."""

    def __init__(
        self, ensemble: Calibratable, x: Tensor, rows: Tensor, y: Tensor, validity: Validity, search: Search
    ) -> None:
        self.ensemble, self.search, self.n_classes = ensemble, search, len(ensemble.margin_)
        self.x, self.y_target = x[rows], y
        self.left_out = torch.arange(len(rows), device=x.device) % ensemble.members
        self.bank_x = torch.unique(x, dim=0)
        self.bank_scores, self.bank_valid = [], []
        for k in range(self.n_classes):
            target = torch.full((len(self.bank_x),), k, device=x.device)
            self.bank_valid.append(validity(self.bank_x, target) >= 0)
            self.bank_scores.append(ensemble.lowest_left_out_score(self.bank_x, target))

    def passed(self, margin: Tensor, of_classes: Tensor) -> Tensor:
        """Return the share that the left-out member accepts, shape ``(k,)``; NaN for the other classes."""
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
        scores = self.ensemble.for_rows(x, y_target, margin=margins, left_out=left_out)
        found = self.search(x, y_target, scores, bank)
        judged = self._verdicts(x, torch.nan_to_num(found).double(), y_target, left_out)
        has_answer = torch.isfinite(found).all(dim=1)
        for k in of_classes.nonzero()[:, 0].tolist():
            of_class = y_target == k
            if bool(of_class.any()):  # the share among the rows with an answer; zero if there are none
                judged_rows = of_class & has_answer
                share[k] = float(judged[judged_rows].double().sum() / judged_rows.sum().clamp_min(1))
        return share

    def _verdicts(self, x: Tensor, x_cf: Tensor, y_target: Tensor, left_out: Tensor) -> Tensor:
        """Return whether the left-out members accept counterfactuals.

        Their thresholds are estimated from few rows, so slightly stricter thresholds must agree too.
        """
        allowance = ALLOWANCE * self.ensemble.errors_.to(x)[left_out, y_target]
        scores = self.ensemble.member_scores(x_cf, y_target).gather(0, left_out[None])[0]
        return scores - self.ensemble.context_threshold(x, y_target) >= allowance


def _sample(
    y_predicted: Tensor, n_classes: int, generator: torch.Generator, n_rows: int
) -> tuple[Tensor, Tensor]:
    """Return rows to search and the target class of each: some rows of other classes for every class."""
    rows, targets = [], []
    for k in range(n_classes):
        others = (y_predicted != k).nonzero()[:, 0]
        count = min(len(others), max(ROWS_OF_CLASS, n_rows // n_classes))
        chosen = others[torch.randperm(len(others), generator=generator)[:count].to(others.device)]
        rows.append(chosen)
        targets.append(torch.full_like(chosen, k))
    return torch.cat(rows), torch.cat(targets)
