r"""Metrics of counterfactuals: those of the paper, as published and in a sound variant.

A metric is a function ``(cf, context) -> (n,)``, NaN without a counterfactual; only :func:`evaluate`
reduces. The two variants differ in a metric's formula, or in the rows it is reduced over:

- ``sound``: over all rows with a counterfactual. Valid means that the target class :math:`y'` is reached,
  densities are those of that class, and a point on the threshold is plausible.
- ``paper``: what the published tables hold. Valid means that the decision y changed, to any class; distances,
  plausibility and log-density are over valid rows only; densities are those of class :math:`|1 - y|`,
  wherever the point went; plausible is ``>``.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import LocalOutlierFactor
from torch import Tensor

from plausiflow.core.counterfactuals import Counterfactuals
from plausiflow.core.losses import l1_distance, l2_distance
from plausiflow.core.prediction import predict
from plausiflow.core.protocols import Classifier, Panel, Plausibility
from plausiflow.core.training import check_rows
from plausiflow.core.verification import verify_counterfactuals
from plausiflow.errors import InvalidInputError

Variant = Literal["sound", "paper"]
Rows = Literal["all", "found", "changed"]
Over = Rows | Mapping[Variant, Rows]
Better = Literal["higher", "lower"]
Reduction = Callable[[NDArray[np.float64]], np.float64]
PerRow = Callable[[Counterfactuals, "Context"], Tensor]


@dataclass(frozen=True, kw_only=True, eq=False)
class Context:
    """What counterfactuals are measured with; outlier detectors are fitted once, on first use.

    Attributes:
        classifier: The model that is explained.
        plausibility: Scores densities; without it, or without its ``log_prob``, metrics that need it are NaN.
        judges: Densities that did not guide the search; without them judged metrics are NaN.
        x_train: Training rows, shape ``(n, d)``.
        y_train: Their classes, shape ``(n,)``.
    """

    classifier: Classifier
    plausibility: Plausibility | None = None
    judges: Panel | None = None
    x_train: Tensor = field(repr=False)
    y_train: Tensor = field(repr=False)
    _lof: dict[int | None, Any] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        check_rows(self.x_train, self.y_train)

    @functools.cached_property
    def isolation_forest(self) -> IsolationForest:
        """A forest of 100 trees, fitted on the training rows."""
        return IsolationForest(n_estimators=100, random_state=42).fit(_array(self.x_train))

    def outlier_factor(self, x: Tensor, of_class: int | None = None) -> Tensor:
        """Local outlier factor (20 neighbours) among all training rows or a class's, shape ``(n,)``.

        NaN with fewer than two rows.
        """
        if of_class not in self._lof:
            rows = self.x_train if of_class is None else self.x_train[self.y_train == of_class]
            lof = LocalOutlierFactor(n_neighbors=min(20, len(rows) - 1), novelty=True)
            self._lof[of_class] = lof.fit(_array(rows)) if len(rows) > 1 else None
        if self._lof[of_class] is None:
            return x.new_full((len(x),), torch.nan, dtype=torch.float64)
        return torch.from_numpy(-self._lof[of_class].score_samples(_array(x))).to(x.device)


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric in one variant: its label in tables, which way is better, over which rows and how."""

    label: str
    better: Better | None
    over: Rows
    reduction: Reduction
    per_row: PerRow


METRICS: dict[Variant, dict[str, Metric]] = {"sound": {}, "paper": {}}


def metric(
    name: str,
    label: str,
    *,
    better: Better | None = None,
    over: Over = "found",
    reduction: Reduction = np.mean,
) -> Callable[[PerRow], PerRow]:
    """Register a metric.

    ``over`` holds for both variants, or names the rows of each variant that has this formula.
    Unless it is over all rows, the function is only ever given rows with a counterfactual, and at least one.
    """

    def register(function: PerRow) -> PerRow:
        @functools.wraps(function)
        def per_row(cf: Counterfactuals, context: Context) -> Tensor:
            rows = torch.ones_like(cf.found) if over == "all" else cf.found
            values = torch.full_like(cf.found, torch.nan, dtype=torch.float64)
            if rows.any():
                values[rows] = function(cf[rows], context).double()
            return values

        by_variant: Mapping[Variant, Rows] = {"sound": over, "paper": over} if isinstance(over, str) else over
        for variant, rows in by_variant.items():
            METRICS[variant][name] = Metric(
                label=label, better=better, over=rows, reduction=reduction, per_row=per_row
            )
        return per_row

    return register


@torch.no_grad()
def evaluate(
    cf: Counterfactuals, context: Context, *, variant: Variant = "sound", names: Iterable[str] | None = None
) -> dict[str, float]:
    """Return one number for each metric, or each of ``names``.

    NaN where there is no row to reduce.
    """
    if variant not in METRICS:
        raise InvalidInputError(f"`variant` must be 'sound' or 'paper'; got {variant!r}.")
    known = METRICS[variant]
    chosen = list(known if names is None else names)
    if unknown := [name for name in chosen if name not in known]:
        raise InvalidInputError(
            f"`names` must be among {', '.join(known)}; got {', '.join(map(repr, unknown))}."
        )
    rows = {"all": torch.ones_like(cf.found), "found": cf.found}
    if variant == "paper":
        rows["changed"] = changed_decision(cf, context) == 1
    values = {name: _array(known[name].per_row(cf, context)[rows[known[name].over]]) for name in chosen}
    return {
        name: float(known[name].reduction(value)) if len(value) else float("nan")
        for name, value in values.items()
    }


def real_rows(
    x: Tensor, y: Tensor, *, classifier: Classifier, plausibility: Plausibility | None = None
) -> Counterfactuals:
    """Return real rows ``(n, d)`` as their own counterfactuals for their own classes ``(n,)``.

    What :func:`evaluate` says of them is the yardstick for those of a search.
    """
    return verify_counterfactuals(classifier=classifier, plausibility=plausibility, x=x, x_cf=x, y_target=y)


def _array(x: Tensor) -> NDArray[np.float64]:
    return x.detach().cpu().double().numpy()


@metric("coverage", "Coverage", better="higher", over="all")
def coverage(cf: Counterfactuals, context: Context) -> Tensor:
    """One where the method returned a point, else zero."""
    return cf.found.double()


@metric("validity", "Validity", better="higher", over={"paper": "found"})
def changed_decision(cf: Counterfactuals, context: Context) -> Tensor:
    r"""One where the model's decision changed, to any class, :math:`\hat y(x') \ne y`, else zero."""
    return (predict(context.classifier, cf.x_cf.double()) != cf.y).double()


@metric("target_validity", "Target validity", better="higher")
@metric("validity", "Validity", better="higher", over={"sound": "found"})
def reached_target(cf: Counterfactuals, context: Context) -> Tensor:
    r"""One where the model decides as wanted, :math:`\hat y(x') = y'`, else zero. [PPCEF Eq. 3b]"""
    return (predict(context.classifier, cf.x_cf.double()) == cf.y_target).double()


@metric("plausibility", "Prob. plaus.", better="higher", over={"sound": "found"})
def probabilistic_plausibility(cf: Counterfactuals, context: Context) -> Tensor:
    r"""One where :math:`\log p(x' | y') \ge \log\delta`, else zero. [PPCEF Eq. 3c]"""
    return _compare(operator.ge, cf, context, cf.y_target)


@metric("plausibility", "Prob. plaus.", better="higher", over={"paper": "changed"})
def published_plausibility(cf: Counterfactuals, context: Context) -> Tensor:
    r"""One where :math:`\log p(x' | k) > \log\delta` with :math:`k = |1 - y|`, else zero."""
    # Deviation: the published tables ask this of class |1 - predicted|, also of methods that may go to any
    # class.
    return _compare(operator.gt, cf, context, (1 - cf.y).abs())


@metric("feasible", "Feasible", better="higher", over="all")
def feasible(cf: Counterfactuals, context: Context) -> Tensor:
    """One where a point was found that has the target class and is plausible for it.

    Zero also where none was found.
    """
    return torch.where(cf.found, reached_target(cf, context) * probabilistic_plausibility(cf, context), 0.0)


@metric("judged", "Judged", better="higher")
def judged(cf: Counterfactuals, context: Context) -> Tensor:
    """Share of the judges that find the point plausible for the target class."""
    return _passes(cf, context).mean(dim=1)


@metric("judged_worst", "Judged (worst)", better="higher")
def judged_worst(cf: Counterfactuals, context: Context) -> Tensor:
    """One where the strictest judge finds the point plausible for the target class, else zero.

    The strictest is the judge that passes the fewest of the rows given, so a row's value depends on the
    others.
    """
    passes = _passes(cf, context)
    return passes[:, passes.mean(dim=0).argmin()]


@metric("log_density", "Log dens.", better="higher", over={"sound": "found"})
def log_density(cf: Counterfactuals, context: Context) -> Tensor:
    r"""Log-density under the target class, :math:`\log p(x' | y')`."""
    return _log_prob(cf, context, cf.y_target)


@metric("log_density", "Log dens.", better="higher", over={"paper": "changed"})
def published_log_density(cf: Counterfactuals, context: Context) -> Tensor:
    r"""Log-density under class :math:`|1 - y|`, wherever the counterfactual went."""
    return _log_prob(cf, context, (1 - cf.y).abs())


@metric("lof_median", "LOF (median)", better="lower", reduction=np.median)
@metric("lof", "LOF", better="lower")
def outlier_factor(cf: Counterfactuals, context: Context) -> Tensor:
    """Local outlier factor among all training rows.

    A row next to 20 identical ones can take the mean to 1e8: read the median.
    """
    return context.outlier_factor(cf.x_cf)


@metric("lof_target", "LOF (class)", better="lower")
def target_outlier_factor(cf: Counterfactuals, context: Context) -> Tensor:
    """Local outlier factor among the training rows of the target class."""
    values = torch.empty_like(cf.found, dtype=torch.float64)
    for k in set(cf.y_target.tolist()):
        values[cf.y_target == k] = context.outlier_factor(cf.x_cf[cf.y_target == k], k)
    return values


@metric("iso_forest", "IsoForest", better="higher")
def isolation_forest(cf: Counterfactuals, context: Context) -> Tensor:
    """Decision function of an isolation forest on all training rows: -0.5 to 0.5, positive for an inlier."""
    return torch.from_numpy(context.isolation_forest.decision_function(_array(cf.x_cf))).to(cf.x.device)


@metric("l1", "L1", better="lower", over={"sound": "found", "paper": "changed"})
def l1(cf: Counterfactuals, context: Context) -> Tensor:
    """City-block distance to the factual."""
    return l1_distance(cf.x_cf.double(), cf.x.double())


@metric("l2", "L2", better="lower", over={"sound": "found", "paper": "changed"})
def l2(cf: Counterfactuals, context: Context) -> Tensor:
    """Euclidean distance to the factual."""
    return l2_distance(cf.x_cf.double(), cf.x.double())


@metric("sparsity", "Sparsity", better="lower")
def sparsity(cf: Counterfactuals, context: Context) -> Tensor:
    """Share of features that changed by more than 1e-4.

    Gradient searches hardly ever leave one exactly as it was.
    """
    return ((cf.x_cf.double() - cf.x.double()).abs() > 1e-4).double().mean(dim=1)


@metric("seconds", "Time", better="lower", over="all", reduction=np.sum)
def seconds(cf: Counterfactuals, context: Context) -> Tensor:
    """Wall-clock seconds of the search, each row's share."""
    return cf.seconds


@metric("cpu_seconds", "CPU time", better="lower", over="all", reduction=np.sum)
def cpu_seconds(cf: Counterfactuals, context: Context) -> Tensor:
    """CPU seconds of the search, each row's share."""
    return cf.cpu_seconds


def _compare(
    compare: Callable[[Tensor, float], Tensor], cf: Counterfactuals, context: Context, y: Tensor
) -> Tensor:
    if context.plausibility is None:
        return torch.full_like(cf.found, torch.nan, dtype=torch.float64)
    return compare(context.plausibility.score(cf.x_cf.double(), y), 0.0).double()


def _passes(cf: Counterfactuals, context: Context) -> Tensor:
    if context.judges is None:
        return torch.full_like(cf.found, torch.nan, dtype=torch.float64)[:, None]
    return context.judges.passes(cf.x_cf.double(), cf.y_target).double()


def _log_prob(cf: Counterfactuals, context: Context, y: Tensor) -> Tensor:
    log_prob: Callable[[Tensor, Tensor], Tensor] | None = getattr(context.plausibility, "log_prob", None)
    return (
        torch.full_like(cf.found, torch.nan, dtype=torch.float64)
        if log_prob is None
        else log_prob(cf.x_cf.double(), y)
    )
