"""``plausiflow benchmark realism-exact``: the two-sample test where the true density is known.

How well are perfect counterfactuals recognised?

Two classes are normal with one covariance, so their density is a formula, and a logistic regression decides
between them. ``exact_density`` are the answers that PPCEF finds with the true density: the closest rows that
the model decides as wanted and that are as dense as half of the real rows. No density that was learned is
part of them. ``plausiflow`` are the answers with the default ensemble and its calibrated margin, for the same
rows. ``real`` are new rows of the class. All are compared with the training rows of the class as in the study
of tables: gradient boosting, five folds, four real rows for each answer, three seeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
import pandas as pd
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from plausiflow.core import Classifier, Plausibility
from plausiflow.densities import CrossFitEnsemble
from plausiflow.explanations import RealismJudge
from plausiflow.methods import PPCEF
from plausiflow.tables import FloatArray, Schema
from plausiflow_bench.harness.pages import describe_runs, write_section
from plausiflow_bench.harness.printing import markdown
from plausiflow_bench.harness.rows import Row, environment
from plausiflow_bench.harness.selection import ignore_plausibility_warnings
from plausiflow_bench.realism.measures import AUC_SEEDS

WIDTHS, TRAINING_ROWS, ROWS, QUANTILE = (3, 6, 12), 4000, 200, 0.5
COLUMNS = ("dataset", "method", "rows", "found", "l2", "auc", "auc_spread")
MARK = "<!-- written by `plausiflow benchmark realism-exact --page` -->"


@dataclass(frozen=True, eq=False)
class NormalClasses:
    """Two normal classes with one covariance.

    Attributes:
        means: Mean of each class, shape ``(2, d)``.
        covariance: Covariance of both, shape ``(d, d)``.
    """

    means: Tensor
    covariance: Tensor

    @classmethod
    def draw(cls, d: int, seed: int) -> NormalClasses:
        """Return classes of d correlated numbers whose means differ by one in each number."""
        mixed = np.random.default_rng((seed, d)).normal(size=(d, d)) / np.sqrt(d)
        covariance = torch.from_numpy(mixed @ mixed.T) + 0.5 * torch.eye(d, dtype=torch.float64)
        means = torch.stack([torch.zeros(d, dtype=torch.float64), torch.ones(d, dtype=torch.float64)])
        return cls(means, covariance)

    def sample(self, y: Tensor, seed: int) -> Tensor:
        """Return one row for each class index ``(n,)``, shape ``(n, d)``."""
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randn(len(y), len(self.covariance), dtype=torch.float64, generator=generator)
        factor: Tensor = torch.linalg.cholesky(self.covariance)
        return self.means[y] + noise @ factor.mT

    def log_prob(self, x: Tensor, y: Tensor) -> Tensor:
        r"""Return :math:`\log N(x; \mu_y, \Sigma)`, shape ``(n,)``."""
        gap = x - self.means.to(x)[y]
        precision: Tensor = torch.linalg.inv(self.covariance).to(x)
        volume: Tensor = torch.logdet(2 * torch.pi * self.covariance).to(x)
        return -0.5 * ((gap @ precision * gap).sum(dim=1) + volume)


@dataclass(frozen=True, eq=False)
class TruePlausibility:
    """The true density, with a threshold for each class that a share of its rows is below."""

    classes: NormalClasses
    thresholds: Tensor

    def score(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the log-density minus the threshold, shape ``(n,)``."""
        return self.classes.log_prob(x, y) - self.thresholds.to(x)[y]


@dataclass(eq=False)
class Logistic:
    """A logistic regression of two classes as a classifier of tensors."""

    weight: Tensor
    bias: float
    n_classes: int = 2
    differentiable: bool = True

    @classmethod
    def fit(cls, x: Tensor, y: Tensor) -> Logistic:
        """Fit scikit-learn's logistic regression."""
        model = LogisticRegression().fit(x.numpy(), y.numpy())
        return cls(torch.from_numpy(model.coef_[0].copy()), float(model.intercept_[0]))

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits of both classes, shape ``(n, 2)``."""
        value = x @ self.weight.to(x) + self.bias
        return torch.stack([torch.zeros_like(value), value], dim=1)


def run(seed: int, *, rows: int = ROWS) -> Iterator[Row]:
    """Yield one row for each number of columns and method."""
    for d in WIDTHS:
        for row in _measure(NormalClasses.draw(d, seed), rows, seed):
            sizes: Row = {"dataset": f"normal_{d}", "training_rows": TRAINING_ROWS, "seed": seed}
            yield sizes | row | environment()


def _measure(classes: NormalClasses, rows: int, seed: int) -> Iterator[Row]:
    y = torch.arange(TRAINING_ROWS) % 2
    x = classes.sample(y, 3 * seed)
    classifier = Logistic.fit(x, y)
    others = classes.sample(torch.zeros(2 * rows, dtype=torch.long), 3 * seed + 1)
    factual = others[classifier.logits(others).argmax(dim=1) == 0][:rows]
    log_probs = classes.log_prob(x, y)
    thresholds = torch.stack([log_probs[y == k].quantile(QUANTILE) for k in range(2)])
    judge = _judge(x[y == 1])
    real: Row = {"method": "real"}
    yield real | _auc(judge, classes.sample(torch.ones(rows, dtype=torch.long), 3 * seed + 2))
    methods: dict[str, Plausibility] = {
        "exact_density": TruePlausibility(classes, thresholds),
        "plausiflow": CrossFitEnsemble(random_state=seed).fit(x, y),
    }
    for name, plausibility in methods.items():
        named: Row = {"method": name}
        yield named | _explained(classifier, plausibility, x, y, factual, judge)


def _explained(
    classifier: Classifier,
    plausibility: Plausibility,
    x: Tensor,
    y: Tensor,
    factual: Tensor,
    judge: RealismJudge,
) -> Row:
    method = PPCEF(classifier=classifier, plausibility=plausibility)
    with ignore_plausibility_warnings():
        method.fit(x, y)
    found = method.explain(factual, torch.ones(len(factual), dtype=torch.long))
    answers = found.x_cf[found.feasible]
    distance = torch.linalg.vector_norm(answers - factual[found.feasible], dim=1)
    measures: Row = {"found": float(found.feasible.double().mean()), "l2": float(distance.mean())}
    return measures | _auc(judge, answers)


def _judge(x: Tensor) -> RealismJudge:
    """Return the judge of the tables' study for rows of one class."""
    frame = _frame(x)
    outcomes = np.zeros(len(frame), dtype=np.int64)
    return RealismJudge(schema=Schema.infer(frame), load=lambda: frame, outcomes=outcomes, immutable=())


def _auc(judge: RealismJudge, x: Tensor) -> Row:
    frame, outcomes = _frame(x), np.zeros(len(x), dtype=np.int64)
    areas = [judge.two_sample_auc(frame, outcomes, random_state=seed) for seed in AUC_SEEDS]
    return {"rows": len(x), "auc": fmean(areas), "auc_spread": float(np.std(areas))}


def _frame(x: Tensor) -> pd.DataFrame:
    values: FloatArray = x.numpy().astype(np.float64)
    return pd.DataFrame(values, columns=[f"x{j}" for j in range(x.shape[1])])


def write_page(rows: list[Row], path: Path) -> None:
    """Write the table into its section of a page."""
    write_section(path, MARK, f"{markdown(rows, COLUMNS)}\n\n{describe_runs(rows)}")
