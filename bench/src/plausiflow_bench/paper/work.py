"""The work of each task of the paper's evaluation.

Every method gets the same classifier, the same [0, 1] box and the same target classes as in the published
runs (:math:`|1 - y|`), and is measured by the same flow with the paper's pooled threshold. Models are fitted
once and stored (:mod:`plausiflow_bench.harness.store`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from plausiflow.core import Context, evaluate, predict
from plausiflow.datasets import Fold
from plausiflow.densities import ConditionalFlow, CrossFitEnsemble, Judges, Thresholded
from plausiflow.methods import PPCEF, BoxedMethod, Method
from plausiflow.models import NODE, LinearClassifier, MLPClassifier, NetworkClassifier
from plausiflow.solvers import PenaltyAdam
from plausiflow_bench.harness.rows import CpuTimer, Row, out_of_box
from plausiflow_bench.harness.runner import StudyTask
from plausiflow_bench.harness.selection import ignore_plausibility_warnings, load_fold
from plausiflow_bench.harness.store import Store
from plausiflow_bench.methods import METHODS, Artelt
from plausiflow_bench.numeric import densities
from plausiflow_bench.paper.selection import JUDGED_FOLD

PUBLISHED_METRICS = (
    "coverage", "validity", "plausibility", "lof", "iso_forest", "log_density", "l1", "l2", "seconds",
)  # fmt: skip
"""The paper's nine columns."""
EXTRA_METRICS = ("target_validity", "judged", "sparsity", "cpu_seconds")
_CLASSIFIERS: dict[str, Callable[..., NetworkClassifier]] = {
    "lr": LinearClassifier,
    "mlp": MLPClassifier,
    "node": NODE,
}


@dataclass(frozen=True, kw_only=True)
class PaperWork:
    """Computes the row of a task.

    Attributes:
        folder: Where fitted models are stored.
        rows: The maximum number of test rows per task. None means all.
    """

    folder: Path
    rows: int | None = None

    def __call__(self, task: StudyTask) -> Row:
        """Return the row of a task."""
        data = load_fold(task.dataset, task.fold)
        return {
            "methods": self._method,
            "loss": self._loss,
            "lambda": self._weight,
            "densities": self._density,
            "data": self._data,
        }[task.study](task, data)

    def _method(self, task: StudyTask, data: Fold) -> Row:
        models = self._models(task, data)
        return models.measure(models.method(task.method), self._first_rows(data.x_test), judged=True)

    def _loss(self, task: StudyTask, data: Fold) -> Row:
        models = self._models(task, data)
        method = models.method("ppcef_paper")
        assert isinstance(method, PPCEF)
        if task.method == "cross_entropy":
            method = replace(method, validity_loss="cross_entropy")
        return models.measure(method, self._first_rows(data.x_test))

    def _weight(self, task: StudyTask, data: Fold) -> Row:
        models = self._models(task, data)
        method = models.method("ppcef_paper")
        assert isinstance(method, PPCEF)
        assert isinstance(method.solver, PenaltyAdam)
        weighted = replace(method, solver=replace(method.solver, weight=float(task.method)))
        return models.measure(weighted, self._first_rows(data.x_test))

    def _density(self, task: StudyTask, data: Fold) -> Row:
        entry = self._store.fit(densities.make_density(task.method, task.seed), data.x_train, data.y_train)
        with torch.no_grad():
            log_prob = entry.value.log_prob(data.x_test.double(), data.y_test)
        return {
            "rows": len(data.x_test),
            "log_density": float(log_prob.mean()),
            "training_cpu_seconds": entry.cpu_seconds,
        }

    def _data(self, task: StudyTask, data: Fold) -> Row:
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

    def _first_rows(self, x: Tensor) -> Tensor:
        return x if self.rows is None else x[: self.rows]

    @property
    def _store(self) -> Store:
        return Store(self.folder)

    def _models(self, task: StudyTask, data: Fold) -> FoldModels:
        store = self._store
        classifier = store.fit(
            _CLASSIFIERS[task.classifier](random_state=task.seed), data.x_train, data.y_train
        )
        flow = store.fit(ConditionalFlow(random_state=task.seed), data.x_train, data.y_train)
        plausibility = Thresholded(density=flow.value, scheme="pooled").fit(data.x_train, data.y_train)
        return FoldModels(
            classifier=classifier.value,
            plausibility=plausibility,
            data=data,
            store=store,
            seed=task.seed,
            judged=task.fold == JUDGED_FOLD,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class FoldModels:
    """The fitted models of a fold, and the methods that use them.

    Attributes:
        classifier: The model that is explained.
        plausibility: One flow with the paper's threshold. It measures all methods, and guides most of them.
        data: The fold.
        store: Where other models are stored.
        seed: Seed of everything that is trained.
        judged: Whether judges measure the counterfactuals.
    """

    classifier: NetworkClassifier
    plausibility: Thresholded
    data: Fold
    store: Store
    seed: int
    judged: bool

    def method(self, name: str) -> Method:
        """Return an unfitted method by its name in the study."""
        if name == "ppcef_paper":
            return PPCEF.paper(classifier=self.classifier, plausibility=self.plausibility)
        if name == "ppcef":
            return PPCEF(classifier=self.classifier, plausibility=self.plausibility, lower=0.0, upper=1.0)
        if name == "ppcef_ensemble":
            ensemble = self.store.fit(
                CrossFitEnsemble(random_state=self.seed), self.data.x_train, self.data.y_train
            )
            return PPCEF(
                classifier=self.classifier,
                density=ensemble.value,
                lower=0.0,
                upper=1.0,
                random_state=self.seed,
            )
        method: Method = METHODS[name](classifier=self.classifier, plausibility=self.plausibility)
        return replace(method, lower=0.0, upper=1.0) if isinstance(method, BoxedMethod | Artelt) else method

    def measure(self, method: Method, x: Tensor, *, judged: bool = False) -> Row:
        """Fit a method, explain rows, and return all measures."""
        data = self.data
        with CpuTimer() as fitting, ignore_plausibility_warnings():
            method.fit(data.x_train, data.y_train)
        found = method.explain(x, "paper")
        judges = self.store.fit(Judges(), data.x_train, data.y_train) if self.judged and judged else None
        context = Context(
            classifier=self.classifier,
            plausibility=self.plausibility,
            judges=None if judges is None else judges.value,
            x_train=data.x_train,
            y_train=data.y_train,
        )
        with_cf = found[found.found]
        return {
            "rows": len(x),
            **evaluate(found, context, variant="paper", names=PUBLISHED_METRICS),
            **evaluate(found, context, names=EXTRA_METRICS),
            "own_plausibility": float(with_cf.plausible.double().mean()),
            "out_of_box": float(out_of_box(with_cf).double().mean()),
            "fit_cpu_seconds": fitting.seconds,
        }
