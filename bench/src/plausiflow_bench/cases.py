"""What the studies of mixed tables share: tables with an explainer fitted to them once, and pages.

A case is a table of the catalogue, split as in the study, an explainer with the rules that hold in the table,
and the test rows that are asked about, each wanted to be decided otherwise.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from plausiflow.constraints import Immutable, Increasing, Rule
from plausiflow.datasets import Table, load_table, table_names
from plausiflow.densities import PlausibilityWarning
from plausiflow.errors import InvalidInputError
from plausiflow.explainer import Explainer
from plausiflow.models import EncodedModel, MLPClassifier
from plausiflow.search import Engine, target_classes
from plausiflow.tables import Encoder
from plausiflow_bench.study import Row, environment

STUDIED = ("german_credit", "adult", "law", "loans")
CLOSE = "<!-- end -->"


@dataclass(frozen=True, kw_only=True)
class TableSelection:
    """Which tables a study runs on.

    Attributes:
        tables: Names that ``load_table`` knows.
        rows: Most test rows of each; none means those of the study.
        train: Most training rows of each, likewise.
        seed: Of everything that is trained.
    """

    tables: tuple[str, ...] = STUDIED
    rows: int | None = None
    train: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        known = table_names()
        problems = [
            f"{name!r} is no table; choose from {', '.join(known)}"
            for name in self.tables
            if name not in known
        ]
        problems += [
            f"`{name}` must be at least 1; got {count}"
            for name, count in (("rows", self.rows), ("train", self.train))
            if count is not None and count < 1
        ]
        if problems:
            raise InvalidInputError("; ".join(problems) + ".")

    def case(self, name: str, *, judges: int = 3) -> Case:
        """A table with the explainer that is fitted to it, once."""
        case = fitted(name, self.train, self.seed, judges)
        return case if self.rows is None else case.few(self.rows)


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """A table, an explainer fitted to its training rows, and the test rows that are asked about.

    Attributes:
        train: Training rows.
        test: Test rows.
        explainer: Fitted.
        fit_cpu_seconds: Processor seconds of the explainer's ``fit``, worker processes included.
    """

    train: Table
    test: Table
    explainer: Explainer
    fit_cpu_seconds: float

    def few(self, rows: int) -> Case:
        """Only the first test rows."""
        return replace(self, test=_first(self.test, rows))

    @property
    def encoder(self) -> Encoder:
        """Of the table's rows."""
        assert self.explainer.encoder_ is not None
        return self.explainer.encoder_

    @property
    def model(self) -> EncodedModel:
        """What decides."""
        assert isinstance(self.explainer.model_, EncodedModel)
        return self.explainer.model_

    @property
    def finder(self) -> Engine:
        """What searches."""
        assert self.explainer.engine_ is not None
        return self.explainer.engine_

    @cached_property
    def x(self) -> Tensor:
        """The test rows, encoded."""
        return self.encoder.encode(self.test.x).x

    @cached_property
    def usable(self) -> Tensor:
        """Positions of the test rows that can be explained."""
        return torch.from_numpy(np.flatnonzero(self.encoder.encode(self.test.x).usable))

    @cached_property
    def y_target(self) -> Tensor:
        """The wanted classes of the test rows: the opposite of what the model decides."""
        return target_classes("opposite", self.model.answers(self.x).exp(), self.model.labels, len(self.x))

    def decided(self, x: Tensor) -> Tensor:
        """What the model decides for encoded rows, shape ``(n,)``."""
        return self.model.answers(x).argmax(dim=1)

    def classes(self, labels: pd.Series) -> Tensor:
        """The numbers of some labels, as the model counts them."""
        return torch.tensor([self.model.labels.index(label) for label in labels.tolist()])

    def identified(self, row: Row, seed: int) -> Row:
        """A row with what was run, on what, and with which code."""
        own = self.usable.numpy()
        right = self.decided(self.x[self.usable]) == self.classes(self.test.y.iloc[own])
        named: Row = {"dataset": self.test.name, "method": row["method"], "rows": len(self.test.x)}
        named["accuracy"] = mean(right)
        return named | row | {"training_rows": len(self.train.x), "seed": seed} | environment()


@lru_cache(maxsize=8)
def fitted(name: str, train: int | None, seed: int, judges: int) -> Case:
    """A table of the study, split, and an explainer fitted to its training part."""
    own, test = load_table(name).study_split()
    own = own if train is None else _first(own, train)
    explainer = Explainer(
        MLPClassifier(hidden=(64, 64), seed=seed),
        constraints=rules_of(own),
        orders=own.orders,
        judges=judges,
        random_state=seed,
    )
    before = os.times()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlausibilityWarning)  # the table shows what is reached
        explainer.fit(own.x, own.y)
    seconds = sum(after - start for after, start in zip(os.times()[:4], before[:4], strict=True))
    return Case(train=own, test=test, explainer=explainer, fit_cpu_seconds=seconds)


def rules_of(table: Table) -> list[Rule]:
    """What nobody can change, and what may only rise."""
    rules: list[Rule] = [Immutable(*table.immutable)] if table.immutable else []
    return [*rules, *(Increasing(name) for name in table.increasing)]


def mean(values: Tensor) -> float:
    """Of booleans or numbers; not a number where there are none."""
    return float(values.double().mean())


def what_ran(rows: list[Row]) -> str:
    """Sizes, seeds and commits behind a table."""
    sizes = {f"{row['dataset']} {row['training_rows']}": None for row in rows}
    ran = {name: sorted({str(row[name]) for row in rows}) for name in ("seed", "commit")}
    said = "; ".join(f"{name} {', '.join(values)}" for name, values in ran.items())
    return f"Training rows: {', '.join(sizes)}; {said}."


def write_section(path: Path, mark: str, text: str) -> None:
    """Put a text between a mark of a page and the end mark after it; the rest of the page stays."""
    before, found, rest = path.read_text().partition(mark)
    _, closed, after = rest.partition(CLOSE)
    if not (found and closed):
        raise InvalidInputError(
            f"{path} must have the marks {mark!r} and, after it, {CLOSE!r}; one is not there. Put them where "
            "the table belongs."
        )
    path.write_text(f"{before}{mark}\n{text}\n{CLOSE}{after}")


def kept_section(path: Path, mark: str) -> str:
    """A section of a page, with its marks, empty where the page or the section is not there."""
    _, found, rest = (path.read_text() if path.exists() else "").partition(mark)
    text = rest.partition(CLOSE)[0].strip() if found else ""
    return f"{mark}\n{text}\n{CLOSE}"


def _first(table: Table, count: int) -> Table:
    return replace(table, x=table.x.iloc[:count], y=table.y.iloc[:count])
