"""Shared by the tests of black boxes: a table, its outcomes, and models to explain."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC

from plausiflow import Explainer, Immutable, Increasing, Linear, MaxChanges, Range
from searching import ORDERS, applicants

TREES = 25
SETTINGS = {"confidence": None, "judges": 0, "plausibility": 0.1, "max_extra_cost": 0.0}
RULES = [
    Immutable("age"),
    Increasing("income"),
    Range("savings", 0.5, None),
    Linear("debt <= income"),
]


def people(n=240, seed=0):
    """Numbers on grids and off them; debts do not exceed incomes."""
    draw = np.random.default_rng(seed)
    income = draw.integers(10, 80, n)
    return pd.DataFrame(
        {
            "age": draw.integers(20, 70, n),
            "income": income * 100,
            "debt": (income * draw.random(n)).astype(np.int64) * 100,
            "savings": draw.uniform(0.5, 9, n),
        }
    )


def score(frame):
    return frame["income"] / 8000 + frame["savings"] / 9 - frame["debt"] / 16000


def outcomes(frame, no="no", yes="yes"):
    return np.where(score(frame) > 0.85, yes, no)


@dataclass(eq=False)
class Case:
    """A model, and what is explained of it.

    Attributes:
        model: As the explainer is given it.
        frame: Training rows.
        y: Their outcomes.
        decide: What the model decides for rows of the table, asked by hand.
        description: Part of the description of the resolved model.
        target: What is asked for.
        rules: What may change.
        orders: Of categories.
        max_extra_cost: How much more fewer changes may cost.
        asked: Rows that are explained.
    """

    model: Any
    frame: pd.DataFrame
    y: Any
    decide: Callable[[pd.DataFrame], np.ndarray]
    description: str = "a surrogate of 25 trees"
    target: Any = "opposite"
    rules: Any = tuple(RULES)
    orders: Any = None
    max_extra_cost: float = 0.0
    asked: int = 6

    @cached_property
    def explainer(self):
        settings = {"constraints": self.rules, "orders": self.orders, "max_extra_cost": self.max_extra_cost}
        return Explainer(self.model, **SETTINGS | settings).fit(self.frame, self.y)

    @property
    def rows(self):
        return self.frame[: self.asked]

    @cached_property
    def result(self):
        return self.explainer.explain(self.rows, self.target)


def fitted(model, frame=None, y=None, **settings):
    frame = people() if frame is None else frame
    y = outcomes(frame) if y is None else y
    model = model.fit(frame, y)

    def decide(rows):
        return np.asarray(model.predict(rows)).ravel() if len(rows) else np.zeros(0)

    return Case(model, frame, y, decide, **settings)


def forest():
    return fitted(
        RandomForestClassifier(15, random_state=0), rules=(*RULES, MaxChanges(3)), max_extra_cost=0.1
    )


def boosting():
    frame = people()
    draw = np.random.default_rng(5)
    frame.loc[draw.random(len(frame)) < 0.15, "savings"] = np.nan
    y = outcomes(frame.fillna({"savings": 3.0}), no=False, yes=True)
    model = HistGradientBoostingClassifier(max_iter=15)
    return fitted(model, frame, y, description="its own 15 trees with soft splits")


def xgboost():
    library = pytest.importorskip("xgboost")
    frame = people()
    y = outcomes(frame, no=0, yes=1)
    model = library.XGBClassifier(n_estimators=15, n_jobs=1)
    return fitted(model, frame, y, description="its own 15 trees with soft splits")


def lightgbm():
    library = pytest.importorskip("lightgbm")
    model = library.LGBMClassifier(n_estimators=15, verbose=-1, n_jobs=1)
    return fitted(model, description="its own 15 trees with soft splits")


def catboost():
    library = pytest.importorskip("catboost")
    model = library.CatBoostClassifier(
        iterations=15, depth=3, verbose=False, allow_writing_files=False, thread_count=1
    )
    return fitted(model, description="its own 15 trees with soft splits")


def support_vectors():
    frame = people()
    y = outcomes(frame, no=1, yes=2)
    return fitted(scaled(SVC()), frame, y, description="which returns scores, without gradients")


def scaled(model):
    return make_pipeline(StandardScaler(), model)


def neighbours():
    return fitted(scaled(KNeighborsClassifier(5)), description="which returns probabilities")


def probabilities(frame):
    return 1 / (1 + np.exp(-12 * (score(frame) - 0.85)))


def labels_only(frame):
    return np.where(score(frame) + 0.2 * np.sin(9 * frame["savings"]) > 0.85, "yes", "no")


def function():
    frame = people()
    says = "a function `probabilities`, which returns probabilities"
    decide = lambda rows: np.where(probabilities(rows) > 0.5, "yes", "no")  # noqa: E731
    return Case(probabilities, frame, outcomes(frame), decide, description=says)


def labelling():
    frame = people()
    says = "a function `labels_only`, which returns labels"
    return Case(labels_only, frame, labels_only(frame), labels_only, description=says)


def three_classes():
    frame = people()
    y = np.digitize(score(frame), [0.7, 1.0])
    model = RandomForestClassifier(15, random_state=0)
    rules = (Immutable("age"),)
    return fitted(
        model, frame, y, target="runner_up", description="a surrogate of 75 trees", rules=rules, asked=5
    )


MIXED_RULES = (Immutable("age"), Increasing("school"), Range("income", 800, 7500), MaxChanges(3))


def mixed_table():
    frame = applicants(260, missing=True)
    worth = frame["income"] / 8000 + frame["savings"] / 9 + 0.3 * (frame["job"] == "nurse")
    worth += 0.2 * frame["owns"] + 0.1 * frame["school"].map(ORDERS["school"].index)
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["job", "school"]), remainder="passthrough"
    )
    model = make_pipeline(columns, RandomForestClassifier(15, random_state=0))
    y = np.where(worth > worth.median(), "yes", "no")
    return fitted(model, frame, y, rules=MIXED_RULES, orders=ORDERS, max_extra_cost=0.1)


CASES = {
    make.__name__: make
    for make in (
        forest,
        boosting,
        xgboost,
        lightgbm,
        catboost,
        support_vectors,
        neighbours,
        function,
        labelling,
        three_classes,
        mixed_table,
    )
}
