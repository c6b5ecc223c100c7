"""What each task of the paper's evaluation computes.

Every method gets the same classifier, the same [0, 1] box and the same wanted classes, those of the published
runs (:math:`|1 - y|`), and is measured by the same flow with the paper's pooled threshold. Models are fitted
once and kept (:mod:`plausiflow_bench.store`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from plausiflow.core import Context, evaluate, predict
from plausiflow.datasets import Fold
from plausiflow.densities import ConditionalFlow, CrossFitEnsemble, Judges, PlausibilityWarning, Thresholded
from plausiflow.methods import METHODS, PPCEF, Artelt, BoxedMethod, Method
from plausiflow.models import NODE, LinearClassifier, MLPClassifier, NetworkClassifier
from plausiflow.solvers import PenaltyAdam
from plausiflow_bench import densities
from plausiflow_bench.paper import JUDGED_FOLD
from plausiflow_bench.runner import Task
from plausiflow_bench.store import Store
from plausiflow_bench.study import CpuTimer, Row, fold_of, out_of_box

PUBLISHED = (
    "coverage", "validity", "plausibility", "lof", "iso_forest", "log_density", "l1", "l2", "seconds",
)  # fmt: skip
"""The paper's nine columns."""
BESIDE = ("target_validity", "judged", "sparsity", "cpu_seconds")
_CLASSIFIERS: dict[str, Callable[..., NetworkClassifier]] = {
    "lr": LinearClassifier,
    "mlp": MLPClassifier,
    "node": NODE,
}


@dataclass(frozen=True, kw_only=True)
class PaperWork:
    """Does one task.

    Attributes:
        folder: Where fitted models are kept.
        rows: Most test rows of each task; nothing means all.
    """

    folder: Path
    rows: int | None = None

    def __call__(self, task: Task) -> Row:
        """The row of a task."""
        data = fold_of(task.dataset, task.fold)
        return {
            "methods": self._method,
            "loss": self._loss,
            "lambda": self._weight,
            "densities": self._density,
            "data": self._data,
        }[task.study](task, data)

    def _method(self, task: Task, data: Fold) -> Row:
        models = self._models(task, data)
        return models.measured(models.method(task.method), self._few(data.x_test), judged=True)

    def _loss(self, task: Task, data: Fold) -> Row:
        models = self._models(task, data)
        method = models.method("ppcef_paper")
        assert isinstance(method, PPCEF)
        if task.method == "cross_entropy":
            method = replace(method, validity_loss="cross_entropy")
        return models.measured(method, self._few(data.x_test))

    def _weight(self, task: Task, data: Fold) -> Row:
        models = self._models(task, data)
        method = models.method("ppcef_paper")
        assert isinstance(method, PPCEF)
        assert isinstance(method.solver, PenaltyAdam)
        weighted = replace(method, solver=replace(method.solver, weight=float(task.method)))
        return models.measured(weighted, self._few(data.x_test))

    def _density(self, task: Task, data: Fold) -> Row:
        kept = self._store.fitted(densities.make(task.method, task.seed), data.x_train, data.y_train)
        with torch.no_grad():
            log_prob = kept.value.log_prob(data.x_test.double(), data.y_test)
        return {
            "rows": len(data.x_test),
            "log_density": float(log_prob.mean()),
            "training_cpu_seconds": kept.cpu_seconds,
        }

    def _data(self, task: Task, data: Fold) -> Row:
        models = self._models(task, data)
        right = predict(models.classifier, data.x_test) == data.y_test
        log_prob = models.plausibility.log_prob(data.x_test.double(), data.y_test)
        return {
            "rows": len(data.x_train) + len(data.x_test),
            "features": data.x_train.shape[1],
            "classes": models.classifier.n_classes,
            "accuracy": float(right.double().mean()),
            "log_density": float(log_prob.mean()),
        }

    def _few(self, x: Tensor) -> Tensor:
        return x if self.rows is None else x[: self.rows]

    @property
    def _store(self) -> Store:
        return Store(self.folder)

    def _models(self, task: Task, data: Fold) -> Models:
        store = self._store
        classifier = store.fitted(_CLASSIFIERS[task.classifier](seed=task.seed), data.x_train, data.y_train)
        flow = store.fitted(ConditionalFlow(seed=task.seed), data.x_train, data.y_train)
        yardstick = Thresholded(density=flow.value, scheme="pooled").fit(data.x_train, data.y_train)
        return Models(
            classifier=classifier.value,
            plausibility=yardstick,
            data=data,
            store=store,
            seed=task.seed,
            judged=task.fold == JUDGED_FOLD,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Models:
    """The fitted models of a fold, and the methods on them.

    Attributes:
        classifier: What is explained.
        plausibility: One flow with the paper's threshold: what measures all, and guides those that it may.
        data: The fold.
        store: Where more models are.
        seed: Of what is trained.
        judged: Whether judges are asked.
    """

    classifier: NetworkClassifier
    plausibility: Thresholded
    data: Fold
    store: Store
    seed: int
    judged: bool

    def method(self, name: str) -> Method:
        """A method by its name in the study, not fitted."""
        if name == "ppcef_paper":
            return PPCEF.paper(classifier=self.classifier, plausibility=self.plausibility)
        if name == "ppcef":
            return PPCEF(classifier=self.classifier, plausibility=self.plausibility, lower=0.0, upper=1.0)
        if name == "ppcef_ensemble":
            ensemble = self.store.fitted(
                CrossFitEnsemble(seed=self.seed, workers=1), self.data.x_train, self.data.y_train
            )
            return PPCEF(
                classifier=self.classifier, density=ensemble.value, lower=0.0, upper=1.0, seed=self.seed
            )
        method: Method = METHODS[name](classifier=self.classifier, plausibility=self.plausibility)
        return replace(method, lower=0.0, upper=1.0) if isinstance(method, BoxedMethod | Artelt) else method

    def measured(self, method: Method, x: Tensor, *, judged: bool = False) -> Row:
        """What a method finds, by all measures."""
        data = self.data
        with CpuTimer() as fitting, warnings.catch_warnings():
            warnings.simplefilter("ignore", PlausibilityWarning)  # the table shows what is reached
            method.fit(data.x_train, data.y_train)
        found = method.explain(x, "paper")
        judges = self.store.fitted(Judges(), data.x_train, data.y_train) if self.judged and judged else None
        context = Context(
            classifier=self.classifier,
            plausibility=self.plausibility,
            judges=None if judges is None else judges.value,
            x_train=data.x_train,
            y_train=data.y_train,
        )
        kept = found[found.found]
        return {
            "rows": len(x),
            **evaluate(found, context, variant="paper", names=PUBLISHED),
            **evaluate(found, context, names=BESIDE),
            "own_plausibility": float(kept.plausible.double().mean()),
            "out_of_box": float(out_of_box(kept).double().mean()),
            "fit_cpu_seconds": fitting.seconds,
        }
