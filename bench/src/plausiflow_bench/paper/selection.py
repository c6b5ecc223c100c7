"""The tasks of the paper's evaluation, and their approximate cost.

Five studies make up the tables: ``methods`` (tables 1, 2 and the appendix), ``loss`` and ``lambda`` (the
ablations), ``densities`` (the estimators) and ``data`` (the data sets and their models).
:mod:`plausiflow_bench.paper.work` computes a task, and :mod:`plausiflow_bench.paper.tables` makes tables from
the rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from plausiflow.datasets import N_FOLDS
from plausiflow.errors import InvalidInputError
from plausiflow_bench.harness.runner import StudyTask
from plausiflow_bench.harness.selection import CLASSIFIERS, Selection

STUDIES = ("methods", "loss", "lambda", "densities", "data")
PAPER_METHODS = ("cbce", "cegp", "cem", "wach", "artelt", "ppcef_paper", "ppcef")
EXTRA_METHODS = ("nnce", "nnce_dense", "face", "dice", "diffeomorphic", "ceflow", "ppcef_ensemble")
DEFAULT_METHODS = (*PAPER_METHODS, "nnce_dense", "ppcef_ensemble")
LOSSES = ("hinge", "cross_entropy")
WEIGHTS = (1, 2, 5, 10, 100, 1000)
PUBLISHED_LOSS, PUBLISHED_WEIGHT = "hinge", 100
"""The lines of the ablations that equal PPCEF (paper) in the study ``methods``; they are not run twice."""
WEIGHT_DATASETS = ("moons", "law")
ESTIMATORS = ("kde", "realnvp", "nice", "maf")
JUDGED_FOLD = 0
"""The only fold for judges and other expensive methods."""
NO_MODEL = "none"

_ROWS = {"moons": 205, "law": 444, "audit": 122, "heloc": 2092, "blobs": 300, "digits": 360, "wine": 36}
_SECONDS = {
    "cbce": 1.0, "cegp": 8.0, "cem": 8.0, "wach": 8.0, "artelt": 20.0, "ppcef_paper": 20.0, "ppcef": 4.0,
    "nnce": 1.0, "nnce_dense": 1.0, "face": 4.0, "dice": 20.0, "diffeomorphic": 20.0, "ceflow": 4.0,
    "ppcef_ensemble": 60.0,
}  # fmt: skip
_CLASSIFIER_FACTOR = {"lr": 1.0, "mlp": 3.0, "node": 8.0, NO_MODEL: 1.0}


@dataclass(frozen=True, kw_only=True)
class PaperSelection(Selection):
    """The part of the paper's evaluation that is run.

    Attributes:
        datasets: Names of the paper's data sets.
        classifiers: Any of ``lr``, ``mlp``, ``node``.
        folds: Numbers of the paper's folds, 0 to 4.
        studies: Any of ``STUDIES``.
        methods: Methods of the study ``methods``.
    """

    classifiers: tuple[str, ...] = CLASSIFIERS
    folds: tuple[int, ...] = tuple(range(N_FOLDS))
    studies: tuple[str, ...] = STUDIES
    methods: tuple[str, ...] = DEFAULT_METHODS

    def __post_init__(self) -> None:
        super().__post_init__()
        problems = [
            f"Unknown study {s!r}; choose from {', '.join(STUDIES)}" for s in self.studies if s not in STUDIES
        ]
        known = (*PAPER_METHODS, *EXTRA_METHODS)
        problems += [
            f"Unknown method {m!r}; choose from {', '.join(known)}" for m in self.methods if m not in known
        ]
        if problems:
            raise InvalidInputError(". ".join(problems) + ".")

    def quick(self) -> Self:
        """Return one fold of three small data sets, with logistic regression and without ablations."""
        return replace(
            self,
            datasets=tuple(name for name in self.datasets if name in ("moons", "law", "wine")),
            classifiers=("lr",),
            folds=(0,),
            studies=tuple(name for name in self.studies if name not in ("loss", "lambda")),
        )

    def tasks(self) -> list[StudyTask]:
        """Return all tasks, in the order of the tables."""
        return [task for study in self.studies for task in getattr(self, f"_{study}")()]

    def _methods(self) -> Iterator[StudyTask]:
        for dataset, classifier, fold in self.cases():
            for method in self.methods:
                if method == "artelt" and classifier != "lr":
                    continue  # for linear models only
                if fold != JUDGED_FOLD and (
                    method == "ppcef_ensemble" or (method == "ppcef_paper" and classifier != "lr")
                ):
                    continue
                yield self._task("methods", dataset, classifier, method, fold)

    def _loss(self) -> Iterator[StudyTask]:
        for dataset, fold in self._folds():
            for loss in LOSSES:
                if not (self._has_published and loss == PUBLISHED_LOSS):
                    yield self._task("loss", dataset, "lr", loss, fold)

    def _lambda(self) -> Iterator[StudyTask]:
        for dataset, fold in self._folds():
            if dataset in WEIGHT_DATASETS:
                for weight in WEIGHTS:
                    if not (self._has_published and weight == PUBLISHED_WEIGHT):
                        yield self._task("lambda", dataset, "lr", str(weight), fold)

    def _densities(self) -> Iterator[StudyTask]:
        for dataset, fold in self._folds():
            for estimator in ESTIMATORS:
                yield self._task("densities", dataset, NO_MODEL, estimator, fold)

    def _data(self) -> Iterator[StudyTask]:
        for dataset, fold in self._folds():
            for classifier in self.classifiers:
                yield self._task("data", dataset, classifier, "accuracy", fold)

    @property
    def _has_published(self) -> bool:
        """Whether PPCEF (paper) runs with logistic regression in the study ``methods``."""
        return "methods" in self.studies and "ppcef_paper" in self.methods and "lr" in self.classifiers

    def _folds(self) -> Iterator[tuple[str, int]]:
        return ((dataset, fold) for dataset in self.datasets for fold in self.folds)

    def _task(self, study: str, dataset: str, classifier: str, method: str, fold: int) -> StudyTask:
        return StudyTask(
            study=study, dataset=dataset, classifier=classifier, method=method, fold=fold, seed=self.seed
        )


def cost(task: StudyTask) -> float:
    """Return the approximate processor seconds of a task."""
    size = math.pow(_ROWS.get(task.dataset, 1000) / 400, 0.6)
    if task.study == "methods":
        return _SECONDS[task.method] * _CLASSIFIER_FACTOR[task.classifier] * size
    return {"loss": 15.0, "lambda": 12.0, "densities": 10.0, "data": 5.0}[task.study] * size
