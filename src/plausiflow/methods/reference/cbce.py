"""CBCE: counterfactuals from cases (Keane and Smyth, 2020), and from k cases (Smyth and Keane, 2022).

An explanation case is a pair of training rows of different classes that differ in few features only. A row
takes over, from the pair whose first part is nearest to it, what the second part has different. Where the
model is not convinced, the differing features are taken from the second part's neighbours in turn.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import permutations
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from plausiflow.core import Classifier, Plausibility, Solution, check_rows, predict
from plausiflow.errors import InvalidInputError, NotFittedError
from plausiflow.methods.base import Method
from plausiflow.methods.reference.nearest import Nearest, distances

_ENTRIES = 2**18
_AT_ONCE = 16


@dataclass(frozen=True, eq=False)
class Cases:
    """The explanation cases that lead from one class to another.

    Attributes:
        like: First parts, shape ``(c, d)``.
        unlike: All rows of the other class, shape ``(m, d)``.
        partners: Row numbers of the second parts, nearest first, shape ``(c, pairs)``; -1 where there are
            fewer.
        differences: In how many features a pair may differ here.
    """

    like: Tensor
    unlike: Tensor
    partners: Tensor
    differences: int

    def to(self, device: torch.device) -> Cases:
        """The same cases, on a device."""
        like, unlike, partners = (part.to(device) for part in (self.like, self.unlike, self.partners))
        return Cases(like, unlike, partners, self.differences)


@dataclass(kw_only=True, eq=False)
class CBCE(Method):
    """Counterfactuals that reuse how pairs of similar training rows differ.

    Attributes:
        max_differences: In how many features the rows of a pair may differ. Where no pair of two classes
            differs in so few, the least number that some pair differs in.
        tolerance: Features differ where they are farther apart than this: one for all, or one each ``(d,)``;
            nothing takes a tenth of each feature's standard deviation.
        neighbours: How many explanation cases are tried. The answer is the valid candidate with fewest
            changes, the nearest of them.
        labels: Whose classes the training rows have in pairs: the ``model``'s, or the ``true`` ones.
        pairs: Most second parts kept for a first part, the nearest.
        adaptations: Most neighbours of a second part that are tried where no candidate is valid.
        fallback: Whether a row that no case helps gets the nearest training row that is decided as wanted.
        first_row: The published runs instead: the first training row that the model decides otherwise than
            the row, whichever class is asked for.

    Example:
        >>> from plausiflow.models import LinearClassifier
        >>> model = LinearClassifier.from_weights(torch.tensor([[1.0, 0.0]]), torch.tensor([-0.5]))
        >>> x = torch.tensor([[0.2, 0.7], [0.8, 0.7], [0.9, 0.1]])
        >>> method = CBCE(classifier=model, max_differences=1).fit(x, torch.tensor([0, 1, 1]))
        >>> method.explain(torch.tensor([[0.1, 0.6]])).x_cf
        tensor([[0.8000, 0.6000]])
    """

    label: ClassVar[str] = "CBCE"

    max_differences: int = 2
    tolerance: Tensor | float | None = 0.05
    neighbours: int = 1
    labels: Literal["model", "true"] = "model"
    pairs: int = 50
    adaptations: int = 200
    fallback: bool = True
    first_row: bool = False
    cases_: dict[tuple[int, int], Cases] = field(init=False, default_factory=dict, repr=False)
    tolerance_: Tensor | None = field(init=False, default=None, repr=False)
    nearest_: Nearest | None = field(init=False, default=None, repr=False)
    first_rows_: Tensor | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        problems = []
        for name, least in (("max_differences", 1), ("neighbours", 1), ("pairs", 1), ("adaptations", 0)):
            if getattr(self, name) < least:
                problems.append(f"`{name}` must be at least {least}; got {getattr(self, name)}")
        if self.tolerance is not None and not bool((torch.as_tensor(self.tolerance) >= 0).all()):
            problems.append("`tolerance` must not be negative")
        if self.labels not in ("model", "true"):
            problems.append(f"`labels` must be 'model' or 'true'; got {self.labels!r}")
        if problems:
            raise InvalidInputError("; ".join(problems) + ".")

    @classmethod
    def paper(cls, *, classifier: Classifier, plausibility: Plausibility | None = None) -> Self:
        """As the published runs: one constant row per predicted class, the first one decided otherwise.

        Their implementation counts the differences of a pair over all features at once, so that every pair
        is an explanation case, and copies all features; the first case answers for every row.
        """
        return cls(classifier=classifier, plausibility=plausibility, first_row=True)

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Find the explanation cases among training rows ``(n, d)`` with classes ``(n,)``."""
        k = self.classifier.n_classes
        check_rows(x, y, n_classes=k)
        exact = x.detach().double()
        decided = predict(self.classifier, exact)
        if self.first_row:
            self.first_rows_ = _first_rows(exact, decided, k)
            return self
        self.nearest_ = Nearest(classifier=self.classifier).fit(x, y)
        tolerance = 0.1 * exact.std(dim=0, correction=0) if self.tolerance is None else self.tolerance
        self.tolerance_ = torch.as_tensor(tolerance).to(exact).expand(x.shape[1])
        classes = decided if self.labels == "model" else y
        rows = [exact[classes == c].unique(dim=0) for c in range(k)]
        there = [c for c in range(k) if len(rows[c])]
        self.cases_ = {(a, b): self._mine(rows[a], rows[b]) for a, b in permutations(there, 2)}
        return self

    def _mine(self, like: Tensor, unlike: Tensor) -> Cases:
        allowed = self.max_differences
        partners, least = self._partners(like, unlike, allowed)
        if least > allowed:
            allowed = least
            partners, _ = self._partners(like, unlike, allowed)
        first = (partners >= 0).any(dim=1)
        return Cases(like[first], unlike, partners[first], allowed)

    def _partners(self, like: Tensor, unlike: Tensor, allowed: int) -> tuple[Tensor, int]:
        """Each row's nearest partners that differ little, and the fewest differences of any pair."""
        count = min(self.pairs, len(unlike))
        found = torch.full((len(like), count), -1, device=like.device)
        least = like.shape[1]
        for rows in torch.arange(len(like), device=like.device).split(max(1, _ENTRIES // len(unlike))):
            differences = self._count_differences(like[rows], unlike)
            least = min(least, int(differences.min()))
            near = distances(like[rows], unlike).masked_fill(differences > allowed, torch.inf)
            chosen = near.topk(count, largest=False)
            found[rows] = chosen.indices.masked_fill(torch.isinf(chosen.values), -1)
        return found, least

    def _count_differences(self, a: Tensor, b: Tensor) -> Tensor:
        """Of each pair, shape ``(rows of a, rows of b)``; feature by feature, which is quick in memory."""
        assert self.tolerance_ is not None
        counts = torch.zeros(len(a), len(b), dtype=torch.int16, device=a.device)
        for of_a, of_b, tolerance in zip(a.T, b.T, self.tolerance_.tolist(), strict=True):
            counts += (of_a[:, None] - of_b).abs_() > tolerance
        return counts

    def _differ(self, a: Tensor, b: Tensor) -> Tensor:
        assert self.tolerance_ is not None
        return (a - b).abs() > self.tolerance_.to(a)

    @torch.no_grad()
    def search(self, x: Tensor, y_target: Tensor) -> Solution:
        exact, gradients = x.double(), torch.zeros_like(y_target)
        origin = predict(self.classifier, exact)
        if self.first_rows_ is not None:
            return Solution(x=self.first_rows_.to(x)[origin], gradients=gradients)
        if self.nearest_ is None:
            raise NotFittedError("This method knows no cases. Call `fit(x, y)` with training rows first.")
        found = torch.where((origin == y_target)[:, None], exact, torch.nan)
        for (a, b), cases in self.cases_.items():
            rows = ((origin == a) & (y_target == b)).nonzero()[:, 0]
            if len(rows):
                found[rows] = self._from_cases(exact[rows], cases.to(x.device), b)
        open_ = found.isnan().any(dim=1)
        if self.fallback:
            found[open_] = self.nearest_.nearest(exact[open_], y_target[open_], count=1)[:, 0]
        return Solution(x=found.to(x), gradients=gradients)

    def _from_cases(self, x: Tensor, cases: Cases, wanted: int) -> Tensor:
        """The best valid candidate of each row's nearest cases, adapted where none is valid; else NaN."""
        like, unlike, present = self._nearest_cases(x, cases)
        differs = self._differ(like, unlike) & present[..., None]
        candidates = torch.where(differs, unlike, x[:, None])
        changes = (candidates != x[:, None]).sum(dim=2)
        distance = torch.linalg.vector_norm(candidates - x[:, None], dim=2)
        # Fewest changes first; the distance, squeezed below one, decides between equals.
        rank = changes + distance / (1 + distance)
        best = rank.masked_fill(~self._valid(candidates, wanted), torch.inf).min(dim=1)
        found = candidates[torch.arange(len(x), device=x.device), best.indices]
        found = found.masked_fill(torch.isinf(best.values)[:, None], torch.nan)
        for case in range(candidates.shape[1]):
            open_ = found.isnan().any(dim=1).nonzero()[:, 0]
            if self.adaptations and len(open_):
                start, mask = candidates[open_, case], differs[open_, case]
                found[open_] = self._adapt(x[open_], start, mask, cases.unlike, wanted)
        return found

    def _nearest_cases(self, x: Tensor, cases: Cases) -> tuple[Tensor, Tensor, Tensor]:
        """The pairs with the nearest first parts ``(n, k, d)`` twice, and whether there are so many."""
        near = distances(x, cases.like).topk(min(self.neighbours, len(cases.like)), largest=False).indices
        partners = cases.partners[near].flatten(1)
        # In order of the first part's distance; those that are absent go last.
        order = (partners < 0).to(torch.uint8).argsort(dim=1, stable=True)[:, : self.neighbours]
        chosen = partners.gather(1, order)
        first = near.gather(1, order // cases.partners.shape[1])
        return cases.like[first], cases.unlike[chosen.clamp_min(0)], chosen >= 0

    def _adapt(self, x: Tensor, start: Tensor, differs: Tensor, unlike: Tensor, wanted: int) -> Tensor:
        """Take the differing features from the rows nearest to ``start``: the first that is valid."""
        found = torch.full_like(x, torch.nan)
        near = distances(start, unlike).topk(min(self.adaptations, len(unlike)), largest=False).indices
        open_ = torch.arange(len(x), device=x.device)
        for some in near.split(_AT_ONCE, dim=1):
            if len(open_) == 0:
                break
            values = unlike[some[open_]]
            candidates = torch.where(differs[open_, None], values, x[open_, None])
            valid = self._valid(candidates, wanted)
            first = candidates[torch.arange(len(open_), device=x.device), valid.to(torch.uint8).argmax(dim=1)]
            done = valid.any(dim=1)
            found[open_[done]] = first[done]
            open_ = open_[~done]
        return found

    def _valid(self, candidates: Tensor, wanted: int) -> Tensor:
        """Whether the model decides each candidate ``(n, k, d)`` as wanted, shape ``(n, k)``."""
        return (predict(self.classifier, candidates.flatten(0, 1)) == wanted).view(candidates.shape[:2])


def _first_rows(x: Tensor, decided: Tensor, n_classes: int) -> Tensor:
    """For every class, the first row that is decided otherwise, shape ``(k, d)``; NaN where there is none."""
    found = x.new_full((n_classes, x.shape[1]), torch.nan)
    for c in range(n_classes):
        others = (decided != c).nonzero()[:, 0]
        if len(others):
            found[c] = x[others[0]]
    return found
