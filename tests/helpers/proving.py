"""Small tables whose changed rows can all be listed, and random models and rules for them."""

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import plausiflow as pf
from plausiflow.constraints import CompiledRules, GridStep, NeverTogether
from plausiflow.core import TargetCriterion, Targets
from plausiflow.exact import Answer, Prover, model_space
from plausiflow.models import BlackBox, Decision, EncodedModel, convert_classifier, convert_regressor
from plausiflow.models.decision import find_decision
from plausiflow.models.predictor import make_predictor
from plausiflow.search import CostModel, absolute_deviations
from plausiflow.tables import Encoder, Schema

LEVELS = ("clerk", "cook", "nurse")
GRADES = ("low", "middle", "high")


def small_table(
    rng: np.random.Generator, n: int = 90, *, missing: bool = False, native: bool = False
) -> pd.DataFrame:
    """Rows of six features: integers, a special value, half steps, categories with and without an order."""
    frame = pd.DataFrame(
        {
            "age": rng.choice([20, 21, 22, 23, 24, 25, 26, 28, 30, 31, 33, 35], n),
            "days": np.where(rng.random(n) < 0.2, -1, rng.integers(0, 11, n)),
            "amount": rng.integers(2, 14, n) * 0.5,
            "job": rng.choice(LEVELS, n),
            "grade": pd.Categorical(rng.choice(GRADES, n), GRADES, ordered=True),
            "owner": rng.random(n) < 0.5,
        }
    )
    if native:
        frame["job"] = frame["job"].astype("category")
    if missing:
        frame["amount"] = frame["amount"].where(rng.random(n) > 0.15)
        frame["job"] = frame["job"].where(rng.random(n) > 0.15)
    return frame


def scores(rng: np.random.Generator, frame: pd.DataFrame) -> np.ndarray:
    """A random score of rows, with noise."""
    effect = dict(zip(LEVELS, rng.normal(size=3), strict=True))
    total = rng.normal() * frame["age"] / 6 + rng.normal() * frame["days"] / 5
    total = total + rng.normal() * frame["amount"].fillna(4.0) / 3 + frame["job"].map(effect).fillna(0.0)
    total = total + rng.normal() * frame["grade"].cat.codes + rng.normal() * frame["owner"]
    return np.asarray(total + rng.normal(0, 0.4, len(frame)), dtype=np.float64)


def _boosters(seed: int, regression: bool) -> dict:
    from catboost import CatBoostClassifier, CatBoostRegressor
    from lightgbm import LGBMClassifier, LGBMRegressor
    from xgboost import XGBClassifier, XGBRegressor

    kinds = {
        "xgboost": (XGBClassifier, XGBRegressor),
        "lightgbm": (LGBMClassifier, LGBMRegressor),
        "catboost": (CatBoostClassifier, CatBoostRegressor),
    }
    settings = {
        "xgboost": {"n_estimators": 12, "max_depth": 3, "n_jobs": 1, "random_state": seed},
        "lightgbm": {"n_estimators": 12, "num_leaves": 6, "n_jobs": 1, "verbose": -1, "min_child_samples": 5},
        "catboost": {"iterations": 12, "depth": 3, "silent": True, "thread_count": 1}
        | {"allow_writing_files": False},
    }
    return {name: kinds[name][regression](**own) for name, own in settings.items()}


def estimator(kind: str, seed: int, *, regression: bool = False) -> object:
    """A small model of one kind."""
    if kind in ("xgboost", "lightgbm", "catboost"):
        return _boosters(seed, regression)[kind]
    classes = {
        "hist": (HistGradientBoostingClassifier, HistGradientBoostingRegressor),
        "gradient": (GradientBoostingClassifier, GradientBoostingRegressor),
        "forest": (RandomForestClassifier, RandomForestRegressor),
        "extra": (ExtraTreesClassifier, ExtraTreesRegressor),
    }
    if kind in SMOOTH:
        return _smooth(kind, seed, regression)
    size = {"max_iter": 12, "max_leaf_nodes": 6, "early_stopping": False} if kind == "hist" else {}
    size = size or {"n_estimators": 12, "max_depth": 3}
    return classes[kind][regression](random_state=seed, **size)


SMOOTH = ("linear", "network")
_CONVERTED = ("LogisticRegression", "Ridge", "MLPClassifier", "MLPRegressor")


def _smooth(kind: str, seed: int, regression: bool) -> object:
    """A linear model or a small network."""
    if kind == "linear":
        return Ridge() if regression else LogisticRegression(max_iter=500)
    settings = {"hidden_layer_sizes": (5, 4) if seed % 2 else (6,), "random_state": seed, "solver": "lbfgs"}
    return (MLPRegressor if regression else MLPClassifier)(max_iter=60, **settings)


KINDS = ("hist", "gradient", "forest", "extra", "xgboost", "lightgbm", "catboost")


def pipeline(model: object, *, scaled: bool = False) -> object:
    """The model behind one-hot categories, and numbers as they are or scaled."""
    numbers = ["age", "days", "amount", "owner"]
    numeric = StandardScaler() if scaled else "passthrough"
    if type(model).__name__ in _CONVERTED:  # they take no missing values
        numeric = make_pipeline(SimpleImputer(), StandardScaler())
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    return make_pipeline(make_column_transformer((numeric, numbers), (encoder, ["job", "grade"])), model)


def _table_model(fitted, encoder: Encoder, frame: pd.DataFrame, labels: tuple | None) -> object:
    """A model of the table: converted exactly if it is not made of trees."""
    predictor, decision = find_decision(fitted, make_predictor(fitted, frame, labels), frame)
    if isinstance(fitted, Pipeline) and type(fitted[-1]).__name__ in _CONVERTED:
        convert = convert_regressor if labels is None else convert_classifier
        own = Decision(cutoffs=decision.cutoffs)
        return EncodedModel(convert(fitted, encoder, frame), labels or (), decision=own, encoder=encoder)
    return BlackBox(predictor, None, encoder, frame.iloc[:1], decision=decision)


class Native:
    """A model that gets categories as such, and no preprocessing."""

    def __init__(self, model: object) -> None:
        self.model = model

    def fit(self, frame: pd.DataFrame, y: np.ndarray) -> object:
        """Fit the model itself on rows with categories."""
        return self.model.fit(frame, y)


def native(kind: str, seed: int, *, regression: bool = False) -> Native:
    """A booster that splits categories by sets of levels."""
    model = estimator(kind, seed, regression=regression)
    if kind == "hist":
        model.set_params(categorical_features="from_dtype", min_samples_leaf=5)
    if kind == "xgboost":
        model.set_params(enable_categorical=True, max_cat_to_onehot=1)
    if kind == "lightgbm":
        model.set_params(min_data_per_group=3, cat_smooth=1.0, cat_l2=0.1, max_cat_to_onehot=1)
    if kind == "catboost":
        model.set_params(cat_features=["job", "grade"], one_hot_max_size=10)
    return Native(model)


@dataclass
class SmallCase:
    """A fitted model of a small table, and everything that a proof needs."""

    frame: pd.DataFrame
    encoder: Encoder
    model: object
    rules: CompiledRules
    costs: CostModel
    criterion: TargetCriterion
    prover: Prover

    @classmethod
    def of(cls, model, frame, y, rules=(), *, distance="l2", weights=None, margin=0.02) -> "SmallCase":
        """Fit a model and read its trees."""
        fitted = model.fit(frame, y)
        encoder = Encoder(Schema.infer(frame, special={"days": [-1]}))
        x = encoder.encode(frame).x
        labels = tuple(np.unique(y).tolist()) if hasattr(fitted, "predict_proba") else None
        table_model = _table_model(fitted, encoder, frame, labels)
        compiled = CompiledRules(list(rules), encoder.schema, encoder.layout)
        costs = CostModel(
            layout=encoder.layout,
            weights=torch.ones(len(encoder.layout.blocks)) if weights is None else weights,
            distance=distance,
            deviations=absolute_deviations(encoder.layout, x),
            prices=compiled.prices,
        )
        if table_model.labels:
            criterion = TargetCriterion(margin, cutoffs=table_model.decision.cutoffs)
        else:
            criterion = TargetCriterion(0.0, edges=(-math.inf, 0.0, math.inf))
        prover = Prover(model_space(table_model, compiled.layout), costs, criterion)
        return cls(frame, encoder, table_model, compiled, costs, criterion, prover)

    def with_rules(self, rules: list) -> "SmallCase":
        """Return the same model with other rules, on the same grids."""
        compiled = CompiledRules(rules, self.encoder.schema, self.encoder.layout)
        costs = replace(self.costs, prices=compiled.prices)
        return replace(self, rules=compiled, costs=costs, prover=replace(self.prover, costs=costs))

    def accepts(self, row: pd.DataFrame, changed: pd.DataFrame, targets: Targets) -> np.ndarray:
        """Return which changed rows model and rules accept, asked themselves."""
        count = len(changed)
        before = row.iloc[[0] * count].set_axis(changed.index)
        broken = self.rules.violations(before, changed).to_numpy().any(axis=1)
        encoded = self.encoder.encode(changed)
        outputs = self.model.predict_outputs(encoded.x, changed)
        repeated = targets[torch.zeros(count, dtype=torch.long)]
        decided = self.model.decide(outputs, encoded.x, changed) if self.model.labels else None
        met = self.criterion.met(outputs, repeated, decided) & (self.criterion.value(outputs, repeated) >= 0)
        return encoded.usable & ~broken & met.numpy()

    def prove(self, row: pd.DataFrame, targets: Targets, seconds: float = 20.0, **options):
        """Return the proof of one row."""
        encoded = self.encoder.encode(row)
        allowance = self.rules.for_rows(encoded.x, row)

        def confirm(x_cf: torch.Tensor) -> Answer:
            decoded = self.encoder.decode(x_cf, like=row, encoded=encoded.x)
            if self.accepts(row, decoded, targets)[0]:
                return "accepted"
            broken = self.rules.violations(row, decoded).to_numpy().any()
            usable = self.encoder.encode(decoded).usable[0]
            return "not allowed" if broken or not usable else "another outcome"

        return self.prover.prove(row, allowance, targets, confirm, seconds, **options)

    def cheapest(self, row: pd.DataFrame, targets: Targets) -> float:
        """Return the cost of the cheapest accepted row of all, by listing them."""
        changed = self.all_changes(row)
        fine = self.accepts(row, changed, targets)
        if not fine.any():
            return math.inf
        layout, x = self.encoder.layout, self.encoder.encode(row).x
        after = self.encoder.encode(changed[fine]).x
        before = x.expand(len(after), -1)
        return float(self.costs((before, layout.codes(before)), (after, layout.codes(after))).min())

    def all_changes(self, row: pd.DataFrame) -> pd.DataFrame:
        """Return every row that the table's grids and levels allow."""
        own = row.iloc[0]
        values = {
            "age": range(int(self.frame["age"].min()), max(int(self.frame["age"].max()), own["age"]) + 1),
            "days": range(-1, int(self.frame["days"].max()) + 1),
            "amount": np.arange(self.frame["amount"].min(), self.frame["amount"].max() + 0.25, 0.5),
            "job": LEVELS,
            "grade": GRADES,
            "owner": (False, True),
        }
        lists = [[own[n]] if pd.isna(own[n]) else [*dict.fromkeys([*v, own[n]])] for n, v in values.items()]
        fixed = set(self.rules.immutable)
        values = {name: self._in_range(name, list(v)) for name, v in values.items()}
        lists = [[own[n]] if n in fixed else own_list for n, own_list in zip(values, lists, strict=True)]
        columns = zip(*itertools.product(*lists), strict=True)
        table = {
            name: pd.Series(list(column)).astype(row[name].dtype)
            for name, column in zip(values, columns, strict=True)
        }
        return pd.DataFrame(table)[list(row.columns)]

    def _in_range(self, name: str, values: list) -> list:
        """Leave out what a rule forbids for every row, to list fewer rows."""
        for rule in self.rules.constraints:
            if isinstance(rule, pf.Range) and rule.feature == name:
                values = [value for value in values if rule.bounds[0] <= value <= rule.bounds[1]]
        return values


def class_target(case: SmallCase, row: pd.DataFrame, min_probability: float | None = None) -> Targets:
    """The class that the row is least likely to get."""
    outputs = case.model.predict_outputs(case.encoder.encode(row).x, row)
    least = None if min_probability is None else torch.tensor([min_probability])
    return Targets(outputs.argmin(dim=1), least)


def random_rules(rng: np.random.Generator) -> list:
    """A few rules, drawn at random."""
    pool = [
        pf.Immutable("age"),
        pf.Immutable("job", "owner"),
        pf.Increasing("age"),
        pf.Decreasing("amount"),
        pf.Increasing("grade"),
        pf.Range("days", 0, 8),
        pf.Range("amount", 2.0, None),
        pf.Allowed("job", ["cook", "nurse"]),
        pf.Allowed("job", {"clerk": ["cook"]}),
        pf.MaxChanges(2),
        pf.MaxChanges(1),
        pf.Linear("amount <= 0.2 * age"),
        pf.Linear("days + amount <= 14"),
        pf.Implies('job == "cook"', "amount >= 3"),
        pf.Implies("owner == True", 'grade != "low"'),
        pf.Implies("days == -1", "amount <= 4"),
        pf.WhenChanged("job", pf.Range("days", 0, 3)),
        NeverTogether((("job", "nurse", "grade", "high"),)),
        GridStep("age", 2),
        pf.Price("job", {("clerk", "cook"): 0.2, ("cook", "nurse"): 3.0}),
    ]
    chosen = rng.choice(len(pool), size=int(rng.integers(0, 4)), replace=False)
    return [pool[i] for i in chosen]
