"""Which cases a study on numeric data sets runs, and the models that the cases share."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache

from torch import Tensor

from plausiflow.datasets import N_FOLDS, Fold, check_dataset_name, load_dataset
from plausiflow.densities import ConditionalFlow, PlausibilityWarning, Thresholded
from plausiflow.errors import InvalidInputError
from plausiflow.models import NODE, LinearClassifier, MLPClassifier, NetworkClassifier
from plausiflow_bench.harness.rows import Row, environment

PAPER_DATASETS = ("moons", "law", "audit", "heloc", "blobs", "digits", "wine")
CLASSIFIERS = ("lr", "mlp", "node")


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The cases of a study: every combination of data set, classifier and fold.

    Attributes:
        datasets: Names of data sets in the catalogue.
        classifiers: Any of ``lr``, ``mlp``, ``node``.
        folds: Numbers of the paper's folds, 0 to 4.
        seed: Seed of every model that is trained.
        rows: The maximum number of test rows per case. None means all.
    """

    datasets: tuple[str, ...] = PAPER_DATASETS
    classifiers: tuple[str, ...] = ("lr",)
    folds: tuple[int, ...] = (0,)
    seed: int = 0
    rows: int | None = None

    def __post_init__(self) -> None:
        unknown = [name for name in self.classifiers if name not in CLASSIFIERS]
        if unknown:
            raise InvalidInputError(f"Unknown classifiers {unknown}; choose from {', '.join(CLASSIFIERS)}.")
        for name in self.datasets:
            check_dataset_name(name)
        beyond = [fold for fold in self.folds if fold not in range(N_FOLDS)]
        if beyond:
            raise InvalidInputError(f"Folds must be 0 to {N_FOLDS - 1}; got {', '.join(map(str, beyond))}.")
        if self.rows is not None and self.rows < 1:
            raise InvalidInputError(f"`rows` must be at least 1; got {self.rows}.")

    def cases(self) -> Iterator[tuple[str, str, int]]:
        """Yield every data set, classifier and fold."""
        for dataset in self.datasets:
            for fold in self.folds:
                for classifier in self.classifiers:
                    yield dataset, classifier, fold

    def first_rows(self, x: Tensor) -> Tensor:
        """Return the first ``rows`` rows of a tensor."""
        return x if self.rows is None else x[: self.rows]

    def run(self, case: Callable[[str, str, int], Iterator[Row]]) -> Iterator[Row]:
        """Call ``case`` for every case, and yield its rows with the case, the seed and the versions added."""
        for dataset, classifier, fold in self.cases():
            named: Row = {"dataset": dataset, "classifier": classifier, "fold": fold}
            for row in case(dataset, classifier, fold):
                yield named | row | {"seed": self.seed} | environment()


@lru_cache(maxsize=8)
def load_fold(dataset: str, fold: int) -> Fold:
    """Load a fold of a data set. The result is cached."""
    return load_dataset(dataset).fold(fold)


@cache
def fit_classifier(dataset: str, kind: str, fold: int, seed: int) -> NetworkClassifier:
    """Fit a classifier to the training rows of a fold. The result is cached."""
    data = load_fold(dataset, fold)
    classes: dict[str, type[NetworkClassifier]] = {"lr": LinearClassifier, "mlp": MLPClassifier, "node": NODE}
    return classes[kind](random_state=seed).fit(data.x_train, data.y_train)


@cache
def fit_thresholded_flow(dataset: str, fold: int, seed: int) -> Thresholded:
    """Fit a flow to a fold, with the median of each class as its threshold. The result is cached."""
    data = load_fold(dataset, fold)
    flow = ConditionalFlow(random_state=seed).fit(data.x_train, data.y_train)
    return Thresholded(density=flow).fit(data.x_train, data.y_train)


def target_policy(n_classes: int) -> str:
    """Return the policy that chooses the target class: the other class, or the most probable other one."""
    return "opposite" if n_classes == 2 else "runner_up"


@contextmanager
def ignore_plausibility_warnings() -> Iterator[None]:
    """Ignore warnings about plausibility, because the tables of a study show the plausibility."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlausibilityWarning)
        yield
