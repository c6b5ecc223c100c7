"""What every benchmark shares: which cases it runs, models fitted once for all, and the flat rows it reports.

A row says what was run, on what, with which seed and at which commit; nothing in a table comes from anywhere
else.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import torch
from torch import Tensor

from plausiflow import __version__
from plausiflow.core import Counterfactuals, l1_distance, l2_distance
from plausiflow.datasets import N_FOLDS, Fold, check_name, load
from plausiflow.densities import ConditionalFlow, Thresholded
from plausiflow.errors import InvalidInputError
from plausiflow.methods import Policy
from plausiflow.models import NODE, LinearClassifier, MLPClassifier, NetworkClassifier

PAPER_DATASETS = ("moons", "law", "audit", "heloc", "blobs", "digits", "wine")
CLASSIFIERS = ("lr", "mlp", "node")

Row = dict[str, str | int | float]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which cases a benchmark runs.

    Attributes:
        datasets: Names of the catalogue.
        classifiers: ``lr``, ``mlp``, ``node``.
        folds: Of the paper's five.
        seed: Of the models that are trained.
        rows: Most test rows of each case; none means all.
    """

    datasets: tuple[str, ...] = PAPER_DATASETS
    classifiers: tuple[str, ...] = ("lr",)
    folds: tuple[int, ...] = (0,)
    seed: int = 0
    rows: int | None = None

    def __post_init__(self) -> None:
        wrong = [name for name in self.classifiers if name not in CLASSIFIERS]
        if wrong:
            raise InvalidInputError(
                f"Classifiers {wrong} are not known; choose from {', '.join(CLASSIFIERS)}."
            )
        for name in self.datasets:
            check_name(name)
        beyond = [fold for fold in self.folds if fold not in range(N_FOLDS)]
        if beyond:
            raise InvalidInputError(f"Folds must be 0 to {N_FOLDS - 1}; got {', '.join(map(str, beyond))}.")
        if self.rows is not None and self.rows < 1:
            raise InvalidInputError(f"`rows` must be at least 1; got {self.rows}.")

    def cases(self) -> Iterator[tuple[str, str, int]]:
        """Every data set, classifier and fold."""
        for dataset in self.datasets:
            for fold in self.folds:
                for classifier in self.classifiers:
                    yield dataset, classifier, fold

    def few(self, x: Tensor) -> Tensor:
        """The first ``rows`` rows."""
        return x if self.rows is None else x[: self.rows]

    def run(self, case: Callable[[str, str, int], Iterator[Row]]) -> Iterator[Row]:
        """The rows of every data set, classifier and fold; each says of which it is, and where it was run."""
        for dataset, classifier, fold in self.cases():
            named: Row = {"dataset": dataset, "classifier": classifier, "fold": fold}
            for row in case(dataset, classifier, fold):
                yield named | row | {"seed": self.seed} | environment()


@lru_cache(maxsize=8)
def fold_of(dataset: str, fold: int) -> Fold:
    """A fold of the catalogue, read once."""
    return load(dataset).fold(fold)


@cache
def fitted_classifier(dataset: str, kind: str, fold: int, seed: int) -> NetworkClassifier:
    """Our own classifier for a fold, trained once."""
    data = fold_of(dataset, fold)
    classes: dict[str, type[NetworkClassifier]] = {"lr": LinearClassifier, "mlp": MLPClassifier, "node": NODE}
    return classes[kind](seed=seed).fit(data.x_train, data.y_train)


@cache
def fitted_plausibility(dataset: str, fold: int, seed: int) -> Thresholded:
    """Our own flow for a fold, with the median of each class as threshold, trained once."""
    data = fold_of(dataset, fold)
    flow = ConditionalFlow(seed=seed).fit(data.x_train, data.y_train)
    return Thresholded(density=flow).fit(data.x_train, data.y_train)


def target_policy(n_classes: int) -> Policy:
    """What our own studies ask for: the other class, or the most probable other one."""
    return "opposite" if n_classes == 2 else "runner_up"


def summary(found: Counterfactuals) -> Row:
    """The measures every study reports: over the rows found, under the class asked for."""
    kept = found[found.found]
    share = found.found.double().mean()
    return {
        "rows": len(found),
        "coverage": float(share),
        "validity": float(kept.valid.double().mean()),
        "plausibility": float(kept.plausible.double().mean()),
        "feasible": float(found.feasible.double().mean()),
        "l1": float(l1_distance(kept.x_cf.double(), kept.x.double()).mean()),
        "l2": float(l2_distance(kept.x_cf.double(), kept.x.double()).mean()),
        "log_density": float(kept.log_prob.mean()),
        "out_of_box": float(out_of_box(kept).double().mean()),
        "gradients": float(found.gradients.double().mean()),
        "cpu_seconds": float(found.cpu_seconds.sum()),
        "wall_seconds": float(found.seconds.sum()),
    }


def closeness(found: Counterfactuals, penalty: Counterfactuals) -> Row:
    """Distances on the rows where ``penalty`` is feasible.

    Both means, and how often ``found`` is over 1 % farther or has nothing.
    """
    own = l2_distance(found.x_cf.double(), found.x.double())
    theirs = l2_distance(penalty.x_cf.double(), penalty.x.double())
    farther = ~(found.feasible & (own <= 1.01 * theirs))
    both = penalty.feasible & found.feasible
    return {
        "l2_common": float(own[both].mean()),
        "l2_common_penalty": float(theirs[both].mean()),
        "farther": float(farther[penalty.feasible].double().mean()),
        "farther_in_box": float(farther[penalty.feasible & ~out_of_box(penalty)].double().mean()),
    }


def out_of_box(found: Counterfactuals) -> Tensor:
    """Which counterfactuals leave [0, 1], or the row's own value where that is outside, shape ``(n,)``."""
    below = found.x_cf < found.x.clamp_max(0.0) - 1e-6
    above = found.x_cf > found.x.clamp_min(1.0) + 1e-6
    return (below | above).any(dim=1)


@cache
def environment() -> Row:
    """Where a row comes from: the commit and the versions that ran.

    The variable ``PLAUSIFLOW_COMMIT`` names the commit of a copy that git knows nothing of.
    """
    commit = os.environ.get("PLAUSIFLOW_COMMIT", "") or _commit()
    return {
        "commit": commit,
        "plausiflow": __version__,
        "torch": torch.__version__.split("+")[0],
    }


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def write_json(rows: Sequence[Row], path: Path) -> None:
    """The rows as a list of flat objects; a number that is not one is written as null."""
    plain = [
        {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
        for row in rows
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(plain, indent=1) + "\n")


def read_json(*paths: Path) -> list[Row]:
    """The rows that :func:`write_json` wrote; null becomes not a number."""
    rows = [row for path in paths for row in json.loads(path.read_text())]
    return [{k: float("nan") if v is None else v for k, v in row.items()} for row in rows]


class CpuTimer:
    """``with CpuTimer() as timer: ...`` measures processor seconds in ``timer.seconds``."""

    seconds = 0.0

    def __enter__(self) -> CpuTimer:
        self._start = time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.process_time() - self._start


def geometric_mean(values: Iterable[float]) -> float:
    """The geometric mean of positive numbers; not a number if there are none."""
    logs = torch.tensor(
        [value for value in values if value == value and value > 0], dtype=torch.float64
    ).log()
    return float(logs.mean().exp())
