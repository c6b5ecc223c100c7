"""Cases of the studies on mixed tables: a table, a fitted explainer, and the test rows that are explained.

The explainer has the rules that hold in the table. The target of each test row is the opposite decision, or
any other one if there are more than two.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Self

import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_breast_cancer, load_wine
from torch import Tensor

from plausiflow.constraints import CompiledRules, Immutable, Increasing, Rule
from plausiflow.core import Plausibility
from plausiflow.datasets import Table, load_table, table_names
from plausiflow.densities import ContextThreshold, Judges, MixedDensity, OneCycle
from plausiflow.errors import InvalidInputError
from plausiflow.explainer import Explainer
from plausiflow.models import EncodedModel, MLPClassifier
from plausiflow.search import (
    Engine,
    FitSettings,
    TrainingRows,
    learn_plausibility,
    monotone_features,
    target_classes,
)
from plausiflow.tables import Encoder
from plausiflow_bench.harness.rows import Row, cpu_seconds, environment
from plausiflow_bench.harness.selection import ignore_plausibility_warnings

DEFAULT_TABLES = ("german_credit", "adult", "law", "loans")
SCIKIT_LEARN = {"wine": load_wine, "breast_cancer": load_breast_cancer}
"""Tables of scikit-learn, which are not in the catalogue."""


@dataclass(frozen=True, kw_only=True)
class TableSelection:
    """The tables of a study.

    Attributes:
        tables: Names of tables in the catalogue.
        rows: The maximum number of test rows per table. None means those of the table's study split.
        train: The maximum number of training rows per table. None means those of the table's study split.
        seed: Seed of everything that is trained.
    """

    tables: tuple[str, ...] = DEFAULT_TABLES
    rows: int | None = None
    train: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        known = self.known_tables()
        problems = [
            f"Unknown table {name!r}; choose from {', '.join(known)}"
            for name in self.tables
            if name not in known
        ]
        problems += [
            f"`{name}` must be at least 1; got {count}"
            for name, count in (("rows", self.rows), ("train", self.train))
            if count is not None and count < 1
        ]
        if problems:
            raise InvalidInputError(". ".join(problems) + ".")

    @staticmethod
    def known_tables() -> tuple[str, ...]:
        """Return the names of the tables that the study can use."""
        return tuple(table_names())

    def case(self, name: str, *, judges: int = 3) -> Case:
        """Return a table with an explainer fitted to it. The explainer is cached."""
        case = fit_case(name, self.train, self.seed, judges)
        return case if self.rows is None else case.first_rows(self.rows)


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """A table with a fitted explainer.

    Attributes:
        train: Training rows.
        test: Test rows, which are explained.
        explainer: The fitted explainer.
        fit_cpu_seconds: Processor seconds of the explainer's ``fit``, worker processes included.
    """

    train: Table
    test: Table
    explainer: Explainer
    fit_cpu_seconds: float

    @classmethod
    def fit(cls, explainer: Explainer, train: Table, test: Table, earlier_cpu_seconds: float = 0.0) -> Self:
        """Fit an explainer to training rows; ``earlier_cpu_seconds`` are added to those of the fit."""
        before = cpu_seconds()
        with ignore_plausibility_warnings():
            explainer.fit(train.x, train.y)
        seconds = earlier_cpu_seconds + cpu_seconds() - before
        return cls(train=train, test=test, explainer=explainer, fit_cpu_seconds=seconds)

    def first_rows(self, rows: int) -> Case:
        """Return the case with the first test rows only."""
        return replace(self, test=first_rows(self.test, rows))

    @property
    def encoder(self) -> Encoder:
        """The encoder of the table's rows."""
        assert self.explainer.encoder_ is not None
        return self.explainer.encoder_

    @property
    def model(self) -> EncodedModel:
        """The model that is explained."""
        assert isinstance(self.explainer.model_, EncodedModel)
        return self.explainer.model_

    @property
    def engine(self) -> Engine:
        """The search engine of the explainer."""
        assert self.explainer.engine_ is not None
        return self.explainer.engine_

    @cached_property
    def x(self) -> Tensor:
        """The encoded test rows, shape ``(n, width)``."""
        return self.encoder.encode(self.test.x).x

    @cached_property
    def usable(self) -> Tensor:
        """Positions of the test rows that can be explained."""
        return torch.from_numpy(np.flatnonzero(self.encoder.encode(self.test.x).usable))

    @property
    def target(self) -> str:
        """The target of the test rows: the opposite decision, or any other one of more than two."""
        return "opposite" if len(self.model.labels) == 2 else "other"

    @cached_property
    def y_target(self) -> Tensor:
        """One target class of each test row: the most probable one that the model does not decide for."""
        return target_classes("runner_up", self.model.predict_outputs(self.x), self.model.labels)

    def predict(self, x: Tensor) -> Tensor:
        """Return the model's decisions for encoded rows, shape ``(n,)``."""
        return self.model.predict_outputs(x).argmax(dim=1)

    def class_indices(self, labels: pd.Series) -> Tensor:
        """Return labels as class indices of the model."""
        assert self.explainer.model_ is not None
        known = self.explainer.model_.labels
        return torch.tensor([known.index(label) for label in labels.tolist()])

    def with_provenance(self, row: Row, seed: int) -> Row:
        """Return a row with the name of the table, sizes, accuracy, seed and versions added."""
        usable = self.usable.numpy()
        right = self.predict(self.x[self.usable]) == self.class_indices(self.test.y.iloc[usable])
        named: Row = {"dataset": self.test.name, "method": row["method"], "rows": len(self.test.x)}
        named["accuracy"] = mean(right)
        return named | row | {"training_rows": len(self.train.x), "seed": seed} | environment()


@lru_cache(maxsize=8)
def fit_case(name: str, train: int | None, seed: int, judges: int) -> Case:
    """Split a table and fit an explainer to its training rows. The result is cached."""
    train_table, test = study_table(name).study_split()
    train_table = first_rows(train_table, train)
    explainer = Explainer(
        MLPClassifier(hidden=(64, 64), random_state=seed),
        constraints=table_rules(train_table),
        orders=train_table.orders,
        judges=judges,
        random_state=seed,
    )
    return Case.fit(explainer, train_table, test)


def study_table(name: str) -> Table:
    """Return a table of the catalogue, or one of scikit-learn's with a fifth of its rows as test rows."""
    if name not in SCIKIT_LEARN:
        return load_table(name)
    data = SCIKIT_LEARN[name](as_frame=True)
    test = len(data.data) // 5
    return Table(
        name=name,
        x=data.data,
        y=data.target.map(lambda k: str(data.target_names[k])),
        target="class",
        provenance="scikit-learn",
        source="scikit-learn",
        study=(len(data.data) - test, test),
    )


def learn_default_plausibility(
    frame: pd.DataFrame,
    classes: Tensor,
    n_classes: int,
    encoder: Encoder,
    rules: CompiledRules,
    *,
    judges: int = Explainer.judges,
    seed: int,
) -> tuple[Plausibility, Judges | None]:
    """Learn what an explainer learns by default, without an explainer.

    Args:
        frame: Training rows.
        classes: Their classes, shape ``(n,)``.
        n_classes: The number of classes.
        encoder: Encoder of the table.
        rules: Rules of the explainer.
        judges: The number of judges.
        seed: Seed of everything that is trained.

    Returns:
        The plausibility, not calibrated, and the judges.
    """
    settings = FitSettings(
        plausibility=Explainer.plausibility,
        confidence=Explainer.confidence,
        max_extra_cost=Explainer.max_extra_cost,
        model_rows=Explainer.model_rows,
        judges=judges,
        random_state=seed,
    )
    rows = TrainingRows(frame=frame, x=encoder.encode(frame).x, classes=classes, n_classes=n_classes)
    return learn_plausibility(rows, rules=rules, encoder=encoder, settings=settings)


def fit_judges(
    case: Case,
    *,
    count: int = Judges.count,
    seed: int = Judges.random_state,
    training: OneCycle | None = None,
) -> Judges:
    """Return judges that know all training rows of a case and their labels.

    Args:
        case: The case; its density and its own judges are not used.
        count: The number of judges.
        seed: Seed of the first judge; the others count up.
        training: Settings of the training; None means those of :class:`~plausiflow.densities.Judges`.
    """
    rules, layout = case.engine.rules, case.encoder.layout
    rising, falling = monotone_features(rules)
    context = ContextThreshold.from_layout(layout, immutable=rules.immutable, rising=rising, falling=falling)
    base = MixedDensity.from_layout(layout, rules.immutable)
    judges = Judges(
        count=count, base=base, context=context, training=training or OneCycle(), random_state=seed
    )
    return judges.fit(case.encoder.encode(case.train.x).x.float(), case.class_indices(case.train.y))


def table_rules(table: Table) -> list[Rule]:
    """Return the rules of a table: immutable features, and features that may only increase."""
    rules: list[Rule] = [Immutable(*table.immutable)] if table.immutable else []
    return [*rules, *(Increasing(name) for name in table.increasing)]


def mean(values: Tensor) -> float:
    """Return the mean of booleans or numbers, or NaN for an empty tensor."""
    return float(values.double().mean())


def first_rows(table: Table, count: int | None) -> Table:
    """Return the first rows of a table; None means all."""
    return table if count is None else replace(table, x=table.x.iloc[:count], y=table.y.iloc[:count])
