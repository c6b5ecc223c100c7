"""Shared by the tests of the explainer: explainers in closed form, and rules as plain loops over cells."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
import torch
from torch import Tensor

from plausiflow.constraints import (
    Allowed,
    CompiledRules,
    Decreasing,
    Immutable,
    Increasing,
    Linear,
    MaxChanges,
    Range,
    Rule,
)
from plausiflow.core import TargetCriterion, ValidityConstraint
from plausiflow.errors import PlausiflowError
from plausiflow.explainer import Explainer
from plausiflow.models import EncodedModel, LinearClassifier
from plausiflow.persistence import TrainingSummary
from plausiflow.search.bank import Bank
from plausiflow.search.costs import CostModel, feature_weights
from plausiflow.search.engine import Engine
from plausiflow.search.mixed import MixedSearch
from plausiflow.tables.encoder import Encoder
from plausiflow.tables.schema import Schema

STATUSES = {"found", "already", "relaxed", "infeasible", "not_reached", "invalid_input"}
QUICK = MixedSearch(bank_rows=2, finalists=1)


@dataclass(frozen=True, eq=False)
class Ball:
    """Rows within a distance of a centre are plausible, in encoded units."""

    centre: Tensor
    radius: float

    def score(self, x: Tensor, y: Tensor) -> Tensor:
        """Shape ``(n,)``; keeps the graph."""
        return self.radius**2 - ((x - self.centre.to(x)) ** 2).sum(dim=1)


def stand_in(
    frame: pd.DataFrame,
    constraints: Sequence[Rule] = (),
    *,
    push: Mapping[str, float] | None = None,
    radius: float = 1e6,
    labels: Sequence[object] = ("no", "yes"),
    orders: Mapping[str, Sequence[object]] | None = None,
    missing: str = "keep",
    weights: Mapping[str, float] | None = None,
    strategy: MixedSearch = QUICK,
) -> Explainer:
    """Return an explainer as after ``fit``, with a given linear model and a ball instead of trained ones.

    Args:
        frame: Training rows.
        constraints: The rules.
        push: Weight of each feature towards "yes", in encoded units (for levels: from the first to the last);
            default 0. The decision boundary is half-way between the most extreme rows.
        radius: Radius of the ball around the mean row.
        labels: Labels of the two outcomes.
        orders: As for an explainer.
        missing: As for an explainer.
        weights: As for an explainer.
        strategy: How rows are searched.
    """
    explainer = Explainer(
        LinearClassifier(), constraints=constraints, confidence=None, judges=0, weights=weights
    )
    encoder = Encoder(Schema.infer(frame, orders=orders), missing)
    x = encoder.encode(frame).x
    weight = torch.zeros(encoder.layout.width, dtype=torch.float64)
    for block in encoder.layout.blocks:
        strength = (push or {}).get(block.name, 0.0)
        if block.number is not None:
            weight[block.number] = strength
        else:
            n = len(block.levels)
            weight[list(block.levels)] = strength * torch.arange(n, dtype=torch.float64) / (n - 1)
    decision = x @ weight
    bias = 0.0123 - (decision.min() + decision.max())[None] / 2  # no row on the boundary
    model = EncodedModel(LinearClassifier.from_weights(weight[None], bias), tuple(labels))
    validity, ball = ValidityConstraint(model.outputs, TargetCriterion()), Ball(x.mean(dim=0), radius)
    rows = {}
    for k in range(2):
        target = torch.full((len(x),), k)
        rows[k] = torch.unique(x[(validity(x, target) >= 0) & (ball.score(x, target) >= 0)], dim=0)
    explainer.encoder_, explainer.model_ = encoder, model
    classes = torch.zeros(len(x), dtype=torch.long)
    explainer.training_summary_ = TrainingSummary.from_table(frame, encoder, x, classes)
    explainer.engine_ = Engine(
        rules=CompiledRules(constraints, encoder.schema, encoder.layout),
        validity=validity,
        plausibility=ball,
        bank=Bank(rows, Bank.free_numbers(encoder.layout, x)),
        cost_model=CostModel(layout=encoder.layout, weights=feature_weights(weights, encoder.layout)),
        strategy=strategy,
    )
    return explainer


def same(before: object, after: object) -> bool:
    """Return whether two cells hold the same value; two missing values are the same."""
    return (pd.isna(before) and pd.isna(after)) or (not pd.isna(before) and before == after)


def broken(
    rule: Rule, before: pd.Series, after: pd.Series, orders: Mapping[str, Sequence[object]] = {}
) -> bool:
    """Return whether the change from one row to another breaks a rule, cell by cell."""

    def rank(name: str, value: object) -> float:
        if pd.isna(value):
            return math.nan
        return list(orders[name]).index(value) if name in orders else float(value)

    match rule:
        case Immutable(features=names):
            return not all(same(before[name], after[name]) for name in names)
        case Increasing(feature=name):
            return rank(name, after[name]) < rank(name, before[name])
        case Decreasing(feature=name):
            return rank(name, after[name]) > rank(name, before[name])
        case Range(feature=name, lo=lo, hi=hi):
            value = rank(name, after[name])
            return (lo is not None and value < lo) or (hi is not None and value > hi)
        case Allowed(feature=name, values=values, transitions=moves):
            listed = values if values is not None else dict(moves).get(before[name], ())
            return not same(before[name], after[name]) and after[name] not in listed
        case Linear(text=text):
            left, right = text.split("<=")  # the only operator in the tests
            cells = {name: rank(name, after[name]) for name in after.index if name in text}
            return eval(left, {}, cells) > eval(right, {}, cells) + 1e-9 * sum(map(abs, cells.values()))
        case MaxChanges(limit=limit):
            return sum(not same(before[name], after[name]) for name in before.index) > limit
    raise AssertionError(rule)


def cells(frame: pd.DataFrame, position: int) -> pd.Series:
    """Return one row with its cells as Python values."""
    return pd.Series({name: frame[name].iloc[position] for name in frame}, dtype=object)


def broken_rules(explainer: Explainer, result, orders: Mapping[str, Sequence[object]] = {}) -> list[str]:
    """Return the rules that the answers of a result break, with the row."""
    return [
        f"{rule} in row {i}"
        for answer, i in enumerate(result.of.tolist())
        for rule in explainer.constraints
        if broken(rule, cells(result.rows, i), cells(result.answers, answer), orders)
    ]


def unlike_training(frame: pd.DataFrame, result) -> list[str]:
    """Return changed cells that no training row could have: unknown levels, numbers off the grid or range."""
    wrong = []
    for answer, i in enumerate(result.of.tolist()):
        before, after = cells(result.rows, i), cells(result.answers, answer)
        for name in frame:
            own, known = after[name], frame[name].dropna()
            if same(before[name], own):
                continue
            if pd.isna(own) or pd.isna(before[name]):
                wrong.append(f"{name}: {before[name]!r} became {own!r}")
            elif known.nunique() <= 10 or not pd.api.types.is_numeric_dtype(known):
                if own not in set(known):
                    wrong.append(f"{name}: {own!r} is not a known level")
            else:
                whole = bool((known == known.round()).all())
                low, high = min(known.min(), before[name]), max(known.max(), before[name])
                if (whole and own != round(own)) or not low - 1e-9 <= own <= high + 1e-9:
                    wrong.append(f"{name}: {own!r} is not between {low} and {high}, or not whole")
    return wrong


def survives(ask, n_rows):
    """Return a PlausiflowError with a useful message, or a result with a verdict for each row."""
    try:
        result = ask()
    except PlausiflowError as error:
        text = str(error)
        assert len(text) > 30, text
        assert any(word in text for word in ("must", "cannot", "expected", "does not fit", "needs")), text
        return error
    assert len(result) == len(result.status) == len(result.counterfactuals) == n_rows
    assert set(result.status["status"]) <= STATUSES
    assert result.status["reason"].map(lambda reason: isinstance(reason, str)).all()
    unread = result.status["status"] == "invalid_input"
    assert (result.status["reason"][unread].str.len() > 20).all()
    assert len(list(result)) == n_rows
    assert result.to_json().startswith("{")
    assert len(result.sentences) == n_rows
    result.summary(), result.changes, result.alternatives, result.metrics(), repr(result)
    return result
