"""CBCE: counterfactuals from cases (Keane and Smyth, 2020), and from k cases (Smyth and Keane, 2022).

An explanation case is a pair of training rows of different classes that differ in few features. A row copies
the differing features from the second row of the pair whose first row is nearest to it. If the result is not
valid, the differing features are copied from the neighbours of the second row, one after another.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import permutations
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from plausiflow.core import Classifier, Plausibility, Solution, check_rows, predict
from plausiflow.errors import NotFittedError
from plausiflow.methods import Method, Nearest, pairwise_distances
from plausiflow.validation import raise_unless

_PAIRS_AT_ONCE = 2**18
_NEIGHBOURS_AT_ONCE = 16


@dataclass(frozen=True, eq=False)
class ExplanationCases:
    """The explanation cases that lead from one class to another."""

    like: Tensor  # First rows of the pairs, (c, d).
    unlike: Tensor  # All rows of the other class, (m, d).
    partners: Tensor  # Row numbers of the second rows, nearest first, (c, pairs); -1 if there are fewer.
    differences: int  # Number of features in which a pair may differ.

    def to(self, device: torch.device) -> ExplanationCases:
        """Return the cases on a device."""
        like, unlike, partners = (part.to(device) for part in (self.like, self.unlike, self.partners))
        return ExplanationCases(like, unlike, partners, self.differences)


@dataclass(kw_only=True, eq=False)
class CBCE(Method):
    """Counterfactuals that copy the difference of two similar training rows.

    Attributes:
        max_differences: Number of features in which the rows of a pair may differ. If no pair of two classes
            differs in so few, the smallest number of any pair.
        tolerance: Difference above which features differ: one for all, or one each ``(d,)``; None is a tenth
            of each feature's standard deviation.
        neighbours: Number of explanation cases that are tried. The result is the valid candidate with the
            fewest changes, and of several the nearest.
        labels: Classes of the training rows in pairs: predicted by the ``model``, or the ``true`` ones.
        pairs: Maximum number of second rows for a first row, the nearest ones.
        adaptations: Maximum number of neighbours of a second row that are tried if no candidate is valid.
        fallback: Whether a row without a valid case gets the nearest training row of the target class.
        first_row: Repeat the published runs: return the first training row of another predicted class,
            whatever the target.

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
    cases_: dict[tuple[int, int], ExplanationCases] = field(init=False, default_factory=dict, repr=False)
    tolerance_: Tensor | None = field(init=False, default=None, repr=False)
    nearest_: Nearest | None = field(init=False, default=None, repr=False)
    first_rows_: Tensor | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        tolerant = self.tolerance is None or bool((torch.as_tensor(self.tolerance) >= 0).all())
        requirements = {
            "max_differences": ("at least 1", self.max_differences >= 1),
            "neighbours": ("at least 1", self.neighbours >= 1),
            "pairs": ("at least 1", self.pairs >= 1),
            "adaptations": ("at least 0", self.adaptations >= 0),
            "tolerance": ("at least 0", tolerant),
            "labels": ("'model' or 'true'", self.labels in ("model", "true")),
        }
        raise_unless(requirements, vars(self))

    @classmethod
    def paper(cls, *, classifier: Classifier, plausibility: Plausibility | None = None) -> Self:
        """Return the settings of the published runs: one constant result per predicted class.

        Their implementation counts the differences of a pair over all features at once. Every pair is
        therefore an explanation case, all features are copied, and the first case answers for every row.
        """
        return cls(classifier=classifier, plausibility=plausibility, first_row=True)

    def fit(self, x: Tensor, y: Tensor) -> Self:
        """Find the explanation cases among training rows ``(n, d)`` with classes ``(n,)``."""
        k = self.classifier.n_classes
        check_rows(x, y, n_classes=k)
        exact = x.detach().double()
        predicted = predict(self.classifier, exact)
        if self.first_row:
            self.first_rows_ = _first_rows(exact, predicted, k)
            return self
        self.nearest_ = Nearest(classifier=self.classifier).fit(x, y)
        tolerance = 0.1 * exact.std(dim=0, correction=0) if self.tolerance is None else self.tolerance
        self.tolerance_ = torch.as_tensor(tolerance).to(exact).expand(x.shape[1])
        classes = predicted if self.labels == "model" else y
        rows = [exact[classes == c].unique(dim=0) for c in range(k)]
        present = [c for c in range(k) if len(rows[c])]
        self.cases_ = {(a, b): self._find_cases(rows[a], rows[b]) for a, b in permutations(present, 2)}
        return self

    def _find_cases(self, like: Tensor, unlike: Tensor) -> ExplanationCases:
        allowed = self.max_differences
        partners, least = self._find_partners(like, unlike, allowed)
        if least > allowed:
            allowed = least
            partners, _ = self._find_partners(like, unlike, allowed)
        has_partner = (partners >= 0).any(dim=1)
        return ExplanationCases(like[has_partner], unlike, partners[has_partner], allowed)

    def _find_partners(self, like: Tensor, unlike: Tensor, allowed: int) -> tuple[Tensor, int]:
        """Return each row's nearest partners with few differences, and the fewest differences of any pair."""
        count = min(self.pairs, len(unlike))
        found = torch.full((len(like), count), -1, device=like.device)
        least = like.shape[1]
        for rows in torch.arange(len(like), device=like.device).split(max(1, _PAIRS_AT_ONCE // len(unlike))):
            differences = self._count_differences(like[rows], unlike)
            least = min(least, int(differences.min()))
            near = pairwise_distances(like[rows], unlike).masked_fill(differences > allowed, torch.inf)
            chosen = near.topk(count, largest=False)
            found[rows] = chosen.indices.masked_fill(torch.isinf(chosen.values), -1)
        return found, least

    def _count_differences(self, a: Tensor, b: Tensor) -> Tensor:
        """Count the differences of each pair, ``(rows of a, rows of b)``; by feature, to save memory."""
        assert self.tolerance_ is not None
        counts = torch.zeros(len(a), len(b), dtype=torch.int16, device=a.device)
        for column_a, column_b, tolerance in zip(a.T, b.T, self.tolerance_.tolist(), strict=True):
            counts += (column_a[:, None] - column_b).abs_() > tolerance
        return counts

    @torch.no_grad()
    def search(self, x: Tensor, y_target: Tensor) -> Solution:
        """Copy the differences of the nearest explanation cases."""
        exact, gradients = x.double(), torch.zeros_like(y_target)
        origin = predict(self.classifier, exact)
        if self.first_rows_ is not None:
            return Solution(x=self.first_rows_.to(x)[origin], gradients=gradients)
        if self.nearest_ is None:
            raise NotFittedError("This method has no cases. Call `fit(x, y)` with training rows first.")
        found = torch.where((origin == y_target)[:, None], exact, torch.nan)
        for (a, b), cases in self.cases_.items():
            rows = ((origin == a) & (y_target == b)).nonzero()[:, 0]
            if len(rows):
                found[rows] = self._from_cases(exact[rows], cases.to(x.device), b)
        missing = found.isnan().any(dim=1)
        if self.fallback:
            found[missing] = self.nearest_.nearest(exact[missing], y_target[missing], count=1)[:, 0]
        return Solution(x=found.to(x), gradients=gradients)

    def _from_cases(self, x: Tensor, cases: ExplanationCases, target: int) -> Tensor:
        """Return the best valid candidate of each row's nearest cases, adapted if none is valid; else NaN."""
        assert self.tolerance_ is not None
        like, unlike, present = self._nearest_cases(x, cases)
        differs = ((like - unlike).abs() > self.tolerance_.to(x)) & present[..., None]
        candidates = torch.where(differs, unlike, x[:, None])
        changes = (candidates != x[:, None]).sum(dim=2)
        distance = torch.linalg.vector_norm(candidates - x[:, None], dim=2)
        # Fewest changes first; the distance, mapped to [0, 1), decides between equals.
        rank = changes + distance / (1 + distance)
        best = rank.masked_fill(~self._valid(candidates, target), torch.inf).min(dim=1)
        found = candidates[torch.arange(len(x), device=x.device), best.indices]
        found = found.masked_fill(torch.isinf(best.values)[:, None], torch.nan)
        for case in range(candidates.shape[1]):
            missing = found.isnan().any(dim=1).nonzero()[:, 0]
            if self.adaptations and len(missing):
                start, mask = candidates[missing, case], differs[missing, case]
                found[missing] = self._adapt(x[missing], start, mask, cases.unlike, target)
        return found

    def _nearest_cases(self, x: Tensor, cases: ExplanationCases) -> tuple[Tensor, Tensor, Tensor]:
        """Return both rows ``(n, k, d)`` of the nearest pairs, and which pairs exist ``(n, k)``."""
        count = min(self.neighbours, len(cases.like))
        near = pairwise_distances(x, cases.like).topk(count, largest=False).indices
        partners = cases.partners[near].flatten(1)
        # In order of the first row's distance; absent partners go last.
        order = (partners < 0).to(torch.uint8).argsort(dim=1, stable=True)[:, : self.neighbours]
        chosen = partners.gather(1, order)
        first = near.gather(1, order // cases.partners.shape[1])
        return cases.like[first], cases.unlike[chosen.clamp_min(0)], chosen >= 0

    def _adapt(self, x: Tensor, start: Tensor, differs: Tensor, unlike: Tensor, target: int) -> Tensor:
        """Copy the differing features from the rows nearest to ``start``; return the first valid result."""
        found = torch.full_like(x, torch.nan)
        count = min(self.adaptations, len(unlike))
        near = pairwise_distances(start, unlike).topk(count, largest=False).indices
        missing = torch.arange(len(x), device=x.device)
        for neighbours in near.split(_NEIGHBOURS_AT_ONCE, dim=1):
            if len(missing) == 0:
                break
            values = unlike[neighbours[missing]]
            candidates = torch.where(differs[missing, None], values, x[missing, None])
            valid = self._valid(candidates, target)
            position = torch.arange(len(missing), device=x.device)
            first = candidates[position, valid.to(torch.uint8).argmax(dim=1)]
            done = valid.any(dim=1)
            found[missing[done]] = first[done]
            missing = missing[~done]
        return found

    def _valid(self, candidates: Tensor, target: int) -> Tensor:
        """Return whether the model assigns candidates ``(n, k, d)`` to the target class, ``(n, k)``."""
        return (predict(self.classifier, candidates.flatten(0, 1)) == target).view(candidates.shape[:2])


def _first_rows(x: Tensor, predicted: Tensor, n_classes: int) -> Tensor:
    """Return for every class the first row of another class, shape ``(k, d)``; NaN if there is none."""
    found = x.new_full((n_classes, x.shape[1]), torch.nan)
    for c in range(n_classes):
        others = (predicted != c).nonzero()[:, 0]
        if len(others):
            found[c] = x[others[0]]
    return found
