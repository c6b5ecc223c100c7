"""Calibrate the margin of an ensemble, so that a density that did not guide the search accepts its results.

Training rows are searched with one member left out, and that member judges the counterfactuals. The left-out
member rotates over the rows, so that one batched search serves all members. For each class, the calibration
takes the smallest margin at which a stated share of them passes, less the uncertainty of that share. A margin
costs distance. Where a percentage point of the share costs too much of it, a smaller margin is taken.

The answers of one margin tell about which one is needed: at another margin, an answer at its edge would score
higher by the difference with all members, also with the one left out. That only chooses the margin that is
searched next. Every margin that is taken was searched itself, from the start.

If no margin is enough, because half of the rows of a class have almost the same density, answers may also be
moved a part of the way to the nearest real row that is valid and plausible, which other densities know too.
The work is bounded: at most ``STEPS`` searches of a few hundred rows; most classes need two or three.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from plausiflow.core import RowScores
from plausiflow.progress import progress_bar

STANDARD_ERRORS = 1.0
"""How many standard errors (between members) the share of a margin must stay above the confidence."""
EXCHANGE, EXCHANGE_ROWS = 2.0, 1.0
"""How much farther, relative to the distance without a margin, a margin and a move to real rows may go for an
increase of the share. Settled on folds 0 and 1 of the paper's data sets; see docs/plausibility.md."""
TRIES = 3
"""Margins that are searched, besides none."""
MARGINS, EDGE, CAUTION = 64, 0.05, 0.5
"""Margins that are compared in a forecast; by how much an answer at the edge of its margin may score more;
the least that may be needed, relative to the first forecast."""
RESOLUTION, NEAR = 1 / 16, 0.02
"""A smaller margin is not looked for if it is smaller by this part of the largest one only, or if the share
exceeds the confidence by this, which is about its standard error."""
PARTS = (0.25, 0.5, 0.75, 1.0)
"""The parts of the way to a real row that are tried."""
STEPS, ROWS, ROWS_OF_CLASS = 2 + TRIES, 400, 40

Validity = Callable[[Tensor, Tensor], Tensor]
"""``(x, y_target) -> (n,)``: at least zero where the model decides for the target."""
Search = Callable[[Tensor, Tensor, RowScores, dict[int, Tensor]], Tensor]
"""``(x, y_target, scores, bank) -> x_cf``, NaN where nothing was found; ``bank`` holds the training rows of
each class that are valid and plausible."""
Move = Callable[[Tensor, Tensor, Tensor, Tensor, RowScores, dict[int, Tensor]], Tensor]
"""``(x, x_cf, y_target, part, scores, bank) -> x_cf``: counterfactuals moved by a part of the way, shape
``(n,)``, to the nearest row of the bank, or farther, until they are valid and plausible."""


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
    part: Tensor  # the part of the way to the nearest real row that answers are moved


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
    move: Move | None = None,
    random_state: int = 0,
    n_rows: int | None = None,
    names: Sequence[str] | None = None,
) -> Calibration:
    """Raise the ensemble's margins, in place, until left-out members accept the requested share.

    About ``n_rows`` of the training rows ``x`` are searched, 400 by default; ``y_predicted`` are the model's
    classes of the rows. With ``move``, answers of a class that no margin is enough for may be moved to
    real rows. ``names`` are the outcomes in words, for warnings.
    """
    n_classes = len(ensemble.margin_)
    generator = torch.Generator().manual_seed(random_state)
    rows, y_target = _sample(y_predicted, n_classes, generator, ROWS if n_rows is None else n_rows)
    trial = _Trial(ensemble, x.double(), rows, y_target, validity, search, confidence)
    with progress_bar("Calibrating the margin", STEPS) as advance:
        price = _Price(trial)
        advance(1, "")
        best = _best_margin(price, ensemble.max_margin_.double(), lambda: advance(1, ""))
        if move is not None:
            best = _best_part(price, move, best)
            advance(1, "")
    ensemble.margin_ = best.margin
    names = names or [f"outcome {k}" for k in range(n_classes)]
    short = [f"{name}: {best.passed[k]:.2f}" for k, name in enumerate(names) if best.passed[k] < confidence]
    if short:
        warnings.warn(
            f"The confidence of {confidence} cannot be reached within what a tenth of the real rows reach, "
            f"at a distance that is worth it. A density that did not guide the search accepts this share of "
            f"the counterfactuals: {', '.join(short)}. More rows of these outcomes would help.",
            PlausibilityWarning,
            stacklevel=3,
        )
    return Calibration(margin=best.margin, passed=best.passed, part=best.part)


@dataclass(frozen=True, kw_only=True)
class _Outcome:
    """What a margin, and a part of the way to real rows, gives in each class; all of shape ``(k,)``."""

    margin: Tensor
    part: Tensor
    passed: Tensor
    certain: Tensor  # the share that passes less its uncertainty
    distance: Tensor
    needed: Tensor  # the smallest margin that is expected to be enough; NaN if none is

    def replaced(self, other: _Outcome, where: Tensor) -> _Outcome:
        """Return the outcome with the values of another one in some classes."""
        pairs = {f.name: (getattr(other, f.name), getattr(self, f.name)) for f in fields(self)}
        return _Outcome(**{name: torch.where(where, new, old) for name, (new, old) in pairs.items()})


class _Price:
    """What outcomes are worth, measured by the share and the distance without a margin."""

    def __init__(self, trial: _Trial) -> None:
        self.confidence, self.trial = trial.confidence, trial
        none = torch.zeros(trial.n_classes, dtype=torch.float64)
        self.first = trial.outcome(none, torch.ones_like(none, dtype=torch.bool))
        self.unit = self.first.distance.clamp_min(torch.finfo(none.dtype).tiny)

    def missing(self, outcome: _Outcome) -> Tensor:
        """Return the classes whose share is not certain enough."""
        return outcome.certain < self.confidence

    def better(self, best: _Outcome, tried: _Outcome, of_classes: Tensor, exchange: float) -> _Outcome:
        """Return the better one of two outcomes, class by class; only some classes may change.

        An outcome is worth its share, as far as that is asked for, less the price of its distance.
        """
        gain = tried.certain.clamp_max(self.confidence) - best.certain.clamp_max(self.confidence)
        return best.replaced(
            tried, of_classes & (gain > (tried.distance - best.distance) / self.unit / exchange)
        )


def _best_margin(price: _Price, most: Tensor, advance: Callable[[], None]) -> _Outcome:
    """Return the best margin of each class.

    The next one to try is a forecast. If that is beyond a margin that was enough, it is where the share would
    reach the confidence on a line between two margins that were searched. Below a margin that costs more than
    it is worth, it is the middle of what is left.
    """
    best, open_ = price.first, price.missing(price.first)
    low, high, step = torch.zeros_like(most), most, RESOLUTION * most
    share_low, share_high = best.certain, torch.full_like(most, torch.nan)
    below, above = best.needed, CAUTION * best.needed
    for _ in range(TRIES):
        if bool(open_.any()):
            guess = ((below + above) / 2).clamp_min(low + step)
            part = (price.confidence - share_low) / (share_high - share_low)
            between = low + (high - low) * part.nan_to_num(0.5).clamp(RESOLUTION, 1 - RESOLUTION)
            tried = price.trial.outcome(torch.where(guess < high, guess, between), open_)
            best, before = price.better(best, tried, open_, EXCHANGE), best
            taken = best.margin == tried.margin
            enough = taken & ~price.missing(tried)
            # A margin that is not taken although more answers pass, or that nothing reaches, is too large.
            too_large = ~taken & ((tried.certain > before.certain) | tried.distance.isinf())
            down = enough | too_large
            low, high = torch.where(down, low, tried.margin), torch.where(down, tried.margin, high)
            share_low = torch.where(down, share_low, tried.certain)
            share_high = torch.where(enough, tried.certain, torch.where(down, torch.nan, share_high))
            below = torch.where(too_large, torch.nan, torch.where(enough, below, tried.needed))
            above = torch.where(enough, tried.needed, above)
            close = tried.certain < price.confidence + min(NEAR, (1 - price.confidence) / 2)
            smallest = enough & (close | (tried.needed >= tried.margin - step))
            open_ = open_ & ~smallest & (high - low > step)
        advance()
    return best


def _best_part(price: _Price, move: Move, best: _Outcome) -> _Outcome:
    """Return the best part of the way to real rows for the classes that no margin is enough for."""
    short = price.missing(best)
    if bool(short.any()):
        found = price.trial.search_at(best.margin, short)
        for part in PARTS:
            tried = price.trial.outcome(best.margin, short, found=found, move=move, part=part)
            best = price.better(best, tried, short, EXCHANGE_ROWS)
    return best


class _Trial:
    """Searches of a fixed sample of training rows at a given margin."""

    def __init__(
        self,
        ensemble: Calibratable,
        x: Tensor,
        rows: Tensor,
        y: Tensor,
        validity: Validity,
        search: Search,
        confidence: float,
    ) -> None:
        self.ensemble, self.search, self.n_classes = ensemble, search, len(ensemble.margin_)
        self.confidence = confidence
        self.x, self.y_target = x[rows], y
        self.left_out = torch.arange(len(rows), device=x.device) % ensemble.members
        self.bank_x = torch.unique(x, dim=0)
        self.bank_scores, self.bank_valid = [], []
        for k in range(self.n_classes):
            target = torch.full((len(self.bank_x),), k, device=x.device)
            self.bank_valid.append(validity(self.bank_x, target) >= 0)
            self.bank_scores.append(ensemble.lowest_left_out_score(self.bank_x, target))

    def outcome(
        self,
        margin: Tensor,
        of_classes: Tensor,
        *,
        found: Tensor | None = None,
        move: Move | None = None,
        part: float = 0.0,
    ) -> _Outcome:
        """Return what a margin gives in some classes; NaN for the others, and without rows to search."""
        used = of_classes.to(self.y_target.device)[self.y_target]
        x_cf = self.search_at(margin, of_classes) if found is None else found
        x, y_target = self.x[used], self.y_target[used]
        if move is not None:
            parts = x.new_full((len(x),), part)
            x_cf = move(x, x_cf, y_target, parts, self._scores(margin, used), self._bank(margin))
        distance = torch.linalg.vector_norm(x_cf.double() - x, dim=1)
        values = torch.full((4, self.n_classes), torch.nan, dtype=torch.float64)
        judged = self._judged(x, x_cf, y_target, self.left_out[used])
        for k in of_classes.nonzero()[:, 0].tolist():
            of_class = y_target == k
            own = judged.of(of_class & torch.isfinite(x_cf).all(dim=1))
            if len(own.scores):
                passed, certain = own.shares(own.scores[None])
                needed = own.needed(float(margin[k]), float(self.ensemble.max_margin_[k]), self.confidence)
                mean = distance[of_class].nanmean()
                values[:, k] = torch.stack([passed[0], certain[0], mean, needed]).cpu()
            elif bool(of_class.any()):
                values[:3, k] = torch.tensor([0.0, 0.0, torch.inf])
        passed, certain, mean, needed = values
        moved = torch.full_like(margin, part)
        return _Outcome(
            margin=margin, part=moved, passed=passed, certain=certain, distance=mean, needed=needed
        )

    def search_at(self, margin: Tensor, of_classes: Tensor) -> Tensor:
        """Return the counterfactuals of the rows that are searched for some classes."""
        used = of_classes.to(self.y_target.device)[self.y_target]
        x, y_target = self.x[used], self.y_target[used]
        if not len(x):
            return x
        return self.search(x, y_target, self._scores(margin, used), self._bank(margin))

    def _scores(self, margin: Tensor, used: Tensor) -> RowScores:
        x, y_target = self.x[used], self.y_target[used]
        return self.ensemble.for_rows(x, y_target, margin=margin.to(x), left_out=self.left_out[used])

    def _bank(self, margin: Tensor) -> dict[int, Tensor]:
        enough = [scores >= margin[k].to(scores) for k, scores in enumerate(self.bank_scores)]
        return {k: self.bank_x[self.bank_valid[k] & enough[k]] for k in range(self.n_classes)}

    def _judged(self, x: Tensor, x_cf: Tensor, y_target: Tensor, left_out: Tensor) -> _Judged:
        """Return the scores of answers by the member that was left out, and by the others."""
        members = self.ensemble.member_scores(torch.nan_to_num(x_cf).double(), y_target)
        members = members - self.ensemble.context_threshold(x, y_target)
        scores = members.gather(0, left_out[None])[0]
        others = (members.sum(dim=0) - scores) / (len(members) - 1)
        return _Judged(scores, others, self.ensemble.errors_.to(x)[left_out, y_target], left_out)


@dataclass(frozen=True, eq=False)
class _Judged:
    """Answers of one class before the members that were left out; all of shape ``(n,)``.

    Attributes:
        scores: The score of each answer by the member that was left out.
        others: The mean score by the members that guided its search.
        errors: The standard error of the threshold of the member that was left out.
        members: The member that was left out.
    """

    scores: Tensor
    others: Tensor
    errors: Tensor
    members: Tensor

    def of(self, which: Tensor) -> _Judged:
        """Select answers."""
        return _Judged(*(getattr(self, f.name)[which] for f in fields(self)))

    def shares(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return the shares that pass for given scores, ``(g, n) -> (g,)``, and these less their uncertainty.

        A density like the left-out member accepts an answer with some probability: its threshold comes from
        few rows, so it has a normal error.
        """
        chance = torch.where(
            self.errors > 0, torch.special.ndtr(scores / self.errors), (scores >= 0).double()
        )
        share = chance.mean(dim=1)
        return share, share - STANDARD_ERRORS * _error_between(chance, self.members)

    def needed(self, margin: float, most: float, confidence: float) -> Tensor:
        """Return the smallest margin expected to be enough, from answers at one margin; NaN if none is."""
        margins = torch.linspace(0, most, MARGINS + 1, dtype=torch.float64, device=self.scores.device)
        edge = (self.others <= margin + EDGE) & (margins[:, None] < margin)
        others = torch.where(edge, margins[:, None], torch.maximum(self.others, margins[:, None]))
        certain = self.shares(self.scores + others - self.others)[1]
        enough = margins[certain >= confidence]
        return enough[0] if len(enough) else margins.new_tensor(torch.nan)


def _error_between(chance: Tensor, members: Tensor) -> Tensor:
    """Return the standard errors of means over rows that members judged, ``(g, n) -> (g,)``."""
    shares = torch.stack([chance[:, members == m].mean(dim=1) for m in members.unique()])
    return shares.std(dim=0) / math.sqrt(len(shares)) if len(shares) > 1 else torch.zeros_like(shares[0])


def _sample(
    y_predicted: Tensor, n_classes: int, generator: torch.Generator, n_rows: int
) -> tuple[Tensor, Tensor]:
    """Return rows to search and the target class of each: some rows of other classes for every class."""
    rows, targets = [], []
    for k in range(n_classes):
        others = (y_predicted != k).nonzero()[:, 0]
        count = min(len(others), max(min(ROWS_OF_CLASS, n_rows // 2), n_rows // n_classes))
        chosen = others[torch.randperm(len(others), generator=generator)[:count].to(others.device)]
        rows.append(chosen)
        targets.append(torch.full_like(chosen, k))
    return torch.cat(rows), torch.cat(targets)
