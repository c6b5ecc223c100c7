"""Assign rows to actions that are fixed: what is fixed, the call, and what a saved file says about them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from plausiflow.constraints import Rule, rules_from_dicts
from plausiflow.core import suitable_threads
from plausiflow.errors import InvalidInputError
from plausiflow.explainer.identity import explainer_identity
from plausiflow.explainer.results import build_explanations
from plausiflow.groups import (
    Actions,
    Assigned,
    Budget,
    GroupExplanations,
    MembershipTree,
    assign_rows,
    describe_membership,
)
from plausiflow.models import count_model_calls
from plausiflow.search import Engine, ReadRows, SearchRequest, SearchResult, Target, prepare_request
from plausiflow.tables import Layout, to_python

if TYPE_CHECKING:
    from plausiflow.explainer.explainer import Explainer


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupCall:
    """The arguments of a call of ``explain_groups`` that assigned rows share."""

    target: Target
    min_probability: float | None
    constraints: Sequence[Rule]
    second_opinion: bool

    def to_dict(self, *, regression: bool) -> dict[str, Any]:
        """Return the arguments as JSON values; targets of a ``regression`` are intervals.

        Raises:
            InvalidInputError: Each row has a target of its own.
        """
        target = to_python(self.target)
        if regression:
            target = [to_python(end) for end in target]
            same = len(target) == 2 and all(end is None or isinstance(end, int | float) for end in target)
        else:
            same = isinstance(target, str | bool | int | float)
        if not same:
            raise InvalidInputError(
                "`target` must be the same for all rows to be saved; this result has one for each row. Call "
                "`groups.assign(rows, target)` with the outcome, or the interval, that later rows shall "
                "have, and save what that returns."
            )
        return {
            "target": target,
            "min_probability": None if self.min_probability is None else float(self.min_probability),
            "constraints": [rule.to_dict() for rule in self.constraints],
            "second_opinion": bool(self.second_opinion),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> GroupCall:
        """Return the arguments that :meth:`to_dict` wrote."""
        target = values["target"]
        return cls(
            target=tuple(target) if isinstance(target, list) else target,
            min_probability=values["min_probability"],
            constraints=rules_from_dicts(values["constraints"]),
            second_opinion=values["second_opinion"],
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class FixedActions:
    """What is fixed once actions are chosen, so that a row alone is assigned as among others.

    ``most`` is the most that a member may cost while actions are tried, ``limit`` the most that it may cost
    in the end. A limit of None is found on the rows that are assigned first, so that their mean cost is at
    most ``mean``; a membership of None is described from them.
    """

    actions: Actions
    most: float
    mean: float | None = None
    limit: float | None = None
    membership: MembershipTree | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return what is fixed as JSON values."""
        assert self.membership is not None
        costs = {name: getattr(self, name) for name in ("most", "mean", "limit")}
        accuracy = self.membership.accuracy
        return {
            "actions": self.actions.to_dict(),
            **{name: None if cost is None or math.isinf(cost) else cost for name, cost in costs.items()},
            "leaves": [list(leaf) for leaf in self.membership.leaves],
            "accuracy": None if math.isnan(accuracy) else accuracy,
        }

    @classmethod
    def from_dict(cls, layout: Layout, values: Mapping[str, Any]) -> FixedActions:
        """Return what :meth:`to_dict` wrote."""
        most, limit = (
            math.inf if values[name] is None else float(values[name]) for name in ("most", "limit")
        )
        accuracy = math.nan if values["accuracy"] is None else float(values["accuracy"])
        leaves = tuple((str(text), int(action)) for text, action in values["leaves"])
        return cls(
            actions=Actions.from_dict(layout, values["actions"]),
            most=most,
            mean=values["mean"],
            limit=limit,
            membership=MembershipTree(leaves=leaves, accuracy=accuracy),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class RowAssigner:
    """Assigns rows to the actions of a call of ``explain_groups``."""

    explainer: Explainer
    call: GroupCall
    fixed: FixedActions

    def __call__(self, rows: pd.DataFrame, target: Target | None = None) -> GroupExplanations:
        """Return the result for other rows; without a target, that of the call."""
        call = self.call if target is None else replace(self.call, target=target)
        return assign(self.explainer, call, self.fixed, rows)

    def describe(self) -> dict[str, Any]:
        """Return the call, what is fixed, and what the explainer is known by, as JSON values."""
        _, model, _ = self.explainer._fitted()
        return {
            "explainer": explainer_identity(self.explainer),
            "call": self.call.to_dict(regression=not model.labels),
            "fixed": self.fixed.to_dict(),
        }


def group_request(
    explainer: Explainer, rows: pd.DataFrame, call: GroupCall
) -> tuple[Engine, SearchRequest, ReadRows]:
    """Return the engine with the rules of the call, and the request for some rows."""
    encoder, model, engine = explainer._fitted()
    request, choices, read = prepare_request(
        encoder,
        model,
        explainer.criterion_,
        rows,
        call.target,
        min_probability=call.min_probability,
        k=1,
        locked=None,
        time_limit=None,
        relaxed=False,
        second_opinion=call.second_opinion,
        diagnose=False,
        device="cpu",
    )
    if len(choices) > 1 and choices[0].low is None:
        raise InvalidInputError(
            "`target` must name one outcome for each row; got 'other'. Use 'runner_up', or name the outcome."
        )
    return replace(engine.with_rules(call.constraints), device="cpu"), request, read


def rows_in_need(request: SearchRequest) -> Tensor:
    """Return the positions of the rows that can be read and need an action."""
    return torch.from_numpy((request.encoded.usable & ~request.already.numpy()).nonzero()[0])


def assign(
    explainer: Explainer, call: GroupCall, fixed: FixedActions, rows: pd.DataFrame
) -> GroupExplanations:
    """Assign rows to actions."""
    with suitable_threads(rows), count_model_calls() as counted:
        engine, request, read = group_request(explainer, rows, call)
        encoder, _, _ = explainer._fitted()
        needing = rows_in_need(request)
        assigned = assign_rows(engine, encoder, request, fixed.actions, needing, fixed.most)
        if fixed.limit is None:
            budget = Budget(most=fixed.most, mean=fixed.mean)
            fixed = replace(fixed, limit=budget.limit(assigned.answers.cost))
        assert fixed.limit is not None
        assigned = assigned.within(fixed.limit)
        rules = [*explainer.constraints, *call.constraints]
        found = _search_result(request, assigned)
        explanations = build_explanations(explainer, engine, request, found, read, counted, rules)
        action = np.where(explanations.is_found, assigned.action + 1, 0)
        if fixed.membership is None:
            own = needing.numpy()
            membership = describe_membership(encoder, request.encoded.x[needing], action[own] - 1)
            fixed = replace(fixed, membership=membership)
    assert fixed.membership is not None
    assert fixed.limit is not None
    return GroupExplanations(
        explanations=explanations,
        shared=fixed.actions,
        action=action,
        membership=fixed.membership,
        limit=fixed.limit,
        encoder=encoder,
        assigner=RowAssigner(explainer=explainer, call=call, fixed=fixed),
    )


def _search_result(request: SearchRequest, assigned: Assigned) -> SearchResult:
    """Return members and rows without an action as the result of a search."""
    status = np.where(request.already.numpy(), "already", "infeasible").astype(object)
    status[~request.encoded.usable] = "invalid_input"
    status[assigned.action >= 0] = "found"
    answers = assigned.answers
    return SearchResult(
        status=status,
        reason=np.where(request.encoded.usable, assigned.reason, request.encoded.problems),
        of=answers.of,
        x_cf=answers.x_cf,
        decoded=answers.decoded,
        cost=answers.cost,
        score=answers.score,
        misses=request.frame.iloc[:0],
        misses_of=np.empty(0, dtype=np.int64),
        misses_why=[],
        roles=assigned.roles,
    )
